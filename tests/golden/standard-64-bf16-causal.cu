// kiln 0.1.0  do not edit
// kiln generate --arch sm_80 --algorithm standard --dtype bf16 --head-dim 64 --causal --block-m 64 --block-n 64 --num-stages 1 --num-warps 4 --plain
// source id b52b2b0e4fba8e5cc5eb85c79603c8b275835842f0d8fb1558f4c9f2fbe24bac
// family standard
// spec arch=sm_80 pass=forward algorithm=standard dtype=bf16 head_dim=64 head_dim_v=64 mask=causal
// tile block_m=64 block_n=64 num_stages=1 num_warps=4
// shared memory 16384 of 166912 bytes
//    offset     bytes  region
//         0      8192  q
//      8192      8192  k

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
#define DEV static __device__ __forceinline__
#define PARAM const __grid_constant__
#define KERNEL extern "C" __global__ __launch_bounds__(128, 1)
#define NEG_INFINITY __int_as_float(0xff800000)

DEV int thread_index(void) {
  return (int)threadIdx.x;
}
DEV i64 block_index(void) {
  return (i64)blockIdx.y * gridDim.x + blockIdx.x;
}
DEV void sync_threads(void) {
  __syncthreads();
}
DEV float shfl_xor_f32(float x, int lanes) {
  return __shfl_xor_sync(0xffffffffu, x, lanes);
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
DEV void ldmatrix_x4(u32 *r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEV void ldmatrix_x4_trans(u32 *r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEV float ldg_f32(const float *p) {
  return *p;
}
DEV void stg_f32(float *p, float x) {
  *p = x;
}
DEV void stg_u16(u16 *p, u32 x) {
  *p = (u16)x;
}
DEV void stg_u32(void *p, u32 x) {
  *(u32 *)p = x;
}
DEV void cp_async_16(u32 to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
DEV void cp_async_commit(void) {
  asm volatile("cp.async.commit_group;" :: : "memory");
}
#define cp_async_wait(pending) asm volatile("cp.async.wait_group " #pending ";" ::: "memory")
DEV void mma_m16n8k16_bf16(float *d, const u32 *a, const u32 *b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, "
               "%6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
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

/* Standard attention: what FlashAttention replaced, written plainly. Three kernels, and two tables
 * in global memory between them: scores (batch, num_heads, seqlen_q, seqlen_k) in fp32, and
 * probabilities of the same shape in bf16, rows padded to a multiple of 8 keys. Blocks of 128
 * threads; the products work on 64 x 64 tiles, a warp on 16 rows. */

DEV i64 probability_pitch(const ForwardArgs *a) { return ((i64)a->seqlen_k + 7) / 8 * 8; }
DEV float *score_row(const ForwardArgs *a, i64 row) {
  return (float *)a->workspace + row * a->seqlen_k;
}
DEV u16 *probability_row(const ForwardArgs *a, i64 row) {
  const i64 score_bytes = 4 * (i64)a->batch * a->num_heads * a->seqlen_q * a->seqlen_k;
  return (u16 *)((char *)a->workspace + (score_bytes + 255) / 256 * 256) +
         row * probability_pitch(a);
}

/* Copies 64 rows of 64 columns to shared memory; rows at and past end_row and
 * columns at and past end_col become 0. */
DEV void copy_q(u32 to, const char *from, i64 row_bytes, int first, int end_row,
            int end_col) {
  for (int i = thread_index(); i < 512; i += 128) {
    const int row = i / 8, chunk = i % 8;
    const int left = row < end_row - first ? 2 * (end_col - 8 * chunk) : 0;
    const int bytes = left < 0 ? 0 : left < 16 ? left : 16;
    const u32 at = to + (u32)row * 128 + (u32)(chunk ^ (row & 7)) * 16;
    cp_async_16(at, from + (i64)(first + row) * row_bytes + 16 * chunk, bytes);
  }
}
/* Copies 64 rows of 64 columns to shared memory; rows at and past end_row and
 * columns at and past end_col become 0. */
DEV void copy_k(u32 to, const char *from, i64 row_bytes, int first, int end_row,
            int end_col) {
  for (int i = thread_index(); i < 512; i += 128) {
    const int row = i / 8, chunk = i % 8;
    const int left = row < end_row - first ? 2 * (end_col - 8 * chunk) : 0;
    const int bytes = left < 0 ? 0 : left < 16 ? left : 16;
    const u32 at = to + (u32)row * 128 + (u32)(chunk ^ (row & 7)) * 16;
    cp_async_16(at, from + (i64)(first + row) * row_bytes + 16 * chunk, bytes);
  }
}
/* Copies 64 rows of 64 columns to shared memory; rows at and past end_row and
 * columns at and past end_col become 0. */
DEV void copy_p(u32 to, const char *from, i64 row_bytes, int first, int end_row,
            int end_col) {
  for (int i = thread_index(); i < 512; i += 128) {
    const int row = i / 8, chunk = i % 8;
    const int left = row < end_row - first ? 2 * (end_col - 8 * chunk) : 0;
    const int bytes = left < 0 ? 0 : left < 16 ? left : 16;
    const u32 at = to + (u32)row * 128 + (u32)(chunk ^ (row & 7)) * 16;
    cp_async_16(at, from + (i64)(first + row) * row_bytes + 16 * chunk, bytes);
  }
}
/* Copies 64 rows of 64 columns to shared memory; rows at and past end_row and
 * columns at and past end_col become 0. */
DEV void copy_v(u32 to, const char *from, i64 row_bytes, int first, int end_row,
            int end_col) {
  for (int i = thread_index(); i < 512; i += 128) {
    const int row = i / 8, chunk = i % 8;
    const int left = row < end_row - first ? 2 * (end_col - 8 * chunk) : 0;
    const int bytes = left < 0 ? 0 : left < 16 ? left : 16;
    const u32 at = to + (u32)row * 128 + (u32)(chunk ^ (row & 7)) * 16;
    cp_async_16(at, from + (i64)(first + row) * row_bytes + 16 * chunk, bytes);
  }
}

/* The maximum or the sum of x over a warp. */
DEV float warp_reduce(float x, int sum) {
  for (int i = 16; i > 0; i /= 2) {
    const float y = shfl_xor_f32(x, i);
    x = sum ? x + y : fmaxf(x, y);
  }
  return x;
}

/* scores = q k^T, -inf where the mask hides a key. Tiles: key block fastest, then query block, then
 * head, then batch. */
KERNEL void kiln_scores(PARAM ForwardArgs a) {
  const i64 tile = block_index();
  if (tile >= a.tiles) return;
  const int n_blocks = (a.seqlen_k + 63) / 64;
  const i64 line = tile / n_blocks, head_index = line / a.m_blocks;
  const i64 batch = head_index / a.num_heads;
  const int first_k = (int)(tile - line * n_blocks) * 64;
  const int first_q = (int)(line - head_index * a.m_blocks) * 64;
  const int head = (int)(head_index - batch * a.num_heads), head_k = head / a.group;
  const u32 smem = shared_base();
  copy_q(smem + 0,
         (const char *)a.q + 2 * (batch * a.q_stride.batch + head * a.q_stride.head),
         2 * a.q_stride.row, first_q, a.seqlen_q, 64);
  copy_k(smem + 8192,
         (const char *)a.k + 2 * (batch * a.k_stride.batch + head_k * a.k_stride.head),
         2 * a.k_stride.row, first_k, a.seqlen_k, 64);
  cp_async_commit();
  cp_async_wait(0);
  sync_threads();

  const int lane = thread_index() & 31, warp_row = thread_index() / 32 * 16;
  float s[32];
#pragma unroll
  for (int i = 0; i < 32; i++) s[i] = 0.0f;
#pragma unroll
  for (int kk = 0; kk < 4; kk++) {
    const int q_row = warp_row + (lane & 15);
    const int q_chunk = (2 * kk + (lane >> 4)) ^ (q_row & 7);
    u32 x[4];
    ldmatrix_x4(x, smem + 0 + (u32)q_row * 128 + (u32)q_chunk * 16);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int k_row = 16 * j + (lane & 7) + (lane >> 4) * 8;
      const int k_chunk = (2 * kk + (lane >> 3 & 1)) ^ (k_row & 7);
      u32 y[4];
      ldmatrix_x4(y, smem + 8192 + (u32)k_row * 128 + (u32)k_chunk * 16);
      mma_m16n8k16_bf16(s + 8 * j, x, y);
      mma_m16n8k16_bf16(s + 8 * j + 4, x, y + 2);
    }
  }
#pragma unroll
  for (int i = 0; i < 32; i++) {
    const int row = first_q + warp_row + lane / 4 + i / 2 % 2 * 8;
    const int key = first_k + i / 4 * 8 + 2 * (lane & 3) + i % 2;
    const int hidden = key > (i64)row + a.seqlen_k - a.seqlen_q;
    if (row < a.seqlen_q && key < a.seqlen_k)
      stg_f32(score_row(&a, head_index * a.seqlen_q + row) + key, hidden ? NEG_INFINITY : s[i]);
  }
}

/* probabilities = softmax of a row of scores; a warp each row. Tiles: four rows, then head, then
 * batch. */
KERNEL void kiln_softmax(PARAM ForwardArgs a) {
  const i64 tile = block_index();
  if (tile >= a.tiles) return;
  const int fours = (int)(((i64)a.seqlen_q + 3) / 4), lane = thread_index() & 31;
  const i64 head_index = tile / fours;
  const int q_row = (int)(tile - head_index * fours) * 4 + thread_index() / 32;
  if (q_row >= a.seqlen_q) return;
  const i64 row = head_index * a.seqlen_q + q_row;
  const float *s = score_row(&a, row);
  u16 *p = probability_row(&a, row);
  float m = NEG_INFINITY, l = 0.0f;
  for (int i = lane; i < a.seqlen_k; i += 32) m = fmaxf(m, ldg_f32(s + i));
  m = warp_reduce(m, 0);
  const float ref = m == NEG_INFINITY ? 0.0f : m;
  for (int i = lane; i < a.seqlen_k; i += 32)
    l += ex2((ldg_f32(s + i) - ref) * a.scale_log2);
  l = warp_reduce(l, 1);
  const int sees_keys = a.seqlen_k > 0 && q_row + (i64)a.seqlen_k >= a.seqlen_q;
  const float inverse = l == 0.0f && !sees_keys ? 0.0f : 1.0f / l;
  for (i64 i = lane; i < probability_pitch(&a); i += 32) {
    const float x = i < a.seqlen_k ? ex2((ldg_f32(s + i) - ref) * a.scale_log2) * inverse : 0.0f;
    stg_u16(p + i, pack_bf16(x, 0.0f));
  }
  if (a.lse && lane == 0)
    stg_f32(a.lse + row, l == 0.0f ? NEG_INFINITY : m * a.softmax_scale + lg2(l) * 0.693147181f);
}

/* o = probabilities v. Tiles: query block fastest, then head, then batch. */
KERNEL void kiln_output(PARAM ForwardArgs a) {
  const i64 tile = block_index();
  if (tile >= a.tiles) return;
  const i64 head_index = tile / a.m_blocks, batch = head_index / a.num_heads;
  const int first = (int)(tile - head_index * a.m_blocks) * 64;
  const int head = (int)(head_index - batch * a.num_heads), head_k = head / a.group;
  const char *v = (const char *)a.v + 2 * (batch * a.v_stride.batch + head_k * a.v_stride.head);
  const int lane = thread_index() & 31, warp_row = thread_index() / 32 * 16;
  const u32 smem = shared_base();
  float o[32];
#pragma unroll
  for (int i = 0; i < 32; i++) o[i] = 0.0f;
#pragma unroll 1
  for (int key = 0; key < a.seqlen_k; key += 64) {
    sync_threads();
    copy_p(smem + 0, (const char *)(probability_row(&a, head_index * a.seqlen_q) + key),
           2 * probability_pitch(&a), first, a.seqlen_q, (int)probability_pitch(&a) - key);
    copy_v(smem + 8192, v, 2 * a.v_stride.row, key, a.seqlen_k, 64);
    cp_async_commit();
    cp_async_wait(0);
    sync_threads();
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
      const int p_row = warp_row + (lane & 15);
      const int p_chunk = (2 * kk + (lane >> 4)) ^ (p_row & 7);
      u32 x[4];
      ldmatrix_x4(x, smem + 0 + (u32)p_row * 128 + (u32)p_chunk * 16);
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int v_row = 16 * kk + (lane & 15);
        const int v_chunk = (2 * j + (lane >> 4)) ^ (v_row & 7);
        u32 y[4];
        ldmatrix_x4_trans(y, smem + 8192 + (u32)v_row * 128 + (u32)v_chunk * 16);
        mma_m16n8k16_bf16(o + 8 * j, x, y);
        mma_m16n8k16_bf16(o + 8 * j + 4, x, y + 2);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    const int row = first + warp_row + lane / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + 2 * (lane & 3);
    char *to = (char *)a.o + 2 * (batch * a.o_stride.batch + (i64)row * a.o_stride.row +
                                  head * a.o_stride.head + column);
    if (row < a.seqlen_q && column < 64)
      stg_u32(to, pack_bf16(o[i], o[i + 1]));
  }
}
