/* TMA: boxes of a tensor to shared memory and back, bulk groups.
 *
 * A load's destination is poisoned at issue. Its rows (of the innermost dimension) land all at
 * once, or under EMU_RANDOM in pieces from any row on; each counts its bytes down on the mbarrier,
 * what lies outside the tensor as zeros included. A store reads shared memory in one step and
 * writes the tensor in a later one; what lies outside is dropped. */
#include "runtime/emulator/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/global.h"
#include "runtime/emulator/trace.h"
#include "runtime/emulator/world.h"

#define POISON      0xff
#define DESTINATION 128u /* alignment of a box in shared memory */
#define CHUNK       16u  /* bytes that the swizzle moves together */

/* ---- boxes ---- */

static u32 row_bytes(const TensorMap *map) { return map->box[0] * EMU_ELEMENT_BYTES; }
static u32 box_rows(const TensorMap *map) { return map->box[1] * map->box[2] * map->box[3]; }

/* The tensor's row behind row `row` of the box, or NULL when it lies outside. */
static char *tensor_row(const emu_transfer *t, u32 row) {
  const TensorMap *map = &t->map;
  char *at = map->address;
  for (int d = 1; d < 4; d++) {
    const i64 place = (i64)t->coordinates[d] + row % map->box[d];
    row /= map->box[d];
    if (place < 0 || (u64)place >= map->dims[d]) return NULL;
    at += place * (i64)map->strides[d - 1];
  }
  return at;
}

/* Elements [*first, *end) of a box row that lie inside the tensor. */
static void inside_columns(const emu_transfer *t, u32 *first, u32 *end) {
  const i64 start = t->coordinates[0], width = t->map.box[0], size = (i64)t->map.dims[0];
  const i64 low = start < 0 ? -start : 0, high = size - start < width ? size - start : width;
  *first = (u32)(low < width ? low : width);
  *end = (u32)(high < (i64)*first ? (i64)*first : high);
}

static void put_row(const emu_transfer *t, u32 row, const char *bytes) {
  const u32 width = row_bytes(&t->map);
  for (u32 c = 0; c < width; c += CHUNK)
    memcpy(t->block->shared + kiln__swizzle(t->map.swizzle, t->at + row * width + c), bytes + c,
           CHUNK);
}

static void get_row(const emu_transfer *t, u32 row, char *bytes) {
  const u32 width = row_bytes(&t->map);
  for (u32 c = 0; c < width; c += CHUNK)
    memcpy(bytes + c, t->block->shared + kiln__swizzle(t->map.swizzle, t->at + row * width + c),
           CHUNK);
}

/* What a row of the box has inside the tensor: from where on, and bytes; 0 = nothing. */
static u32 inside_row(const emu_transfer *t, u32 row, char **at, u32 *first_byte) {
  char *start = tensor_row(t, row);
  u32 first, end;
  inside_columns(t, &first, &end);
  if (!start || first >= end) return 0;
  *at = start + ((i64)t->coordinates[0] + first) * EMU_ELEMENT_BYTES;
  *first_byte = first * EMU_ELEMENT_BYTES;
  return (end - first) * EMU_ELEMENT_BYTES;
}

static void load_row(const emu_transfer *t, u32 row) {
  char bytes[256 * EMU_ELEMENT_BYTES] = {0}, *from = NULL;
  u32 first;
  const u32 count = inside_row(t, row, &from, &first);
  if (count) memcpy(bytes + first, from, count);
  put_row(t, row, bytes);
}

static void store_row(const emu_transfer *t, u32 row) {
  char *to = NULL;
  u32 first;
  const u32 count = inside_row(t, row, &to, &first);
  if (count) memcpy(to, t->staged + row * row_bytes(&t->map) + first, count);
}

/* The box as an access of global memory, at issue; over when the mark is known. */
static void check_order(emu_thread *thread, const emu_allocation *in, const emu_transfer *t,
                        int kind, emu_mark mark) {
  if (!thread->machine->checking) return;
  for (u32 r = 0; r < t->rows; r++) {
    char *at = NULL;
    u32 first;
    const u32 count = inside_row(t, r, &at, &first);
    kiln__global_shadow_access(thread, in, at, count, kind | EMU_ASYNC_PROXY, mark, t->site);
  }
}

/* ---- transfers in flight ---- */

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
  const u32 left = t->rows - t->next_row, bytes = row_bytes(&t->map);
  if (count > left) count = left;
  for (u32 n = 0; n < count; n++) load_row(t, (t->first_row + t->next_row++) % t->rows);
  const int last = t->next_row == t->rows;
  emu_block *block = t->block;
  emu_mbarrier *m = t->mbarrier;
  if (last) forget(machine, i);
  kiln__mbarrier_landed(block, m, count * bytes, last);
}

static void land_store(emu_machine *machine, u32 i) {
  emu_transfer *t = &machine->transfers[i];
  emu_thread *owner = t->owner;
  if (!t->staged) {
    t->staged = kiln__machine_take(machine, (size_t)t->rows * row_bytes(&t->map));
    for (u32 r = 0; r < t->rows; r++) get_row(t, r, t->staged + r * row_bytes(&t->map));
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
  if (machine->trace) kiln__trace_transfer_lands(machine, t, t->rows * row_bytes(&t->map));
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

/* ---- instructions ---- */

/* Bytes from the first element of the tensor to the last. */
static size_t extent(const TensorMap *map) {
  size_t bytes = map->dims[0] * EMU_ELEMENT_BYTES;
  for (int d = 1; d < 4; d++) bytes += (map->dims[d] - 1) * map->strides[d - 1];
  return bytes;
}

/* A column off 16 bytes is an illegal instruction on the hardware. */
static const emu_allocation *check(const emu_thread *thread, const TensorMap *map, u32 at, int col,
                                   const char *site) {
  if ((uintptr_t)map % 64) kiln__emu_fault("%s: the tensor map is not 64-byte aligned", site);
  if (map->magic != EMU_MAP_MAGIC) kiln__emu_fault("%s: this is no tensor map", site);
  if (col % (int)(CHUNK / EMU_ELEMENT_BYTES))
    kiln__emu_fault("%s: the box begins at column %d, which is no multiple of 16 bytes", site, col);
  const emu_allocation *in =
      kiln__global_check(thread->machine, map->address, extent(map), 16, site);
  const u32 period = map->swizzle ? 8 * map->swizzle : DESTINATION;
  kiln__shared_check(thread->block, at, row_bytes(map) * box_rows(map), period, site);
  return in;
}

static void load_to(emu_thread *thread, emu_block *block, const emu_allocation *in,
                    const emu_transfer *model, u32 bar) {
  emu_machine *machine = thread->machine;
  emu_transfer t = *model;
  emu_mbarrier *m = kiln__mbarrier_find(block, bar, t.site);
  if (machine->checking && !m->fenced)
    kiln__emu_fault("%s: mbarrier %s was initialised without fence_bar_init", t.site, m->name);
  const u32 bytes = t.rows * row_bytes(&t.map);
  const u32 component =
      machine->checking ? kiln__clocks_of_barrier(&machine->clocks, block->rank, m->index) : 0;
  const emu_mark mark = {component, (int)m->phase + 1};
  kiln__peer_touch(thread, block, mark, t.site);
  check_order(thread, in, &t, EMU_READS, mark);
  kiln__shadow_tma_load(thread, block, t.at, bytes, mark, t.site);
  memset(block->shared + t.at, POISON, bytes);
  t.block = block;
  t.mbarrier = m;
  if (machine->schedule == EMU_RANDOM) t.first_row = kiln__scheduler_random(machine) % t.rows;
  m->in_flight++;
  if (machine->trace) kiln__trace_transfer(thread, &t, bytes);
  append(machine, &t);
  if (machine->schedule == EMU_EAGER) land_rows(machine, machine->num_transfers - 1, t.rows);
}

static emu_transfer transfer(const TensorMap *map, u32 at, const int *coordinates,
                             const char *site) {
  emu_transfer t = {.at = at, .map = *map, .rows = box_rows(map), .site = site};
  memcpy(t.coordinates, coordinates, sizeof t.coordinates);
  return t;
}

void kiln__emu_tma_load(u32 to, const TensorMap *map, u32 bar, int col, int row, int head,
                        int batch, u64 policy, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  (void)policy;
  const emu_allocation *in = check(thread, map, to, col, site);
  const emu_transfer t = transfer(map, to, (const int[]){col, row, head, batch}, site);
  load_to(thread, thread->block, in, &t, bar);
}

void kiln__emu_tma_load_multicast(u32 to, const TensorMap *map, u32 bar, int col, int row, int head,
                                  int batch, u64 policy, u16 blocks, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_machine *machine = thread->machine;
  (void)policy;
  const emu_allocation *in = check(thread, map, to, col, site);
  if (!blocks || blocks >> machine->num_blocks)
    kiln__emu_fault("%s: mask 0x%x names blocks outside a cluster of %u", site, blocks,
                    machine->num_blocks);
  const emu_transfer t = transfer(map, to, (const int[]){col, row, head, batch}, site);
  for (u32 b = 0; b < machine->num_blocks; b++)
    if (blocks >> b & 1) load_to(thread, &machine->blocks[b], in, &t, bar);
}

void kiln__emu_tma_store(const TensorMap *map, u32 from, int col, int row, int head, int batch,
                         const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_machine *machine = thread->machine;
  const emu_allocation *in = check(thread, map, from, col, site);
  emu_transfer t = transfer(map, from, (const int[]){col, row, head, batch}, site);
  t.store = 1;
  t.block = thread->block;
  t.owner = thread;
  t.group = thread->bulk.committed + 1;
  const emu_mark written = {thread->knows.first + EMU_STORED, t.group};
  kiln__shadow_tma_store(thread, from, t.rows * row_bytes(map), t.group, site);
  check_order(thread, in, &t, EMU_WRITES, written);
  thread->bulk.open++;
  thread->bulk.last = t.group;
  if (machine->trace) {
    kiln__trace_output(thread);
    kiln__trace_transfer(thread, &t, t.rows * row_bytes(map));
  }
  append(machine, &t);
  if (machine->schedule != EMU_EAGER) return;
  land_store(machine, machine->num_transfers - 1);
  land_store(machine, machine->num_transfers - 1);
}

void kiln__emu_tma_prefetch_map(const TensorMap *map, const char *site) {
  kiln__emu_enter(site);
  if (map->magic != EMU_MAP_MAGIC) kiln__emu_fault("%s: this is no tensor map", site);
}

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
