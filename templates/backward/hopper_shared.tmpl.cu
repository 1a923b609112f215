/* What both Hopper families of the backward pass share. */

/* The sum of the products of eight pairs of 16-bit numbers. */
DEV float dot(const u32 *u, const u32 *w) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    sum = fmaf(${unpack}(u[i] & 0xffff), ${unpack}(w[i] & 0xffff), sum);
    sum = fmaf(${unpack}(u[i] >> 16), ${unpack}(w[i] >> 16), sum);
  }
  return sum;
}

/* Transposes 4 x 4 words among the four lanes of a quad: lane i's word j becomes lane j's word
 * i. */
DEV void quad_transpose(u32 *w, int lane) {
  const int odd = lane & 1, high = lane & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const u32 t = shfl_xor_u32(odd ? w[i] : w[i + 1], 1);
    w[i] = odd ? t : w[i];
    w[i + 1] = odd ? w[i + 1] : t;
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const u32 t = shfl_xor_u32(high ? w[i] : w[i + 2], 2);
    w[i] = high ? t : w[i];
    w[i + 2] = high ? w[i + 2] : t;
  }
}
//@ if causal or deterministic then

//@ include("backward/sections.tmpl.cu")
//@ end
