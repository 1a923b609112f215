/* ---- producer: one thread ---- */

/* ---- which tiles, in which order ---- */

//@ if causal then
/* Causal tiles differ in length. Heads go in pairs: unit i of a pair is block m - 1 - i of one head
 * and block i of the other, together as long as any other unit. So thread blocks keep step, and
 * those that work on a head do it at the same time, while its keys are in L2. What does not fill a
 * round of units goes out tile by tile, longest first and to and fro (0 .. G - 1, then G - 1 .. 0):
 * that evens out the end. */
typedef struct {
  u32 step, whole; /* steps taken; those that are halves of units */
} Walk;

DEV Walk walk_begin(const ForwardArgs *a) {
  const u32 pairs = (u32)a->num_heads * (u32)a->batch / 2;
  const u32 rounds = pairs * (u32)a->m_blocks / (u32)num_blocks();
  Walk w;
  w.step = 0;
  w.whole = 2 * rounds;
  return w;
}

/* Tile t of the tail: head (batch included) and block; 0: t is past the end. The body may have
 * taken i0 units of a pair: then the `edge` longest levels lack the pair's first head, the `edge`
 * shortest its second, and those between have both or neither. */
DEV int tail_tile(u32 t, u32 body, const ForwardArgs *a, u32 *head, u32 *block) {
  const u32 m = (u32)a->m_blocks, pair = body / m, i0 = body - pair * m;
  const u32 left = (u32)a->num_heads * (u32)a->batch - 2 * pair; /* heads, the pair's included */
  const u32 edge = i0 < m - i0 ? i0 : m - i0, between = edge == i0 ? left : left - 2;
  const u32 long_end = edge * (left - 1), short_begin = long_end + (m - 2 * edge) * between;
  u32 up, skip;
  if (t >= short_begin + long_end) return 0;
  if (t < long_end) {
    up = t / (left - 1);
    skip = 1 + t - up * (left - 1);
  } else if (t < short_begin) {
    up = (t - long_end) / between;
    skip = left - between + t - long_end - up * between;
    up += edge;
  } else {
    up = (t - short_begin) / (left - 1);
    const u32 i = t - short_begin - up * (left - 1);
    skip = i == 0 ? 0 : 1 + i;
    up += m - edge;
  }
  *head = 2 * pair + skip;
  *block = m - 1 - up;
  return 1;
}

/* This thread block's next tile; 0: there is none. */
DEV int walk_next(Walk *w, const ForwardArgs *a, u32 *head, u32 *block) {
  const u32 m = (u32)a->m_blocks, grid = (u32)num_blocks(), me = (u32)block_index();
  const u32 step = w->step++;
  if (step >= w->whole) {
    const u32 k = step - w->whole;
    return tail_tile(k * grid + (k & 1 ? grid - 1 - me : me), w->whole / 2 * grid, a, head, block);
  }
  const u32 unit = step / 2 * grid + me, pair = unit / m, i = unit - pair * m;
  *head = 2 * pair + (step & 1);
  *block = step & 1 ? i : m - 1 - i;
  return 1;
}
//@ else
/* m block fastest, then head, then batch: neighbouring thread blocks share keys and values. */
typedef struct {
  u32 step;
} Walk;

DEV Walk walk_begin(const ForwardArgs *a) {
  Walk w;
  (void)a;
  w.step = 0;
  return w;
}

DEV int walk_next(Walk *w, const ForwardArgs *a, u32 *head, u32 *block) {
  const i64 t = (i64)w->step++ * num_blocks() + block_index();
  *head = (u32)t / (u32)a->m_blocks;
  *block = (u32)t - *head * (u32)a->m_blocks;
  return t < a->tiles;
}
//@ end

/* The next tile, or the next failed one; blocks = 0: the end. */
DEV Tile next_tile(Walk *w, u32 smem, int failed_only, const ForwardArgs *a) {
  Tile x = {0, 0, 0, 0};
  u32 head, block;
  int round;
  do {
    round = (int)w->step;
    if (!walk_next(w, a, &head, &block)) return x;
  } while (failed_only && !lds_flag(failed_tile(smem, round)));
  x.first = (int)block * ${block_m};
  x.batch = (int)(head / (u32)a->num_heads);
  x.head = (int)(head - (u32)x.batch * (u32)a->num_heads);
  i64 end = a->seqlen_k;
//@ if causal then
  i64 last = (i64)x.first + ${block_m};
  last = (last < a->seqlen_q ? last : a->seqlen_q) + a->seqlen_k - a->seqlen_q;
  end = last < end ? last : end;
//@ end
  x.blocks = end < 1 ? 1 : (int)((end + ${block_n - 1}) / ${block_n});
  return x;
}

/* ---- the ring ---- */

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
/* Sends tiles as one stream, over their borders: the keys of a block, then the values of the block
//@ if o_staged then
 * before. The next tile's queries go out before the last values.
//@ else
 * before. The next tile's queries go out when theirs is the place, after the last values.
//@ end
 */
DEV void send_tiles(Producer *me, int failed_only) {
  Walk walk = walk_begin(me->a);
  Tile x = next_tile(&walk, me->smem, failed_only, me->a);
  send_tile(me, x);
  if (x.blocks > 0) send_k(me, x, x.blocks - 1);
#pragma unroll 1
  while (x.blocks > 0) {
#pragma unroll 1
    for (int n = x.blocks - 2; n >= 0; n--) {
      send_k(me, x, n);
      send_v(me, x, n + 1);
    }
    const Tile next = next_tile(&walk, me->smem, failed_only, me->a);
//@ if o_staged then
    send_tile(me, next);
//@ end
    if (next.blocks > 0) send_k(me, next, next.blocks - 1);
    send_v(me, x, 0);
//@ if not o_staged then
    send_tile(me, next);
//@ end
    x = next;
  }
}

DEV void produce(u32 smem, const TensorMap *map_q, const TensorMap *map_k, const TensorMap *map_v,
                 const ForwardArgs *a) {
  Producer me = {smem, map_q, map_k, map_v, a, {{0, 0}, {0, 0}, {0, 0}}};
#pragma unroll 1
  for (int again = 0; again < 2; again++) {
    send_tiles(&me, again);
    if (!again) bar_wait(fast_done(smem), 0);
    if (!lds_flag(any_failed(smem))) return;
  }
}
