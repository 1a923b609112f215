/* ---- before: statistics of the queries, and sums that begin at 0 ---- */

//@ local lanes = 1 -- that share a row
//@ while lanes < dv // 8 do lanes = 2 * lanes end
//@ local passes = math.max(1, block * lanes // helpers) -- rows of a lane
/* Of a row -lse log2(e), so that P = 2^(s + that), and delta = rowsum(dO o). A row that sees no
 * key, or lies past the end, gets P = 0. Query blocks of ${block} rows: m block fastest, then head,
 * then batch; ${lanes} lanes a row. All loads are started before the first is used. */
KERNEL void kiln_preprocess(PARAM BackwardArgs a) {
  const i64 block = block_index();
  if (block >= a.tiles) return;
  const i64 head_index = block / a.m_blocks, batch = head_index / a.num_heads;
  const i64 head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * ${block};
  const int lane = thread_index() % ${lanes}, row0 = thread_index() / ${lanes};
  char *sums = (char *)a.workspace + a.workspace_at[0] + block * ${sums};
  float *statistics = (float *)((char *)a.workspace + a.workspace_at[1]) + block * ${2 * block};
  const char *o = (const char *)a.o + 16 * lane +
                  2 * (batch * a.o_stride.batch + head * a.o_stride.head);
  const char *dout = (const char *)a.dout + 16 * lane +
                     2 * (batch * a.do_stride.batch + head * a.do_stride.head);
  u32 u[${passes}][4], w[${passes}][4];
  const u32 zero[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < ${passes}; i++) {
    const i64 row = first + row0 + ${helpers // lanes} * i;
#pragma unroll
    for (int j = 0; j < 4; j++) u[i][j] = w[i][j] = 0;
    if (row >= a.seqlen_q || row >= first + ${block} || lane >= ${dv // 8}) continue;
    ldg_u32x4(u[i], o + 2 * row * a.o_stride.row);
    ldg_u32x4(w[i], dout + 2 * row * a.do_stride.row);
  }
#pragma unroll 4
  for (int i = thread_index(); i < ${sums // 16}; i += ${helpers}) stg_u32x4(sums + 16 * i, zero);
#pragma unroll
  for (int i = 0; i < ${passes}; i++) {
    const int r = row0 + ${helpers // lanes} * i;
    const i64 row = first + r;
    float delta = dot(u[i], w[i]);
//@ local i = 1
//@ while i < lanes do
    delta += shfl_xor_f32(delta, ${i});
//@ i = 2 * i
//@ end
    if (lane != 0 || r >= ${block}) continue;
    const float lse =
        row < a.seqlen_q ? ldg_f32(a.lse + head_index * a.seqlen_q + row) : NEG_INFINITY;
    stg_f32(statistics + r, lse == NEG_INFINITY ? lse : -lse * 1.44269504f);
    stg_f32(statistics + ${block} + r, delta);
  }
}
