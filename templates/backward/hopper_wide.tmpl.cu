//@ include("common/backward_args.tmpl.cu")

/* FlashAttention backward for TMA and wgmma, for wide heads. A thread block owns ${block} keys of
 * one key head and walks over the blocks of ${block} queries that see them, for every query head of
 * the group. Warpgroup 0 is the producer. Of a step, consumer 1 forms S = Q K^T, P and
 * dV += P^T dO, consumer 2 dP = dO V^T, dS and dK += dS^T Q; P and dS lie in shared memory. Each
 * forms its columns of dQ = dS K one step late, while S becomes P.
//@ if pair then
 *
 * Two thread blocks are a cluster: they walk together, each loads half of the queries for both, and
 * they exchange dS, so that each forms half of the columns of dQ for the keys of both. What they
 * add to dQ in global memory, which is the bottleneck otherwise, is half as much.
//@ end
 */
//@ include("backward/hopper_shared.tmpl.cu")
//@ include("backward/hopper_wide_before.tmpl.cu")

/* ---- barriers: full = the bytes have landed, empty = every reader is done. What another barrier
 * tells is not waited for: P is there, so the keys and queries it was made of are. ---- */

//@ local at_bar = at.bars
//@ for _, b in ipairs { { "q_full", 2 }, { "q_empty", 2 }, { "ds_full", 2 }, { "ds_empty", 2 },
//@                      { "do_full", num_stages }, { "do_empty", num_stages },
//@                      pair and { "peer_full", 2 } or nil } do
DEV u32 ${b[1]}(u32 smem, int slot) { return smem + ${at_bar} + 8 * slot; }
//@ at_bar = at_bar + 8 * b[2]
//@ end
//@ for _, name in ipairs(deterministic and { "turn_full", "turn_done" } or {}) do
DEV u32 ${name}(u32 smem, int group) { return smem + ${at_bar} + 8 * group; }
//@ at_bar = at_bar + 16
//@ end
//@ for _, name in ipairs { "k_full", "v_full", "p_full", "p_empty" } do
DEV u32 ${name}(u32 smem) { return smem + ${at_bar}; }
//@ at_bar = at_bar + 8
//@ end

/* ---- tiles ---- */

/* A tile of keys. Query blocks before m0 see none of them; those before masked see some. */
typedef struct {
  int n, head_k, batch;
  int first; /* key of the thread block */
  int m0, masked;
} Tile;

//@ if causal and deterministic then
/* The tiles of a section of heads whose queries, gradients and sums stay in L2, by key block; then
 * the next section. The last block comes first: it is the first to add to its query blocks. */
//@ elseif causal then
/* The tiles of a section of heads whose queries, gradients and sums stay in L2, by key block; then
 * the next section. The first block, which the most queries see, comes first. */
//@ elseif deterministic then
/* The tiles of a section of heads by key block, then the next section: those of a head, which add
 * in turns, begin one behind the other, so that none waits for long. */
//@ else
/* Key block fastest, then key head, then batch. */
//@ end
DEV Tile tile_of(i64 t, int rank, const BackwardArgs *a) {
  Tile x;
  i64 head;
//@ if causal or deterministic then
//@ if causal then
  const i64 bytes = (i64)a->group * a->seqlen_q * ${6 * d16 + 2 * dv16};
  i64 width = ${16 << 20} / (bytes > 0 ? bytes : 1);
  width = width < 1 ? 1 : width;
//@ else
  i64 width = 384 / ((i64)a->group * a->m_blocks + 1) + 1;
//@ end
  head = head_of_section(t, width, a, &x.n);
//@ else
  head = t / a->n_blocks;
  x.n = (int)(t - head * a->n_blocks);
//@ end
//@ if causal then
//@ if deterministic then
  x.n = a->n_blocks - 1 - x.n;
//@ end
  /* The first query that sees a key; the first that sees all of the thread block's. */
  const i64 some = x.n * (i64)${block_n} - ((i64)a->seqlen_k - a->seqlen_q);
  const i64 all = some + rank * ${block} + ${block - 1};
  const i64 m0 = some < 0 ? 0 : some / ${block}, masked = (all + ${block - 1}) / ${block};
  x.m0 = m0 < a->m_blocks ? (int)m0 : a->m_blocks;
  x.masked = all <= 0 ? 0 : masked < a->m_blocks ? (int)masked : a->m_blocks;
//@ else
  x.m0 = x.masked = 0;
//@ end
  x.first = x.n * ${block_n} + rank * ${block};
  if ((i64)x.first + ${block} > a->seqlen_k) x.masked = a->m_blocks;
  x.batch = (int)(head / a->num_heads_k);
  x.head_k = (int)(head - (i64)x.batch * a->num_heads_k);
  return x;
}
/* Steps of a tile: a query block of a query head each */
DEV int steps_of(Tile x, const BackwardArgs *a) { return (a->m_blocks - x.m0) * a->group; }

//@ include("backward/hopper_wide_produce.tmpl.cu")
//@ include("backward/hopper_wide_consume.tmpl.cu")
//@ include("backward/hopper_wide_walk.tmpl.cu")

KERNEL void kiln_backward(PARAM TensorMap map_q, PARAM TensorMap map_k, PARAM TensorMap map_v,
                          PARAM TensorMap map_do, PARAM BackwardArgs a) {
  const u32 smem = shared_base();
  const int warp = redux_max_i32(thread_index() / 32);
//@ if pair then
  const int rank = redux_max_i32((int)cluster_rank());
  const i64 t = block_index() / 2;
//@ else
  const int rank = 0;
  const i64 t = block_index();
//@ end
  if (t >= a.tiles) return;
  if (thread_index() == 0) {
    bar_init(k_full(smem), 1);
    bar_init(v_full(smem), 1);
    bar_init(p_full(smem), 4); /* one arrival a warp */
    bar_init(p_empty(smem), 8);
    for (int i = 0; i < 2; i++) {
      bar_init(q_full(smem, i), 1);
      bar_init(q_empty(smem, i), ${pair and 16 or 8});
      bar_init(ds_full(smem, i), 4);
//@ if deterministic then
      bar_init(turn_full(smem, i), 1);
      bar_init(turn_done(smem, i), 4);
//@ end
      bar_init(ds_empty(smem, i), ${pair and 16 or 8});
//@ if pair then
      bar_init(peer_full(smem, i), 1);
//@ end
    }
    for (int i = 0; i < ${num_stages}; i++) {
      bar_init(do_full(smem, i), 1);
      bar_init(do_empty(smem, i), ${pair and 16 or 8});
    }
    fence_bar_init();
  }
//@ if pair then
  cluster_sync();
//@ else
  sync_threads();
//@ end
  const Tile x = tile_of(t, rank, &a);
  if (warp < 4) {
    reg_dec(24);
    if (thread_index() == 0) produce(smem, rank, x, &map_q, &map_k, &map_v, &map_do, &a);
//@ if pair then
    if (thread_index() == 32) send_ds(smem, rank, x, &a);
//@ end
//@ if deterministic then
    if (thread_index() == 64 || thread_index() == 96)
      keep_turns(smem, rank, thread_index() / 32 - 2, x, &a);
//@ end
//@ if pair then
    sync_warp();
//@ end
  } else {
    reg_inc(240);
    Consumer me = consumer_of(smem, warp, rank, x, &a);
    if (warp < 8) run_scores(&me, x, &a);
    else run_gradients(&me, x, &a);
  }
//@ if pair then
  cluster_sync(); /* until then the other thread block reaches into this one's shared memory */
//@ end
}
//@ include("backward/hopper_wide_after.tmpl.cu")
