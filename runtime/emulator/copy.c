/* cp.async: copies from global to shared memory that land in groups.
 *
 * The destination is poisoned at issue and keeps its poison until the copy lands: late, in the
 * cp_async_wait that asks for its group; eager, at issue; random, at any moment in between, in any
 * order. The bytes are read from global memory when the copy lands. */
#include "runtime/emulator/machine.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/global.h"
#include "runtime/emulator/trace.h"

enum { COPY_BYTES = 16 };

static void land(emu_thread *thread, const emu_copy *copy) {
  char *to = thread->block->shared + copy->to;
  memset(to, 0, COPY_BYTES);
  if (copy->bytes) memcpy(to, copy->from, (size_t)copy->bytes);
}

static void append(emu_thread *thread, emu_copy copy) {
  emu_copies *c = &thread->copies;
  if (c->count == c->capacity) {
    const u32 capacity = c->capacity ? 2 * c->capacity : 32;
    emu_copy *pending = kiln__machine_take(thread->machine, capacity * sizeof *pending);
    if (c->count) memcpy(pending, c->pending, c->count * sizeof *pending);
    c->pending = pending;
    c->capacity = capacity;
  }
  c->pending[c->count++] = copy;
}

/* The read is over when the thread has waited for the group. */
static void check_source(emu_thread *thread, const void *from, size_t bytes, int group,
                         const char *site) {
  const emu_allocation *in = kiln__global_check(thread->machine, from, bytes, COPY_BYTES, site);
  const emu_mark mark = {thread->knows.first + EMU_COPIES, group};
  kiln__global_shadow_access(thread, in, from, bytes, EMU_READS, mark, site);
}

void kiln__emu_cp_async_16(u32 to, const void *from, int bytes, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  if (bytes < 0 || bytes > COPY_BYTES)
    kiln__emu_fault("%s: %d bytes; 0 to 16 are legal", site, bytes);
  kiln__shared_check(thread->block, to, COPY_BYTES, COPY_BYTES, site);
  const int group = thread->copies.committed + 1;
  if (bytes) check_source(thread, from, (size_t)bytes, group, site);
  const emu_copy copy = {from, site, to, bytes, group};
  thread->copies.last = group;
  thread->copies.last_site = site;
  kiln__shadow_copy(thread, to, group, site);
  if (thread->machine->trace) kiln__trace_copy(thread, &copy);
  if (thread->machine->schedule == EMU_EAGER) {
    land(thread, &copy);
    return;
  }
  memset(thread->block->shared + to, 0xff, COPY_BYTES);
  append(thread, copy);
}

void kiln__emu_cp_async_commit(const char *site) { kiln__emu_enter(site)->copies.committed++; }

void kiln__emu_cp_async_wait(int pending, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_copies *c = &thread->copies;
  const int group = c->committed - pending;
  u32 kept = 0;
  for (u32 i = 0; i < c->count; i++) {
    if (c->pending[i].group <= group)
      land(thread, &c->pending[i]);
    else
      c->pending[kept++] = c->pending[i];
  }
  c->count = kept;
  if (thread->machine->trace) kiln__trace_copies_waited(thread, group, site);
  if (group <= thread->knows.own[EMU_COPIES]) return;
  thread->knows.own[EMU_COPIES] = group;
  thread->knows.version++;
}

/* Legal, but then nobody can have used them: a copy too many, or a wait too few. */
void kiln__copy_exit(emu_thread *thread) {
  const emu_copies *c = &thread->copies;
  if (thread->machine->checking && c->last > thread->knows.own[EMU_COPIES])
    kiln__emu_fault("the thread ends and has not waited for %s", c->last_site);
}

/* A random copy of a random thread that has some. */
int kiln__copy_land_any(emu_machine *machine) {
  const u32 all = machine->num_blocks * machine->num_threads;
  const u32 start = kiln__scheduler_random(machine);
  for (u32 i = 0; i < all; i++) {
    const u32 number = (start + i) % all;
    emu_block *block = &machine->blocks[number / machine->num_threads];
    emu_copies *c = &block->threads[number % machine->num_threads].copies;
    if (!c->count) continue;
    const u32 chosen = kiln__scheduler_random(machine) % c->count;
    land(&block->threads[number % machine->num_threads], &c->pending[chosen]);
    c->count--;
    memmove(c->pending + chosen, c->pending + chosen + 1, (c->count - chosen) * sizeof *c->pending);
    return 1;
  }
  return 0;
}
