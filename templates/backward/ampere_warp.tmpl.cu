/* ---- what a warp computes ----
 *
 * Included by ampere.tmpl.cu. Its place in the grid of each product:
//@ for _, p in ipairs({ { "scores", s }, { "dk", dk }, { "dv", dv }, { "dq", dq } }) do
 *   ${p[1]}: ${p[2].rows} x ${p[2].cols} warps, each ${p[2].row_tiles} x ${p[2].col_tiles} tiles
//@ end
 */

//@ -- The address of a chunk further in a lane's row: the swizzle moves it within 128 bytes. The
//@ -- lane's own chunk has none of the bits of `chunks`.
//@ local function along(rows, at, chunks)
//@   local low = ("(16 * (%s) & %d)"):format(chunks, 16 * rows.mask)
//@   return ("((%s) ^ %s) + (16 * (%s) - %s)"):format(at, low, chunks, low)
//@ end
//@ local layouts = { { "qk", qk_rows }, { "v", v_rows }, { "p", p_rows } }
//@ for _, t in ipairs(layouts) do
DEV u32 at_${t[1]}(int row, int chunk) {
  return (u32)row * ${t[2].pitch} + (u32)(chunk ^ ${t[2].swizzle_text("row")}) * 16;
}
//@ end

/* This lane's addresses for ldmatrix, and for rows of p and ds. */
typedef struct {
  u32 q, k, dout, v, rows;        /* scores and their gradients */
  u32 p;                          /* where they go */
  u32 p_dv, dout_dv, ds_dk, q_dk; /* dv and dk */
  u32 ds_dq, k_dq;                /* dq */
} Lanes;
DEV Lanes lanes_of(u32 smem) {
  const int lane = thread_index() & 31, warp = thread_index() >> 5;
  const u32 q = smem + ${at.ring}, dout = q + ${dout_from};
  const u32 k = smem + ${at.k}, v = smem + ${at.v}, p = smem + ${at.p}, ds = smem + ${at.ds};
  /* Rows 0 to 7, rows 8 to 15, then columns 8 to 15 of both; or columns before rows. */
  const int row = lane & 15, chunk = lane >> 4;
  const int row_b = (lane & 7) + (lane >> 4) * 8, chunk_b = lane >> 3 & 1;
//@ for _, p in ipairs({ { "s", s }, { "dk", dk }, { "dv", dv }, { "dq", dq } }) do
  const int ${p[1]}_row = warp % ${p[2].rows}, ${p[1]}_col = warp / ${p[2].rows};
//@ end
  Lanes l;
  l.q = q + at_qk(16 * s_row + row, chunk);
  l.k = k + at_qk(16 * s_col + row_b, chunk_b);
  l.dout = dout + at_v(16 * s_row + row, chunk);
  l.v = v + at_v(16 * s_col + row_b, chunk_b);
  l.rows = q + ${rows_from} + 4 * (16 * s_row + lane / 4);
//@ if is_hopper then
  l.p = p + at_p(16 * s_row + row, 2 * s_col + chunk);
//@ else
  l.p = p + at_p(16 * s_row + lane / 4, 2 * s_col) + 4 * (lane & 3);
//@ end
  l.p_dv = p + at_p(row_b, 2 * dv_row + chunk_b);
  l.dout_dv = dout + at_v(row, 2 * dv_col + chunk);
  l.ds_dk = ds + at_p(row_b, 2 * dk_row + chunk_b);
  l.q_dk = q + at_qk(row, 2 * dk_col + chunk);
  l.ds_dq = ds + at_p(16 * dq_row + row, chunk);
  l.k_dq = k + at_qk(row, 2 * dq_col + chunk);
  return l;
}

/* ---- products ---- */

//@ for i, name in ipairs({ "scores", "score_gradients" }) do
//@ local rows, what = i == 1 and qk_rows or v_rows, i == 1 and "q k^T" or "dout v^T"
//@ local a_at, b_at = along(rows, "a_lane", "2 * kk"), along(rows, "b_lane", "2 * kk")
/* x += ${what}: the warp's rows and keys */
DEV void ${name}(float *x, u32 a_lane, u32 b_lane) {
#pragma unroll
  for (int kk = 0; kk < ${rows.cols // 16}; kk++) {
    u32 a[${4 * s.row_tiles}];
#pragma unroll
    for (int t = 0; t < ${s.row_tiles}; t++)
      ldmatrix_x4(a + 4 * t, ${a_at} + ${16 * s.rows * rows.pitch} * t);
#pragma unroll
    for (int j = 0; j < ${s.col_tiles}; j++) {
      u32 b[4];
      ldmatrix_x4(b, ${b_at} + ${16 * s.cols * rows.pitch} * j);
#pragma unroll
      for (int t = 0; t < ${s.row_tiles}; t++) {
        float *y = x + 8 * (t * ${s.col_tiles} + j);
        ${mma}(y, a + 4 * t, b);
        ${mma}(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}
//@ end

//@ local products = {
//@   { "dv", dv, "p^T dout", v_rows, block_m }, { "dk", dk, "ds^T q", qk_rows, block_m },
//@   { "dq", dq, "ds k", qk_rows, block_n },
//@ }
//@ for _, f in ipairs(products) do
//@ local name, split, what, rows, depth = f[1], f[2], f[3], f[4], f[5]
//@ local a_at = along(p_rows, "a_lane", name == "dq" and "2 * kk" or 2 * split.rows .. " * t")
//@ local b_at = along(rows, "b_lane", 2 * split.cols .. " * j")
/* x += ${what}: the warp's rows and columns */
DEV void add_${name}(float *x, u32 a_lane, u32 b_lane) {
#pragma unroll
  for (int kk = 0; kk < ${depth // 16}; kk++) {
    u32 a[${4 * split.row_tiles}];
#pragma unroll
    for (int t = 0; t < ${split.row_tiles}; t++)
//@ if name == "dq" then
      ldmatrix_x4(a + 4 * t, ${a_at} + ${16 * split.rows * p_rows.pitch} * t);
//@ else
      ldmatrix_x4_trans(a + 4 * t, ${a_at} + ${16 * p_rows.pitch} * kk);
//@ end
#pragma unroll
    for (int j = 0; j < ${split.col_tiles}; j++) {
//@ if split.is_ragged then
      if (thread_index() / ${32 * split.rows} + ${split.cols} * j >= ${split.all_cols}) break;
//@ end
      u32 b[4];
      ldmatrix_x4_trans(b, ${b_at} + ${16 * rows.pitch} * kk);
#pragma unroll
      for (int t = 0; t < ${split.row_tiles}; t++) {
        float *y = x + 8 * (t * ${split.col_tiles} + j);
        ${mma}(y, a + 4 * t, b);
        ${mma}(y + 4, a + 4 * t, b + 2);
      }
    }
  }
}
//@ end

/* ---- scores ---- */

/* One number of each of the warp's rows: those of this thread */
DEV void load_rows(float *x, u32 at) {
#pragma unroll
  for (int i = 0; i < ${2 * s.row_tiles}; i++)
    x[i] = lds_f32(at + ${64 * s.rows} * (i / 2) + 32 * (i % 2));
}

/* Puts `with` where the row does not see the key. */
DEV void hide(float *x, float with, int first_key, int block, const BackwardArgs *a) {
  const int lane = thread_index() & 31, warp = thread_index() >> 5;
  const int column = first_key + 16 * (warp / ${s.rows}) + 2 * (lane & 3);
//@ if causal then
  const i64 row = (i64)block * ${block_m} + 16 * (warp % ${s.rows}) + lane / 4;
  const i64 sees = row + 1 + a->seqlen_k - a->seqlen_q; /* keys that the first row sees */
//@ end
#pragma unroll
  for (int i = 0; i < ${s.numbers}; i++) {
    const int j = i % ${8 * s.col_tiles};
    const int key = column + ${16 * s.cols} * (j / 8) + j / 4 % 2 * 8 + j % 2;
//@ if causal then
    const i64 end = sees + ${16 * s.rows} * (i / ${8 * s.col_tiles}) + i / 2 % 2 * 8;
    x[i] = key < a->seqlen_k && key < end ? x[i] : with;
//@ else
    x[i] = key < a->seqlen_k ? x[i] : with;
//@ end
  }
}

/* ---- results ---- */

//@ local lays = {
//@   { "p", s, p_rows }, { "dk", dk, qk_rows }, { "dv", dv, v_rows }, { "dq", dq, qk_rows },
//@ }
//@ for _, f in ipairs(lays) do
//@ local name, split, rows = f[1], f[2], f[3]
//@ local col, below = ("thread_index() / %d"):format(32 * split.rows), 16 * split.rows * rows.pitch
//@ local chunks = 2 * split.cols .. " * j" .. (is_hopper and "" or " + i / 2")
//@ local to = along(rows, "lane_to", chunks)
//@ if name == "p" then
/* Lays the warp's part of p or ds, rounded to ${dtype}, into shared memory. */
DEV void lay_p(u32 lane_to, const float *x) {
//@ else
/* Lays the warp's part of ${name}, rounded to ${dtype}, into shared memory. */
DEV void lay_${name}(u32 to, const float *x) {
  const int lane = thread_index() & 31, row = 16 * (thread_index() / 32 % ${split.rows});
//@ local at = rows == v_rows and "at_v" or "at_qk"
//@ if is_hopper then
  const u32 lane_to = to + ${at}(row + (lane & 15), 2 * (${col}) + (lane >> 4));
//@ else
  const u32 lane_to = to + ${at}(row + lane / 4, 2 * (${col})) + 4 * (lane & 3);
//@ end
//@ end
#pragma unroll
  for (int t = 0; t < ${split.row_tiles}; t++) {
#pragma unroll
    for (int j = 0; j < ${split.col_tiles}; j++) {
//@ if split.is_ragged then
      if (${col} + ${split.cols} * j >= ${split.all_cols}) break;
//@ end
      const float *y = x + 8 * (t * ${split.col_tiles} + j);
//@ if is_hopper then
      u32 r[4];
#pragma unroll
      for (int i = 0; i < 4; i++) r[i] = ${pack}(y[2 * i], y[2 * i + 1]);
      stmatrix_x4(${to} + ${below} * t, r);
//@ else
#pragma unroll
      for (int i = 0; i < 4; i++)
        sts_u32(${to} + ${below} * t + ${8 * rows.pitch} * (i % 2),
                ${pack}(y[2 * i], y[2 * i + 1]));
//@ end
    }
  }
}
//@ end

/* Adds the warp's part to a block of dq in fp32. */
DEV void put_dq(float *to, const float *x) {
//@ if is_hopper then
  to += 4 * thread_index();
//@ else
  to += thread_index();
//@ end
#pragma unroll
  for (int t = 0; t < ${dq.row_tiles}; t++) {
#pragma unroll
    for (int j = 0; j < ${dq.col_tiles}; j++) {
//@ if dq.is_ragged then
      if (thread_index() / ${32 * dq.rows} + ${dq.cols} * j >= ${dq.all_cols}) break;
//@ end
      const int i = 8 * (t * ${dq.col_tiles} + j);
//@ if is_hopper then
      red_add_f32x4(to + ${threads} * i, x + i);
      red_add_f32x4(to + ${threads} * (i + 4), x + i + 4);
//@ else
#pragma unroll
      for (int e = 0; e < 8; e++) red_add_f32(to + ${threads} * (i + e), x[i + e]);
//@ end
    }
  }
}
/* This thread's numbers of a block of dq in fp32 */
DEV void get_dq(float *x, const float *from) {
#pragma unroll
  for (int i = 0; i < ${dq.numbers}; i++)
//@ if is_hopper then
    x[i] = ldg_f32(from + ${4 * threads} * (i / 4) + 4 * thread_index() + i % 4);
//@ else
    x[i] = ldg_f32(from + ${threads} * i + thread_index());
//@ end
}
