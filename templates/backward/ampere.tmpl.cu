//@ include("common/backward_args.tmpl.cu")

/* FlashAttention backward for mma.sync, three kernels:
 *   kiln_preprocess  of every query row: what its exponentials and gradients are shifted by;
 *                    clears dq in fp32
 *   kiln_backward    a block of ${threads} threads has ${block_n} keys of one key head and walks
 *                    over the blocks of ${block_m} query rows that see them, of all query heads of
 *                    the group: dk and dv stay in registers, dq is added to fp32 numbers in global
 *                    memory
 *   kiln_convert     dq = softmax_scale * those numbers, rounded
 *
 * With p = exp(scale s - lse), dp = dout v^T and delta = rowsum(dout o):
 *   ds = p (dp - delta), dv = p^T dout, dk = scale ds^T q, dq = scale ds k
 *
 * Warps share a product of 16 x 16 tiles as a grid: tile (i, j) belongs to the warp in row i and
 * column j, both counted around. p and ds change hands through shared memory.
 *
 * dq in fp32 lies in the order of the accumulators, thread beside thread, a block of ${block_m}
 * rows behind the other: blocks of one head in a row, then heads, then batches. */

/* The index of a block of query rows in that order */
DEV i64 block_of(i64 batch, int head, int block, const BackwardArgs *a) {
  return (batch * a->num_heads + head) * a->m_blocks + block;
}
DEV char *item(int i, const BackwardArgs *a) { return (char *)a->workspace + a->workspace_at[i]; }

//@ include("backward/ampere_warp.tmpl.cu")
//@ include("backward/ampere_copy.tmpl.cu")
//@ include("backward/preprocess.tmpl.cu")

/* ---- keys and queries ---- */

/* Tiles: key block fastest, then key head, then batch. So keys that more queries see come first. */
typedef struct {
  i64 batch;
  int head, block, first; /* key head, key block and its first key */
} Place;
DEV Place place_of(i64 tile, const BackwardArgs *a) {
  const i64 head_index = tile / a->n_blocks;
  Place x;
  x.batch = head_index / a->num_heads_k;
  x.head = (int)(head_index - x.batch * a->num_heads_k);
  x.block = (int)(tile - head_index * a->n_blocks);
  x.first = x.block * ${block_n};
  return x;
}

/* The first block of query rows with one that sees key `first`, or a->m_blocks. */
DEV int first_block(int first, const BackwardArgs *a) {
//@ if causal then
  const i64 row = (i64)first - a->seqlen_k + a->seqlen_q; /* row i sees keys up to i + sk - sq */
  return row <= 0 ? 0 : row >= a->seqlen_q ? a->m_blocks : (int)(row / ${block_m});
//@ else
  return 0;
//@ end
}

/* Whether some key of the block is hidden from some row of the block of query rows. */
DEV int is_masked(int first_key, int block, const BackwardArgs *a) {
//@ if causal then
  const i64 sees = (i64)block * ${block_m} + a->seqlen_k - a->seqlen_q;
  if (sees < first_key + ${block_n - 1}) return 1;
//@ end
  return a->seqlen_k - first_key < ${block_n};
}

/* ---- the kernel ---- */

/* A block of query rows of one query head: blocks from the last to the first that sees the keys,
 * head by head. */
typedef struct {
  int head, block;
} Step;

/* Starts the copies of a block's queries, gradients and statistics. */
DEV void feed(u32 to, Step s, i64 batch, const BackwardArgs *a) {
  const i64 first = (i64)s.block * ${block_m};
  const int rows = (int)(a->seqlen_q - first);
  const char *q = (const char *)a->q + 2 * (batch * a->q_stride.batch + s.head * a->q_stride.head +
                                            first * a->q_stride.row);
  const char *dout = (const char *)a->dout + 2 * (batch * a->do_stride.batch +
                                                  s.head * a->do_stride.head +
                                                  first * a->do_stride.row);
  copy_q(to, q, 2 * a->q_stride.row, rows);
  copy_dout(to + ${dout_from}, dout, 2 * a->do_stride.row, rows);
  const char *statistics = item(1, a) + block_of(batch, s.head, s.block, a) * ${8 * block_m};
  const int at = 16 * thread_index();
  if (at < ${8 * block_m}) cp_async_16(to + ${rows_from} + at, statistics + at, 16);
}

//@ local two = num_stages == 2
//@ local slot = two and " + slot" or ""
KERNEL void kiln_backward(PARAM BackwardArgs a) {
  if (block_index() >= a.tiles) return;
  const Place x = place_of(block_index(), &a);
  const int first = first_block(x.first, &a);
  const u32 smem = shared_base(), ring = smem + ${at.ring};
  const Lanes l = lanes_of(smem);

  const int keys = a.seqlen_k - x.first;
  copy_k(smem + ${at.k},
         (const char *)a.k + 2 * (x.batch * a.k_stride.batch + x.head * a.k_stride.head +
                                  x.first * a.k_stride.row),
         2 * a.k_stride.row, keys);
  copy_v(smem + ${at.v},
         (const char *)a.v + 2 * (x.batch * a.v_stride.batch + x.head * a.v_stride.head +
                                  x.first * a.v_stride.row),
         2 * a.v_stride.row, keys);
  Step step = { x.head * a.group, a.m_blocks - 1 };
  int left = (a.m_blocks - first) * a.group;
  if (left > 0) feed(ring, step, x.batch, &a);
  cp_async_commit();

  float dk[${dk.numbers}], dv[${dv.numbers}];
#pragma unroll
  for (int i = 0; i < ${dk.numbers}; i++) dk[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < ${dv.numbers}; i++) dv[i] = 0.0f;
//@ if two then
  u32 slot = 0;
//@ end
//@ if deterministic then
  u32 *turn = 0; /* of the block before: who has it next */
//@ end

#pragma unroll 1
  for (; left > 0; left--) {
    Step next = { step.head, step.block - 1 };
    if (step.block == first) next.head++, next.block = a.m_blocks - 1;
    cp_async_wait(0);
    sync_threads();
//@ if deterministic then
    if (turn && thread_index() == 0) red_add_u32_release(turn, 1);
//@ end
//@ if two then
    if (left > 1) feed(ring + (${stage_bytes} - slot), next, x.batch, &a);
    cp_async_commit();
//@ end

    float s[${s.numbers}], dp[${s.numbers}], bias[${2 * s.row_tiles}];
    load_rows(bias, l.rows${slot});
#pragma unroll
    for (int i = 0; i < ${s.numbers}; i++) s[i] = 0.0f;
    scores(s, l.q${slot}, l.k);
    const int masked = is_masked(x.first, step.block, &a);
    if (masked) hide(s, NEG_INFINITY, x.first, step.block, &a);
#pragma unroll
    for (int i = 0; i < ${s.numbers}; i++)
      s[i] = ex2(fmaf(s[i], a.scale_log2, bias[i / ${8 * s.col_tiles} * 2 + i / 2 % 2]));
    lay_p(l.p, s);

    load_rows(bias, l.rows${slot} + ${4 * block_m});
#pragma unroll
    for (int i = 0; i < ${s.numbers}; i++) dp[i] = bias[i / ${8 * s.col_tiles} * 2 + i / 2 % 2];
    score_gradients(dp, l.dout${slot}, l.v);
#pragma unroll
    for (int i = 0; i < ${s.numbers}; i++) dp[i] *= s[i];
    if (masked) hide(dp, 0.0f, x.first, step.block, &a);
    lay_p(l.p + ${at.ds - at.p}, dp);
    sync_threads();

    add_dv(dv, l.p_dv, l.dout_dv${slot});
    add_dk(dk, l.ds_dk, l.q_dk${slot});
//@ if not two then
    sync_threads();
    if (left > 1) feed(ring, next, x.batch, &a);
    cp_async_commit();
//@ end
    float dq[${dq.numbers}];
#pragma unroll
    for (int i = 0; i < ${dq.numbers}; i++) dq[i] = 0.0f;
    add_dq(dq, l.ds_dq, l.k_dq);
    const i64 block = block_of(x.batch, step.head, step.block, &a);
//@ if deterministic then
    /* Key blocks add in their order; those before this one have seen the rows too. */
    turn = (u32 *)item(2, &a) + block;
    if ((thread_index() & 31) == 0) semaphore_wait(turn, (u32)x.block);
    sync_warp();
//@ end
    put_dq((float *)item(0, &a) + block * ${acc_numbers}, dq);
    step = next;
//@ if two then
    slot = ${stage_bytes} - slot;
//@ end
  }

  /* dk and dv take the places of k and v. */
  cp_async_wait(0);
  sync_threads();
//@ if deterministic then
  if (turn && thread_index() == 0) red_add_u32_release(turn, 1);
//@ end
#pragma unroll
  for (int i = 0; i < ${dk.numbers}; i++) dk[i] *= a.softmax_scale;
  lay_dk(smem + ${at.k}, dk);
  lay_dv(smem + ${at.v}, dv);
  sync_threads();
  const Place y = place_of(block_index_again(), &a);
  store_dk(smem + ${at.k},
           (char *)a.dk + 2 * (y.batch * a.dk_stride.batch + y.head * a.dk_stride.head +
                               y.first * a.dk_stride.row),
           2 * a.dk_stride.row, a.seqlen_k - y.first);
  store_dv(smem + ${at.v},
           (char *)a.dv + 2 * (y.batch * a.dv_stride.batch + y.head * a.dv_stride.head +
                               y.first * a.dv_stride.row),
           2 * a.dv_stride.row, a.seqlen_k - y.first);
}

//@ include("backward/convert.tmpl.cu")
