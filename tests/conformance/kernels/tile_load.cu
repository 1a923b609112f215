/* ${count} boxes of rank ${rank}, at corners that lie in the input, eight words each. Each box's
 * bytes in the order of their addresses. */
enum { BYTES = ${bytes} };

KERNEL void conformance(PARAM TensorMap map, PARAM Args a) {
  const u32 t = (u32)thread_index(), to = shared_base(), bar = to + ((BYTES + 1023) & ~1023);
  if (t == 0) {
    bar_init(bar, 1);
    fence_bar_init();
  }
  sync_warp();
  for (u32 i = 0; i < ${count}; i++) {
    u32 c[8], x[4];
    ldg_u32x4(c, a.in + 32 * i);
    ldg_u32x4(c + 4, a.in + 32 * i + 16);
    if (t == 0) {
      bar_expect(bar, BYTES);
      tma_load_${rank}d(to, &map, bar, ${place}, ${policy});
    }
    bar_wait(bar, i & 1);
    for (u32 n = t; n < BYTES / 16; n += 32) {
      lds_u32x4(x, to + 16 * n);
      stg_u32x4(a.out + BYTES * i + 16 * n, x);
    }
    sync_warp();
  }
}
