/* ---- after: dQ = scale times the sums, from the order of fragments to rows ---- */

//@ local quads = dq_regs // 4 -- of a lane: rows r and r + 8, columns 8 j + 2 c and the next
//@ local parts = dq_mode == "keys" and 4 or 8 -- of a query block: 16 rows each
/* A warp converts a part of a query block whose first row of dQ is at `dq`; rows: those that are
 * inside the tensor. All loads are started before the first is used. */
DEV void convert_part(const char *sums, int part, char *dq, i64 row_bytes, int rows, float scale) {
  const int lane = thread_index() & 31;
  const int row = ${dq_mode == "rows" and "16 * part" or "part % 4 * 16"} + lane / 4;
  const int first = ${dq_mode == "columns" and "part / 4 * 8 + " or ""}(lane & 3); /* chunk */
  u32 x[${(quads + 3) // 4 * 4}][4];
#pragma unroll
  for (int j = 0; j < ${quads}; j++)
    ldg_u32x4(x[j], sums + part * ${128 * dq_regs} + 512 * j + 16 * lane);
#pragma unroll
  for (int j = ${quads}; j < ${(quads + 3) // 4 * 4}; j++)
    x[j][0] = x[j][1] = x[j][2] = x[j][3] = 0;
#pragma unroll
  for (int j = 0; j < ${quads}; j += 4) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      u32 w[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        w[i] = ${pack}(as_float(x[j + i][2 * r]) * scale, as_float(x[j + i][2 * r + 1]) * scale);
      quad_transpose(w, lane);
      if (row + 8 * r < rows && first + j < ${dim // 8})
        stg_u32x4(dq + (row + 8 * r) * row_bytes + 16 * (first + j), w);
    }
  }
}

/* Query block `block`, counted over all heads, by warp `warp` of ${parts}. */
DEV void convert_block(i64 block, int warp, const BackwardArgs *a) {
  const i64 head_index = block / a->m_blocks, batch = head_index / a->num_heads;
  const i64 first = (block - head_index * a->m_blocks) * ${block_m};
  char *dq = (char *)a->dq + 2 * (batch * a->dq_stride.batch +
                                  (head_index - batch * a->num_heads) * a->dq_stride.head +
                                  first * a->dq_stride.row);
  const i64 rows = a->seqlen_q - first;
  convert_part((const char *)a->workspace + a->workspace_at[0] + block * ${dq_bytes}, warp, dq,
               2 * a->dq_stride.row, rows < ${block_m} ? (int)rows : ${block_m}, a->softmax_scale);
}

KERNEL void kiln_convert(PARAM BackwardArgs a) {
  if (block_index() >= a.tiles) return;
//@ if parts < helpers // 32 then
  if (thread_index() >= ${32 * parts}) return;
//@ end
  convert_block(block_index(), thread_index() / 32, &a);
}
