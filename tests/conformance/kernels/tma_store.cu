/* ${count} boxes stored over one another, at corners that lie in the input. Shared memory holds the
 * number of the box and of the element; it is filled anew as soon as it has been read. */
enum { BYTES = ${bytes} };

KERNEL void conformance(PARAM TensorMap map, PARAM Args a) {
  const u32 t = (u32)thread_index(), from = shared_base();
  for (u32 i = 0; i < ${count}; i++) {
    u32 c[4];
    ldg_u32x4(c, a.in + 16 * i);
    for (u32 n = t; n < BYTES / 4; n += 32)
      sts_u32(from + 4 * n, 0x10001u * (2048 * i + 2 * n) + 0x10000u);
    fence_async();
    sync_warp();
    if (t == 0) {
      bulk_wait(0);
      tma_store(&map, from, (int)c[0], (int)c[1], (int)c[2], (int)c[3]);
      bulk_commit();
      bulk_wait_read(0);
    }
    sync_warp();
  }
  if (t == 0) bulk_wait(0);
}
