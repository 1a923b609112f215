/* Bytes of two words, by every selector of four digits below 8. */
KERNEL void conformance(PARAM Args a) {
  for (u32 i = (u32)thread_index(); i < 4096; i += 128) {
    const u32 selector = (i & 7) | (i >> 3 & 7) << 4 | (i >> 6 & 7) << 8 | (i >> 9 & 7) << 12;
    stg_u32((u32 *)a.out + i, byte_perm(0x12345678u + i, 0x9abcdef0u ^ i, selector));
  }
}
