/* ${count} boxes, at corners that lie in the input: column, row, head, batch. Each box's bytes in
 * the order of their addresses. */
enum { BYTES = ${bytes} };

KERNEL void conformance(PARAM TensorMap map, PARAM Args a) {
  const u32 t = (u32)thread_index(), to = shared_base(), bar = to + ((BYTES + 1023) & ~1023);
  if (t == 0) {
    tma_prefetch_map(&map);
    bar_init(bar, 1);
    fence_bar_init();
  }
  sync_warp();
  for (u32 i = 0; i < ${count}; i++) {
    u32 c[4], x[4];
    ldg_u32x4(c, a.in + 16 * i);
    if (t == 0) {
      bar_expect(bar, BYTES);
      tma_load(to, &map, bar, (int)c[0], (int)c[1], (int)c[2], (int)c[3], ${policy});
    }
    bar_wait(bar, i & 1);
    for (u32 n = t; n < BYTES / 16; n += 32) {
      lds_u32x4(x, to + 16 * n);
      stg_u32x4(a.out + BYTES * i + 16 * n, x);
    }
    sync_warp();
  }
}
