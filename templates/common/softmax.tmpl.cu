/* Online softmax over scores in mma fragments. A thread holds rows g and g + 8 of a 16-row tile
 * (g = lane / 4) and columns 8 j + 2 (lane & 3) + {0, 1}; four neighbouring lanes share a row.
 *
 * m is the running maximum of the raw scores and l this thread's part of the sum of p.
 * p = 2^((s - m) c - shift), with c = scale log2(e), so p is 2^-shift at the maximum exactly.
//@ if wide_exponent then
 * shift = ceil(log2(seqlen_k)) keeps sum(p) <= 1: sums of p v cannot overflow, whatever finite v
 * holds. bf16 has the exponent range of fp32, so small p lose nothing.
//@ else
 * fp16 has five exponent bits: shift = -15 puts the maximum at 2^15, so that p down to 2^-39 of it
 * count; |v| <= 65504 leaves the fp32 sums of p v far from overflow.
//@ end
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
  for (int j = 0; j < ${score_cols // 8}; j++) {
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
  for (int j = 0; j < ${score_cols // 8}; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[4 * j + i] = ex2((s[4 * j + i] - ref[i / 2]) * c - shift);
  }
}

/* l += this thread's part of the block's sums */
DEV void sum_rows(const float *s, float *l) {
#pragma unroll
  for (int j = 0; j < ${score_cols // 8}; j++) {
#pragma unroll
    for (int r = 0; r < 2; r++) l[r] += s[4 * j + 2 * r] + s[4 * j + 2 * r + 1];
  }
}

DEV int sees_keys(i64 row, const ForwardArgs *a) {
//@ if causal then
  return a->seqlen_k > 0 && row + a->seqlen_k >= a->seqlen_q;
//@ else
  return a->seqlen_k > 0;
//@ end
}

/* 1 / l by IEEE division, so that a power of two stays one: a row that sees one key returns v
 * exactly. A row that sees no key has l = 0 and gets zeros; one that sees scores of -inf alone gets
 * NaN, as its softmax is 0 / 0. */
DEV float row_inverse(float l, int sees_keys) { return l == 0.0f && !sees_keys ? 0.0f : 1.0f / l; }
DEV float row_lse(float m, float l, float scale, float shift) {
  return l == 0.0f ? NEG_INFINITY : m * scale + (lg2(l) + shift) * 0.693147181f;
}
