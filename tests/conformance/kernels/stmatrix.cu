/* Four 8 x 8 matrices from registers to rows of shared memory that each lane names. */
KERNEL void conformance(PARAM Args a) {
  const u32 lane = (u32)thread_index(), s = shared_base();
  u32 r[4];
  for (u32 i = 0; i < 4; i++) {
    ldg_u32x4(r, a.in + 512 * i + 16 * lane);
    ${wrapper}(s + 16 * ((lane * (2 * i + 1) + 5 * i) & 31), r);
    sync_warp();
    for (u32 c = 0; c < 4; c++)
      stg_u32((u32 *)a.out + 128 * i + 32 * c + lane, (u32)lds_i32(s + 4 * (32 * c + lane)));
    sync_warp();
  }
}
