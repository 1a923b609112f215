/* Five blocks of two warps take turns in falling order, each warp by a semaphore of its own. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), turn = 4 - (u32)block_index();
  u32 *semaphore = (u32 *)a.in + t / 32;
  float *number = (float *)a.out + t;
  if (t % 32 == 0) semaphore_wait(semaphore, turn);
  sync_warp();
  stg_f32(number, (turn ? 3.0f * ldg_f32(number) : 0.0f) + (float)(turn + t));
  sync_warp();
  if (t % 32 == 0) red_add_u32_release(semaphore, 1);
}
