/* Two warps hand a number to and fro through polled words. */
KERNEL void conformance(PARAM Args a) {
  const u32 s = shared_base();
  const int t = thread_index();
  if (t < 2) sts_flag(s + 4 * (u32)t, 0);
  sync_threads();
  if (t % 32 == 0) {
    const u32 own = s + (t ? 4u : 0u), other = s + (t ? 0u : 4u);
    for (int i = 1; i <= 5; i++) {
      if (t == 0) sts_flag(own, 10 * i);
      while (lds_flag(other) < (t ? 10 * i : 10 * i + 1)) {}
      stg_u32((u32 *)a.out + t / 32 * 5 + i - 1, (u32)lds_flag(other));
      if (t) sts_flag(own, 10 * i + 1);
    }
  }
}
