/* Small matrix products for the host's vector units: see matmul.h. One text is compiled for two
 * instruction sets, and the processor at hand decides. */
#include "runtime/emulator/matmul.h"

#include <math.h>
#include <string.h>

typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* ---- products: four rows by eight columns at a time ---- */

INLINE void block_4x8(const emu_product *p, u32 row, u32 column) {
  floats sum[4];
  for (u32 r = 0; r < 4; r++) sum[r] = *(const floats *)(p->d + (row + r) * p->ld + column);
  for (u32 k = 0; k < 16; k++) {
    const floats b = *(const floats *)(p->b + k * p->ldb + column);
    for (u32 r = 0; r < 4; r++) sum[r] += p->a[(row + r) * 16 + k] * b;
  }
  for (u32 r = 0; r < 4; r++) *(floats *)(p->d + (row + r) * p->ld + column) = sum[r];
}

INLINE void block_4x16(const emu_product *p, u32 row, u32 column) {
  floats sum[4][2];
  for (u32 r = 0; r < 4; r++)
    for (u32 h = 0; h < 2; h++)
      sum[r][h] = *(const floats *)(p->d + (row + r) * p->ld + column + 8 * h);
  for (u32 k = 0; k < 16; k++) {
    const floats b0 = *(const floats *)(p->b + k * p->ldb + column);
    const floats b1 = *(const floats *)(p->b + k * p->ldb + column + 8);
    for (u32 r = 0; r < 4; r++) {
      const float a = p->a[(row + r) * 16 + k];
      sum[r][0] += a * b0;
      sum[r][1] += a * b1;
    }
  }
  for (u32 r = 0; r < 4; r++)
    for (u32 h = 0; h < 2; h++) *(floats *)(p->d + (row + r) * p->ld + column + 8 * h) = sum[r][h];
}

INLINE void accumulate(const emu_product *p) {
  for (u32 row = 0; row < p->rows; row += 4) {
    u32 column = 0;
    for (; column + 16 <= p->n; column += 16) block_4x16(p, row, column);
    if (column < p->n) block_4x8(p, row, column);
  }
}

/* ---- 16-bit numbers to fp32 ---- */

INLINE float widen_fp16(u16 x) {
  const u32 magnitude = (u32)(x & 0x7fff) << 13;
  float scaled;
  memcpy(&scaled, &magnitude, sizeof scaled);
  scaled *= 0x1p112f; /* the difference of the exponents' biases; exact, subnormals too */
  u32 bits;
  memcpy(&bits, &scaled, sizeof bits);
  bits |= (x & 0x7c00) == 0x7c00 ? 0x7f800000u : 0; /* infinity and NaN */
  bits |= (u32)(x & 0x8000) << 16;
  memcpy(&scaled, &bits, sizeof scaled);
  return scaled;
}

INLINE void widen(float *to, const u16 *from, u32 count, int dtype) {
  if (dtype == EMU_FP16) {
    for (u32 i = 0; i < count; i++) to[i] = widen_fp16(from[i]);
    return;
  }
  for (u32 i = 0; i < count; i++) {
    const u32 bits = (u32)from[i] << 16;
    memcpy(&to[i], &bits, sizeof bits);
  }
}

/* ---- two instruction sets ---- */

static void accumulate_baseline(const emu_product *p) { accumulate(p); }

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void accumulate_avx2(const emu_product *p) {
  accumulate(p);
}
static int has_avx2(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
static void accumulate_avx2(const emu_product *p) { accumulate(p); }
static int has_avx2(void) { return 0; }
#endif

void kiln__matmul_accumulate(const emu_product *product) {
  if (has_avx2())
    accumulate_avx2(product);
  else
    accumulate_baseline(product);
}

/* e4m3: 7 is the exponents' bias, 0x7f alone is no number. */
static float e4m3(u8 x) {
  const u32 exponent = x >> 3 & 15, mantissa = x & 7;
  float magnitude = (float)mantissa * 0x1p-9f; /* subnormal */
  const u32 bits = (exponent + 120) << 23 | mantissa << 20;
  if (exponent) memcpy(&magnitude, &bits, sizeof magnitude);
  if ((x & 0x7f) == 0x7f) magnitude = NAN;
  return x & 0x80 ? -magnitude : magnitude;
}

void kiln__matmul_widen_e4m3(float *to, const u8 *from, u32 count) {
  for (u32 i = 0; i < count; i++) to[i] = e4m3(from[i]);
}

void kiln__matmul_widen(float *to, const u16 *from, u32 count, int dtype) {
  widen(to, from, count, dtype);
}
