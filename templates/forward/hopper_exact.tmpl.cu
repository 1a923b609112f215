/* ---- exact: the running maximum, tile by tile until the stream ends ---- */

/* Few tiles come here if any: one block at a time, no overlap within a warpgroup, so that there is
 * little to compile. */
DEV void exact_step(Consumer *me, float *s, float *o, RowState *st, Share x, int n) {
  const float shift = ${shift};
  float factor[2], ref[2];
  u32 p[${block_n // 4}];
  bar_wait(k_full(me->smem, me->k_ring.slot), me->k_ring.parity);
  issue_scores(me, s);
  wgmma_wait(0);
  touch_f32x${block_n // 2}(s);
  free_k(me);
  mask_block(me, s, n, row_of(me, x));
  raise_maximum(s, ${block_n}, st, factor, ref, me->c);
  exact_exponentials(s, ref, me->c, shift);
  sum_rows(s, st->l);
  pack_probabilities(p, s);
#pragma unroll
  for (int i = 0; i < ${dv16 // 2}; i++) o[i] *= factor[i / 2 % 2];
  bar_wait(v_full(me->smem, me->v_ring.slot), me->v_ring.parity);
  issue_output(me, o, p);
  wgmma_wait(0);
  touch_f32x${dv16 // 2}(o);
  touch_u32x${block_n // 4}(p);
  free_v(me);
}

DEV void run_exact(Consumer *me) {
  const float shift = ${shift};
  float s[${block_n // 2}], o[${dv16 // 2}], inverse[2], lse[2];
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
    for (int i = 0; i < ${dv16 // 2}; i++) o[i] = 0.0f;
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
//@ if not o_staged then
    leave_q(me, x.slot);
//@ end
  }
}
