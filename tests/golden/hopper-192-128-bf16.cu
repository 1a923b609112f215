// kiln 0.1.0  do not edit
// kiln generate --arch sm_90a --dtype bf16 --head-dim 192 --head-dim-v 128 --block-m 128 --block-n 112 --num-stages 2 --num-warps 12 --plain
// source id ff251e22c9b75268b93726f5584734c7bc436c91a944d4731d89c424f59644ad
// family hopper
// spec arch=sm_90a pass=forward algorithm=flash dtype=bf16 head_dim=192 head_dim_v=128 mask=none
// tile block_m=128 block_n=112 num_stages=2 num_warps=12
// shared memory 225376 of 232448 bytes
//    offset     bytes  region
//         0     49152  q
//     49152     86016  k
//    135168     57344  v
//    192512     32768  o
//    225280        96  bars

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
  u32 x, y, w;
  asm volatile("mov.u32 %0, %%ctaid.x;\n"
               "mov.u32 %1, %%ctaid.y;\n"
               "mov.u32 %2, %%nctaid.x;"
               : "=r"(x), "=r"(y), "=r"(w));
  return (i64)y * w + x;
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
DEV u32 pack_bf16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
DEV u32 shared_base(void) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  return (u32)__cvta_generic_to_shared(shared_bytes);
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
DEV void wgmma_rs_n128_bf16_t(float *d, const u32 *a, u64 b, int accumulate) {
  asm volatile("{\n"
               ".reg .pred p;\n"
               "setp.ne.b32 p, %69, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, "
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
               "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
               "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, "
               "p, 1, 1, 1;\n"
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
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
DEV void wgmma_ss_n112_bf16(float *d, u64 a, u64 b, int accumulate) {
  asm volatile("{\n"
               ".reg .pred p;\n"
               "setp.ne.b32 p, %58, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n112k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, "
               "%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "
               "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
               "%54, %55}, %56, %57, p, 1, 1, 0, 0;\n"
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
               "+f"(d[54]), "+f"(d[55])
               : "l"(a), "l"(b), "r"(accumulate));
}
DEV void touch_f32x56(float *r) {
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
               "+f"(r[54]), "+f"(r[55])
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
DEV void touch_u32x28(u32 *r) {
  asm volatile(""
               : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3]), "+r"(r[4]), "+r"(r[5]),
               "+r"(r[6]), "+r"(r[7]), "+r"(r[8]), "+r"(r[9]), "+r"(r[10]), "+r"(r[11]),
               "+r"(r[12]), "+r"(r[13]), "+r"(r[14]), "+r"(r[15]), "+r"(r[16]), "+r"(r[17]),
               "+r"(r[18]), "+r"(r[19]), "+r"(r[20]), "+r"(r[21]), "+r"(r[22]), "+r"(r[23]),
               "+r"(r[24]), "+r"(r[25]), "+r"(r[26]), "+r"(r[27])
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

/* FlashAttention forward for TMA and wgmma. Warpgroup 0 is the producer: one thread feeds queries,
 * keys and values through mbarrier rings. Warpgroups 1 to 2 are consumers of 64 query
 * rows each: the scores of the next key block are computed while the softmax of the present one
 * runs.
 * The consumers take turns at the tensor cores.
 * A block works through many tiles. */
/* Online softmax over scores in mma fragments. A thread holds rows g and g + 8 of a 16-row tile
 * (g = lane / 4) and columns 8 j + 2 (lane & 3) + {0, 1}; four neighbouring lanes share a row.
 *
 * m is the running maximum of the raw scores and l this thread's part of the sum of p.
 * p = 2^((s - m) c - shift), with c = scale log2(e), so p is 2^-shift at the maximum exactly.
 * shift = ceil(log2(seqlen_k)) keeps sum(p) <= 1: sums of p v cannot overflow, whatever finite v
 * holds. bf16 has the exponent range of fp32, so small p lose nothing.
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
  for (int j = 0; j < 14; j++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      s[4 * j + i] = 8 * j + i < limit0 ? s[4 * j + i] : NEG_INFINITY;
      s[4 * j + 2 + i] = 8 * j + i < limit1 ? s[4 * j + 2 + i] : NEG_INFINITY;
    }
  }
}

/* Takes a block of scores into m and turns it into p; factor[r] is what earlier p and sums of p v
 * must be multiplied by. A row that is hidden everywhere so far keeps m = -inf and p = 0. */
DEV void softmax_step(float *s, RowState *st, float *factor, float c, float shift) {
  float top[2] = {s[0], s[2]}, ref[2];
#pragma unroll
  for (int j = 0; j < 14; j++) {
#pragma unroll
    for (int r = 0; r < 2; r++)
      top[r] = fmaxf(top[r], fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const float m = fmaxf(st->m[r], quad_max(top[r]));
    ref[r] = m == NEG_INFINITY ? 0.0f : m;
    factor[r] = ex2((st->m[r] - ref[r]) * c);
    st->m[r] = m;
    st->l[r] *= factor[r];
  }
  const float b0 = ref[0] * c, b1 = ref[1] * c;
  /* One fused multiply-add an element where the rounding of m c cannot show in p (2^-16); otherwise
   * subtract first. */
  if (any_sync(!(fmaxf(fabsf(b0), fabsf(b1)) < 256.0f))) {
#pragma unroll
    for (int j = 0; j < 14; j++) {
#pragma unroll
      for (int i = 0; i < 4; i++) s[4 * j + i] = ex2((s[4 * j + i] - ref[i / 2]) * c - shift);
    }
  } else {
    const float bias[2] = {-b0 - shift, -b1 - shift};
#pragma unroll
    for (int j = 0; j < 14; j++) {
#pragma unroll
      for (int i = 0; i < 4; i++) s[4 * j + i] = ex2(fmaf(s[4 * j + i], c, bias[i / 2]));
    }
  }
#pragma unroll
  for (int j = 0; j < 14; j++) {
#pragma unroll
    for (int r = 0; r < 2; r++) st->l[r] += s[4 * j + 2 * r] + s[4 * j + 2 * r + 1];
  }
}

/* 1 / l by IEEE division, so that a power of two stays one: a row that sees one key returns v
 * exactly. */
DEV float row_inverse(float l) { return l == 0.0f ? 0.0f : 1.0f / l; }
DEV float row_lse(float m, float l, float scale, float shift) {
  return l == 0.0f ? NEG_INFINITY : m * scale + (lg2(l) + shift) * 0.693147181f;
}

/* ---- barriers: full = the bytes have landed, empty = every reader is done ---- */

DEV u32 k_full(u32 smem, int slot) { return smem + 225280 + 8 * slot; }
DEV u32 k_empty(u32 smem, int slot) { return smem + 225296 + 8 * slot; }
DEV u32 v_full(u32 smem, int slot) { return smem + 225312 + 8 * slot; }
DEV u32 v_empty(u32 smem, int slot) { return smem + 225328 + 8 * slot; }
DEV u32 q_full(u32 smem, int group) { return smem + 225344 + 8 * group; }
DEV u32 q_empty(u32 smem, int group) { return smem + 225360 + 8 * group; }

/* A place in a ring of 2 slots. parity: of the phase that a reader waits for; a writer
 * waits for the one before. */
typedef struct {
  int slot, parity;
} Ring;
DEV void ring_advance(Ring *ring) {
  ring->parity ^= ring->slot == 1;
  ring->slot = ring->slot == 1 ? 0 : ring->slot + 1;
}

/* ---- tiles ---- */

typedef struct {
  int first, head, head_k, batch; /* first query row */
  int blocks;                     /* key blocks that some row sees */
} Tile;

/* m block fastest, then head, then batch: neighbouring blocks share keys and values. */
DEV i64 tile_number(i64 round) { return round * num_blocks() + block_index(); }
DEV Tile tile_of(i64 t, const ForwardArgs *a) {
  const i64 head_index = t / a->m_blocks;
  Tile x;
  x.first = (int)(t - head_index * a->m_blocks) * 128;
  x.batch = (int)(head_index / a->num_heads);
  x.head = (int)(head_index - (i64)x.batch * a->num_heads);
  x.head_k = x.head / a->group;
  i64 end = a->seqlen_k;
  x.blocks = (int)((end + 111) / 112);
  return x;
}

/* ---- producer ---- */

/* TMA cache policies: queries pass through L2 once (evict first), keys and values are read again by
 * other blocks (evict last). */
DEV void load_q(u32 smem, const TensorMap *map, Tile x, int parity) {
#pragma unroll 1
  for (int w = 0; w < 2; w++) {
    bar_wait(q_empty(smem, w), parity ^ 1);
    bar_expect(q_full(smem, w), 24576);
    for (int c = 0; c < 3; c++) {
      const u32 to = smem + 0 + w * 24576 + c * 8192;
      tma_load(to, map, q_full(smem, w), 64 * c, x.first + 64 * w, x.head, x.batch,
               0x12F0000000000000ull);
    }
  }
}
DEV void load_k(u32 smem, const TensorMap *map, Tile x, int n, Ring *ring) {
  bar_wait(k_empty(smem, ring->slot), ring->parity ^ 1);
  bar_expect(k_full(smem, ring->slot), 43008);
  for (int c = 0; c < 3; c++) {
    const u32 to = smem + 49152 + ring->slot * 43008 + c * 14336;
    tma_load(to, map, k_full(smem, ring->slot), 64 * c, n * 112, x.head_k, x.batch,
             0x14F0000000000000ull);
  }
  ring_advance(ring);
}
DEV void load_v(u32 smem, const TensorMap *map, Tile x, int n, Ring *ring) {
  bar_wait(v_empty(smem, ring->slot), ring->parity ^ 1);
  bar_expect(v_full(smem, ring->slot), 28672);
  for (int c = 0; c < 2; c++) {
    const u32 to = smem + 135168 + ring->slot * 28672 + c * 14336;
    tma_load(to, map, v_full(smem, ring->slot), 64 * c, n * 112, x.head_k, x.batch,
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

/* Issues s (64 x 112) = q k^T. */
DEV void issue_scores(float *s, u64 q, u64 k) {
#pragma unroll
  for (int i = 0; i < 12; i++)
    wgmma_ss_n112_bf16(s, q + i / 4 * 512 + i % 4 * 2,
                       k + i / 4 * 896 + i % 4 * 2, i != 0);
}
/* Issues o (64 x 128) += p v. */
DEV void issue_output(float *o, const u32 *p, u64 v) {
#pragma unroll
  for (int i = 0; i < 7; i++) wgmma_rs_n128_bf16_t(o, p + 4 * i, v + i * 128, 1);
}

/* Rounds probabilities to bf16: accumulator layout and A-operand layout are the same. */
DEV void pack_probabilities(u32 *p, const float *s) {
#pragma unroll
  for (int i = 0; i < 28; i++) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

/* Hides keys past the end in block n.
 * first: this thread's first row. */
DEV void mask_block(float *s, int n, int first, const ForwardArgs *a) {
  const int column = n * 112 + 2 * (thread_index() & 3);
  mask_scores(s, a->seqlen_k - column, a->seqlen_k - column);
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
  for (int k = 0; k < 8; k++) {
    u32 r[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
      r[i] = pack_bf16(o[8 * k + 2 * i] * inverse[i % 2], o[8 * k + 2 * i + 1] * inverse[i % 2]);
    stmatrix_x4(to + k / 4 * 8192 + row * 128 + (((2 * k % 8 + (lane >> 4)) ^ (row & 7)) << 4), r);
  }
  fence_async();
  sync_warp();
  const int first = x.first + 64 * group + warp_row;
  if (lane == 0) {
#pragma unroll
    for (int c = 0; c < 2; c++)
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
  const u32 at_q = smem + 0 + group * 24576, at_o = smem + 192512 + group * 16384;
  const u64 q = descriptor(at_q, 0), k = descriptor(smem + 49152, 0);
  const u64 v = descriptor(smem + 135168, 14336);
  const float c = a->scale_log2, shift = (float)a->shift;
  Ring k_ring = {0, 0}, v_ring = {0, 0};
  int q_parity = 0;
  float s[56], o[64];
  u32 p[28];
  RowState st;
  float factor[2];

  /* Turn-taking: named barrier 1 + group, armed by the group before; group 0 arms itself once. */
  const int my_turn = 1 + group, next_turn = 1 + (group + 1) % 2;
  if (group == 0) named_arrive(my_turn, 256);
#pragma unroll 1
  for (i64 round = 0; tile_number(round) < a->tiles; round++) {
    const Tile x = tile_of(tile_number(round), a);
    const int first = x.first + 64 * group, row = first + warp % 4 * 16 + lane / 4;
    /* Keys below full are seen by every row of the warpgroup. */
    const int full = a->seqlen_k;
    state_clear(&st);
#pragma unroll
    for (int i = 0; i < 64; i++) o[i] = 0.0f;

    if (x.blocks > 0) {
      int n = x.blocks - 1;
      bar_wait(q_full(smem, group), q_parity);
      q_parity ^= 1;
      bar_wait(k_full(smem, k_ring.slot), k_ring.parity);
      wgmma_fence();
      issue_scores(s, q, k + (u64)(k_ring.slot * 2688));
      wgmma_commit();
      wgmma_wait(0);
      touch_f32x56(s);
      if (lane == 0) bar_arrive(k_empty(smem, k_ring.slot));
      ring_advance(&k_ring);
      if ((n + 1) * (i64)112 > full) mask_block(s, n, row, a);
      softmax_step(s, &st, factor, c, shift);
      pack_probabilities(p, s);

#pragma unroll 1
      for (n--; n >= 0; n--) {
        bar_wait(k_full(smem, k_ring.slot), k_ring.parity);
        named_sync(my_turn, 256);
        wgmma_fence();
        issue_scores(s, q, k + (u64)(k_ring.slot * 2688));
        wgmma_commit();
        bar_wait(v_full(smem, v_ring.slot), v_ring.parity);
        wgmma_fence();
        issue_output(o, p, v + (u64)(v_ring.slot * 1792));
        wgmma_commit();
        named_arrive(next_turn, 256);
        wgmma_wait(1);
        touch_f32x56(s);
        if (lane == 0) bar_arrive(k_empty(smem, k_ring.slot));
        ring_advance(&k_ring);
        if ((n + 1) * (i64)112 > full) mask_block(s, n, row, a);
        softmax_step(s, &st, factor, c, shift);
        wgmma_wait(0);
        touch_f32x64(o);
        touch_u32x28(p);
        if (lane == 0) bar_arrive(v_empty(smem, v_ring.slot));
        ring_advance(&v_ring);
#pragma unroll
        for (int i = 0; i < 64; i++) o[i] *= factor[i / 2 % 2];
        pack_probabilities(p, s);
      }

      if (lane == 0) bar_arrive(q_empty(smem, group)); /* its last scores have been waited for */
      bar_wait(v_full(smem, v_ring.slot), v_ring.parity);
      wgmma_fence();
      issue_output(o, p, v + (u64)(v_ring.slot * 1792));
      wgmma_commit();
      wgmma_wait(0);
      touch_f32x64(o);
      touch_u32x28(p);
      if (lane == 0) bar_arrive(v_empty(smem, v_ring.slot));
      ring_advance(&v_ring);
    }

    if (lane == 0) bulk_wait_read(0); /* the tile before has left its place */
    sync_warp();
    store_output(o, &st, at_o, map_o, x, group, a, shift);
  }
  if (lane == 0) bulk_wait(0);
}

KERNEL void kiln_forward(PARAM TensorMap map_q, PARAM TensorMap map_k, PARAM TensorMap map_v,
                         PARAM TensorMap map_o, PARAM ForwardArgs a) {
  const u32 smem = shared_base();
  const int warp = shfl_i32(thread_index() / 32, 0);
  if (thread_index() == 0) {
    for (int i = 0; i < 2; i++) {
      bar_init(k_full(smem, i), 1);
      bar_init(v_full(smem, i), 1);
      bar_init(k_empty(smem, i), 8); /* one arrival a warp */
      bar_init(v_empty(smem, i), 8);
    }
    for (int w = 0; w < 2; w++) {
      bar_init(q_full(smem, w), 1);
      bar_init(q_empty(smem, w), 4);
    }
    fence_bar_init();
  }
  sync_threads();
  if (warp < 4) {
    reg_dec(40);
    if (thread_index() == 0) produce(smem, &map_q, &map_k, &map_v, &a);
  } else {
    reg_inc(232);
    consume(smem, warp, &map_o, &a);
  }
}
