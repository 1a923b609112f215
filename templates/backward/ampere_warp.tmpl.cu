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

/* This lane's addresses for ldmatrix: rows 0 to 7, rows 8 to 15, then columns 8 to 15 of both; or
 * columns before rows. */
DEV int row_a(void) { return thread_index() & 15; }
DEV int chunk_a(void) { return thread_index() >> 4 & 1; }
DEV int row_b(void) { return (thread_index() & 7) + (thread_index() >> 4 & 1) * 8; }
DEV int chunk_b(void) { return thread_index() >> 3 & 1; }

/* The warp's place in the grids */
//@ local is_dq = is_ring and "member()" or "thread_index()"
//@ for _, p in ipairs({ { "s", s }, { "dk", dk }, { "dv", dv }, { "dq", dq, is_dq } }) do
DEV int ${p[1]}_row(void) { return ${p[3] or "member()"} / 32 % ${p[2].rows}; }
DEV int ${p[1]}_col(void) { return ${p[3] or "member()"} / ${32 * p[2].rows}; }
//@ end

/* Operands of scores or their gradients; where p or ds go, and where p is read in the order of the
 * accumulators */
typedef struct {
  u32 a, b, p, p_read;
} LanesS;
//@ for _, f in ipairs({ { "s", "at_qk" }, { "dp", "at_v" } }) do
DEV LanesS lanes_${f[1]}(u32 a, u32 b, u32 p) {
  LanesS l;
  l.a = a + ${f[2]}(16 * s_row() + row_a(), chunk_a());
  l.b = b + ${f[2]}(16 * s_col() + row_b(), chunk_b());
  l.p_read = p + at_p(16 * s_row() + row_a(), 2 * s_col() + chunk_a());
//@ if is_hopper then
  l.p = l.p_read;
//@ else
  const int lane = thread_index() & 31;
  l.p = p + at_p(16 * s_row() + lane / 4, 2 * s_col()) + 4 * (lane & 3);
//@ end
  return l;
}
//@ end

/* Operands of dv, dk and dq */
typedef struct {
  u32 a, b;
} LanesAdd;
//@ for _, f in ipairs({ { "dv", "at_v" }, { "dk", "at_qk" }, { "dq", "at_qk" } }) do
DEV LanesAdd lanes_${f[1]}(u32 a, u32 b) {
  LanesAdd l;
//@ if f[1] == "dq" then
  l.a = a + at_p(16 * dq_row() + row_a(), chunk_a());
//@ else
  l.a = a + at_p(row_b(), 2 * ${f[1]}_row() + chunk_b());
//@ end
  l.b = b + ${f[2]}(row_a(), 2 * ${f[1]}_col() + chunk_a());
  return l;
}
//@ end

/* ---- products ---- */

//@ for i, name in ipairs({ "scores", "gradients" }) do
//@ local of_part = ("(%d * part + j)"):format(s.col_tiles)
//@ local rows, what = i == 1 and qk_rows or v_rows, i == 1 and "q k^T" or "dout v^T"
//@ local a_at, b_at = along(rows, "a_lane", "2 * kk"), along(rows, "b_lane", "2 * kk")
/* x += ${what}: the warp's rows and keys of a part */
DEV void ${name}(float *x, u32 a_lane, u32 b_lane, int part) {
#pragma unroll
  for (int kk = 0; kk < ${rows.cols // 16}; kk++) {
    u32 a[${4 * s.row_tiles}];
#pragma unroll
    for (int t = 0; t < ${s.row_tiles}; t++)
      ldmatrix_x4(a + 4 * t, ${a_at} + ${16 * s.rows * rows.pitch} * t);
#pragma unroll
    for (int j = 0; j < ${s.col_tiles}; j++) {
      u32 b[4];
      ldmatrix_x4(b, ${b_at} + ${16 * s.cols * rows.pitch} * ${of_part});
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
//@ local j = name == "dq" and ("(%d * part + j)"):format(split.col_tiles) or "j"
//@ local b_at = along(rows, "b_lane", 2 * split.cols .. " * " .. j)
/* x += ${what}: the warp's rows and columns${name == "dq" and " of a part" or ""} */
DEV void add_${name}(float *x, u32 a_lane, u32 b_lane${name == "dq" and ", int part" or ""}) {
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
      if (${name}_col() + ${split.cols} * ${j} >= ${split.all_cols}) break;
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
DEV void load_rows(float *x, u32 from) {
  const u32 at = from + 4 * (16 * s_row() + (thread_index() & 31) / 4);
#pragma unroll
  for (int i = 0; i < ${2 * s.row_tiles}; i++)
    x[i] = lds_f32(at + ${64 * s.rows} * (i / 2) + 32 * (i % 2));
}

/* Puts `with` where the row does not see the key. */
DEV void hide(float *x, int part, float with, int first_key, int block, const BackwardArgs *a) {
  const int lane = (thread_index() + (int)fresh_zero()) & 31;
  const int column = first_key + 16 * s_col() + 2 * (lane & 3);
//@ if causal then
  const i64 row = (i64)block * ${block_m} + 16 * s_row() + lane / 4;
  const i64 sees = row + 1 + a->seqlen_k - a->seqlen_q; /* keys that the first row sees */
//@ end
#pragma unroll
  for (int i = 0; i < ${2 * s.row_tiles}; i++) {
//@ if causal then
    const i64 own = sees + ${16 * s.rows} * (i / 2) + 8 * (i % 2);
    const int end = (own < a->seqlen_k ? (int)own : a->seqlen_k) - column;
//@ else
    const int end = a->seqlen_k - column;
//@ end
#pragma unroll
    for (int j = 0; j < ${2 * s.col_tiles}; j++) {
      float *y = x + 4 * (${2 * s.col_tiles} * (i / 2) + j) + 2 * (i % 2);
      const int key = ${16 * s.cols} * (${s.col_tiles} * part + j / 2) + 8 * (j % 2);
      y[0] = key < end ? y[0] : with;
      y[1] = key + 1 < end ? y[1] : with;
    }
  }
}

//@ local p_at = along(p_rows, "lane", ("%d * (%d * part + j)"):format(2 * s.cols, s.col_tiles))
//@ local unpack_p = p_fp16 and "unpack_fp16" or unpack
/* x *= p${p_fp16 and ", which came " .. p_scale .. " times as large" or ""} */
DEV void times_p(float *x, u32 lane, int part) {
#pragma unroll
  for (int t = 0; t < ${s.row_tiles}; t++) {
#pragma unroll
    for (int j = 0; j < ${s.col_tiles}; j++) {
      float *y = x + 8 * (t * ${s.col_tiles} + j);
      u32 r[4];
      ldmatrix_x4(r, ${p_at} + ${16 * s.rows * p_rows.pitch} * t);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        y[2 * i] *= ${unpack_p}(r[i]);
        y[2 * i + 1] *= ${unpack_p}(r[i] >> 16);
      }
    }
  }
//@ if p_fp16 then
  sync_warp(); /* ds takes its place */
//@ end
}

/* ---- results ---- */

//@ local lays = {
//@   { "s", s, p_rows }, { "p", s, p_rows },
//@   { "dk", dk, qk_rows }, { "dv", dv, v_rows }, { "dq", dq, qk_rows },
//@ }
//@ for _, f in ipairs(lays) do
//@ local name, split, rows = f[1], f[2], f[3]
//@ if name ~= "p" or p_fp16 then
//@ local packed = (name == "p" and "pack_fp16" or pack) .. "(y[2 * i], y[2 * i + 1])"
//@ local j = split.parts and ("(%d * part + j)"):format(split.col_tiles) or "j"
//@ local below = 16 * split.rows * rows.pitch
//@ local chunks = 2 * split.cols .. " * " .. j .. (is_hopper and "" or " + i / 2")
//@ local to = along(rows, "lane_to", chunks)
//@ if name == "p" then
/* Lays the warp's part of p, rounded to fp16, into shared memory. */
DEV void lay_p(u32 lane_to, const float *x, int part) {
//@ elseif name == "s" then
/* Lays the warp's part of p or ds, rounded to ${dtype}, into shared memory. */
DEV void lay_s(u32 lane_to, const float *x, int part) {
//@ else
/* Lays the warp's part of ${name}, rounded to ${dtype}, into shared memory. */
DEV void lay_${name}(u32 to, const float *x${name == "dq" and ", int part" or ""}) {
//@ local at = name == "dv" and "at_v" or "at_qk"
//@ if is_hopper then
  const u32 lane_to = to + ${at}(16 * ${name}_row() + row_a(), 2 * ${name}_col() + chunk_a());
//@ else
  const int lane = thread_index() & 31;
  const u32 lane_to = to + ${at}(16 * ${name}_row() + lane / 4, 2 * ${name}_col()) + 4 * (lane & 3);
//@ end
//@ end
#pragma unroll
  for (int t = 0; t < ${split.row_tiles}; t++) {
#pragma unroll
    for (int j = 0; j < ${split.col_tiles}; j++) {
//@ if split.is_ragged then
      if (${name}_col() + ${split.cols} * ${j} >= ${split.all_cols}) break;
//@ end
      const float *y = x + 8 * (t * ${split.col_tiles} + j);
//@ if is_hopper then
      u32 r[4];
#pragma unroll
      for (int i = 0; i < 4; i++) r[i] = ${packed};
      stmatrix_x4(${to} + ${below} * t, r);
//@ else
#pragma unroll
      for (int i = 0; i < 4; i++)
        sts_u32(${to} + ${below} * t + ${8 * rows.pitch} * (i % 2),
                ${packed});
//@ end
    }
  }
}
//@ end
//@ end

//@ local me = is_ring and "fresh_member()" or "(thread_index() + (int)fresh_zero())"
//@ local of_part = dq.numbers * dq_threads
/* Adds a part of the warp's numbers to a block of dq in fp32. */
DEV void put_dq(float *to, const float *x, int part) {
  to += part * ${of_part} + ${is_hopper and 4 or 1} * ${me};
#pragma unroll
  for (int t = 0; t < ${dq.row_tiles}; t++) {
#pragma unroll
    for (int j = 0; j < ${dq.col_tiles}; j++) {
//@ if dq.is_ragged then
      if (dq_col() + ${dq.cols} * (${dq.col_tiles} * part + j) >= ${dq.all_cols}) break;
//@ end
      const int i = 8 * (t * ${dq.col_tiles} + j);
//@ if is_hopper then
      red_add_f32x4(to + ${dq_threads} * i, x + i);
      red_add_f32x4(to + ${dq_threads} * (i + 4), x + i + 4);
//@ else
#pragma unroll
      for (int e = 0; e < 8; e++) red_add_f32(to + ${dq_threads} * (i + e), x[i + e]);
//@ end
    }
  }
}
/* A part of the warp's numbers of a block of dq in fp32 */
DEV void get_dq(float *x, const float *from, int part) {
  from += part * ${of_part} + ${is_hopper and 4 or 1} * ${me};
//@ if is_hopper then
#pragma unroll
  for (int i = 0; i < ${dq.numbers}; i += 4) {
    u32 r[4];
    ldg_u32x4(r, from + ${dq_threads} * i);
#pragma unroll
    for (int j = 0; j < 4; j++) x[i + j] = as_float(r[j]);
  }
//@ else
#pragma unroll
  for (int i = 0; i < ${dq.numbers}; i++) x[i] = ldg_f32(from + ${dq_threads} * i);
//@ end
}
