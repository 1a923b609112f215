/* Sums in global memory whose operands or results are subnormal: a[i] + b[i], in three ways. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index();
  float *to = (float *)a.out + t;
  for (u32 i = 0; i < 3; i++) stg_f32(to + 32 * i, ldg_f32((const float *)a.in + t));
  const float b = ldg_f32((const float *)a.in + 32 + t);
  atomic_add_f32(to, b);
  red_add_f32(to + 32, b);
  sync_warp();
  float b4[4];
  for (u32 i = 0; i < 4; i++) b4[i] = ldg_f32((const float *)a.in + 32 + (t & ~3u) + i);
  if (t % 4 == 0) red_add_f32x4(to + 64, b4);
}
