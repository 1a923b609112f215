//@ include("common/args.tmpl.cu")

/* Standard attention: what FlashAttention replaced, written plainly. Three kernels, and two tables
 * in global memory between them: scores (batch, num_heads, seqlen_q, seqlen_k) in fp32, and
 * probabilities of the same shape in ${dtype}, rows padded to a multiple of 8 keys. Blocks of 128
 * threads; the products work on ${block_m} x ${block_n} tiles, a warp on 16 rows. */

DEV i64 probability_pitch(const ForwardArgs *a) { return ((i64)a->seqlen_k + 7) / 8 * 8; }
DEV float *score_row(const ForwardArgs *a, i64 row) {
  return (float *)a->workspace + row * a->seqlen_k;
}
DEV u16 *probability_row(const ForwardArgs *a, i64 row) {
  const i64 score_bytes = 4 * (i64)a->batch * a->num_heads * a->seqlen_q * a->seqlen_k;
  return (u16 *)((char *)a->workspace + (score_bytes + 255) / 256 * 256) +
         row * probability_pitch(a);
}

//@ for _, t in ipairs(copies) do
/* Copies ${t.rows} rows of ${t.layout.cols} columns to shared memory; rows at and past end_row and
 * columns at and past end_col become 0. */
DEV void copy_${t.name}(u32 to, const char *from, i64 row_bytes, int first, int end_row,
            int end_col) {
  for (int i = thread_index(); i < ${t.rows * t.layout.chunks}; i += 128) {
    const int row = i / ${t.layout.chunks}, chunk = i % ${t.layout.chunks};
    const int left = row < end_row - first ? 2 * (end_col - 8 * chunk) : 0;
    const int bytes = left < 0 ? 0 : left < 16 ? left : 16;
//@ local swizzle = t.layout.swizzle_text("row")
    const u32 at = to + (u32)row * ${t.layout.pitch} + (u32)(chunk ^ ${swizzle}) * 16;
    cp_async_16(at, from + (i64)(first + row) * row_bytes + 16 * chunk, bytes);
  }
}
//@ end

/* The maximum or the sum of x over a warp. */
DEV float warp_reduce(float x, int sum) {
  for (int i = 16; i > 0; i /= 2) {
    const float y = shfl_xor_f32(x, i);
    x = sum ? x + y : fmaxf(x, y);
  }
  return x;
}

/* scores = q k^T, -inf where the mask hides a key. Tiles: key block fastest, then query block, then
 * head, then batch. */
KERNEL void kiln_scores(PARAM ForwardArgs a) {
  const i64 tile = block_index();
  if (tile >= a.tiles) return;
  const int n_blocks = (a.seqlen_k + ${block_n - 1}) / ${block_n};
  const i64 line = tile / n_blocks, head_index = line / a.m_blocks;
  const i64 batch = head_index / a.num_heads;
  const int first_k = (int)(tile - line * n_blocks) * ${block_n};
  const int first_q = (int)(line - head_index * a.m_blocks) * ${block_m};
  const int head = (int)(head_index - batch * a.num_heads), head_k = head / a.group;
  const u32 smem = shared_base();
  copy_q(smem + ${at.q},
         (const char *)a.q + 2 * (batch * a.q_stride.batch + head * a.q_stride.head),
         2 * a.q_stride.row, first_q, a.seqlen_q, ${dim});
  copy_k(smem + ${at.k},
         (const char *)a.k + 2 * (batch * a.k_stride.batch + head_k * a.k_stride.head),
         2 * a.k_stride.row, first_k, a.seqlen_k, ${dim});
  cp_async_commit();
  cp_async_wait(0);
  sync_threads();

  const int lane = thread_index() & 31, warp_row = thread_index() / 32 * 16;
  float s[${block_n // 2}];
#pragma unroll
  for (int i = 0; i < ${block_n // 2}; i++) s[i] = 0.0f;
#pragma unroll
  for (int kk = 0; kk < ${d16 // 16}; kk++) {
    const int q_row = warp_row + (lane & 15);
    const int q_chunk = (2 * kk + (lane >> 4)) ^ ${qk_rows.swizzle_text("q_row")};
    u32 x[4];
    ldmatrix_x4(x, smem + ${at.q} + (u32)q_row * ${qk_rows.pitch} + (u32)q_chunk * 16);
#pragma unroll
    for (int j = 0; j < ${block_n // 16}; j++) {
      const int k_row = 16 * j + (lane & 7) + (lane >> 4) * 8;
      const int k_chunk = (2 * kk + (lane >> 3 & 1)) ^ ${qk_rows.swizzle_text("k_row")};
      u32 y[4];
      ldmatrix_x4(y, smem + ${at.k} + (u32)k_row * ${qk_rows.pitch} + (u32)k_chunk * 16);
      ${mma}(s + 8 * j, x, y);
      ${mma}(s + 8 * j + 4, x, y + 2);
    }
  }
#pragma unroll
  for (int i = 0; i < ${block_n // 2}; i++) {
    const int row = first_q + warp_row + lane / 4 + i / 2 % 2 * 8;
    const int key = first_k + i / 4 * 8 + 2 * (lane & 3) + i % 2;
//@ if causal then
    const int hidden = key > (i64)row + a.seqlen_k - a.seqlen_q;
    if (row < a.seqlen_q && key < a.seqlen_k)
      stg_f32(score_row(&a, head_index * a.seqlen_q + row) + key, hidden ? NEG_INFINITY : s[i]);
//@ else
    if (row < a.seqlen_q && key < a.seqlen_k)
      stg_f32(score_row(&a, head_index * a.seqlen_q + row) + key, s[i]);
//@ end
  }
}

//@ if not wide_exponent then
/* probabilities = softmax of a row of scores, times 2^15, so that fp16 holds small ones; a warp
 * each row. Tiles: four rows, then head, then batch. */
//@ else
/* probabilities = softmax of a row of scores; a warp each row. Tiles: four rows, then head, then
 * batch. */
//@ end
KERNEL void kiln_softmax(PARAM ForwardArgs a) {
  const i64 tile = block_index();
  if (tile >= a.tiles) return;
  const int fours = (int)(((i64)a.seqlen_q + 3) / 4), lane = thread_index() & 31;
  const i64 head_index = tile / fours;
  const int q_row = (int)(tile - head_index * fours) * 4 + thread_index() / 32;
  if (q_row >= a.seqlen_q) return;
  const i64 row = head_index * a.seqlen_q + q_row;
  const float *s = score_row(&a, row);
  u16 *p = probability_row(&a, row);
  float m = NEG_INFINITY, l = 0.0f;
  for (int i = lane; i < a.seqlen_k; i += 32) m = fmaxf(m, ldg_f32(s + i));
  m = warp_reduce(m, 0);
  const float ref = m == NEG_INFINITY ? 0.0f : m;
  for (int i = lane; i < a.seqlen_k; i += 32)
    l += ex2((ldg_f32(s + i) - ref) * a.scale_log2);
  l = warp_reduce(l, 1);
//@ if causal then
  const int sees_keys = a.seqlen_k > 0 && q_row + (i64)a.seqlen_k >= a.seqlen_q;
//@ else
  const int sees_keys = a.seqlen_k > 0;
//@ end
  const float inverse = l == 0.0f && !sees_keys ? 0.0f : ${scale} / l;
  for (i64 i = lane; i < probability_pitch(&a); i += 32) {
    const float x = i < a.seqlen_k ? ex2((ldg_f32(s + i) - ref) * a.scale_log2) * inverse : 0.0f;
    stg_u16(p + i, ${pack}(x, 0.0f));
  }
  if (a.lse && lane == 0)
    stg_f32(a.lse + row, l == 0.0f ? NEG_INFINITY : m * a.softmax_scale + lg2(l) * 0.693147181f);
}

/* o = probabilities v. Tiles: query block fastest, then head, then batch. */
KERNEL void kiln_output(PARAM ForwardArgs a) {
  const i64 tile = block_index();
  if (tile >= a.tiles) return;
  const i64 head_index = tile / a.m_blocks, batch = head_index / a.num_heads;
  const int first = (int)(tile - head_index * a.m_blocks) * ${block_m};
  const int head = (int)(head_index - batch * a.num_heads), head_k = head / a.group;
  const char *v = (const char *)a.v + 2 * (batch * a.v_stride.batch + head_k * a.v_stride.head);
  const int lane = thread_index() & 31, warp_row = thread_index() / 32 * 16;
  const u32 smem = shared_base();
  float o[${dv16 // 2}];
#pragma unroll
  for (int i = 0; i < ${dv16 // 2}; i++) o[i] = 0.0f;
#pragma unroll 1
  for (int key = 0; key < a.seqlen_k; key += ${block_n}) {
    sync_threads();
    copy_p(smem + ${at.p}, (const char *)(probability_row(&a, head_index * a.seqlen_q) + key),
           2 * probability_pitch(&a), first, a.seqlen_q, (int)probability_pitch(&a) - key);
    copy_v(smem + ${at.v}, v, 2 * a.v_stride.row, key, a.seqlen_k, ${dv});
    cp_async_commit();
    cp_async_wait(0);
    sync_threads();
#pragma unroll
    for (int kk = 0; kk < ${block_n // 16}; kk++) {
      const int p_row = warp_row + (lane & 15);
      const int p_chunk = (2 * kk + (lane >> 4)) ^ ${p_rows.swizzle_text("p_row")};
      u32 x[4];
      ldmatrix_x4(x, smem + ${at.p} + (u32)p_row * ${p_rows.pitch} + (u32)p_chunk * 16);
#pragma unroll
      for (int j = 0; j < ${dv16 // 16}; j++) {
        const int v_row = 16 * kk + (lane & 15);
        const int v_chunk = (2 * j + (lane >> 4)) ^ ${v_rows.swizzle_text("v_row")};
        u32 y[4];
        ldmatrix_x4_trans(y, smem + ${at.v} + (u32)v_row * ${v_rows.pitch} + (u32)v_chunk * 16);
        ${mma}(o + 8 * j, x, y);
        ${mma}(o + 8 * j + 4, x, y + 2);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < ${dv16 // 2}; i += 2) {
    const int row = first + warp_row + lane / 4 + i / 2 % 2 * 8;
    const int column = i / 4 * 8 + 2 * (lane & 3);
    char *to = (char *)a.o + 2 * (batch * a.o_stride.batch + (i64)row * a.o_stride.row +
                                  head * a.o_stride.head + column);
    if (row < a.seqlen_q && column < ${dv})
      stg_u32(to, ${pack}(o[i]${unscale}, o[i + 1]${unscale}));
  }
}
