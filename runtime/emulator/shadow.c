/* Happens-before checks of shared memory: see shadow.h.
 *
 *   access                     must be ordered after
 *   generic or cp.async read   the last write
 *   generic or cp.async write  the last write and every read since
 *   TMA load (a write)         the same; generic accesses also through the proxy (proxy.c)
 *   TMA store, wgmma (reads)   the last write; a generic one also through the proxy
 *
 * A write by cp.async is known to its thread after cp_async_wait, a write by TMA to whoever has
 * seen the phase of its mbarrier, a read by wgmma to whoever has waited for its group in that warp.
 * */
#include "runtime/emulator/machine.h"

#include <string.h>

/* ---- who looks ---- */

/* One thread, or a warpgroup: then `all` is what every one of its threads knows. */
typedef struct viewer {
  emu_machine *machine;
  const emu_knowledge *thread;
  const int *all;
  const char *site;
  int async; /* through the async proxy */
} viewer;

static inline int sees(const viewer *v, emu_mark mark) {
  if (v->thread) return kiln__clocks_knows(v->thread, mark.component, mark.value);
  return v->all[mark.component] >= mark.value;
}

/* Whether the thread that made the mark has fenced it for the async proxy, as far as v knows. */
static inline int sees_fenced(const viewer *v, emu_mark mark) {
  return sees(v, (emu_mark){mark.component + 1, mark.value});
}

static viewer of_thread(emu_thread *thread, int async, const char *site) {
  return (viewer){thread->machine, &thread->knows, NULL, site, async};
}

#define NAME_BYTES 128

/* ---- checks of one word or granule ---- */

static void fault_write(const viewer *v, u32 at, const emu_word *w, emu_mark mark) {
  char name[NAME_BYTES];
  kiln__emu_component_name(v->machine, mark.component, name, sizeof name);
  const char *why = w->writer == EMU_BY_TMA ? " (its completion was not waited for)"
                    : w->writer == EMU_BY_COPY
                        ? " (no cp.async.wait_group, or no barrier behind it)"
                        : "";
  kiln__emu_fault("%s at shared 0x%x is not ordered after %s by %s%s", v->site, at, w->write_site,
                  name, why);
}

static void fault_proxy(const viewer *v, u32 at, const char *site, emu_mark mark,
                        const char *what) {
  char name[NAME_BYTES];
  kiln__emu_component_name(v->machine, mark.component, name, sizeof name);
  kiln__emu_fault("%s at shared 0x%x (async proxy): %s by %s %s", v->site, at, site, name, what);
}

static void check_write(const viewer *v, u32 at, const emu_word *w) {
  if (w->writer == EMU_BY_NOBODY) return;
  if (!sees(v, w->write)) fault_write(v, at, w, w->write);
  for (u32 i = 0; w->writer == EMU_BY_ATOMIC && i < w->num_reads; i++)
    if (!sees(v, w->reads[i])) fault_write(v, at, w, w->reads[i]);
  if (v->async && w->writer != EMU_BY_TMA && !sees_fenced(v, w->write))
    fault_proxy(v, at, w->write_site, w->write, "has no fence.proxy.async behind it");
}

/* Whether the word was written, and check_write has nothing to say: nearly always. */
static inline int is_settled(const viewer *v, const emu_word *w) {
  if (w->writer == EMU_BY_NOBODY || w->writer == EMU_BY_ATOMIC || !sees(v, w->write)) return 0;
  return !v->async || w->writer == EMU_BY_TMA || sees_fenced(v, w->write);
}

static void check_written(const viewer *v, u32 at, const emu_word *w) {
  if (is_settled(v, w)) return;
  if (w->writer == EMU_BY_NOBODY)
    kiln__emu_fault("%s reads shared 0x%x that nothing has written", v->site, at);
  check_write(v, at, w);
}

static void check_reads(const viewer *v, u32 at, const emu_word *w) {
  for (u32 i = 0; w->writer != EMU_BY_ATOMIC && i < w->num_reads; i++) {
    if (!sees(v, w->reads[i])) {
      char name[NAME_BYTES];
      kiln__emu_component_name(v->machine, w->reads[i].component, name, sizeof name);
      kiln__emu_fault("%s overwrites shared 0x%x that %s by %s may still read", v->site, at,
                      w->read_site, name);
    }
    if (v->async && !sees_fenced(v, w->reads[i]))
      fault_proxy(v, at, w->read_site, w->reads[i],
                  "is neither consumed by a finished mma nor fenced");
  }
}

/* ---- granules ---- */

static u32 number_of(u32 at) { return (at - EMU_SHARED_BASE) / EMU_GRANULE; }

static emu_granule *granule_at(emu_block *block, u32 at) {
  return &block->shadow.granules[number_of(at)];
}

static int *wgmma_reads_at(const emu_block *block, u32 at) {
  return block->shadow.wgmma_reads + (size_t)number_of(at) * block->machine->num_warps;
}

/* Reads by wgmma and by bulk stores; at a first store to a granule both lists are empty. */
static void check_engine_reads(const viewer *v, const emu_block *block, u32 at,
                               const emu_granule *g) {
  if (g->store.value && !sees(v, g->store)) {
    char name[NAME_BYTES];
    kiln__emu_component_name(v->machine, g->store.component, name, sizeof name);
    if (kiln__clocks_is_barrier(&v->machine->clocks, g->store.component))
      kiln__emu_fault("%s overwrites shared 0x%x that %s by %s may still read", v->site, at,
                      g->store_site, name);
    kiln__emu_fault("%s overwrites shared 0x%x that %s of %s (bulk group %d) may still read",
                    v->site, at, g->store_site, name, g->store.value);
  }
  if (!g->wgmma_site) return;
  const int *groups = wgmma_reads_at(block, at);
  const u32 first = kiln__clocks_of_warp(&v->machine->clocks, block->rank, 0);
  for (u32 w = 0; w < v->machine->num_warps; w++) {
    if (!groups[w] || sees(v, (emu_mark){first + w, groups[w]})) continue;
    kiln__emu_fault("%s overwrites shared 0x%x that %s of warp %u (wgmma group %d) may still read: "
                    "nobody released it",
                    v->site, at, g->wgmma_site, w, groups[w]);
  }
}

static void forget_engine_reads(const emu_block *block, u32 at, emu_granule *g) {
  g->store.value = 0;
  if (!g->wgmma_site) return;
  memset(wgmma_reads_at(block, at), 0, block->machine->num_warps * sizeof(int));
  g->wgmma_site = NULL;
}

/* Calls check for the granule, or for each of its words. */
static inline void each(const viewer *v, u32 at, const emu_granule *g,
                        void (*check)(const viewer *v, u32 at, const emu_word *w)) {
  if (g->split) {
    for (u32 i = 0; i < 4; i++) check(v, at + 4 * i, &g->words[i]);
  } else {
    check(v, at, &g->whole);
  }
}

static emu_word *word_at(emu_machine *machine, emu_granule *g, u32 at) {
  if (!g->words) g->words = kiln__machine_take(machine, 4 * sizeof *g->words);
  for (u32 i = 0; i < 4 && !g->split; i++) g->words[i] = g->whole;
  g->split = 1;
  return &g->words[at / 4 % 4];
}

static void set_write(emu_word *w, emu_writer writer, emu_mark mark, const char *site) {
  w->write = mark;
  w->write_site = site;
  w->writer = (u8)writer;
  w->num_reads = w->next_read = 0;
}

/* A write to the whole granule; its words are one again. */
static void write_whole(const viewer *v, emu_block *block, u32 at, emu_writer writer,
                        emu_mark mark) {
  emu_granule *g = granule_at(block, at);
  each(v, at, g, check_write);
  each(v, at, g, check_reads);
  check_engine_reads(v, block, at, g);
  forget_engine_reads(block, at, g);
  g->split = 0;
  set_write(&g->whole, writer, mark, v->site);
}

/* ---- generic accesses ---- */

static emu_mark own_mark(const emu_thread *thread) {
  return (emu_mark){thread->knows.first + EMU_GENERIC, thread->knows.own[EMU_GENERIC]};
}

/* Takes the place of the same thread's earlier read, or of one that is ordered before this one. */
static void add_read(const viewer *v, emu_word *w, emu_mark mark) {
  u32 i = 0;
  while (i < w->num_reads && w->reads[i].component != mark.component && !sees(v, w->reads[i])) i++;
  if (i == EMU_READERS)
    i = w->next_read++ % EMU_READERS;
  else if (i == w->num_reads)
    w->num_reads++;
  w->reads[i] = mark;
  w->read_site = v->site;
}

static void read_word(const viewer *v, u32 at, emu_word *w, emu_mark mark) {
  check_written(v, at, w);
  if (w->writer == EMU_BY_ATOMIC) set_write(w, EMU_BY_THREAD, w->write, w->write_site);
  add_read(v, w, mark);
}

void kiln__shadow_read(emu_thread *thread, u32 at, u32 bytes, const char *site) {
  if (!thread->machine->checking) return;
  const viewer v = of_thread(thread, 0, site);
  const emu_mark mark = own_mark(thread);
  emu_granule *g = granule_at(thread->block, at);
  if (bytes == 4) {
    read_word(&v, at, word_at(thread->machine, g, at), mark);
  } else if (g->split) {
    for (u32 i = 0; i < 4; i++) read_word(&v, at + 4 * i, &g->words[i], mark);
  } else {
    read_word(&v, at, &g->whole, mark);
  }
}

void kiln__shadow_write(emu_thread *thread, u32 at, u32 bytes, const char *site) {
  if (!thread->machine->checking) return;
  const viewer v = of_thread(thread, 0, site);
  if (bytes == EMU_GRANULE) {
    write_whole(&v, thread->block, at, EMU_BY_THREAD, own_mark(thread));
  } else {
    emu_granule *g = granule_at(thread->block, at);
    emu_word *w = word_at(thread->machine, g, at);
    check_write(&v, at, w);
    check_reads(&v, at, w);
    check_engine_reads(&v, thread->block, at, g);
    set_write(w, EMU_BY_THREAD, own_mark(thread), site);
  }
  kiln__proxy_wrote(thread);
}

/* Flags are raced on purpose: nothing is asked of their order, but a value they must have. */
void kiln__shadow_flag_read(emu_thread *thread, u32 at, const char *site) {
  if (!thread->machine->checking) return;
  if (word_at(thread->machine, granule_at(thread->block, at), at)->writer == EMU_BY_NOBODY)
    kiln__emu_fault("%s reads shared 0x%x that nothing has written", site, at);
}

void kiln__shadow_flag_write(emu_thread *thread, u32 at, const char *site) {
  if (!thread->machine->checking) return;
  emu_word *w = word_at(thread->machine, granule_at(thread->block, at), at);
  if (w->writer == EMU_BY_NOBODY) set_write(w, EMU_BY_THREAD, own_mark(thread), site);
}

void kiln__shadow_atomic(emu_thread *thread, u32 at, const char *site) {
  if (!thread->machine->checking) return;
  const viewer v = of_thread(thread, 0, site);
  emu_granule *g = granule_at(thread->block, at);
  emu_word *w = word_at(thread->machine, g, at);
  if (w->writer == EMU_BY_ATOMIC) {
    add_read(&v, w, w->write);
    w->write = own_mark(thread);
    w->write_site = site;
  } else {
    check_written(&v, at, w);
    check_reads(&v, at, w);
    check_engine_reads(&v, thread->block, at, g);
    set_write(w, EMU_BY_ATOMIC, own_mark(thread), site);
  }
  kiln__proxy_wrote(thread);
}

void kiln__shadow_copy(emu_thread *thread, u32 at, int group, const char *site) {
  if (!thread->machine->checking) return;
  const viewer v = of_thread(thread, 0, site);
  write_whole(&v, thread->block, at, EMU_BY_COPY,
              (emu_mark){thread->knows.first + EMU_COPIES, group});
}

/* ---- the async proxy ---- */

void kiln__shadow_tma_load(emu_thread *thread, emu_block *block, u32 at, u32 bytes, emu_mark mark,
                           const char *site) {
  if (!thread->machine->checking) return;
  kiln__proxy_update(thread);
  const viewer v = of_thread(thread, 1, site);
  for (u32 a = at; a < at + bytes; a += EMU_GRANULE) write_whole(&v, block, a, EMU_BY_TMA, mark);
}

void kiln__shadow_tma_store(emu_thread *thread, u32 at, u32 bytes, emu_mark mark,
                            const char *site) {
  if (!thread->machine->checking) return;
  kiln__proxy_update(thread);
  const viewer v = of_thread(thread, 1, site);
  for (u32 a = at; a < at + bytes; a += EMU_GRANULE) {
    emu_granule *g = granule_at(thread->block, a);
    each(&v, a, g, check_written);
    g->store = mark;
    g->store_site = site;
  }
}

void kiln__shadow_wgmma(const emu_wgmma_read *read, u32 at) {
  emu_block *block = read->block;
  const viewer v = {block->machine, NULL, read->known, read->site, 1};
  emu_granule *g = granule_at(block, at);
  each(&v, at, g, check_written);
  int *groups = wgmma_reads_at(block, at);
  for (u32 w = read->first_warp; w < read->first_warp + read->num_warps; w++)
    groups[w] = read->group;
  g->wgmma_site = read->site;
}

void kiln__shadow_create(emu_block *block) {
  emu_machine *machine = block->machine;
  if (!machine->checking) return;
  const size_t count = machine->shared_bytes / EMU_GRANULE + 1;
  block->shadow.granules = kiln__machine_take(machine, count * sizeof(emu_granule));
  block->shadow.wgmma_reads = kiln__machine_take(machine, count * machine->num_warps * sizeof(int));
}
