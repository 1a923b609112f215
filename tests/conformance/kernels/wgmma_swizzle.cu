/* a (64 x depth) . b in panels as wide as the swizzle, or of 16 bytes without one; depth is one
 * panel of a swizzled tile, or 16. */
enum {
  N = ${n}, DEPTH = ${depth}, PANEL = ${panel}, TRANS = ${trans}, B_ROWS = TRANS ? DEPTH : N,
  B_PANELS = (TRANS ? N : DEPTH) / PANEL, A_PANELS = DEPTH / PANEL,
  B = 8192, BAR = B + 36864
};

KERNEL void conformance(PARAM TensorMap map_a, PARAM TensorMap map_b, PARAM Args x) {
  const u32 t = (u32)thread_index(), s = shared_base();
  const int row = (int)(t / 32 * 16 + t % 32 / 4), column = (int)(2 * (t % 4));
  if (t == 0) {
    bar_init(s + BAR, 1);
    fence_bar_init();
  }
  sync_threads();
  if (t == 0) {
    bar_expect(s + BAR, 2 * DEPTH * (64 + N));
    for (int i = 0; i < A_PANELS; i++)
      tma_load(s + (u32)i * 64 * PANEL * 2, &map_a, s + BAR, i * PANEL, 0, 0, 0, ${policy});
    for (int i = 0; i < B_PANELS; i++)
      tma_load(s + B + (u32)i * B_ROWS * PANEL * 2, &map_b, s + BAR, i * PANEL, 0, 0, 0,
               ${policy});
  }
  bar_wait(s + BAR, 0);
  const u64 da = ${fields_a} | s >> 4, db = ${fields_b} | (s + B) >> 4;
  float d[N / 2];
  for (int i = 0; i < N / 2; i++) d[i] = 1.0f;
  touch_f32x${count}(d);
  wgmma_fence();
  for (int k = 0; k < DEPTH / 16; k++)
    wgmma_ss_n${n}_${dtype}${suffix}(d, da + (u64)k * ${a_step}, db + (u64)k * ${b_step}, 1);
  wgmma_commit();
  wgmma_wait(0);
  touch_f32x${count}(d);
  for (int i = 0; i < N / 2; i++)
    stg_f32((float *)x.out + (row + i % 4 / 2 * 8) * N + i / 4 * 8 + column + i % 2, d[i]);
}
