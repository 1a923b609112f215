/* Registers that are touched keep what they hold. */
KERNEL void conformance(PARAM Args a) {
  const int t = thread_index();
  float f[8];
  u32 u[4];
  for (int i = 0; i < 8; i++) f[i] = ldg_f32((const float *)a.in + 8 * t + i);
  ldg_u32x4(u, a.in + 32 * (31 - t));
  touch_f32x8(f);
  touch_u32x4(u);
  for (int i = 0; i < 8; i++) stg_f32((float *)a.out + 8 * t + i, f[i]);
  stg_u32x4(a.out + 1024 + 16 * t, u);
}
