/* Every 16-bit number, widened; a NaN as 1. */
KERNEL void conformance(PARAM Args a) {
  for (u32 i = (u32)thread_index(); i < 65536; i += 128) {
    const float x = ${wrapper}(i * 0x10001u);
    stg_f32((float *)a.out + i, x == x ? x : 1.0f);
  }
}
