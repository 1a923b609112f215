/* Shuffles by distance, votes and reductions over 32 words a row of the input. */
enum { ROWS = ${rows} };

KERNEL void conformance(PARAM Args a) {
  const int lane = thread_index();
  u32 *out = (u32 *)a.out + lane;
  for (int i = 0; i < ROWS; i++) {
    const float *in = (const float *)a.in + 32 * i;
    const u32 x = ldg_u16((const u16 *)(in + lane)) | ldg_u16((const u16 *)(in + lane) + 1) << 16;
    const u32 y[14] = {
        (u32)shfl_up_i32((int)x, i & 31),
        (u32)shfl_down_i32((int)x, i & 31),
        ballot_sync((int)(x & 1u << (i & 31))),
        (u32)all_sync((int)(x | (lane != i))),
        (u32)all_sync((int)x & i & 3),
        redux_add_u32(x),
        (u32)redux_add_i32((int)x),
        redux_min_u32(x),
        redux_max_u32(x),
        (u32)redux_min_i32((int)x),
        redux_and_u32(x | 1u << lane),
        redux_or_u32(x & (0x80000000u >> (i & 31))),
        redux_xor_u32(x),
        (u32)redux_min_i32((int)(x >> 1)),
    };
    for (int n = 0; n < 14; n++) stg_u32(out + 32 * n, y[n]);
    stg_f32((float *)out + 448, shfl_f32(ldg_f32(in + lane), (lane * 5 + i) & 31));
    out += 480;
  }
}
