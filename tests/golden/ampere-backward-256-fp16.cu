// kiln 0.1.0  do not edit
// kiln generate --arch sm_86 --pass backward --dtype fp16 --head-dim 256 --deterministic --block-m 16 --block-n 64 --num-stages 1 --num-warps 8 --plain
// source id 08c41b41cf9c469e74fc1eaeaaaf9cd941992f68854ecbfe6e704758764d6795
// family ampere_backward
// spec arch=sm_86 pass=backward algorithm=flash dtype=fp16 head_dim=256 head_dim_v=256 mask=none deterministic=1
// tile block_m=16 block_n=64 num_stages=1 num_warps=8
// shared memory 86144 of 101376 bytes
//    offset     bytes  region
//         0     32768  k
//     32768     32768  v
//     65536     16512  ring
//     82048      2048  p
//     84096      2048  ds

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
DEV u32 shared_base(void) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  return (u32)__cvta_generic_to_shared(shared_bytes);
}
DEV float lds_f32(u32 at) {
  float x;
  asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(x) : "r"(at) : "memory");
  return x;
}
DEV void sts_u32(u32 at, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" :: "r"(at), "r"(x) : "memory");
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
DEV float ldg_f32(const float *p) {
  return *p;
}
DEV void stg_f32(float *p, float x) {
  *p = x;
}
DEV void stg_u32(void *p, u32 x) {
  *(u32 *)p = x;
}
DEV void ldg_u32x4(u32 *r, const void *p) {
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(p) : "memory");
}
DEV void stg_u32x4(void *p, const u32 *r) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :: "l"(p), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
DEV void red_add_f32(float *p, float x) {
  asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" :: "l"(p), "f"(x) : "memory");
}
DEV void red_add_u32_release(u32 *p, u32 x) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" :: "l"(p), "r"(x) : "memory");
}
DEV void semaphore_wait(const u32 *p, u32 value) {
  asm volatile("{\n"
               ".reg .pred p;\n"
               ".reg .b32 x;\n"
               "L_try:\n"
               "ld.acquire.gpu.global.u32 x, [%0];\n"
               "setp.eq.u32 p, x, %1;\n"
               "@p bra L_done;\n"
               "bra L_try;\n"
               "L_done:\n"
               "}"
               :: "l"(p), "r"(value) : "memory");
}
DEV void cp_async_16(u32 to, const void *from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
DEV void cp_async_commit(void) {
  asm volatile("cp.async.commit_group;" :: : "memory");
}
#define cp_async_wait(pending) asm volatile("cp.async.wait_group " #pending ";" ::: "memory")
DEV void mma_m16n8k16_fp16(float *d, const u32 *a, const u32 *b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, "
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
 *   kiln_backward    a block of 256 threads has 64 keys of one key head and walks
 *                    over the blocks of 16 query rows that see them, of all query heads of
 *                    the group: dk and dv stay in registers, dq is added to fp32 numbers in global
 *                    memory
 *   kiln_convert     dq = softmax_scale * those numbers, rounded
 *
 * With p = exp(scale s - lse), dp = dout v^T and delta = rowsum(dout o):
 *   ds = p (dp - delta), dv = p^T dout, dk = scale ds^T q, dq = scale ds k
 *
 * The first half of the warps computes p and dv, the second one ds and dk, and dq falls to
 * both.
 * While one half has exponentials to do, the other has products. p and ds change hands through
 * shared memory. The warps of a half share a product of 16 x 16 tiles as a grid: tile (i, j)
 * belongs to the warp in row i and column j, both counted around.
 *
 * dq in fp32 lies in the order of the accumulators, thread beside thread, a block of 16
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
 *   scores: 1 x 4 warps, each 1 x 1 tiles
 *   dk: 1 x 4 warps, each 4 x 4 tiles
 *   dv: 1 x 4 warps, each 4 x 4 tiles
 *   dq: 1 x 8 warps, each 1 x 2 tiles
 */

DEV u32 at_qk(int row, int chunk) {
  return (u32)row * 512 + (u32)(chunk ^ (row & 7)) * 16;
}
DEV u32 at_v(int row, int chunk) {
  return (u32)row * 512 + (u32)(chunk ^ (row & 7)) * 16;
}
DEV u32 at_p(int row, int chunk) {
  return (u32)row * 128 + (u32)(chunk ^ (row & 7)) * 16;
}

/* This lane's addresses for ldmatrix: rows 0 to 7, rows 8 to 15, then columns 8 to 15 of both; or
 * columns before rows. */
DEV int row_a(void) { return thread_index() & 15; }
DEV int chunk_a(void) { return thread_index() >> 4 & 1; }
DEV int row_b(void) { return (thread_index() & 7) + (thread_index() >> 4 & 1) * 8; }
DEV int chunk_b(void) { return thread_index() >> 3 & 1; }

/* The warp's place in the grids */
DEV int s_row(void) { return member() / 32 % 1; }
DEV int s_col(void) { return member() / 32; }
DEV int dk_row(void) { return member() / 32 % 1; }
DEV int dk_col(void) { return member() / 32; }
DEV int dv_row(void) { return member() / 32 % 1; }
DEV int dv_col(void) { return member() / 32; }
DEV int dq_row(void) { return thread_index() / 32 % 1; }
DEV int dq_col(void) { return thread_index() / 32; }

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
  const int lane = thread_index() & 31;
  l.p = p + at_p(16 * s_row() + lane / 4, 2 * s_col()) + 4 * (lane & 3);
  return l;
}
DEV LanesS lanes_dp(u32 a, u32 b, u32 p) {
  LanesS l;
  l.a = a + at_v(16 * s_row() + row_a(), chunk_a());
  l.b = b + at_v(16 * s_col() + row_b(), chunk_b());
  l.p_read = p + at_p(16 * s_row() + row_a(), 2 * s_col() + chunk_a());
  const int lane = thread_index() & 31;
  l.p = p + at_p(16 * s_row() + lane / 4, 2 * s_col()) + 4 * (lane & 3);
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
  for (int kk = 0; kk < 16; kk++) {
    u32 a[4];
#pragma unroll
    for (int t = 0; t < 1; t++)
      ldmatrix_x4(a + 4 * t, ((a_lane) ^ (16 * (2 * kk) & 112)) + (16 * (2 * kk) - (16 * (2 * kk) & 112)) + 8192 * t);
#pragma unroll
    for (int j = 0; j < 1; j++) {
      u32 b[4];
      ldmatrix_x4(b, ((b_lane) ^ (16 * (2 * kk) & 112)) + (16 * (2 * kk) - (16 * (2 * kk) & 112)) + 32768 * (1 * part + j));
#pragma unroll
      for (int t = 0; t < 1; t++) {
        float *y = x + 8 * (t * 1 + j);
        mma_m16n8k16_fp16(y, a + 4 * t, b);
        mma_m16n8k16_fp16(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}
/* x += dout v^T: the warp's rows and keys of a part */
DEV void gradients(float *x, u32 a_lane, u32 b_lane, int part) {
#pragma unroll
  for (int kk = 0; kk < 16; kk++) {
    u32 a[4];
#pragma unroll
    for (int t = 0; t < 1; t++)
      ldmatrix_x4(a + 4 * t, ((a_lane) ^ (16 * (2 * kk) & 112)) + (16 * (2 * kk) - (16 * (2 * kk) & 112)) + 8192 * t);
#pragma unroll
    for (int j = 0; j < 1; j++) {
      u32 b[4];
      ldmatrix_x4(b, ((b_lane) ^ (16 * (2 * kk) & 112)) + (16 * (2 * kk) - (16 * (2 * kk) & 112)) + 32768 * (1 * part + j));
#pragma unroll
      for (int t = 0; t < 1; t++) {
        float *y = x + 8 * (t * 1 + j);
        mma_m16n8k16_fp16(y, a + 4 * t, b);
        mma_m16n8k16_fp16(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}

/* x += p^T dout: the warp's rows and columns */
DEV void add_dv(float *x, u32 a_lane, u32 b_lane) {
#pragma unroll
  for (int kk = 0; kk < 1; kk++) {
    u32 a[16];
#pragma unroll
    for (int t = 0; t < 4; t++)
      ldmatrix_x4_trans(a + 4 * t, ((a_lane) ^ (16 * (2 * t) & 112)) + (16 * (2 * t) - (16 * (2 * t) & 112)) + 2048 * kk);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      u32 b[4];
      ldmatrix_x4_trans(b, ((b_lane) ^ (16 * (8 * j) & 112)) + (16 * (8 * j) - (16 * (8 * j) & 112)) + 8192 * kk);
#pragma unroll
      for (int t = 0; t < 4; t++) {
        float *y = x + 8 * (t * 4 + j);
        mma_m16n8k16_fp16(y, a + 4 * t, b);
        mma_m16n8k16_fp16(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}
/* x += ds^T q: the warp's rows and columns */
DEV void add_dk(float *x, u32 a_lane, u32 b_lane) {
#pragma unroll
  for (int kk = 0; kk < 1; kk++) {
    u32 a[16];
#pragma unroll
    for (int t = 0; t < 4; t++)
      ldmatrix_x4_trans(a + 4 * t, ((a_lane) ^ (16 * (2 * t) & 112)) + (16 * (2 * t) - (16 * (2 * t) & 112)) + 2048 * kk);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      u32 b[4];
      ldmatrix_x4_trans(b, ((b_lane) ^ (16 * (8 * j) & 112)) + (16 * (8 * j) - (16 * (8 * j) & 112)) + 8192 * kk);
#pragma unroll
      for (int t = 0; t < 4; t++) {
        float *y = x + 8 * (t * 4 + j);
        mma_m16n8k16_fp16(y, a + 4 * t, b);
        mma_m16n8k16_fp16(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}
/* x += ds k: the warp's rows and columns of a part */
DEV void add_dq(float *x, u32 a_lane, u32 b_lane, int part) {
#pragma unroll
  for (int kk = 0; kk < 4; kk++) {
    u32 a[4];
#pragma unroll
    for (int t = 0; t < 1; t++)
      ldmatrix_x4(a + 4 * t, ((a_lane) ^ (16 * (2 * kk) & 112)) + (16 * (2 * kk) - (16 * (2 * kk) & 112)) + 2048 * t);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      u32 b[4];
      ldmatrix_x4_trans(b, ((b_lane) ^ (16 * (16 * (2 * part + j)) & 112)) + (16 * (16 * (2 * part + j)) - (16 * (16 * (2 * part + j)) & 112)) + 8192 * kk);
#pragma unroll
      for (int t = 0; t < 1; t++) {
        float *y = x + 8 * (t * 2 + j);
        mma_m16n8k16_fp16(y, a + 4 * t, b);
        mma_m16n8k16_fp16(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}

/* ---- scores ---- */

/* One number of each of the warp's rows: those of this thread */
DEV void load_rows(float *x, u32 from) {
  const u32 at = from + 4 * (16 * s_row() + (thread_index() & 31) / 4);
#pragma unroll
  for (int i = 0; i < 2; i++)
    x[i] = lds_f32(at + 64 * (i / 2) + 32 * (i % 2));
}

/* Puts `with` where the row does not see the key. */
DEV void hide(float *x, int part, float with, int first_key, int block, const BackwardArgs *a) {
  const int lane = (thread_index() + (int)fresh_zero()) & 31;
  const int column = first_key + 16 * s_col() + 2 * (lane & 3);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int end = a->seqlen_k - column;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float *y = x + 4 * (2 * (i / 2) + j) + 2 * (i % 2);
      const int key = 64 * (1 * part + j / 2) + 8 * (j % 2);
      y[0] = key < end ? y[0] : with;
      y[1] = key + 1 < end ? y[1] : with;
    }
  }
}

/* x *= p */
DEV void times_p(float *x, u32 lane, int part) {
#pragma unroll
  for (int t = 0; t < 1; t++) {
#pragma unroll
    for (int j = 0; j < 1; j++) {
      float *y = x + 8 * (t * 1 + j);
      u32 r[4];
      ldmatrix_x4(r, ((lane) ^ (16 * (8 * (1 * part + j)) & 112)) + (16 * (8 * (1 * part + j)) - (16 * (8 * (1 * part + j)) & 112)) + 2048 * t);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        y[2 * i] *= unpack_fp16(r[i]);
        y[2 * i + 1] *= unpack_fp16(r[i] >> 16);
      }
    }
  }
}

/* ---- results ---- */

/* Lays the warp's part of p or ds, rounded to fp16, into shared memory. */
DEV void lay_s(u32 lane_to, const float *x, int part) {
#pragma unroll
  for (int t = 0; t < 1; t++) {
#pragma unroll
    for (int j = 0; j < 1; j++) {
      const float *y = x + 8 * (t * 1 + j);
#pragma unroll
      for (int i = 0; i < 4; i++)
        sts_u32(((lane_to) ^ (16 * (8 * (1 * part + j) + i / 2) & 112)) + (16 * (8 * (1 * part + j) + i / 2) - (16 * (8 * (1 * part + j) + i / 2) & 112)) + 2048 * t + 1024 * (i % 2),
                pack_fp16(y[2 * i], y[2 * i + 1]));
    }
  }
}
/* Lays the warp's part of dk, rounded to fp16, into shared memory. */
DEV void lay_dk(u32 to, const float *x) {
  const int lane = thread_index() & 31;
  const u32 lane_to = to + at_qk(16 * dk_row() + lane / 4, 2 * dk_col()) + 4 * (lane & 3);
#pragma unroll
  for (int t = 0; t < 4; t++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float *y = x + 8 * (t * 4 + j);
#pragma unroll
      for (int i = 0; i < 4; i++)
        sts_u32(((lane_to) ^ (16 * (8 * j + i / 2) & 112)) + (16 * (8 * j + i / 2) - (16 * (8 * j + i / 2) & 112)) + 8192 * t + 4096 * (i % 2),
                pack_fp16(y[2 * i], y[2 * i + 1]));
    }
  }
}
/* Lays the warp's part of dv, rounded to fp16, into shared memory. */
DEV void lay_dv(u32 to, const float *x) {
  const int lane = thread_index() & 31;
  const u32 lane_to = to + at_v(16 * dv_row() + lane / 4, 2 * dv_col()) + 4 * (lane & 3);
#pragma unroll
  for (int t = 0; t < 4; t++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float *y = x + 8 * (t * 4 + j);
#pragma unroll
      for (int i = 0; i < 4; i++)
        sts_u32(((lane_to) ^ (16 * (8 * j + i / 2) & 112)) + (16 * (8 * j + i / 2) - (16 * (8 * j + i / 2) & 112)) + 8192 * t + 4096 * (i % 2),
                pack_fp16(y[2 * i], y[2 * i + 1]));
    }
  }
}
/* Lays the warp's part of dq, rounded to fp16, into shared memory. */
DEV void lay_dq(u32 to, const float *x, int part) {
  const int lane = thread_index() & 31;
  const u32 lane_to = to + at_qk(16 * dq_row() + lane / 4, 2 * dq_col()) + 4 * (lane & 3);
#pragma unroll
  for (int t = 0; t < 1; t++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const float *y = x + 8 * (t * 2 + j);
#pragma unroll
      for (int i = 0; i < 4; i++)
        sts_u32(((lane_to) ^ (16 * (16 * (2 * part + j) + i / 2) & 112)) + (16 * (16 * (2 * part + j) + i / 2) - (16 * (16 * (2 * part + j) + i / 2) & 112)) + 8192 * t + 4096 * (i % 2),
                pack_fp16(y[2 * i], y[2 * i + 1]));
    }
  }
}

/* Adds a part of the warp's numbers to a block of dq in fp32. */
DEV void put_dq(float *to, const float *x, int part) {
  to += part * 4096 + 1 * (thread_index() + (int)fresh_zero());
#pragma unroll
  for (int t = 0; t < 1; t++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int i = 8 * (t * 2 + j);
#pragma unroll
      for (int e = 0; e < 8; e++) red_add_f32(to + 256 * (i + e), x[i + e]);
    }
  }
}
/* A part of the warp's numbers of a block of dq in fp32 */
DEV void get_dq(float *x, const float *from, int part) {
  from += part * 4096 + 1 * (thread_index() + (int)fresh_zero());
#pragma unroll
  for (int i = 0; i < 16; i++) x[i] = ldg_f32(from + 256 * i);
}
/* ---- between global and shared memory ----
 *
 * Included by ampere.tmpl.cu. Threads beside each other take chunks of 16 bytes beside each other.
 */

/* Starts the copy of 16 rows of q. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
 */
DEV void copy_q(u32 to, const char *from, i64 row_bytes, int rows) {
  const int me = fresh_member(), row0 = me / 8, chunk0 = me % 8;
  const char *line = from + row0 * row_bytes + 16 * chunk0;
#pragma unroll
  for (int i = 0; i < 1; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 512;
#pragma unroll
    for (int c = 0; c < 32; c += 8) {
      const int chunk = c + chunk0;
      const int bytes = row < rows ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += 16 * row_bytes;
  }
}
/* Starts the copy of 16 rows of dout. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
 */
DEV void copy_dout(u32 to, const char *from, i64 row_bytes, int rows) {
  const int me = fresh_member(), row0 = me / 8, chunk0 = me % 8;
  const char *line = from + row0 * row_bytes + 16 * chunk0;
#pragma unroll
  for (int i = 0; i < 1; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 512;
#pragma unroll
    for (int c = 0; c < 32; c += 8) {
      const int chunk = c + chunk0;
      const int bytes = row < rows ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += 16 * row_bytes;
  }
}
/* Starts the copy of 64 rows of k. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
 */
DEV void copy_k(u32 to, const char *from, i64 row_bytes, int rows) {
  const int me = fresh_member(), row0 = me / 8, chunk0 = me % 8;
  const char *line = from + row0 * row_bytes + 16 * chunk0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 512;
#pragma unroll
    for (int c = 0; c < 32; c += 8) {
      const int chunk = c + chunk0;
      const int bytes = row < rows ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += 16 * row_bytes;
  }
}
/* Starts the copy of 64 rows of v. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
 */
DEV void copy_v(u32 to, const char *from, i64 row_bytes, int rows) {
  const int me = fresh_member(), row0 = me / 8, chunk0 = me % 8;
  const char *line = from + row0 * row_bytes + 16 * chunk0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 512;
#pragma unroll
    for (int c = 0; c < 32; c += 8) {
      const int chunk = c + chunk0;
      const int bytes = row < rows ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += 16 * row_bytes;
  }
}

/* Stores the first `rows` of 64 rows of dk. */
DEV void store_dk(u32 from, char *to, i64 row_bytes, int rows) {
  const int row0 = member() / 8, chunk0 = member() % 8;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = row0 + 16 * i;
    if (row >= rows) break;
#pragma unroll
    for (int c = 0; c < 32; c += 8) {
      const int chunk = c + chunk0;
      u32 x[4];
      lds_u32x4(x, from + (u32)row * 512 +
                       (u32)(chunk ^ (row & 7)) * 16);
      stg_u32x4(to + row * row_bytes + 16 * chunk, x);
    }
  }
}
/* Stores the first `rows` of 64 rows of dv. */
DEV void store_dv(u32 from, char *to, i64 row_bytes, int rows) {
  const int row0 = member() / 8, chunk0 = member() % 8;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = row0 + 16 * i;
    if (row >= rows) break;
#pragma unroll
    for (int c = 0; c < 32; c += 8) {
      const int chunk = c + chunk0;
      u32 x[4];
      lds_u32x4(x, from + (u32)row * 512 +
                       (u32)(chunk ^ (row & 7)) * 16);
      stg_u32x4(to + row * row_bytes + 16 * chunk, x);
    }
  }
}
/* Stores the first `rows` of 16 rows of dq. */
DEV void store_dq(u32 from, char *to, i64 row_bytes, int rows) {
  const int row0 = thread_index() / 8, chunk0 = thread_index() % 8;
#pragma unroll
  for (int i = 0; i < 1; i++) {
    const int row = row0 + 32 * i;
    if (row >= 16 || row >= rows) break;
#pragma unroll
    for (int c = 0; c < 32; c += 8) {
      const int chunk = c + chunk0;
      u32 x[4];
      lds_u32x4(x, from + (u32)row * 512 +
                       (u32)(chunk ^ (row & 7)) * 16);
      stg_u32x4(to + row * row_bytes + 16 * chunk, x);
    }
  }
}
/* ---- before: statistics of the rows ---- */

/* Sums the products of four pairs of fp16 numbers. */
DEV float dot_8(const u32 *x, const u32 *y) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    sum = fmaf(unpack_fp16(x[i]), unpack_fp16(y[i]), sum);
    sum = fmaf(unpack_fp16(x[i] >> 16), unpack_fp16(y[i] >> 16), sum);
  }
  return sum;
}

/* Of a block of query rows: -lse log2(e), then -delta, in fp32. Rows past the end, and those that
 * see no key, get -inf: all of their exponentials are 0.
 * Clears the block's dq and its turn.
 * The loads of 32 rows are started before the first is used. */
KERNEL void kiln_preprocess(PARAM BackwardArgs a) {
  if (block_index() >= a.tiles) return;
  const i64 block = block_index(), head_index = block / a.m_blocks;
  const i64 batch = head_index / a.num_heads, head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * 16;
  const int end = a.seqlen_q - first < 16 ? a.seqlen_q - first : 16;
  const u32 zeros[4] = { 0, 0, 0, 0 };
  char *dq = item(0, &a) + block * 16384;
#pragma unroll 4
  for (int i = thread_index(); i < 1024; i += 256)
    stg_u32x4(dq + 16 * i, zeros);
  if (thread_index() == 0) stg_u32((u32 *)item(2, &a) + block, 0);
  const int part = thread_index() % 8; /* of a row */
  const char *o = (const char *)a.o + 16 * part +
                  2 * (batch * a.o_stride.batch + head * a.o_stride.head + first * a.o_stride.row);
  const char *dout =
      (const char *)a.dout + 16 * part +
      2 * (batch * a.do_stride.batch + head * a.do_stride.head + first * a.do_stride.row);
  const float *lse = a.lse + head_index * a.seqlen_q + first;
  float *rows = (float *)item(1, &a) + block * 32;
#pragma unroll 1
  for (int begin = 0; begin < 16; begin += 32) {
    const int row0 = begin + thread_index() / 8;
    u32 x[4][4], y[4][4];
    float shift[1];
#pragma unroll
    for (int i = 0; i < 1; i++) {
      const int row = row0 + 32 * i;
      shift[i] = part == 0 && row < end ? ldg_f32(lse + row) : NEG_INFINITY;
#pragma unroll
      for (int c = 0; c < 4; c++) {
        u32 *u = x[4 * i + c], *w = y[4 * i + c];
#pragma unroll
        for (int j = 0; j < 4; j++) u[j] = w[j] = 0;
        if (row >= end) continue;
        ldg_u32x4(u, o + 2 * row * a.o_stride.row + 128 * c);
        ldg_u32x4(w, dout + 2 * row * a.do_stride.row + 128 * c);
      }
    }
#pragma unroll
    for (int i = 0; i < 1; i++) {
      const int row = row0 + 32 * i;
      float delta = 0.0f;
#pragma unroll
      for (int c = 0; c < 4; c++)
        delta += dot_8(x[4 * i + c], y[4 * i + c]);
#pragma unroll
      for (int lanes = 1; lanes < 8; lanes *= 2) delta += shfl_xor_f32(delta, lanes);
      if (part != 0 || row >= 16) continue;
      if (shift[i] != NEG_INFINITY) shift[i] *= -1.44269504f;
      stg_f32(rows + row, shift[i]);
      stg_f32(rows + 16 + row, -delta);
    }
  }
}

/* ---- keys and queries ---- */

/* Tile t where the tiles of a section of `width` key heads come by key block, then the next
 * section: its key head, batch included, and its key block. */
DEV i64 head_of_section(i64 t, i64 width, const BackwardArgs *a, int *n) {
  const i64 section = t / (width * a->n_blocks), rest = t - section * width * a->n_blocks;
  const i64 begin = section * width, left = (i64)a->num_heads_k * a->batch - begin;
  width = width < left ? width : left;
  *n = (int)(rest / width);
  return begin + (rest - *n * width);
}
/* Sections of 8 heads. The key blocks of a head add to dq in turns: so they begin one
 * behind the other, and few of them wait. Keys that more queries see come first. */
typedef struct {
  i64 batch;
  int head, block, first; /* key head, key block and its first key */
} Place;
DEV Place place_of(i64 tile, const BackwardArgs *a) {
  Place x;
  const i64 head_index = head_of_section(tile, 8, a, &x.block);
  x.batch = head_index / a->num_heads_k;
  x.head = (int)(head_index - x.batch * a->num_heads_k);
  x.first = x.block * 64;
  return x;
}

/* The first block of query rows with one that sees key `first`, or a->m_blocks. */
DEV int first_block(int first, const BackwardArgs *a) {
  return 0;
}

/* Whether some key of the block is hidden from some row of the block of query rows. */
DEV int is_masked(int first_key, int block, const BackwardArgs *a) {
  return a->seqlen_k - first_key < 64;
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
  const i64 first = (i64)s.block * 16, batch = own_batch + fresh_zero();
  const char *from = (const char *)a->q +
                     2 * (batch * a->q_stride.batch + s.head * a->q_stride.head +
                          first * a->q_stride.row);
  copy_q(to + 0, from, 2 * a->q_stride.row, (int)(a->seqlen_q - first));
  const char *rows = item(1, a) + block_of(batch, s.head, s.block, a) * 128 + 0;
  const int at = 16 * fresh_member(); /* a half has more threads than there are 16 bytes */
  if (at < 64) cp_async_16(to + 16384 + at, rows + at, 16);
}
/* Starts the copies of a block's dout and of the statistic that goes with it. */
DEV void feed_dout(u32 to, Step s, i64 own_batch, const BackwardArgs *a) {
  const i64 first = (i64)s.block * 16, batch = own_batch + fresh_zero();
  const char *from = (const char *)a->dout +
                     2 * (batch * a->do_stride.batch + s.head * a->do_stride.head +
                          first * a->do_stride.row);
  copy_dout(to + 8192, from, 2 * a->do_stride.row, (int)(a->seqlen_q - first));
  const char *rows = item(1, a) + block_of(batch, s.head, s.block, a) * 128 + 64;
  const int at = 16 * fresh_member(); /* a half has more threads than there are 16 bytes */
  if (at < 64) cp_async_16(to + 16448 + at, rows + at, 16);
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
/* Key blocks add to the dq of a block of query rows in their order; those before this one have seen
 * the rows too. `turn` counts who has added. A thread of the first half waits for the turn of a
 * step while the second half has dk to do, and another hands on the turn of the step before: its
 * additions are long done then, and no warp of the second half waits for either. */
DEV u32 *turn_of(Place x, Step s, const BackwardArgs *a) {
  return (u32 *)item(2, a) + block_of(x.batch + fresh_zero(), s.head, s.block, a);
}
DEV void take_turn(Place x, Step s, int first, const BackwardArgs *a) {
  const int me = member(), is_last = s.block == a->m_blocks - 1;
  const Step before = { s.head - is_last, is_last ? first : s.block + 1 };
  if (me == 0 && before.head >= x.head * a->group) red_add_u32_release(turn_of(x, before, a), 1);
  if (me == 32) semaphore_wait(turn_of(x, s, a), (u32)x.block);
  sync_warp();
}

/* Computes a block of dq from ds and adds it. */
DEV void give_dq(LanesAdd l, Place x, Step s, const BackwardArgs *a) {
  const i64 block = block_of(x.batch + fresh_zero(), s.head, s.block, a);
#pragma unroll 1
  for (int part = 0; part < 1; part++) {
    float dq[16];
#pragma unroll
    for (int i = 0; i < 16; i++) dq[i] = 0.0f;
    add_dq(dq, l.a, l.b, part);
    put_dq((float *)item(0, a) + block * 4096, dq, part);
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
#pragma unroll 1
  for (; left > 0; left--) {
    const Step next = next_of(step, first, a);
    cp_async_wait(0);
    meet_second();
    const u32 here = smem + fresh_zero(), now = here + 65536;
    const LanesS l = lanes_s(now, here + 0, here + 82048);
    float bias[2];
    load_rows(bias, now + 16384);
#pragma unroll
    for (int part = 0; part < 1; part++) {
      float s[8];
#pragma unroll
      for (int i = 0; i < 8; i++) s[i] = 0.0f;
      scores(s, l.a, l.b, part);
      if (is_masked(x.first, step.block, a))
        hide(s, part, NEG_INFINITY, x.first, step.block, a);
#pragma unroll
      for (int i = 0; i < 8; i++)
        s[i] = ex2(fmaf(s[i], a->scale_log2, bias[i / 8 * 2 + i / 2 % 2]));
      lay_s(l.p, s, part);
      named_arrive(6 + part, 256);
    }
    named_sync(3, 128);
    const LanesAdd ldv = lanes_dv(here + 82048, now + 8192);
    add_dv(dv, ldv.a, ldv.b);
    take_turn(x, step, first, a);
    meet_second();
    if (left > 1) feed_q(ring, next, x.batch, a);
    cp_async_commit();
    give_dq(lanes_dq(here + 84096, here + 0), x, step, a);
    step = next;
  }

  /* dv takes the place of v. */
  cp_async_wait(0);
  meet_second();
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

  float dk[128];
#pragma unroll
  for (int i = 0; i < 128; i++) dk[i] = 0.0f;
#pragma unroll 1
  for (; left > 0; left--) {
    const u32 here = smem + fresh_zero(), now = here + 65536;
    const LanesS l = lanes_dp(now + 8192, here + 32768, here + 82048);
    float bias[2];
    load_rows(bias, now + 16448);
#pragma unroll
    for (int part = 0; part < 1; part++) {
      float dp[8];
#pragma unroll
      for (int i = 0; i < 8; i++) dp[i] = bias[i / 8 * 2 + i / 2 % 2];
      gradients(dp, l.a, l.b, part);
      named_sync(6 + part, 256);
      times_p(dp, l.p_read, part);
      if (is_masked(x.first, step.block, a)) hide(dp, part, 0.0f, x.first, step.block, a);
      lay_s(l.p + 2048, dp, part);
    }
    named_sync(4, 128);
    const LanesAdd ldk = lanes_dk(here + 84096, now);
    add_dk(dk, ldk.a, ldk.b);
    const Step next = next_of(step, first, a);
    meet_first();
    if (left > 1) feed_dout(ring, next, x.batch, a);
    cp_async_commit();
    give_dq(lanes_dq(here + 84096, here + 0), x, step, a);
    cp_async_wait(0);
    meet_first();
    step = next;
  }

  /* dk takes the place of k. */
  named_sync(4, 128);
#pragma unroll
  for (int i = 0; i < 128; i++) dk[i] *= a->softmax_scale;
  lay_dk(smem + 0, dk);
  named_sync(4, 128);
  const Place y = place_of(block_index_again(), a);
  const Step last = { (y.head + 1) * a->group - 1, first };
  if (member() == 0 && first < a->m_blocks) red_add_u32_release(turn_of(y, last, a), 1);
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
  const int first = (int)(block - head_index * a.m_blocks) * 16;
  const u32 smem = shared_base();
#pragma unroll
  for (int part = 0; part < 1; part++) {
    float x[16];
    get_dq(x, (const float *)item(0, &a) + block * 4096, part);
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] *= a.softmax_scale;
    lay_dq(smem, x, part);
  }
  sync_threads();
  char *to = (char *)a.dq + 2 * (batch * a.dq_stride.batch + head * a.dq_stride.head +
                                 first * a.dq_stride.row);
  store_dq(smem, to, 2 * a.dq_stride.row, a.seqlen_q - first);
}
