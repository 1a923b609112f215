/* a (64 x 128) . b (128 x n) of e4m3 numbers, a from shared memory (block 0) and from registers. */
enum { N = ${n}, B = 8192, BAR = B + 128 * N };

KERNEL void conformance(PARAM TensorMap map_a, PARAM TensorMap map_b, PARAM Args x) {
  const u32 t = (u32)thread_index(), s = shared_base();
  const int row = (int)(t / 32 * 16 + t % 32 / 4), column = (int)(2 * (t % 4));
  const u64 swizzled = 1ull << 62 | 64ull << 32, da = swizzled | s >> 4;
  const u64 db = swizzled | (s + B) >> 4;
  u32 f[16];
  float d[N / 2];
  if (t == 0) {
    bar_init(s + BAR, 1);
    fence_bar_init();
  }
  sync_threads();
  if (t == 0) {
    bar_expect(s + BAR, 8192 + 128 * N);
    tma_load_2d(s, &map_a, s + BAR, 0, 0, ${policy});
    tma_load_2d(s + B, &map_b, s + BAR, 0, 0, ${policy});
  }
  bar_wait(s + BAR, 0);
  for (int i = 0; i < 16; i++) {
    const u16 *p =
        (const u16 *)x.in + (row + i % 2 * 8) * 64 + i / 4 * 16 + i % 4 / 2 * 8 + column;
    f[i] = ldg_u16(p) | ldg_u16(p + 1) << 16;
  }
  touch_u32x16(f);
  for (int i = 0; i < N / 2; i++) d[i] = 1.0f;
  touch_f32x${count}(d);
  if (block_index() == 0) {
    wgmma_fence();
    for (int k = 0; k < 4; k++)
      wgmma_ss_n${n}_e4m3(d, da + 2 * (u64)k, db + 2 * (u64)k, 1);
    wgmma_commit();
    wgmma_wait(0);
  } else {
    wgmma_fence();
    for (int k = 0; k < 4; k++)
      wgmma_rs_n${n}_e4m3(d, f + 4 * k, db + 2 * (u64)k, k);
    wgmma_commit();
    wgmma_wait(0);
  }
  touch_f32x${count}(d);
  float *out = (float *)x.out + 64 * N * block_index();
  for (int i = 0; i < N / 2; i++)
    stg_f32(out + (row + i % 4 / 2 * 8) * N + i / 4 * 8 + column + i % 2, d[i]);
}
