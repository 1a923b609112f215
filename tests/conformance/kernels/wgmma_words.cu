/* a (64 x 64) . b by the lower words of descriptors: from shared memory and from registers, b as
 * (n, k) and as (k, n); the first instruction overwrites d, or adds to 1 in the latter two. Then
 * rows of 16 bytes: a's first 16 columns from registers, or one core matrix for all rows, by those
 * of b. Six blocks, a product of 64 x n each, row-major. */
enum {
  N = ${n}, PANELS = (N + 63) / 64, B = 8192, BT = B + 128 * N, BAR = BT + 8192 * PANELS
};

DEV void load(u32 s, const TensorMap *map_a, const TensorMap *map_b, const TensorMap *map_t) {
  bar_expect(s + BAR, 8192 + 128 * N + 8192 * PANELS);
  tma_load(s, map_a, s + BAR, 0, 0, 0, 0, ${policy});
  tma_load(s + B, map_b, s + BAR, 0, 0, 0, 0, ${policy});
  for (int i = 0; i < PANELS; i++)
    tma_load(s + BT + 8192 * (u32)i, map_t, s + BAR, 64 * i, 0, 0, 0, ${policy});
}

DEV void fill(float *d) {
  for (int i = 0; i < N / 2; i++) d[i] = 1.0f;
  touch_f32x${count}(d);
}

DEV void store(char *out, int row, int column, float *d) {
  touch_f32x${count}(d);
  for (int i = 0; i < N / 2; i++)
    stg_f32((float *)out + (row + i % 4 / 2 * 8) * N + i / 4 * 8 + column + i % 2, d[i]);
}

KERNEL void conformance(PARAM TensorMap map_a, PARAM TensorMap map_b, PARAM TensorMap map_t,
                        PARAM Args x) {
  const u32 t = (u32)thread_index(), s = shared_base();
  const int row = (int)(t / 32 * 16 + t % 32 / 4), column = (int)(2 * (t % 4));
  const u32 da = s >> 4, db = (s + B) >> 4, dt = 512u << 16 | (s + BT) >> 4;
  u32 f[16];
  float d[N / 2];
  if (t == 0) {
    bar_init(s + BAR, 1);
    fence_bar_init();
  }
  sync_threads();
  if (t == 0) load(s, &map_a, &map_b, &map_t);
  bar_wait(s + BAR, 0);
  for (int i = 0; i < 16; i++) {
    const u16 *p = (const u16 *)x.in + (row + i % 2 * 8) * 64 + column + i / 2 * 8;
    f[i] = ldg_u16(p) | ldg_u16(p + 1) << 16;
  }
  touch_u32x16(f);

  fill(d);
  wgmma_fence();
  if (block_index() == 0) {
    wgmma_set_ss_n${n}_${dtype}(d, da, 0, db, 0);
    wgmma_add_ss_n${n}_${dtype}(d, da, 2, db, 2);
    wgmma_add_ss_n${n}_${dtype}(d, da, 4, db, 4);
    wgmma_add_ss_n${n}_${dtype}(d, da, 6, db, 6);
  } else if (block_index() == 1) {
    wgmma_set_rs_n${n}_${dtype}(d, f + 0, db, 0);
    wgmma_add_rs_n${n}_${dtype}(d, f + 4, db, 2);
    wgmma_add_rs_n${n}_${dtype}(d, f + 8, db, 4);
    wgmma_add_rs_n${n}_${dtype}(d, f + 12, db, 6);
  } else if (block_index() == 2) {
    wgmma_add_ss_n${n}_${dtype}_t(d, da, 0, dt, 0);
    wgmma_add_ss_n${n}_${dtype}_t(d, da, 2, dt, 128);
    wgmma_add_ss_n${n}_${dtype}_t(d, da, 4, dt, 256);
    wgmma_add_ss_n${n}_${dtype}_t(d, da, 6, dt, 384);
  } else if (block_index() == 3) {
    wgmma_add_rs_n${n}_${dtype}_t(d, f + 0, dt, 0);
    wgmma_add_rs_n${n}_${dtype}_t(d, f + 4, dt, 128);
    wgmma_add_rs_n${n}_${dtype}_t(d, f + 8, dt, 256);
    wgmma_add_rs_n${n}_${dtype}_t(d, f + 12, dt, 384);
  } else if (block_index() == 4) {
    wgmma_set_rs_n${n}_bf16_flat(d, f, db, 0);
  } else {
    wgmma_add_ss_n${n}_bf16_flat(d, 8u << 16 | da, 0, db, 0);
  }
  wgmma_commit();
  wgmma_wait(0);
  store(x.out + 256 * N * block_index(), row, column, d);
}
