/* ---- producer: one thread ---- */

/* Sends keys and values once, then a query block and its dO a step. */
DEV void produce(u32 smem, Tile x, const TensorMap *map_q, const TensorMap *map_k,
                 const TensorMap *map_v, const TensorMap *map_do, const BackwardArgs *a) {
  const u64 keep = 0x14F0000000000000ull, once = 0x12F0000000000000ull; /* L2: evict last, first */
  const int steps = steps_of(x, a), row_k = x.n * ${block};
  int head = x.head_k * a->group, m = x.m0;
  if (steps == 0) return;
  bar_expect(k_full(smem), ${q_panels.total});
  for (int c = 0; c < ${q_panels.count}; c++)
    tma_load(smem + ${at.k} + c * ${tile}, map_k, k_full(smem), 64 * c, row_k, x.head_k, x.batch,
             once);
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
    const int slot = i & 1;
    bar_wait(q_empty(smem, slot), (i >> 1 & 1) ^ 1);
    bar_expect(q_full(smem, slot), ${q_panels.total});
    for (int c = 0; c < ${q_panels.count}; c++)
      tma_load(smem + ${at.q} + slot * ${q_panels.total} + c * ${tile}, map_q, q_full(smem, slot),
               64 * c, m * ${block}, head, x.batch, keep);
    if (i == 0) {
      bar_expect(v_full(smem), ${v_panels.total});
      for (int c = 0; c < ${v_panels.count}; c++)
        tma_load(smem + ${at.v} + c * ${tile}, map_v, v_full(smem), 64 * c, row_k, x.head_k,
                 x.batch, once);
    }
//@ if num_stages == 2 then
    const int place = slot, parity = i >> 1 & 1;
//@ else
    const int place = 0, parity = i & 1;
//@ end
    bar_wait(do_empty(smem, place), parity ^ 1);
    bar_expect(do_full(smem, place), ${v_panels.total});
    for (int c = 0; c < ${v_panels.count}; c++)
      tma_load(smem + ${at["do"]} + place * ${v_panels.total} + c * ${tile}, map_do,
               do_full(smem, place), 64 * c, m * ${block}, head, x.batch, keep);
    if (++m == a->m_blocks) {
      m = x.m0;
      head++;
    }
  }
}
