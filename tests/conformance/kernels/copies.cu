/* Thread t copies t % 17 bytes and zeros behind them; then whole chunks in a group of their own. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), s = shared_base();
  u32 x[4];
  cp_async_16(s + 16 * t, a.in + 16 * t, (int)(t % 17));
  cp_async_commit();
  cp_async_16(s + 4096 + 16 * (t ^ 5), a.in + 16 * t, 16);
  cp_async_commit();
  cp_async_wait(1);
  sync_threads();
  lds_u32x4(x, s + 16 * (127 - t));
  stg_u32x4(a.out + 16 * (127 - t), x);
  cp_async_wait(0);
  sync_threads();
  lds_u32x4(x, s + 4096 + 16 * (127 - t));
  stg_u32x4(a.out + 2048 + 16 * t, x);
}
