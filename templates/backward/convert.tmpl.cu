/* ---- after: dq ---- */

/* Rounds a block of query rows of dq. */
KERNEL void kiln_convert(PARAM BackwardArgs a) {
  if (block_index() >= a.tiles) return;
  const i64 block = block_index(), head_index = block / a.m_blocks;
  const i64 batch = head_index / a.num_heads, head = head_index - batch * a.num_heads;
  const int first = (int)(block - head_index * a.m_blocks) * ${block_m};
  const u32 smem = shared_base();
#pragma unroll
  for (int part = 0; part < ${dq.parts}; part++) {
    float x[${dq.numbers}];
    get_dq(x, (const float *)item(0, &a) + block * ${acc_numbers}, part);
#pragma unroll
    for (int i = 0; i < ${dq.numbers}; i++) x[i] *= a.softmax_scale${unscaled};
    lay_dq(smem, x, part);
  }
  sync_threads();
  char *to = (char *)a.dq + 2 * (batch * a.dq_stride.batch + head * a.dq_stride.head +
                                 first * a.dq_stride.row);
  store_dq(smem, to, 2 * a.dq_stride.row, a.seqlen_q - first);
}
