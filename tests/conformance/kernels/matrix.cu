/* 8 x 8 matrices between shared memory and registers; each lane names another row. */
KERNEL void conformance(PARAM Args a) {
  const u32 lane = (u32)thread_index(), s = shared_base();
  u32 x[4];
  u32 *out = (u32 *)a.out + lane;
  for (u32 i = 0; i < 4; i++) {
    ldg_u32x4(x, a.in + 16 * (4 * lane + i));
    for (u32 c = 0; c < 4; c++) sts_u32(s + 16 * (4 * lane + i) + 4 * c, x[c]);
  }
  sync_warp();
  for (u32 i = 0; i < 8; i++) {
    const u32 at = s + 16 * ((lane * (2 * i + 1) + 5 * i) & 127);
    u32 r[4] = {0, 0, 0, 0};
    ${wrapper}(r, at);
    for (u32 c = 0; c < 4; c++) stg_u32(out + 32 * (4 * i + c), r[c]);
  }
}
