// kiln 0.1.0  do not edit
// kiln generate --arch sm_90a --dtype fp16 --head-dim 64 --block-m 128 --block-n 128 --num-stages 3 --num-warps 12 --plain
// source id 99ed0d03d2896306d5c89e63e863adabe2bc75c163eb5d531d9a2e4497cb1310
// family hopper
// spec arch=sm_90a pass=forward algorithm=flash dtype=fp16 head_dim=64 head_dim_v=64 mask=none
// tile block_m=128 block_n=128 num_stages=3 num_warps=12
// shared memory 148024 of 232448 bytes
//    offset     bytes  region
//         0     49152  q
//     49152     49152  k
//     98304     49152  v
//    147456       248  bars
//    147712        48  info
//    147760       260  failed
//    148020         4  zero

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
#define DEV static __device__ __forceinline__
#define PARAM const __grid_constant__
#define KERNEL extern "C" __global__ __launch_bounds__(384, 1)
struct __align__(64) TensorMap { u64 words[16]; };
#define NEG_INFINITY __int_as_float(0xff800000)

DEV int thread_index(void) {
  return (int)threadIdx.x;
}
DEV i64 block_index(void) {
  return (i64)blockIdx.y * gridDim.x + blockIdx.x;
}
DEV i64 num_blocks(void) {
  return (i64)gridDim.x * gridDim.y;
}
DEV void sync_threads(void) {
  __syncthreads();
}
DEV void sync_warp(void) {
  __syncwarp();
}
DEV void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}
DEV void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}
DEV int shfl_i32(int x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}
DEV float shfl_xor_f32(float x, int lanes) {
  return __shfl_xor_sync(0xffffffffu, x, lanes);
}
DEV int any_sync(int x) {
  return __any_sync(0xffffffffu, x);
}
DEV int redux_max_i32(int x) {
  int y;
  asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(y) : "r"(x));
  return y;
}
DEV float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEV float lg2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEV u32 pack_fp16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
DEV u32 shared_base(void) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  return (u32)__cvta_generic_to_shared(shared_bytes);
}
DEV int lds_i32(u32 at) {
  int x;
  asm volatile("ld.volatile.shared.s32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
  return x;
}
DEV void sts_i32(u32 at, int x) {
  asm volatile("st.volatile.shared.s32 [%0], %1;" :: "r"(at), "r"(x) : "memory");
}
DEV float lds_f32(u32 at) {
  float x;
  asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
  return x;
}
DEV void sts_f32(u32 at, float x) {
  asm volatile("st.volatile.shared.f32 [%0], %1;" :: "r"(at), "f"(x) : "memory");
}
DEV int lds_flag(u32 at) {
  int x;
  asm volatile("ld.relaxed.cta.shared.s32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
  return x;
}
DEV void sts_flag(u32 at, int x) {
  asm volatile("st.relaxed.cta.shared.s32 [%0], %1;" :: "r"(at), "r"(x) : "memory");
}
DEV void stmatrix_x4(u32 at, const u32 *r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(at), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
DEV void stg_f32(float *p, float x) {
  *p = x;
}
DEV void bar_init(u32 bar, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(arrivals) : "memory");
}
DEV void fence_bar_init(void) {
  asm volatile("fence.mbarrier_init.release.cluster;" :: : "memory");
}
DEV void bar_expect(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(bar), "r"(bytes) : "memory");
}
DEV void bar_arrive(u32 bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}
DEV void bar_wait(u32 bar, u32 parity) {
  asm volatile("{\n"
               ".reg .pred p;\n"
               "L_try:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@p bra L_done;\n"
               "bra L_try;\n"
               "L_done:\n"
               "}"
               :: "r"(bar), "r"(parity) : "memory");
}
DEV void tma_load(u32 to, const TensorMap *map, u32 bar, int col, int row, int head, int batch, u64 policy) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
               "[%1, {%3, %4, %5, %6}], [%2], %7;"
               :: "r"(to), "l"(map), "r"(bar), "r"(col), "r"(row), "r"(head), "r"(batch),
               "l"(policy)
               : "memory");
}
DEV void tma_store(const TensorMap *map, u32 from, int col, int row, int head, int batch) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], "
               "[%1];"
               :: "l"(map), "r"(from), "r"(col), "r"(row), "r"(head), "r"(batch) : "memory");
}
DEV void bulk_commit(void) {
  asm volatile("cp.async.bulk.commit_group;" :: : "memory");
}
#define bulk_wait(pending) asm volatile("cp.async.bulk.wait_group " #pending ";" ::: "memory")
#define bulk_wait_read(pending) asm volatile("cp.async.bulk.wait_group.read " #pending ";" ::: "memory")
DEV void fence_async(void) {
  asm volatile("fence.proxy.async.shared::cta;" :: : "memory");
}
#define reg_dec(count) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(count))
#define reg_inc(count) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(count))
DEV void wgmma_fence(void) {
  asm volatile("wgmma.fence.sync.aligned;" :: : "memory");
}
DEV void wgmma_commit(void) {
  asm volatile("wgmma.commit_group.sync.aligned;" :: : "memory");
}
#define wgmma_wait(pending) asm volatile("wgmma.wait_group.sync.aligned " #pending ";" ::: "memory")
DEV void wgmma_rs_n64_fp16_t(float *d, const u32 *a, u64 b, int accumulate) {
  asm volatile("{\n"
               ".reg .pred p;\n"
               "setp.ne.b32 p, %37, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, "
               "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
               "%23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, "
               "1, 1;\n"
               "}"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
               "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
               "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
               "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
               "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
               "+f"(d[30]), "+f"(d[31])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
DEV void wgmma_ss_n128_fp16(float *d, u64 a, u64 b, int accumulate) {
  asm volatile("{\n"
               ".reg .pred p;\n"
               "setp.ne.b32 p, %66, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, "
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
               "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
               "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1, 0, 0;\n"
               "}"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
               "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
               "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
               "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
               "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
               "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
               "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
               "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
               "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),
               "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
               "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
               : "l"(a), "l"(b), "r"(accumulate));
}
DEV void touch_f32x32(float *r) {
  asm volatile(""
               : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]), "+f"(r[4]), "+f"(r[5]),
               "+f"(r[6]), "+f"(r[7]), "+f"(r[8]), "+f"(r[9]), "+f"(r[10]), "+f"(r[11]),
               "+f"(r[12]), "+f"(r[13]), "+f"(r[14]), "+f"(r[15]), "+f"(r[16]), "+f"(r[17]),
               "+f"(r[18]), "+f"(r[19]), "+f"(r[20]), "+f"(r[21]), "+f"(r[22]), "+f"(r[23]),
               "+f"(r[24]), "+f"(r[25]), "+f"(r[26]), "+f"(r[27]), "+f"(r[28]), "+f"(r[29]),
               "+f"(r[30]), "+f"(r[31])
               : : "memory");
}
DEV void touch_f32x64(float *r) {
  asm volatile(""
               : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]), "+f"(r[4]), "+f"(r[5]),
               "+f"(r[6]), "+f"(r[7]), "+f"(r[8]), "+f"(r[9]), "+f"(r[10]), "+f"(r[11]),
               "+f"(r[12]), "+f"(r[13]), "+f"(r[14]), "+f"(r[15]), "+f"(r[16]), "+f"(r[17]),
               "+f"(r[18]), "+f"(r[19]), "+f"(r[20]), "+f"(r[21]), "+f"(r[22]), "+f"(r[23]),
               "+f"(r[24]), "+f"(r[25]), "+f"(r[26]), "+f"(r[27]), "+f"(r[28]), "+f"(r[29]),
               "+f"(r[30]), "+f"(r[31]), "+f"(r[32]), "+f"(r[33]), "+f"(r[34]), "+f"(r[35]),
               "+f"(r[36]), "+f"(r[37]), "+f"(r[38]), "+f"(r[39]), "+f"(r[40]), "+f"(r[41]),
               "+f"(r[42]), "+f"(r[43]), "+f"(r[44]), "+f"(r[45]), "+f"(r[46]), "+f"(r[47]),
               "+f"(r[48]), "+f"(r[49]), "+f"(r[50]), "+f"(r[51]), "+f"(r[52]), "+f"(r[53]),
               "+f"(r[54]), "+f"(r[55]), "+f"(r[56]), "+f"(r[57]), "+f"(r[58]), "+f"(r[59]),
               "+f"(r[60]), "+f"(r[61]), "+f"(r[62]), "+f"(r[63])
               : : "memory");
}
DEV void touch_u32x32(u32 *r) {
  asm volatile(""
               : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3]), "+r"(r[4]), "+r"(r[5]),
               "+r"(r[6]), "+r"(r[7]), "+r"(r[8]), "+r"(r[9]), "+r"(r[10]), "+r"(r[11]),
               "+r"(r[12]), "+r"(r[13]), "+r"(r[14]), "+r"(r[15]), "+r"(r[16]), "+r"(r[17]),
               "+r"(r[18]), "+r"(r[19]), "+r"(r[20]), "+r"(r[21]), "+r"(r[22]), "+r"(r[23]),
               "+r"(r[24]), "+r"(r[25]), "+r"(r[26]), "+r"(r[27]), "+r"(r[28]), "+r"(r[29]),
               "+r"(r[30]), "+r"(r[31])
               : : "memory");
}

/* Parameter layout forward.1: strides in elements; lse in natural logarithm, (batch, num_heads,
 * seqlen_q). */
typedef struct {
  i64 batch, row, head;
} Stride;
typedef struct {
  const void *q, *k, *v;
  void *o;
  float *lse;
  void *workspace;
  Stride q_stride, k_stride, v_stride, o_stride;
  i64 tiles; /* m_blocks * num_heads * batch */
  i32 batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  i32 group;           /* query heads per key head */
  i32 m_blocks;        /* ceil(seqlen_q / block_m) */
  i32 shift;           /* ceil(log2(seqlen_k)) */
  float softmax_scale; /* multiplies q.k */
  float scale_log2;    /* softmax_scale * log2(e), > 0 */
} ForwardArgs;

/* FlashAttention forward for TMA and wgmma. Warpgroup 0 is the producer: one thread hands out tiles
 * and feeds queries, keys and values through mbarrier rings. Warpgroups 1 to 2 are
 * consumers of 64 query rows each: the scores of the next key block are computed while the softmax
 * of the present one runs.
 * For each of them a thread of warpgroup 0 stores the output.
 * The consumers take turns at the tensor cores.
 *
 * Tiles are computed without a running maximum first. That holds unless scores rise by tens of nats
 * within a tile; a tile in which they did is flagged, and computed again with the exact running
 * maximum when the others are done.
 */
/* Online softmax over scores in mma fragments. A thread holds rows g and g + 8 of a 16-row tile
 * (g = lane / 4) and columns 8 j + 2 (lane & 3) + {0, 1}; four neighbouring lanes share a row.
 *
 * m is the running maximum of the raw scores and l this thread's part of the sum of p.
 * p = 2^((s - m) c - shift), with c = scale log2(e), so p is 2^-shift at the maximum exactly.
 * fp16 has five exponent bits: shift = -15 puts the maximum at 2^15, so that p down to 2^-39 of it
 * count; |v| <= 65504 leaves the fp32 sums of p v far from overflow.
 */
typedef struct {
  float m[2], l[2];
} RowState;

DEV float quad_max(float x) {
  x = fmaxf(x, shfl_xor_f32(x, 1));
  return fmaxf(x, shfl_xor_f32(x, 2));
}
DEV float quad_sum(float x) {
  x += shfl_xor_f32(x, 1);
  return x + shfl_xor_f32(x, 2);
}

DEV void state_clear(RowState *st) {
  for (int r = 0; r < 2; r++) st->m[r] = NEG_INFINITY, st->l[r] = 0.0f;
}

/* Hides columns at and beyond limit[r]; limits count from this thread's first column. */
DEV void mask_scores(float *s, int limit0, int limit1) {
#pragma unroll
  for (int j = 0; j < 16; j++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      s[4 * j + i] = 8 * j + i < limit0 ? s[4 * j + i] : NEG_INFINITY;
      s[4 * j + 2 + i] = 8 * j + i < limit1 ? s[4 * j + 2 + i] : NEG_INFINITY;
    }
  }
}

/* top[r]: the maximum of the first `columns` columns of row r. */
DEV void block_maximum(const float *s, int columns, float *top) {
  top[0] = s[0];
  top[1] = s[2];
#pragma unroll
  for (int j = 0; j < columns / 8; j++) {
#pragma unroll
    for (int r = 0; r < 2; r++)
      top[r] = fmaxf(top[r], fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
  }
#pragma unroll
  for (int r = 0; r < 2; r++) top[r] = quad_max(top[r]);
}
/* Takes top into m. factor[r]: what earlier p and sums of p v must be multiplied by. ref[r]: the
 * new m, but 0 for a row that is hidden everywhere so far: it keeps m = -inf and p = 0. */
DEV void raise_state(const float *top, RowState *st, float *factor, float *ref, float c) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const float m = fmaxf(st->m[r], top[r]);
    ref[r] = m == NEG_INFINITY ? 0.0f : m;
    factor[r] = ex2((st->m[r] - ref[r]) * c);
    st->m[r] = m;
    st->l[r] *= factor[r];
  }
}
/* s <- 2^((s - ref) c - shift): subtracted first, so that the rounding of ref c cannot show. */
DEV void exact_exponentials(float *s, const float *ref, float c, float shift) {
#pragma unroll
  for (int j = 0; j < 16; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[4 * j + i] = ex2((s[4 * j + i] - ref[i / 2]) * c - shift);
  }
}

/* l += this thread's part of the block's sums */
DEV void sum_rows(const float *s, float *l) {
#pragma unroll
  for (int j = 0; j < 16; j++) {
#pragma unroll
    for (int r = 0; r < 2; r++) l[r] += s[4 * j + 2 * r] + s[4 * j + 2 * r + 1];
  }
}

DEV int sees_keys(i64 row, const ForwardArgs *a) {
  return a->seqlen_k > 0;
}

/* 1 / l by IEEE division, so that a power of two stays one: a row that sees one key returns v
 * exactly. A row that sees no key has l = 0 and gets zeros; one that sees scores of -inf alone gets
 * NaN, as its softmax is 0 / 0. */
DEV float row_inverse(float l, int sees_keys) { return l == 0.0f && !sees_keys ? 0.0f : 1.0f / l; }
DEV float row_lse(float m, float l, float scale, float shift) {
  return l == 0.0f ? NEG_INFINITY : m * scale + (lg2(l) + shift) * 0.693147181f;
}

/* ---- barriers: full = the bytes have landed, empty = every reader is done ---- */

DEV u32 k_full(u32 smem, int slot) {
  return smem + 147456 + 8 * slot;
}
DEV u32 k_empty(u32 smem, int slot) {
  return smem + 147480 + 8 * slot;
}
DEV u32 v_full(u32 smem, int slot) {
  return smem + 147504 + 8 * slot;
}
DEV u32 v_empty(u32 smem, int slot) {
  return smem + 147528 + 8 * slot;
}
DEV u32 q_full(u32 smem, int slot, int group) {
  const u32 first = smem + 147552;
  return first + 8 * (slot * 2 + group);
}
DEV u32 q_empty(u32 smem, int slot, int group) {
  const u32 first = smem + 147600;
  return first + 8 * (slot * 2 + group);
}
DEV u32 o_full(u32 smem, int slot, int group) {
  const u32 first = smem + 147648;
  return first + 8 * (slot * 2 + group);
}
DEV u32 fast_done(u32 smem) {
  return smem + 147696;
}
/* Flag of a round's tile; rounds past the last flag share it. */
DEV u32 failed_tile(u32 smem, int round) {
  return smem + 147760 + 4 * (round < 64 ? round : 63);
}
DEV u32 any_failed(u32 smem) { return smem + 148016; }

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

/* ---- producer: one thread ---- */

/* ---- which tiles, in which order ---- */

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

/* The next tile, or the next failed one; blocks = 0: the end. */
DEV Tile next_tile(Walk *w, u32 smem, int failed_only, const ForwardArgs *a) {
  Tile x = {0, 0, 0, 0};
  u32 head, block;
  int round;
  do {
    round = (int)w->step;
    if (!walk_next(w, a, &head, &block)) return x;
  } while (failed_only && !lds_flag(failed_tile(smem, round)));
  x.first = (int)block * 128;
  x.batch = (int)(head / (u32)a->num_heads);
  x.head = (int)(head - (u32)x.batch * (u32)a->num_heads);
  i64 end = a->seqlen_k;
  x.blocks = end < 1 ? 1 : (int)((end + 127) / 128);
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
  for (int w = 0; w < 2; w++)
    bar_wait(q_empty(me->smem, slot, w), me->ring.q.parity ^ 1);
  const u32 info = me->smem + 147712 + 16 * slot;
  sts_i32(info, x.first);
  sts_i32(info + 4, x.head);
  sts_i32(info + 8, x.batch);
  sts_i32(info + 12, x.blocks);
#pragma unroll 1
  for (int w = 0; w < 2; w++) {
    if (x.blocks == 0) {
      bar_arrive(q_full(me->smem, slot, w));
      continue;
    }
    bar_expect(q_full(me->smem, slot, w), 8192);
    const u32 to = me->smem + 0 + (slot * 2 + w) * 8192;
    for (int c = 0; c < 1; c++)
      tma_load(to + c * 8192, me->map_q, q_full(me->smem, slot, w), 64 * c,
               x.first + 64 * w, x.head, x.batch, 0x12F0000000000000ull);
  }
  advance(&me->ring.q, 3);
}

/* Keys of block n. Other blocks read them again: evict last. Without keys every row lies past
 * the end, so that zeros arrive. */
DEV void send_k(Producer *me, Tile x, int n) {
  Ring *ring = &me->ring.k;
  const int row = me->a->seqlen_k == 0 ? 128 : n * 128;
  const int head_k = x.head / me->a->group;
  bar_wait(k_empty(me->smem, ring->slot), ring->parity ^ 1);
  bar_expect(k_full(me->smem, ring->slot), 16384);
  const u32 to = me->smem + 49152 + ring->slot * 16384;
  for (int c = 0; c < 1; c++)
    tma_load(to + c * 16384, me->map_k, k_full(me->smem, ring->slot),
             64 * c, row, head_k, x.batch, 0x14F0000000000000ull);
  advance(ring, 3);
}

/* Values of block n. Other blocks read them again: evict last. Without keys every row lies past
 * the end, so that zeros arrive. */
DEV void send_v(Producer *me, Tile x, int n) {
  Ring *ring = &me->ring.v;
  const int row = me->a->seqlen_k == 0 ? 128 : n * 128;
  const int head_k = x.head / me->a->group;
  bar_wait(v_empty(me->smem, ring->slot), ring->parity ^ 1);
  bar_expect(v_full(me->smem, ring->slot), 16384);
  const u32 to = me->smem + 98304 + ring->slot * 16384;
  for (int c = 0; c < 1; c++)
    tma_load(to + c * 16384, me->map_v, v_full(me->smem, ring->slot),
             64 * c, row, head_k, x.batch, 0x14F0000000000000ull);
  advance(ring, 3);
}

/* Sends tiles as one stream, over their borders: the keys of a block, then the values of the block
 * before. The next tile's queries go out before the last values.
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
    send_tile(me, next);
    if (next.blocks > 0) send_k(me, next, next.blocks - 1);
    send_v(me, x, 0);
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
  advance(&me->q_ring, 3);
  me->q = descriptor(me->smem + 0 + (x.slot * 2 + me->group) * 8192, 0);
  const u32 info = me->smem + 147712 + 16 * x.slot;
  x.first = tile_fact(me, info) + 64 * me->group;
  x.head = tile_fact(me, info + 4);
  x.batch = tile_fact(me, info + 8);
  x.blocks = tile_fact(me, info + 12);
  x.full = me->a->seqlen_k;
  return x;
}

/* This thread's first row; the other is eight further. */
DEV int row_of(const Consumer *me, Share x) { return x.first + me->warp_row + me->lane / 4; }

/* ---- products ---- */

/* s (64 x 128) = q k^T, started */
DEV void issue_scores(const Consumer *me, float *s) {
  const u32 k = me->k + me->k_ring.slot * 1024;
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; i++)
    wgmma_ss_n128_fp16(s, matrix(me->q + i / 4 * 512 + i % 4 * 2),
              matrix(k + i / 4 * 1024 + i % 4 * 2), i != 0);
  wgmma_commit();
}
/* o (64 x 64) += p v, started */
DEV void issue_output(const Consumer *me, float *o, const u32 *p) {
  const u32 v = me->v + me->v_ring.slot * 1024;
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 8; i++) wgmma_rs_n64_fp16_t(o, p + 4 * i, matrix(v + i * 128), 1);
  wgmma_commit();
}
/* Starts the scores of the next block and the output of the present one, when it is this group's turn. */
DEV void issue_both(const Consumer *me, float *s, float *o, const u32 *p) {
  bar_wait(k_full(me->smem, me->k_ring.slot), me->k_ring.parity);
  named_sync(1 + me->group, 256);
  issue_scores(me, s);
  bar_wait(v_full(me->smem, me->v_ring.slot), me->v_ring.parity);
  issue_output(me, o, p);
  named_arrive(1 + (me->group + 1) % 2, 256);
}
/* Give slots back; the product that read them has been waited for. */
DEV void free_k(Consumer *me) {
  if (me->lane == 0) bar_arrive(k_empty(me->smem, me->k_ring.slot));
  advance(&me->k_ring, 3);
}
DEV void free_v(Consumer *me) {
  if (me->lane == 0) bar_arrive(v_empty(me->smem, me->v_ring.slot));
  advance(&me->v_ring, 3);
}
/* The storer gives it back. */
DEV void leave_q(const Consumer *me, int slot) {
  if (me->lane == 0) bar_arrive(o_full(me->smem, slot, me->group));
}

/* Hides keys past the end in block n. */
DEV void mask_block(const Consumer *me, float *s, int n, int row) {
  const int column = n * 128 + 2 * (me->lane & 3), seqlen_k = me->a->seqlen_k;
  mask_scores(s, seqlen_k - column, seqlen_k - column);
}

/* Takes the maximum of the first `columns` columns into the state. */
DEV void raise_maximum(const float *s, int columns, RowState *st, float *factor, float *ref,
                       float c) {
  float top[2];
  block_maximum(s, columns, top);
  raise_state(top, st, factor, ref, c);
}

/* p <- s, rounded to fp16: accumulators and A operands have the same layout. */
DEV void pack_probabilities(u32 *p, const float *s) {
#pragma unroll
  for (int i = 0; i < 32; i++) p[i] = pack_fp16(s[2 * i], s[2 * i + 1]);
}

/* ---- output ---- */

/* Rounds the warp's 16 rows into the place of its queries and leaves it to the storer. */
DEV void store_rows(const Consumer *me, const float *o, const float *inverse, Share x) {
  const u32 to = me->smem + 0 + (x.slot * 2 + me->group) * 8192;
  const int row = me->warp_row + (me->lane & 15), half = me->lane >> 4;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    u32 r[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float *y = o + 8 * k + 2 * i;
      r[i] = pack_fp16(y[0] * inverse[i % 2], y[1] * inverse[i % 2]);
    }
    stmatrix_x4(to + k / 4 * 8192 + row * 128 + (((2 * k % 8 + half) ^ (row & 7)) << 4), r);
  }
  fence_async();
  sync_warp();
  leave_q(me, x.slot);
}

DEV void store_lse(const Consumer *me, const float *lse, Share x) {
  const ForwardArgs *a = me->a;
  if (!a->lse || (me->lane & 3) != 0) return;
  float *to = a->lse + ((i64)x.batch * a->num_heads + x.head) * a->seqlen_q;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    if (row_of(me, x) + 8 * r < a->seqlen_q) stg_f32(to + row_of(me, x) + 8 * r, lse[r]);
  }
}

/* ---- fast: no running maximum ---- */

/* A row's reference m is the maximum of some scores of its first block, and
 * p = 2^((s - m) c + 8) from then on. fp16 ends at 2^16 and at 2^-24: scores may rise by
 * 8 powers of two, and what lies less than 32 below the reference counts. The
 * common factor leaves with 1 / l.
 * So steady blocks need no maximum, no rescaling and no wait before the exponentials.
 *
 * What this cannot hold is flagged when the tile is stored: sums near the end of the range, any
 * output that is not finite (p or p v overflowed, or v holds such values), scores so large that the
 * rounding of m c shows, rows with l = 0. Blocks that hide keys take the exact maximum, up to the
 * last that hides any; the next one, which every row sees whole, raises the references of rows
 * that saw a few keys only. */
typedef struct {
  RowState row;
  float bias[2]; /* -m c + 8 */
} FastState;

/* p <- s as pack_probabilities does, sums to l. They start from a zero that is read from shared
 * memory only now, which keeps the assembler from moving the additions up among the
 * exponentials, where each would wait for its operand (H200, head_dim 128: 735 against 674
 * TFLOP/s). */
DEV void pack_and_sum(u32 *p, const float *s, float *l, float zero) {
  float sum[4] = {s[0] + zero, s[1] + zero, s[2] + zero, s[3] + zero};
  pack_probabilities(p, s);
#pragma unroll
  for (int j = 1; j < 16; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] += s[4 * j + i];
  }
  l[0] += sum[0] + sum[1];
  l[1] += sum[2] + sum[3];
}

/* s <- 2^(s c + bias) */
DEV void exponentials(float *s, const float *bias, float c) {
#pragma unroll
  for (int j = 0; j < 16; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[4 * j + i] = ex2(fmaf(s[4 * j + i], c, bias[i / 2]));
  }
}

/* A block whose first `columns` columns raise the reference, after its mask if it has one. */
DEV void careful_step(const Consumer *me, float *s, FastState *st, float *factor, int columns) {
  float ref[2];
  raise_maximum(s, columns, &st->row, factor, ref, me->c);
#pragma unroll
  for (int r = 0; r < 2; r++) st->bias[r] = -ref[r] * me->c + 8.0f;
  exponentials(s, st->bias, me->c);
}

/* The first block of a tile. Where nothing is hidden, 128 columns are enough. */
DEV void first_step(const Consumer *me, float *s, FastState *st, int n, Share x) {
  float factor[2], ref[2];
  state_clear(&st->row);
  if ((n + 1) * (i64)128 > x.full) {
    mask_block(me, s, n, row_of(me, x));
    careful_step(me, s, st, factor, 128);
  } else {
    raise_maximum(s, 128, &st->row, factor, ref, me->c);
#pragma unroll
    for (int r = 0; r < 2; r++) st->bias[r] = -st->row.m[r] * me->c + 8.0f;
    exponentials(s, st->bias, me->c);
  }
}

/* round: the tile's, for its flag */
DEV void finish_fast(const Consumer *me, const float *o, const FastState *st, Share x, int round) {
  float inverse[2], lse[2], probe = 0.0f;
  int good = 1;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const float l = quad_sum(st->row.l[r]);
    inverse[r] = 1.0f / l;
    lse[r] = (lg2(l) - st->bias[r]) * 0.693147181f;
    good = good && l > 0.0f && l < 1e30f && fabsf(st->bias[r]) < 4096.0f;
  }
#pragma unroll
  for (int i = 0; i < 32; i++) probe = fmaf(o[i], 0.0f, probe);
  store_rows(me, o, inverse, x);
  store_lse(me, lse, x);
  if (any_sync(!(good && probe == 0.0f)) && me->lane == 0) {
    sts_flag(failed_tile(me->smem, round), 1);
    sts_flag(any_failed(me->smem), 1);
  }
}

DEV void run_fast(Consumer *me) {
  float s[64], o[32];
  u32 p[32];
  FastState st;
  Share x = take_tile(me), before = x;
  bar_wait(k_full(me->smem, me->k_ring.slot), me->k_ring.parity);
  issue_scores(me, s);
  wgmma_wait(0);
  touch_f32x64(s);

  /* On entry the first scores of x run, and beside them the last product of the tile before. */
#pragma unroll 1
  for (int round = -1;;) {
    int n = x.blocks - 1;
    if (round >= 0) {
      free_v(me);
      finish_fast(me, o, &st, before, round);
    }
    if (x.blocks == 0) break;
    free_k(me);
    first_step(me, s, &st, n, x);
    pack_and_sum(p, s, st.row.l, 0.0f);
#pragma unroll
    for (int i = 0; i < 32; i++) o[i] = 0.0f;
    /* Until every row has its reference. */
    float factor[2];
#pragma unroll 1
    while (n > 0 && n * (i64)128 >= x.full - 127) {
      n--;
      issue_both(me, s, o, p);
      wgmma_wait(1);
      touch_f32x64(s);
      free_k(me);
      careful_step(me, s, &st, factor, 64);
      wgmma_wait(0);
      touch_f32x32(o);
      touch_u32x32(p);
      free_v(me);
#pragma unroll
      for (int i = 0; i < 32; i++) o[i] *= factor[i / 2 % 2];
      pack_and_sum(p, s, st.row.l, 0.0f);
    }
    /* Steady state. */
#pragma unroll 1
    while (n > 0) {
      n--;
      issue_both(me, s, o, p);
      wgmma_wait(1);
      touch_f32x64(s);
      free_k(me);
      exponentials(s, st.bias, me->c);
      wgmma_wait(0);
      touch_f32x64(s);
      touch_f32x32(o);
      touch_u32x32(p);
      free_v(me);
      pack_and_sum(p, s, st.row.l, lds_f32(me->smem + 148020));
    }
    round++;
    before = x;
    x = take_tile(me);
    if (x.blocks > 0) {
      issue_both(me, s, o, p);
      wgmma_wait(0);
      touch_f32x64(s);
    } else {
      bar_wait(v_full(me->smem, me->v_ring.slot), me->v_ring.parity);
      issue_output(me, o, p);
      wgmma_wait(0);
    }
    touch_f32x32(o);
    touch_u32x32(p);
  }
  leave_q(me, x.slot);
}
/* ---- exact: the running maximum, tile by tile until the stream ends ---- */

/* Few tiles come here if any: one block at a time, no overlap within a warpgroup, so that there is
 * little to compile. */
DEV void exact_step(Consumer *me, float *s, float *o, RowState *st, Share x, int n) {
  const float shift = -15.0f;
  float factor[2], ref[2];
  u32 p[32];
  bar_wait(k_full(me->smem, me->k_ring.slot), me->k_ring.parity);
  issue_scores(me, s);
  wgmma_wait(0);
  touch_f32x64(s);
  free_k(me);
  mask_block(me, s, n, row_of(me, x));
  raise_maximum(s, 128, st, factor, ref, me->c);
  exact_exponentials(s, ref, me->c, shift);
  sum_rows(s, st->l);
  pack_probabilities(p, s);
#pragma unroll
  for (int i = 0; i < 32; i++) o[i] *= factor[i / 2 % 2];
  bar_wait(v_full(me->smem, me->v_ring.slot), me->v_ring.parity);
  issue_output(me, o, p);
  wgmma_wait(0);
  touch_f32x32(o);
  touch_u32x32(p);
  free_v(me);
}

DEV void run_exact(Consumer *me) {
  const float shift = -15.0f;
  float s[64], o[32], inverse[2], lse[2];
  RowState st;
#pragma unroll 1
  for (;;) {
    const Share x = take_tile(me);
    if (x.blocks == 0) {
      leave_q(me, x.slot);
      return;
    }
    state_clear(&st);
#pragma unroll
    for (int i = 0; i < 32; i++) o[i] = 0.0f;
#pragma unroll 1
    for (int n = x.blocks - 1; n >= 0; n--) exact_step(me, s, o, &st, x, n);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float l = quad_sum(st.l[r]);
      inverse[r] = row_inverse(l, sees_keys(row_of(me, x) + 8 * r, me->a));
      lse[r] = row_lse(st.m[r], l, me->a->softmax_scale, shift);
    }
    store_rows(me, o, inverse, x);
    store_lse(me, lse, x);
  }
}

DEV void consume(u32 smem, int warp, const ForwardArgs *a) {
  Consumer me;
  me.smem = smem;
  me.group = warp / 4 - 1;
  me.lane = thread_index() & 31;
  me.warp_row = warp % 4 * 16;
  me.k = descriptor(smem + 49152, 0);
  me.v = descriptor(smem + 98304, 16384);
  me.q_ring.slot = me.q_ring.parity = 0;
  me.k_ring = me.v_ring = me.q_ring;
  me.c = a->scale_log2;
  me.a = a;
  /* Turns: named barrier 1 + group, armed by the group before. Group 0 arms itself once. */
  if (me.group == 0) named_arrive(1, 256);
  run_fast(&me);
  if (me.lane == 0) bar_arrive(fast_done(smem));
  bar_wait(fast_done(smem), 0);
  if (lds_flag(any_failed(smem))) run_exact(&me);
}
/* ---- storers: a thread for each consumer ---- */

/* Sends off what the consumer has left where its queries were, by TMA, which leaves out what lies
 * past the tensor, and gives the place back when it has been read. */
DEV void store_tiles(u32 smem, int group, const TensorMap *map_o) {
  Ring ring = {0, 0};
#pragma unroll 1
  for (int again = 0; again < 2; again++) {
    int blocks;
    do {
      bar_wait(o_full(smem, ring.slot, group), ring.parity);
      const u32 info = smem + 147712 + 16 * ring.slot;
      const u32 from = smem + 0 + (ring.slot * 2 + group) * 8192;
      const int first = lds_i32(info) + 64 * group, head = lds_i32(info + 4);
      const int batch = lds_i32(info + 8);
      blocks = lds_i32(info + 12);
      if (blocks > 0) {
#pragma unroll
        for (int c = 0; c < 1; c++)
          tma_store(map_o, from + c * 8192, 64 * c, first, head, batch);
        bulk_commit();
        bulk_wait_read(0);
      }
      bar_arrive(q_empty(smem, ring.slot, group));
      advance(&ring, 3);
    } while (blocks > 0);
    bulk_wait(0); /* what was stored must not overtake what replaces it */
    bar_wait(fast_done(smem), 0);
    if (!lds_flag(any_failed(smem))) return;
  }
}

KERNEL void kiln_forward(PARAM TensorMap map_q, PARAM TensorMap map_k, PARAM TensorMap map_v,
                         PARAM TensorMap map_o, PARAM ForwardArgs a) {
  const u32 smem = shared_base();
  const int warp = shfl_i32(thread_index() / 32, 0);
  if (thread_index() == 0) {
    for (int i = 0; i < 3; i++) {
      bar_init(k_full(smem, i), 1);
      bar_init(v_full(smem, i), 1);
      bar_init(k_empty(smem, i), 8); /* one arrival a warp */
      bar_init(v_empty(smem, i), 8);
    }
    for (int i = 0; i < 3; i++) {
      for (int w = 0; w < 2; w++) {
        bar_init(q_full(smem, i, w), 1);
        bar_init(q_empty(smem, i, w), 1);
        bar_init(o_full(smem, i, w), 4);
      }
    }
    bar_init(fast_done(smem), 8);
    for (int i = 0; i <= 64; i++) sts_flag(smem + 147760 + 4 * i, 0);
    sts_f32(smem + 148020, 0.0f);
    fence_bar_init();
  }
  sync_threads();
  if (warp < 4) {
    reg_dec(40);
    if (thread_index() == 0) produce(smem, &map_q, &map_k, &map_v, &a);
    if (thread_index() % 32 == 0 && warp >= 1 && warp <= 2)
      store_tiles(smem, warp - 1, &map_o);
  } else {
    reg_inc(232);
    consume(smem, warp, &a);
  }
}
