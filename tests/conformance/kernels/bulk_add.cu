/* x, then y three times added to it, in one group and another. */
enum { BYTES = ${bytes} };

KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index(), s = shared_base(), bar = s + 2 * BYTES;
  if (t == 0) {
    bar_init(bar, 1);
    fence_bar_init();
    bar_expect(bar, 2 * BYTES);
    bulk_load(s, a.in, 2 * BYTES, bar, ${policy});
    bar_wait(bar, 0);
    bulk_store(a.out, s, BYTES);
    bulk_commit();
    bulk_wait(0);
    bulk_add_${dtype}(a.out, s + BYTES, BYTES);
    bulk_commit();
    if (${times} > 1) {
      bulk_add_${dtype}(a.out, s + BYTES, BYTES);
      bulk_add_${dtype}(a.out + BYTES / 2, s + BYTES, BYTES / 2);
      bulk_commit();
    }
    bulk_wait(0);
  }
}
