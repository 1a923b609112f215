/* ---- producer: one thread ---- */

/* Sends keys and values once, then a query block and its dO a step, a ring of two places each. The
 * statistics travel with the queries. */
DEV void produce(u32 smem, Tile x, const TensorMap *map_q, const TensorMap *map_k,
                 const TensorMap *map_v, const TensorMap *map_do, const BackwardArgs *a) {
  /* In L2: evict last, evict first */
  const u64 keep = 0x14F0000000000000ull, once = 0x12F0000000000000ull;
  const int steps = steps_of(x, a), row_k = x.n * ${block_n};
  const char *statistics = (const char *)a->workspace + a->workspace_at[1];
  int head = x.head_k * a->group, m = x.m0;
  if (steps == 0) return;
  bar_expect(k_full(smem), ${k_panels.total});
  for (int c = 0; c < ${k_panels.count}; c++)
    tma_load(smem + ${at.k} + c * ${k_panels.bytes}, map_k, k_full(smem), 64 * c, row_k, x.head_k,
             x.batch, once);
#pragma unroll 1
  for (int i = 0; i < steps; i++) {
    const int slot = i & 1, parity = (i >> 1 & 1) ^ 1;
    const i64 block = ((i64)x.batch * a->num_heads + head) * a->m_blocks + m;
    bar_wait(q_empty(smem, slot), parity);
    bar_expect(q_full(smem, slot), ${q_panels.total + 16 * block_m});
    for (int c = 0; c < ${q_panels.count}; c++)
      tma_load(smem + ${at.q} + slot * ${q_panels.total} + c * ${q_panels.bytes}, map_q,
               q_full(smem, slot), 64 * c, m * ${block_m}, head, x.batch, keep);
    bulk_load(smem + ${at.statistics} + slot * ${16 * block_m},
              statistics + block * ${16 * block_m}, ${16 * block_m}, q_full(smem, slot), keep);
    if (i == 0) {
      bar_expect(v_full(smem), ${v_panels.total});
      for (int c = 0; c < ${v_panels.count}; c++)
        tma_load(smem + ${at.v} + c * ${v_panels.bytes}, map_v, v_full(smem), 64 * c, row_k,
                 x.head_k, x.batch, once);
    }
    bar_expect(do_full(smem, slot), ${do_panels.total});
    for (int c = 0; c < ${do_panels.count}; c++)
      tma_load(smem + ${at["do"]} + slot * ${do_panels.total} + c * ${do_panels.bytes}, map_do,
               do_full(smem, slot), 64 * c, m * ${block_m}, head, x.batch, keep);
    if (++m == a->m_blocks) {
      m = x.m0;
      head++;
    }
  }
}
//@ if deterministic then

/* ---- adders: a thread for each consumer ---- */

/* Adds a consumer's part of dQ to the sum in global memory, in the order of the key blocks:
//@ if causal then
 * the last one that sees the queries adds first. A semaphore for each part of a query block counts
//@ else
 * the first one adds first. A semaphore for each part of a query block counts
//@ end
 * who has added. */
DEV void add_queries(u32 smem, Tile x, int group, const BackwardArgs *a) {
  const i64 block = ((i64)x.batch * a->num_heads + x.head_k * a->group) * a->m_blocks + x.m0;
//@ if dq_mode == "keys" then
  char *to = (char *)a->workspace + a->workspace_at[0] + block * ${dq_bytes};
  u32 *semaphore = (u32 *)((char *)a->workspace + a->workspace_at[2]) + block;
//@ else
  char *to = (char *)a->workspace + a->workspace_at[0] + block * ${dq_bytes} + group * ${dq_part};
  u32 *semaphore = (u32 *)((char *)a->workspace + a->workspace_at[2]) + 2 * block + group;
//@ end
//@ local count = dq_mode == "keys" and 1 or 2 -- semaphores of a query block
  int m = x.m0;
#pragma unroll 1
  for (int i = 0; i < steps_of(x, a); i++) {
//@ if causal then
    /* The last key block that the query block sees; lengths end 2^12 below 2^31. */
    const int seen = (m * ${block_m} - a->seqlen_q + ${block_m - 1} + a->seqlen_k) / ${block_n};
    const int before = (seen < a->n_blocks ? seen : a->n_blocks - 1) - x.n;
//@ else
    const int before = x.n;
//@ end
    bar_wait(dq_full(smem, group), i & 1);
//@ if dq_mode == "keys" then
    semaphore_wait(semaphore, (u32)(2 * before + group));
//@ else
    semaphore_wait(semaphore, (u32)before);
//@ end
    fence_async_global();
    bulk_add_fp32(to, smem + ${at.dq} + group * ${dq_part}, ${dq_part});
    bulk_commit();
    bulk_wait(0);
    bar_arrive(dq_empty(smem, group));
    fence_async_global();
    red_add_u32_release(semaphore, 1);
    semaphore += ${count};
    to += ${dq_bytes};
    if (++m == a->m_blocks) {
      m = x.m0;
      semaphore += (i64)x.m0 * ${count};
      to += (i64)x.m0 * ${dq_bytes};
    }
  }
}
//@ end
