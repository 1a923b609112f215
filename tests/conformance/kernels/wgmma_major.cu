/* a (64 x 64) . b (64 x n), a as a (k, m) tile; b as (n, k) (block 0) and as (k, n). */
enum {
  N = ${n}, PANELS = (N + 63) / 64, B = 8192, BT = B + 128 * N, BAR = BT + 8192 * PANELS
};

KERNEL void conformance(PARAM TensorMap map_a, PARAM TensorMap map_b, PARAM TensorMap map_t,
                        PARAM Args x) {
  const u32 t = (u32)thread_index(), s = shared_base();
  const int row = (int)(t / 32 * 16 + t % 32 / 4), column = (int)(2 * (t % 4));
  const u64 swizzled = 1ull << 62 | 64ull << 32, da = swizzled | 512ull << 16 | s >> 4;
  const u64 db = swizzled | (s + B) >> 4, dt = swizzled | 512ull << 16 | (s + BT) >> 4;
  float d[N / 2];
  if (t == 0) {
    bar_init(s + BAR, 1);
    fence_bar_init();
  }
  sync_threads();
  if (t == 0) {
    bar_expect(s + BAR, 8192 + 128 * N + 8192 * PANELS);
    tma_load_2d(s, &map_a, s + BAR, 0, 0, ${policy});
    tma_load_2d(s + B, &map_b, s + BAR, 0, 0, ${policy});
    for (int i = 0; i < PANELS; i++)
      tma_load_2d(s + BT + 8192 * (u32)i, &map_t, s + BAR, 64 * i, 0, ${policy});
  }
  bar_wait(s + BAR, 0);
  for (int i = 0; i < N / 2; i++) d[i] = 1.0f;
  touch_f32x${count}(d);
  if (block_index() == 0) {
    wgmma_fence();
    for (int k = 0; k < 4; k++)
      wgmma_ss_n${n}_${dtype}_ta(d, da + 128 * (u64)k, db + 2 * (u64)k, 1);
    wgmma_commit();
    wgmma_wait(0);
  } else {
    wgmma_fence();
    for (int k = 0; k < 4; k++)
      wgmma_ss_n${n}_${dtype}_tab(d, da + 128 * (u64)k, dt + 128 * (u64)k, k);
    wgmma_commit();
    wgmma_wait(0);
  }
  touch_f32x${count}(d);
  float *out = (float *)x.out + 64 * N * block_index();
  for (int i = 0; i < N / 2; i++)
    stg_f32(out + (row + i % 4 / 2 * 8) * N + i / 4 * 8 + column + i % 2, d[i]);
}
