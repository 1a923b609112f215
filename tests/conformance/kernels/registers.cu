/* One warpgroup gives registers back; two take more, and use them. */
KERNEL void conformance(PARAM Args a) {
  const int t = thread_index();
  if (t < 128) {
    reg_dec(24);
    stg_u32((u32 *)a.out + t, (u32)t);
    return;
  }
  reg_inc(240);
  u32 x[128];
  for (int i = 0; i < 128; i++) x[i] = ldg_u16((const u16 *)a.in + (i + t) % 512);
  touch_u32x128(x);
  u32 sum = 0;
  for (int i = 0; i < 128; i++) sum = 3 * sum + x[i];
  stg_u32((u32 *)a.out + t, sum);
}
