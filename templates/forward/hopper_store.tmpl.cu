/* ---- storers: a thread for each consumer ---- */

/* Sends off what the consumer has left where its queries were, by TMA, which leaves out what lies
 * past the tensor, and gives the place back when it has been read. */
DEV void store_tiles(u32 smem, int group, const TensorMap *map_o) {
  Ring ring = {0, 0};
#pragma unroll 1
  for (int again = 0; again < 2; again++) {
    int blocks;
    do {
      bar_wait(o_full(smem, ring.slot, group), ring.parity);
      const u32 info = smem + ${at.info} + 16 * ring.slot;
      const u32 from = smem + ${at.q} + (ring.slot * ${consumers} + group) * ${q_slot};
      const int first = lds_i32(info) + 64 * group, head = lds_i32(info + 4);
      const int batch = lds_i32(info + 8);
      blocks = lds_i32(info + 12);
      if (blocks > 0) {
#pragma unroll
        for (int c = 0; c < ${v_panels.count}; c++)
          tma_store(map_o, from + c * 8192, 64 * c, first, head, batch);
        bulk_commit();
        bulk_wait_read(0);
      }
      bar_arrive(q_empty(smem, ring.slot, group));
      advance(&ring, ${q_slots});
    } while (blocks > 0);
    bulk_wait(0); /* what was stored must not overtake what replaces it */
    bar_wait(fast_done(smem), 0);
    if (!lds_flag(any_failed(smem))) return;
  }
}
