/* The launch of a kernel whose blocks talk through global memory: as many clusters as the device
 * would hold are resident together, a machine each, and one host thread runs them in turns.
 *
 * Invariant: what happens depends on the seed and the schedule alone. A cluster begins when one
 * before it has ended, in the order of their numbers, as on a GPU. A launch in which every resident
 * cluster waits for another ends as a deadlock.
 * Called by launch.c; scheduler.c gives way to it. */
#ifndef KILN_EMULATOR_WORLD_H
#define KILN_EMULATOR_WORLD_H

#include "runtime/emulator/machine.h"
#include "runtime/emulator/past.h"

#define EMU_WORLD_MEMO 16

typedef struct emu_heard {
  const void *at; /* a word of global memory; NULL = free */
  const emu_past *past;
} emu_heard;

struct emu_world {
  emu_machine *machines; /* the first one is always open */
  u32 num_machines;
  u32 components; /* of a cluster's clock */
  i64 next, end;  /* clusters that have not begun */
  u32 last;       /* the machine that ran last */
  u64 random;
  u64 changes; /* steps that may have changed a word that somebody waits for */
  u32 polls;   /* reads of words and flags since */
  struct emu_world_memo {
    const emu_past *a, *b, *joined;
  } memo[EMU_WORLD_MEMO];
  u32 memo_next;
  emu_heard *heard; /* open addressing; capacity is a power of two */
  u32 num_heard, capacity;
  emu_arena arena; /* what lives as long as the launch */
};

/* Runs clusters [first, end) on the machines, all of them open. Returns -1, or the number of the
 * machine that holds the message of a fault. */
int kiln__world_run(emu_world *world, i64 first, i64 end);
void kiln__world_free(emu_world *world);                /* its memory, not the machines */
void *kiln__world_take(emu_world *world, size_t bytes); /* zeroed; never NULL */

/* Blocks the thread until the word has the value. */
void kiln__world_wait(emu_thread *thread, const u32 *word, u32 value, const char *site);
int kiln__world_waits(const emu_machine *machine); /* whether a thread of the machine does */
/* Lets threads of the machine go on whose word has its value: how many. */
u32 kiln__world_wake(emu_machine *machine);

/* A word of global memory may have changed. */
static inline void kiln__world_changed(const emu_machine *machine) {
  if (!machine->world) return;
  machine->world->changes++;
  machine->world->polls = 0;
}

#endif
