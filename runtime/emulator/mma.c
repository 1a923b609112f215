/* mma.sync m16n8k16: d (16 x 8, fp32) += a (16 x 16) . b (16 x 8), 16-bit operands in registers.
 *
 * With g = lane / 4 and q = lane % 4 a lane holds
 *   a0 a1 a2 a3   rows g, g + 8, g, g + 8; columns 2q, 2q + 1 (a0 a1), 2q + 8, 2q + 9 (a2 a3)
 *   b0 b1         rows 2q, 2q + 1 and 2q + 8, 2q + 9 of column g
 *   d0 d1 d2 d3   row g (d0 d1) and g + 8 (d2 d3), columns 2q, 2q + 1 */
#include "runtime/emulator/matmul.h"
#include "runtime/emulator/warp.h"

#include <string.h>

/* a and b as rows of 16-bit numbers: 16 x 16 and, transposed, 8 x 16. */
static void gather(const emu_warp *warp, u16 *a, u16 *b) {
  for (u32 lane = 0; lane < EMU_WARP; lane++) {
    const u32 g = lane / 4, q = lane % 4;
    const u32 *ra = warp->offers[lane].in[0], *rb = warp->offers[lane].in[1];
    for (u32 i = 0; i < 4; i++)
      memcpy(a + (g + 8 * (i % 2)) * 16 + 2 * q + 8 * (i / 2), &ra[i], sizeof ra[i]);
    for (u32 i = 0; i < 2; i++) memcpy(b + g * 16 + 2 * q + 8 * i, &rb[i], sizeof rb[i]);
  }
}

/* Between the lanes' registers and a 16 x 8 matrix. */
static void load_sums(const emu_warp *warp, float *d) {
  for (u32 lane = 0; lane < EMU_WARP; lane++)
    for (u32 half = 0; half < 2; half++)
      memcpy(d + (lane / 4 + 8 * half) * 8 + 2 * (lane % 4),
             (const float *)warp->offers[lane].out + 2 * half, 2 * sizeof *d);
}

static void store_sums(const emu_warp *warp, const float *d) {
  for (u32 lane = 0; lane < EMU_WARP; lane++)
    for (u32 half = 0; half < 2; half++)
      memcpy((float *)warp->offers[lane].out + 2 * half,
             d + (lane / 4 + 8 * half) * 8 + 2 * (lane % 4), 2 * sizeof *d);
}

static void consume(emu_warp *warp) {
  for (u32 i = 0; i < EMU_WARP; i++) {
    emu_thread *thread = &warp->threads[i];
    if (!thread->proxy.num_loads) continue;
    kiln__proxy_consumed(thread, warp->offers[i].in[0], 4);
    kiln__proxy_consumed(thread, warp->offers[i].in[1], 2);
  }
}

static void multiply(emu_warp *warp) {
  u16 a[16 * 16], b[8 * 16];
  float d[16 * 8], wide_a[16 * 16], wide_b[8 * 16], columns[16 * 8];
  const int dtype = (int)warp->offers[0].argument;
  gather(warp, a, b);
  load_sums(warp, d);
  kiln__matmul_widen(wide_a, a, 16 * 16, dtype);
  kiln__matmul_widen(wide_b, b, 8 * 16, dtype);
  for (u32 k = 0; k < 16; k++)
    for (u32 n = 0; n < 8; n++) columns[k * 8 + n] = wide_b[n * 16 + k];
  const emu_product product = {d, wide_a, columns, 16, 8, 8, 8};
  kiln__matmul_accumulate(&product);
  store_sums(warp, d);
  consume(warp);
}

void kiln__emu_mma_m16n8k16(int dtype, float *d, const u32 *a, const u32 *b, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_offer *offer = kiln__warp_offer(thread);
  offer->argument = (u32)dtype;
  offer->out = d;
  offer->in[0] = a;
  offer->in[1] = b;
  kiln__warp_meet(thread, multiply, site);
}
