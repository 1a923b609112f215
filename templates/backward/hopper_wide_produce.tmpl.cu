/* ---- producer: one thread ---- */

//@ if pair then
/* Sends keys and values once, the other thread block's keys in the columns of this one's dQ too,
 * then a query block and its dO a step: half of the rows, to both thread blocks. */
//@ else
/* Sends keys and values once, then a query block and its dO a step. */
//@ end
DEV void produce(u32 smem, int rank, Tile x, const TensorMap *map_q, const TensorMap *map_k,
                 const TensorMap *map_v, const TensorMap *map_do, const BackwardArgs *a) {
  const u64 keep = 0x14F0000000000000ull, once = 0x12F0000000000000ull; /* L2: evict last, first */
  const int steps = steps_of(x, a), row_k = x.first;
  int head = x.head_k * a->group, m = x.m0;
  if (steps == 0) return;
  bar_expect(k_full(smem), ${q_panels.total + (pair and 2 * tile or 0)});
  for (int c = 0; c < ${q_panels.count}; c++)
    tma_load(smem + ${at.k} + c * ${tile}, map_k, k_full(smem), 64 * c, row_k, x.head_k, x.batch,
             once);
//@ if pair then
  for (int c = 0; c < 2; c++)
    tma_load(smem + ${at.peer_k} + c * ${tile}, map_k, k_full(smem), 64 * (2 * rank + c),
             row_k + (rank ? -${block} : ${block}), x.head_k, x.batch, once);
//@ else
  (void)rank;
//@ end
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
    const int slot = i & 1;
    bar_wait(q_empty(smem, slot), (i >> 1 & 1) ^ 1);
    bar_expect(q_full(smem, slot), ${q_panels.total});
//@ if pair then
    const u32 to_q = smem + ${at.q} + slot * ${q_panels.total} + rank * ${tile // 2};
    for (int c = 0; c < ${q_panels.count}; c++)
      tma_load_multicast(to_q + c * ${tile}, map_q, q_full(smem, slot), 64 * c,
                         m * ${block} + rank * ${block // 2}, head, x.batch, keep, 3);
//@ else
    for (int c = 0; c < ${q_panels.count}; c++)
      tma_load(smem + ${at.q} + slot * ${q_panels.total} + c * ${tile}, map_q, q_full(smem, slot),
               64 * c, m * ${block}, head, x.batch, keep);
//@ end
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
//@ if pair then
    const u32 to_do = smem + ${at["do"]} + place * ${v_panels.total} + rank * ${tile // 2};
    for (int c = 0; c < ${v_panels.count}; c++)
      tma_load_multicast(to_do + c * ${tile}, map_do, do_full(smem, place), 64 * c,
                         m * ${block} + rank * ${block // 2}, head, x.batch, keep, 3);
//@ else
    for (int c = 0; c < ${v_panels.count}; c++)
      tma_load(smem + ${at["do"]} + place * ${v_panels.total} + c * ${tile}, map_do,
               do_full(smem, place), 64 * c, m * ${block}, head, x.batch, keep);
//@ end
    if (++m == a->m_blocks) {
      m = x.m0;
      head++;
    }
  }
}
//@ if pair then

/* ---- sender: one thread ---- */

/* Copies dS of a step to the other thread block, whose own arrives the same way. */
DEV void send_ds(u32 smem, int rank, Tile x, const BackwardArgs *a) {
  const int steps = steps_of(x, a);
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
    const int slot = i & 1;
    const u32 from = smem + ${at.ds} + slot * ${ds_bytes};
    bar_wait(ds_full(smem, slot), i >> 1 & 1);
    bar_expect(peer_full(smem, slot), ${tile});
    bulk_copy_peer(from + ${tile}, from, ${tile}, peer_full(smem, slot), (u32)rank ^ 1);
  }
}
//@ end
//@ if deterministic then

/* ---- turns: a thread for each consumer ---- */

//@ if causal then
/* Tiles add to dQ in turns, the last one that sees the queries first: a semaphore for each query
//@ else
/* Tiles add to dQ in turns, in the order of their keys: a semaphore for each query block and
//@ end
 * consumer counts those that have. The consumer goes on while its additions end. */
DEV void keep_turns(u32 smem, int rank, int group, Tile x, const BackwardArgs *a) {
  const int steps = steps_of(x, a);
  const i64 block = ((i64)x.batch * a->num_heads + x.head_k * a->group) * a->m_blocks + x.m0;
  u32 *semaphore = (u32 *)((char *)a->workspace + a->workspace_at[2]) +
                   ${pair and 4 or 2} * block + 2 * rank + group;
  int m = x.m0;
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
//@ if causal then
    const i64 seen =
        ((i64)m * ${block} + ${block - 1} + a->seqlen_k - a->seqlen_q) / ${block_n};
    const int turn = (int)(seen < a->n_blocks - 1 ? seen : a->n_blocks - 1) - x.n;
//@ else
    const int turn = x.n;
//@ end
    semaphore_wait(semaphore, (u32)turn);
    bar_arrive(turn_full(smem, group));
    bar_wait(turn_done(smem, group), i & 1);
    red_add_u32_release(semaphore, 1);
    semaphore += ${pair and 4 or 2};
    if (++m == a->m_blocks) {
      m = x.m0;
      semaphore += (i64)${pair and 4 or 2} * x.m0;
    }
  }
}
//@ end
