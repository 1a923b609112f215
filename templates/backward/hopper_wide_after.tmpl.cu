/* ---- after: dQ = scale times the sums, from the order of fragments to rows ---- */

/* All loads are started before the first is used. */
KERNEL void kiln_convert(PARAM BackwardArgs a) {
  const i64 block = block_index();
  if (block >= a.tiles) return;
  const i64 head_index = block / a.m_blocks, batch = head_index / a.num_heads;
  const i64 head = head_index - batch * a.num_heads;
  const i64 first = (block - head_index * a.m_blocks) * ${block};
  const int lane = thread_index() & 31;
  const char *sums = (const char *)a.workspace + a.workspace_at[0] + block * ${sums} + 16 * lane;
  char *dq = (char *)a.dq + 2 * (batch * a.dq_stride.batch + head * a.dq_stride.head);
//@ local parts = 4 * ((d16 + 31) // 32) -- of 16 rows and 32 columns
//@ local own = (parts * 32 + helpers - 1) // helpers -- of a warp
  float x[${own}][16];
#pragma unroll
  for (int i = 0; i < ${own}; i++) {
    const int part = thread_index() / 32 + ${helpers // 32} * i;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int eight = part / 4 * 4 + j; /* of columns */
      u32 w[4] = {0, 0, 0, 0};
      if (eight < ${d16 // 8}) ldg_u32x4(w, sums + eight * 2048 + part % 4 * 512);
#pragma unroll
      for (int r = 0; r < 4; r++) x[i][4 * j + r] = as_float(w[r]);
    }
  }
#pragma unroll
  for (int i = 0; i < ${own}; i++) {
    const int part = thread_index() / 32 + ${helpers // 32} * i;
    const int chunk = part / 4 * 4 + (lane & 3), is_inside = chunk < ${dim // 8};
    const i64 row = first + part % 4 * 16 + lane / 4;
    store_part(x[i], 4, a.softmax_scale, dq + 2 * row * a.dq_stride.row + 16 * chunk,
               16 * a.dq_stride.row, is_inside && row < a.seqlen_q,
               is_inside && row + 8 < a.seqlen_q, lane);
  }
}
