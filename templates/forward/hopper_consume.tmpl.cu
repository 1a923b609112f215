/* ---- consumers: a warpgroup each ---- */

typedef struct {
  u32 smem;
  int group, lane, warp_row; /* warp_row: first of the warp's 16 rows within the warpgroup's 64 */
  u32 q, k, v;               /* descriptors: of the present queries, of the first slots */
  Ring q_ring, k_ring, v_ring;
  float c;                   /* softmax_scale log2(e) */
  const ForwardArgs *a;
} Consumer;

/* A consumer's share of a tile. Keys below full are seen by every row. */
typedef struct {
  int first, head, batch, blocks, full;
  int slot; /* of its queries */
} Share;

/* Low words of shared-memory matrix descriptors, 128-byte swizzle; address and panel stride in
 * bytes. Moving along a row: + bytes / 16. The high word is the same for all: eight rows are
 * 1024 bytes. */
DEV u32 descriptor(u32 address, u32 panel_stride) {
  return (address >> 4 & 0x3fff) | panel_stride >> 4 << 16;
}
DEV u64 matrix(u32 descriptor) { return (u64)0x40000040u << 32 | descriptor; }

/* The first lane's number, which gives the place back later; the reduction tells the compiler
 * that it is the same in the whole warp, so that loops over it keep their state in uniform
 * registers. */
DEV int tile_fact(const Consumer *me, u32 at) {
  return redux_max_i32(me->lane == 0 ? lds_i32(at) : -1);
}

/* Waits for the next tile and its queries. */
DEV Share take_tile(Consumer *me) {
  Share x;
  x.slot = me->q_ring.slot;
  bar_wait(q_full(me->smem, x.slot, me->group), me->q_ring.parity);
  advance(&me->q_ring, ${q_slots});
  me->q = descriptor(me->smem + ${at.q} + (x.slot * ${consumers} + me->group) * ${q_slot}, 0);
  const u32 info = me->smem + ${at.info} + 16 * x.slot;
  x.first = tile_fact(me, info) + 64 * me->group;
  x.head = tile_fact(me, info + 4);
  x.batch = tile_fact(me, info + 8);
  x.blocks = tile_fact(me, info + 12);
//@ if causal then
  const i64 see = (i64)x.first + 1 + me->a->seqlen_k - me->a->seqlen_q;
  x.full = see < me->a->seqlen_k ? (int)see : me->a->seqlen_k;
//@ else
  x.full = me->a->seqlen_k;
//@ end
  return x;
}

/* This thread's first row; the other is eight further. */
DEV int row_of(const Consumer *me, Share x) { return x.first + me->warp_row + me->lane / 4; }

/* ---- products ---- */

/* s (64 x ${block_n}) = q k^T, started */
DEV void issue_scores(const Consumer *me, float *s) {
  const u32 k = me->k + me->k_ring.slot * ${k_panels.total // 16};
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < ${d16 // 16}; i++)
    ${mma_qk}(s, matrix(me->q + i / 4 * ${q_panels.bytes // 16} + i % 4 * 2),
              matrix(k + i / 4 * ${k_panels.bytes // 16} + i % 4 * 2), i != 0);
  wgmma_commit();
}
/* o (64 x ${dv16}) += p v, started */
DEV void issue_output(const Consumer *me, float *o, const u32 *p) {
  const u32 v = me->v + me->v_ring.slot * ${v_panels.total // 16};
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < ${block_n // 16}; i++) ${mma_pv}(o, p + 4 * i, matrix(v + i * 128), 1);
  wgmma_commit();
}
//@ local turn = pingpong and ", when it is this group's turn" or ""
/* Starts the scores of the next block and the output of the present one${turn}. */
DEV void issue_both(const Consumer *me, float *s, float *o, const u32 *p) {
  bar_wait(k_full(me->smem, me->k_ring.slot), me->k_ring.parity);
//@ if pingpong then
  named_sync(1 + me->group, 256);
//@ end
  issue_scores(me, s);
  bar_wait(v_full(me->smem, me->v_ring.slot), me->v_ring.parity);
  issue_output(me, o, p);
//@ if pingpong then
  named_arrive(1 + (me->group + 1) % ${consumers}, 256);
//@ end
}
/* Give slots back; the product that read them has been waited for. */
DEV void free_k(Consumer *me) {
  if (me->lane == 0) bar_arrive(k_empty(me->smem, me->k_ring.slot));
  advance(&me->k_ring, ${num_stages});
}
DEV void free_v(Consumer *me) {
  if (me->lane == 0) bar_arrive(v_empty(me->smem, me->v_ring.slot));
  advance(&me->v_ring, ${num_stages});
}
//@ if o_staged then
/* The storer gives it back. */
//@ end
DEV void leave_q(const Consumer *me, int slot) {
  if (me->lane == 0) bar_arrive(${o_staged and "o_full" or "q_empty"}(me->smem, slot, me->group));
}

/* Hides keys past the end${causal and " and past the diagonal" or ""} in block n. */
DEV void mask_block(const Consumer *me, float *s, int n, int row) {
  const int column = n * ${block_n} + 2 * (me->lane & 3), seqlen_k = me->a->seqlen_k;
//@ if causal then
  const i64 see0 = (i64)row + 1 + seqlen_k - me->a->seqlen_q, see1 = see0 + 8;
  const int end0 = see0 < seqlen_k ? (int)see0 : seqlen_k;
  const int end1 = see1 < seqlen_k ? (int)see1 : seqlen_k;
  mask_scores(s, end0 - column, end1 - column);
//@ else
  mask_scores(s, seqlen_k - column, seqlen_k - column);
//@ end
}

/* Takes the maximum of the first `columns` columns into the state. */
DEV void raise_maximum(const float *s, int columns, RowState *st, float *factor, float *ref,
                       float c) {
  float top[2];
  block_maximum(s, columns, top);
  raise_state(top, st, factor, ref, c);
}

/* p <- s, rounded to ${dtype}: accumulators and A operands have the same layout. */
DEV void pack_probabilities(u32 *p, const float *s) {
#pragma unroll
  for (int i = 0; i < ${block_n // 4}; i++) p[i] = ${pack}(s[2 * i], s[2 * i + 1]);
}

/* ---- output ---- */

//@ if o_staged then
/* Rounds the warp's 16 rows into the place of its queries and leaves it to the storer. */
DEV void store_rows(const Consumer *me, const float *o, const float *inverse, Share x) {
  const u32 to = me->smem + ${at.q} + (x.slot * ${consumers} + me->group) * ${q_slot};
  const int row = me->warp_row + (me->lane & 15), half = me->lane >> 4;
#pragma unroll
  for (int k = 0; k < ${dv16 // 16}; k++) {
    u32 r[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float *y = o + 8 * k + 2 * i;
      r[i] = ${pack}(y[0] * inverse[i % 2], y[1] * inverse[i % 2]);
    }
    stmatrix_x4(to + k / 4 * 8192 + row * 128 + (((2 * k % 8 + half) ^ (row & 7)) << 4), r);
  }
  fence_async();
  sync_warp();
  leave_q(me, x.slot);
}
//@ else
/* Transposes 4 x 4 words among the four lanes of a quad: lane i's word j becomes lane j's word
 * i. */
DEV void quad_transpose(u32 *w, int lane) {
  const int odd = lane & 1, high = lane & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const u32 t = shfl_xor_u32(odd ? w[i] : w[i + 1], 1);
    w[i] = odd ? t : w[i];
    w[i + 1] = odd ? w[i + 1] : t;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const u32 t = shfl_xor_u32(high ? w[i] : w[i + 2], 2);
    w[i] = high ? t : w[i];
    w[i + 2] = high ? w[i + 2] : t;
  }
}
/* Stores the thread's two rows from registers, 16 bytes at a time: shared memory has no room to
 * stage them. */
DEV void store_rows(const Consumer *me, const float *o, const float *inverse, Share x) {
  const ForwardArgs *a = me->a;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = row_of(me, x) + 8 * r;
    char *to = (char *)a->o + 2 * (x.batch * a->o_stride.batch + row * a->o_stride.row +
                                   x.head * a->o_stride.head + 8 * (me->lane & 3));
    const int chunks = row < a->seqlen_q ? ${dv // 8} - (me->lane & 3) : 0; /* from this lane's */
#pragma unroll
    for (int j = 0; j < ${(dv16 + 31) // 32}; j++) {
      u32 w[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (4 * j + i >= ${dv16 // 8}) continue;
        const float *y = o + 16 * j + 4 * i + 2 * r;
        w[i] = ${pack}(y[0] * inverse[r], y[1] * inverse[r]);
      }
      quad_transpose(w, me->lane);
      if (4 * j < chunks) stg_u32x4(to + 64 * j, w);
    }
  }
}
//@ end

DEV void store_lse(const Consumer *me, const float *lse, Share x) {
  const ForwardArgs *a = me->a;
  if (!a->lse || (me->lane & 3) != 0) return;
  float *to = a->lse + ((i64)x.batch * a->num_heads + x.head) * a->seqlen_q;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    if (row_of(me, x) + 8 * r < a->seqlen_q) stg_f32(to + row_of(me, x) + 8 * r, lse[r]);
  }
}

//@ include("forward/hopper_fast.tmpl.cu")
//@ include("forward/hopper_exact.tmpl.cu")

DEV void consume(u32 smem, int warp, const ForwardArgs *a) {
  Consumer me;
  me.smem = smem;
  me.group = warp / 4 - 1;
  me.lane = thread_index() & 31;
  me.warp_row = warp % 4 * 16;
  me.k = descriptor(smem + ${at.k}, 0);
  me.v = descriptor(smem + ${at.v}, ${v_panels.bytes});
  me.q_ring.slot = me.q_ring.parity = 0;
  me.k_ring = me.v_ring = me.q_ring;
  me.c = a->scale_log2;
  me.a = a;
//@ if pingpong then
  /* Turns: named barrier 1 + group, armed by the group before. Group 0 arms itself once. */
  if (me.group == 0) named_arrive(1, 256);
//@ end
  run_fast(&me);
  if (me.lane == 0) bar_arrive(fast_done(smem));
  bar_wait(fast_done(smem), 0);
  if (lds_flag(any_failed(smem))) run_exact(&me);
}
