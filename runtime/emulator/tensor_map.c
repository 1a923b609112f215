/* Tensor maps of the emulator, with the argument checks of cuTensorMapEncodeTiled. */
#include "runtime/emulator/tensor_map.h"

#include <string.h>

#define MAX_BOX    256u
#define MAX_DIM    (1ull << 32)
#define MAX_STRIDE (1ull << 40)

static kiln_status refuse(kiln__text *error, const char *what, unsigned long long value,
                          const char *legal) {
  kiln__text_printf(error, "the tensor map's %s is %llu; legal is %s", what, value, legal);
  return KILN_INVALID_ARGUMENT;
}

static kiln_status check_sizes(const kiln__tensor_map *map, kiln__text *error) {
  for (int i = 0; i < map->rank; i++) {
    if (map->dims[i] < 1 || map->dims[i] > MAX_DIM)
      return refuse(error, "dimension", map->dims[i], "1 to 2^32");
    if (map->box[i] < 1 || map->box[i] > MAX_BOX)
      return refuse(error, "box", map->box[i], "1 to 256");
  }
  for (int i = 0; i < map->rank - 1; i++)
    if (map->strides[i] % 16 || map->strides[i] >= MAX_STRIDE)
      return refuse(error, "stride", map->strides[i], "a multiple of 16 bytes below 2^40");
  return KILN_OK;
}

static u32 element_bytes(kiln_dtype dtype) {
  switch (dtype) {
  case KILN_DTYPE_E4M3: return 1;
  case KILN_DTYPE_FP16:
  case KILN_DTYPE_BF16: return 2;
  case KILN_DTYPE_FP32: return 4;
  default: return 0;
  }
}

static kiln_status check_box(const kiln__tensor_map *map, kiln__text *error) {
  const u32 inner = map->box[0] * element_bytes(map->dtype);
  const int swizzle = map->swizzle;
  if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
    return refuse(error, "swizzle", (unsigned long long)swizzle, "0, 32, 64 or 128 bytes");
  if (inner % 16) return refuse(error, "inner box in bytes", inner, "a multiple of 16");
  if (swizzle && inner > (u32)swizzle)
    return refuse(error, "inner box in bytes", inner, "at most the swizzle");
  return KILN_OK;
}

static void fill(const kiln__tensor_map *map, TensorMap *out) {
  memset(out, 0, sizeof *out);
  out->magic = EMU_MAP_MAGIC;
  /* device memory of the emulator is the host's; a map says nothing about who may write */
  memcpy(&out->address, &map->address, sizeof out->address);
  for (int i = 0; i < EMU_RANK; i++) {
    out->dims[i] = i < map->rank ? map->dims[i] : 1;
    out->box[i] = i < map->rank ? map->box[i] : 1;
  }
  for (int i = 0; i < map->rank - 1; i++) out->strides[i] = map->strides[i];
  out->swizzle = (u32)map->swizzle;
  out->rank = (u8)map->rank;
  out->dtype = (u8)map->dtype;
  out->element = (u8)element_bytes(map->dtype);
}

kiln_status kiln__tensor_map_encode(const kiln__tensor_map *map, kiln__text *error,
                                    TensorMap *out) {
  if ((uintptr_t)map->address % 16)
    return refuse(error, "address", (uintptr_t)map->address, "a multiple of 16");
  if (map->rank < 1 || map->rank > KILN__TENSOR_RANK)
    return refuse(error, "rank", (unsigned long long)map->rank, "1 to 5");
  if (!element_bytes(map->dtype))
    return refuse(error, "dtype", (unsigned long long)map->dtype, "fp16, bf16, e4m3 or fp32");
  kiln_status status = check_sizes(map, error);
  if (status == KILN_OK) status = check_box(map, error);
  if (status == KILN_OK) fill(map, out);
  return status;
}

_Static_assert(sizeof(TensorMap) == KILN__TENSOR_MAP_BYTES, "a tensor map has 128 bytes");
