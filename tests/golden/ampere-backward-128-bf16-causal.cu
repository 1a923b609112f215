// kiln 0.1.0  do not edit
// kiln generate --arch sm_90 --pass backward --dtype bf16 --head-dim 128 --causal --block-m 64 --block-n 128 --num-stages 2 --num-warps 8 --plain
// source id bbc3d0f58c791aeaf3d28b46392e2f1dca37a68e644d424dbefc9d55760b1e57
// family ampere_backward
// spec arch=sm_90 pass=backward algorithm=flash dtype=bf16 head_dim=128 head_dim_v=128 mask=causal
// tile block_m=64 block_n=128 num_stages=2 num_warps=8
// shared memory 164864 of 232448 bytes
//    offset     bytes  region
//         0     32768  k
//     32768     32768  v
//     65536     66560  ring
//    132096     16384  p
//    148480     16384  ds

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
#define DEV static __device__ __forceinline__
#define PARAM const __grid_constant__
#define KERNEL extern "C" __global__ __launch_bounds__(256, 1)
#define NEG_INFINITY __int_as_float(0xff800000)

DEV int thread_index(void) {
  return (int)threadIdx.x;
}
DEV i64 block_index(void) {
  return (i64)blockIdx.y * gridDim.x + blockIdx.x;
}
DEV i64 block_index_again(void) {
  u32 x, y, w;
  asm volatile("mov.u32 %0, %%ctaid.x;\n"
               "mov.u32 %1, %%ctaid.y;\n"
               "mov.u32 %2, %%nctaid.x;"
               : "=r"(x), "=r"(y), "=r"(w));
  return (i64)y * w + x;
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
DEV float shfl_xor_f32(float x, int lanes) {
  return __shfl_xor_sync(0xffffffffu, x, lanes);
}
DEV float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEV u32 pack_bf16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
DEV u32 pack_fp16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
DEV float unpack_fp16(u32 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((u16)x));
  return y;
}
DEV float unpack_bf16(u32 x) {
  return __uint_as_float(x << 16);
}
DEV float as_float(u32 x) {
  return __uint_as_float(x);
}
DEV u32 shared_base(void) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  return (u32)__cvta_generic_to_shared(shared_bytes);
}
DEV float lds_f32(u32 at) {
  float x;
  asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
  return x;
}
DEV void lds_u32x4(u32 *r, u32 at) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEV void ldmatrix_x4(u32 *r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEV void ldmatrix_x4_trans(u32 *r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEV void stmatrix_x4(u32 at, const u32 *r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(at), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
DEV float ldg_f32(const float *p) {
  return *p;
}
DEV void stg_f32(float *p, float x) {
  *p = x;
}
DEV void ldg_u32x4(u32 *r, const void *p) {
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(p) : "memory");
}
DEV void stg_u32x4(void *p, const u32 *r) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :: "l"(p), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
DEV void red_add_f32x4(float *p, const float *x) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :: "l"(p), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
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

/* Parameter layout backward.1: strides in elements; lse in natural logarithm, (batch, num_heads,
 * seqlen_q). */
typedef struct {
  i64 batch, row, head;
} Stride;
typedef struct {
  const void *q, *k, *v, *o, *dout;
  const float *lse;
  void *dq, *dk, *dv;
  void *workspace;
  i64 workspace_at[4]; /* where its items begin, in the launch record's order: bytes */
  Stride q_stride, k_stride, v_stride, o_stride, do_stride, dq_stride, dk_stride, dv_stride;
  i64 tiles; /* work items of the entry's grid */
  i32 batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  i32 group;           /* query heads per key head */
  i32 m_blocks;        /* ceil(seqlen_q / block_m) */
  i32 n_blocks;        /* ceil(seqlen_k / block_n) */
  float softmax_scale; /* multiplies q.k */
  float scale_log2;    /* softmax_scale * log2(e), but 2^-100 at least */
} BackwardArgs;

/* FlashAttention backward for mma.sync, three kernels:
 *   kiln_preprocess  of every query row: what its exponentials and gradients are shifted by;
 *                    clears dq in fp32
 *   kiln_backward    a block of 256 threads has 128 keys of one key head and walks
 *                    over the blocks of 64 query rows that see them, of all query heads of
 *                    the group: dk and dv stay in registers, dq is added to fp32 numbers in global
 *                    memory
 *   kiln_convert     dq = softmax_scale * those numbers, rounded
 *
 * With p = exp(scale s - lse), dp = dout v^T and delta = rowsum(dout o):
 *   ds = p (dp - delta), dv = p^T dout, dk = scale ds^T q, dq = scale ds k
 * p is 2^12 times as large, and so are ds and the sums, until these are rounded: thus small p
 * keep their bits in fp16.
 *
 * The first half of the warps computes p and dv, the second one ds and dk, and dq falls to
 * the second half.
 * While one half has exponentials to do, the other has products. p and ds change hands through
 * shared memory. The warps of a half share a product of 16 x 16 tiles as a grid: tile (i, j)
 * belongs to the warp in row i and column j, both counted around.
 *
 * dq in fp32 lies in the order of the accumulators, thread beside thread, a block of 64
 * rows behind the other: blocks of one head in a row, then heads, then batches. */

/* The index of a block of query rows in that order */
DEV i64 block_of(i64 batch, int head, int block, const BackwardArgs *a) {
  return (batch * a->num_heads + head) * a->m_blocks + block;
}
DEV char *item(int i, const BackwardArgs *a) { return (char *)a->workspace + a->workspace_at[i]; }
/* 0, but the compiler cannot know it: what follows from it is computed where it is used, instead of
 * filling registers from before the loop. */
DEV u32 fresh_zero(void) { return (u32)(block_index_again() >> 62); }
/* This thread among its half of the block */
DEV int member(void) { return thread_index() % 128; }
DEV int fresh_member(void) { return (thread_index() + (int)fresh_zero()) % 128; }

/* ---- what a warp computes ----
 *
 * Included by ampere.tmpl.cu. Its place in the grid of each product:
 *   scores: 2 x 2 warps, each 2 x 2 tiles
 *   dk: 2 x 2 warps, each 4 x 4 tiles
 *   dv: 2 x 2 warps, each 4 x 4 tiles
 *   dq: 2 x 2 warps, each 2 x 2 tiles
 */

DEV u32 at_qk(int row, int chunk) {
  return (u32)row * 256 + (u32)(chunk ^ (row & 7)) * 16;
}
DEV u32 at_v(int row, int chunk) {
  return (u32)row * 256 + (u32)(chunk ^ (row & 7)) * 16;
}
DEV u32 at_p(int row, int chunk) {
  return (u32)row * 256 + (u32)(chunk ^ (row & 7)) * 16;
}

/* This lane's addresses for ldmatrix: rows 0 to 7, rows 8 to 15, then columns 8 to 15 of both; or
 * columns before rows. */
DEV int row_a(void) { return thread_index() & 15; }
DEV int chunk_a(void) { return thread_index() >> 4 & 1; }
DEV int row_b(void) { return (thread_index() & 7) + (thread_index() >> 4 & 1) * 8; }
DEV int chunk_b(void) { return thread_index() >> 3 & 1; }

/* The warp's place in the grids */
DEV int s_row(void) { return member() / 32 % 2; }
DEV int s_col(void) { return member() / 64; }
DEV int dk_row(void) { return member() / 32 % 2; }
DEV int dk_col(void) { return member() / 64; }
DEV int dv_row(void) { return member() / 32 % 2; }
DEV int dv_col(void) { return member() / 64; }
DEV int dq_row(void) { return member() / 32 % 2; }
DEV int dq_col(void) { return member() / 64; }

/* Operands of scores or their gradients; where p or ds go, and where p is read in the order of the
 * accumulators */
typedef struct {
  u32 a, b, p, p_read;
} LanesS;
DEV LanesS lanes_s(u32 a, u32 b, u32 p) {
  LanesS l;
  l.a = a + at_qk(16 * s_row() + row_a(), chunk_a());
  l.b = b + at_qk(16 * s_col() + row_b(), chunk_b());
  l.p_read = p + at_p(16 * s_row() + row_a(), 2 * s_col() + chunk_a());
  l.p = l.p_read;
  return l;
}
DEV LanesS lanes_dp(u32 a, u32 b, u32 p) {
  LanesS l;
  l.a = a + at_v(16 * s_row() + row_a(), chunk_a());
  l.b = b + at_v(16 * s_col() + row_b(), chunk_b());
  l.p_read = p + at_p(16 * s_row() + row_a(), 2 * s_col() + chunk_a());
  l.p = l.p_read;
  return l;
}

/* Operands of dv, dk and dq */
typedef struct {
  u32 a, b;
} LanesAdd;
DEV LanesAdd lanes_dv(u32 a, u32 b) {
  LanesAdd l;
  l.a = a + at_p(row_b(), 2 * dv_row() + chunk_b());
  l.b = b + at_v(row_a(), 2 * dv_col() + chunk_a());
  return l;
}
DEV LanesAdd lanes_dk(u32 a, u32 b) {
  LanesAdd l;
  l.a = a + at_p(row_b(), 2 * dk_row() + chunk_b());
  l.b = b + at_qk(row_a(), 2 * dk_col() + chunk_a());
  return l;
}
DEV LanesAdd lanes_dq(u32 a, u32 b) {
  LanesAdd l;
  l.a = a + at_p(16 * dq_row() + row_a(), chunk_a());
  l.b = b + at_qk(row_a(), 2 * dq_col() + chunk_a());
  return l;
}

/* ---- products ---- */

/* x += q k^T: the warp's rows and keys of a part */
DEV void scores(float *x, u32 a_lane, u32 b_lane, int part) {
#pragma unroll
  for (int kk = 0; kk < 8; kk++) {
    u32 a[8];
#pragma unroll
    for (int t = 0; t < 2; t++)
      ldmatrix_x4(a + 4 * t, ((a_lane) ^ (16 * (2 * kk) & 112)) + (16 * (2 * kk) - (16 * (2 * kk) & 112)) + 8192 * t);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      u32 b[4];
      ldmatrix_x4(b, ((b_lane) ^ (16 * (2 * kk) & 112)) + (16 * (2 * kk) - (16 * (2 * kk) & 112)) + 8192 * (2 * part + j));
#pragma unroll
      for (int t = 0; t < 2; t++) {
        float *y = x + 8 * (t * 2 + j);
        mma_m16n8k16_bf16(y, a + 4 * t, b);
        mma_m16n8k16_bf16(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}
/* x += dout v^T: the warp's rows and keys of a part */
DEV void gradients(float *x, u32 a_lane, u32 b_lane, int part) {
#pragma unroll
  for (int kk = 0; kk < 8; kk++) {
    u32 a[8];
#pragma unroll
    for (int t = 0; t < 2; t++)
      ldmatrix_x4(a + 4 * t, ((a_lane) ^ (16 * (2 * kk) & 112)) + (16 * (2 * kk) - (16 * (2 * kk) & 112)) + 8192 * t);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      u32 b[4];
      ldmatrix_x4(b, ((b_lane) ^ (16 * (2 * kk) & 112)) + (16 * (2 * kk) - (16 * (2 * kk) & 112)) + 8192 * (2 * part + j));
#pragma unroll
      for (int t = 0; t < 2; t++) {
        float *y = x + 8 * (t * 2 + j);
        mma_m16n8k16_bf16(y, a + 4 * t, b);
        mma_m16n8k16_bf16(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}

/* x += p^T dout: the warp's rows and columns */
DEV void add_dv(float *x, u32 a_lane, u32 b_lane) {
#pragma unroll
  for (int kk = 0; kk < 4; kk++) {
    u32 a[16];
#pragma unroll
    for (int t = 0; t < 4; t++)
      ldmatrix_x4_trans(a + 4 * t, ((a_lane) ^ (16 * (4 * t) & 112)) + (16 * (4 * t) - (16 * (4 * t) & 112)) + 4096 * kk);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      u32 b[4];
      ldmatrix_x4_trans(b, ((b_lane) ^ (16 * (4 * j) & 112)) + (16 * (4 * j) - (16 * (4 * j) & 112)) + 4096 * kk);
#pragma unroll
      for (int t = 0; t < 4; t++) {
        float *y = x + 8 * (t * 4 + j);
        mma_m16n8k16_bf16(y, a + 4 * t, b);
        mma_m16n8k16_bf16(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}
/* x += ds^T q: the warp's rows and columns */
DEV void add_dk(float *x, u32 a_lane, u32 b_lane) {
#pragma unroll
  for (int kk = 0; kk < 4; kk++) {
    u32 a[16];
#pragma unroll
    for (int t = 0; t < 4; t++)
      ldmatrix_x4_trans(a + 4 * t, ((a_lane) ^ (16 * (4 * t) & 112)) + (16 * (4 * t) - (16 * (4 * t) & 112)) + 4096 * kk);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      u32 b[4];
      ldmatrix_x4_trans(b, ((b_lane) ^ (16 * (4 * j) & 112)) + (16 * (4 * j) - (16 * (4 * j) & 112)) + 4096 * kk);
#pragma unroll
      for (int t = 0; t < 4; t++) {
        float *y = x + 8 * (t * 4 + j);
        mma_m16n8k16_bf16(y, a + 4 * t, b);
        mma_m16n8k16_bf16(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}
/* x += ds k: the warp's rows and columns of a part */
DEV void add_dq(float *x, u32 a_lane, u32 b_lane, int part) {
#pragma unroll
  for (int kk = 0; kk < 8; kk++) {
    u32 a[8];
#pragma unroll
    for (int t = 0; t < 2; t++)
      ldmatrix_x4(a + 4 * t, ((a_lane) ^ (16 * (2 * kk) & 112)) + (16 * (2 * kk) - (16 * (2 * kk) & 112)) + 8192 * t);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      u32 b[4];
      ldmatrix_x4_trans(b, ((b_lane) ^ (16 * (4 * (2 * part + j)) & 112)) + (16 * (4 * (2 * part + j)) - (16 * (4 * (2 * part + j)) & 112)) + 4096 * kk);
#pragma unroll
      for (int t = 0; t < 2; t++) {
        float *y = x + 8 * (t * 2 + j);
        mma_m16n8k16_bf16(y, a + 4 * t, b);
        mma_m16n8k16_bf16(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}

/* ---- scores ---- */

/* One number of each of the warp's rows: those of this thread */
DEV void load_rows(float *x, u32 from) {
  const u32 at = from + 4 * (16 * s_row() + (thread_index() & 31) / 4);
#pragma unroll
  for (int i = 0; i < 4; i++)
    x[i] = lds_f32(at + 128 * (i / 2) + 32 * (i % 2));
}

/* Puts `with` where the row does not see the key. */
DEV void hide(float *x, int part, float with, int first_key, int block, const BackwardArgs *a) {
  const int lane = (thread_index() + (int)fresh_zero()) & 31;
  const int column = first_key + 16 * s_col() + 2 * (lane & 3);
  const i64 row = (i64)block * 64 + 16 * s_row() + lane / 4;
  const i64 sees = row + 1 + a->seqlen_k - a->seqlen_q; /* keys that the first row sees */
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const i64 own = sees + 32 * (i / 2) + 8 * (i % 2);
    const int end = (own < a->seqlen_k ? (int)own : a->seqlen_k) - column;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      float *y = x + 4 * (4 * (i / 2) + j) + 2 * (i % 2);
      const int key = 32 * (2 * part + j / 2) + 8 * (j % 2);
      y[0] = key < end ? y[0] : with;
      y[1] = key + 1 < end ? y[1] : with;
    }
  }
}

/* x *= p, which came 2^12 times as large */
DEV void times_p(float *x, u32 lane, int part) {
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float *y = x + 8 * (t * 2 + j);
      u32 r[4];
      ldmatrix_x4(r, ((lane) ^ (16 * (4 * (2 * part + j)) & 112)) + (16 * (4 * (2 * part + j)) - (16 * (4 * (2 * part + j)) & 112)) + 8192 * t);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        y[2 * i] *= unpack_fp16(r[i]);
        y[2 * i + 1] *= unpack_fp16(r[i] >> 16);
      }
    }
  }
  sync_warp(); /* ds takes its place */
}

/* ---- results ---- */

/* Lays the warp's part of p or ds, rounded to bf16, into shared memory. */
DEV void lay_s(u32 lane_to, const float *x, int part) {
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const float *y = x + 8 * (t * 2 + j);
      u32 r[4];
#pragma unroll
      for (int i = 0; i < 4; i++) r[i] = pack_bf16(y[2 * i], y[2 * i + 1]);
      stmatrix_x4(((lane_to) ^ (16 * (4 * (2 * part + j)) & 112)) + (16 * (4 * (2 * part + j)) - (16 * (4 * (2 * part + j)) & 112)) + 8192 * t, r);
    }
  }
}
/* Lays the warp's part of p, rounded to fp16, into shared memory. */
DEV void lay_p(u32 lane_to, const float *x, int part) {
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const float *y = x + 8 * (t * 2 + j);
      u32 r[4];
#pragma unroll
      for (int i = 0; i < 4; i++) r[i] = pack_fp16(y[2 * i], y[2 * i + 1]);
      stmatrix_x4(((lane_to) ^ (16 * (4 * (2 * part + j)) & 112)) + (16 * (4 * (2 * part + j)) - (16 * (4 * (2 * part + j)) & 112)) + 8192 * t, r);
    }
  }
}
/* Lays the warp's part of dk, rounded to bf16, into shared memory. */
DEV void lay_dk(u32 to, const float *x) {
  const u32 lane_to = to + at_qk(16 * dk_row() + row_a(), 2 * dk_col() + chunk_a());
#pragma unroll
  for (int t = 0; t < 4; t++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float *y = x + 8 * (t * 4 + j);
      u32 r[4];
#pragma unroll
      for (int i = 0; i < 4; i++) r[i] = pack_bf16(y[2 * i], y[2 * i + 1]);
      stmatrix_x4(((lane_to) ^ (16 * (4 * j) & 112)) + (16 * (4 * j) - (16 * (4 * j) & 112)) + 8192 * t, r);
    }
  }
}
/* Lays the warp's part of dv, rounded to bf16, into shared memory. */
DEV void lay_dv(u32 to, const float *x) {
  const u32 lane_to = to + at_v(16 * dv_row() + row_a(), 2 * dv_col() + chunk_a());
#pragma unroll
  for (int t = 0; t < 4; t++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float *y = x + 8 * (t * 4 + j);
      u32 r[4];
#pragma unroll
      for (int i = 0; i < 4; i++) r[i] = pack_bf16(y[2 * i], y[2 * i + 1]);
      stmatrix_x4(((lane_to) ^ (16 * (4 * j) & 112)) + (16 * (4 * j) - (16 * (4 * j) & 112)) + 8192 * t, r);
    }
  }
}
/* Lays the warp's part of dq, rounded to bf16, into shared memory. */
DEV void lay_dq(u32 to, const float *x, int part) {
  const u32 lane_to = to + at_qk(16 * dq_row() + row_a(), 2 * dq_col() + chunk_a());
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const float *y = x + 8 * (t * 2 + j);
      u32 r[4];
#pragma unroll
      for (int i = 0; i < 4; i++) r[i] = pack_bf16(y[2 * i], y[2 * i + 1]);
      stmatrix_x4(((lane_to) ^ (16 * (4 * (2 * part + j)) & 112)) + (16 * (4 * (2 * part + j)) - (16 * (4 * (2 * part + j)) & 112)) + 8192 * t, r);
    }
  }
}

/* Adds a part of the warp's numbers to a block of dq in fp32. */
DEV void put_dq(float *to, const float *x, int part) {
  to += part * 4096 + 4 * fresh_member();
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int i = 8 * (t * 2 + j);
      red_add_f32x4(to + 128 * i, x + i);
      red_add_f32x4(to + 128 * (i + 4), x + i + 4);
    }
  }
}
/* A part of the warp's numbers of a block of dq in fp32 */
DEV void get_dq(float *x, const float *from, int part) {
  from += part * 4096 + 4 * fresh_member();
#pragma unroll
  for (int i = 0; i < 32; i += 4) {
    u32 r[4];
    ldg_u32x4(r, from + 128 * i);
#pragma unroll
    for (int j = 0; j < 4; j++) x[i + j] = as_float(r[j]);
  }
}
/* ---- between global and shared memory ----
 *
 * Included by ampere.tmpl.cu. Threads beside each other take chunks of 16 bytes beside each other.
 */

/* Starts the copy of 64 rows of q. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
 */
DEV void copy_q(u32 to, const char *from, i64 row_bytes, int rows) {
  const int me = fresh_member(), row0 = me / 8, chunk0 = me % 8;
  const char *line = from + row0 * row_bytes + 16 * chunk0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 256;
#pragma unroll
    for (int c = 0; c < 16; c += 8) {
      const int chunk = c + chunk0;
      const int bytes = row < rows ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += 16 * row_bytes;
  }
}
/* Starts the copy of 64 rows of dout. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
 */
DEV void copy_dout(u32 to, const char *from, i64 row_bytes, int rows) {
  const int me = fresh_member(), row0 = me / 8, chunk0 = me % 8;
  const char *line = from + row0 * row_bytes + 16 * chunk0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 256;
#pragma unroll
    for (int c = 0; c < 16; c += 8) {
      const int chunk = c + chunk0;
      const int bytes = row < rows ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += 16 * row_bytes;
  }
}
/* Starts the copy of 128 rows of k. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
 */
DEV void copy_k(u32 to, const char *from, i64 row_bytes, int rows) {
  const int me = fresh_member(), row0 = me / 8, chunk0 = me % 8;
  const char *line = from + row0 * row_bytes + 16 * chunk0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 256;
#pragma unroll
    for (int c = 0; c < 16; c += 8) {
      const int chunk = c + chunk0;
      const int bytes = row < rows ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += 16 * row_bytes;
  }
}
/* Starts the copy of 128 rows of v. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
 */
DEV void copy_v(u32 to, const char *from, i64 row_bytes, int rows) {
  const int me = fresh_member(), row0 = me / 8, chunk0 = me % 8;
  const char *line = from + row0 * row_bytes + 16 * chunk0;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 256;
#pragma unroll
    for (int c = 0; c < 16; c += 8) {
      const int chunk = c + chunk0;
      const int bytes = row < rows ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += 16 * row_bytes;
  }
}

/* Stores the first `rows` of 128 rows of dk. */
DEV void store_dk(u32 from, char *to, i64 row_bytes, int rows) {
  const int row0 = member() / 8, chunk0 = member() % 8;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int row = row0 + 16 * i;
    if (row >= rows) break;
#pragma unroll
    for (int c = 0; c < 16; c += 8) {
      const int chunk = c + chunk0;
      u32 x[4];
      lds_u32x4(x, from + (u32)row * 256 +
                       (u32)(chunk ^ (row & 7)) * 16);
      stg_u32x4(to + row * row_bytes + 16 * chunk, x);
    }
  }
}
/* Stores the first `rows` of 128 rows of dv. */
DEV void store_dv(u32 from, char *to, i64 row_bytes, int rows) {
  const int row0 = member() / 8, chunk0 = member() % 8;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int row = row0 + 16 * i;
    if (row >= rows) break;
#pragma unroll
    for (int c = 0; c < 16; c += 8) {
      const int chunk = c + chunk0;
      u32 x[4];
      lds_u32x4(x, from + (u32)row * 256 +
                       (u32)(chunk ^ (row & 7)) * 16);
      stg_u32x4(to + row * row_bytes + 16 * chunk, x);
    }
  }
}
/* Stores the first `rows` of 64 rows of dq. */
DEV void store_dq(u32 from, char *to, i64 row_bytes, int rows) {
  const int row0 = thread_index() / 8, chunk0 = thread_index() % 8;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = row0 + 16 * i;
    if (row >= rows) break;
#pragma unroll
    for (int c = 0; c < 16; c += 8) {
      const int chunk = c + chunk0;
      u32 x[4];
      lds_u32x4(x, from + (u32)row * 256 +
                       (u32)(chunk ^ (row & 7)) * 16);
      stg_u32x4(to + row * row_bytes + 16 * chunk, x);
    }
  }
}
/* ---- before: statistics of the rows ---- */

/* Sums the products of four pairs of bf16 numbers. */
DEV float dot_8(const u32 *x, const u32 *y) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    sum = fmaf(unpack_bf16(x[i]), unpack_bf16(y[i]), sum);
    sum = fmaf(unpack_bf16(x[i] >> 16), unpack_bf16(y[i] >> 16), sum);
  }
  return sum;
}

/* Of a block of query rows: -lse log2(e), then -delta, in fp32. Rows past the end, and those that
 * see no key, get -inf: all of their exponentials are 0.
 * The others get 12 more, which makes p 2^12 times as large.
 * Clears the block's dq.
 * The loads of 64 rows are started before the first is used. */
KERNEL void kiln_preprocess(PARAM BackwardArgs a) {
  if (block_index() >= a.tiles) return;
  const i64 block = block_index(), head_index = block / a.m_blocks;
  const i64 batch = head_index / a.num_heads, head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * 64;
  const int end = a.seqlen_q - first < 64 ? a.seqlen_q - first : 64;
  const u32 zeros[4] = { 0, 0, 0, 0 };
  char *dq = item(0, &a) + block * 32768;
#pragma unroll 4
  for (int i = thread_index(); i < 2048; i += 256)
    stg_u32x4(dq + 16 * i, zeros);
  const int part = thread_index() % 8; /* of a row */
  const char *o = (const char *)a.o + 16 * part +
                  2 * (batch * a.o_stride.batch + head * a.o_stride.head + first * a.o_stride.row);
  const char *dout =
      (const char *)a.dout + 16 * part +
      2 * (batch * a.do_stride.batch + head * a.do_stride.head + first * a.do_stride.row);
  const float *lse = a.lse + head_index * a.seqlen_q + first;
  float *rows = (float *)item(1, &a) + block * 128;
#pragma unroll 1
  for (int begin = 0; begin < 64; begin += 64) {
    const int row0 = begin + thread_index() / 8;
    u32 x[4][4], y[4][4];
    float shift[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int row = row0 + 32 * i;
      shift[i] = part == 0 && row < end ? ldg_f32(lse + row) : NEG_INFINITY;
#pragma unroll
      for (int c = 0; c < 2; c++) {
        u32 *u = x[2 * i + c], *w = y[2 * i + c];
#pragma unroll
        for (int j = 0; j < 4; j++) u[j] = w[j] = 0;
        if (row >= end) continue;
        ldg_u32x4(u, o + 2 * row * a.o_stride.row + 128 * c);
        ldg_u32x4(w, dout + 2 * row * a.do_stride.row + 128 * c);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int row = row0 + 32 * i;
      float delta = 0.0f;
#pragma unroll
      for (int c = 0; c < 2; c++)
        delta += dot_8(x[2 * i + c], y[2 * i + c]);
#pragma unroll
      for (int lanes = 1; lanes < 8; lanes *= 2) delta += shfl_xor_f32(delta, lanes);
      if (part != 0) continue;
      if (shift[i] != NEG_INFINITY) shift[i] = fmaf(-1.44269504f, shift[i], 12.0f);
      stg_f32(rows + row, shift[i]);
      stg_f32(rows + 64 + row, -delta);
    }
  }
}

/* ---- keys and queries ---- */

/* Tiles: key block fastest, then key head, then batch. So keys that more queries see come first. */
typedef struct {
  i64 batch;
  int head, block, first; /* key head, key block and its first key */
} Place;
DEV Place place_of(i64 tile, const BackwardArgs *a) {
  Place x;
  const i64 head_index = tile / a->n_blocks;
  x.block = (int)(tile - head_index * a->n_blocks);
  x.batch = head_index / a->num_heads_k;
  x.head = (int)(head_index - x.batch * a->num_heads_k);
  x.first = x.block * 128;
  return x;
}

/* The first block of query rows with one that sees key `first`, or a->m_blocks. */
DEV int first_block(int first, const BackwardArgs *a) {
  const i64 row = (i64)first - a->seqlen_k + a->seqlen_q; /* row i sees keys up to i + sk - sq */
  return row <= 0 ? 0 : row >= a->seqlen_q ? a->m_blocks : (int)(row / 64);
}

/* Whether some key of the block is hidden from some row of the block of query rows. */
DEV int is_masked(int first_key, int block, const BackwardArgs *a) {
  const i64 sees = (i64)block * 64 + a->seqlen_k - a->seqlen_q;
  if (sees < first_key + 127) return 1;
  return a->seqlen_k - first_key < 128;
}

/* ---- the walk over queries ---- */

/* A block of query rows of one query head: blocks from the last to the first that sees the keys,
 * head by head. */
typedef struct {
  int head, block;
} Step;
DEV Step next_of(Step s, int first, const BackwardArgs *a) {
  const int is_last = s.block == first;
  const Step next = { s.head + is_last, is_last ? a->m_blocks - 1 : s.block - 1 };
  return next;
}

/* Starts the copies of a block's q and of the statistic that goes with it. */
DEV void feed_q(u32 to, Step s, i64 own_batch, const BackwardArgs *a) {
  const i64 first = (i64)s.block * 64, batch = own_batch + fresh_zero();
  const char *from = (const char *)a->q +
                     2 * (batch * a->q_stride.batch + s.head * a->q_stride.head +
                          first * a->q_stride.row);
  copy_q(to + 0, from, 2 * a->q_stride.row, (int)(a->seqlen_q - first));
  const char *rows = item(1, a) + block_of(batch, s.head, s.block, a) * 512 + 0;
  const int at = 16 * fresh_member(); /* a half has more threads than there are 16 bytes */
  if (at < 256) cp_async_16(to + 32768 + at, rows + at, 16);
}
/* Starts the copies of a block's dout and of the statistic that goes with it. */
DEV void feed_dout(u32 to, Step s, i64 own_batch, const BackwardArgs *a) {
  const i64 first = (i64)s.block * 64, batch = own_batch + fresh_zero();
  const char *from = (const char *)a->dout +
                     2 * (batch * a->do_stride.batch + s.head * a->do_stride.head +
                          first * a->do_stride.row);
  copy_dout(to + 16384, from, 2 * a->do_stride.row, (int)(a->seqlen_q - first));
  const char *rows = item(1, a) + block_of(batch, s.head, s.block, a) * 512 + 256;
  const int at = 16 * fresh_member(); /* a half has more threads than there are 16 bytes */
  if (at < 256) cp_async_16(to + 33024 + at, rows + at, 16);
}

/* ---- the two halves of a block ---- */

/* The halves meet: each goes on when the other is there too. Two barriers, since tools that check
 * synchronisation want a barrier of all threads to be one instruction; one behind the other, or a
 * half might arrive again before the other has seen that it had arrived. */
DEV void meet_second(void) {
  named_sync(1, 256);
  named_arrive(2, 256);
}
DEV void meet_first(void) {
  named_arrive(1, 256);
  named_sync(2, 256);
}
/* Computes a block of dq from ds and adds it. */
DEV void give_dq(LanesAdd l, Place x, Step s, const BackwardArgs *a) {
  const i64 block = block_of(x.batch + fresh_zero(), s.head, s.block, a);
#pragma unroll 1
  for (int part = 0; part < 2; part++) {
    float dq[32];
#pragma unroll
    for (int i = 0; i < 32; i++) dq[i] = 0.0f;
    add_dq(dq, l.a, l.b, part);
    put_dq((float *)item(0, a) + block * 8192, dq, part);
  }
}

/* The first half of the warps: scores and p, then dv. */
DEV void first_half(const BackwardArgs *a) {
  const Place x = place_of(block_index_again(), a);
  const int first = first_block(x.first, a);
  int left = (a->m_blocks - first) * a->group;
  const u32 smem = shared_base(), ring = smem + 65536;
  Step step = { x.head * a->group, a->m_blocks - 1 };
  copy_k(smem + 0,
         (const char *)a->k + 2 * (x.batch * a->k_stride.batch + x.head * a->k_stride.head +
                                   x.first * a->k_stride.row),
         2 * a->k_stride.row, a->seqlen_k - x.first);
  if (left > 0) feed_q(ring, step, x.batch, a);
  cp_async_commit();

  float dv[128];
#pragma unroll
  for (int i = 0; i < 128; i++) dv[i] = 0.0f;
  u32 slot = 0;
#pragma unroll 1
  for (; left > 0; left--) {
    const Step next = next_of(step, first, a);
    cp_async_wait(0);
    meet_second();
    if (left > 1) feed_q(ring + (33280 - slot), next, x.batch, a);
    cp_async_commit();
    const u32 here = smem + fresh_zero(), now = here + 65536 + slot;
    const LanesS l = lanes_s(now, here + 0, here + 132096);
    float bias[4];
    load_rows(bias, now + 32768);
#pragma unroll
    for (int part = 0; part < 2; part++) {
      float s[32];
#pragma unroll
      for (int i = 0; i < 32; i++) s[i] = 0.0f;
      scores(s, l.a, l.b, part);
      if (is_masked(x.first, step.block, a))
        hide(s, part, NEG_INFINITY, x.first, step.block, a);
#pragma unroll
      for (int i = 0; i < 32; i++)
        s[i] = ex2(fmaf(s[i], a->scale_log2, bias[i / 16 * 2 + i / 2 % 2]));
      lay_s(l.p, s, part);
      if (part == 0) named_sync(5, 256);
      lay_p(l.p + 16384, s, part);
      named_arrive(6 + part, 256);
    }
    named_sync(3, 128);
    const LanesAdd ldv = lanes_dv(here + 132096, now + 16384);
    add_dv(dv, ldv.a, ldv.b);
    slot = 33280 - slot;
    step = next;
  }

  /* dv takes the place of v. */
  cp_async_wait(0);
  meet_second();
#pragma unroll
  for (int i = 0; i < 128; i++) dv[i] *= 0x1p-12f;
  lay_dv(smem + 32768, dv);
  named_sync(3, 128);
  const Place y = place_of(block_index_again(), a);
  store_dv(smem + 32768,
           (char *)a->dv + 2 * (y.batch * a->dv_stride.batch + y.head * a->dv_stride.head +
                                y.first * a->dv_stride.row),
           2 * a->dv_stride.row, a->seqlen_k - y.first);
}

/* The second half: gradients of p and ds, then dk and dq. */
DEV void second_half(const BackwardArgs *a) {
  const Place x = place_of(block_index_again(), a);
  const int first = first_block(x.first, a);
  int left = (a->m_blocks - first) * a->group;
  const u32 smem = shared_base(), ring = smem + 65536;
  Step step = { x.head * a->group, a->m_blocks - 1 };
  copy_v(smem + 32768,
         (const char *)a->v + 2 * (x.batch * a->v_stride.batch + x.head * a->v_stride.head +
                                   x.first * a->v_stride.row),
         2 * a->v_stride.row, a->seqlen_k - x.first);
  if (left > 0) feed_dout(ring, step, x.batch, a);
  cp_async_commit();
  cp_async_wait(0);
  meet_first();
  if (left > 1) feed_dout(ring + 33280, next_of(step, first, a), x.batch, a);
  cp_async_commit();
  if (left > 0) named_arrive(5, 256);

  float dk[128];
#pragma unroll
  for (int i = 0; i < 128; i++) dk[i] = 0.0f;
  u32 slot = 0;
#pragma unroll 1
  for (; left > 0; left--) {
    const u32 here = smem + fresh_zero(), now = here + 65536 + slot;
    const LanesS l = lanes_dp(now + 16384, here + 32768, here + 132096);
    float bias[4];
    load_rows(bias, now + 33024);
#pragma unroll
    for (int part = 0; part < 2; part++) {
      float dp[32];
#pragma unroll
      for (int i = 0; i < 32; i++) dp[i] = bias[i / 16 * 2 + i / 2 % 2];
      gradients(dp, l.a, l.b, part);
      named_sync(6 + part, 256);
      times_p(dp, l.p_read + 16384, part);
      if (is_masked(x.first, step.block, a)) hide(dp, part, 0.0f, x.first, step.block, a);
      lay_s(l.p + 16384, dp, part);
    }
    named_sync(4, 128);
    const LanesAdd ldk = lanes_dk(here + 148480, now);
    add_dk(dk, ldk.a, ldk.b);
    const Step next = next_of(step, first, a);
    cp_async_wait(0);
    meet_first();
    if (left > 2) feed_dout(ring + slot, next_of(next, first, a), x.batch, a);
    cp_async_commit();
    give_dq(lanes_dq(here + 148480, here + 0), x, step, a);
    slot = 33280 - slot;
    if (left > 1) named_arrive(5, 256);
    step = next;
  }

  /* dk takes the place of k. */
  named_sync(4, 128);
#pragma unroll
  for (int i = 0; i < 128; i++) dk[i] *= a->softmax_scale * 0x1p-12f;
  lay_dk(smem + 0, dk);
  named_sync(4, 128);
  const Place y = place_of(block_index_again(), a);
  store_dk(smem + 0,
           (char *)a->dk + 2 * (y.batch * a->dk_stride.batch + y.head * a->dk_stride.head +
                                y.first * a->dk_stride.row),
           2 * a->dk_stride.row, a->seqlen_k - y.first);
}

KERNEL void kiln_backward(PARAM BackwardArgs a) {
  if (block_index() >= a.tiles) return;
  if (thread_index() < 128)
    first_half(&a);
  else
    second_half(&a);
}

/* ---- after: dq ---- */

/* Rounds a block of query rows of dq. */
KERNEL void kiln_convert(PARAM BackwardArgs a) {
  if (block_index() >= a.tiles) return;
  const i64 block = block_index(), head_index = block / a.m_blocks;
  const i64 batch = head_index / a.num_heads, head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * 64;
  const u32 smem = shared_base();
#pragma unroll
  for (int part = 0; part < 2; part++) {
    float x[32];
    get_dq(x, (const float *)item(0, &a) + block * 8192, part);
#pragma unroll
    for (int i = 0; i < 32; i++) x[i] *= a.softmax_scale * 0x1p-12f;
    lay_dq(smem, x, part);
  }
  sync_threads();
  char *to = (char *)a.dq + 2 * (batch * a.dq_stride.batch + head * a.dq_stride.head +
                                 first * a.dq_stride.row);
  store_dq(smem, to, 2 * a.dq_stride.row, a.seqlen_q - first);
}
