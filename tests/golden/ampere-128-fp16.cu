// kiln 0.1.0  do not edit
// kiln generate --arch sm_80 --dtype fp16 --head-dim 128 --block-m 128 --block-n 48 --num-stages 1 --num-warps 4 --plain
// source id 20ded06655f97e85f919cbfcf1a3b1edc4843f048f75a3446b863ed67d7b6649
// family ampere
// spec arch=sm_80 pass=forward algorithm=flash dtype=fp16 head_dim=128 head_dim_v=128 mask=none
// tile block_m=128 block_n=48 num_stages=1 num_warps=4
// shared memory 57344 of 166912 bytes
//    offset     bytes  region
//         0     32768  q
//     32768     12288  k
//     45056     12288  v
//         0     32768  o

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
DEV u32 pack_fp16(float lo, float hi) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
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
DEV void mma_m16n8k16_fp16(float *d, const u32 *a, const u32 *b) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, "
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
 * of one head, a warp 32 of them. Keys and values pass through shared memory
 * in blocks of 48, from the last visible one to the first; scores, probabilities and the
 * output stay in registers. */
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
  for (int j = 0; j < 6; j++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      s[4 * j + i] = 8 * j + i < limit0 ? s[4 * j + i] : NEG_INFINITY;
      s[4 * j + 2 + i] = 8 * j + i < limit1 ? s[4 * j + 2 + i] : NEG_INFINITY;
    }
  }
}

/* Takes the first `columns` columns of every thread's share of a block into m. factor[r]: what
 * earlier p and sums of p v must be multiplied by. ref[r]: the new m, but 0 for a row that is
 * hidden everywhere so far: it keeps m = -inf and p = 0. */
DEV void raise_maximum(const float *s, int columns, RowState *st, float *factor, float *ref,
                       float c) {
  float top[2] = {s[0], s[2]};
#pragma unroll
  for (int j = 0; j < columns / 8; j++) {
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
}

/* s <- 2^(s c + bias) */
DEV void exponentials(float *s, const float *bias, float c) {
#pragma unroll
  for (int j = 0; j < 6; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[4 * j + i] = ex2(fmaf(s[4 * j + i], c, bias[i / 2]));
  }
}

/* s <- 2^((s - ref) c - shift): subtracted first, so that the rounding of ref c cannot show. */
DEV void exact_exponentials(float *s, const float *ref, float c, float shift) {
#pragma unroll
  for (int j = 0; j < 6; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[4 * j + i] = ex2((s[4 * j + i] - ref[i / 2]) * c - shift);
  }
}

/* l += this thread's part of the block's sums */
DEV void sum_rows(const float *s, float *l) {
#pragma unroll
  for (int j = 0; j < 6; j++) {
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

/* Starts the copy of rows first .. first + 127 of q. Rows at and past end become
 * 0: nothing is read for them, whatever their address.
 */
DEV void copy_q(u32 to, const char *from, i64 row_bytes, int first, int end) {
  const int row0 = thread_index() / 16, chunk0 = thread_index() % 16;
  const char *line = from + (i64)(first + row0) * row_bytes + 16 * chunk0;
#pragma unroll 4
  for (int i = 0; i < 16; i++) {
    const int row = row0 + 8 * i, inside = row < end - first;
    const u32 line_to = to + (u32)row * 256;
#pragma unroll
    for (int c = 0; c < 16; c += 16) {
      const int chunk = c + chunk0;
      const int bytes = inside ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += 8 * row_bytes;
  }
}

/* Starts the copy of rows first .. first + 47 of k. Rows at and past end become
 * 0: nothing is read for them, whatever their address.
 */
DEV void copy_k(u32 to, const char *from, i64 row_bytes, int first, int end) {
  const int row0 = thread_index() / 16, chunk0 = thread_index() % 16;
  const char *line = from + (i64)(first + row0) * row_bytes + 16 * chunk0;
#pragma unroll 4
  for (int i = 0; i < 6; i++) {
    const int row = row0 + 8 * i, inside = row < end - first;
    const u32 line_to = to + (u32)row * 256;
#pragma unroll
    for (int c = 0; c < 16; c += 16) {
      const int chunk = c + chunk0;
      const int bytes = inside ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += 8 * row_bytes;
  }
}

/* Starts the copy of rows first .. first + 47 of v. Rows at and past end become
 * 0: nothing is read for them, whatever their address.
 */
DEV void copy_v(u32 to, const char *from, i64 row_bytes, int first, int end) {
  const int row0 = thread_index() / 16, chunk0 = thread_index() % 16;
  const char *line = from + (i64)(first + row0) * row_bytes + 16 * chunk0;
#pragma unroll 4
  for (int i = 0; i < 6; i++) {
    const int row = row0 + 8 * i, inside = row < end - first;
    const u32 line_to = to + (u32)row * 256;
#pragma unroll
    for (int c = 0; c < 16; c += 16) {
      const int chunk = c + chunk0;
      const int bytes = inside ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += 8 * row_bytes;
  }
}

/* ---- products ---- */

/* s (32 x 48) = q k^T for the warp's rows, which begin at address q */
DEV void scores(float *s, u32 q, u32 k) {
  const int lane = thread_index() & 31;
  const int q_row = lane & 15, q_chunk = lane >> 4;
  const int k_row = (lane & 7) + (lane >> 4) * 8, k_chunk = lane >> 3 & 1;
#pragma unroll
  for (int i = 0; i < 48; i++) s[i] = 0.0f;
#pragma unroll
  for (int kk = 0; kk < 8; kk++) {
    u32 a[8];
#pragma unroll
    for (int t = 0; t < 2; t++) {
      const int row = 16 * t + q_row, chunk = (2 * kk + q_chunk) ^ (q_row & 7);
      ldmatrix_x4(a + 4 * t, q + (u32)row * 256 + (u32)chunk * 16);
    }
#pragma unroll
    for (int j = 0; j < 3; j++) {
      const int row = 16 * j + k_row, chunk = (2 * kk + k_chunk) ^ (k_row & 7);
      u32 b[4];
      ldmatrix_x4(b, k + (u32)row * 256 + (u32)chunk * 16);
#pragma unroll
      for (int t = 0; t < 2; t++) {
        mma_m16n8k16_fp16(s + t * 24 + 8 * j, a + 4 * t, b);
        mma_m16n8k16_fp16(s + t * 24 + 8 * j + 4, a + 4 * t, b + 2);
      }
    }
  }
}

/* o (32 x 128) += p v; p is rounded to fp16 here */
DEV void accumulate(float *o, const float *p, u32 v) {
  const int lane = thread_index() & 31;
  const int v_row = lane & 15, v_chunk = lane >> 4;
#pragma unroll
  for (int kk = 0; kk < 3; kk++) {
    u32 a[8];
#pragma unroll
    for (int t = 0; t < 2; t++) {
      const float *x = p + t * 24 + 8 * kk;
#pragma unroll
      for (int i = 0; i < 4; i++) a[4 * t + i] = pack_fp16(x[2 * i], x[2 * i + 1]);
    }
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const int row = 16 * kk + v_row, chunk = (2 * j + v_chunk) ^ (v_row & 7);
      u32 b[4];
      ldmatrix_x4_trans(b, v + (u32)row * 256 + (u32)chunk * 16);
#pragma unroll
      for (int t = 0; t < 2; t++) {
        mma_m16n8k16_fp16(o + t * 64 + 8 * j, a + 4 * t, b);
        mma_m16n8k16_fp16(o + t * 64 + 8 * j + 4, a + 4 * t, b + 2);
      }
    }
  }
}

/* ---- output ---- */

/* Normalises o, rounds it and lays it into shared memory; writes the log-sum-exp of the warp's
 * rows. */
DEV void finish_rows(const float *o, const RowState *st, u32 to, float *lse, int first,
                     const ForwardArgs *a, float shift) {
  const int lane = thread_index() & 31, warp_row = thread_index() / 32 * 32;
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = warp_row + 16 * t + 8 * r + lane / 4;
      const float l = quad_sum(st[t].l[r]), inverse = row_inverse(l, sees_keys(first + row, a));
#pragma unroll
      for (int j = 0; j < 16; j++) {
        const float *x = o + t * 64 + 4 * j + 2 * r;
        const u32 at = to + (u32)row * 256 + (u32)(j ^ (row & 7)) * 16;
        sts_u32(at + (lane & 3) * 4, pack_fp16(x[0] * inverse, x[1] * inverse));
      }
      if (lse && (lane & 3) == 0 && first + row < a->seqlen_q)
        stg_f32(lse + first + row, row_lse(st[t].m[r], l, a->softmax_scale, shift));
    }
  }
}

/* Stores the block's rows of o that lie inside the tensor, 16 bytes a thread and step. */
DEV void store_rows(u32 from, char *to, i64 row_bytes, int first, int end) {
  const int row0 = thread_index() / 16, chunk0 = thread_index() % 16;
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const int row = row0 + 8 * i;
    if (row >= 128 || row >= end - first) break;
    for (int chunk = chunk0; chunk < 16; chunk += 16) {
      u32 x[4];
      const u32 at = from + (u32)row * 256 + (u32)(chunk ^ (row & 7)) * 16;
      lds_u32x4(x, at);
      stg_u32x4(to + (first + row) * row_bytes + 16 * chunk, x);
    }
  }
}

/* ---- the kernel ---- */

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

/* Takes a block of scores into m and turns it into p. */
DEV void softmax_step(float *s, RowState *st, float *factor, float c, float shift) {
  float ref[2];
  raise_maximum(s, 48, st, factor, ref, c);
  const float b0 = ref[0] * c, b1 = ref[1] * c;
  /* One fused multiply-add an element where the rounding of m c cannot show in p (2^-16). */
  if (any_sync(!(fmaxf(fabsf(b0), fabsf(b1)) < 256.0f))) {
    exact_exponentials(s, ref, c, shift);
  } else {
    const float bias[2] = {-b0 - shift, -b1 - shift};
    exponentials(s, bias, c);
  }
  sum_rows(s, st->l);
}

/* Hides keys past the end in block n. */
DEV void mask_block(float *s, int n, const ForwardArgs *a) {
  const int lane = thread_index() & 31, column = n * 48 + 2 * (lane & 3);
#pragma unroll
  for (int t = 0; t < 2; t++) {
    mask_scores(s + t * 24, a->seqlen_k - column, a->seqlen_k - column);
  }
}

KERNEL void kiln_forward(PARAM ForwardArgs a) {
  if (block_index() >= a.tiles) return;
  const Place x = place_of(block_index(), &a);
  const int first = x.first;
  const char *q = (const char *)a.q + 2 * (x.batch * a.q_stride.batch + x.head * a.q_stride.head);
  const char *k = (const char *)a.k +
                  2 * (x.batch * a.k_stride.batch + x.head / a.group * a.k_stride.head);
  const char *v = (const char *)a.v +
                  2 * (x.batch * a.v_stride.batch + x.head / a.group * a.v_stride.head);
  const u32 smem = shared_base();
  const u32 at_q = smem + 0, at_k = smem + 32768, at_v = smem + 45056;
  const u32 warp_q = at_q + (u32)(thread_index() / 32) * 8192;

  /* Keys below `full` are seen by every row of the block, keys at and past `end` by none. */
  const int full = a.seqlen_k, end = a.seqlen_k;
  const int blocks = (end + 47) / 48;
  const float shift = -15.0f;

  float o[128], s[48];
  RowState st[2];
#pragma unroll
  for (int i = 0; i < 128; i++) o[i] = 0.0f;
#pragma unroll
  for (int t = 0; t < 2; t++) state_clear(&st[t]);

  if (blocks > 0) copy_q(at_q, q, 2 * a.q_stride.row, first, a.seqlen_q);
  /* One slot each: values arrive while scores are computed, the next keys while values are used. */
  if (blocks > 0) copy_k(at_k, k, 2 * a.k_stride.row, (blocks - 1) * 48, a.seqlen_k);
  cp_async_commit();

#pragma unroll 1
  for (int n = blocks - 1; n >= 0; n--) {
    cp_async_wait(0);
    sync_threads();
    copy_v(at_v, v, 2 * a.v_stride.row, n * 48, a.seqlen_k);
    cp_async_commit();
    scores(s, warp_q, at_k);

    if ((n + 1) * (i64)48 > full) mask_block(s, n, &a);
#pragma unroll
    for (int t = 0; t < 2; t++) {
      float factor[2];
      softmax_step(s + t * 24, &st[t], factor, a.scale_log2, shift);
#pragma unroll
      for (int i = 0; i < 64; i++) o[t * 64 + i] *= factor[i / 2 % 2];
    }
    cp_async_wait(0);
    sync_threads();
    if (n > 0) copy_k(at_k, k, 2 * a.k_stride.row, (n - 1) * 48, a.seqlen_k);
    cp_async_commit();
    accumulate(o, s, at_v);
  }

  /* o takes the place of q, k and v: everyone must have finished with them, and no copy may still
   * be on its way. */
  cp_async_wait(0);
  sync_threads();
  /* Again: kept alive, it would cost registers in the loop. */
  const Place y = place_of(block_index_again(), &a);
  float *lse = a.lse ? a.lse + y.head_index * a.seqlen_q : 0;
  finish_rows(o, st, smem, lse, y.first, &a, shift);
  sync_threads();
  char *out = (char *)a.o + 2 * (y.batch * a.o_stride.batch + y.head * a.o_stride.head);
  store_rows(smem, out, 2 * a.o_stride.row, y.first, a.seqlen_q);
}
