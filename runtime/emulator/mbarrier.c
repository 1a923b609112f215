/* mbarriers in shared memory: phases, arrivals and transaction bytes.
 *
 * Invariant: a phase completes when no arrival and no byte is missing; the barrier then begins the
 * next one. A wait with parity p passes while the phase's number has the other parity. Faults,
 * besides those of the clocks: an arrival too many, bytes too many, a phase that completes with TMA
 * loads of it in flight, a phase that passes by before a woken waiter has seen it (its try_wait
 * would hang). */
#include "runtime/emulator/machine.h"

#include <stdio.h>
#include <string.h>

#include "runtime/emulator/trace.h"

/* ---- names: the text between "bar_init(" and the comma ---- */

static void name_mbarrier(emu_block *block, emu_mbarrier *m, const char *site) {
  const char *text = strstr(site, "bar_init(");
  text = text ? text + strlen("bar_init(") : "mbarrier, ";
  int depth = 0;
  size_t length = 0;
  for (; text[length] && (text[length] != ',' || depth); length++)
    depth += (text[length] == '(') - (text[length] == ')');
  int same = 0;
  for (u32 i = 0; i < block->num_mbarriers; i++)
    same += &block->mbarriers[i] != m && !strncmp(block->mbarriers[i].name, text, length) &&
            block->mbarriers[i].name[length] == '#';
  snprintf(m->name, sizeof m->name, "%.*s#%d", (int)(length < 48 ? length : 48), text, same);
}

/* ---- finding one ---- */

static short *place_of(emu_block *block, u32 at, const char *site) {
  kiln__shared_check(block, at, 8, 8, site);
  return &block->mbarrier_at[(at - EMU_SHARED_BASE) / 8];
}

emu_mbarrier *kiln__mbarrier_find(emu_block *block, u32 at, const char *site) {
  const short place = *place_of(block, at, site);
  if (place < 0) kiln__emu_fault("%s: shared 0x%x is not an initialised mbarrier", site, at);
  emu_mbarrier *m = &block->mbarriers[place];
  const emu_thread *thread = kiln__emu_current.thread;
  if (!block->machine->checking || !thread) return m;
  if (!kiln__clocks_knows(&thread->knows, m->initialised.component, m->initialised.value))
    kiln__emu_fault("%s: the initialisation of mbarrier %s is not ordered before this", site,
                    m->name);
  return m;
}

void kiln__emu_bar_init(u32 bar, u32 arrivals, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_block *block = thread->block;
  short *place = place_of(block, bar, site);
  if (arrivals == 0 || arrivals >= 1u << 20)
    kiln__emu_fault("%s: %u arrivals; 1 to 2^20 - 1 are legal", site, arrivals);
  if (*place < 0) {
    if (block->num_mbarriers == EMU_MBARRIERS)
      kiln__emu_fault("%s: more than %u mbarriers", site, EMU_MBARRIERS);
    *place = (short)block->num_mbarriers++;
  }
  emu_mbarrier *m = &block->mbarriers[*place];
  memset(m, 0, sizeof *m);
  m->at = bar;
  m->index = (u32)*place;
  m->arrivals = arrivals;
  m->pending = (int)arrivals;
  m->initialised = (emu_mark){thread->knows.first + EMU_GENERIC, thread->knows.own[EMU_GENERIC]};
  name_mbarrier(block, m, site);
}

void kiln__emu_fence_bar_init(const char *site) {
  emu_block *block = kiln__emu_enter(site)->block;
  for (u32 i = 0; i < block->num_mbarriers; i++) block->mbarriers[i].fenced = 1;
}

/* ---- phases ---- */

static void wake_waiters(emu_block *block, emu_mbarrier *m) {
  for (u32 i = 0; i < block->machine->num_threads; i++) {
    if (!m->waits[i]) continue;
    emu_thread *thread = &block->threads[i];
    const u32 parity = m->waits[i] - 1u;
    if (thread->state == EMU_BLOCKED) {
      kiln__clocks_acquire(thread, m->done);
      kiln__scheduler_wake(thread);
    } else if ((m->phase & 1) == parity) {
      kiln__emu_fault(
          "mbarrier %s reaches phase %u before warp %u lane %u has seen the one that it "
          "waits for (parity %u, %s): the wait can hang",
          m->name, m->phase, thread->warp, thread->lane, parity, thread->site);
    }
  }
}

static void complete_if_due(emu_block *block, emu_mbarrier *m) {
  if (m->pending > 0) return;
  if (m->bytes < 0)
    kiln__emu_fault("mbarrier %s phase %u: %d bytes more than expected have landed", m->name,
                    m->phase, -m->bytes);
  if (m->bytes) return;
  if (m->in_flight)
    kiln__emu_fault("mbarrier %s phase %u completes while %d TMA loads on it are in flight: fewer "
                    "bytes are expected than are loaded",
                    m->name, m->phase, m->in_flight);
  emu_machine *machine = block->machine;
  machine->time_outs = 0;
  m->phase++;
  m->pending = (int)m->arrivals;
  if (machine->checking) {
    const u32 own = kiln__clocks_of_barrier(&machine->clocks, block->rank, m->index);
    m->sum.clock[own] = (int)m->phase;
    kiln__clocks_drop(machine, m->done);
    m->done = kiln__clocks_publish(machine, &m->sum);
  }
  if (machine->trace) kiln__trace_phase(block, m);
  if (m->waiting) wake_waiters(block, m);
}

static void arrive(emu_thread *thread, emu_block *block, emu_mbarrier *m, const char *site) {
  if (m->pending <= 0)
    kiln__emu_fault("%s: mbarrier %s has no arrivals left in phase %u", site, m->name, m->phase);
  kiln__clocks_release(thread, &m->sum);
  if (thread->machine->trace) kiln__trace_arrive(thread, block, m);
  m->pending--;
  complete_if_due(block, m);
}

void kiln__mbarrier_landed(emu_block *block, emu_mbarrier *m, u32 bytes, int last) {
  m->bytes -= (int)bytes;
  if (last) m->in_flight--;
  if (block->machine->trace) kiln__trace_landed(block, m);
  complete_if_due(block, m);
}

void kiln__emu_bar_expect(u32 bar, u32 bytes, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_mbarrier *m = kiln__mbarrier_find(thread->block, bar, site);
  if (bytes >= 1u << 20) kiln__emu_fault("%s: %u bytes; up to 2^20 - 1 are legal", site, bytes);
  m->bytes += (int)bytes;
  arrive(thread, thread->block, m, site);
}

void kiln__emu_bar_arrive(u32 bar, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  arrive(thread, thread->block, kiln__mbarrier_find(thread->block, bar, site), site);
}

void kiln__emu_bar_arrive_peer(u32 bar, u32 block, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  if (block >= thread->machine->num_blocks)
    kiln__emu_fault("%s: block %u of a cluster of %u", site, block, thread->machine->num_blocks);
  emu_block *peer = &thread->machine->blocks[block];
  const emu_mark now = {thread->knows.first + EMU_GENERIC, thread->knows.own[EMU_GENERIC]};
  kiln__peer_touch(thread, peer, now, site);
  arrive(thread, peer, kiln__mbarrier_find(peer, bar, site), site);
}

/* ---- waits ---- */

static emu_mbarrier *find_for_wait(const emu_thread *thread, u32 bar, u32 parity,
                                   const char *site) {
  emu_mbarrier *m = kiln__mbarrier_find(thread->block, bar, site);
  if (parity > 1) kiln__emu_fault("%s: parity %u; 0 and 1 are legal", site, parity);
  return m;
}

/* 1 once the phase is complete; 0 when a try has run out of time. */
static int wait_for(emu_thread *thread, emu_mbarrier *m, u32 parity, emu_wait_kind kind,
                    const char *site) {
  thread->timed_out = 0;
  if ((m->phase & 1) != parity) {
    kiln__clocks_acquire(thread, m->done);
  } else {
    m->waits[thread->index] = (u8)(1 + parity);
    m->waiting++;
    kiln__scheduler_block(thread, (emu_wait){kind, m, (int)parity, 0, site});
    m->waits[thread->index] = 0;
    m->waiting--;
  }
  if (thread->machine->trace) kiln__trace_waited(thread, m, site);
  return !thread->timed_out;
}

void kiln__emu_bar_wait(u32 bar, u32 parity, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  wait_for(thread, find_for_wait(thread, bar, parity, site), parity, EMU_WAIT_MBARRIER, site);
}

/* A try may fail though the phase is complete: late, a thread's first on each mbarrier; random, one
 * in four. */
static int fails_for_nothing(const emu_thread *thread, emu_mbarrier *m) {
  emu_machine *machine = thread->machine;
  if (machine->schedule == EMU_RANDOM) return kiln__scheduler_random(machine) % 4 == 0;
  const int is_first = !m->tried[thread->index];
  m->tried[thread->index] = 1;
  return machine->schedule == EMU_LATE && is_first;
}

/* It waits for a while, which ends when nothing else can go on: see scheduler.c. */
int kiln__emu_bar_try(u32 bar, u32 parity, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_mbarrier *m = find_for_wait(thread, bar, parity, site);
  return !fails_for_nothing(thread, m) && wait_for(thread, m, parity, EMU_WAIT_TRY, site);
}
