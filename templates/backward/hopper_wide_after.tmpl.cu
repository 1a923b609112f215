/* ---- after: dQ = scale times the sums, from the order of fragments to rows ---- */

KERNEL void kiln_convert(PARAM BackwardArgs a) {
  const i64 block = block_index();
  if (block >= a.tiles) return;
  const i64 head_index = block / a.m_blocks, batch = head_index / a.num_heads;
  const i64 head = head_index - batch * a.num_heads;
  const i64 first = (block - head_index * a.m_blocks) * ${block};
  const int lane = thread_index() & 31;
  const char *sums = (const char *)a.workspace + a.workspace_at[0] + block * ${sums} + 16 * lane;
  char *dq = (char *)a.dq + 2 * (batch * a.dq_stride.batch + head * a.dq_stride.head);
  /* A warp takes 16 rows and 32 columns. */
#pragma unroll 1
  for (int i = thread_index() / 32; i < ${4 * ((d16 + 31) // 32)}; i += ${aside // 32}) {
    const int part = i / 4, chunk = 4 * part + (lane & 3);
    const i64 row = first + i % 4 * 16 + lane / 4;
    float x[16];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      u32 w[4] = {0, 0, 0, 0};
      if (4 * part + j < ${d16 // 8}) ldg_u32x4(w, sums + (4 * part + j) * 2048 + i % 4 * 512);
#pragma unroll
      for (int r = 0; r < 4; r++) x[4 * j + r] = as_float(w[r]);
    }
    store_part(x, 4, a.softmax_scale, dq + 2 * row * a.dq_stride.row + 16 * chunk,
               16 * a.dq_stride.row, row < a.seqlen_q && chunk < ${dim // 8},
               row + 8 < a.seqlen_q && chunk < ${dim // 8}, lane);
  }
}
