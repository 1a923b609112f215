/* As mbarrier.cu, by tries that may fail: in a loop, and once before a wait. */
DEV void wait(u32 bar, u32 parity) {
  while (!bar_try(bar, parity)) {
  }
}

KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), lane = t & 31, s = shared_base(), full = s + 512;
  const u32 empty = full + 16;
  if (t == 0) {
    for (u32 slot = 0; slot < 2; slot++) {
      bar_init(full + 8 * slot, 32);
      bar_init(empty + 8 * slot, 32);
    }
    fence_bar_init();
  }
  sync_threads();
  for (u32 i = 0; i < 12; i++) {
    const u32 slot = i & 1, round = i >> 1;
    if (t < 32) {
      wait(empty + 8 * slot, (round & 1) ^ 1);
      sts_i32(s + 128 * slot + 4 * lane, (int)(100 * i + lane));
      bar_arrive(full + 8 * slot);
    } else {
      if (!bar_try(full + 8 * slot, round & 1)) bar_wait(full + 8 * slot, round & 1);
      stg_u32((u32 *)a.out + 32 * i + lane, (u32)lds_i32(s + 128 * slot + 4 * (31 - lane)));
      bar_arrive(empty + 8 * slot);
    }
  }
}
