//@ include("common/args.tmpl.cu")

/* FlashAttention forward for TMA and wgmma. Warpgroup 0 is the producer: one thread hands out tiles
 * and feeds queries, keys and values through mbarrier rings. Warpgroups 1 to ${consumers} are
 * consumers of 64 query rows each: the scores of the next key block are computed while the softmax
 * of the present one runs.
//@ if o_staged then
 * For each of them a thread of warpgroup 0 stores the output.
//@ end
//@ if pingpong then
 * The consumers take turns at the tensor cores.
//@ end
 *
 * Tiles are computed without a running maximum first. That holds unless scores rise by tens of nats
 * within a tile; a tile in which they did is flagged, and computed again with the exact running
 * maximum when the others are done.
 */
//@ include("common/softmax.tmpl.cu")

/* ---- barriers: full = the bytes have landed, empty = every reader is done ---- */

//@ for i, name in ipairs { "k_full", "k_empty", "v_full", "v_empty" } do
DEV u32 ${name}(u32 smem, int slot) {
  return smem + ${at.bars + 8 * num_stages * (i - 1)} + 8 * slot;
}
//@ end
//@ local q_bars = o_staged and { "q_full", "q_empty", "o_full" } or { "q_full", "q_empty" }
//@ for i, name in ipairs(q_bars) do
DEV u32 ${name}(u32 smem, int slot, int group) {
  const u32 first = smem + ${at.bars + 32 * num_stages + 8 * q_slots * consumers * (i - 1)};
  return first + 8 * (slot * ${consumers} + group);
}
//@ end
DEV u32 fast_done(u32 smem) {
  return smem + ${at.bars + 32 * num_stages + 8 * #q_bars * q_slots * consumers};
}
/* Flag of a round's tile; rounds past the last flag share it. */
DEV u32 failed_tile(u32 smem, int round) {
  return smem + ${at.failed} + 4 * (round < ${flags} ? round : ${flags - 1});
}
DEV u32 any_failed(u32 smem) { return smem + ${at.failed + 4 * flags}; }

/* A place in a ring. parity: of the phase that a reader waits for; a writer waits for the one
 * before. */
typedef struct {
  int slot, parity;
} Ring;
DEV void advance(Ring *ring, int slots) {
  ring->parity ^= ring->slot == slots - 1;
  ring->slot = ring->slot == slots - 1 ? 0 : ring->slot + 1;
}
typedef struct {
  Ring q, k, v;
} Rings;

/* ---- tiles ---- */

typedef struct {
  int first, head, batch; /* first query row */
  int blocks;             /* key blocks, one at least, though all of it may be hidden; 0: the end */
} Tile;

//@ include("forward/hopper_produce.tmpl.cu")
//@ include("forward/hopper_consume.tmpl.cu")
//@ if o_staged then
//@ include("forward/hopper_store.tmpl.cu")
//@ end

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
    for (int i = 0; i < ${q_slots}; i++) {
      for (int w = 0; w < ${consumers}; w++) {
        bar_init(q_full(smem, i, w), 1);
//@ if o_staged then
        bar_init(q_empty(smem, i, w), 1);
        bar_init(o_full(smem, i, w), 4);
//@ else
        bar_init(q_empty(smem, i, w), 4);
//@ end
      }
    }
    bar_init(fast_done(smem), ${4 * consumers});
    for (int i = 0; i <= ${flags}; i++) sts_flag(smem + ${at.failed} + 4 * i, 0);
    sts_f32(smem + ${at.zero}, 0.0f);
    fence_bar_init();
  }
  sync_threads();
  if (warp < 4) {
    reg_dec(${producer_registers});
    if (thread_index() == 0) produce(smem, &map_q, &map_k, &map_v, &a);
//@ if o_staged then
    if (thread_index() % 32 == 0 && warp >= 1 && warp <= ${consumers})
      store_tiles(smem, warp - 1, &map_o);
//@ end
  } else {
    reg_inc(${consumer_registers});
    consume(smem, warp, &a);
  }
}
