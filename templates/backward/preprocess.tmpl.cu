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

/* Of a block of query rows: -lse log2(e), then -delta, in fp32. Rows past the end, and those that
 * see no key, get -inf: all of their exponentials are 0.
//@ if deterministic then
 * Clears the block's dq and its turn. */
//@ else
 * Clears the block's dq. */
//@ end
KERNEL void kiln_preprocess(PARAM BackwardArgs a) {
  if (block_index() >= a.tiles) return;
  const i64 block = block_index(), head_index = block / a.m_blocks;
  const i64 batch = head_index / a.num_heads, head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * ${block_m};
  const char *o = (const char *)a.o + 2 * (batch * a.o_stride.batch + head * a.o_stride.head);
  const char *dout =
      (const char *)a.dout + 2 * (batch * a.do_stride.batch + head * a.do_stride.head);
  float *rows = (float *)item(1, &a) + block * ${2 * block_m};
  const int part = thread_index() % 8; /* of a row */
  for (int row = thread_index() / 8; row < ${block_m}; row += ${threads // 8}) {
    const i64 from = first + row;
    float delta = 0.0f;
    if (from < a.seqlen_q) {
      for (int chunk = part; chunk < ${head_dim_v // 8}; chunk += 8) {
        u32 x[4], y[4];
        ldg_u32x4(x, o + 2 * from * a.o_stride.row + 16 * chunk);
        ldg_u32x4(y, dout + 2 * from * a.do_stride.row + 16 * chunk);
        delta += dot_8(x, y);
      }
    }
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) delta += shfl_xor_f32(delta, lanes);
    if (part == 0) {
      const float lse = from < a.seqlen_q ? ldg_f32(a.lse + head_index * a.seqlen_q + from)
                                          : NEG_INFINITY;
      stg_f32(rows + row, lse == NEG_INFINITY ? lse : -1.44269504f * lse);
      stg_f32(rows + ${block_m} + row, -delta);
    }
  }
  const u32 zeros[4] = { 0, 0, 0, 0 };
  char *dq = item(0, &a) + block * ${4 * acc_numbers};
  for (int i = thread_index(); i < ${acc_numbers // 4}; i += ${threads})
    stg_u32x4(dq + 16 * i, zeros);
//@ if deterministic then
  if (thread_index() == 0) stg_u32((u32 *)item(2, &a) + block, 0);
//@ end
}
