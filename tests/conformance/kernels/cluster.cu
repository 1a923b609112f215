/* Clusters of two blocks. Each loads its half of a 16 x 64 tile into both, three tiles through one
 * slot; a block is told by both when they have read the slot. */
KERNEL void conformance(PARAM TensorMap map, PARAM Args a) {
  const u32 t = (u32)thread_index(), rank = cluster_rank(), s = shared_base(), full = s + 4096;
  const u32 empty = full + 8;
  u32 x[4];
  if (t == 0) {
    bar_init(full, 1);
    bar_init(empty, 2);
    fence_bar_init();
  }
  cluster_sync();
  for (u32 i = 0; i < 3; i++) {
    if (t == 0) {
      bar_wait(empty, (i & 1) ^ 1);
      bar_expect(full, 2048);
      tma_load_multicast(s + rank * 1024, &map, full, 0, (int)(i * 16 + rank * 8), 0, 0, ${policy},
                         3);
    }
    bar_wait(full, i & 1);
    for (u32 c = t; c < 128; c += 32) {
      lds_u32x4(x, s + 16 * c);
      stg_u32x4(a.out + block_index() * 6144 + i * 2048 + 16 * c, x);
    }
    sync_warp();
    if (t < 2) bar_arrive_peer(empty, t);
  }
  cluster_sync();
  stg_u32((u32 *)(a.out + 4 * 6144) + 32 * block_index() + t, rank);
}
