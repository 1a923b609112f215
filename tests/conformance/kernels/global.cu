/* Global memory: each width, at addresses that differ by thread. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index();
  const u16 *halves = (const u16 *)a.in;
  u32 *out = (u32 *)a.out;
  u32 x[4];
  stg_f32((float *)(out + t), ldg_f32((const float *)a.in + (t ^ 21)));
  stg_u32(out + 64 + t, ldg_u16(halves + 3 * t));
  stg_u16((u16 *)(out + 128) + t, ldg_u16(halves + t) | 0xabcd0000u);
  ldg_u32x4(x, a.in + 16 * (63 - t));
  x[1] ^= t;
  stg_u32x4(out + 192 + 4 * t, x);
}
