/* ---- after: dQ = scale times the sums, from the order of fragments to rows ---- */

KERNEL void kiln_convert(PARAM BackwardArgs a) {
  const i64 block = block_index();
  if (block >= a.tiles) return;
  const u32 smem = shared_base();
  const i64 head_index = block / a.m_blocks, batch = head_index / a.num_heads;
  const i64 head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * ${block_m};
  const char *sums = (const char *)a.workspace + a.workspace_at[0] + block * ${dq_bytes};
//@ local most = 8 -- loads that are started before the first is used
  for (int from = thread_index(); from < ${dq_bytes // 16}; from += ${most * helpers}) {
    u32 w[${most}][4];
#pragma unroll
    for (int i = 0; i < ${most}; i++)
      if (from + ${helpers} * i < ${dq_bytes // 16})
        ldg_u32x4(w[i], sums + 16 * (from + ${helpers} * i));
#pragma unroll
    for (int i = 0; i < ${most}; i++) {
      const int at = from + ${helpers} * i, lane = at & 31, j = at / 32 % ${dq_regs // 4};
      const int warp = at / 32 / ${dq_regs // 4};
      const int row = ${dq_mode == "rows" and "16 * warp" or "warp % 4 * 16"} + lane / 4;
      const int column = ${dq_mode == "columns" and "warp / 4 * 64 + " or ""}8 * j + 2 * (lane & 3);
      const u32 to = smem + row * ${dq_pitch} + column * 2;
      const float s = a.softmax_scale;
      if (at >= ${dq_bytes // 16}) break;
      sts_u32(to, ${pack}(as_float(w[i][0]) * s, as_float(w[i][1]) * s));
      sts_u32(to + ${8 * dq_pitch}, ${pack}(as_float(w[i][2]) * s, as_float(w[i][3]) * s));
    }
  }
  sync_threads();
  char *dq = (char *)a.dq + 2 * (batch * a.dq_stride.batch + head * a.dq_stride.head);
  for (int i = thread_index(); i < ${block_m * (dim // 8)}; i += ${helpers}) {
    const int row = i / ${dim // 8}, chunk = i % ${dim // 8};
    if (first + row >= a.seqlen_q) break;
    u32 w[4];
    lds_u32x4(w, smem + row * ${dq_pitch} + 16 * chunk);
    stg_u32x4(dq + 2 * (i64)(first + row) * a.dq_stride.row + 16 * chunk, w);
  }
}
