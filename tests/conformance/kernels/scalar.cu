/* One fp32 function over a list of arguments. */
enum { COUNT = ${count} };

KERNEL void conformance(PARAM Args a) {
  for (int i = thread_index(); i < COUNT; i += 128)
    stg_f32((float *)a.out + i, ${wrapper}(ldg_f32((const float *)a.in + i)));
}
