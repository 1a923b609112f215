/* The arithmetic of the matrix instructions: 16-bit or 8-bit operands, fp32 sums. Products of two
 * such numbers are exact in fp32, so a sum is the same with and without fused multiply-add.
 * Used by mma.c and wgmma.c. */
#ifndef KILN_EMULATOR_MATMUL_H
#define KILN_EMULATOR_MATMUL_H

#include "runtime/emulator/api.h"

enum { EMU_FP16 = 0, EMU_BF16 = 1, EMU_E4M3 = 2, EMU_FP32 = 3 }; /* kiln_dtype */

/* fp16 or bf16 */
void kiln__matmul_widen(float *to, const u16 *from, u32 count, int dtype);
void kiln__matmul_widen_e4m3(float *to, const u8 *from, u32 count);

/* d (rows x n, rows ld apart) += a (rows x 16) . b (16 x n, rows ldb apart); k runs from 0 to 15.
 * rows is a multiple of 4, n of 8. */
typedef struct emu_product {
  float *d;
  const float *a, *b;
  u32 rows, n, ld, ldb;
} emu_product;

void kiln__matmul_accumulate(const emu_product *product);

#endif
