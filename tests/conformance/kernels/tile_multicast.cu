/* Clusters of two blocks: each loads one box of rank ${rank} into both. */
enum { BYTES = ${bytes} };

KERNEL void conformance(PARAM TensorMap map, PARAM Args a) {
  const u32 t = (u32)thread_index(), rank = cluster_rank(), s = shared_base();
  const u32 bar = s + 2 * BYTES;
  u32 c[8], x[4];
  if (t == 0) {
    bar_init(bar, 1);
    fence_bar_init();
  }
  cluster_sync();
  ldg_u32x4(c, a.in + 32 * block_index());
  ldg_u32x4(c + 4, a.in + 32 * block_index() + 16);
  if (t == 0) {
    bar_expect(bar, 2 * BYTES);
    tma_load_multicast_${rank}d(s + rank * BYTES, &map, bar, ${place}, ${policy}, 3);
  }
  bar_wait(bar, 0);
  for (u32 n = t; n < 2 * BYTES / 16; n += 32) {
    lds_u32x4(x, s + 16 * n);
    stg_u32x4(a.out + 2 * BYTES * block_index() + 16 * n, x);
  }
  cluster_sync();
}
