/* Seven blocks add to words of the input, which begin as zero; sums are whole numbers or halves.
 * The block that comes last writes the words out. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), s = shared_base();
  u32 *words = (u32 *)a.in, *out = (u32 *)a.out;
  float *sums = (float *)words;
  const float x[4] = {1.0f, (float)t, -2.0f, (float)block_index()};
  const u32 ticket = atomic_add_u32(words, 3);
  stg_u32(out + ticket / 3, ticket);
  const float number = atomic_add_f32(sums + 1, 0.5f);
  stg_f32((float *)out + 448 + (int)(2.0f * number), number);
  red_add_f32(sums + 2, (float)t - 20.0f);
  atomic_inc_u32(words + 3, 99);
  red_add_f32x4(sums + 4, x);
  red_add_f32x2(sums + 8, x);
  atomic_max_i32((int *)words + 10, (int)(t * 37 % 64) - 9);
  sync_threads();
  if (t == 0) {
    fence_gpu();
    sts_u32(s, atomic_add_u32_acq_rel(words + 11, 1));
  }
  sync_threads();
  if (lds_i32(s) == 6 && t < 12) stg_u32(out + 896 + t, ldg_acquire_u32(words + t));
}
