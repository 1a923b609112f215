/* Vector clocks: see clocks.h. */
#include "runtime/emulator/machine.h"

#include <string.h>

#include "runtime/emulator/past.h"

/* ---- vectors of clocks, in steps of eight ---- */

typedef int lanes __attribute__((vector_size(32), aligned(4), may_alias));

#define STEP 8u

void kiln__clocks_maximum(int *clock, const int *other, u32 count) {
  for (u32 i = 0; i < count; i += STEP) {
    const lanes a = *(const lanes *)(clock + i), b = *(const lanes *)(other + i), mask = a > b;
    *(lanes *)(clock + i) = (a & mask) | (b & ~mask);
  }
}

void kiln__clocks_minimum(int *clock, const int *other, u32 count) {
  for (u32 i = 0; i < count; i += STEP) {
    const lanes a = *(const lanes *)(clock + i), b = *(const lanes *)(other + i), mask = a < b;
    *(lanes *)(clock + i) = (a & mask) | (b & ~mask);
  }
}

int kiln__clocks_cover(const int *a, const int *b, u32 count) {
  lanes below = {0};
  for (u32 i = 0; i < count; i += STEP) below |= *(const lanes *)(a + i) < *(const lanes *)(b + i);
  int any = 0;
  for (u32 i = 0; i < STEP; i++) any |= below[i];
  return !any;
}

/* ---- components ---- */

u32 kiln__clocks_of_thread(const emu_clocks *c, u32 rank, u32 thread) {
  return rank * c->per_block + EMU_OWN * thread;
}

u32 kiln__clocks_of_warp(const emu_clocks *c, u32 rank, u32 warp) {
  return rank * c->per_block + EMU_OWN * c->threads + warp;
}

u32 kiln__clocks_of_barrier(const emu_clocks *c, u32 rank, u32 barrier) {
  return rank * c->per_block + EMU_OWN * c->threads + c->warps + barrier;
}

int kiln__clocks_is_barrier(const emu_clocks *c, u32 component) {
  return component % c->per_block >= EMU_OWN * c->threads + c->warps;
}

void kiln__clocks_create(emu_machine *machine) {
  emu_clocks *c = &machine->clocks;
  memset(c, 0, sizeof *c);
  c->threads = machine->num_threads;
  c->warps = machine->num_warps;
  c->per_block = EMU_OWN * c->threads + c->warps + EMU_MBARRIERS;
  c->count = (c->per_block * machine->num_blocks + STEP - 1) / STEP * STEP;
}

/* ---- snapshots ---- */

static emu_snapshot *snapshot_new(emu_machine *machine) {
  emu_clocks *c = &machine->clocks;
  emu_snapshot *s = c->unused;
  if (s)
    c->unused = s->next;
  else
    s = kiln__machine_take(machine, sizeof *s + c->count * sizeof *s->clock);
  s->references = 1;
  s->past = NULL;
  return s;
}

static emu_snapshot *keep(emu_snapshot *s) {
  s->references++;
  return s;
}

void kiln__clocks_drop(emu_machine *machine, emu_snapshot *s) {
  if (!s || --s->references > 0) return;
  s->next = machine->clocks.unused;
  machine->clocks.unused = s;
}

void kiln__clocks_thread(emu_thread *thread) {
  emu_machine *machine = thread->machine;
  emu_knowledge *k = &thread->knows;
  k->first = kiln__clocks_of_thread(&machine->clocks, thread->block->rank, thread->index);
  k->wgmma = kiln__clocks_of_warp(&machine->clocks, thread->block->rank, thread->warp);
  k->own[EMU_GENERIC] = 1;
  if (thread->block->rank == 0 && thread->index == 0)
    k->seen = snapshot_new(machine);
  else
    k->seen = keep(machine->blocks[0].threads[0].knows.seen);
}

/* ---- release and acquire ---- */

static void raise(int *clock, int value) {
  if (*clock < value) *clock = value;
}

void kiln__clocks_release(emu_thread *thread, emu_sum *sum) {
  emu_machine *machine = thread->machine;
  emu_knowledge *k = &thread->knows;
  if (!machine->checking) return;
  kiln__proxy_update(thread);
  if (!sum->clock)
    sum->clock = kiln__machine_take(machine, machine->clocks.count * sizeof *sum->clock);
  if (sum->joined != k->seen) {
    kiln__clocks_maximum(sum->clock, k->seen->clock, machine->clocks.count);
    sum->past = kiln__past_join(machine->world, sum->past, k->seen->past);
    kiln__clocks_drop(machine, sum->joined);
    sum->joined = keep(k->seen);
  }
  for (u32 i = 0; i < EMU_OWN; i++) raise(sum->clock + k->first + i, k->own[i]);
  raise(sum->clock + k->wgmma, k->wgmma_done);
  k->own[EMU_GENERIC]++;
  k->version++;
}

emu_snapshot *kiln__clocks_publish(emu_machine *machine, const emu_sum *sum) {
  if (!machine->checking || !sum->clock) return NULL;
  emu_snapshot *s = snapshot_new(machine);
  memcpy(s->clock, sum->clock, machine->clocks.count * sizeof *s->clock);
  s->past = sum->past;
  return s;
}

void kiln__clocks_clear(emu_machine *machine, emu_sum *sum) {
  if (!sum->clock) return;
  memset(sum->clock, 0, machine->clocks.count * sizeof *sum->clock);
  kiln__clocks_drop(machine, sum->joined);
  sum->joined = NULL;
  sum->past = NULL;
}

/* A snapshot of both, with a reference for the caller: one of the two when it covers the other. */
static emu_snapshot *join(emu_machine *machine, emu_snapshot *a, emu_snapshot *b) {
  const u32 count = machine->clocks.count;
  const emu_past *past = kiln__past_join(machine->world, a->past, b->past);
  if (past == b->past && kiln__clocks_cover(b->clock, a->clock, count)) return keep(b);
  if (past == a->past && kiln__clocks_cover(a->clock, b->clock, count)) return keep(a);
  emu_snapshot *s = snapshot_new(machine);
  memcpy(s->clock, a->clock, count * sizeof *s->clock);
  kiln__clocks_maximum(s->clock, b->clock, count);
  s->past = past;
  return s;
}

/* The threads of a warp ask for the same join one after another. */
static emu_snapshot *join_remembered(emu_machine *machine, emu_snapshot *a, emu_snapshot *b) {
  emu_clocks *c = &machine->clocks;
  for (u32 i = 0; i < EMU_MEMO; i++)
    if (c->memo[i].a == a && c->memo[i].b == b) return keep(c->memo[i].joined);
  struct emu_memo *memo = &c->memo[c->memo_next++ % EMU_MEMO];
  emu_snapshot *joined = join(machine, a, b);
  kiln__clocks_drop(machine, memo->a);
  kiln__clocks_drop(machine, memo->b);
  kiln__clocks_drop(machine, memo->joined);
  *memo = (struct emu_memo){keep(a), keep(b), keep(joined)};
  return joined;
}

void kiln__clocks_acquire(emu_thread *thread, emu_snapshot *snapshot) {
  emu_knowledge *k = &thread->knows;
  if (!snapshot || k->seen == snapshot) return;
  emu_snapshot *joined = join_remembered(thread->machine, k->seen, snapshot);
  kiln__clocks_drop(thread->machine, k->seen);
  k->seen = joined;
  k->version++;
}

/* ---- through global memory ---- */

void kiln__clocks_hear(emu_thread *thread, const emu_past *past) {
  emu_machine *machine = thread->machine;
  if (!past || past == thread->knows.seen->past) return;
  const u32 count = machine->clocks.count;
  const int *of_cluster = kiln__past_find(past, machine->cluster);
  emu_snapshot *heard = snapshot_new(machine);
  if (of_cluster)
    memcpy(heard->clock, of_cluster, count * sizeof *heard->clock);
  else
    memset(heard->clock, 0, count * sizeof *heard->clock);
  heard->past = past;
  kiln__clocks_acquire(thread, heard);
  kiln__clocks_drop(machine, heard);
}

void kiln__clocks_fence(emu_thread *thread, emu_fence *fence) {
  emu_knowledge *k = &thread->knows;
  kiln__proxy_update(thread);
  kiln__clocks_drop(thread->machine, fence->seen);
  fence->seen = keep(k->seen);
  memcpy(fence->own, k->own, sizeof fence->own);
  fence->wgmma_done = k->wgmma_done;
  k->own[EMU_GENERIC]++;
  k->version++;
}

void kiln__clocks_at_fence(const emu_thread *thread, const emu_fence *fence, int *clock) {
  const emu_knowledge *k = &thread->knows;
  memcpy(clock, fence->seen->clock, thread->machine->clocks.count * sizeof *clock);
  for (u32 i = 0; i < EMU_OWN; i++) raise(clock + k->first + i, fence->own[i]);
  raise(clock + k->wgmma, fence->wgmma_done);
}
