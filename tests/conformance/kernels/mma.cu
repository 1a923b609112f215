/* ${count} products a (16 x 16) . b (16 x 8) + d (16 x 8), all row-major, a then b then d. */
KERNEL void conformance(PARAM Args x) {
  const int g = thread_index() / 4, q = thread_index() % 4;
  for (int n = 0; n < ${count}; n++) {
    const u16 *pa = (const u16 *)(x.in + 1280 * n), *pb = pa + 256;
    const float *pd = (const float *)(x.in + 1280 * n + 768);
    u32 a[4], b[2];
    float d[4];
    for (int i = 0; i < 4; i++) {
      const u16 *p = pa + (g + 8 * (i & 1)) * 16 + 2 * q + 8 * (i >> 1);
      a[i] = ldg_u16(p) | ldg_u16(p + 1) << 16;
      d[i] = ldg_f32(pd + (g + 8 * (i >> 1)) * 8 + 2 * q + (i & 1));
    }
    for (int i = 0; i < 2; i++) {
      const u16 *p = pb + (2 * q + 8 * i) * 8 + g;
      b[i] = ldg_u16(p) | ldg_u16(p + 8) << 16;
    }
    mma_m16n8k16_${dtype}(d, a, b);
    for (int i = 0; i < 4; i++)
      stg_f32((float *)x.out + 128 * n + (g + 8 * (i >> 1)) * 8 + 2 * q + (i & 1), d[i]);
  }
}
