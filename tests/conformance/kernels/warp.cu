/* Shuffles, votes and reductions over 32 words a row of the input. */
enum { ROWS = ${rows} };

KERNEL void conformance(PARAM Args a) {
  const int lane = thread_index();
  u32 *out = (u32 *)a.out + lane;
  for (int i = 0; i < ROWS; i++) {
    const float *in = (const float *)a.in + 32 * i;
    const u32 x = ldg_u16((const u16 *)(in + lane)) | ldg_u16((const u16 *)(in + lane) + 1) << 16;
    const float f = ldg_f32(in + lane);
    stg_u32(out, (u32)shfl_i32((int)x, (lane * 7 + i) & 31));
    stg_u32(out + 32, (u32)shfl_i32((int)x, i & 31));
    stg_f32((float *)(out + 64), shfl_xor_f32(f, i & 31));
    stg_u32(out + 96, shfl_xor_u32(x, 31 - (i & 31)));
    stg_u32(out + 128, (u32)any_sync(lane == i && (x & 1)));
    stg_u32(out + 160, (u32)any_sync((int)(x & 2)));
    stg_u32(out + 192, (u32)redux_max_i32((int)x));
    stg_u32(out + 224, (u32)redux_max_i32((int)(x | 0x80000000u)));
    out += 256;
  }
}
