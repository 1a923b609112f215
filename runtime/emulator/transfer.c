/* Bulk copies in flight: see transfer.h. Rows of a load land all at once, or under EMU_RANDOM in
 * pieces from any row on. */
#include "runtime/emulator/transfer.h"

#include <math.h>
#include <string.h>

#include "runtime/emulator/trace.h"
#include "runtime/emulator/world.h"

#define POISON 0xff

/* ---- rows ---- */

static u32 all_bytes(const emu_transfer *t) { return t->rows * t->width; }

static void put_row(const emu_transfer *t, u32 row, const char *bytes) {
  for (u32 c = 0; c < t->width; c += EMU_CHUNK)
    memcpy(t->block->shared + kiln__swizzle(t->map.swizzle, t->at + row * t->width + c), bytes + c,
           EMU_CHUNK);
}

static void get_row(const emu_transfer *t, u32 row, char *bytes) {
  for (u32 c = 0; c < t->width; c += EMU_CHUNK)
    memcpy(bytes + c, t->block->shared + kiln__swizzle(t->map.swizzle, t->at + row * t->width + c),
           EMU_CHUNK);
}

/* Where row `row` lies in global memory, and which bytes of it. */
static char *global_row(const emu_transfer *t, u32 row, u32 *first, u32 *end) {
  if (t->is_box) return kiln__box_row(t, row, first, end);
  *first = 0;
  *end = t->width;
  return t->flat + (size_t)row * t->width;
}

static void load_row(const emu_transfer *t, u32 row) {
  char bytes[EMU_MAX_ROW] = {0};
  u32 first = 0, end = 0;
  if (t->source) {
    memcpy(bytes, t->source->shared + t->source_at + row * t->width, t->width);
  } else {
    const char *from = global_row(t, row, &first, &end);
    if (from) memcpy(bytes + first, from, end - first);
  }
  put_row(t, row, bytes);
}

static void store_row(const emu_transfer *t, u32 row) {
  u32 first = 0, end = 0;
  char *to = global_row(t, row, &first, &end);
  const char *from = t->staged + (size_t)row * t->width;
  if (!to) return;
  if (t->add)
    kiln__sum(to, from + first, end - first, t->dtype);
  else
    memcpy(to, from + first, end - first);
}

/* The copy as accesses of global memory, at issue; over when the mark is known. */
static void check_order(emu_thread *thread, const emu_transfer *t, int kind, emu_mark mark) {
  if (!thread->machine->checking || t->source) return;
  for (u32 row = 0; row < t->rows; row++) {
    u32 first = 0, end = 0;
    const char *at = global_row(t, row, &first, &end);
    if (!at) continue;
    kiln__global_shadow_access(thread, t->in, at, end - first, kind | EMU_ASYNC_PROXY, mark,
                               t->site);
  }
}

/* ---- the list ---- */

static void append(emu_machine *machine, const emu_transfer *transfer) {
  if (machine->num_transfers == machine->capacity_transfers) {
    const u32 capacity = machine->capacity_transfers ? 2 * machine->capacity_transfers : 64;
    emu_transfer *list = kiln__machine_take(machine, capacity * sizeof *list);
    if (machine->num_transfers)
      memcpy(list, machine->transfers, machine->num_transfers * sizeof *list);
    machine->transfers = list;
    machine->capacity_transfers = capacity;
  }
  machine->transfers[machine->num_transfers++] = *transfer;
}

static void forget(emu_machine *machine, u32 i) {
  emu_transfer *list = machine->transfers;
  machine->num_transfers--;
  memmove(list + i, list + i + 1, (machine->num_transfers - i) * sizeof *list);
}

static int owed(const emu_transfer *t, const emu_thread *owner, int group, int read) {
  return t->store && t->owner == owner && t->group <= group && !(read && t->staged);
}

static int owes_stores(const emu_machine *machine, const emu_thread *owner, int group, int read) {
  for (u32 i = 0; i < machine->num_transfers; i++)
    if (owed(&machine->transfers[i], owner, group, read)) return 1;
  return 0;
}

/* ---- landing ---- */

static void land_rows(emu_machine *machine, u32 i, u32 count) {
  emu_transfer *t = &machine->transfers[i];
  const u32 left = t->rows - t->next_row, width = t->width;
  if (count > left) count = left;
  for (u32 n = 0; n < count; n++) load_row(t, (t->first_row + t->next_row++) % t->rows);
  const int last = t->next_row == t->rows;
  emu_block *block = t->block;
  emu_mbarrier *m = t->mbarrier;
  if (last) forget(machine, i);
  kiln__mbarrier_landed(block, m, count * width, last);
}

static void land_store(emu_machine *machine, u32 i) {
  emu_transfer *t = &machine->transfers[i];
  emu_thread *owner = t->owner;
  if (!t->staged) {
    t->staged = kiln__machine_take(machine, all_bytes(t));
    for (u32 r = 0; r < t->rows; r++) get_row(t, r, t->staged + (size_t)r * t->width);
  } else {
    for (u32 r = 0; r < t->rows; r++) store_row(t, r);
    kiln__world_changed(machine);
    forget(machine, i);
  }
  const emu_wait *wait = &owner->wait;
  if (wait->kind == EMU_WAIT_BULK && !owes_stores(machine, owner, wait->target, wait->read))
    kiln__scheduler_wake(owner);
}

static void land(emu_machine *machine, u32 i) {
  emu_transfer *t = &machine->transfers[i];
  if (machine->trace) kiln__trace_transfer_lands(machine, t, all_bytes(t));
  if (t->store)
    land_store(machine, i);
  else if (machine->schedule != EMU_RANDOM)
    land_rows(machine, i, t->rows);
  else
    land_rows(machine, i, 1 + kiln__scheduler_random(machine) % t->rows);
}

/* Whether somebody is blocked until this lands. */
static int demanded(const emu_transfer *t) {
  if (!t->store) return t->mbarrier->waiting > 0;
  const emu_wait *wait = &t->owner->wait;
  return wait->kind == EMU_WAIT_BULK && owed(t, t->owner, wait->target, wait->read);
}

/* The newest first: nothing orders bulk stores among themselves but a wait in between. */
int kiln__tma_land_demanded(emu_machine *machine) {
  for (u32 i = machine->num_transfers; i-- > 0;) {
    if (!demanded(&machine->transfers[i])) continue;
    land(machine, i);
    return 1;
  }
  return 0;
}

int kiln__tma_land_any(emu_machine *machine) {
  if (!machine->num_transfers) return 0;
  land(machine, kiln__scheduler_random(machine) % machine->num_transfers);
  return 1;
}

static u32 earliest(const emu_machine *machine) {
  u32 best = 0;
  for (u32 i = 1; i < machine->num_transfers; i++)
    if (machine->transfers[i].due < machine->transfers[best].due) best = i;
  return best;
}

double kiln__tma_due(const emu_machine *machine) {
  return machine->num_transfers ? machine->transfers[earliest(machine)].due : INFINITY;
}

void kiln__tma_land_due(emu_machine *machine) { land(machine, earliest(machine)); }

/* Blocks have ended: stores that have read shared memory still write their tensors. */
void kiln__tma_finish(emu_machine *machine) {
  while (machine->num_transfers) {
    const u32 newest = machine->num_transfers - 1;
    const emu_transfer *t = &machine->transfers[newest];
    if (!t->store)
      kiln__emu_fault("%s is in flight when its block has ended: nobody waited for mbarrier %s",
                      t->site, t->mbarrier->name);
    land(machine, newest);
  }
}

void kiln__tma_exit(emu_thread *thread) {
  if (thread->bulk.open) kiln__emu_fault("the thread ends with bulk stores that are not committed");
  if (thread->bulk.last > thread->knows.own[EMU_BULK])
    kiln__emu_fault("the thread ends with bulk stores that may not have read shared memory: "
                    "bulk_wait_read is missing");
}

/* ---- issue ---- */

void kiln__transfer_load(emu_thread *thread, emu_block *block, const emu_transfer *model, u32 bar) {
  emu_machine *machine = thread->machine;
  emu_transfer t = *model;
  emu_mbarrier *m = kiln__mbarrier_find(block, bar, t.site);
  if (machine->checking && !m->fenced)
    kiln__emu_fault("%s: mbarrier %s was initialised without fence_bar_init", t.site, m->name);
  const u32 component =
      machine->checking ? kiln__clocks_of_barrier(&machine->clocks, block->rank, m->index) : 0;
  const emu_mark mark = {component, (int)m->phase + 1};
  kiln__peer_touch(thread, block, mark, t.site);
  check_order(thread, &t, EMU_READS, mark);
  if (t.source) kiln__shadow_tma_store(thread, t.source_at, all_bytes(&t), mark, t.site);
  kiln__shadow_tma_load(thread, block, t.at, all_bytes(&t), mark, t.site);
  memset(block->shared + t.at, POISON, all_bytes(&t));
  t.block = block;
  t.mbarrier = m;
  if (machine->schedule == EMU_RANDOM) t.first_row = kiln__scheduler_random(machine) % t.rows;
  m->in_flight++;
  if (machine->trace) kiln__trace_transfer(thread, &t, all_bytes(&t));
  append(machine, &t);
  if (machine->schedule == EMU_EAGER) land_rows(machine, machine->num_transfers - 1, t.rows);
}

/* A store reads what it sends: nobody need have written what is dropped outside the tensor. */
static void check_sent(emu_thread *thread, const emu_transfer *t, emu_mark mark) {
  for (u32 row = 0; row < t->rows; row++) {
    u32 first = 0, end = 0;
    if (!global_row(t, row, &first, &end)) continue;
    for (u32 c = first / EMU_CHUNK * EMU_CHUNK; c < end; c += EMU_CHUNK)
      kiln__shadow_tma_store(thread, kiln__swizzle(t->map.swizzle, t->at + row * t->width + c),
                             EMU_CHUNK, mark, t->site);
  }
}

void kiln__transfer_store(emu_thread *thread, const emu_transfer *model) {
  emu_machine *machine = thread->machine;
  emu_transfer t = *model;
  t.store = 1;
  t.block = thread->block;
  t.owner = thread;
  t.group = thread->bulk.committed + 1;
  check_sent(thread, &t, (emu_mark){thread->knows.first + EMU_BULK, t.group});
  check_order(thread, &t, t.add ? EMU_WRITES | EMU_ATOMIC : EMU_WRITES,
              (emu_mark){thread->knows.first + EMU_STORED, t.group});
  thread->bulk.open++;
  thread->bulk.last = t.group;
  if (machine->trace) {
    kiln__trace_output(thread);
    kiln__trace_transfer(thread, &t, all_bytes(&t));
  }
  append(machine, &t);
  if (machine->schedule != EMU_EAGER) return;
  land_store(machine, machine->num_transfers - 1);
  land_store(machine, machine->num_transfers - 1);
}

/* ---- bulk groups ---- */

void kiln__emu_bulk_commit(const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  thread->bulk.committed++;
  thread->bulk.open = 0;
}

static void wait_bulk(int pending, int read, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  const int group = thread->bulk.committed - pending;
  if (owes_stores(thread->machine, thread, group, read))
    kiln__scheduler_block(thread, (emu_wait){EMU_WAIT_BULK, thread, group, read, site});
  if (thread->machine->trace) kiln__trace_bulk_waited(thread, read, site);
  int *own = thread->knows.own;
  if (group <= own[EMU_BULK] && (read || group <= own[EMU_STORED])) return;
  if (group > own[EMU_BULK]) own[EMU_BULK] = group;
  if (!read) own[EMU_STORED] = group;
  thread->knows.version++;
}

void kiln__emu_bulk_wait(int pending, const char *site) { wait_bulk(pending, 0, site); }
void kiln__emu_bulk_wait_read(int pending, const char *site) { wait_bulk(pending, 1, site); }
