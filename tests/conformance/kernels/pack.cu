/* Pairs of neighbours of a list, rounded to 16 bits. */
enum { COUNT = ${count} };

KERNEL void conformance(PARAM Args a) {
  for (int i = thread_index(); i < COUNT; i += 128) {
    const float lo = ldg_f32((const float *)a.in + i);
    const float hi = ldg_f32((const float *)a.in + (i + 1) % COUNT);
    stg_u32((u32 *)a.out + i, ${wrapper}(lo, hi));
  }
}
