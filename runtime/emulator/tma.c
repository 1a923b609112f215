/* TMA: boxes of a tensor to shared memory and back, or added to the tensor. What lies outside the
 * tensor is zeros to a load, which count on the mbarrier all the same, and dropped by a store; but
 * a store's rows end on 16 bytes, behind the tensor's where those do not. How boxes land:
 * transfer.c. */
#include "runtime/emulator/machine.h"

#include <string.h>

#include "runtime/emulator/global.h"
#include "runtime/emulator/transfer.h"

#define DESTINATION 128u         /* alignment of a box in shared memory */
#define HUGE_EXTENT (1ull << 47) /* no tensor is as large: its strides are meant to wrap */

/* ---- boxes ---- */

static u32 row_bytes(const TensorMap *map) { return map->box[0] * map->element; }

static u32 box_rows(const TensorMap *map) {
  u32 rows = 1;
  for (int d = 1; d < EMU_RANK; d++) rows *= map->box[d];
  return rows;
}

/* The tensor's row behind row `row` of the box, or NULL when it lies outside. Addresses wrap, as
 * the hardware's do. */
static char *tensor_row(const emu_transfer *t, u32 row) {
  const TensorMap *map = &t->map;
  u64 offset = 0;
  for (int d = 1; d < map->rank; d++) {
    const i64 place = (i64)t->coordinates[d] + row % map->box[d];
    row /= map->box[d];
    if (place < 0 || (u64)place >= map->dims[d]) return NULL;
    offset += (u64)place * map->strides[d - 1];
  }
  return (char *)((uintptr_t)map->address + offset);
}

char *kiln__box_row(const emu_transfer *t, u32 row, u32 *first, u32 *end) {
  const i64 start = t->coordinates[0], width = t->map.box[0], size = (i64)t->map.dims[0];
  const i64 low = start < 0 ? -start : 0, high = size - start < width ? size - start : width;
  char *at = tensor_row(t, row);
  if (!at || low >= high) return NULL;
  *first = (u32)low * t->map.element;
  *end = (u32)high * t->map.element;
  if (t->store) *end = (*end + EMU_CHUNK - 1) / EMU_CHUNK * EMU_CHUNK;
  return at + (start + low) * t->map.element;
}

/* ---- checks ---- */

/* Bytes from the first element of the tensor to the last, or HUGE_EXTENT. */
static u64 extent(const TensorMap *map) {
  u64 bytes = map->dims[0] * map->element;
  for (int d = 1; d < map->rank; d++) {
    if (map->strides[d - 1] && map->dims[d] - 1 > HUGE_EXTENT / map->strides[d - 1])
      return HUGE_EXTENT;
    bytes += (map->dims[d] - 1) * map->strides[d - 1];
    if (bytes >= HUGE_EXTENT) return HUGE_EXTENT;
  }
  return bytes;
}

/* The whole tensor lies in one allocation; where its strides wrap, each row of the box does, as
 * does what a store writes behind its rows. */
static const emu_allocation *check_tensor(const emu_machine *machine, const emu_transfer *t) {
  const emu_allocation *in = NULL;
  const TensorMap *map = &t->map;
  const u64 bytes = extent(map);
  if (bytes < HUGE_EXTENT)
    in = kiln__global_check(machine, map->address, bytes, EMU_CHUNK, t->site);
  if (in && !(t->store && map->dims[0] * map->element % EMU_CHUNK)) return in;
  for (u32 row = 0; row < t->rows; row++) {
    u32 first = 0, end = 0;
    const char *at = kiln__box_row(t, row, &first, &end);
    const emu_allocation *found =
        at ? kiln__global_check(machine, at, end - first, 1, t->site) : in;
    if (in && in != found) kiln__emu_fault("%s: the box lies in two allocations", t->site);
    in = found;
  }
  return in;
}

static void check_map(const TensorMap *map, const char *site) {
  if ((uintptr_t)map % 64) kiln__emu_fault("%s: the tensor map is not 64-byte aligned", site);
  if (map->magic != EMU_MAP_MAGIC) kiln__emu_fault("%s: this is no tensor map", site);
}

/* An illegal instruction on the hardware: a column off 16 bytes, a store's corner below zero. */
static void check_corner(const TensorMap *map, const int *corner, int is_store, const char *site) {
  if (corner[0] % (int)(EMU_CHUNK / map->element))
    kiln__emu_fault("%s: the box begins at column %d, which is no multiple of 16 bytes", site,
                    corner[0]);
  for (int d = 0; is_store && d < map->rank; d++)
    if (corner[d] < 0)
      kiln__emu_fault("%s: the box begins at %d in dimension %d; only a load may begin below 0",
                      site, corner[d], d);
}

static emu_transfer box(const emu_thread *thread, const TensorMap *map, int rank, u32 at,
                        const int *corner, int is_store, const char *site) {
  check_map(map, site);
  if (map->rank != rank)
    kiln__emu_fault("%s: the tensor map has rank %u", site, (unsigned)map->rank);
  emu_transfer t = {.store = is_store,
                    .at = at,
                    .width = row_bytes(map),
                    .is_box = 1,
                    .map = *map,
                    .dtype = map->dtype,
                    .rows = box_rows(map),
                    .site = site};
  memcpy(t.coordinates, corner, sizeof t.coordinates);
  check_corner(map, corner, is_store, site);
  t.in = check_tensor(thread->machine, &t);
  const u32 period = map->swizzle ? 8 * map->swizzle : DESTINATION;
  kiln__shared_check(thread->block, at, t.width * t.rows, period, site);
  return t;
}

/* ---- instructions ---- */

/* blocks: mask of a multicast; -1 = the thread's own block alone. */
void kiln__emu_tma_load_tile(int rank, u32 to, const TensorMap *map, u32 bar, int c0, int c1,
                             int c2, int c3, int c4, u64 policy, int blocks, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_machine *machine = thread->machine;
  (void)policy;
  if (blocks < 0) blocks = 1 << thread->block->rank;
  if (!blocks || blocks >> machine->num_blocks)
    kiln__emu_fault("%s: mask 0x%x names blocks outside a cluster of %u", site, (u32)blocks,
                    machine->num_blocks);
  const emu_transfer t = box(thread, map, rank, to, (const int[]){c0, c1, c2, c3, c4}, 0, site);
  for (u32 b = 0; b < machine->num_blocks; b++)
    if (blocks >> b & 1) kiln__transfer_load(thread, &machine->blocks[b], &t, bar);
}

void kiln__emu_tma_load(u32 to, const TensorMap *map, u32 bar, int col, int row, int head,
                        int batch, u64 policy, const char *site) {
  kiln__emu_tma_load_tile(4, to, map, bar, col, row, head, batch, 0, policy, -1, site);
}

void kiln__emu_tma_load_multicast(u32 to, const TensorMap *map, u32 bar, int col, int row, int head,
                                  int batch, u64 policy, u16 blocks, const char *site) {
  kiln__emu_tma_load_tile(4, to, map, bar, col, row, head, batch, 0, policy, blocks, site);
}

void kiln__emu_tma_store_tile(int rank, int add, const TensorMap *map, u32 from, int c0, int c1,
                              int c2, int c3, int c4, const char *site) {
  emu_thread *thread = kiln__emu_enter(site);
  emu_transfer t = box(thread, map, rank, from, (const int[]){c0, c1, c2, c3, c4}, 1, site);
  t.add = add;
  if (add && map->element == 1) kiln__emu_fault("%s: 8-bit numbers cannot be added", site);
  kiln__transfer_store(thread, &t);
}

void kiln__emu_tma_store(const TensorMap *map, u32 from, int col, int row, int head, int batch,
                         const char *site) {
  kiln__emu_tma_store_tile(4, 0, map, from, col, row, head, batch, 0, site);
}

void kiln__emu_tma_prefetch_map(const TensorMap *map, const char *site) {
  kiln__emu_enter(site);
  check_map(map, site);
}
