// kiln 0.1.0  do not edit
// kiln generate --arch sm_80 --dtype bf16 --head-dim 64 --causal --block-m 128 --block-n 64 --num-stages 2 --num-warps 4
// source id 66df93cd13a9f0db1eb19e0da31022ce7eedd225b07878ed44618757ddaf3778
// family ampere, for the emulator
// spec arch=sm_80 pass=forward algorithm=flash dtype=bf16 head_dim=64 head_dim_v=64 mask=causal
// tile block_m=128 block_n=64 num_stages=2 num_warps=4
// shared memory 32772 of 166912 bytes
//    offset     bytes  region
//         0     32768  kv
//     16384     16384  q
//         0     16384  o
//     32768         4  failed

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef struct __attribute__((aligned(64))) TensorMap { u64 words[16]; } TensorMap;
#define DEV static inline __attribute__((unused))
#define KERNEL static
#define PARAM const
#define INFINITY_F __builtin_inff()
#define NEG_INFINITY (-__builtin_inff())
#define EMU_EXPORT __attribute__((visibility("default")))
#define EMU_FP16 0
#define EMU_BF16 1
#define EMU_E4M3 2
#define EMU_FP32 3
#define EMU_STRING(x) #x
#define EMU_LINE(x) EMU_STRING(x)
#define SITE(text) __FILE__ ":" EMU_LINE(__LINE__) ": " text
float exp2f(float x);
float log2f(float x);
float fabsf(float x);
float fmaf(float a, float b, float c);
float fmaxf(float a, float b);
float fminf(float a, float b);
float tanhf(float x);
DEV u32 emu_bits(float x) { u32 u; __builtin_memcpy(&u, &x, 4); return u; }
DEV float emu_float(u32 u) { float x; __builtin_memcpy(&x, &u, 4); return x; }
DEV u32 emu_bf16(float x) {
  const u32 u = emu_bits(x);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
DEV u32 emu_fp16(float x) {
  const u32 sign = emu_bits(x) >> 16 & 0x8000, u = emu_bits(x) & 0x7fffffff;
  if (u > 0x7f800000) return 0x7fff;
  if (u >= 0x477ff000) return sign | 0x7c00; /* 65520 and above */
  if (u < 0x38800000) return sign | (emu_bits(emu_float(u) + 0.5f) - 0x3f000000); /* subnormal */
  return sign | (u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13;
}
DEV float emu_wide_fp16(u32 x) {
  const float magnitude = emu_float((x & 0x7fff) << 13) * 0x1p112f; /* exact */
  const u32 special = (x & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
  return emu_float(emu_bits(magnitude) | special | (x & 0x8000) << 16);
}
/* Numbers too large become 448. */
DEV u32 emu_e4m3(float x) {
  const u32 sign = emu_bits(x) >> 24 & 0x80, u = emu_bits(x) & 0x7fffffff;
  if (u > 0x7f800000) return 0x7f;
  if (u >= 0x43e00000) return sign | 0x7e; /* 448 and above */
  if (u < 0x3c800000) return sign | (emu_bits(emu_float(u) + 16384.f) - 0x46800000); /* subnormal */
  return sign | (u - 0x3c000000 + 0x7ffff + (u >> 20 & 1)) >> 20;
}
typedef struct {
  int (*thread_index)(const char *site);
  i64 (*block_index)(const char *site);
  i64 (*block_index_again)(const char *site);
  i64 (*num_blocks)(const char *site);
  void (*sync_threads)(const char *site);
  void (*sync_warp)(const char *site);
  void (*named_sync)(int id, int threads, const char *site);
  void (*named_arrive)(int id, int threads, const char *site);
  int (*shfl_i32)(int x, int lane, const char *site);
  float (*shfl_xor_f32)(float x, int lanes, const char *site);
  u32 (*shfl_xor_u32)(u32 x, int lanes, const char *site);
  int (*any_sync)(int x, const char *site);
  int (*redux_max_i32)(int x, const char *site);
  u32 (*redux)(int op, int is_signed, u32 x, const char *site);
  float (*shfl_f32)(float x, int lane, const char *site);
  int (*shfl_up_i32)(int x, int lanes, const char *site);
  int (*shfl_down_i32)(int x, int lanes, const char *site);
  int (*all_sync)(int x, const char *site);
  u32 (*ballot_sync)(int x, const char *site);
  int (*elect_one)(const char *site);
  u32 (*shared_base)(const char *site);
  int (*lds_i32)(u32 at, const char *site);
  void (*sts_i32)(u32 at, int x, const char *site);
  float (*lds_f32)(u32 at, const char *site);
  void (*sts_f32)(u32 at, float x, const char *site);
  void (*sts_u32)(u32 at, u32 x, const char *site);
  void (*lds_u32x4)(u32 *r, u32 at, const char *site);
  int (*lds_flag)(u32 at, const char *site);
  void (*sts_flag)(u32 at, int x, const char *site);
  void (*ldmatrix_x4)(u32 *r, u32 at, const char *site);
  void (*ldmatrix_x4_trans)(u32 *r, u32 at, const char *site);
  void (*stmatrix_x4)(u32 at, const u32 *r, const char *site);
  void (*stmatrix_x4_trans)(u32 at, const u32 *r, const char *site);
  void (*sts_u32x4)(u32 at, const u32 *r, const char *site);
  u32 (*atomic_shared_add_u32)(u32 at, u32 x, const char *site);
  int (*atomic_shared_max_i32)(u32 at, int x, const char *site);
  float (*atomic_shared_add_f32)(u32 at, float x, const char *site);
  float (*ldg_f32)(const float *p, const char *site);
  void (*stg_f32)(float *p, float x, const char *site);
  u32 (*ldg_u16)(const u16 *p, const char *site);
  void (*stg_u16)(u16 *p, u32 x, const char *site);
  void (*stg_u32)(void *p, u32 x, const char *site);
  void (*ldg_u32x4)(u32 *r, const void *p, const char *site);
  void (*stg_u32x4)(void *p, const u32 *r, const char *site);
  u64 (*atomic_add_u64)(u64 *p, u64 x, const char *site);
  u32 (*atomic_add_u32)(u32 *p, u32 x, const char *site);
  u32 (*atomic_inc_u32)(u32 *p, u32 last, const char *site);
  u32 (*atomic_exch_u32)(u32 *p, u32 x, const char *site);
  u32 (*atomic_cas_u32)(u32 *p, u32 expected, u32 x, const char *site);
  int (*atomic_max_i32)(int *p, int x, const char *site);
  float (*atomic_add_f32)(float *p, float x, const char *site);
  u32 (*atomic_add_u32_acq_rel)(u32 *p, u32 x, const char *site);
  void (*red_add_f32)(float *p, float x, const char *site);
  void (*red_add_f32x2)(float *p, const float *x, const char *site);
  void (*red_add_f32x4)(float *p, const float *x, const char *site);
  u32 (*ldg_acquire_u32)(const u32 *p, const char *site);
  void (*stg_release_u32)(u32 *p, u32 x, const char *site);
  void (*red_add_u32_release)(u32 *p, u32 x, const char *site);
  void (*semaphore_wait)(const u32 *p, u32 value, const char *site);
  void (*fence_gpu)(const char *site);
  void (*cp_async_16)(u32 to, const void *from, int bytes, const char *site);
  void (*cp_async_commit)(const char *site);
  void (*cp_async_wait)(int pending, const char *site);
  void (*mma_m16n8k16)(int dtype, float *d, const u32 *a, const u32 *b, const char *site);
  void (*bar_init)(u32 bar, u32 arrivals, const char *site);
  void (*fence_bar_init)(const char *site);
  void (*bar_expect)(u32 bar, u32 bytes, const char *site);
  void (*bar_arrive)(u32 bar, const char *site);
  void (*bar_arrive_peer)(u32 bar, u32 block, const char *site);
  void (*bar_wait)(u32 bar, u32 parity, const char *site);
  int (*bar_try)(u32 bar, u32 parity, const char *site);
  void (*tma_load)(u32 to, const TensorMap *map, u32 bar, int col, int row, int head, int batch, u64 policy, const char *site);
  void (*tma_load_multicast)(u32 to, const TensorMap *map, u32 bar, int col, int row, int head, int batch, u64 policy, u16 blocks, const char *site);
  void (*tma_store)(const TensorMap *map, u32 from, int col, int row, int head, int batch, const char *site);
  void (*tma_load_tile)(int rank, u32 to, const TensorMap *map, u32 bar, int c0, int c1, int c2, int c3, int c4, u64 policy, int blocks, const char *site);
  void (*tma_store_tile)(int rank, int add, const TensorMap *map, u32 from, int c0, int c1, int c2, int c3, int c4, const char *site);
  void (*bulk_load)(u32 to, const void *from, u32 bytes, u32 bar, u64 policy, const char *site);
  void (*bulk_store)(void *to, u32 from, u32 bytes, const char *site);
  void (*bulk_copy_peer)(u32 to, u32 from, u32 bytes, u32 bar, u32 block, const char *site);
  void (*bulk_add)(int dtype, void *to, u32 from, u32 bytes, const char *site);
  void (*tma_prefetch_map)(const TensorMap *map, const char *site);
  void (*bulk_commit)(const char *site);
  void (*bulk_wait)(int pending, const char *site);
  void (*bulk_wait_read)(int pending, const char *site);
  void (*fence_async)(const char *site);
  void (*fence_async_global)(const char *site);
  void (*cluster_sync)(const char *site);
  u32 (*cluster_rank)(const char *site);
  void (*reg_dec)(int count, const char *site);
  void (*reg_inc)(int count, const char *site);
  void (*grid_wait)(const char *site);
  void (*grid_launch_dependents)(const char *site);
  void (*wgmma_fence)(const char *site);
  void (*wgmma_commit)(const char *site);
  void (*wgmma_wait)(int pending, const char *site);
  void (*wgmma)(int n, int dtype, int major, float *d, const u32 *registers, u64 a, u64 b, int accumulate, const char *site);
  void (*touch)(const void *registers, int count, const char *site);
} kiln_emu_api;
static const kiln_emu_api *kiln_emu;
#define thread_index() kiln_emu->thread_index(SITE("thread_index()"))
#define block_index() kiln_emu->block_index(SITE("block_index()"))
#define block_index_again() kiln_emu->block_index_again(SITE("block_index_again()"))
#define sync_threads() kiln_emu->sync_threads(SITE("sync_threads()"))
#define shfl_xor_f32(x, lanes) kiln_emu->shfl_xor_f32(x, lanes, SITE("shfl_xor_f32(" #x ", " #lanes ")"))
#define any_sync(x) kiln_emu->any_sync(x, SITE("any_sync(" #x ")"))
DEV float ex2(float x) { float y = exp2f(x); return y < 1.17549435e-38f ? 0.f : y; }
DEV float lg2(float x) { return log2f(fabsf(x) < 1.17549435e-38f ? 0.f : x); }
DEV u32 pack_bf16(float lo, float hi) { return emu_bf16(lo) | emu_bf16(hi) << 16; }
#define shared_base() kiln_emu->shared_base(SITE("shared_base()"))
#define sts_u32(at, x) kiln_emu->sts_u32(at, x, SITE("sts_u32(" #at ", " #x ")"))
#define lds_u32x4(r, at) kiln_emu->lds_u32x4(r, at, SITE("lds_u32x4(" #r ", " #at ")"))
#define lds_flag(at) kiln_emu->lds_flag(at, SITE("lds_flag(" #at ")"))
#define sts_flag(at, x) kiln_emu->sts_flag(at, x, SITE("sts_flag(" #at ", " #x ")"))
#define ldmatrix_x4(r, at) kiln_emu->ldmatrix_x4(r, at, SITE("ldmatrix_x4(" #r ", " #at ")"))
#define ldmatrix_x4_trans(r, at) kiln_emu->ldmatrix_x4_trans(r, at, SITE("ldmatrix_x4_trans(" #r ", " #at ")"))
#define stg_f32(p, x) kiln_emu->stg_f32(p, x, SITE("stg_f32(" #p ", " #x ")"))
#define stg_u32x4(p, r) kiln_emu->stg_u32x4(p, r, SITE("stg_u32x4(" #p ", " #r ")"))
#define cp_async_16(to, from, bytes) kiln_emu->cp_async_16(to, from, bytes, SITE("cp_async_16(" #to ", " #from ", " #bytes ")"))
#define cp_async_commit() kiln_emu->cp_async_commit(SITE("cp_async_commit()"))
#define cp_async_wait(pending) kiln_emu->cp_async_wait(pending, SITE("cp_async_wait(" #pending ")"))
#define mma_m16n8k16_bf16(d, a, b) kiln_emu->mma_m16n8k16(EMU_BF16, d, a, b, SITE("mma_m16n8k16_bf16(" #d ", " #a ", " #b ")"))

#line 1 "/kiln/templates/common/args.tmpl.cu"
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

#line 3 "/kiln/templates/forward/ampere.tmpl.cu"
/* FlashAttention forward for mma.sync: a block of 128 threads computes 128 query rows
 * of one head. Keys and values pass through shared memory in blocks of 64, from the last
 * visible one to the first; scores, queries and the output stay in registers.
 *
#line 8 "/kiln/templates/forward/ampere.tmpl.cu"
 * A row's reference m is the maximum of the blocks up to the first of which every row of the block
 * has seen a key, and p = 2^((s - m) c) from then on, however large later scores are: bf16 and fp32
 * share the exponent range, p may exceed 1 by far, and the common factor leaves with 1 / l.
#line 17 "/kiln/templates/forward/ampere.tmpl.cu"
 * So steady blocks need no maximum, no rescaling and no wait before the exponentials. What this
 * cannot hold (holds() says) is computed again by the exact pass, with the running maximum. */
#line 1 "/kiln/templates/common/softmax.tmpl.cu"
/* Online softmax over scores in mma fragments. A thread holds rows g and g + 8 of a 16-row tile
 * (g = lane / 4) and columns 8 j + 2 (lane & 3) + {0, 1}; four neighbouring lanes share a row.
 *
 * m is the running maximum of the raw scores and l this thread's part of the sum of p.
 * p = 2^((s - m) c - shift), with c = scale log2(e), so p is 2^-shift at the maximum exactly.
#line 7 "/kiln/templates/common/softmax.tmpl.cu"
 * shift = ceil(log2(seqlen_k)) keeps sum(p) <= 1: sums of p v cannot overflow, whatever finite v
 * holds. bf16 has the exponent range of fp32, so small p lose nothing.
#line 13 "/kiln/templates/common/softmax.tmpl.cu"
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
#line 88 "/kiln/templates/common/softmax.tmpl.cu"
  return a->seqlen_k > 0 && row + a->seqlen_k >= a->seqlen_q;
#line 92 "/kiln/templates/common/softmax.tmpl.cu"
}

/* 1 / l by IEEE division, so that a power of two stays one: a row that sees one key returns v
 * exactly. A row that sees no key has l = 0 and gets zeros; one that sees scores of -inf alone gets
 * NaN, as its softmax is 0 / 0. */
DEV float row_inverse(float l, int sees_keys) { return l == 0.0f && !sees_keys ? 0.0f : 1.0f / l; }
DEV float row_lse(float m, float l, float scale, float shift) {
  return l == 0.0f ? NEG_INFINITY : m * scale + (lg2(l) + shift) * 0.693147181f;
}

#line 21 "/kiln/templates/forward/ampere.tmpl.cu"
/* ---- global to shared memory ---- */

#line 24 "/kiln/templates/forward/ampere.tmpl.cu"
/* This thread's first chunk of q, from a block's first row on: bytes */
DEV i64 line_q(i64 row_bytes) {
  return thread_index() / 8 * row_bytes + 16 * (thread_index() % 8);
}
/* Starts the copy of 128 rows of q. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
#line 33 "/kiln/templates/forward/ampere.tmpl.cu"
 */
DEV void copy_q(u32 to, const char *line, i64 row_bytes, int rows) {
  const int row0 = thread_index() / 8, chunk0 = thread_index() % 8;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 128;
#line 43 "/kiln/templates/forward/ampere.tmpl.cu"
#pragma unroll
    for (int c = 0; c < 8; c += 8) {
      const int chunk = c + chunk0;
#line 49 "/kiln/templates/forward/ampere.tmpl.cu"
      const int bytes = row < rows ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * i * row_bytes + 16 * c, bytes);
    }
  }
}
#line 24 "/kiln/templates/forward/ampere.tmpl.cu"
/* This thread's first chunk of k, from a block's first row on: bytes */
DEV i64 line_k(i64 row_bytes) {
  return thread_index() / 8 * row_bytes + 16 * (thread_index() % 8);
}
/* Starts the copy of 64 rows of k. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
#line 33 "/kiln/templates/forward/ampere.tmpl.cu"
 */
DEV void copy_k(u32 to, const char *line, i64 row_bytes, int rows) {
  const int row0 = thread_index() / 8, chunk0 = thread_index() % 8;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 128;
#line 43 "/kiln/templates/forward/ampere.tmpl.cu"
#pragma unroll
    for (int c = 0; c < 8; c += 8) {
      const int chunk = c + chunk0;
#line 49 "/kiln/templates/forward/ampere.tmpl.cu"
      const int bytes = row < rows ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * i * row_bytes + 16 * c, bytes);
    }
  }
}
#line 24 "/kiln/templates/forward/ampere.tmpl.cu"
/* This thread's first chunk of v, from a block's first row on: bytes */
DEV i64 line_v(i64 row_bytes) {
  return thread_index() / 8 * row_bytes + 16 * (thread_index() % 8);
}
/* Starts the copy of 64 rows of v. Those from `rows` on become 0: nothing is read
 * for them, whatever their address.
#line 33 "/kiln/templates/forward/ampere.tmpl.cu"
 */
DEV void copy_v(u32 to, const char *line, i64 row_bytes, int rows) {
  const int row0 = thread_index() / 8, chunk0 = thread_index() % 8;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int row = row0 + 16 * i;
    const u32 line_to = to + (u32)row * 128;
#line 43 "/kiln/templates/forward/ampere.tmpl.cu"
#pragma unroll
    for (int c = 0; c < 8; c += 8) {
      const int chunk = c + chunk0;
#line 49 "/kiln/templates/forward/ampere.tmpl.cu"
      const int bytes = row < rows ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ (row & 7)) * 16;
      cp_async_16(at, line + 16 * i * row_bytes + 16 * c, bytes);
    }
  }
}

#line 57 "/kiln/templates/forward/ampere.tmpl.cu"
/* Keys and values on their way: this thread's first chunks of the blocks that are copied next. */
typedef struct {
  const char *k, *v;
  i64 k_row, v_row; /* bytes */
} Feed;

/* Starts the copy of the next block's keys, or values, and steps towards the first block. */
DEV void feed_k(Feed *f, u32 to, int rows) {
  copy_k(to, f->k, f->k_row, rows);
  f->k -= 64 * f->k_row;
}
DEV void feed_v(Feed *f, u32 to, int rows) {
  copy_v(to, f->v, f->v_row, rows);
  f->v -= 64 * f->v_row;
}

/* ---- tiles ---- */

#line 76 "/kiln/templates/forward/ampere.tmpl.cu"
/* Tiles: m block fastest and descending, so that the longest rows start first; then head, then
 * batch. */
#line 81 "/kiln/templates/forward/ampere.tmpl.cu"
typedef struct {
  i64 batch, head_index; /* head_index: batch * num_heads + head */
  int head, first;       /* first query row */
} Place;
DEV Place place_of(i64 tile, const ForwardArgs *a) {
  Place x;
  x.head_index = tile / a->m_blocks;
  x.batch = x.head_index / a->num_heads;
  x.head = (int)(x.head_index - x.batch * a->num_heads);
#line 91 "/kiln/templates/forward/ampere.tmpl.cu"
  x.first = (a->m_blocks - 1 - (int)(tile - x.head_index * a->m_blocks)) * 128;
#line 95 "/kiln/templates/forward/ampere.tmpl.cu"
  return x;
}

/* ---- keys a row sees ---- */

#line 101 "/kiln/templates/forward/ampere.tmpl.cu"
/* Row i sees keys up to i + diagonal. Keys below full are seen by every row of the block that
 * begins at row first, keys at and past end by none. */
#line 106 "/kiln/templates/forward/ampere.tmpl.cu"
typedef struct {
  int full, end;
} Sight;
DEV Sight sight_of(int first, const ForwardArgs *a) {
  Sight x;
#line 112 "/kiln/templates/forward/ampere.tmpl.cu"
  const i64 diagonal = (i64)a->seqlen_k - a->seqlen_q;
  const i64 last = first + 128 < a->seqlen_q ? first + 128 : a->seqlen_q;
  const i64 full = first + 1 + diagonal, end = last + diagonal;
  x.full = full < a->seqlen_k ? (int)full : a->seqlen_k;
  x.end = end < 0 ? 0 : end < a->seqlen_k ? (int)end : a->seqlen_k;
#line 120 "/kiln/templates/forward/ampere.tmpl.cu"
  return x;
}

#line 1 "/kiln/templates/forward/ampere_warp.tmpl.cu"
/* ---- what a warp computes ----
 *
 * Included by ampere.tmpl.cu. Everything here is one warp's work on one slice of keys: who has
 * which rows, products, softmax and output.
 */

#line 15 "/kiln/templates/forward/ampere_warp.tmpl.cu"
DEV int rows_first(void) { return thread_index() / 32 * 32; }

#line 23 "/kiln/templates/forward/ampere_warp.tmpl.cu"
/* This lane's address for ldmatrix, from the first address of q, k, v or p on: rows 0 to 7, rows 8
 * to 15, then columns 8 to 15 of both; for k, columns before rows. */
#line 27 "/kiln/templates/forward/ampere_warp.tmpl.cu"
DEV u32 lane_k(void) {
  const int lane = thread_index() & 31;
#line 30 "/kiln/templates/forward/ampere_warp.tmpl.cu"
  const int row = (lane & 7) + (lane >> 4) * 8, chunk = lane >> 3 & 1;
#line 41 "/kiln/templates/forward/ampere_warp.tmpl.cu"
  return (u32)(row) * 128 + (u32)(chunk ^ (row & 7)) * 16;
#line 43 "/kiln/templates/forward/ampere_warp.tmpl.cu"
}
#line 27 "/kiln/templates/forward/ampere_warp.tmpl.cu"
DEV u32 lane_q(void) {
  const int lane = thread_index() & 31;
#line 34 "/kiln/templates/forward/ampere_warp.tmpl.cu"
  const int row = lane & 15, chunk = lane >> 4;
#line 41 "/kiln/templates/forward/ampere_warp.tmpl.cu"
  return (u32)(rows_first() + row) * 128 + (u32)(chunk ^ (row & 7)) * 16;
#line 43 "/kiln/templates/forward/ampere_warp.tmpl.cu"
}
#line 27 "/kiln/templates/forward/ampere_warp.tmpl.cu"
DEV u32 lane_v(void) {
  const int lane = thread_index() & 31;
#line 34 "/kiln/templates/forward/ampere_warp.tmpl.cu"
  const int row = lane & 15, chunk = lane >> 4;
#line 37 "/kiln/templates/forward/ampere_warp.tmpl.cu"
  return (u32)row * 128 + (u32)(chunk ^ (row & 7)) * 16;
#line 43 "/kiln/templates/forward/ampere_warp.tmpl.cu"
}

#line 46 "/kiln/templates/forward/ampere_warp.tmpl.cu"
/* ---- products ---- */

#line 49 "/kiln/templates/forward/ampere_warp.tmpl.cu"
/* The warp's queries as operands */
DEV void load_q(u32 *a, u32 q) {
#pragma unroll
  for (int t = 0; t < 2; t++) {
#pragma unroll
    for (int kk = 0; kk < 4; kk++)
      ldmatrix_x4(a + 4 * (t + 2 * kk),
                  ((q) ^ (32 * kk & 112)) + (32 * kk - (32 * kk & 112)) + 2048 * t);
  }
}

#line 62 "/kiln/templates/forward/ampere_warp.tmpl.cu"
/* s (32 x 32) = q k^T; a: the queries as operands */
DEV void scores(float *s, const u32 *a, u32 k) {
#pragma unroll
  for (int i = 0; i < 32; i++) s[i] = 0.0f;
#pragma unroll
  for (int kk = 0; kk < 4; kk++) {
#line 74 "/kiln/templates/forward/ampere_warp.tmpl.cu"
#pragma unroll
    for (int j = 0; j < 2; j++) {
      u32 b[4];
      ldmatrix_x4(b, ((k) ^ (32 * kk & 112)) + (32 * kk - (32 * kk & 112)) + 2048 * j);
#pragma unroll
      for (int t = 0; t < 2; t++) {
        const u32 *x = a + 4 * (t + 2 * kk);
        mma_m16n8k16_bf16(s + t * 16 + 8 * j, x, b);
        mma_m16n8k16_bf16(s + t * 16 + 8 * j + 4, x, b + 2);
      }
    }
  }
}

/* o (32 x 64) += p v for 16 keys; a: p as operands */
DEV void accumulate(float *o, const u32 *a, u32 v) {
#line 91 "/kiln/templates/forward/ampere_warp.tmpl.cu"
#pragma unroll
  for (int j = 0; j < 4; j++) {
    u32 b[4];
    ldmatrix_x4_trans(b, ((v) ^ (32 * j & 112)) + (32 * j - (32 * j & 112)));
#pragma unroll
    for (int t = 0; t < 2; t++) {
      mma_m16n8k16_bf16(o + t * 32 + 8 * j, a + 4 * t, b);
      mma_m16n8k16_bf16(o + t * 32 + 8 * j + 4, a + 4 * t, b + 2);
    }
  }
}

#line 153 "/kiln/templates/forward/ampere_warp.tmpl.cu"
/* Columns 16 kk to 16 kk + 15 of p, rounded to bf16, as operands */
DEV void pack_keys(u32 *a, const float *p, int kk) {
#pragma unroll
  for (int t = 0; t < 2; t++) {
    const float *x = p + t * 16 + 8 * kk;
#pragma unroll
    for (int i = 0; i < 4; i++) a[4 * t + i] = pack_bf16(x[2 * i], x[2 * i + 1]);
  }
}

#line 164 "/kiln/templates/forward/ampere_warp.tmpl.cu"
/* ---- softmax ---- */

/* Hides keys past the end and past the diagonal; the slice begins at key
 * first. */
DEV void mask_slice(float *s, int first, const ForwardArgs *a) {
  const int lane = thread_index() & 31, column = first + 2 * (lane & 3);
#line 171 "/kiln/templates/forward/ampere_warp.tmpl.cu"
  const i64 row = place_of(block_index_again(), a).first + rows_first() + lane / 4;
  const i64 see = row + 1 + a->seqlen_k - a->seqlen_q;
#line 174 "/kiln/templates/forward/ampere_warp.tmpl.cu"
#pragma unroll
  for (int t = 0; t < 2; t++) {
#line 177 "/kiln/templates/forward/ampere_warp.tmpl.cu"
    const i64 see0 = see + 16 * t, see1 = see0 + 8;
    const int end0 = see0 < a->seqlen_k ? (int)see0 : a->seqlen_k;
    const int end1 = see1 < a->seqlen_k ? (int)see1 : a->seqlen_k;
    mask_scores(s + t * 16, end0 - column, end1 - column);
#line 184 "/kiln/templates/forward/ampere_warp.tmpl.cu"
  }
}

#line 188 "/kiln/templates/forward/ampere_warp.tmpl.cu"
/* Scores become p under the running maximum; o and the sums are rescaled. */
DEV void careful_weights(float *o, float *s, RowState *st, float c, float shift) {
  float top[2][2];
#pragma unroll
  for (int t = 0; t < 2; t++) block_maximum(s + t * 16, 32, top[t]);
#line 196 "/kiln/templates/forward/ampere_warp.tmpl.cu"
#pragma unroll
  for (int t = 0; t < 2; t++) {
    float factor[2], ref[2];
    raise_state(top[t], &st[t], factor, ref, c);
    exact_exponentials(s + t * 16, ref, c, shift);
    sum_rows(s + t * 16, st[t].l);
#pragma unroll
    for (int i = 0; i < 32; i++) o[t * 32 + i] *= factor[i / 2 % 2];
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
#line 218 "/kiln/templates/forward/ampere_warp.tmpl.cu"
/* o += p v; the scores of 16 keys become p beside the products of the 16 before. */
DEV void steady_slice(float *o, float *s, RowState *st, float c, u32 v) {
#pragma unroll
  for (int kk = 0; kk < 2; kk++) {
    u32 a[8];
    steady_weights(s, st, c, kk);
    pack_keys(a, s, kk);
    accumulate(o, a, v + kk * 2048);
  }
}
DEV void careful_slice(float *o, float *s, RowState *st, float c, float shift, u32 v) {
  careful_weights(o, s, st, c, shift);
#pragma unroll
  for (int kk = 0; kk < 2; kk++) {
    u32 a[8];
    pack_keys(a, s, kk);
    accumulate(o, a, v + kk * 2048);
  }
}

#line 239 "/kiln/templates/forward/ampere_warp.tmpl.cu"
/* Completes the sums. */
DEV void finish_sums(RowState *st) {
  float l[2][2];
#pragma unroll
  for (int i = 0; i < 4; i++) l[i / 2][i % 2] = quad_sum(st[i / 2].l[i % 2]);
#line 247 "/kiln/templates/forward/ampere_warp.tmpl.cu"
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
  for (int i = 0; i < 64; i++) probe = fmaf(o[i], 0.0f, probe);
  return !any_sync(!(good && probe == 0.0f));
}

/* ---- output ---- */

#line 269 "/kiln/templates/forward/ampere_warp.tmpl.cu"
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
      for (int j = 0; j < 8; j++) {
        const float *x = o + t * 32 + 4 * j + 2 * r;
        const int chunk = j;
        const u32 at = to + (u32)row * 128 + (u32)(chunk ^ (row & 7)) * 16;
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
    for (int chunk = chunk0; chunk < 8; chunk += 8) {
      u32 x[4];
      const u32 at = from + (u32)row * 128 + (u32)(chunk ^ (row & 7)) * 16;
      lds_u32x4(x, at);
      stg_u32x4(to + (first + row) * row_bytes + 16 * chunk, x);
    }
  }
}

#line 125 "/kiln/templates/forward/ampere.tmpl.cu"
/* ---- the kernel ---- */

#line 132 "/kiln/templates/forward/ampere.tmpl.cu"
KERNEL void kiln_forward(PARAM ForwardArgs a) {
  if (block_index() >= a.tiles) return;
  const Place x = place_of(block_index(), &a);
  const Sight see = sight_of(x.first, &a);
  const int blocks = (see.end + 63) / 64; /* of keys */
  const int rest = a.seqlen_k - (blocks - 1) * 64;  /* keys from the last of them on */
  const u32 smem = shared_base(), at_k = smem + 0, at_v = at_k + 8192;
  const u32 q_lane = smem + 16384 + lane_q(), k_lane = at_k + lane_k(), v_lane = at_v + lane_v();
  const float c = a.scale_log2;

  const i64 q_row = 2 * a.q_stride.row;
  const char *q = (const char *)a.q + line_q(q_row) + x.first * q_row +
                  2 * (x.batch * a.q_stride.batch + x.head * a.q_stride.head);
  copy_q(smem + 16384, q, q_row, blocks > 0 ? a.seqlen_q - x.first : 0);
  cp_async_commit();
  if (thread_index() == 0) sts_flag(smem + 32768, 0);

  const int key_head = x.head / a.group;
  Feed f;
  f.k_row = 2 * a.k_stride.row;
  f.v_row = 2 * a.v_stride.row;
  f.k = (const char *)a.k + line_k(f.k_row) +
        2 * (x.batch * a.k_stride.batch + key_head * a.k_stride.head);
  f.v = (const char *)a.v + line_v(f.v_row) +
        2 * (x.batch * a.v_stride.batch + key_head * a.v_stride.head);

  float o[64], s[32];
  RowState st[2];
#line 161 "/kiln/templates/forward/ampere.tmpl.cu"
  u32 held_q[32];

#line 164 "/kiln/templates/forward/ampere.tmpl.cu"
  /* The fast pass, then the exact one if that does not hold. Rows that see no key are exact. */
  int exact = see.full <= 0, again = 0;
#pragma unroll 1
  for (;; exact = again = 1) {
    const float shift = exact ? (float)a.shift : 0.0f;
    f.k += (blocks - 1) * 64 * f.k_row;
    f.v += (blocks - 1) * 64 * f.v_row;
#line 176 "/kiln/templates/forward/ampere.tmpl.cu"
    /* A ring of 2 slots: block n - 1 is on its way while n is used. */
#pragma unroll
    for (int i = 0; i < 1; i++) {
      const int rows = blocks <= i ? 0 : i == 0 ? rest : 64;
      feed_k(&f, at_k + i * 16384, rows);
      feed_v(&f, at_v + i * 16384, rows);
      cp_async_commit();
    }
    int slot = 0;
#line 186 "/kiln/templates/forward/ampere.tmpl.cu"
#pragma unroll
    for (int i = 0; i < 64; i++) o[i] = 0.0f;
#pragma unroll
    for (int t = 0; t < 2; t++) state_clear(&st[t]);
#line 191 "/kiln/templates/forward/ampere.tmpl.cu"
    if (!again) {
      cp_async_wait(1);
      sync_threads();
      load_q(held_q, q_lane);
    }

#line 198 "/kiln/templates/forward/ampere.tmpl.cu"
    int n = blocks - 1;
#line 212 "/kiln/templates/forward/ampere.tmpl.cu"
    /* Until every row has its reference; to the end in the exact pass. */
#pragma unroll 1
    for (; n >= 0; n--) {
      if (!(exact || n == blocks - 1 || (n + 1) * (i64)64 >= see.full)) break;
#line 223 "/kiln/templates/forward/ampere.tmpl.cu"
      cp_async_wait(0);
      sync_threads();
      const u32 free_slot = (u32)(slot == 0 ? 1 : slot - 1) * 16384;
      feed_k(&f, at_k + free_slot, n >= 1 ? 64 : 0);
      feed_v(&f, at_v + free_slot, n >= 1 ? 64 : 0);
      cp_async_commit();
#line 231 "/kiln/templates/forward/ampere.tmpl.cu"
      scores(s, held_q, k_lane + (u32)slot * 16384 + 0);
#line 233 "/kiln/templates/forward/ampere.tmpl.cu"
      if ((n + 1) * (i64)64 > see.full)
        mask_slice(s, n * 64 + 0, &a);
#line 259 "/kiln/templates/forward/ampere.tmpl.cu"
      careful_slice(o, s, st, c, shift, v_lane + (u32)slot * 16384 + 0);
#line 231 "/kiln/templates/forward/ampere.tmpl.cu"
      scores(s, held_q, k_lane + (u32)slot * 16384 + 4096);
#line 233 "/kiln/templates/forward/ampere.tmpl.cu"
      if ((n + 1) * (i64)64 > see.full)
        mask_slice(s, n * 64 + 32, &a);
#line 259 "/kiln/templates/forward/ampere.tmpl.cu"
      careful_slice(o, s, st, c, shift, v_lane + (u32)slot * 16384 + 4096);
#line 263 "/kiln/templates/forward/ampere.tmpl.cu"
      slot = slot == 1 ? 0 : slot + 1;
#line 265 "/kiln/templates/forward/ampere.tmpl.cu"
    }

#line 202 "/kiln/templates/forward/ampere.tmpl.cu"
    /* The biases take the place of the maxima. */
    if (!exact) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        st[i / 2].m[i % 2] = 0.0f - st[i / 2].m[i % 2] * c;
    }
#pragma unroll 1
    for (; n >= 0; n--) {
#line 223 "/kiln/templates/forward/ampere.tmpl.cu"
      cp_async_wait(0);
      sync_threads();
      const u32 free_slot = (u32)(slot == 0 ? 1 : slot - 1) * 16384;
      feed_k(&f, at_k + free_slot, n >= 1 ? 64 : 0);
      feed_v(&f, at_v + free_slot, n >= 1 ? 64 : 0);
      cp_async_commit();
#line 231 "/kiln/templates/forward/ampere.tmpl.cu"
      scores(s, held_q, k_lane + (u32)slot * 16384 + 0);
#line 257 "/kiln/templates/forward/ampere.tmpl.cu"
      steady_slice(o, s, st, c, v_lane + (u32)slot * 16384 + 0);
#line 231 "/kiln/templates/forward/ampere.tmpl.cu"
      scores(s, held_q, k_lane + (u32)slot * 16384 + 4096);
#line 257 "/kiln/templates/forward/ampere.tmpl.cu"
      steady_slice(o, s, st, c, v_lane + (u32)slot * 16384 + 4096);
#line 263 "/kiln/templates/forward/ampere.tmpl.cu"
      slot = slot == 1 ? 0 : slot + 1;
#line 265 "/kiln/templates/forward/ampere.tmpl.cu"
    }

#line 268 "/kiln/templates/forward/ampere.tmpl.cu"
    finish_sums(st);
    if (!exact && !holds(o, st) && (thread_index() & 31) == 0) sts_flag(smem + 32768, 1);
    /* Everyone must have finished with q, k and v, and no copy may still be on its way. */
    cp_async_wait(0);
    sync_threads();
    if (exact || !lds_flag(smem + 32768)) break;
    f.k += 128 * f.k_row; /* back to the first block */
    f.v += 128 * f.v_row;
  }

  /* o takes the place of k and v. Again: kept alive, the place would cost registers in the loop. */
  const Place y = place_of(block_index_again(), &a);
  float *lse = a.lse ? a.lse + y.head_index * a.seqlen_q : 0;
  finish_rows(o, st, smem + 0, lse, y.first, &a, exact, (float)a.shift);
  sync_threads();
  char *out = (char *)a.o + 2 * (y.batch * a.o_stride.batch + y.head * a.o_stride.head);
  store_rows(smem + 0, out, 2 * a.o_stride.row, y.first, a.seqlen_q);
}

#line 1 "/kiln/emulator"
static void kiln_emu_run_kiln_forward(void **params) {
  ForwardArgs p1;
  __builtin_memcpy(&p1, params[0], sizeof p1);
  kiln_forward(p1);
}
static const unsigned long kiln_emu_sizes_kiln_forward[] = {sizeof(ForwardArgs)};
typedef struct {
  const char *name;
  void (*run)(void **params);
  int num_params;
  const unsigned long *sizes;
  int talks;
} kiln_emu_entry;
EMU_EXPORT const kiln_emu_entry kiln_emu_entries[] = {
  {"kiln_forward", kiln_emu_run_kiln_forward, 1, kiln_emu_sizes_kiln_forward, 0},
  {0, 0, 0, 0, 0}};
EMU_EXPORT const unsigned long kiln_emu_api_size = sizeof(kiln_emu_api);
EMU_EXPORT void kiln_emu_init(const kiln_emu_api *api);
void kiln_emu_init(const kiln_emu_api *api) { kiln_emu = api; }
