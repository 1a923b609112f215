/* Threads exchange their number + 1 with a word of the input, which begins as zero: each value
 * comes out once. Of those that compare, one finds zero, and all others find its number + 1. */
KERNEL void conformance(PARAM Args a) {
  const u32 t = (u32)thread_index();
  u32 *words = (u32 *)a.in, *out = (u32 *)a.out;
  const u32 before = atomic_exch_u32(words, t + 1);
  stg_u32(out + before, before + 100);
  const u32 found = atomic_cas_u32(words + 1, 0, t + 1);
  if (found == 0) atomic_exch_u32(words + 2, t + 1);
  sync_threads();
  if (t == 0) {
    const u32 last = atomic_exch_u32(words, 0);
    stg_u32(out + last, last + 100);
  }
  const u32 winner = ldg_acquire_u32(words + 2);
  stg_u32(out + 65 + t, found == (winner == t + 1 ? 0 : winner));
}
