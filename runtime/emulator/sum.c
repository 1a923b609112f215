/* Sums that bulk copies make in global memory, rounded to nearest even; none flushes subnormals, as
 * an H200 does not, while red and atom flush those of fp32 (atomic.c). Called by transfer.c. */
#include <math.h>
#include <string.h>

#include "runtime/emulator/matmul.h"
#include "runtime/emulator/transfer.h"

static u16 narrow_bf16(float x) {
  u32 u;
  memcpy(&u, &x, sizeof u);
  if (isnan(x)) return 0x7fff;
  return (u16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static u16 narrow_fp16(float x) {
  u32 u;
  memcpy(&u, &x, sizeof u);
  const u32 sign = u >> 16 & 0x8000;
  u &= 0x7fffffff;
  if (isnan(x)) return 0x7fff;
  if (u >= 0x477ff000) return (u16)(sign | 0x7c00); /* 65520 and above */
  if (u < 0x38800000)                               /* subnormal: in units of 2^-24 */
    return (u16)(sign | (u32)rintf(fabsf(x) * 0x1p24f));
  return (u16)(sign | (u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13);
}

static void add_short(char *to, const char *from, int dtype) {
  u16 pair[2];
  float wide[2];
  memcpy(&pair[0], to, sizeof pair[0]);
  memcpy(&pair[1], from, sizeof pair[1]);
  kiln__matmul_widen(wide, pair, 2, dtype);
  const float sum = wide[0] + wide[1];
  pair[0] = dtype == EMU_BF16 ? narrow_bf16(sum) : narrow_fp16(sum);
  memcpy(to, &pair[0], sizeof pair[0]);
}

static void add_float(char *to, const char *from) {
  float x, y;
  memcpy(&x, to, sizeof x);
  memcpy(&y, from, sizeof y);
  x += y;
  memcpy(to, &x, sizeof x);
}

void kiln__sum(char *to, const char *from, u32 bytes, int dtype) {
  const u32 step = dtype == EMU_FP32 ? 4 : 2;
  for (u32 i = 0; i < bytes; i += step) {
    if (dtype == EMU_FP32)
      add_float(to + i, from + i);
    else
      add_short(to + i, from + i, dtype);
  }
}
