/* ---- fast: no running maximum ---- */

//@ if wide_exponent then
/* A row's reference m is the maximum of some scores of its first block, and p = 2^((s - m) c) from
 * then on, however large later scores are: bf16 and fp32 share the exponent range, p may exceed 1
 * by far, and the common factor leaves with 1 / l.
//@ else
/* A row's reference m is the maximum of some scores of its first block, and
 * p = 2^((s - m) c + ${lead}) from then on. fp16 ends at 2^16 and at 2^-24: scores may rise by
 * ${16 - lead} powers of two, and what lies less than ${24 + lead} below the reference counts. The
 * common factor leaves with 1 / l.
//@ end
 * So steady blocks need no maximum, no rescaling and no wait before the exponentials.
 *
 * What this cannot hold is flagged when the tile is stored: sums near the end of the range, any
 * output that is not finite (p or p v overflowed, or v holds such values), scores so large that the
 * rounding of m c shows, rows with l = 0. Blocks that hide keys take the exact maximum, up to the
//@ if wide_exponent then
 * first block of which every row has seen a key. */
//@ else
 * last that hides any; the next one, which every row sees whole, raises the references of rows
 * that saw a few keys only. */
//@ end
typedef struct {
  RowState row;
  float bias[2]; /* -m c + ${lead} */
} FastState;

/* p <- s as pack_probabilities does, sums to l. They start from a zero that is read from shared
 * memory only now, which keeps the assembler from moving the additions up among the
 * exponentials, where each would wait for its operand (H200, head_dim 128: 735 against 674
 * TFLOP/s). */
DEV void pack_and_sum(u32 *p, const float *s, float *l, float zero) {
  float sum[4] = {s[0] + zero, s[1] + zero, s[2] + zero, s[3] + zero};
  pack_probabilities(p, s);
#pragma unroll
  for (int j = 1; j < ${block_n // 8}; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] += s[4 * j + i];
  }
  l[0] += sum[0] + sum[1];
  l[1] += sum[2] + sum[3];
}

/* s <- 2^(s c + bias) */
DEV void exponentials(float *s, const float *bias, float c) {
#pragma unroll
  for (int j = 0; j < ${score_cols // 8}; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[4 * j + i] = ex2(fmaf(s[4 * j + i], c, bias[i / 2]));
  }
}

/* A block whose first `columns` columns raise the reference, after its mask if it has one. */
DEV void careful_step(const Consumer *me, float *s, FastState *st, float *factor, int columns) {
  float ref[2];
  raise_maximum(s, columns, &st->row, factor, ref, me->c);
#pragma unroll
  for (int r = 0; r < 2; r++) st->bias[r] = -ref[r] * me->c + ${lead}.0f;
  exponentials(s, st->bias, me->c);
}

/* The first block of a tile. Where nothing is hidden, ${first_columns} columns are enough. */
DEV void first_step(const Consumer *me, float *s, FastState *st, int n, Share x) {
  float factor[2], ref[2];
  state_clear(&st->row);
  if ((n + 1) * (i64)${block_n} > x.full) {
    mask_block(me, s, n, row_of(me, x));
    careful_step(me, s, st, factor, ${block_n});
  } else {
    raise_maximum(s, ${first_columns}, &st->row, factor, ref, me->c);
#pragma unroll
    for (int r = 0; r < 2; r++) st->bias[r] = -st->row.m[r] * me->c + ${lead}.0f;
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
  for (int i = 0; i < ${dv16 // 2}; i++) probe = fmaf(o[i], 0.0f, probe);
  store_rows(me, o, inverse, x);
  store_lse(me, lse, x);
  if (any_sync(!(good && probe == 0.0f)) && me->lane == 0) {
    sts_flag(failed_tile(me->smem, round), 1);
    sts_flag(any_failed(me->smem), 1);
  }
}

DEV void run_fast(Consumer *me) {
  float s[${block_n // 2}], o[${dv16 // 2}];
  u32 p[${block_n // 4}];
  FastState st;
  Share x = take_tile(me), before = x;
  bar_wait(k_full(me->smem, me->k_ring.slot), me->k_ring.parity);
  issue_scores(me, s);
  wgmma_wait(0);
  touch_f32x${block_n // 2}(s);

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
//@ if not o_staged then
    if (n == 0) leave_q(me, x.slot);
//@ end
    first_step(me, s, &st, n, x);
    pack_and_sum(p, s, st.row.l, 0.0f);
#pragma unroll
    for (int i = 0; i < ${dv16 // 2}; i++) o[i] = 0.0f;
//@ local loops = causal and { true } or {} -- without a mask only the first block hides keys
//@ if not wide_exponent then loops[#loops + 1] = false end
//@ if #loops > 0 then
    /* Until every row has its reference. */
    float factor[2];
//@ end
//@ for _, masked in ipairs(loops) do
//@ local known = masked and "x.full" or ("x.full - %d"):format(block_n - 1)
#pragma unroll 1
    while (n > 0 && n * (i64)${block_n} >= ${known}) {
      n--;
      issue_both(me, s, o, p);
      wgmma_wait(1);
      touch_f32x${block_n // 2}(s);
      free_k(me);
//@ if not o_staged then
      if (n == 0) leave_q(me, x.slot);
//@ end
//@ if masked then
      mask_block(me, s, n, row_of(me, x));
//@ end
      careful_step(me, s, &st, factor, ${masked and block_n or second_columns});
      wgmma_wait(0);
      touch_f32x${dv16 // 2}(o);
      touch_u32x${block_n // 4}(p);
      free_v(me);
#pragma unroll
      for (int i = 0; i < ${dv16 // 2}; i++) o[i] *= factor[i / 2 % 2];
      pack_and_sum(p, s, st.row.l, 0.0f);
    }
//@ end
    /* Steady state. */
#pragma unroll 1
    while (n > 0) {
      n--;
      issue_both(me, s, o, p);
      wgmma_wait(1);
      touch_f32x${block_n // 2}(s);
      free_k(me);
//@ if not o_staged then
      if (n == 0) leave_q(me, x.slot);
//@ end
      exponentials(s, st.bias, me->c);
      wgmma_wait(0);
      touch_f32x${block_n // 2}(s);
      touch_f32x${dv16 // 2}(o);
      touch_u32x${block_n // 4}(p);
      free_v(me);
      pack_and_sum(p, s, st.row.l, lds_f32(me->smem + ${at.zero}));
    }
    round++;
    before = x;
    x = take_tile(me);
    if (x.blocks > 0) {
      issue_both(me, s, o, p);
      wgmma_wait(0);
      touch_f32x${block_n // 2}(s);
    } else {
      bar_wait(v_full(me->smem, me->v_ring.slot), me->v_ring.parity);
      issue_output(me, o, p);
      wgmma_wait(0);
    }
    touch_f32x${dv16 // 2}(o);
    touch_u32x${block_n // 4}(p);
  }
  leave_q(me, x.slot);
}
