/* Numbers as bits and back. */
KERNEL void conformance(PARAM Args a) {
  for (u32 i = (u32)thread_index(); i < 1024; i += 128) {
    const u32 bits = i << 22 | i;
    stg_u32(a.out + 8 * i, as_u32(as_float(bits)));
    stg_f32((float *)(a.out + 8 * i + 4), as_float(as_u32((float)i)));
  }
}
