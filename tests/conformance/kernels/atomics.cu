/* Every thread of seven blocks draws a ticket: each is drawn once. The counter begins at all ones,
 * one before zero. */
KERNEL void conformance(PARAM Args a) {
  const u64 ticket = atomic_add_u64((u64 *)a.out, 1) + 1;
  stg_u32((u32 *)a.out + 4 + ticket, (u32)ticket + 7);
}
