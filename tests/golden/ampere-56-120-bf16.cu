// kiln 0.1.0  do not edit
// kiln generate --arch sm_86 --dtype bf16 --head-dim 56 --head-dim-v 120 --block-m 128 --block-n 32 --num-stages 2 --num-warps 4 --plain
// source id 206c183141cc1c3510c4dd1512e13d7e98a553400f168854c2c163c0570b7443
// family ampere
// spec arch=sm_86 pass=forward algorithm=flash dtype=bf16 head_dim=56 head_dim_v=120 mask=none
// tile block_m=128 block_n=32 num_stages=2 num_warps=4
// shared memory 40964 of 101376 bytes
//    offset     bytes  region
//         0     24576  kv
//     24576     16384  q
//         0     32768  o
//     40960         4  failed

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
DEV void sts_u32(u32 at, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" :: "r"(at), "r"(x) : "memory");
}
DEV void lds_u32x4(u32 *r, u32 at) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEV int lds_flag(u32 at) {
  int x;
  asm volatile("ld.relaxed.cta.shared.s32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
  return x;
}
DEV void sts_flag(u32 at, int x) {
  asm volatile("st.relaxed.cta.shared.s32 [%0], %1;" :: "r"(at), "r"(x) : "memory");
}
DEV void ldmatrix_x4(u32 *r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEV void ldmatrix_x4_trans(u32 *r, u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEV void stg_f32(float *p, float x) {
  *p = x;
}
DEV void stg_u32x4(void *p, const u32 *r) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :: "l"(p), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
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

/* FlashAttention forward for mma.sync: a block of 128 threads computes 128 query rows
 * of one head. Keys and values pass through shared memory in blocks of 32, from the last
 * visible one to the first; scores and the output stay in registers.
 *
 * A row's reference m is the maximum of the blocks up to the first of which every row of the block
 * has seen a key, and p = 2^((s - m) c) from then on, however large later scores are: bf16 and fp32
 * share the exponent range, p may exceed 1 by far, and the common factor leaves with 1 / l.
 * So steady blocks need no maximum, no rescaling and no wait before the exponentials. What this
 * cannot hold (holds() says) is computed again by the exact pass, with the running maximum. */
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
  for (int j = 0; j < 4; j++) {
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
  for (int j = 0; j < 4; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[4 * j + i] = ex2((s[4 * j + i] - ref[i / 2]) * c - shift);
  }
}

/* l += this thread's part of the block's sums */
DEV void sum_rows(const float *s, float *l) {
#pragma unroll
  for (int j = 0; j < 4; j++) {
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

/* ---- global to shared memory ---- */

/* This thread's first chunk of q, from a block's first row on: bytes */
DEV i64 line_q(i64 row_bytes) {
  return thread_index() / 8 * row_bytes + 16 * (thread_index() % 8);
}
/* Starts the copy of 128 rows of q. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
 * So do columns 56 to 63.
 */
DEV void copy_q(u32 to, const char *line, i64 row_bytes, int rows) {
  const int row0 = thread_index() / 8, chunk0 = thread_index() % 8;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 128;
#pragma unroll
    for (int c = 0; c < 8; c += 8) {
      const int chunk = c + chunk0;
      const int bytes = row < rows && chunk < 7 ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * i * row_bytes + 16 * c, bytes);
    }
  }
}
/* This thread's first chunk of k, from a block's first row on: bytes */
DEV i64 line_k(i64 row_bytes) {
  return thread_index() / 8 * row_bytes + 16 * (thread_index() % 8);
}
/* Starts the copy of 32 rows of k. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
 * So do columns 56 to 63.
 */
DEV void copy_k(u32 to, const char *line, i64 row_bytes, int rows) {
  const int row0 = thread_index() / 8, chunk0 = thread_index() % 8;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 128;
#pragma unroll
    for (int c = 0; c < 8; c += 8) {
      const int chunk = c + chunk0;
      const int bytes = row < rows && chunk < 7 ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * i * row_bytes + 16 * c, bytes);
    }
  }
}
/* This thread's first chunk of v, from a block's first row on: bytes */
DEV i64 line_v(i64 row_bytes) {
  return thread_index() / 8 * row_bytes + 16 * (thread_index() % 8);
}
/* Starts the copy of 32 rows of v. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
 * So do columns 120 to 127.
 */
DEV void copy_v(u32 to, const char *line, i64 row_bytes, int rows) {
  const int row0 = thread_index() / 8, chunk0 = thread_index() % 8;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 256;
#pragma unroll
    for (int c = 0; c < 16; c += 8) {
      const int chunk = c + chunk0;
      const int bytes = row < rows && chunk < 15 ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * i * row_bytes + 16 * c, bytes);
    }
  }
}

/* Keys and values on their way: this thread's first chunks of the blocks that are copied next. */
typedef struct {
  const char *k, *v;
  i64 k_row, v_row; /* bytes */
} Feed;

/* Starts the copy of the next block's keys, or values, and steps towards the first block. */
DEV void feed_k(Feed *f, u32 to, int rows) {
  copy_k(to, f->k, f->k_row, rows);
  f->k -= 32 * f->k_row;
}
DEV void feed_v(Feed *f, u32 to, int rows) {
  copy_v(to, f->v, f->v_row, rows);
  f->v -= 32 * f->v_row;
}

/* ---- tiles ---- */

/* Tiles: m block fastest, then head, then batch. */
typedef struct {
  i64 batch, head_index; /* head_index: batch * num_heads + head */
  int head, first;       /* first query row */
} Place;
DEV Place place_of(i64 tile, const ForwardArgs *a) {
  Place x;
  x.head_index = tile / a->m_blocks;
  x.batch = x.head_index / a->num_heads;
  x.head = (int)(x.head_index - x.batch * a->num_heads);
  x.first = (int)(tile - x.head_index * a->m_blocks) * 128;
  return x;
}

/* ---- keys a row sees ---- */

/* Every row sees every key. */
typedef struct {
  int full, end;
} Sight;
DEV Sight sight_of(int first, const ForwardArgs *a) {
  Sight x;
  x.full = x.end = a->seqlen_k;
  return x;
}

/* ---- what a warp computes ----
 *
 * Included by ampere.tmpl.cu. Everything here is one warp's work on one slice of keys: who has
 * which rows, products, softmax and output.
 */

DEV int rows_first(void) { return thread_index() / 32 * 32; }

/* This lane's address for ldmatrix, from the first address of q, k, v or p on: rows 0 to 7, rows 8
 * to 15, then columns 8 to 15 of both; for k, columns before rows. */
DEV u32 lane_k(void) {
  const int lane = thread_index() & 31;
  const int row = (lane & 7) + (lane >> 4) * 8, chunk = lane >> 3 & 1;
  return (u32)(row) * 128 + (u32)(chunk ^ (row & 7)) * 16;
}
DEV u32 lane_q(void) {
  const int lane = thread_index() & 31;
  const int row = lane & 15, chunk = lane >> 4;
  return (u32)(rows_first() + row) * 128 + (u32)(chunk ^ (row & 7)) * 16;
}
DEV u32 lane_v(void) {
  const int lane = thread_index() & 31;
  const int row = lane & 15, chunk = lane >> 4;
  return (u32)row * 256 + (u32)(chunk ^ (row & 7)) * 16;
}

/* ---- products ---- */

/* s (32 x 32) = q k^T */
DEV void scores(float *s, u32 q, u32 k) {
#pragma unroll
  for (int i = 0; i < 32; i++) s[i] = 0.0f;
#pragma unroll
  for (int kk = 0; kk < 4; kk++) {
    u32 a[8];
#pragma unroll
    for (int t = 0; t < 2; t++)
      ldmatrix_x4(a + 4 * t, ((q) ^ (32 * kk & 112)) + (32 * kk - (32 * kk & 112)) + 2048 * t);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      u32 b[4];
      ldmatrix_x4(b, ((k) ^ (32 * kk & 112)) + (32 * kk - (32 * kk & 112)) + 2048 * j);
#pragma unroll
      for (int t = 0; t < 2; t++) {
        const u32 *x = a + 4 * t;
        mma_m16n8k16_bf16(s + t * 16 + 8 * j, x, b);
        mma_m16n8k16_bf16(s + t * 16 + 8 * j + 4, x, b + 2);
      }
    }
  }
}

/* o (32 x 128) += p v for 16 keys; a: p as operands */
DEV void accumulate(float *o, const u32 *a, u32 v) {
#pragma unroll
  for (int j = 0; j < 8; j++) {
    u32 b[4];
    ldmatrix_x4_trans(b, ((v) ^ (32 * j & 112)) + (32 * j - (32 * j & 112)));
#pragma unroll
    for (int t = 0; t < 2; t++) {
      mma_m16n8k16_bf16(o + t * 64 + 8 * j, a + 4 * t, b);
      mma_m16n8k16_bf16(o + t * 64 + 8 * j + 4, a + 4 * t, b + 2);
    }
  }
}

/* Columns 16 kk to 16 kk + 15 of p, rounded to bf16, as operands */
DEV void pack_keys(u32 *a, const float *p, int kk) {
#pragma unroll
  for (int t = 0; t < 2; t++) {
    const float *x = p + t * 16 + 8 * kk;
#pragma unroll
    for (int i = 0; i < 4; i++) a[4 * t + i] = pack_bf16(x[2 * i], x[2 * i + 1]);
  }
}

/* ---- softmax ---- */

/* Hides keys past the end; the slice begins at key
 * first. */
DEV void mask_slice(float *s, int first, const ForwardArgs *a) {
  const int lane = thread_index() & 31, column = first + 2 * (lane & 3);
#pragma unroll
  for (int t = 0; t < 2; t++) {
    mask_scores(s + t * 16, a->seqlen_k - column, a->seqlen_k - column);
  }
}

/* Scores become p under the running maximum; o and the sums are rescaled. */
DEV void careful_weights(float *o, float *s, RowState *st, float c, float shift) {
  float top[2][2];
#pragma unroll
  for (int t = 0; t < 2; t++) block_maximum(s + t * 16, 32, top[t]);
#pragma unroll
  for (int t = 0; t < 2; t++) {
    float factor[2], ref[2];
    raise_state(top[t], &st[t], factor, ref, c);
    exact_exponentials(s + t * 16, ref, c, shift);
    sum_rows(s + t * 16, st[t].l);
#pragma unroll
    for (int i = 0; i < 64; i++) o[t * 64 + i] *= factor[i / 2 % 2];
  }
}
/* Columns 16 kk to 16 kk + 15 of the scores become p against the reference that stands. */
DEV void steady_weights(float *s, RowState *st, float c, int kk) {
#pragma unroll
  for (int t = 0; t < 2; t++) {
    float *x = s + t * 16 + 8 * kk;
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = ex2(fmaf(x[i], c, st[t].m[i / 2 % 2]));
    st[t].l[0] += (x[0] + x[1]) + (x[4] + x[5]);
    st[t].l[1] += (x[2] + x[3]) + (x[6] + x[7]);
  }
}
/* o += p v; the scores of 16 keys become p beside the products of the 16 before. */
DEV void steady_slice(float *o, float *s, RowState *st, float c, u32 v) {
#pragma unroll
  for (int kk = 0; kk < 2; kk++) {
    u32 a[8];
    steady_weights(s, st, c, kk);
    pack_keys(a, s, kk);
    accumulate(o, a, v + kk * 4096);
  }
}
DEV void careful_slice(float *o, float *s, RowState *st, float c, float shift, u32 v) {
  careful_weights(o, s, st, c, shift);
#pragma unroll
  for (int kk = 0; kk < 2; kk++) {
    u32 a[8];
    pack_keys(a, s, kk);
    accumulate(o, a, v + kk * 4096);
  }
}

/* Completes the sums. */
DEV void finish_sums(RowState *st) {
  float l[2][2];
#pragma unroll
  for (int i = 0; i < 4; i++) l[i / 2][i % 2] = quad_sum(st[i / 2].l[i % 2]);
#pragma unroll
  for (int i = 0; i < 4; i++) st[i / 2].l[i % 2] = l[i / 2][i % 2];
}

/* Whether the warp's rows are what the exact pass would give: the sums are within the range, the
 * rounding of m c does not show, every output is finite. */
DEV int holds(const float *o, const RowState *st) {
  float probe = 0.0f;
  int good = 1;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float l = st[i / 2].l[i % 2], bias = st[i / 2].m[i % 2];
    good = good && l > 0.0f && l < 1e30f && fabsf(bias) < 4096.0f;
  }
#pragma unroll
  for (int i = 0; i < 128; i++) probe = fmaf(o[i], 0.0f, probe);
  return !any_sync(!(good && probe == 0.0f));
}

/* ---- output ---- */

/* Normalises o, rounds it and lays it into shared memory; writes the log-sum-exp of the warp's
 * rows. m is the maximum after the exact pass, the bias after the fast one. */
DEV void finish_rows(const float *o, const RowState *st, u32 to, float *lse, int first,
                     const ForwardArgs *a, int exact, float shift) {
  const int lane = thread_index() & 31;
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = rows_first() + 16 * t + 8 * r + lane / 4;
      const float l = st[t].l[r], inverse = row_inverse(l, sees_keys(first + row, a));
#pragma unroll
      for (int j = 0; j < 16; j++) {
        const float *x = o + t * 64 + 4 * j + 2 * r;
        const int chunk = j;
        const u32 at = to + (u32)row * 256 + (u32)(chunk ^ (row & 7)) * 16;
        sts_u32(at + (lane & 3) * 4, pack_bf16(x[0] * inverse, x[1] * inverse));
      }
      const int mine = (lane & 3) == 0;
      if (lse && mine && first + row < a->seqlen_q)
        stg_f32(lse + first + row, exact ? row_lse(st[t].m[r], l, a->softmax_scale, shift)
                                         : (lg2(l) - st[t].m[r]) * 0.693147181f);
    }
  }
}

/* Stores the block's rows of o that lie inside the tensor, 16 bytes a thread and step. */
DEV void store_rows(u32 from, char *to, i64 row_bytes, int first, int end) {
  const int row0 = thread_index() / 8, chunk0 = thread_index() % 8;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int row = row0 + 16 * i;
    if (row >= 128 || row >= end - first) break;
    for (int chunk = chunk0; chunk < 15; chunk += 8) {
      u32 x[4];
      const u32 at = from + (u32)row * 256 + (u32)(chunk ^ (row & 7)) * 16;
      lds_u32x4(x, at);
      stg_u32x4(to + (first + row) * row_bytes + 16 * chunk, x);
    }
  }
}

/* ---- the kernel ---- */

KERNEL void kiln_forward(PARAM ForwardArgs a) {
  if (block_index() >= a.tiles) return;
  const Place x = place_of(block_index(), &a);
  const Sight see = sight_of(x.first, &a);
  const int blocks = (see.end + 31) / 32; /* of keys */
  const int rest = a.seqlen_k - (blocks - 1) * 32;  /* keys from the last of them on */
  const u32 smem = shared_base(), at_k = smem + 0, at_v = at_k + 4096;
  const u32 q_lane = smem + 24576 + lane_q(), k_lane = at_k + lane_k(), v_lane = at_v + lane_v();
  const float c = a.scale_log2;

  const i64 q_row = 2 * a.q_stride.row;
  const char *q = (const char *)a.q + line_q(q_row) + x.first * q_row +
                  2 * (x.batch * a.q_stride.batch + x.head * a.q_stride.head);
  copy_q(smem + 24576, q, q_row, blocks > 0 ? a.seqlen_q - x.first : 0);
  cp_async_commit();
  if (thread_index() == 0) sts_flag(smem + 40960, 0);

  const int key_head = x.head / a.group;
  Feed f;
  f.k_row = 2 * a.k_stride.row;
  f.v_row = 2 * a.v_stride.row;
  f.k = (const char *)a.k + line_k(f.k_row) +
        2 * (x.batch * a.k_stride.batch + key_head * a.k_stride.head);
  f.v = (const char *)a.v + line_v(f.v_row) +
        2 * (x.batch * a.v_stride.batch + key_head * a.v_stride.head);

  float o[128], s[32];
  RowState st[2];

  /* The fast pass, then the exact one if that does not hold. Rows that see no key are exact. */
  int exact = see.full <= 0;
#pragma unroll 1
  for (;; exact = 1) {
    const float shift = exact ? (float)a.shift : 0.0f;
    f.k += (blocks - 1) * 32 * f.k_row;
    f.v += (blocks - 1) * 32 * f.v_row;
    /* A ring of 2 slots: block n - 1 is on its way while n is used. */
#pragma unroll
    for (int i = 0; i < 1; i++) {
      const int rows = blocks <= i ? 0 : i == 0 ? rest : 32;
      feed_k(&f, at_k + i * 12288, rows);
      feed_v(&f, at_v + i * 12288, rows);
      cp_async_commit();
    }
    int slot = 0;
#pragma unroll
    for (int i = 0; i < 128; i++) o[i] = 0.0f;
#pragma unroll
    for (int t = 0; t < 2; t++) state_clear(&st[t]);

    int n = blocks - 1;
    /* Until every row has its reference; to the end in the exact pass. */
#pragma unroll 1
    for (; n >= 0; n--) {
      if (!(exact || n == blocks - 1 || (n + 1) * (i64)32 >= see.full)) break;
      cp_async_wait(0);
      sync_threads();
      const u32 free_slot = (u32)(slot == 0 ? 1 : slot - 1) * 12288;
      feed_k(&f, at_k + free_slot, n >= 1 ? 32 : 0);
      feed_v(&f, at_v + free_slot, n >= 1 ? 32 : 0);
      cp_async_commit();
      scores(s, q_lane, k_lane + (u32)slot * 12288 + 0);
      if ((n + 1) * (i64)32 > see.full)
        mask_slice(s, n * 32 + 0, &a);
      careful_slice(o, s, st, c, shift, v_lane + (u32)slot * 12288 + 0);
      slot = slot == 1 ? 0 : slot + 1;
    }

    /* The biases take the place of the maxima. */
    if (!exact) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        st[i / 2].m[i % 2] = 0.0f - st[i / 2].m[i % 2] * c;
    }
#pragma unroll 1
    for (; n >= 0; n--) {
      cp_async_wait(0);
      sync_threads();
      const u32 free_slot = (u32)(slot == 0 ? 1 : slot - 1) * 12288;
      feed_k(&f, at_k + free_slot, n >= 1 ? 32 : 0);
      feed_v(&f, at_v + free_slot, n >= 1 ? 32 : 0);
      cp_async_commit();
      scores(s, q_lane, k_lane + (u32)slot * 12288 + 0);
      steady_slice(o, s, st, c, v_lane + (u32)slot * 12288 + 0);
      slot = slot == 1 ? 0 : slot + 1;
    }

    finish_sums(st);
    if (!exact && !holds(o, st) && (thread_index() & 31) == 0) sts_flag(smem + 40960, 1);
    /* Everyone must have finished with q, k and v, and no copy may still be on its way. */
    cp_async_wait(0);
    sync_threads();
    if (exact || !lds_flag(smem + 40960)) break;
    f.k += 64 * f.k_row; /* back to the first block */
    f.v += 64 * f.v_row;
  }

  /* o takes the place of k and v. Again: kept alive, the place would cost registers in the loop. */
  const Place y = place_of(block_index_again(), &a);
  float *lse = a.lse ? a.lse + y.head_index * a.seqlen_q : 0;
  finish_rows(o, st, smem + 0, lse, y.first, &a, exact, (float)a.shift);
  sync_threads();
  char *out = (char *)a.o + 2 * (y.batch * a.o_stride.batch + y.head * a.o_stride.head);
  store_rows(smem + 0, out, 2 * a.o_stride.row, y.first, a.seqlen_q);
}
