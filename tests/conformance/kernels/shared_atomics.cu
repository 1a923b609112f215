/* Threads add to words in shared memory, and raise one; sums are whole numbers or subnormal. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), s = shared_base();
  u32 x[4];
  ldg_u32x4(x, a.in);
  if (t == 0) sts_u32x4(s, x);
  sync_threads();
  const u32 ticket = atomic_shared_add_u32(s, 5);
  stg_u32((u32 *)a.out + 4 + ticket / 5, ticket);
  atomic_shared_max_i32(s + 4, (int)(t * 29 % 128) - 100);
  atomic_shared_add_f32(s + 8, (float)t - 7.0f);
  if (t < 32) atomic_shared_add_f32(s + 12, ldg_f32((const float *)a.in + 4));
  sync_threads();
  if (t < 4) stg_u32((u32 *)a.out + t, (u32)lds_i32(s + 4 * t));
}
