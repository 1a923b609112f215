//@ include("common/args.tmpl.cu")

/* FlashAttention forward for mma.sync: a block of ${threads} threads computes ${block_m} query rows
 * of one head, a warp ${rows_per_warp} of them. Keys and values pass through shared memory
 * in blocks of ${block_n}, from the last visible one to the first; scores, probabilities and the
 * output stay in registers. */
//@ include("common/softmax.tmpl.cu")

/* ---- global to shared memory ---- */
//@ for _, t in ipairs(copies) do

/* Starts the copy of rows first .. first + ${t.rows - 1} of ${t.name}. Rows at and past end become
 * 0: nothing is read for them, whatever their address.
//@ if t.padded then
 * So do columns ${t.dim} to ${t.layout.cols - 1}.
//@ end
 */
DEV void copy_${t.name}(u32 to, const char *from, i64 row_bytes, int first, int end) {
  const int row0 = thread_index() / ${t.wide}, chunk0 = thread_index() % ${t.wide};
  const char *line = from + (i64)(first + row0) * row_bytes + 16 * chunk0;
#pragma unroll 4
  for (int i = 0; i < ${t.passes}; i++) {
    const int row = row0 + ${t.step} * i, inside = row < end - first;
    const u32 line_to = to + (u32)row * ${t.layout.pitch};
//@ if t.ragged_rows then
    if (row >= ${t.rows}) break;
//@ end
#pragma unroll
    for (int c = 0; c < ${t.layout.chunks}; c += ${t.wide}) {
      const int chunk = c + chunk0;
//@ if t.ragged_chunks then
      if (chunk >= ${t.layout.chunks}) break;
//@ end
      const int bytes = inside${t.padded and " && chunk < " .. t.dim // 8 or ""} ? 16 : 0;
      const u32 at = line_to + (u32)(chunk ^ ${t.layout.swizzle_text("row")}) * 16;
      cp_async_16(at, line + 16 * c, bytes);
    }
    line += ${t.step} * row_bytes;
  }
}
//@ end

/* ---- products ---- */

/* s (${rows_per_warp} x ${block_n}) = q k^T for the warp's rows, which begin at address q */
DEV void scores(float *s, u32 q, u32 k) {
  const int lane = thread_index() & 31;
  const int q_row = lane & 15, q_chunk = lane >> 4;
  const int k_row = (lane & 7) + (lane >> 4) * 8, k_chunk = lane >> 3 & 1;
#pragma unroll
  for (int i = 0; i < ${m_tiles * block_n // 2}; i++) s[i] = 0.0f;
#pragma unroll
  for (int kk = 0; kk < ${d16 // 16}; kk++) {
    u32 a[${4 * m_tiles}];
#pragma unroll
    for (int t = 0; t < ${m_tiles}; t++) {
      const int row = 16 * t + q_row, chunk = (2 * kk + q_chunk) ^ ${qk_rows.swizzle_text("q_row")};
      ldmatrix_x4(a + 4 * t, q + (u32)row * ${qk_rows.pitch} + (u32)chunk * 16);
    }
#pragma unroll
    for (int j = 0; j < ${block_n // 16}; j++) {
      const int row = 16 * j + k_row, chunk = (2 * kk + k_chunk) ^ ${qk_rows.swizzle_text("k_row")};
      u32 b[4];
      ldmatrix_x4(b, k + (u32)row * ${qk_rows.pitch} + (u32)chunk * 16);
#pragma unroll
      for (int t = 0; t < ${m_tiles}; t++) {
        ${mma}(s + t * ${block_n // 2} + 8 * j, a + 4 * t, b);
        ${mma}(s + t * ${block_n // 2} + 8 * j + 4, a + 4 * t, b + 2);
      }
    }
  }
}

/* o (${rows_per_warp} x ${dv16}) += p v; p is rounded to ${dtype} here */
DEV void accumulate(float *o, const float *p, u32 v) {
  const int lane = thread_index() & 31;
  const int v_row = lane & 15, v_chunk = lane >> 4;
#pragma unroll
  for (int kk = 0; kk < ${block_n // 16}; kk++) {
    u32 a[${4 * m_tiles}];
#pragma unroll
    for (int t = 0; t < ${m_tiles}; t++) {
      const float *x = p + t * ${block_n // 2} + 8 * kk;
#pragma unroll
      for (int i = 0; i < 4; i++) a[4 * t + i] = ${pack}(x[2 * i], x[2 * i + 1]);
    }
#pragma unroll
    for (int j = 0; j < ${dv16 // 16}; j++) {
      const int row = 16 * kk + v_row, chunk = (2 * j + v_chunk) ^ ${v_rows.swizzle_text("v_row")};
      u32 b[4];
      ldmatrix_x4_trans(b, v + (u32)row * ${v_rows.pitch} + (u32)chunk * 16);
#pragma unroll
      for (int t = 0; t < ${m_tiles}; t++) {
        ${mma}(o + t * ${dv16 // 2} + 8 * j, a + 4 * t, b);
        ${mma}(o + t * ${dv16 // 2} + 8 * j + 4, a + 4 * t, b + 2);
      }
    }
  }
}

/* ---- output ---- */
//@ local swizzle = v_rows.swizzle_text("row")

/* Normalises o, rounds it and lays it into shared memory; writes the log-sum-exp of the warp's
 * rows. */
DEV void finish_rows(const float *o, const RowState *st, u32 to, float *lse, int first,
                     const ForwardArgs *a, float shift) {
  const int lane = thread_index() & 31, warp_row = thread_index() / 32 * ${rows_per_warp};
#pragma unroll
  for (int t = 0; t < ${m_tiles}; t++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = warp_row + 16 * t + 8 * r + lane / 4;
      const float l = quad_sum(st[t].l[r]), inverse = row_inverse(l, sees_keys(first + row, a));
#pragma unroll
      for (int j = 0; j < ${dv16 // 8}; j++) {
        const float *x = o + t * ${dv16 // 2} + 4 * j + 2 * r;
        const u32 at = to + (u32)row * ${v_rows.pitch} + (u32)(j ^ ${swizzle}) * 16;
        sts_u32(at + (lane & 3) * 4, ${pack}(x[0] * inverse, x[1] * inverse));
      }
      if (lse && (lane & 3) == 0 && first + row < a->seqlen_q)
        stg_f32(lse + first + row, row_lse(st[t].m[r], l, a->softmax_scale, shift));
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

/* ---- the kernel ---- */

//@ if causal then
/* Tiles: m block fastest and descending, so that the longest rows start first; then head, then
 * batch. */
//@ else
/* Tiles: m block fastest, then head, then batch. */
//@ end
typedef struct {
  i64 batch, head_index; /* head_index: batch * num_heads + head */
  int head, first;       /* first query row */
} Place;
DEV Place place_of(i64 tile, const ForwardArgs *a) {
  Place x;
  x.head_index = tile / a->m_blocks;
  x.batch = x.head_index / a->num_heads;
  x.head = (int)(x.head_index - x.batch * a->num_heads);
//@ if causal then
  x.first = (a->m_blocks - 1 - (int)(tile - x.head_index * a->m_blocks)) * ${block_m};
//@ else
  x.first = (int)(tile - x.head_index * a->m_blocks) * ${block_m};
//@ end
  return x;
}

/* Takes a block of scores into m and turns it into p. */
DEV void softmax_step(float *s, RowState *st, float *factor, float c, float shift) {
  float ref[2];
  raise_maximum(s, ${block_n}, st, factor, ref, c);
  const float b0 = ref[0] * c, b1 = ref[1] * c;
  /* One fused multiply-add an element where the rounding of m c cannot show in p (2^-16). */
  if (any_sync(!(fmaxf(fabsf(b0), fabsf(b1)) < 256.0f))) {
    exact_exponentials(s, ref, c, shift);
  } else {
    const float bias[2] = {-b0 - shift, -b1 - shift};
    exponentials(s, bias, c);
  }
  sum_rows(s, st->l);
}

/* Hides keys past the end${causal and " and past the diagonal" or ""} in block n. */
DEV void mask_block(float *s, int n, const ForwardArgs *a) {
  const int lane = thread_index() & 31, column = n * ${block_n} + 2 * (lane & 3);
//@ if causal then
  const Place x = place_of(block_index_again(), a);
  const i64 row = x.first + thread_index() / 32 * ${rows_per_warp} + lane / 4;
  const i64 see = row + 1 + a->seqlen_k - a->seqlen_q;
//@ end
#pragma unroll
  for (int t = 0; t < ${m_tiles}; t++) {
//@ if causal then
    const i64 see0 = see + 16 * t, see1 = see0 + 8;
    const int end0 = see0 < a->seqlen_k ? (int)see0 : a->seqlen_k;
    const int end1 = see1 < a->seqlen_k ? (int)see1 : a->seqlen_k;
    mask_scores(s + t * ${block_n // 2}, end0 - column, end1 - column);
//@ else
    mask_scores(s + t * ${block_n // 2}, a->seqlen_k - column, a->seqlen_k - column);
//@ end
  }
}

KERNEL void kiln_forward(PARAM ForwardArgs a) {
  if (block_index() >= a.tiles) return;
  const Place x = place_of(block_index(), &a);
  const int first = x.first;
  const char *q = (const char *)a.q + 2 * (x.batch * a.q_stride.batch + x.head * a.q_stride.head);
  const char *k = (const char *)a.k +
                  2 * (x.batch * a.k_stride.batch + x.head / a.group * a.k_stride.head);
  const char *v = (const char *)a.v +
                  2 * (x.batch * a.v_stride.batch + x.head / a.group * a.v_stride.head);
  const u32 smem = shared_base();
  const u32 at_q = smem + ${at.q}, at_k = smem + ${at.k}, at_v = smem + ${at.v};
  const u32 warp_q = at_q + (u32)(thread_index() / 32) * ${rows_per_warp * qk_rows.pitch};

  /* Keys below `full` are seen by every row of the block, keys at and past `end` by none. */
//@ if causal then
  const i64 diagonal = (i64)a.seqlen_k - a.seqlen_q; /* row i sees keys up to i + diagonal */
  const i64 last = first + ${block_m} < a.seqlen_q ? first + ${block_m} : a.seqlen_q;
  const int full = first + 1 + diagonal < a.seqlen_k ? (int)(first + 1 + diagonal) : a.seqlen_k;
  const int end = last + diagonal < 0            ? 0
                  : last + diagonal < a.seqlen_k ? (int)(last + diagonal)
                                                 : a.seqlen_k;
//@ else
  const int full = a.seqlen_k, end = a.seqlen_k;
//@ end
  const int blocks = (end + ${block_n - 1}) / ${block_n};
  const float shift = ${shift};

  float o[${m_tiles * dv16 // 2}], s[${m_tiles * block_n // 2}];
  RowState st[${m_tiles}];
#pragma unroll
  for (int i = 0; i < ${m_tiles * dv16 // 2}; i++) o[i] = 0.0f;
#pragma unroll
  for (int t = 0; t < ${m_tiles}; t++) state_clear(&st[t]);

  if (blocks > 0) copy_q(at_q, q, 2 * a.q_stride.row, first, a.seqlen_q);
//@ if num_stages == 1 then
  /* One slot each: values arrive while scores are computed, the next keys while values are used. */
  if (blocks > 0) copy_k(at_k, k, 2 * a.k_stride.row, (blocks - 1) * ${block_n}, a.seqlen_k);
  cp_async_commit();
//@ else
  /* A ring of ${num_stages} slots: block n - ${num_stages - 1} is on its way while n is used. */
#pragma unroll
  for (int i = 0; i < ${num_stages - 1}; i++) {
    if (blocks - 1 - i >= 0) {
      copy_k(at_k + i * ${k_bytes}, k, 2 * a.k_stride.row, (blocks - 1 - i) * ${block_n},
             a.seqlen_k);
      copy_v(at_v + i * ${v_bytes}, v, 2 * a.v_stride.row, (blocks - 1 - i) * ${block_n},
             a.seqlen_k);
    }
    cp_async_commit();
  }
  int slot = 0;
//@ end

#pragma unroll 1
  for (int n = blocks - 1; n >= 0; n--) {
//@ if num_stages == 1 then
    cp_async_wait(0);
    sync_threads();
    copy_v(at_v, v, 2 * a.v_stride.row, n * ${block_n}, a.seqlen_k);
    cp_async_commit();
    scores(s, warp_q, at_k);
//@ else
    cp_async_wait(${num_stages - 2});
    sync_threads();
    const int free_slot = slot == 0 ? ${num_stages - 1} : slot - 1, next = n - ${num_stages - 1};
    if (next >= 0) {
      copy_k(at_k + (u32)free_slot * ${k_bytes}, k, 2 * a.k_stride.row, next * ${block_n},
             a.seqlen_k);
      copy_v(at_v + (u32)free_slot * ${v_bytes}, v, 2 * a.v_stride.row, next * ${block_n},
             a.seqlen_k);
    }
    cp_async_commit();
    scores(s, warp_q, at_k + (u32)slot * ${k_bytes});
//@ end

    if ((n + 1) * (i64)${block_n} > full) mask_block(s, n, &a);
#pragma unroll
    for (int t = 0; t < ${m_tiles}; t++) {
      float factor[2];
      softmax_step(s + t * ${block_n // 2}, &st[t], factor, a.scale_log2, shift);
#pragma unroll
      for (int i = 0; i < ${dv16 // 2}; i++) o[t * ${dv16 // 2} + i] *= factor[i / 2 % 2];
    }
//@ if num_stages == 1 then
    cp_async_wait(0);
    sync_threads();
    if (n > 0) copy_k(at_k, k, 2 * a.k_stride.row, (n - 1) * ${block_n}, a.seqlen_k);
    cp_async_commit();
    accumulate(o, s, at_v);
//@ else
    accumulate(o, s, at_v + (u32)slot * ${v_bytes});
    slot = slot == ${num_stages - 1} ? 0 : slot + 1;
//@ end
  }

  /* o takes the place of q, k and v: everyone must have finished with them, and no copy may still
   * be on its way. */
  cp_async_wait(0);
  sync_threads();
  /* Again: kept alive, it would cost registers in the loop. */
  const Place y = place_of(block_index_again(), &a);
  float *lse = a.lse ? a.lse + y.head_index * a.seqlen_q : 0;
  finish_rows(o, st, smem, lse, y.first, &a, shift);
  sync_threads();
  char *out = (char *)a.o + 2 * (y.batch * a.o_stride.batch + y.head * a.o_stride.head);
  store_rows(smem, out, 2 * a.o_stride.row, y.first, a.seqlen_q);
}
