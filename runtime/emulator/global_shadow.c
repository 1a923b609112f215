/* Happens-before checks of global memory: see global_shadow.h. */
#include "runtime/emulator/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/past.h"

#define CELL_BYTES  16u
#define PAGE_CELLS  256u
#define PAGE_BYTES  (CELL_BYTES * PAGE_CELLS)
#define ALL_BYTES   0xffffu
#define NAME_BYTES  128
#define PLACE_BYTES 1024

typedef struct emu_page {
  int written; /* some cell has a write */
  emu_cell cells[PAGE_CELLS];
} emu_page;

/* ---- life ---- */

int kiln__global_shadow_create(emu_global_shadow *shadow, emu_chunk_pool *chunks,
                               const emu_allocation *memory, size_t count) {
  memset(shadow, 0, sizeof *shadow);
  shadow->arena.pool = chunks;
  shadow->memory = memory;
  shadow->num_allocations = count;
  shadow->pages = kiln__arena_take(&shadow->arena, (count + 1) * sizeof *shadow->pages);
  return shadow->pages ? 0 : -1;
}

void kiln__global_shadow_free(emu_global_shadow *shadow) { kiln__arena_free(&shadow->arena); }

static void *take(emu_global_shadow *shadow, size_t bytes) {
  void *taken = kiln__arena_take(&shadow->arena, bytes);
  if (!taken) kiln__emu_fault("the emulator is out of host memory");
  return taken;
}

/* ---- cells ---- */

static size_t num_pages(const emu_allocation *a) { return a->bytes / PAGE_BYTES + 1; }

/* The page of an offset, made where it is touched for the first time. Allocations begin on a
 * multiple of 256 bytes, so that cells lie on multiples of 16. */
static emu_page *page_at(emu_global_shadow *shadow, const emu_allocation *in, size_t offset) {
  emu_pages *pages = &shadow->pages[in - shadow->memory];
  if (!pages->at) pages->at = take(shadow, num_pages(in) * sizeof *pages->at);
  emu_page_place *place = &pages->at[offset / PAGE_BYTES];
  if (!place->page) place->page = take(shadow, sizeof *place->page);
  return place->page;
}

static emu_access *accesses_of(emu_cell *cell) { return cell->list ? cell->list : cell->first; }

/* Of a full list: a read if there is one. */
static emu_access *forgotten(emu_cell *cell) {
  for (u32 i = 0; i < EMU_CELL_MOST; i++) {
    emu_access *a = &cell->list[cell->next++ % EMU_CELL_MOST];
    if (!(a->kind & EMU_WRITES)) return a;
  }
  return &cell->list[cell->next++ % EMU_CELL_MOST];
}

static emu_access *append(emu_global_shadow *shadow, emu_cell *cell) {
  const u32 capacity = cell->list ? cell->capacity : EMU_CELL_INLINE;
  if (cell->count < capacity) return &accesses_of(cell)[cell->count++];
  if (capacity == EMU_CELL_MOST) return forgotten(cell);
  const u32 more = cell->list ? 2 * capacity : EMU_CELL_MOST / 4;
  emu_access *list = take(shadow, more * sizeof *list);
  memcpy(list, accesses_of(cell), capacity * sizeof *list);
  cell->list = list;
  cell->capacity = (u8)more;
  return &list[cell->count++];
}

/* ---- order ---- */

/* Whether the thread knows that component `ahead` behind the access's own has come as far. */
static int knows(const emu_thread *thread, const emu_access *a) {
  const emu_knowledge *k = &thread->knows;
  if (a->cluster == (u32)thread->machine->cluster)
    return kiln__clocks_knows(k, a->mark.component, a->mark.value);
  const int *clock = kiln__past_find(k->seen->past, a->cluster);
  return clock && clock[a->mark.component] >= a->mark.value;
}

/* Whether the thread that wrote has fenced its write for the async proxy, as far as `thread` knows.
 * A read has returned its value. */
static int is_fenced(const emu_thread *thread, const emu_access *a) {
  if (!(a->kind & EMU_WRITES)) return 1;
  emu_access fenced = *a;
  fenced.mark.component += EMU_FENCED_GLOBAL - EMU_GENERIC;
  return knows(thread, &fenced);
}

static int conflicts(const emu_access *a, const emu_access *b) {
  return (a->bytes & b->bytes) && ((a->kind | b->kind) & EMU_WRITES) &&
         !(a->kind & b->kind & EMU_ATOMIC);
}

/* Where blocks do not talk, nothing orders two clusters, and the end will tell. */
static int is_settled_later(const emu_thread *thread, const emu_access *a) {
  return !thread->machine->world && a->cluster != (u32)thread->machine->cluster;
}

/* ---- faults ---- */

/* Who made an access: "block 3 warp 0 lane 31", "TMA of block 3". */
static const char *who(const emu_machine *machine, const emu_access *a, char *out, size_t size) {
  const emu_clocks *c = &machine->clocks;
  const u32 rank = a->mark.component / c->per_block, local = a->mark.component % c->per_block;
  const i64 block = (i64)a->cluster * machine->num_blocks + rank;
  if (local < EMU_OWN * c->threads)
    snprintf(out, size, "block %lld warp %u lane %u", block, local / EMU_OWN / EMU_WARP,
             local / EMU_OWN % EMU_WARP);
  else
    snprintf(out, size, "TMA of block %lld", block);
  return out;
}

static const char *why_unordered(const emu_machine *machine, const emu_access *earlier) {
  const u32 local = earlier->mark.component % machine->clocks.per_block;
  if (local >= EMU_OWN * machine->clocks.threads) return " (its completion was not waited for)";
  if (earlier->kind & EMU_ASYNC_PROXY) return " (no bulk_wait, or no release behind it)";
  return "";
}

/* The sentence about an access and an earlier one that is not ordered before it. */
static void describe(const emu_machine *machine, const emu_access *later, const emu_access *earlier,
                     const emu_allocation *in, size_t offset, char *out, size_t size) {
  char name[NAME_BYTES], place[NAME_BYTES];
  offset += (size_t)__builtin_ctz(later->bytes & earlier->bytes);
  snprintf(place, sizeof place, "offset %zu of an allocation of %zu bytes", offset, in->bytes);
  who(machine, earlier, name, sizeof name);
  if (earlier->kind & EMU_WRITES)
    snprintf(out, size, "%s at %s is not ordered after %s by %s%s", later->site, place,
             earlier->site, name, why_unordered(machine, earlier));
  else
    snprintf(out, size, "%s overwrites %s that %s by %s may still read", later->site, place,
             earlier->site, name);
}

static void check(const emu_thread *thread, const emu_access *new, const emu_access *old,
                  const emu_allocation *in, size_t offset) {
  char sentence[PLACE_BYTES], name[NAME_BYTES];
  if (!knows(thread, old)) {
    describe(thread->machine, new, old, in, offset, sentence, sizeof sentence);
    kiln__emu_fault("%s", sentence);
  }
  if (!(new->kind &EMU_ASYNC_PROXY) || old->kind & EMU_ASYNC_PROXY || is_fenced(thread, old))
    return;
  kiln__emu_fault("%s (async proxy) at offset %zu of an allocation of %zu bytes: %s by %s has no "
                  "fence.proxy.async.global behind it",
                  new->site, offset, in->bytes, old->site,
                  who(thread->machine, old, name, sizeof name));
}

/* ---- accesses ---- */

/* Whether whatever will be ordered after the new access is ordered after the old one too, so that
 * only the new one is needed. Of reads by other clusters that are settled later, one is enough. */
static int replaces(const emu_thread *thread, const emu_access *new, const emu_access *old,
                    int *foreign_reads) {
  if (is_settled_later(thread, old))
    return !((new->kind | old->kind) & EMU_WRITES) && (*foreign_reads)++ > 0;
  if (!(new->kind &EMU_WRITES) && (old->kind & EMU_WRITES)) return 0;
  const int same = old->cluster == new->cluster && old->mark.component == new->mark.component;
  return (same && old->mark.value <= new->mark.value) || knows(thread, old);
}

/* The new access of one cell; `offset` is the cell's. */
static void touch(emu_thread *thread, const emu_allocation *in, size_t offset, emu_cell *cell,
                  const emu_access *new) {
  emu_access *list = accesses_of(cell);
  int foreign_reads = 0;
  u32 kept = 0;
  for (u32 i = 0; i < cell->count; i++) {
    emu_access *old = &list[i];
    if (conflicts(new, old) && !is_settled_later(thread, old)) check(thread, new, old, in, offset);
    if ((old->bytes & new->bytes) && replaces(thread, new, old, &foreign_reads))
      old->bytes &= (u16) ~new->bytes;
    if (old->bytes) list[kept++] = *old;
  }
  cell->count = (u8)kept;
  *append(thread->machine->global, cell) = *new;
}

void kiln__global_shadow_access(emu_thread *thread, const emu_allocation *in, const void *p,
                                size_t bytes, int kind, emu_mark mark, const char *site) {
  emu_machine *machine = thread->machine;
  if (!machine->checking || !bytes) return;
  emu_access new = {site, (u32)machine->cluster, mark, 0, (u8)kind};
  size_t offset = (size_t)((const char *)p - in->start);
  const size_t end = offset + bytes;
  while (offset < end) {
    emu_page *page = page_at(machine->global, in, offset);
    const size_t page_end = (offset / PAGE_BYTES + 1) * PAGE_BYTES;
    page->written |= kind & EMU_WRITES;
    for (; offset < end && offset < page_end; offset = (offset / CELL_BYTES + 1) * CELL_BYTES) {
      const size_t first = offset % CELL_BYTES, left = end - offset;
      const u32 from = ALL_BYTES << first & ALL_BYTES;
      const size_t last = first + left;
      new.bytes = (u16)(last < CELL_BYTES ? from & ((1u << last) - 1) : from);
      touch(thread, in, offset - first, &page->cells[offset / CELL_BYTES % PAGE_CELLS], &new);
    }
  }
}

/* ---- at the end ---- */

typedef struct pair {
  const emu_access *later, *earlier; /* by the numbers of their clusters; NULL = none */
} pair;

static int is_before(const pair *a, const pair *b) {
  if (!b->later) return 1;
  if (a->later->cluster != b->later->cluster) return a->later->cluster < b->later->cluster;
  return a->earlier->cluster < b->earlier->cluster;
}

/* Conflicts of two clusters in a cell as two host threads saw it. The first one is kept. */
static void settle_cells(emu_cell *one, emu_cell *other, pair *found) {
  const emu_access *a = accesses_of(one), *b = accesses_of(other);
  for (u32 i = 0; i < one->count; i++) {
    for (u32 j = 0; j < other->count; j++) {
      if (a[i].cluster == b[j].cluster || !conflicts(&a[i], &b[j])) continue;
      const pair met = a[i].cluster < b[j].cluster ? (pair){&b[j], &a[i]} : (pair){&a[i], &b[j]};
      if (is_before(&met, found)) *found = met;
    }
  }
}

/* The pages of all shadows at one place: the first cell with a conflict. */
static int settle_pages(emu_page *const *pages, u32 count, pair *found) {
  for (u32 cell = 0; cell < PAGE_CELLS; cell++) {
    for (u32 i = 0; i < count; i++)
      for (u32 j = i; j < count; j++)
        settle_cells(&pages[i]->cells[cell], &pages[j]->cells[cell], found);
    if (found->later) return (int)cell;
  }
  return -1;
}

/* Those of the pages that exist; 0 where nothing was written to any. */
static u32 gather(const emu_global_shadow *shadows, u32 count, size_t allocation, size_t number,
                  emu_page **out) {
  u32 found = 0;
  int written = 0;
  for (u32 i = 0; i < count; i++) {
    const emu_page_place *places = shadows[i].pages[allocation].at;
    if (!places || !places[number].page) continue;
    written |= places[number].page->written;
    out[found++] = places[number].page;
  }
  return written ? found : 0;
}

static void say(const emu_machine *geometry, const pair *found, const emu_allocation *in,
                size_t offset, char *message) {
  char name[NAME_BYTES], sentence[PLACE_BYTES];
  describe(geometry, found->later, found->earlier, in, offset, sentence, sizeof sentence);
  snprintf(message, EMU_MESSAGE_BYTES, "%s: %s; nothing orders blocks that do not talk",
           who(geometry, found->later, name, sizeof name), sentence);
}

int kiln__global_shadow_settle(const emu_global_shadow *shadows, u32 count,
                               const emu_machine *geometry, char *message) {
  emu_page *pages[EMU_HOST_THREADS];
  for (size_t a = 0; count && a < shadows[0].num_allocations; a++) {
    const emu_allocation *in = &shadows[0].memory[a];
    for (size_t number = 0; number < num_pages(in); number++) {
      const u32 found = gather(shadows, count, a, number, pages);
      pair met = {NULL, NULL};
      const int cell = settle_pages(pages, found, &met);
      if (cell < 0) continue;
      say(geometry, &met, in, number * PAGE_BYTES + (size_t)cell * CELL_BYTES, message);
      return -1;
    }
  }
  return 0;
}
