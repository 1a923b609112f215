/* One lane of each warp is elected, the same one every time. The grid waits for the one before it,
 * and lets the next begin. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), lane = t & 31;
  grid_wait();
  const u32 first = ballot_sync(elect_one()), again = ballot_sync(elect_one());
  grid_launch_dependents();
  stg_u32((u32 *)a.out + 2 * t, first != 0 && (first & (first - 1)) == 0);
  stg_u32((u32 *)a.out + 2 * t + 1, (first == again) + (u32)shfl_i32((int)lane, 0));
}
