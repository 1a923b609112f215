/* ${count} boxes of rank ${rank} stored over one another, or added, at corners that lie in the
 * input, eight words each. What is stored lies behind the corners; a tensor that is added to begins
 * as zeros. */
enum { BYTES = ${bytes}, ADD = ${add}, ZEROS = ${zeros} };

KERNEL void conformance(PARAM TensorMap map, PARAM Args a) {
  const u32 t = (u32)thread_index(), from = shared_base();
  u32 x[4] = {0, 0, 0, 0};
  for (int n = (int)t; n < ZEROS / 16; n += 32) stg_u32x4(a.out + 256 + 16 * n, x);
  fence_async_global();
  for (u32 i = 0; i < ${count}; i++) {
    u32 c[8];
    ldg_u32x4(c, a.in + 32 * i);
    ldg_u32x4(c + 4, a.in + 32 * i + 16);
    for (u32 n = t; n < BYTES / 16; n += 32) {
      ldg_u32x4(x, a.in + 32 * ${count} + (ADD ? 0 : BYTES * i) + 16 * n);
      sts_u32x4(from + 16 * n, x);
    }
    fence_async();
    sync_warp();
    if (t == 0) {
      if (!ADD) bulk_wait(0);
      ${store}_${rank}d(&map, from, ${place});
      bulk_commit();
      bulk_wait_read(0);
    }
    sync_warp();
  }
  if (t == 0) bulk_wait(0);
}
