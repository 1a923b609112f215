/* ---- consumers: a warpgroup each ---- */

typedef struct {
  u32 smem;
  int group, lane, warp_row; /* warp_row: first of the warp's 16 keys within the tile */
  /* Lower words of descriptors: of K and V by row (this group's 64 keys), of the first places of
   * the rings, by row and by column; of dS; of what dQ multiplies it by. */
  u32 k, v, q_rows, do_rows, q_columns, do_columns, ds, k_columns;
  u32 statistics, ones;
  u32 ones_s[4];             /* the first operand that takes -lse / scale to S */
  float *sums;               /* this lane's part of the dQ that is put out next */
} Consumer;

/* Lower word of a shared-memory matrix descriptor, 128-byte swizzle; panel_stride: bytes between
 * groups of 64 columns of a tile that is read by columns. */
DEV u32 descriptor(u32 address, u32 panel_stride) {
  return (address >> 4 & 0x3fff) | panel_stride >> 4 << 16;
}

/* ---- products; all are started only ---- */

//@ local function by_row(k, rows) return k // 4 * rows * 8 + k % 4 * 2 end
/* s (64 keys x ${block_m} queries) = K Q^T - lse / scale, of the ring's place. The products first,
 * in the forward pass's order: then S is what lse was made of, and of large scores only the
 * difference is rounded. */
DEV void issue_scores(const Consumer *me, float *s, int slot) {
  const u32 q = me->q_rows + slot * ${q_panels.total // 16};
  const u32 statistics = me->statistics + slot * ${block_m};
  wgmma_fence();
//@ for k = 0, d16 // 16 - 1 do
//@ local product = ("wgmma_%s_ss_n%d_%s"):format(k == 0 and "set" or "add", block_m, dtype)
  ${product}(s, me->k, ${by_row(k, block_n)}, q, ${by_row(k, block_m)});
//@ end
  wgmma_add_rs_n${block_m}_bf16_flat(s, me->ones_s, statistics, 0);
  wgmma_commit();
}
/* t (64 keys x ${block_m} queries) = V dO^T - delta */
DEV void issue_gradients(const Consumer *me, float *t, int slot) {
  const u32 dout = me->do_rows + slot * ${do_panels.total // 16};
  const u32 statistics = me->statistics + slot * ${block_m};
  wgmma_fence();
//@ for k = 0, dv16 // 16 - 1 do
//@ local product = ("wgmma_%s_ss_n%d_%s"):format(k == 0 and "set" or "add", block_m, dtype)
  ${product}(t, me->v, ${by_row(k, block_n)}, dout, ${by_row(k, block_m)});
//@ end
  wgmma_add_ss_n${block_m}_bf16_flat(t, me->ones, 0, statistics, 0);
  wgmma_commit();
}
//@ for _, t in ipairs { { name = "dv", of = "dout", columns = "do_columns", n = dv16,
//@                        bytes = do_panels.total },
//@                      { name = "dk", of = "q", columns = "q_columns", n = d16,
//@                        bytes = q_panels.total } } do
/* ${t.name} (64 keys x ${t.n}) += p ${t.of} */
DEV void issue_${t.name}(const Consumer *me, float *${t.name}, const u32 *p, int slot) {
  const u32 x = me->${t.columns} + slot * ${t.bytes // 16};
  wgmma_fence();
//@ for k = 0, block_m // 16 - 1 do
  wgmma_add_rs_n${t.n}_${dtype}_t(${t.name}, p + ${4 * k}, x, ${128 * k});
//@ end
  wgmma_commit();
}
//@ end
//@ if dq_mode == "rows" then
/* dq (this group's 64 queries x ${dq_cols}) = dS K */
//@ elseif dq_mode == "columns" then
/* dq (${block_m} queries x this group's 64 columns) = dS K */
//@ else
/* dq (${block_m} queries x ${dq_cols}) = dS K over this group's keys */
//@ end
DEV void issue_dq(const Consumer *me, float *dq, int buffer) {
  const u32 ds = me->ds + buffer * ${ds_panels.total // 16};
  wgmma_fence();
//@ for k = 0, (dq_mode == "keys" and 64 or block_n) // 16 - 1 do
//@ local product = ("wgmma_%s_ss_n%d_%s_t"):format(k == 0 and "set" or "add", dq_cols, dtype)
  ${product}(dq, ds, ${by_row(k, block_m)}, me->k_columns, ${128 * k});
//@ end
  wgmma_commit();
}

/* ---- between the products ---- */

/* Puts `hidden` at keys past the end${causal and " and those past a query's diagonal" or ""}: rows
 * are keys, columns queries of block m. */
DEV void mask_block(const Consumer *me, float *s, float hidden, Tile x, int m,
                    const BackwardArgs *a) {
  const int key = x.n * ${block_n} + me->warp_row + me->lane / 4;
//@ if causal then
  /* The first query that sees the key, from this lane's first column on */
  const i64 from = (i64)key - a->seqlen_k + a->seqlen_q - (i64)m * ${block_m} - 2 * (me->lane & 3);
  const int from0 = from < 0 ? 0 : from > ${block_m} ? ${block_m} : (int)from;
  const int from1 = from + 8 < 0 ? 0 : from + 8 > ${block_m} ? ${block_m} : (int)(from + 8);
//@ else
  const int from0 = 0, from1 = 0;
  (void)m;
//@ end
  const int first0 = key < a->seqlen_k ? from0 : ${block_m};
  const int first1 = key + 8 < a->seqlen_k ? from1 : ${block_m};
#pragma unroll
  for (int j = 0; j < ${block_m // 8}; j++) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      s[4 * j + i] = 8 * j + i >= first0 ? s[4 * j + i] : hidden;
      s[4 * j + 2 + i] = 8 * j + i >= first1 ? s[4 * j + 2 + i] : hidden;
    }
  }
}
/* s <- 2^(s c) */
DEV void exponentials(float *s, float c) {
#pragma unroll
  for (int i = 0; i < ${block_m // 2}; i++) s[i] = ex2(s[i] * c);
}
/* Rounded to ${dtype}: accumulators and first operands have the same layout. */
DEV void pack_block(u32 *to, const float *from) {
#pragma unroll
  for (int i = 0; i < ${block_m // 4}; i++) to[i] = ${pack}(from[2 * i], from[2 * i + 1]);
}
/* Lays dS^T into shared memory as dS: rows are queries, a panel of 64 keys for each group. */
DEV void store_ds(const Consumer *me, const u32 *g, int buffer) {
  const int row = (me->lane >> 4) * 8 + (me->lane & 7);
  const int chunk = me->warp_row % 64 / 8 + (me->lane >> 3 & 1);
  const u32 panel = me->smem + ${at.ds} + buffer * ${ds_panels.total} +
                    me->group * ${ds_panels.bytes};
  const u32 to = panel + row * 128 + ((chunk ^ (row & 7)) << 4);
#pragma unroll
  for (int j = 0; j < ${block_m // 16}; j++) stmatrix_x4_trans(to + 2048 * j, g + 4 * j);
}
DEV void arrive(const Consumer *me, u32 bar) {
  if (me->lane == 0) bar_arrive(bar);
}
//@ if deterministic then
/* Leaves the part of dQ to its adder. */
DEV void put_dq(const Consumer *me, const float *dq, int i) {
  const u32 to = me->smem + ${at.dq} + me->warp_row / 16 * ${128 * dq_regs} + 16 * me->lane;
  bar_wait(dq_empty(me->smem, me->group), (i & 1) ^ 1);
#pragma unroll
  for (int j = 0; j < ${dq_regs // 4}; j++) {
    const u32 w[4] = {as_u32(dq[4 * j]), as_u32(dq[4 * j + 1]), as_u32(dq[4 * j + 2]),
                      as_u32(dq[4 * j + 3])};
    sts_u32x4(to + 512 * j, w);
  }
  fence_async();
  sync_warp();
  arrive(me, dq_full(me->smem, me->group));
}
//@ else
/* Adds the part of dQ to the sum in global memory. */
DEV void put_dq(const Consumer *me, const float *dq) {
#pragma unroll
  for (int j = 0; j < ${dq_regs // 4}; j++) red_add_f32x4(me->sums + 128 * j, dq + 4 * j);
}
//@ end

/* ---- dK and dV ---- */

//@ for _, t in ipairs { { name = "dk", n = d16, dim = dim, scale = "a->softmax_scale" },
//@                      { name = "dv", n = dv16, dim = dv } } do
DEV void store_${t.name}(const Consumer *me, const float *${t.name}, Tile x,
                    const BackwardArgs *a) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = x.n * ${block_n} + me->warp_row + me->lane / 4 + 8 * r;
    char *to = (char *)a->${t.name} + 2 * (x.batch * a->${t.name}_stride.batch +
                                  row * a->${t.name}_stride.row +
                                  x.head_k * a->${t.name}_stride.head + 8 * (me->lane & 3));
    /* Chunks of the row from this lane's first on */
    const int chunks = row < a->seqlen_k ? ${t.dim // 8} - (me->lane & 3) : 0;
#pragma unroll
    for (int j = 0; j < ${(t.n + 31) // 32}; j++) {
      u32 w[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (4 * j + i >= ${t.n // 8}) continue;
        const float *y = ${t.name} + 16 * j + 4 * i + 2 * r;
//@ if t.scale then
        w[i] = ${pack}(y[0] * ${t.scale}, y[1] * ${t.scale});
//@ else
        w[i] = ${pack}(y[0], y[1]);
//@ end
      }
      quad_transpose(w, me->lane);
      if (4 * j < chunks) stg_u32x4(to + 64 * j, w);
    }
  }
}
//@ end

/* ---- the walk ---- */

DEV Consumer consumer_of(u32 smem, int warp, Tile x, const BackwardArgs *a) {
  Consumer me;
  me.smem = smem;
  me.group = warp / 4 - 1;
  me.lane = thread_index() & 31;
  me.warp_row = (warp - 4) * 16;
  me.k = descriptor(smem + ${at.k} + me.group * 8192, 0);
  me.v = descriptor(smem + ${at.v} + me.group * 8192, 0);
  me.q_rows = descriptor(smem + ${at.q}, 0);
  me.do_rows = descriptor(smem + ${at["do"]}, 0);
  me.q_columns = descriptor(smem + ${at.q}, ${q_panels.bytes});
  me.do_columns = descriptor(smem + ${at["do"]}, ${do_panels.bytes});
//@ if dq_mode == "rows" then
  me.ds = descriptor(smem + ${at.ds} + me.group * 8192, 0);
  me.k_columns = descriptor(smem + ${at.k}, ${k_panels.bytes});
//@ elseif dq_mode == "columns" then
  me.ds = descriptor(smem + ${at.ds}, 0);
  me.k_columns = descriptor(smem + ${at.k} + me.group * ${k_panels.bytes}, ${k_panels.bytes});
//@ else
  me.ds = descriptor(smem + ${at.ds} + me.group * ${ds_panels.bytes}, 0);
  me.k_columns = descriptor(smem + ${at.k} + me.group * 8192, ${k_panels.bytes});
//@ end
  me.statistics = descriptor(smem + ${at.statistics}, 0);
  me.ones = descriptor(smem + ${at.ones}, 128);
  const int quad = me.lane & 3;
  me.ones_s[0] = me.ones_s[1] = quad == 0 ? 0x3f803f80u : quad == 1 ? 0x3f80u : 0;
  me.ones_s[2] = me.ones_s[3] = 0;
  const i64 block = ((i64)x.batch * a->num_heads + x.head_k * a->group) * a->m_blocks + x.m0;
//@ local part = dq_mode == "keys" and "warp % 4" or "(warp - 4)"
  me.sums = (float *)((char *)a->workspace + a->workspace_at[0] + block * ${dq_bytes}) +
            ${part} * ${32 * dq_regs} + 4 * me.lane;
  return me;
}

DEV void consume(u32 smem, int warp, Tile x, const BackwardArgs *a) {
  float s[${block_m // 2}], t[${block_m // 2}], dk[${d16 // 2}], dv[${dv16 // 2}];
  u32 p[${block_m // 4}], g[${block_m // 4}];
  const int steps = redux_max_i32(steps_of(x, a));
  Consumer me = consumer_of(smem, warp, x, a);
  const float c = a->scale_log2;
  int m = x.m0;
#pragma unroll
  for (int i = 0; i < ${d16 // 2}; i++) dk[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < ${dv16 // 2}; i++) dv[i] = 0.0f;
  if (steps > 0) {
    bar_wait(k_full(smem), 0);
    bar_wait(q_full(smem, 0), 0);
//@ if causal then
    /* Half of the diagonal's tiles: no query of the first block sees a key of this group. */
    const i64 unseen = (i64)x.n * ${block_n} + 64 * me.group - a->seqlen_k + a->seqlen_q -
                       ((i64)m + 1) * ${block_m};
    if (redux_max_i32(unseen >= 0)) {
#pragma unroll
      for (int j = 0; j < ${block_m // 4}; j++) g[j] = 0;
      store_ds(&me, g, 0);
      fence_async();
      sync_warp();
      arrive(&me, ds_full(smem, 0));
      if (++m == a->m_blocks) m = x.m0;
      if (steps > 1) bar_wait(q_full(smem, 1), 0);
      issue_scores(&me, s, steps > 1);
      bar_wait(v_full(smem), 0);
      if (steps > 1) bar_wait(do_full(smem, 1), 0);
      wgmma_wait(0);
      touch_f32x${block_m // 2}(s);
      arrive(&me, q_empty(smem, 0));
    } else {
      issue_scores(&me, s, 0);
//@ else
    {
      issue_scores(&me, s, 0);
//@ end
      bar_wait(v_full(smem), 0);
      wgmma_wait(0);
      touch_f32x${block_m // 2}(s);
      bar_wait(do_full(smem, 0), 0);
//@ for _, first in ipairs { true, false } do
//@ if first then
      const int i = 0;
//@ else
#pragma unroll 1
    for (int i = 1; i < steps; i++) {
//@ end
      const int slot = i & 1;
      /* S^T of the next step; after the last one it is that of the last again, and not used. */
      const int more = i + 1 < steps, next = more ? slot ^ 1 : slot, next_parity = (i + 1) >> 1 & 1;
//@ if not first then
      float dq[${dq_regs}];
//@ end
      issue_gradients(&me, t, slot);
      if (m < x.masked) mask_block(&me, s, NEG_INFINITY, x, m, a);
      exponentials(s, c);
      pack_block(p, s);
      issue_dv(&me, dv, p, slot);
      wgmma_wait(1);
      touch_f32x${block_m // 2}(t);
//@ if causal and wide_exponent then
      if (m < x.masked) mask_block(&me, t, 0.0f, x, m, a); /* it may be infinite where P is 0 */
//@ end
#pragma unroll
      for (int j = 0; j < ${block_m // 2}; j++) t[j] *= s[j];
      pack_block(g, t);
//@ if not first then
      bar_wait(ds_empty(smem, slot), (i >> 1 & 1) ^ 1);
//@ end
      store_ds(&me, g, slot);
      fence_async();
      sync_warp();
      arrive(&me, ds_full(smem, slot));
//@ if not first then
      bar_wait(ds_full(smem, slot ^ 1), (i - 1) >> 1 & 1);
      issue_dq(&me, dq, slot ^ 1);
//@ end
      issue_dk(&me, dk, g, slot);
      wgmma_wait(1);
      touch_u32x${block_m // 4}(p);
      touch_f32x${dv16 // 2}(dv);
//@ if not first then
      touch_f32x${dq_regs}(dq);
      arrive(&me, ds_empty(smem, slot ^ 1));
//@ if deterministic then
      put_dq(&me, dq, i - 1);
//@ else
      put_dq(&me, dq);
      me.sums += ${dq_bytes // 4};
      if (m == x.m0) me.sums += (i64)x.m0 * ${dq_bytes // 4};
//@ end
//@ end
      if (++m == a->m_blocks) m = x.m0;
      if (more) bar_wait(q_full(smem, next), next_parity);
      issue_scores(&me, s, next);
      if (more) bar_wait(do_full(smem, next), next_parity);
      wgmma_wait(0);
      touch_f32x${block_m // 2}(s);
      touch_f32x${d16 // 2}(dk);
      touch_u32x${block_m // 4}(g);
      arrive(&me, q_empty(smem, slot));
    }
//@ end
    const int last = steps - 1;
    float dq[${dq_regs}];
    bar_wait(ds_full(smem, last & 1), last >> 1 & 1);
    issue_dq(&me, dq, last & 1);
    wgmma_wait(0);
    touch_f32x${dq_regs}(dq);
    put_dq(&me, dq${deterministic and ", last" or ""});
  }
  store_dv(&me, dv, x, a);
  store_dk(&me, dk, x, a);
}
