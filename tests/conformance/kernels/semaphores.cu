/* Five blocks, one after another: each takes the numbers that the one before has left in the input,
 * and hands them on. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), block = (u32)block_index();
  u32 *turn = (u32 *)a.in;
  float *numbers = (float *)a.in + 32;
  if (t == 0)
    while (ldg_acquire_u32(turn) != block) {
    }
  sync_warp();
  const float x = 3.0f * ldg_f32(numbers + t) + (float)(block + t);
  stg_f32(numbers + t, x);
  if (block == 4) stg_f32((float *)a.out + t, x);
  sync_warp();
  if (t == 0) {
    if (block & 1)
      red_add_u32_release(turn, 1);
    else
      stg_release_u32(turn, block + 1);
  }
}
