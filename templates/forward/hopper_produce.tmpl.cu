/* ---- producer: one thread ---- */

/* Numbers of this block's tiles, and what a number means. There are fewer than 2^32 of them: the
 * launch makes sure. */
//@ if causal then
/* Longest first: m blocks descending, heads fastest, in sections of heads whose keys and values
 * stay in the L2 cache (32 MiB). Blocks take tiles to and fro (0 .. G - 1, then G - 1 .. 0), so
 * that each gets long and short ones. */
DEV i64 tile_number(int round) {
  return round * num_blocks() + (round & 1 ? num_blocks() - 1 - block_index() : block_index());
}
DEV Tile tile_of(u32 t, const ForwardArgs *a) {
  const u32 m_blocks = (u32)a->m_blocks, heads = (u32)a->num_heads * (u32)a->batch;
  const u32 fit = ${33554432 // (2 * (dim + dv))}u / ((u32)a->seqlen_k + 1);
  const u32 wide = fit < 1 ? 1 : fit < heads ? fit : heads; /* heads of a section */
  const u32 section = t / (wide * m_blocks) * wide, inside = t - section * m_blocks;
  const u32 width = heads - section < wide ? heads - section : wide, up = inside / width;
  const u32 head_index = section + inside - up * width;
  Tile x;
  x.first = (int)(m_blocks - 1 - up) * ${block_m};
//@ else
/* m block fastest, then head, then batch: neighbouring blocks share keys and values. */
DEV i64 tile_number(int round) { return round * num_blocks() + block_index(); }
DEV Tile tile_of(u32 t, const ForwardArgs *a) {
  const u32 head_index = t / (u32)a->m_blocks;
  Tile x;
  x.first = (int)(t - head_index * (u32)a->m_blocks) * ${block_m};
//@ end
  x.batch = (int)(head_index / (u32)a->num_heads);
  x.head = (int)(head_index - (u32)x.batch * (u32)a->num_heads);
  i64 end = a->seqlen_k;
//@ if causal then
  i64 last = (i64)x.first + ${block_m};
  last = (last < a->seqlen_q ? last : a->seqlen_q) + a->seqlen_k - a->seqlen_q;
  end = last < end ? last : end;
//@ end
  x.blocks = end < 1 ? 1 : (int)((end + ${block_n - 1}) / ${block_n});
  return x;
}

/* Where the producer stands. */
typedef struct {
  u32 smem;
  const TensorMap *map_q, *map_k, *map_v;
  const ForwardArgs *a;
  Rings ring;
} Producer;

/* Tells the consumers the next tile, and sends its queries: they pass through L2 once. */
DEV void send_tile(Producer *me, Tile x) {
  const int slot = me->ring.q.slot;
#pragma unroll 1
  for (int w = 0; w < ${consumers}; w++)
    bar_wait(q_empty(me->smem, slot, w), me->ring.q.parity ^ 1);
  const u32 info = me->smem + ${at.info} + 16 * slot;
  sts_i32(info, x.first);
  sts_i32(info + 4, x.head);
  sts_i32(info + 8, x.batch);
  sts_i32(info + 12, x.blocks);
#pragma unroll 1
  for (int w = 0; w < ${consumers}; w++) {
    if (x.blocks == 0) {
      bar_arrive(q_full(me->smem, slot, w));
      continue;
    }
    bar_expect(q_full(me->smem, slot, w), ${q_panels.total});
    const u32 to = me->smem + ${at.q} + (slot * ${consumers} + w) * ${q_slot};
    for (int c = 0; c < ${q_panels.count}; c++)
      tma_load(to + c * ${q_panels.bytes}, me->map_q, q_full(me->smem, slot, w), 64 * c,
               x.first + 64 * w, x.head, x.batch, 0x12F0000000000000ull);
  }
  advance(&me->ring.q, ${q_slots});
}

//@ for _, t in ipairs { { name = "k", what = "Keys", panels = k_panels },
//@                      { name = "v", what = "Values", panels = v_panels } } do
/* ${t.what} of block n. Other blocks read them again: evict last. Without keys every row lies past
 * the end, so that zeros arrive. */
DEV void send_${t.name}(Producer *me, Tile x, int n) {
  Ring *ring = &me->ring.${t.name};
  const int row = me->a->seqlen_k == 0 ? ${block_n} : n * ${block_n};
  const int head_k = x.head / me->a->group;
  bar_wait(${t.name}_empty(me->smem, ring->slot), ring->parity ^ 1);
  bar_expect(${t.name}_full(me->smem, ring->slot), ${t.panels.total});
  const u32 to = me->smem + ${at[t.name]} + ring->slot * ${t.panels.total};
  for (int c = 0; c < ${t.panels.count}; c++)
    tma_load(to + c * ${t.panels.bytes}, me->map_${t.name}, ${t.name}_full(me->smem, ring->slot),
             64 * c, row, head_k, x.batch, 0x14F0000000000000ull);
  advance(ring, ${num_stages});
}

//@ end
/* Sends all tiles as one stream of key blocks: keys of a block, then values of the block before,
 * over the borders of tiles.
//@ if q_slots == 2 then
 * The next tile and its queries go out before the last block of the present one.
//@ end
 */
DEV void send_tiles(Producer *me, int rounds) {
  Tile before = {0, 0, 0, 0};
  int before_n = 0;
  Tile x = tile_of((u32)tile_number(0), me->a);
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    Tile next = {0, 0, 0, 0};
    if (round + 1 < rounds)
      next = tile_of((u32)tile_number(round + 1), me->a);
#pragma unroll 1
    for (int n = x.blocks - 1; n >= 0; n--) {
      send_k(me, x, n);
//@ if q_slots == 2 then
      if (round == 0 && n == x.blocks - 1) send_tile(me, x);
//@ else
      if (n == x.blocks - 1) send_tile(me, x);
//@ end
      if (before.blocks > 0) send_v(me, before, before_n);
      before = x;
      before_n = n;
//@ if q_slots == 2 then
      if (n == (x.blocks > 2 ? 1 : 0)) send_tile(me, next);
//@ end
    }
    x = next;
  }
//@ if q_slots == 1 then
  send_tile(me, x);
//@ end
  send_v(me, before, before_n);
}

/* Sends one tile by itself. */
DEV void send_one(Producer *me, Tile x) {
#pragma unroll 1
  for (int n = x.blocks - 1; n >= 0; n--) {
    send_k(me, x, n);
    if (n == x.blocks - 1)
      send_tile(me, x);
    else
      send_v(me, x, n + 1);
  }
  send_v(me, x, 0);
}

DEV void produce(u32 smem, const TensorMap *map_q, const TensorMap *map_k, const TensorMap *map_v,
                 const ForwardArgs *a) {
  Producer me = {smem, map_q, map_k, map_v, a, {{0, 0}, {0, 0}, {0, 0}}};
  int rounds = (int)(a->tiles / num_blocks());
  rounds += tile_number(rounds) < a->tiles;
  send_tiles(&me, rounds);
  bar_wait(fast_done(smem), 0);
  if (!lds_flag(any_failed(smem))) return;
#pragma unroll 1
  for (int round = 0; round < rounds; round++) {
    if (!lds_flag(failed_tile(smem, round))) continue;
    send_one(&me, tile_of((u32)tile_number(round), a));
  }
  const Tile end = {0, 0, 0, 0};
  send_tile(&me, end);
}
