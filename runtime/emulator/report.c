/* Faults and deadlocks as sentences. The first one ends the launch: the host's thread goes on, and
 * the fibers are forgotten where they stand. */
#include "runtime/emulator/machine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/emulator/global.h"

#define PLACE_BYTES 128

void kiln__emu_fault(const char *format, ...) {
  emu_machine *machine = kiln__emu_current.machine;
  const emu_thread *thread = kiln__emu_current.thread;
  char *at = machine->message;
  size_t left = EMU_MESSAGE_BYTES;
  if (thread) {
    const int n = snprintf(at, left, "block %lld warp %u lane %u: ", thread->block->index,
                           thread->warp, thread->lane);
    at += n;
    left -= (size_t)n;
  }
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(at, left, format, arguments);
  va_end(arguments);
  kiln__fiber_resume(machine->home);
}

const char *kiln__emu_component_name(emu_machine *machine, u32 component, char *buffer,
                                     size_t size) {
  const emu_clocks *c = &machine->clocks;
  const u32 rank = component / c->per_block, local = component % c->per_block;
  const u32 first_warp = EMU_OWN * c->threads, first_barrier = first_warp + c->warps;
  int n = 0;
  if (machine->num_blocks > 1)
    n = snprintf(buffer, size, "block %lld ", machine->blocks[rank].index);
  if (local < first_warp)
    snprintf(buffer + n, size - (size_t)n, "warp %u lane %u", local / EMU_OWN / EMU_WARP,
             local / EMU_OWN % EMU_WARP);
  else if (local < first_barrier)
    snprintf(buffer + n, size - (size_t)n, "wgmma of warp %u", local - first_warp);
  else
    snprintf(buffer + n, size - (size_t)n, "TMA on mbarrier %s",
             machine->blocks[rank].mbarriers[local - first_barrier].name);
  return buffer;
}

/* ---- deadlock: who waits for what ---- */

typedef struct text {
  char *at;
  size_t left;
} text;

static void add(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(text *t, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int n = vsnprintf(t->at, t->left, format, arguments);
  va_end(arguments);
  const size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
  t->at += used;
  t->left -= used;
}

static int same_wait(const emu_thread *a, const emu_thread *b) {
  return a->state == EMU_BLOCKED && b->state == EMU_BLOCKED && a->wait.kind == b->wait.kind &&
         a->wait.object == b->wait.object && a->wait.target == b->wait.target &&
         a->wait.site == b->wait.site;
}

static void add_object(text *t, const emu_thread *thread) {
  char place[PLACE_BYTES];
  const emu_wait *wait = &thread->wait;
  switch (wait->kind) {
  case EMU_WAIT_TRY:
  case EMU_WAIT_MBARRIER: {
    const emu_mbarrier *m = wait->object;
    add(t, "mbarrier %s parity %d (phase %u, %d of %u arrivals missing, %d bytes missing)", m->name,
        wait->target, m->phase, m->pending, m->arrivals, m->bytes);
    break;
  }
  case EMU_WAIT_NAMED: {
    const emu_named *n = wait->object;
    add(t, "barrier %d (%u of %u threads arrived)", wait->target, n->count, n->expected);
    break;
  }
  case EMU_WAIT_WARP:
    add(t, "the other lanes (%u of 32 arrived)", ((const emu_warp *)wait->object)->arrived);
    break;
  case EMU_WAIT_CLUSTER:
    add(t, "the cluster's barrier (%u threads arrived)", thread->machine->cluster_count);
    break;
  case EMU_WAIT_REGISTERS:
    add(t, "%d registers a thread (%d free in the block)", wait->target,
        thread->block->free_registers);
    break;
  case EMU_WAIT_WGMMA: add(t, "wgmma group %d", wait->target); break;
  case EMU_WAIT_BULK: add(t, "bulk group %d", wait->target); break;
  case EMU_WAIT_WORD:
    add(t, "the word at %s to become %u (it is %u)",
        kiln__global_place(thread->machine, wait->object, place, sizeof place), (u32)wait->target,
        *(const u32 *)wait->object);
    break;
  case EMU_WAIT_NONE: break;
  }
}

/* One line for the threads of the block that wait as `first` does, the lowest of them. */
static void add_waiters(text *t, const emu_thread *first) {
  const emu_block *block = first->block;
  u32 count = 0, warps = 0;
  for (u32 i = 0; i < first->machine->num_threads; i++) {
    if (!same_wait(first, &block->threads[i])) continue;
    count++;
    warps |= 1u << block->threads[i].warp;
  }
  add(t, "\n  block %lld: %u thread%s of warp", block->index, count, count == 1 ? "" : "s");
  for (u32 w = 0; w < EMU_MAX_WARPS; w++)
    if (warps >> w & 1) add(t, " %u", w);
  if (count == 1) add(t, " (lane %u)", first->lane);
  add(t, " at %s for ", first->wait.site);
  add_object(t, first);
}

static int is_first(const emu_thread *thread) {
  for (u32 i = 0; i < thread->index; i++)
    if (same_wait(thread, &thread->block->threads[i])) return 0;
  return 1;
}

static void add_machine(text *t, const emu_machine *machine) {
  for (u32 b = 0; b < machine->num_blocks; b++) {
    for (u32 i = 0; i < machine->num_threads; i++) {
      const emu_thread *thread = &machine->blocks[b].threads[i];
      if (thread->state == EMU_BLOCKED && is_first(thread)) add_waiters(t, thread);
    }
  }
}

void kiln__emu_describe_deadlock(const emu_machine *machines, u32 count, const char *why,
                                 char *message) {
  text t = {message, EMU_MESSAGE_BYTES};
  add(&t, "deadlock: every thread waits%s", why);
  for (u32 i = 0; i < count; i++)
    if (machines[i].resident) add_machine(&t, &machines[i]);
}

void kiln__emu_deadlock(emu_machine *machine) {
  kiln__emu_describe_deadlock(machine, 1, "", machine->message);
  kiln__fiber_resume(machine->home);
}
