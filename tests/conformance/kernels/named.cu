/* Warp 0 hands ten values to warp 1 through one slot. Barrier 1: full, 2: empty. Warps 2 and 3 meet
 * at barrier 15 and exchange theirs. */
KERNEL void conformance(PARAM Args a) {
  const u32 lane = (u32)thread_index() & 31, s = shared_base();
  const int warp = thread_index() / 32;
  u32 *out = (u32 *)a.out + lane;
  if (warp >= 2) {
    sts_i32(s + 128 * (u32)warp + 4 * lane, warp * 1000 + (int)lane);
    named_sync(15, 64);
    stg_u32(out + 32 * (8 + warp), (u32)lds_i32(s + 128 * (u32)(5 - warp) + 4 * (31 - lane)));
    return;
  }
  for (int i = 0; i < 10; i++) {
    if (warp == 0) {
      if (i) named_sync(2, 64);
      sts_i32(s + 4 * lane, i * 100 + (int)lane);
      named_arrive(1, 64);
    } else {
      named_sync(1, 64);
      stg_u32(out + 32 * i, (u32)lds_i32(s + 4 * (31 - lane)));
      if (i < 9) named_arrive(2, 64);
    }
  }
}
