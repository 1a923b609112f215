//@ include("common/args.tmpl.cu")

/* FlashAttention forward for TMA and wgmma. Warpgroup 0 is the producer: one thread feeds queries,
 * keys and values through mbarrier rings. Warpgroups 1 to ${consumers} are consumers of 64 query
 * rows each: the scores of the next key block are computed while the softmax of the present one
 * runs.
//@ if pingpong then
 * The consumers take turns at the tensor cores.
//@ end
 * A block works through many tiles. */
//@ include("common/softmax.tmpl.cu")

/* ---- barriers: full = the bytes have landed, empty = every reader is done ---- */

DEV u32 k_full(u32 smem, int slot) { return smem + ${at.bars} + 8 * slot; }
DEV u32 k_empty(u32 smem, int slot) { return smem + ${at.bars + 8 * num_stages} + 8 * slot; }
DEV u32 v_full(u32 smem, int slot) { return smem + ${at.bars + 16 * num_stages} + 8 * slot; }
DEV u32 v_empty(u32 smem, int slot) { return smem + ${at.bars + 24 * num_stages} + 8 * slot; }
//@ local at_q_bars = at.bars + 32 * num_stages
DEV u32 q_full(u32 smem, int group) { return smem + ${at_q_bars} + 8 * group; }
DEV u32 q_empty(u32 smem, int group) { return smem + ${at_q_bars + 8 * consumers} + 8 * group; }

/* A place in a ring of ${num_stages} slots. parity: of the phase that a reader waits for; a writer
 * waits for the one before. */
typedef struct {
  int slot, parity;
} Ring;
DEV void ring_advance(Ring *ring) {
  ring->parity ^= ring->slot == ${num_stages - 1};
  ring->slot = ring->slot == ${num_stages - 1} ? 0 : ring->slot + 1;
}

/* ---- tiles ---- */

typedef struct {
  int first, head, head_k, batch; /* first query row */
  int blocks;                     /* key blocks that some row sees */
} Tile;

//@ if causal then
/* Longest first: m blocks descending, heads fastest, in sections of heads whose keys and values
 * stay in the L2 cache. Blocks take tiles to and fro (0 .. G - 1, then G - 1 .. 0), so that each
 * gets long and short ones in equal measure. */
DEV i64 tile_number(i64 round) {
  return round * num_blocks() + (round & 1 ? num_blocks() - 1 - block_index() : block_index());
}
DEV Tile tile_of(i64 t, const ForwardArgs *a) {
  const i64 heads = (i64)a->num_heads * a->batch;
  const i64 fit = 33554432 / (((i64)a->seqlen_k + 1) * ${2 * (dim + dv)}), wide = fit < 1 ? 1 : fit;
  const i64 section = t / (wide * a->m_blocks) * wide, left = heads - section;
  const i64 width = left < wide ? left : wide;
  const i64 inside = t - section * a->m_blocks, head_index = section + inside % width;
  Tile x;
  x.first = (a->m_blocks - 1 - (int)(inside / width)) * ${block_m};
//@ else
/* m block fastest, then head, then batch: neighbouring blocks share keys and values. */
DEV i64 tile_number(i64 round) { return round * num_blocks() + block_index(); }
DEV Tile tile_of(i64 t, const ForwardArgs *a) {
  const i64 head_index = t / a->m_blocks;
  Tile x;
  x.first = (int)(t - head_index * a->m_blocks) * ${block_m};
//@ end
  x.batch = (int)(head_index / a->num_heads);
  x.head = (int)(head_index - (i64)x.batch * a->num_heads);
  x.head_k = x.head / a->group;
  i64 end = a->seqlen_k;
//@ if causal then
  i64 last = (i64)x.first + ${block_m};
  last = (last < a->seqlen_q ? last : a->seqlen_q) + a->seqlen_k - a->seqlen_q;
  end = last < 0 ? 0 : last < end ? last : end;
//@ end
  x.blocks = (int)((end + ${block_n - 1}) / ${block_n});
  return x;
}

/* ---- producer ---- */

/* TMA cache policies: queries pass through L2 once (evict first), keys and values are read again by
 * other blocks (evict last). */
DEV void load_q(u32 smem, const TensorMap *map, Tile x, int parity) {
#pragma unroll 1
  for (int w = 0; w < ${consumers}; w++) {
    bar_wait(q_empty(smem, w), parity ^ 1);
    bar_expect(q_full(smem, w), ${q_panels.total});
    for (int c = 0; c < ${q_panels.count}; c++) {
      const u32 to = smem + ${at.q} + w * ${q_slot} + c * ${q_panels.bytes};
      tma_load(to, map, q_full(smem, w), 64 * c, x.first + 64 * w, x.head, x.batch,
               0x12F0000000000000ull);
    }
  }
}
DEV void load_k(u32 smem, const TensorMap *map, Tile x, int n, Ring *ring) {
  bar_wait(k_empty(smem, ring->slot), ring->parity ^ 1);
  bar_expect(k_full(smem, ring->slot), ${k_panels.total});
  for (int c = 0; c < ${k_panels.count}; c++) {
    const u32 to = smem + ${at.k} + ring->slot * ${k_panels.total} + c * ${k_panels.bytes};
    tma_load(to, map, k_full(smem, ring->slot), 64 * c, n * ${block_n}, x.head_k, x.batch,
             0x14F0000000000000ull);
  }
  ring_advance(ring);
}
DEV void load_v(u32 smem, const TensorMap *map, Tile x, int n, Ring *ring) {
  bar_wait(v_empty(smem, ring->slot), ring->parity ^ 1);
  bar_expect(v_full(smem, ring->slot), ${v_panels.total});
  for (int c = 0; c < ${v_panels.count}; c++) {
    const u32 to = smem + ${at.v} + ring->slot * ${v_panels.total} + c * ${v_panels.bytes};
    tma_load(to, map, v_full(smem, ring->slot), 64 * c, n * ${block_n}, x.head_k, x.batch,
             0x14F0000000000000ull);
  }
  ring_advance(ring);
}

/* Keys run one block ahead of values, as the consumers use them. */
DEV void produce(u32 smem, const TensorMap *map_q, const TensorMap *map_k, const TensorMap *map_v,
                 const ForwardArgs *a) {
  Ring k_ring = {0, 0}, v_ring = {0, 0};
  int q_parity = 0;
#pragma unroll 1
  for (i64 round = 0; tile_number(round) < a->tiles; round++) {
    const Tile x = tile_of(tile_number(round), a);
#pragma unroll 1
    for (int n = x.blocks - 1; n >= 0; n--) {
      load_k(smem, map_k, x, n, &k_ring);
      if (n == x.blocks - 1) {
        load_q(smem, map_q, x, q_parity);
        q_parity ^= 1;
      } else {
        load_v(smem, map_v, x, n + 1, &v_ring);
      }
    }
    if (x.blocks > 0) load_v(smem, map_v, x, 0, &v_ring);
  }
}

/* ---- consumers ---- */

/* Shared-memory matrix descriptor, 128-byte swizzle; address and strides in bytes. Moving along a
 * row: + bytes / 16. */
DEV u64 descriptor(u32 address, u32 panel_stride) {
  return (u64)(address >> 4 & 0x3fff) | (u64)(panel_stride >> 4) << 16 | (u64)(1024 >> 4) << 32 |
         1ull << 62;
}

/* Issues s (64 x ${block_n}) = q k^T. */
DEV void issue_scores(float *s, u64 q, u64 k) {
#pragma unroll
  for (int i = 0; i < ${d16 // 16}; i++)
    ${mma_qk}(s, q + i / 4 * ${q_panels.bytes // 16} + i % 4 * 2,
    ${(" "):rep(#mma_qk)} k + i / 4 * ${k_panels.bytes // 16} + i % 4 * 2, i != 0);
}
/* Issues o (64 x ${dv}) += p v. */
DEV void issue_output(float *o, const u32 *p, u64 v) {
#pragma unroll
  for (int i = 0; i < ${block_n // 16}; i++) ${mma_pv}(o, p + 4 * i, v + i * 128, 1);
}

/* Rounds probabilities to ${dtype}: accumulator layout and A-operand layout are the same. */
DEV void pack_probabilities(u32 *p, const float *s) {
#pragma unroll
  for (int i = 0; i < ${block_n // 4}; i++) p[i] = ${pack}(s[2 * i], s[2 * i + 1]);
}

/* Hides keys past the end${causal and " and past the diagonal" or ""} in block n.
 * first: this thread's first row. */
DEV void mask_block(float *s, int n, int first, const ForwardArgs *a) {
  const int column = n * ${block_n} + 2 * (thread_index() & 3);
//@ if causal then
  const i64 see0 = (i64)first + 1 + a->seqlen_k - a->seqlen_q, see1 = see0 + 8;
  const int end0 = see0 < a->seqlen_k ? (int)see0 : a->seqlen_k;
  const int end1 = see1 < a->seqlen_k ? (int)see1 : a->seqlen_k;
  mask_scores(s, end0 - column, end1 - column);
//@ else
  mask_scores(s, a->seqlen_k - column, a->seqlen_k - column);
//@ end
}

/* Normalises and rounds the warp's 16 rows into shared memory at address `to` of its warpgroup, and
 * sends them off by TMA. */
DEV void store_output(const float *o, const RowState *st, u32 to, const TensorMap *map, Tile x,
                      int group, const ForwardArgs *a, float shift) {
  const int lane = thread_index() & 31, warp_row = thread_index() / 32 % 4 * 16;
  const int row = warp_row + (lane & 15);
  const float l[2] = {quad_sum(st->l[0]), quad_sum(st->l[1])};
  const float inverse[2] = {row_inverse(l[0]), row_inverse(l[1])};
#pragma unroll
  for (int k = 0; k < ${dv // 16}; k++) {
    u32 r[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
      r[i] = ${pack}(o[8 * k + 2 * i] * inverse[i % 2], o[8 * k + 2 * i + 1] * inverse[i % 2]);
    stmatrix_x4(to + k / 4 * 8192 + row * 128 + (((2 * k % 8 + (lane >> 4)) ^ (row & 7)) << 4), r);
  }
//@ if dv % 16 == 8 then
  /* The last eight columns, and eight past the tensor that TMA does not store. */
//@ local last, panel, chunk = dv // 2 - 4, (dv - 8) // 64 * 8192, (dv - 8) // 8 % 8
  u32 r[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 2; i++)
    r[i] = ${pack}(o[${last} + 2 * i] * inverse[i], o[${last} + 2 * i + 1] * inverse[i]);
  stmatrix_x4(to + ${panel} + row * 128 + (((${chunk} + (lane >> 4)) ^ (row & 7)) << 4), r);
//@ end
  fence_async();
  sync_warp();
  const int first = x.first + 64 * group + warp_row;
  if (lane == 0) {
#pragma unroll
    for (int c = 0; c < ${v_panels.count}; c++)
      tma_store(map, to + c * 8192 + warp_row * 128, 64 * c, first, x.head, x.batch);
    bulk_commit();
  }
  if (a->lse && (lane & 3) == 0) {
    float *lse = a->lse + ((i64)x.batch * a->num_heads + x.head) * a->seqlen_q;
#pragma unroll
    for (int r2 = 0; r2 < 2; r2++) {
      const int at = first + lane / 4 + 8 * r2;
      if (at < a->seqlen_q) stg_f32(lse + at, row_lse(st->m[r2], l[r2], a->softmax_scale, shift));
    }
  }
}

DEV void consume(u32 smem, int warp, const TensorMap *map_o, const ForwardArgs *a) {
  const int lane = thread_index() & 31, group = warp / 4 - 1;
  const u32 at_q = smem + ${at.q} + group * ${q_slot}, at_o = smem + ${at.o} + group * ${o_slot};
  const u64 q = descriptor(at_q, 0), k = descriptor(smem + ${at.k}, 0);
  const u64 v = descriptor(smem + ${at.v}, ${v_panels.bytes});
  const float c = a->scale_log2, shift = ${shift};
  Ring k_ring = {0, 0}, v_ring = {0, 0};
  int q_parity = 0;
  float s[${block_n // 2}], o[${dv // 2}];
  u32 p[${block_n // 4}];
  RowState st;
  float factor[2];

//@ if pingpong then
  /* Turn-taking: named barrier 1 + group, armed by the group before; group 0 arms itself once. */
  const int my_turn = 1 + group, next_turn = 1 + (group + 1) % ${consumers};
  if (group == 0) named_arrive(my_turn, 256);
//@ end
#pragma unroll 1
  for (i64 round = 0; tile_number(round) < a->tiles; round++) {
    const Tile x = tile_of(tile_number(round), a);
    const int first = x.first + 64 * group, row = first + warp % 4 * 16 + lane / 4;
    /* Keys below full are seen by every row of the warpgroup. */
//@ if causal then
    const i64 see = (i64)first + 1 + a->seqlen_k - a->seqlen_q;
    const int full = see < a->seqlen_k ? (int)see : a->seqlen_k;
//@ else
    const int full = a->seqlen_k;
//@ end
    state_clear(&st);
#pragma unroll
    for (int i = 0; i < ${dv // 2}; i++) o[i] = 0.0f;

    if (x.blocks > 0) {
      int n = x.blocks - 1;
      bar_wait(q_full(smem, group), q_parity);
      q_parity ^= 1;
      bar_wait(k_full(smem, k_ring.slot), k_ring.parity);
      wgmma_fence();
      issue_scores(s, q, k + (u64)(k_ring.slot * ${k_panels.total // 16}));
      wgmma_commit();
      wgmma_wait(0);
      touch_f32x${block_n // 2}(s);
      if (lane == 0) bar_arrive(k_empty(smem, k_ring.slot));
      ring_advance(&k_ring);
      if ((n + 1) * (i64)${block_n} > full) mask_block(s, n, row, a);
      softmax_step(s, &st, factor, c, shift);
      pack_probabilities(p, s);

#pragma unroll 1
      for (n--; n >= 0; n--) {
        bar_wait(k_full(smem, k_ring.slot), k_ring.parity);
//@ if pingpong then
        named_sync(my_turn, 256);
//@ end
        wgmma_fence();
        issue_scores(s, q, k + (u64)(k_ring.slot * ${k_panels.total // 16}));
        wgmma_commit();
        bar_wait(v_full(smem, v_ring.slot), v_ring.parity);
        wgmma_fence();
        issue_output(o, p, v + (u64)(v_ring.slot * ${v_panels.total // 16}));
        wgmma_commit();
//@ if pingpong then
        named_arrive(next_turn, 256);
//@ end
        wgmma_wait(1);
        touch_f32x${block_n // 2}(s);
        if (lane == 0) bar_arrive(k_empty(smem, k_ring.slot));
        ring_advance(&k_ring);
        if ((n + 1) * (i64)${block_n} > full) mask_block(s, n, row, a);
        softmax_step(s, &st, factor, c, shift);
        wgmma_wait(0);
        touch_f32x${dv // 2}(o);
        touch_u32x${block_n // 4}(p);
        if (lane == 0) bar_arrive(v_empty(smem, v_ring.slot));
        ring_advance(&v_ring);
#pragma unroll
        for (int i = 0; i < ${dv // 2}; i++) o[i] *= factor[i / 2 % 2];
        pack_probabilities(p, s);
      }

//@ if o_own then
      if (lane == 0) bar_arrive(q_empty(smem, group)); /* its last scores have been waited for */
//@ end
      bar_wait(v_full(smem, v_ring.slot), v_ring.parity);
      wgmma_fence();
      issue_output(o, p, v + (u64)(v_ring.slot * ${v_panels.total // 16}));
      wgmma_commit();
      wgmma_wait(0);
      touch_f32x${dv // 2}(o);
      touch_u32x${block_n // 4}(p);
      if (lane == 0) bar_arrive(v_empty(smem, v_ring.slot));
      ring_advance(&v_ring);
    }

    if (lane == 0) bulk_wait_read(0); /* the tile before has left its place */
    sync_warp();
    store_output(o, &st, at_o, map_o, x, group, a, shift);
//@ if not o_own then
    /* The output lies where the queries were: they are given back when the store has read it. */
    if (lane == 0) {
      bulk_wait_read(0);
      if (x.blocks > 0) bar_arrive(q_empty(smem, group));
    }
//@ end
  }
  if (lane == 0) bulk_wait(0);
}

KERNEL void kiln_forward(PARAM TensorMap map_q, PARAM TensorMap map_k, PARAM TensorMap map_v,
                         PARAM TensorMap map_o, PARAM ForwardArgs a) {
  const u32 smem = shared_base();
  const int warp = shfl_i32(thread_index() / 32, 0);
  if (thread_index() == 0) {
    for (int i = 0; i < ${num_stages}; i++) {
      bar_init(k_full(smem, i), 1);
      bar_init(v_full(smem, i), 1);
      bar_init(k_empty(smem, i), ${4 * consumers}); /* one arrival a warp */
      bar_init(v_empty(smem, i), ${4 * consumers});
    }
    for (int w = 0; w < ${consumers}; w++) {
      bar_init(q_full(smem, w), 1);
      bar_init(q_empty(smem, w), 4);
    }
    fence_bar_init();
  }
  sync_threads();
  if (warp < 4) {
    reg_dec(${producer_registers});
    if (thread_index() == 0) produce(smem, &map_q, &map_k, &map_v, &a);
  } else {
    reg_inc(${consumer_registers});
    consume(smem, warp, &map_o, &a);
  }
}
