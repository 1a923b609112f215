/* Block 0 of each cluster counts the arrivals of block 1 on one barrier, and the other way round on
 * another; then each tells the other alone. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), rank = cluster_rank(), s = shared_base();
  if (t == 0) {
    bar_init(s, 32);
    bar_init(s + 8, 1);
    fence_bar_init();
  }
  cluster_sync();
  bar_arrive_peer(s, rank ^ 1);
  bar_wait(s, 0);
  if (t == 0) bar_arrive_peer(s + 8, rank ^ 1);
  bar_wait(s + 8, 0);
  cluster_sync();
  stg_u32((u32 *)a.out + 32 * block_index() + t, 10 * rank + t);
}
