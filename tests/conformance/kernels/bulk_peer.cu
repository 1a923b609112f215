/* Clusters of two blocks: each copies half a KB to the other, and half of that to itself. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), rank = cluster_rank(), s = shared_base(), bar = s + 2048;
  u32 x[4];
  if (t == 0) {
    bar_init(bar, 1);
    fence_bar_init();
  }
  ldg_u32x4(x, a.in + 512 * block_index() + 16 * t);
  sts_u32x4(s + 16 * t, x);
  fence_async();
  cluster_sync();
  if (t == 0) {
    bar_expect(bar, 768);
    bulk_copy_peer(s + 512, s, 512, bar, rank ^ 1);
    bulk_copy_peer(s + 1024, s + 256, 256, bar, rank);
  }
  bar_wait(bar, 0);
  for (u32 n = t; n < 48; n += 32) {
    lds_u32x4(x, s + 512 + 16 * n);
    stg_u32x4(a.out + 768 * block_index() + 16 * n, x);
  }
  cluster_sync();
}
