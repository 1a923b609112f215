/* What each thread of a 3 x 2 grid reads about itself. */
KERNEL void conformance(PARAM Args a) {
  const i64 block = block_index();
  u32 *out = (u32 *)a.out + 4 * (64 * block + thread_index());
  stg_u32(out, (u32)thread_index());
  stg_u32(out + 1, (u32)block);
  stg_u32(out + 2, (u32)block_index_again());
  stg_u32(out + 3, (u32)num_blocks());
}
