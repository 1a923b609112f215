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
//@ if deterministic then
  me.semaphore = (u32 *)(workspace + a->workspace_at[2]) + ${pair and 4 or 2} * block + 2 * rank +
                 warp / 4 - 1;
//@ end
  return me;
}

//@ -- What a role does for each of the arrays of dK, dV or dQ that it forms.
//@ local function declare(t, group)
//@   for i, piece in ipairs(pieces[t][group]) do
  float ${t}${i}[${piece.n // 2}];
#pragma unroll
  for (int i = 0; i < ${piece.n // 2}; i++) ${t}${i}[i] = 0.0f;
  touch_f32x${piece.n // 2}(${t}${i}); /* else the zeros come behind the fence */
//@   end
//@ end
//@ local function touch(t, group, from, to)
//@   for i = from or 1, to or #pieces[t][group] do
      touch_f32x${pieces[t][group][i].n // 2}(${t}${i});
//@   end
//@ end
//@ local function add(group, i)
//@   local piece = pieces.dq[group][i]
      add_part(me, dq${i}, ${piece.from // 8}, ${piece.n // 8});
//@ end
//@ local function store(group)
//@   for _, t in ipairs { "dv", "dk" } do
//@     for i, piece in ipairs(pieces[t][group]) do
  store_${t}(me, ${t}${i}, ${piece.from}, ${piece.n // 8}, x, a);
//@     end
//@   end
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
      const int slot = i & 1, before = slot ^ 1;
//@   if kind ~= "last" then
//@     if num_stages == 2 then
      const int place = slot, turn = i >> 1 & 1;
//@     else
      const int place = 0, turn = i & 1;
//@     end
//@   else
      (void)slot;
//@   end
//@   if kind == "first" then
      (void)before;
//@   end
//@ end
//@ local function end_step(group)
      wgmma_wait(0);
//@   touch("dv", group)
      ${leave_q}(me, do_empty(smem, place));
      arrive(me, p_empty(smem));
      if (++m == a->m_blocks) m = x.m0;
      me->statistics += (m == x.m0 ? x.m0 + 1 : 1) * (i64)${2 * block};
//@ end
/* Consumer 1: S and P */
DEV void run_scores(Consumer *me, Tile x, const BackwardArgs *a) {
//@ local parts = #pieces.dq[1]
//@ declare("dk", 1)
//@ declare("dv", 1)
//@ for i, piece in ipairs(pieces.dq[1]) do
  float dq${i}[${piece.n // 2}];
//@ end
  float s[32];
  const int steps = redux_max_i32(steps_of(x, a));
  const u32 smem = me->smem;
  const float c = a->scale_log2;
  int m = x.m0;
  if (steps > 0) {
    bar_wait(k_full(smem), 0);
//@ for _, kind in ipairs { "first", "steady", "last" } do
//@ open_step(kind)
//@ if kind ~= "last" then
      u32 p[16];
      const float bias[2] = {ldg_f32(me->statistics), ldg_f32(me->statistics + 8)};
      bar_wait(q_full(smem, slot), i >> 1 & 1);
      issue_scores(me, s, slot);
//@ end
//@ if kind ~= "first" then
      bar_wait(ds_full(smem, before), (i - 1) >> 1 & 1);
      issue_dk_1(me, ${names("dk", 1, "%s")}, before);
//@ if pair then
      bar_wait(peer_full(smem, before), (i - 1) >> 1 & 1);
//@ end
      issue_dq1_1(me, dq1, before);
//@ end
//@ if kind ~= "last" then
      wgmma_wait(${kind == "first" and 0 or 2});
      touch_f32x32(s);
      if (m < x.masked) mask_block(me, s, x, m, a);
      exponentials(p, s, bias, c);
      bar_wait(p_empty(smem), (i & 1) ^ 1);
      store_block(me, ${at.p}, p);
      publish(me, p_full(smem));
//@ end
//@ if kind ~= "first" and parts == 2 then
      issue_dq2_1(me, dq2, before);
//@ end
//@ if kind ~= "last" then
      bar_wait(p_full(smem), i & 1);
      bar_wait(do_full(smem, place), turn);
      issue_dv_1(me, ${names("dv", 1, "%s")}, place);
//@ end
//@ if kind ~= "first" then
      wgmma_wait(${parts - 1 + (kind == "last" and 0 or 1)});
//@ touch("dk", 1)
//@ touch("dq", 1, 1, 1)
      ${leave_q}(me, q_empty(smem, before));
//@ if deterministic then
      begin_sum(me, x, m, a);
//@ end
//@ add(1, 1)
//@ if parts == 2 then
      wgmma_wait(${kind == "last" and 0 or 1});
//@ touch("dq", 1, 2)
//@ add(1, 2)
//@ end
      ${leave_ds}(me, ds_empty(smem, before));
//@ if deterministic then
      end_sum(me);
//@ end
      next_sum(me, x, m);
//@ end
//@ if kind ~= "last" then end_step(1) end
    }
//@ end
  }
//@ store(1)
}
/* Consumer 2: dP and dS */
DEV void run_gradients(Consumer *me, Tile x, const BackwardArgs *a) {
//@ parts = #pieces.dq[2]
//@ declare("dk", 2)
//@ declare("dv", 2)
//@ for i, piece in ipairs(pieces.dq[2]) do
  float dq${i}[${piece.n // 2}];
//@ end
  float t[32];
  const int steps = redux_max_i32(steps_of(x, a));
  const u32 smem = me->smem;
  int m = x.m0;
  if (steps > 0) {
    bar_wait(k_full(smem), 0);
    bar_wait(v_full(smem), 0);
//@ for _, kind in ipairs { "first", "steady", "last" } do
//@ open_step(kind)
//@ if kind ~= "last" then
      const float *own = me->statistics + ${block};
      const float delta[2] = {ldg_f32(own), ldg_f32(own + 8)};
//@ end
//@ if kind ~= "first" then
      bar_wait(q_full(smem, before), (i - 1) >> 1 & 1);
      bar_wait(ds_full(smem, before), (i - 1) >> 1 & 1);
//@ if pair then
      issue_dk_2(me, ${names("dk", 2, "%s")}, before);
      bar_wait(peer_full(smem, before), (i - 1) >> 1 & 1);
      issue_dq1_2(me, dq1, before);
//@ else
      issue_dq1_2(me, dq1, before);
      issue_dk_2(me, ${names("dk", 2, "%s")}, before);
      wgmma_wait(1);
//@ touch("dq", 2, 1, 1)
//@ if deterministic then
      begin_sum(me, x, m, a);
//@ end
//@ add(2, 1)
//@ if parts == 2 then
      issue_dq2_2(me, dq2, before);
//@ end
//@ end
//@ end
//@ if kind ~= "last" then
      bar_wait(do_full(smem, place), turn);
      issue_gradients(me, t, place);
//@ end
//@ if kind ~= "first" then
      wgmma_wait(${kind == "last" and 0 or 1});
//@ touch("dk", 2)
//@ touch("dq", 2, pair and 1 or 2)
      ${leave_q}(me, q_empty(smem, before));
      ${leave_ds}(me, ds_empty(smem, before));
//@ if pair then
//@ if deterministic then
      begin_sum(me, x, m, a);
//@ end
//@ add(2, 1)
//@ elseif parts == 2 then
//@ add(2, 2)
//@ end
//@ if deterministic then
      end_sum(me);
//@ end
      next_sum(me, x, m);
//@ end
//@ if kind ~= "last" then
      bar_wait(p_full(smem), i & 1);
      issue_dv_2(me, ${names("dv", 2, "%s")}, place);
      wgmma_wait(1);
      touch_f32x32(t);
      bar_wait(ds_empty(smem, slot), (i >> 1 & 1) ^ 1);
      differentiate(me, ${at.p}, ${at.ds} + slot * ${ds_bytes}, t, delta);
      publish(me, ds_full(smem, slot));
//@ end
//@ if kind ~= "last" then end_step(2) end
    }
//@ end
  }
//@ store(2)
}
