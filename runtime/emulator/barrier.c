/* __syncthreads, named barriers (bar.sync, bar.arrive), the cluster's barrier, and where a block
 * stands in its grid and cluster.
 *
 * Hardware counts arrivals, whoever makes them: a thread may arrive and then sync on one barrier,
 * but the same step twice before it completes means that another thread is missing. */
#include "runtime/emulator/machine.h"

#include "runtime/emulator/launch.h"
#include "runtime/emulator/trace.h"

#include <string.h>

enum { BY_ARRIVE = 1, BY_SYNC = 2 };

/* Everyone who syncs learns what all arrivals released, and the barrier is new. */
static void complete(emu_block *block, emu_named *barrier, emu_thread *last) {
  emu_machine *machine = block->machine;
  emu_snapshot *all = kiln__clocks_publish(machine, &barrier->sum);
  for (u32 i = 0; i < machine->num_threads; i++) {
    emu_thread *thread = &block->threads[i];
    const int waits = thread->wait.kind == EMU_WAIT_NAMED && thread->wait.object == barrier;
    if (!waits && thread != last) continue;
    if (machine->trace) kiln__trace_named_done(thread, (int)(barrier - block->named));
    kiln__clocks_acquire(thread, all);
    if (waits) kiln__scheduler_wake(thread);
  }
  if (machine->trace) kiln__trace_named_clear(block, (int)(barrier - block->named));
  kiln__clocks_drop(machine, all);
  kiln__clocks_clear(machine, &barrier->sum);
  barrier->count = 0;
  memset(barrier->arrived, 0, sizeof barrier->arrived);
}

static emu_named *arrive(emu_thread *thread, int id, int threads, u8 how, const char *site) {
  const u32 all = thread->machine->num_threads;
  if (id < 0 || id >= (int)EMU_NAMED_BARRIERS)
    kiln__emu_fault("%s: there is no barrier %d", site, id);
  if (threads <= 0 || threads % (int)EMU_WARP || threads > (int)all)
    kiln__emu_fault("%s: %d threads; a multiple of 32 up to %u is legal", site, threads, all);
  emu_named *barrier = &thread->block->named[id];
  if (barrier->count && barrier->expected != (u32)threads)
    kiln__emu_fault("%s: barrier %d is in use with %u threads", site, id, barrier->expected);
  if (barrier->arrived[thread->index] & how)
    kiln__emu_fault(
        "%s: the thread comes to barrier %d a second time before it completes (%u of %u "
        "threads arrived)",
        site, id, barrier->count, barrier->expected);
  barrier->arrived[thread->index] |= how;
  barrier->expected = (u32)threads;
  barrier->count++;
  kiln__clocks_release(thread, &barrier->sum);
  if (thread->machine->trace) kiln__trace_named_arrive(thread, id);
  return barrier;
}

static void sync(emu_thread *thread, int id, int threads, const char *site) {
  emu_named *barrier = arrive(thread, id, threads, BY_SYNC, site);
  if (barrier->count == barrier->expected)
    complete(thread->block, barrier, thread);
  else
    kiln__scheduler_block(thread, (emu_wait){EMU_WAIT_NAMED, barrier, id, 0, site});
}

void kiln__emu_sync_threads(const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  sync(thread, 0, (int)thread->machine->num_threads, site);
}

void kiln__emu_named_sync(int id, int threads, const char *site) {
  sync(kiln__emu_enter(site), id, threads, site);
}

void kiln__emu_named_arrive(int id, int threads, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_named *barrier = arrive(thread, id, threads, BY_ARRIVE, site);
  if (barrier->count == barrier->expected) complete(thread->block, barrier, NULL);
}

/* ---- the cluster ---- */

static void complete_cluster(emu_machine *machine) {
  emu_snapshot *all = kiln__clocks_publish(machine, &machine->cluster_sum);
  for (u32 b = 0; b < machine->num_blocks; b++) {
    for (u32 i = 0; i < machine->num_threads; i++) {
      emu_thread *thread = &machine->blocks[b].threads[i];
      kiln__clocks_acquire(thread, all);
      if (thread->wait.kind == EMU_WAIT_CLUSTER) kiln__scheduler_wake(thread);
    }
  }
  kiln__clocks_drop(machine, all);
  kiln__clocks_clear(machine, &machine->cluster_sum);
  machine->cluster_count = 0;
}

void kiln__emu_cluster_sync(const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_machine *machine = thread->machine;
  kiln__clocks_release(thread, &machine->cluster_sum);
  if (++machine->cluster_count == machine->num_blocks * machine->num_threads)
    complete_cluster(machine);
  else
    kiln__scheduler_block(thread, (emu_wait){EMU_WAIT_CLUSTER, machine, 0, 0, site});
}

u32 kiln__emu_cluster_rank(const char *site) {
  (void)site;
  return kiln__emu_current.thread->block->rank;
}

i64 kiln__emu_block_index(const char *site) {
  (void)site;
  return kiln__emu_current.thread->block->index;
}

i64 kiln__emu_block_index_again(const char *site) { return kiln__emu_block_index(site); }

/* Grids run one after another here: what this one waits for has ended, and the next waits. */
void kiln__emu_grid_wait(const char *site) { kiln__emu_enter(site); }
void kiln__emu_grid_launch_dependents(const char *site) { kiln__emu_enter(site); }

i64 kiln__emu_num_blocks(const char *site) {
  (void)site;
  return kiln__emu_current.machine->launch->num_blocks;
}
