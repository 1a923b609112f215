/* The emulator's tensor map: what a TMA descriptor says, in the clear, in the 128 bytes that a
 * kernel takes by value. Made by device.c through kiln__tensor_map_encode, read by tma.c. */
#ifndef KILN_EMULATOR_TENSOR_MAP_H
#define KILN_EMULATOR_TENSOR_MAP_H

#include "runtime/device.h"
#include "runtime/emulator/api.h"

#define EMU_MAP_MAGIC 0x7e57ab1e5eed0002ull
#define EMU_RANK      KILN__TENSOR_RANK

struct TensorMap {
  u64 magic;
  char *address;
  u64 dims[EMU_RANK];        /* elements, innermost first; 1 from dim `rank` on */
  u64 strides[EMU_RANK - 1]; /* bytes, from dim 1 on */
  u32 box[EMU_RANK];         /* elements; 1 from dim `rank` on */
  u32 swizzle;               /* bytes: 0, 32, 64, 128 */
  u8 rank, dtype, element;   /* kiln_dtype; bytes of one */
  u8 reserved[13];
};

/* INVALID_ARGUMENT and a sentence for what cuTensorMapEncodeTiled refuses. */
kiln_status kiln__tensor_map_encode(const kiln__tensor_map *map, kiln__text *error, TensorMap *out);

/* The shared address that the swizzle of `bytes` (0, 32, 64 or 128) makes of one. */
static inline u32 kiln__swizzle(u32 bytes, u32 at) {
  switch (bytes) {
  case 128: return at ^ ((at >> 7 & 7) << 4);
  case 64: return at ^ ((at >> 7 & 3) << 4);
  case 32: return at ^ ((at >> 7 & 1) << 4);
  default: return at;
  }
}

#endif
