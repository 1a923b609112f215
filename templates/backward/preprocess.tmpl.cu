/* ---- before: statistics of the rows ---- */

/* Sums the products of four pairs of ${dtype} numbers. */
DEV float dot_8(const u32 *x, const u32 *y) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    sum = fmaf(${unpack}(x[i]), ${unpack}(y[i]), sum);
    sum = fmaf(${unpack}(x[i] >> 16), ${unpack}(y[i] >> 16), sum);
  }
  return sum;
}

//@ local step = threads // 8 -- rows at a time, 8 threads each
//@ local chunks = (head_dim_v // 8 + 7) // 8 -- of a thread in a row
//@ local passes = math.min(math.max(1, 4 // chunks), (block_m + step - 1) // step)
//@ local is_ragged = block_m % (step * passes) ~= 0
//@ local past = head_dim_v // 8 % 8 ~= 0 and "8 * c + part >= " .. head_dim_v // 8
/* Of a block of query rows: -lse log2(e), then -delta, in fp32. Rows past the end, and those that
 * see no key, get -inf: all of their exponentials are 0.
//@ if p_fp16 then
 * The others get ${p_exponent} more, which makes p ${p_scale} times as large.
//@ end
//@ if deterministic then
 * Clears the block's dq and its turn.
//@ else
 * Clears the block's dq.
//@ end
 * The loads of ${passes * step} rows are started before the first is used. */
KERNEL void kiln_preprocess(PARAM BackwardArgs a) {
  if (block_index() >= a.tiles) return;
  const i64 block = block_index(), head_index = block / a.m_blocks;
  const i64 batch = head_index / a.num_heads, head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * ${block_m};
  const int end = a.seqlen_q - first < ${block_m} ? a.seqlen_q - first : ${block_m};
  const u32 zeros[4] = { 0, 0, 0, 0 };
  char *dq = item(0, &a) + block * ${4 * acc_numbers};
#pragma unroll 4
  for (int i = thread_index(); i < ${acc_numbers // 4}; i += ${threads})
    stg_u32x4(dq + 16 * i, zeros);
//@ if deterministic then
  if (thread_index() == 0) stg_u32((u32 *)item(2, &a) + block, 0);
//@ end
  const int part = thread_index() % 8; /* of a row */
  const char *o = (const char *)a.o + 16 * part +
                  2 * (batch * a.o_stride.batch + head * a.o_stride.head + first * a.o_stride.row);
  const char *dout =
      (const char *)a.dout + 16 * part +
      2 * (batch * a.do_stride.batch + head * a.do_stride.head + first * a.do_stride.row);
  const float *lse = a.lse + head_index * a.seqlen_q + first;
  float *rows = (float *)item(1, &a) + block * ${2 * block_m};
#pragma unroll 1
  for (int begin = 0; begin < ${block_m}; begin += ${step * passes}) {
    const int row0 = begin + thread_index() / 8;
    u32 x[${passes * chunks}][4], y[${passes * chunks}][4];
    float shift[${passes}];
#pragma unroll
    for (int i = 0; i < ${passes}; i++) {
      const int row = row0 + ${step} * i;
      shift[i] = part == 0 && row < end ? ldg_f32(lse + row) : NEG_INFINITY;
#pragma unroll
      for (int c = 0; c < ${chunks}; c++) {
        u32 *u = x[${chunks} * i + c], *w = y[${chunks} * i + c];
#pragma unroll
        for (int j = 0; j < 4; j++) u[j] = w[j] = 0;
        if (row >= end${past and " || " .. past or ""}) continue;
        ldg_u32x4(u, o + 2 * row * a.o_stride.row + 128 * c);
        ldg_u32x4(w, dout + 2 * row * a.do_stride.row + 128 * c);
      }
    }
#pragma unroll
    for (int i = 0; i < ${passes}; i++) {
      const int row = row0 + ${step} * i;
      float delta = 0.0f;
#pragma unroll
      for (int c = 0; c < ${chunks}; c++)
        delta += dot_8(x[${chunks} * i + c], y[${chunks} * i + c]);
#pragma unroll
      for (int lanes = 1; lanes < 8; lanes *= 2) delta += shfl_xor_f32(delta, lanes);
      if (part != 0${is_ragged and " || row >= " .. block_m or ""}) continue;
//@ if p_fp16 then
      if (shift[i] != NEG_INFINITY) shift[i] = fmaf(-1.44269504f, shift[i], ${p_exponent}.0f);
//@ else
      if (shift[i] != NEG_INFINITY) shift[i] *= -1.44269504f;
//@ end
      stg_f32(rows + row, shift[i]);
      stg_f32(rows + ${block_m} + row, -delta);
    }
  }
}
