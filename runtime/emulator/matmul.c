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

typedef u16 shorts __attribute__((vector_size(16), aligned(2), may_alias));
typedef u32 words __attribute__((vector_size(32), aligned(4), may_alias));

/* Eight numbers. Of fp16 the exponents' biases differ by 112; that step is exact, of subnormals
 * too, and infinities and NaN are put back behind it. */
INLINE void widen_8(float *to, const u16 *from, int dtype) {
  const words x = __builtin_convertvector(*(const shorts *)from, words);
  words bits = x << 16;
  if (dtype == EMU_FP16) {
    const floats scaled = (floats)((x & 0x7fff) << 13) * 0x1p112f;
    const words special = (words)((x & 0x7c00) == 0x7c00) & 0x7f800000u;
    bits = (words)scaled | special | (x & 0x8000) << 16;
  }
  *(words *)to = bits;
}

INLINE void widen(float *to, const u16 *from, u32 count, int dtype) {
  u32 i = 0;
  for (; i + 8 <= count; i += 8) widen_8(to + i, from + i, dtype);
  if (i == count) return;
  u16 rest[8] = {0};
  float wide[8];
  memcpy(rest, from + i, (count - i) * sizeof *rest);
  widen_8(wide, rest, dtype);
  memcpy(to + i, wide, (count - i) * sizeof *wide);
}

/* ---- two instruction sets ---- */

static void accumulate_baseline(const emu_product *p) { accumulate(p); }
static void widen_baseline(float *to, const u16 *from, u32 count, int dtype) {
  widen(to, from, count, dtype);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void accumulate_avx2(const emu_product *p) {
  accumulate(p);
}
__attribute__((target("avx2,fma"))) static void widen_avx2(float *to, const u16 *from, u32 count,
                                                           int dtype) {
  widen(to, from, count, dtype);
}
static int has_avx2(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
static void accumulate_avx2(const emu_product *p) { accumulate(p); }
static void widen_avx2(float *to, const u16 *from, u32 count, int dtype) {
  widen(to, from, count, dtype);
}
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
  if (has_avx2())
    widen_avx2(to, from, count, dtype);
  else
    widen_baseline(to, from, count, dtype);
}
