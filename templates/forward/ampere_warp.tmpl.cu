/* ---- what a warp computes ----
 *
 * Included by ampere.tmpl.cu. Everything here is one warp's work on one slice of keys: who has
 * which rows, products, softmax and output.
 */

//@ if paired then
/* Two warps share ${rows} rows of the block: of each block of keys one computes the scores of the
 * first ${slice} and the other of the rest, p goes through shared memory, and then each computes
 * every other group of 16 columns of o. */
DEV int half(void) { return thread_index() >> 5 & 1; }
DEV int rows_first(void) { return thread_index() / 64 * ${rows}; }
DEV void sync_pair(void) { named_sync(1 + thread_index() / 64, 64); }
//@ else
DEV int rows_first(void) { return thread_index() / 32 * ${rows}; }
//@ end

//@ -- The address of chunk 2 i further in a lane's row: the swizzle moves it within 128 bytes.
//@ local function along(rows, at, i)
//@   local low = ("(32 * %s & %d)"):format(i, 16 * rows.mask)
//@   return ("((%s) ^ %s) + (32 * %s - %s)"):format(at, low, i, low)
//@ end
/* This lane's address for ldmatrix, from the first address of q, k, v or p on: rows 0 to 7, rows 8
 * to 15, then columns 8 to 15 of both; for k, columns before rows. */
//@ local lanes = { q = qk_rows, k = qk_rows, v = v_rows, p = paired and p_rows or nil }
//@ for name, rows in pairs(lanes) do
DEV u32 lane_${name}(void) {
  const int lane = thread_index() & 31;
//@ if name == "k" then
  const int row = (lane & 7) + (lane >> 4) * 8, chunk = lane >> 3 & 1;
//@ elseif name == "v" and paired then
  const int row = lane & 15, chunk = 2 * half() + (lane >> 4);
//@ else
  const int row = lane & 15, chunk = lane >> 4;
//@ end
//@ if name == "v" then
  return (u32)row * ${rows.pitch} + (u32)(chunk ^ ${rows.swizzle_text("row")}) * 16;
//@ else
//@ local first = name == "k" and (paired and ("half() * %d + row"):format(slice) or "row")
//@               or "rows_first() + row"
  return (u32)(${first}) * ${rows.pitch} + (u32)(chunk ^ ${rows.swizzle_text("row")}) * 16;
//@ end
}
//@ end

/* ---- products ---- */

//@ if q_held then
/* The warp's queries as operands */
DEV void load_q(u32 *a, u32 q) {
#pragma unroll
  for (int t = 0; t < ${m_tiles}; t++) {
#pragma unroll
    for (int kk = 0; kk < ${d16 // 16}; kk++)
      ldmatrix_x4(a + 4 * (t + ${m_tiles} * kk),
                  ${along(qk_rows, "q", "kk")} + ${16 * qk_rows.pitch} * t);
  }
}

//@ end
//@ local queries = q_held and "const u32 *a" or "u32 q"
/* s (${rows} x ${slice}) = q k^T${q_held and "; a: the queries as operands" or ""} */
DEV void scores(float *s, ${queries}, u32 k) {
#pragma unroll
  for (int i = 0; i < ${m_tiles * s_step}; i++) s[i] = 0.0f;
#pragma unroll
  for (int kk = 0; kk < ${d16 // 16}; kk++) {
//@ if not q_held then
    u32 a[${4 * m_tiles}];
#pragma unroll
    for (int t = 0; t < ${m_tiles}; t++)
      ldmatrix_x4(a + 4 * t, ${along(qk_rows, "q", "kk")} + ${16 * qk_rows.pitch} * t);
//@ end
#pragma unroll
    for (int j = 0; j < ${slice // 16}; j++) {
      u32 b[4];
      ldmatrix_x4(b, ${along(qk_rows, "k", "kk")} + ${16 * qk_rows.pitch} * j);
#pragma unroll
      for (int t = 0; t < ${m_tiles}; t++) {
        const u32 *x = a + 4 * ${q_held and "(t + " .. m_tiles .. " * kk)" or "t"};
        ${mma}(s + t * ${s_step} + 8 * j, x, b);
        ${mma}(s + t * ${s_step} + 8 * j + 4, x, b + 2);
      }
    }
  }
}

/* o (${rows} x ${16 * o_groups}) += p v for 16 keys; a: p as operands */
DEV void accumulate(float *o, const u32 *a, u32 v) {
//@ local j = paired and "(2 * j)" or "j"
#pragma unroll
  for (int j = 0; j < ${o_groups}; j++) {
    u32 b[4];
    ldmatrix_x4_trans(b, ${along(v_rows, "v", j)});
#pragma unroll
    for (int t = 0; t < ${m_tiles}; t++) {
      ${mma}(o + t * ${o_step} + 8 * j, a + 4 * t, b);
      ${mma}(o + t * ${o_step} + 8 * j + 4, a + 4 * t, b + 2);
    }
  }
}

//@ if paired then
/* Lays the warp's p, rounded to ${dtype}, into its half of the pair's rows of p. */
DEV void share(u32 to, const float *p) {
  const int lane = thread_index() & 31;
#pragma unroll
  for (int t = 0; t < ${m_tiles}; t++) {
#pragma unroll
    for (int i = 0; i < ${slice // 4}; i++) {
      const int row = rows_first() + 16 * t + i % 2 * 8 + lane / 4;
      const int chunk = half() * ${slice // 8} + i / 2;
      const u32 at = (u32)row * ${p_rows.pitch} + (u32)(chunk ^ ${p_rows.swizzle_text("row")}) * 16;
      const float *x = p + t * ${s_step} + 2 * i;
      sts_u32(to + at + (lane & 3) * 4, ${pack}(x[0], x[1]));
    }
  }
}
/* o += p v for a block; lane_p, v: this lane's addresses. Unrolled in full, registers spill at
 * head_dim 256. */
DEV void accumulate_block(float *o, u32 lane_p, u32 v) {
#pragma unroll 2
  for (int kk = 0; kk < ${block_n // 16}; kk++) {
    u32 a[${4 * m_tiles}];
#pragma unroll
    for (int t = 0; t < ${m_tiles}; t++)
      ldmatrix_x4(a + 4 * t, ${along(p_rows, "lane_p", "kk")} + ${16 * p_rows.pitch} * t);
    accumulate(o, a, v + kk * ${16 * v_rows.pitch});
  }
}
/* x becomes what join makes of it and of the other warp's: two numbers of each row tile, the same
 * in the four lanes of a quad. */
//@ for _, join in ipairs({ "maximum", "sum" }) do
DEV void pair_${join}(float (*x)[2], u32 at) {
  const int lane = thread_index() & 31;
  const u32 mine = at + (u32)(thread_index() / 32 * ${rows} + lane / 4) * 4;
  const u32 other = mine + (u32)(half() ? ${-4 * rows} : ${4 * rows});
#pragma unroll
  for (int i = 0; i < ${2 * m_tiles}; i++) {
    if ((lane & 3) == 0) sts_f32(mine + 32 * i, x[i / 2][i % 2]);
  }
  sync_pair();
#pragma unroll
  for (int i = 0; i < ${2 * m_tiles}; i++)
//@ if join == "sum" then
    x[i / 2][i % 2] += lds_f32(other + 32 * i);
//@ else
    x[i / 2][i % 2] = fmaxf(x[i / 2][i % 2], lds_f32(other + 32 * i));
//@ end
}
//@ end
//@ else
/* Columns 16 kk to 16 kk + 15 of p, rounded to ${dtype}, as operands */
DEV void pack_keys(u32 *a, const float *p, int kk) {
#pragma unroll
  for (int t = 0; t < ${m_tiles}; t++) {
    const float *x = p + t * ${s_step} + 8 * kk;
#pragma unroll
    for (int i = 0; i < 4; i++) a[4 * t + i] = ${pack}(x[2 * i], x[2 * i + 1]);
  }
}
//@ end

/* ---- softmax ---- */

/* Hides keys past the end${causal and " and past the diagonal" or ""}; the slice begins at key
 * first. */
DEV void mask_slice(float *s, int first, const ForwardArgs *a) {
  const int lane = thread_index() & 31, column = first + 2 * (lane & 3);
//@ if causal then
  const i64 row = place_of(block_index_again(), a).first + rows_first() + lane / 4;
  const i64 see = row + 1 + a->seqlen_k - a->seqlen_q;
//@ end
#pragma unroll
  for (int t = 0; t < ${m_tiles}; t++) {
//@ if causal then
    const i64 see0 = see + 16 * t, see1 = see0 + 8;
    const int end0 = see0 < a->seqlen_k ? (int)see0 : a->seqlen_k;
    const int end1 = see1 < a->seqlen_k ? (int)see1 : a->seqlen_k;
    mask_scores(s + t * ${s_step}, end0 - column, end1 - column);
//@ else
    mask_scores(s + t * ${s_step}, a->seqlen_k - column, a->seqlen_k - column);
//@ end
  }
}

//@ local exchange = paired and ", u32 exchange" or ""
/* Scores become p under the running maximum; o and the sums are rescaled. */
DEV void careful_weights(float *o, float *s, RowState *st, float c, float shift${exchange}) {
  float top[${m_tiles}][2];
#pragma unroll
  for (int t = 0; t < ${m_tiles}; t++) block_maximum(s + t * ${s_step}, ${slice}, top[t]);
//@ if paired then
  pair_maximum(top, exchange);
//@ end
#pragma unroll
  for (int t = 0; t < ${m_tiles}; t++) {
    float factor[2], ref[2];
    raise_state(top[t], &st[t], factor, ref, c);
    exact_exponentials(s + t * ${s_step}, ref, c, shift);
    sum_rows(s + t * ${s_step}, st[t].l);
#pragma unroll
    for (int i = 0; i < ${o_step}; i++) o[t * ${o_step} + i] *= factor[i / 2 % 2];
  }
}
/* Columns 16 kk to 16 kk + 15 of the scores become p against the reference that stands. */
DEV void steady_weights(float *s, RowState *st, float c, int kk) {
#pragma unroll
  for (int t = 0; t < ${m_tiles}; t++) {
    float *x = s + t * ${s_step} + 8 * kk;
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = ex2(fmaf(x[i], c, st[t].m[i / 2 % 2]));
    st[t].l[0] += (x[0] + x[1]) + (x[4] + x[5]);
    st[t].l[1] += (x[2] + x[3]) + (x[6] + x[7]);
  }
}
//@ if not paired then
/* o += p v; the scores of 16 keys become p beside the products of the 16 before. */
DEV void steady_slice(float *o, float *s, RowState *st, float c, u32 v) {
#pragma unroll
  for (int kk = 0; kk < ${slice // 16}; kk++) {
    u32 a[${4 * m_tiles}];
    steady_weights(s, st, c, kk);
    pack_keys(a, s, kk);
    accumulate(o, a, v + kk * ${16 * v_rows.pitch});
  }
}
DEV void careful_slice(float *o, float *s, RowState *st, float c, float shift, u32 v) {
  careful_weights(o, s, st, c, shift);
#pragma unroll
  for (int kk = 0; kk < ${slice // 16}; kk++) {
    u32 a[${4 * m_tiles}];
    pack_keys(a, s, kk);
    accumulate(o, a, v + kk * ${16 * v_rows.pitch});
  }
}
//@ end

/* Completes the sums. */
DEV void finish_sums(RowState *st${exchange}) {
  float l[${m_tiles}][2];
#pragma unroll
  for (int i = 0; i < ${2 * m_tiles}; i++) l[i / 2][i % 2] = quad_sum(st[i / 2].l[i % 2]);
//@ if paired then
  pair_sum(l, exchange);
//@ end
#pragma unroll
  for (int i = 0; i < ${2 * m_tiles}; i++) st[i / 2].l[i % 2] = l[i / 2][i % 2];
}

/* Whether the warp's rows are what the exact pass would give: the sums are within the range, the
 * rounding of m c does not show, every output is finite. */
DEV int holds(const float *o, const RowState *st) {
  float probe = 0.0f;
  int good = 1;
#pragma unroll
  for (int i = 0; i < ${2 * m_tiles}; i++) {
    const float l = st[i / 2].l[i % 2], bias = st[i / 2].m[i % 2];
    good = good && l > 0.0f && l < 1e30f && fabsf(bias) < 4096.0f;
  }
#pragma unroll
  for (int i = 0; i < ${m_tiles * o_step}; i++) probe = fmaf(o[i], 0.0f, probe);
  return !any_sync(!(good && probe == 0.0f));
}

/* ---- output ---- */
//@ local swizzle = v_rows.swizzle_text("row")

/* Normalises o, rounds it and lays it into shared memory; writes the log-sum-exp of the warp's
 * rows. m is the maximum after the exact pass, the bias after the fast one. */
DEV void finish_rows(const float *o, const RowState *st, u32 to, float *lse, int first,
                     const ForwardArgs *a, int exact, float shift) {
  const int lane = thread_index() & 31;
#pragma unroll
  for (int t = 0; t < ${m_tiles}; t++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = rows_first() + 16 * t + 8 * r + lane / 4;
      const float l = st[t].l[r], inverse = row_inverse(l, sees_keys(first + row, a));
#pragma unroll
      for (int j = 0; j < ${2 * o_groups}; j++) {
        const float *x = o + t * ${o_step} + 4 * j + 2 * r;
        const int chunk = ${paired and "j / 2 * 4 + half() * 2 + j % 2" or "j"};
        const u32 at = to + (u32)row * ${v_rows.pitch} + (u32)(chunk ^ ${swizzle}) * 16;
        sts_u32(at + (lane & 3) * 4, ${pack}(x[0] * inverse, x[1] * inverse));
      }
      const int mine = (lane & 3) == 0${paired and " && half() == 0" or ""};
      if (lse && mine && first + row < a->seqlen_q)
        stg_f32(lse + first + row, exact ? row_lse(st[t].m[r], l, a->softmax_scale, shift)
                                         : (lg2(l) - st[t].m[r]) * 0.693147181f);
    }
  }
}

/* Stores the block's rows of o that lie inside the tensor, 16 bytes a thread and step. */
DEV void store_rows(u32 from, char *to, i64 row_bytes, int first, int end) {
  const int row0 = thread_index() / ${store.wide}, chunk0 = thread_index() % ${store.wide};
#pragma unroll
  for (int i = 0; i < ${store.passes}; i++) {
    const int row = row0 + ${store.step} * i;
    if (row >= ${block_m} || row >= end - first) break;
    for (int chunk = chunk0; chunk < ${dv // 8}; chunk += ${store.wide}) {
      u32 x[4];
      const u32 at = from + (u32)row * ${v_rows.pitch} + (u32)(chunk ^ ${swizzle}) * 16;
      lds_u32x4(x, at);
      stg_u32x4(to + (first + row) * row_bytes + 16 * chunk, x);
    }
  }
}
