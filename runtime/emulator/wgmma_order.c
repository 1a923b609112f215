/* Happens-before of wgmma operands: an operation may read what every thread of its warpgroup knows
 * to be written; each must have waited. The minimum over 128 threads is taken over the few
 * snapshots that they share, and over runs of operations between which nobody learnt anything. */
#include "runtime/emulator/wgmma.h"

#include <string.h>

#include "runtime/emulator/descriptor.h"

/* ---- meetings ---- */

static void reset(emu_machine *machine, emu_meeting *m) {
  for (u32 i = 0; i < m->num_parties; i++) kiln__clocks_drop(machine, m->parties[i].seen);
  m->num_parties = 0;
  m->ready = 0;
  if (!m->known) m->known = kiln__machine_take(machine, machine->clocks.count * sizeof *m->known);
}

/* Where there are more snapshots than places, the last one takes all the rest: their minimum. */
static void fold(emu_machine *machine, struct emu_party *party, const emu_snapshot *seen) {
  const u32 count = machine->clocks.count;
  emu_sum sum = {.clock = party->seen->clock};
  emu_snapshot *both = kiln__clocks_publish(machine, &sum);
  kiln__clocks_minimum(both->clock, seen->clock, count);
  kiln__clocks_drop(machine, party->seen);
  party->seen = both;
}

static void join(emu_thread *thread, emu_meeting *m) {
  emu_snapshot *seen = thread->knows.seen;
  kiln__proxy_update(thread);
  m->ready = 0;
  for (u32 i = 0; i < m->num_parties; i++) {
    if (m->parties[i].seen != seen) continue;
    m->parties[i].threads++;
    return;
  }
  if (m->num_parties == EMU_PARTIES) {
    m->parties[EMU_PARTIES - 1].threads++;
    fold(thread->machine, &m->parties[EMU_PARTIES - 1], seen);
    return;
  }
  struct emu_party *party = &m->parties[m->num_parties++];
  seen->references++;
  party->seen = seen;
  party->threads = 1;
  party->first = thread->knows.first;
  memcpy(party->own, thread->knows.own, sizeof party->own);
}

void kiln__wgmma_meet(emu_thread *thread, emu_warpgroup *group, emu_operation *op,
                      const emu_operation *previous) {
  if (!thread->machine->checking) return;
  const int same = previous && thread->wgmma.version == thread->knows.version;
  if (op->count == 0) {
    if (same) {
      op->meeting = previous->meeting;
      return;
    }
    op->meeting = group->next_meeting++ % EMU_MEETINGS;
    reset(thread->machine, &group->meetings[op->meeting]);
  } else if (same && previous->meeting == op->meeting) {
    return;
  }
  join(thread, &group->meetings[op->meeting]);
  thread->wgmma.version = thread->knows.version;
}

/* The minimum over the parties. A lone thread also knows its own accesses. */
static const int *known_to_all(emu_machine *machine, emu_meeting *m) {
  if (m->ready) return m->known;
  for (u32 i = 0; i < m->num_parties; i++) {
    struct emu_party *party = &m->parties[i];
    int *clock = party->seen->clock, stale[EMU_OWN];
    memcpy(stale, clock + party->first, sizeof stale);
    for (u32 j = 0; party->threads == 1 && j < EMU_OWN; j++)
      if (clock[party->first + j] < party->own[j]) clock[party->first + j] = party->own[j];
    if (i == 0)
      memcpy(m->known, clock, machine->clocks.count * sizeof *clock);
    else
      kiln__clocks_minimum(m->known, clock, machine->clocks.count);
    memcpy(clock + party->first, stale, sizeof stale);
  }
  m->ready = 1;
  return m->known;
}

/* ---- operands ---- */

static void read_chunk(const emu_wgmma_read *read, u64 descriptor, u32 mn, u32 k, int mn_major) {
  const u32 at = kiln__descriptor_chunk(descriptor, mn, k, mn_major);
  kiln__shared_check(read->block, at, EMU_GRANULE, EMU_GRANULE, read->site);
  if (read->block->machine->checking) kiln__shadow_wgmma(read, at);
}

/* Rows of a are read by their own warp, b by all four. */
void kiln__wgmma_order(emu_thread *thread, emu_warpgroup *group, emu_operation *op) {
  emu_block *block = thread->block;
  const emu_shape *s = &op->shape;
  const u32 warp0 = thread->index / EMU_WARPGROUP * 4;
  const int *known =
      block->machine->checking ? known_to_all(block->machine, &group->meetings[op->meeting]) : NULL;
  emu_wgmma_read read = {block, known, warp0, 1, s->group, op->site};
  const int a_major = s->major >> 1, b_major = s->major & 1;
  for (u32 row = 0; !s->from_registers && row < EMU_TILE_ROWS; row += a_major ? 8 : 1) {
    read.first_warp = warp0 + row / 16;
    for (u32 k = 0; k < EMU_TILE_DEPTH; k += a_major ? 1 : 8)
      read_chunk(&read, s->a, row, k, a_major);
  }
  read.first_warp = warp0;
  read.num_warps = 4;
  const u32 step_n = b_major ? 8 : 1, step_k = b_major ? 1 : 8;
  for (u32 k = 0; k < EMU_TILE_DEPTH; k += step_k)
    for (u32 n = 0; n < s->n; n += step_n) read_chunk(&read, s->b, n, k, b_major);
}
