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
//@ if p_fp16 then
 * p is ${p_scale} times as large, and so are ds and the sums, until these are rounded: thus small p
 * keep their bits in fp16.
//@ end
 *
 * The first half of the warps computes p and dv, the second one ds and dk, and dq falls to
//@ if is_ring then
 * the second half.
//@ else
 * both.
//@ end
 * While one half has exponentials to do, the other has products. p and ds change hands through
 * shared memory. The warps of a half share a product of 16 x 16 tiles as a grid: tile (i, j)
 * belongs to the warp in row i and column j, both counted around.
 *
 * dq in fp32 lies in the order of the accumulators, thread beside thread, a block of ${block_m}
 * rows behind the other: blocks of one head in a row, then heads, then batches. */

/* The index of a block of query rows in that order */
DEV i64 block_of(i64 batch, int head, int block, const BackwardArgs *a) {
  return (batch * a->num_heads + head) * a->m_blocks + block;
}
DEV char *item(int i, const BackwardArgs *a) { return (char *)a->workspace + a->workspace_at[i]; }
/* 0, but the compiler cannot know it: what follows from it is computed where it is used, instead of
 * filling registers from before the loop. */
DEV u32 fresh_zero(void) { return (u32)(block_index_again() >> 62); }
/* This thread among its half of the block */
DEV int member(void) { return thread_index() % ${half}; }
DEV int fresh_member(void) { return (thread_index() + (int)fresh_zero()) % ${half}; }

//@ include("backward/ampere_warp.tmpl.cu")
//@ include("backward/ampere_copy.tmpl.cu")
//@ include("backward/preprocess.tmpl.cu")

/* ---- keys and queries ---- */

//@ if deterministic then
//@ include("backward/sections.tmpl.cu")
/* Sections of ${section} heads. The key blocks of a head add to dq in turns: so they begin one
 * behind the other, and few of them wait. Keys that more queries see come first. */
//@ else
/* Tiles: key block fastest, then key head, then batch. So keys that more queries see come first. */
//@ end
typedef struct {
  i64 batch;
  int head, block, first; /* key head, key block and its first key */
} Place;
DEV Place place_of(i64 tile, const BackwardArgs *a) {
  Place x;
//@ if deterministic then
  const i64 head_index = head_of_section(tile, ${section}, a, &x.block);
//@ else
  const i64 head_index = tile / a->n_blocks;
  x.block = (int)(tile - head_index * a->n_blocks);
//@ end
  x.batch = head_index / a->num_heads_k;
  x.head = (int)(head_index - x.batch * a->num_heads_k);
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

/* ---- the walk over queries ---- */

/* A block of query rows of one query head: blocks from the last to the first that sees the keys,
 * head by head. */
typedef struct {
  int head, block;
} Step;
DEV Step next_of(Step s, int first, const BackwardArgs *a) {
  const int is_last = s.block == first;
  const Step next = { s.head + is_last, is_last ? a->m_blocks - 1 : s.block - 1 };
  return next;
}

//@ local fed = {
//@   { "q", "q", "q", qk_rows, 0, 0 },
//@   { "dout", "dout", "do", v_rows, dout_from, 4 * block_m },
//@ }
//@ for _, f in ipairs(fed) do
/* Starts the copies of a block's ${f[1]} and of the statistic that goes with it. */
DEV void feed_${f[1]}(u32 to, Step s, i64 own_batch, const BackwardArgs *a) {
  const i64 first = (i64)s.block * ${block_m}, batch = own_batch + fresh_zero();
  const char *from = (const char *)a->${f[2]} +
                     2 * (batch * a->${f[3]}_stride.batch + s.head * a->${f[3]}_stride.head +
                          first * a->${f[3]}_stride.row);
  copy_${f[1]}(to + ${f[5]}, from, 2 * a->${f[3]}_stride.row, (int)(a->seqlen_q - first));
  const char *rows = item(1, a) + block_of(batch, s.head, s.block, a) * ${8 * block_m} + ${f[6]};
  const int at = 16 * fresh_member(); /* a half has more threads than there are 16 bytes */
  if (at < ${4 * block_m}) cp_async_16(to + ${rows_from + f[6]} + at, rows + at, 16);
}
//@ end

/* ---- the two halves of a block ---- */

//@ local slot = is_ring and " + slot" or ""
//@ -- Barriers; HALF + 1: of the second half, P_READY + part
//@ local MEET, MET, HALF, DS_FREE, P_READY = 1, 2, 3, 5, 6
/* The halves meet: each goes on when the other is there too. Two barriers, since tools that check
 * synchronisation want a barrier of all threads to be one instruction; one behind the other, or a
 * half might arrive again before the other has seen that it had arrived. */
DEV void meet_second(void) {
  named_sync(${MEET}, ${threads});
  named_arrive(${MET}, ${threads});
}
DEV void meet_first(void) {
  named_arrive(${MEET}, ${threads});
  named_sync(${MET}, ${threads});
}
//@ if deterministic then
/* Key blocks add to the dq of a block of query rows in their order; those before this one have seen
 * the rows too. `turn` counts who has added. A thread of the first half waits for the turn of a
 * step while the second half has dk to do, and another hands on the turn of the step before: its
 * additions are long done then, and no warp of the second half waits for either. */
DEV u32 *turn_of(Place x, Step s, const BackwardArgs *a) {
  return (u32 *)item(2, a) + block_of(x.batch + fresh_zero(), s.head, s.block, a);
}
DEV void take_turn(Place x, Step s, int first, const BackwardArgs *a) {
  const int me = member(), is_last = s.block == a->m_blocks - 1;
  const Step before = { s.head - is_last, is_last ? first : s.block + 1 };
  if (me == 0 && before.head >= x.head * a->group) red_add_u32_release(turn_of(x, before, a), 1);
  if (me == 32) semaphore_wait(turn_of(x, s, a), (u32)x.block);
  sync_warp();
}

//@ end
/* Computes a block of dq from ds and adds it. */
DEV void give_dq(LanesAdd l, Place x, Step s, const BackwardArgs *a) {
  const i64 block = block_of(x.batch + fresh_zero(), s.head, s.block, a);
#pragma unroll 1
  for (int part = 0; part < ${dq.parts}; part++) {
    float dq[${dq.numbers}];
#pragma unroll
    for (int i = 0; i < ${dq.numbers}; i++) dq[i] = 0.0f;
    add_dq(dq, l.a, l.b, part);
    put_dq((float *)item(0, a) + block * ${acc_numbers}, dq, part);
  }
}

/* The first half of the warps: scores and p, then dv. */
DEV void first_half(const BackwardArgs *a) {
  const Place x = place_of(block_index_again(), a);
  const int first = first_block(x.first, a);
  int left = (a->m_blocks - first) * a->group;
  const u32 smem = shared_base(), ring = smem + ${at.ring};
  Step step = { x.head * a->group, a->m_blocks - 1 };
  copy_k(smem + ${at.k},
         (const char *)a->k + 2 * (x.batch * a->k_stride.batch + x.head * a->k_stride.head +
                                   x.first * a->k_stride.row),
         2 * a->k_stride.row, a->seqlen_k - x.first);
  if (left > 0) feed_q(ring, step, x.batch, a);
  cp_async_commit();

  float dv[${dv.numbers}];
#pragma unroll
  for (int i = 0; i < ${dv.numbers}; i++) dv[i] = 0.0f;
//@ if is_ring then
  u32 slot = 0;
//@ end
#pragma unroll 1
  for (; left > 0; left--) {
    const Step next = next_of(step, first, a);
    cp_async_wait(0);
    meet_second();
//@ if is_ring then
    if (left > 1) feed_q(ring + (${stage_bytes} - slot), next, x.batch, a);
    cp_async_commit();
//@ end
    const u32 here = smem + fresh_zero(), now = here + ${at.ring}${slot};
    const LanesS l = lanes_s(now, here + ${at.k}, here + ${at.p});
    float bias[${2 * s.row_tiles}];
    load_rows(bias, now + ${rows_from});
#pragma unroll
    for (int part = 0; part < ${s.parts}; part++) {
      float s[${s.numbers}];
#pragma unroll
      for (int i = 0; i < ${s.numbers}; i++) s[i] = 0.0f;
      scores(s, l.a, l.b, part);
      if (is_masked(x.first, step.block, a))
        hide(s, part, NEG_INFINITY, x.first, step.block, a);
#pragma unroll
      for (int i = 0; i < ${s.numbers}; i++)
        s[i] = ex2(fmaf(s[i], a->scale_log2, bias[i / ${8 * s.col_tiles} * 2 + i / 2 % 2]));
      lay_s(l.p, s, part);
//@ if must_wait then
      if (part == 0) named_sync(${DS_FREE}, ${threads});
//@ end
//@ if p_fp16 then
      lay_p(l.p + ${at.ds - at.p}, s, part);
//@ end
      named_arrive(${P_READY} + part, ${threads});
    }
    named_sync(${HALF}, ${half});
    const LanesAdd ldv = lanes_dv(here + ${at.p}, now + ${dout_from});
    add_dv(dv, ldv.a, ldv.b);
//@ if deterministic then
    take_turn(x, step, first, a);
//@ end
//@ if is_ring then
    slot = ${stage_bytes} - slot;
//@ else
    meet_second();
    if (left > 1) feed_q(ring, next, x.batch, a);
    cp_async_commit();
    give_dq(lanes_dq(here + ${at.ds}, here + ${at.k}), x, step, a);
//@ end
    step = next;
  }

  /* dv takes the place of v. */
  cp_async_wait(0);
  meet_second();
//@ if p_fp16 then
#pragma unroll
  for (int i = 0; i < ${dv.numbers}; i++) dv[i] *= ${p_unscale};
//@ end
  lay_dv(smem + ${at.v}, dv);
  named_sync(${HALF}, ${half});
  const Place y = place_of(block_index_again(), a);
  store_dv(smem + ${at.v},
           (char *)a->dv + 2 * (y.batch * a->dv_stride.batch + y.head * a->dv_stride.head +
                                y.first * a->dv_stride.row),
           2 * a->dv_stride.row, a->seqlen_k - y.first);
}

/* The second half: gradients of p and ds, then dk and dq. */
DEV void second_half(const BackwardArgs *a) {
  const Place x = place_of(block_index_again(), a);
  const int first = first_block(x.first, a);
  int left = (a->m_blocks - first) * a->group;
  const u32 smem = shared_base(), ring = smem + ${at.ring};
  Step step = { x.head * a->group, a->m_blocks - 1 };
  copy_v(smem + ${at.v},
         (const char *)a->v + 2 * (x.batch * a->v_stride.batch + x.head * a->v_stride.head +
                                   x.first * a->v_stride.row),
         2 * a->v_stride.row, a->seqlen_k - x.first);
  if (left > 0) feed_dout(ring, step, x.batch, a);
  cp_async_commit();
  cp_async_wait(0);
  meet_first();
//@ if is_ring then
  if (left > 1) feed_dout(ring + ${stage_bytes}, next_of(step, first, a), x.batch, a);
  cp_async_commit();
//@ end
//@ if must_wait then
  if (left > 0) named_arrive(${DS_FREE}, ${threads});
//@ end

  float dk[${dk.numbers}];
#pragma unroll
  for (int i = 0; i < ${dk.numbers}; i++) dk[i] = 0.0f;
//@ if is_ring then
  u32 slot = 0;
//@ end
#pragma unroll 1
  for (; left > 0; left--) {
    const u32 here = smem + fresh_zero(), now = here + ${at.ring}${slot};
    const LanesS l = lanes_dp(now + ${dout_from}, here + ${at.v}, here + ${at.p});
    float bias[${2 * s.row_tiles}];
    load_rows(bias, now + ${rows_from + 4 * block_m});
#pragma unroll
    for (int part = 0; part < ${s.parts}; part++) {
      float dp[${s.numbers}];
#pragma unroll
      for (int i = 0; i < ${s.numbers}; i++) dp[i] = bias[i / ${8 * s.col_tiles} * 2 + i / 2 % 2];
      gradients(dp, l.a, l.b, part);
      named_sync(${P_READY} + part, ${threads});
      times_p(dp, l.p_read${p_fp16 and " + " .. at.ds - at.p or ""}, part);
      if (is_masked(x.first, step.block, a)) hide(dp, part, 0.0f, x.first, step.block, a);
      lay_s(l.p + ${at.ds - at.p}, dp, part);
    }
    named_sync(${HALF + 1}, ${half});
    const LanesAdd ldk = lanes_dk(here + ${at.ds}, now);
    add_dk(dk, ldk.a, ldk.b);
    const Step next = next_of(step, first, a);
//@ if is_ring then
    cp_async_wait(0);
    meet_first();
    if (left > 2) feed_dout(ring${slot}, next_of(next, first, a), x.batch, a);
    cp_async_commit();
    give_dq(lanes_dq(here + ${at.ds}, here + ${at.k}), x, step, a);
    slot = ${stage_bytes} - slot;
//@ if must_wait then
    if (left > 1) named_arrive(${DS_FREE}, ${threads});
//@ end
//@ else
    meet_first();
    if (left > 1) feed_dout(ring, next, x.batch, a);
    cp_async_commit();
    give_dq(lanes_dq(here + ${at.ds}, here + ${at.k}), x, step, a);
    cp_async_wait(0);
    meet_first();
//@ end
    step = next;
  }

  /* dk takes the place of k. */
  named_sync(${HALF + 1}, ${half});
#pragma unroll
  for (int i = 0; i < ${dk.numbers}; i++) dk[i] *= a->softmax_scale${unscaled};
  lay_dk(smem + ${at.k}, dk);
  named_sync(${HALF + 1}, ${half});
  const Place y = place_of(block_index_again(), a);
//@ if deterministic then
  const Step last = { (y.head + 1) * a->group - 1, first };
  if (member() == 0 && first < a->m_blocks) red_add_u32_release(turn_of(y, last, a), 1);
//@ end
  store_dk(smem + ${at.k},
           (char *)a->dk + 2 * (y.batch * a->dk_stride.batch + y.head * a->dk_stride.head +
                                y.first * a->dk_stride.row),
           2 * a->dk_stride.row, a->seqlen_k - y.first);
}

KERNEL void kiln_backward(PARAM BackwardArgs a) {
  if (block_index() >= a.tiles) return;
  if (thread_index() < ${half})
    first_half(&a);
  else
    second_half(&a);
}

//@ include("backward/convert.tmpl.cu")
