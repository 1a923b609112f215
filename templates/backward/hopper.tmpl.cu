//@ include("common/backward_args.tmpl.cu")

/* FlashAttention backward for TMA and wgmma. A thread block owns ${block_n} keys of one key head
 * and walks over the blocks of ${block_m} queries that see them, for every query head of the group.
 * Warpgroup 0 is the producer; the two consumers own 64 keys each. S^T = K Q^T and dP^T = V dO^T
 * stay in registers, where P^T and dS^T are the first operands of dV += P^T dO and dK += dS^T Q. dS
 * goes through shared memory, since dQ = dS K sums over the keys of both; dQ of one block is formed
 * while the next is computed, so the consumers may drift apart by a block.
 *
 * The statistics of the queries come in through the tensor cores: a row's -lse / scale and -delta
 * are three bf16 numbers each, and the last instruction of S^T and of dP^T multiplies them by
 * ones. So P = 2^((S - lse / scale) c) and dS = P (dP - delta) cost one multiplication a score
 * each. */
//@ include("backward/hopper_shared.tmpl.cu")
//@ include("backward/hopper_preprocess.tmpl.cu")
//@ include("backward/hopper_convert.tmpl.cu")

/* ---- barriers: full = the bytes have landed, empty = every reader is done. A place for dO is
 * empty where that for the queries is: its readers are done before. ---- */

//@ for i, name in ipairs { "q_full", "q_empty", "do_full", "ds_full", "ds_empty" } do
DEV u32 ${name}(u32 smem, int slot) { return smem + ${at.bars + 16 * (i - 1)} + 8 * slot; }
//@ end
DEV u32 k_full(u32 smem) { return smem + ${at.bars + 80}; }
DEV u32 v_full(u32 smem) { return smem + ${at.bars + 88}; }
//@ if deterministic then
/* By consumer: its part of dQ lies in shared memory, and has been read. */
DEV u32 dq_full(u32 smem, int group) { return smem + ${at.bars + 96} + 8 * group; }
DEV u32 dq_empty(u32 smem, int group) { return smem + ${at.bars + 112} + 8 * group; }
//@ end

/* ---- tiles ---- */

/* A tile of keys. Query blocks before m0 see none of them; those before masked see some. */
typedef struct {
  int n, head_k, batch;
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
DEV Tile tile_of(i64 t, const BackwardArgs *a) {
  Tile x;
  i64 head;
//@ if causal or deterministic then
//@ if causal then
  const i64 bytes = (i64)a->group * a->seqlen_q * ${2 * d16 + 2 * dv16 + 4 * d16};
  const i64 most = ${40 << 20} / (bytes > 0 ? bytes : 1);
  i64 width = ${16 << 20} / (bytes > 0 ? bytes : 1); /* the fastest, but of 8 heads at least */
  if (width < 8) width = most < 1 ? 1 : most < 8 ? most : 8;
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
  const i64 diagonal = (i64)a->seqlen_k - a->seqlen_q;
  const i64 first = x.n * (i64)${block_n} - diagonal, last = first + ${block_n - 1};
  const i64 m0 = first < 0 ? 0 : first / ${block_m};
  x.m0 = m0 < a->m_blocks ? (int)m0 : a->m_blocks;
  const i64 masked = last <= 0 ? 0 : (last + ${block_m - 1}) / ${block_m};
  x.masked = masked < a->m_blocks ? (int)masked : a->m_blocks;
//@ else
  x.m0 = x.masked = 0;
//@ end
  if ((x.n + 1) * (i64)${block_n} > a->seqlen_k) x.masked = a->m_blocks;
  x.batch = (int)(head / a->num_heads_k);
  x.head_k = (int)(head - (i64)x.batch * a->num_heads_k);
  return x;
}
/* Steps of a tile: a query block of a query head each */
DEV int steps_of(Tile x, const BackwardArgs *a) { return (a->m_blocks - x.m0) * a->group; }

//@ include("backward/hopper_produce.tmpl.cu")
//@ include("backward/hopper_consume.tmpl.cu")

KERNEL void kiln_backward(PARAM TensorMap map_q, PARAM TensorMap map_k, PARAM TensorMap map_v,
                          PARAM TensorMap map_do, PARAM BackwardArgs a) {
  const u32 smem = shared_base();
  const int warp = redux_max_i32(thread_index() / 32);
  if (block_index() >= a.tiles) return;
  if (thread_index() == 0) {
    bar_init(k_full(smem), 1);
    bar_init(v_full(smem), 1);
    for (int i = 0; i < 2; i++) {
      bar_init(q_full(smem, i), 1);
      bar_init(q_empty(smem, i), 8); /* one arrival a warp */
      bar_init(do_full(smem, i), 1);
      bar_init(ds_full(smem, i), 8);
      bar_init(ds_empty(smem, i), 8);
//@ if deterministic then
      bar_init(dq_full(smem, i), 4);
      bar_init(dq_empty(smem, i), 1);
//@ end
    }
    fence_bar_init();
  }
  /* Ones for -delta: a core matrix of columns 0 to 7, and zeros for columns 8 to 15. */
  if (thread_index() < 64) {
    const int word = thread_index() & 3, is_zero = thread_index() >= 32;
    sts_u32(smem + ${at.ones} + 4 * thread_index(),
            is_zero ? 0 : word == 1 ? 0x3f800000u : word == 2 ? 0x3f803f80u : 0);
    fence_async();
  }
  sync_threads();
  const Tile x = tile_of(block_index(), &a);
  if (warp < 4) {
    reg_dec(24);
    if (thread_index() == 0) produce(smem, x, &map_q, &map_k, &map_v, &map_do, &a);
//@ if deterministic then
    if (thread_index() == 32 || thread_index() == 64)
      add_queries(smem, x, thread_index() / 32 - 1, &a);
//@ end
  } else {
    reg_inc(240);
    consume(smem, warp, x, &a);
  }
}
