/* Bytes in a row to shared memory and back: three pieces that one mbarrier counts, two stores in
 * one group. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), s = shared_base(), bar = s + 4096;
  u32 x[4];
  if (t == 0) {
    bar_init(bar, 1);
    fence_bar_init();
  }
  sync_warp();
  if (t == 0) {
    bar_expect(bar, 2048);
    bulk_load(s + 16, a.in + 32, 16, bar, ${policy});
    bulk_load(s + 1040, a.in + 1024, 1024, bar, ${policy});
    bulk_load(s + 32, a.in, 1008, bar, ${policy});
  }
  bar_wait(bar, 0);
  for (u32 n = t; n < 128; n += 32) {
    lds_u32x4(x, s + 16 + 16 * n);
    for (u32 i = 0; i < 4; i++) x[i] += n;
    sts_u32x4(s + 16 + 16 * n, x);
  }
  fence_async();
  sync_warp();
  if (t == 0) {
    bulk_store(a.out, s + 16, 1536);
    bulk_store(a.out + 1552, s + 1552, 512);
    bulk_commit();
    bulk_wait(0);
  }
}
