/* ---- the walk ---- */

DEV Consumer consumer_of(u32 smem, int warp, int rank, Tile x, const BackwardArgs *a) {
  Consumer me;
  me.smem = smem;
  me.matrix = descriptor(smem, ${tile});
//@ if pair then
  me.own_columns = me.matrix + rank * ${2 * tile // 16};
//@ end
  me.warp = warp;
  me.lane = thread_index() & 31;
  me.row = warp % 4 * 16 + me.lane / 4;
  me.fragment = (warp % 4 * 16 + (me.lane & 15)) * 128 + ((me.lane >> 4 ^ (me.lane & 7)) << 4);
  const i64 block = ((i64)x.batch * a->num_heads + x.head_k * a->group) * a->m_blocks + x.m0;
  const char *workspace = (const char *)a->workspace;
  me.statistics = (const float *)(workspace + a->workspace_at[1]) + block * ${2 * block} + me.row;
  me.sums = (float *)(workspace + a->workspace_at[0]) + block * ${sums // 4} + warp % 4 * 128 +
            4 * me.lane + rank * ${pair and 16 * 512 or 0};
  return me;
}

//@ -- The arrays of dQ that consumer `group` forms one behind the other, and dK or dV at its side.
//@ local function declare(group, sum, n)
  float ${sum}[${n // 2}], ${group == 1 and "s" or "t"}[32];
//@   for i, piece in ipairs(dq[group]) do
  float dq${i}[${piece.n // 2}];
//@   end
#pragma unroll
  for (int i = 0; i < ${n // 2}; i++) ${sum}[i] = 0.0f;
  touch_f32x${n // 2}(${sum}); /* else the zeros come behind the fence */
//@ end
//@ -- A step that only begins, those that do both, and one that only ends what the last one began.
//@ local function open_step(kind)
//@   if kind == "first" then
    {
      const int i = 0;
//@   elseif kind == "steady" then
#pragma unroll 1
    for (int i = 1; i < steps; i++) {
//@   else
    {
      const int i = steps;
//@   end
//@   if kind ~= "last" then
      const int slot = i & 1;
//@     if num_stages == 2 then
      const int place = slot, turn = i >> 1 & 1;
//@     else
      const int place = 0, turn = i & 1;
//@     end
//@   end
//@   if kind ~= "first" then
      const int before = (i & 1) ^ 1;
//@   end
//@ end
//@ local function begin_dq(group)
//@   if pair then
      /* The sender, which has waited for ds_full, arrives there too. */
      bar_wait(peer_full(smem, before), (i - 1) >> 1 & 1);
//@   elseif group == 1 then
      bar_wait(ds_full(smem, before), (i - 1) >> 1 & 1);
//@   end
      issue_dq1_${group}(me, dq1, before);
//@ end
//@ -- behind: products that were started later; none in the last step
//@ local function end_dq(group, behind)
//@   local parts = dq[group]
//@   for i, piece in ipairs(parts) do
      wgmma_wait(${#parts - i + behind});
      touch_f32x${piece.n // 2}(dq${i});
//@     if i == #parts and behind > 0 then
      ${leave}(me, ds_empty(smem, before));
//@     end
//@     if i == 1 and deterministic then
      bar_wait(turn_full(smem, ${group - 1}), before); /* whose turn it is; before = i - 1 mod 2 */
//@     end
      add_part(me, dq${i}, ${piece.from // 8}, ${piece.n // 8});
//@   end
//@   if deterministic then
      sync_warp();
      arrive(me, turn_done(smem, ${group - 1}));
//@   end
//@   if behind > 0 then
      next_sum(me, x, m);
//@   end
//@ end
//@ local function next_step()
      if (++m == a->m_blocks) m = x.m0;
      me->statistics += (m == x.m0 ? x.m0 + 1 : 1) * (i64)${2 * block};
//@ end
/* Consumer 1: S, P, dV */
DEV void run_scores(Consumer *me, Tile x, const BackwardArgs *a) {
//@ declare(1, "dv", dv)
  const int steps = redux_max_i32(steps_of(x, a));
  const u32 smem = me->smem;
  const float c = a->scale_log2;
  int m = x.m0;
  if (steps > 0) {
    bar_wait(k_full(smem), 0);
//@ for _, kind in ipairs { "first", "steady", "last" } do
//@ if kind == "last" then
  }
  store_dv(me, dv, x, a); /* while dS of the last step is awaited */
  if (steps > 0) {
//@ end
//@ open_step(kind)
//@ if kind ~= "last" then
      u32 p[16];
      const float bias[2] = {ldg_f32(me->statistics), ldg_f32(me->statistics + 8)};
      bar_wait(q_full(smem, slot), i >> 1 & 1);
      issue_scores(me, s, slot);
//@ end
//@ if kind ~= "first" then begin_dq(1) end
//@ if kind ~= "last" then
      wgmma_wait(${kind == "first" and 0 or 1});
      touch_f32x32(s);
      ${leave}(me, q_empty(smem, slot));
      if (m < x.masked) mask_block(me, s, NEG_INFINITY, x, m, a);
      exponentials(p, s, bias, c);
//@ if kind ~= "first" then
      bar_wait(p_empty(smem), (i & 1) ^ 1);
//@ end
      store_block(me, ${at.p}, p);
      publish(me, p_full(smem));
//@ end
//@ if kind ~= "first" and dq[1][2] then
      issue_dq2_1(me, dq2, before);
//@ end
//@ if kind ~= "last" then
      bar_wait(p_full(smem), i & 1);
      bar_wait(do_full(smem, place), turn);
      issue_dv(me, dv, place);
//@ end
//@ if kind ~= "first" then end_dq(1, kind == "last" and 0 or 1) end
//@ if kind ~= "last" then
      wgmma_wait(0);
      touch_f32x${dv // 2}(dv);
      ${leave}(me, do_empty(smem, place));
      arrive(me, p_empty(smem));
//@ next_step()
//@ end
    }
//@ end
  }
}
/* Consumer 2: dP, dS, dK */
DEV void run_gradients(Consumer *me, Tile x, const BackwardArgs *a) {
//@ declare(2, "dk", dim)
  const int steps = redux_max_i32(steps_of(x, a));
  const u32 smem = me->smem;
  int m = x.m0;
  if (steps > 0) {
    bar_wait(v_full(smem), 0);
//@ for _, kind in ipairs { "first", "steady", "last" } do
//@ if kind == "last" then
  }
  store_dk(me, dk, x, a); /* while dS of the last step is awaited */
  if (steps > 0) {
//@ end
//@ open_step(kind)
//@ if kind ~= "last" then
      const float *own = me->statistics + ${block};
      const float delta[2] = {ldg_f32(own), ldg_f32(own + 8)};
      bar_wait(do_full(smem, place), turn);
      issue_gradients(me, t, place);
//@ end
//@ if kind ~= "first" then begin_dq(2) end
//@ if kind ~= "last" then
      bar_wait(p_full(smem), i & 1);
      wgmma_wait(${kind == "first" and 0 or 1});
      touch_f32x32(t);
      ${leave}(me, do_empty(smem, place));
#pragma unroll
      for (int j = 0; j < 32; j++) t[j] -= delta[j / 2 % 2];
//@ if causal and wide_exponent then
      if (m < x.masked) mask_block(me, t, 0.0f, x, m, a); /* it may be infinite where P is 0 */
//@ end
//@ if kind ~= "first" then
      bar_wait(ds_empty(smem, slot), (i >> 1 & 1) ^ 1);
//@ end
      differentiate(me, ${at.p}, ${at.ds} + slot * ${ds_bytes}, t);
      publish(me, ds_full(smem, slot));
      arrive(me, p_empty(smem));
//@ end
//@ if kind ~= "first" and dq[2][2] then
      issue_dq2_2(me, dq2, before);
//@ end
//@ if kind ~= "last" then
      bar_wait(ds_full(smem, slot), i >> 1 & 1);
      issue_dk(me, dk, slot);
//@ end
//@ if kind ~= "first" then end_dq(2, kind == "last" and 0 or 1) end
//@ if kind ~= "last" then
      wgmma_wait(0);
      touch_f32x${dim // 2}(dk);
      ${leave}(me, q_empty(smem, slot));
//@ next_step()
//@ end
    }
//@ end
  }
}
