/* ---- after: dQ = scale times the sums, from the order of fragments to rows ---- */

KERNEL void kiln_convert(PARAM BackwardArgs a) {
  const i64 block = block_index();
  if (block >= a.tiles) return;
  const u32 smem = shared_base();
  const i64 head_index = block / a.m_blocks, batch = head_index / a.num_heads;
  const i64 head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * ${block_m};
  const char *sums = (const char *)a.workspace + a.workspace_at[0] + block * ${dq_bytes};
#pragma unroll 4
  for (int i = thread_index(); i < ${dq_bytes // 16}; i += ${threads}) {
    u32 w[4];
    ldg_u32x4(w, sums + 16 * i);
    const int lane = i & 31, j = i / 32 % ${dq_regs // 4}, warp = i / 32 / ${dq_regs // 4};
    const int row = ${dq_mode == "rows" and "16 * warp" or "warp % 4 * 16"} + lane / 4;
    const int column = ${dq_mode == "columns" and "warp / 4 * 64 + " or ""}8 * j + 2 * (lane & 3);
    const float s = a.softmax_scale;
    const u32 at = smem + row * ${dq_pitch} + column * 2;
    sts_u32(at, ${pack}(as_float(w[0]) * s, as_float(w[1]) * s));
    sts_u32(at + ${8 * dq_pitch}, ${pack}(as_float(w[2]) * s, as_float(w[3]) * s));
  }
  sync_threads();
  char *dq = (char *)a.dq + 2 * (batch * a.dq_stride.batch + head * a.dq_stride.head);
  for (int i = thread_index(); i < ${block_m * (dim // 8)}; i += ${threads}) {
    const int row = i / ${dim // 8}, chunk = i % ${dim // 8};
    if (first + row >= a.seqlen_q) break;
    u32 w[4];
    lds_u32x4(w, smem + row * ${dq_pitch} + 16 * chunk);
    stg_u32x4(dq + 2 * (i64)(first + row) * a.dq_stride.row + 16 * chunk, w);
  }
}
