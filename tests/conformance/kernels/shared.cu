/* Words stored to shared memory by one thread and loaded by another, within a warp and a block. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), s = shared_base();
  const float *in = (const float *)a.in;
  u32 *out = (u32 *)a.out + t;
  u32 x[4], y[4];
  ldg_u32x4(x, in + 4 * t);
  sts_i32(s + 4 * t, (int)x[0]);
  sync_warp();
  stg_u32(out, (u32)lds_i32(s + 4 * (t ^ 13)));
  sts_f32(s + 1024 + 4 * t, ldg_f32(in + 4 * t + 1));
  sync_threads();
  stg_f32((float *)(out + 128), lds_f32(s + 1024 + 4 * (127 - t)));
  for (u32 i = 0; i < 4; i++) sts_u32(s + 2048 + 16 * t + 4 * i, x[3 - i]);
  sync_threads();
  lds_u32x4(y, s + 2048 + 16 * (t ^ 96));
  for (u32 i = 0; i < 4; i++) stg_u32(out + 256 + 128 * i, y[i]);
  stg_u32(out + 768, s & 1023);
}
