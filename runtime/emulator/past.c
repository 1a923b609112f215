/* What clusters tell each other through global memory: see past.h.
 *
 * The rules are those of the PTX ISA's memory model. A release is a store or an atomic with
 * .release, or a relaxed one behind a fence: then it tells what the thread knew at the fence. A
 * word tells what its last release told, and so do the atomics behind it that have only changed
 * the value; a store of another kind ends that. An acquire is a load or an atomic with .acquire,
 * or a relaxed one with a fence behind it. */
#include "runtime/emulator/past.h"

#include <string.h>

#include "runtime/emulator/world.h"

/* ---- pasts ---- */

const int *kiln__past_find(const emu_past *past, i64 cluster) {
  for (u32 i = 0; past && i < past->count; i++)
    if (past->of[i].cluster == cluster) return past->of[i].clock;
  return NULL;
}

static int covers(const emu_past *a, const emu_past *b, u32 count) {
  for (u32 i = 0; i < b->count; i++) {
    const int *of_a = kiln__past_find(a, b->of[i].cluster);
    if (!of_a) return 0;
    if (of_a != b->of[i].clock && !kiln__clocks_cover(of_a, b->of[i].clock, count)) return 0;
  }
  return 1;
}

/* One of two clocks of a cluster where it covers the other, else both in a new one. */
static const int *join_clocks(emu_world *world, const int *a, const int *b, u32 count) {
  if (a == b || kiln__clocks_cover(a, b, count)) return a;
  if (kiln__clocks_cover(b, a, count)) return b;
  int *both = kiln__world_take(world, count * sizeof *both);
  memcpy(both, a, count * sizeof *both);
  kiln__clocks_maximum(both, b, count);
  return both;
}

static emu_past *merge(emu_world *world, const emu_past *a, const emu_past *b, u32 count) {
  emu_past *out = kiln__world_take(world, sizeof *out + (a->count + b->count) * sizeof *out->of);
  u32 i = 0, j = 0;
  while (i < a->count || j < b->count) {
    struct emu_chapter *next = &out->of[out->count++];
    if (j == b->count || (i < a->count && a->of[i].cluster < b->of[j].cluster)) {
      *next = a->of[i++];
    } else if (i == a->count || b->of[j].cluster < a->of[i].cluster) {
      *next = b->of[j++];
    } else {
      next->cluster = a->of[i].cluster;
      next->clock = join_clocks(world, a->of[i++].clock, b->of[j++].clock, count);
    }
  }
  return out;
}

const emu_past *kiln__past_join(emu_world *world, const emu_past *a, const emu_past *b) {
  if (!b || a == b) return a;
  if (!a) return b;
  for (u32 i = 0; i < EMU_WORLD_MEMO; i++)
    if (world->memo[i].a == a && world->memo[i].b == b) return world->memo[i].joined;
  const u32 count = world->components;
  const emu_past *joined = covers(a, b, count)   ? a
                           : covers(b, a, count) ? b
                                                 : merge(world, a, b, count);
  world->memo[world->memo_next++ % EMU_WORLD_MEMO] = (struct emu_world_memo){a, b, joined};
  return joined;
}

/* ---- what a thread tells ---- */

static const emu_past *told_by(emu_thread *thread, const emu_fence *fence) {
  emu_machine *machine = thread->machine;
  emu_world *world = machine->world;
  int *clock = kiln__world_take(world, machine->clocks.count * sizeof *clock);
  kiln__clocks_at_fence(thread, fence, clock);
  emu_past *own = kiln__world_take(world, sizeof *own + sizeof *own->of);
  own->count = 1;
  own->of[0] = (struct emu_chapter){machine->cluster, clock};
  return kiln__past_join(world, fence->seen->past, own);
}

/* NULL where the thread releases nothing. Behind a fence the same for every word. */
static const emu_past *told(emu_thread *thread, int order) {
  if (order & EMU_RELEASE) {
    emu_fence now = {0};
    kiln__clocks_fence(thread, &now);
    const emu_past *past = told_by(thread, &now);
    kiln__clocks_drop(thread->machine, now.seen);
    return past;
  }
  if (thread->fence.seen && !thread->told) thread->told = told_by(thread, &thread->fence);
  return thread->told;
}

/* ---- words ---- */

static u32 place_of(const emu_world *world, const void *at) {
  return (u32)(((u64)(size_t)at * 0x9e3779b97f4a7c15ull) >> 40) & (world->capacity - 1);
}

/* The word's entry, or the free one where it would be. */
static emu_heard *find(const emu_world *world, const void *at) {
  u32 i = place_of(world, at);
  while (world->heard[i].at && world->heard[i].at != at) i = (i + 1) & (world->capacity - 1);
  return &world->heard[i];
}

static const emu_past *told_at(const emu_world *world, const void *at) {
  return world->num_heard ? find(world, at)->past : NULL;
}

static void grow(emu_world *world) {
  const u32 before = world->capacity;
  emu_heard *old = world->heard;
  world->capacity = before ? 2 * before : 64;
  world->heard = kiln__world_take(world, world->capacity * sizeof *world->heard);
  for (u32 i = 0; i < before; i++)
    if (old[i].at) *find(world, old[i].at) = old[i];
}

static void set(emu_world *world, const void *at, const emu_past *past) {
  if (!past && !told_at(world, at)) return;
  if (2 * world->num_heard >= world->capacity) grow(world);
  emu_heard *entry = find(world, at);
  if (!entry->at) world->num_heard++;
  *entry = (emu_heard){at, past};
}

/* ---- steps ---- */

static void hear(emu_thread *thread, const void *word, int order) {
  emu_world *world = thread->machine->world;
  const emu_past *past = told_at(world, word);
  if (order & EMU_ACQUIRE)
    kiln__clocks_hear(thread, past);
  else
    thread->heard = kiln__past_join(world, thread->heard, past);
}

static int is_followed(const emu_thread *thread) {
  return thread->machine->world && thread->machine->checking;
}

void kiln__past_read(emu_thread *thread, const void *word, int order) {
  if (is_followed(thread)) hear(thread, word, order);
}

void kiln__past_update(emu_thread *thread, const void *word, int order) {
  if (!is_followed(thread)) return;
  emu_world *world = thread->machine->world;
  const emu_past *before = told_at(world, word);
  set(world, word, kiln__past_join(world, before, told(thread, order)));
}

void kiln__past_store(emu_thread *thread, const void *word, int order) {
  if (is_followed(thread)) set(thread->machine->world, word, told(thread, order));
}

void kiln__past_forget(emu_world *world, const void *at, size_t bytes) {
  if (!world || !world->num_heard) return;
  for (size_t i = 0; i < bytes; i += 4) set(world, (const char *)at + i, NULL);
}

void kiln__past_fence(emu_thread *thread) {
  if (!is_followed(thread)) return;
  kiln__clocks_hear(thread, thread->heard);
  thread->heard = NULL;
  thread->told = NULL;
  kiln__clocks_fence(thread, &thread->fence);
}
