/* Vector clocks: what each emulated thread knows to have happened.
 *
 * Components, for every block of a cluster: seven for each thread (its generic accesses; those of
 * them that the async proxy may follow; its finished cp.async groups; those that the async proxy
 * may follow; its bulk groups that have read shared memory; those that have written global memory;
 * its generic accesses that the async proxy may follow in global memory), one for each warp
 * (finished wgmma groups), one for each mbarrier (its phases). What is known of other clusters is a
 * past (past.h).
 *
 * Invariant: what a thread knows is an immutable, shared snapshot plus its own components, which
 * are private until it releases. Threads that wait for the same thing share one snapshot, so that a
 * barrier of hundreds of threads costs a handful of joins.
 * Used by everything that synchronises and by shadow.c. */
#ifndef KILN_EMULATOR_CLOCKS_H
#define KILN_EMULATOR_CLOCKS_H

#include "runtime/emulator/api.h"

typedef struct emu_machine emu_machine;
typedef struct emu_thread emu_thread;

typedef struct emu_past emu_past; /* past.h */

typedef struct emu_snapshot {
  int references;
  const emu_past *past;
  struct emu_snapshot *next; /* in the machine's free list */
  int clock[];
} emu_snapshot;

/* A thread's own components, in the order in which they lie in a snapshot. The one behind generic
 * accesses and the one behind copies say how many of them the async proxy may follow in shared
 * memory. */
enum {
  EMU_GENERIC,
  EMU_FENCED,
  EMU_COPIES,
  EMU_COPIES_FENCED,
  EMU_BULK,
  EMU_STORED,
  EMU_FENCED_GLOBAL,
  EMU_OWN
};

typedef struct emu_knowledge {
  emu_snapshot *seen;
  u32 first; /* index of the first own component */
  int own[EMU_OWN];
  u32 wgmma; /* index of the warp's component, and this thread's view of it */
  int wgmma_done;
  u64 version; /* changes with everything above */
} emu_knowledge;

/* What a thread knew at a fence. */
typedef struct emu_fence {
  emu_snapshot *seen; /* NULL = there was none */
  int own[EMU_OWN];
  int wgmma_done;
} emu_fence;

/* What has been released into a barrier so far. */
typedef struct emu_sum {
  int *clock;           /* NULL while nothing was released */
  emu_snapshot *joined; /* the last snapshot that went in */
  const emu_past *past;
} emu_sum;

#define EMU_MEMO 8

/* Snapshots of one cluster and the last joins. */
typedef struct emu_clocks {
  u32 count;     /* components, a multiple of 8 */
  u32 per_block; /* components of one block */
  u32 threads, warps;
  emu_snapshot *unused;
  struct emu_memo {
    emu_snapshot *a, *b, *joined;
  } memo[EMU_MEMO];
  u32 memo_next;
} emu_clocks;

void kiln__clocks_create(emu_machine *machine); /* for the machine's cluster */
void kiln__clocks_thread(emu_thread *thread);   /* a thread that knows nothing yet */

u32 kiln__clocks_of_thread(const emu_clocks *clocks, u32 rank, u32 thread);
u32 kiln__clocks_of_warp(const emu_clocks *clocks, u32 rank, u32 warp);
u32 kiln__clocks_of_barrier(const emu_clocks *clocks, u32 rank, u32 barrier);
int kiln__clocks_is_barrier(const emu_clocks *clocks, u32 component);

/* Adds what the thread knows to the sum; its later accesses are not covered. */
void kiln__clocks_release(emu_thread *thread, emu_sum *sum);
void kiln__clocks_acquire(emu_thread *thread, emu_snapshot *snapshot);
/* Acquires what another thread has told through global memory. */
void kiln__clocks_hear(emu_thread *thread, const emu_past *past);
/* Fixes what the thread knows now in `fence`; its later accesses are not covered. */
void kiln__clocks_fence(emu_thread *thread, emu_fence *fence);
/* All components of the thread's cluster as of the fence, into clock. */
void kiln__clocks_at_fence(const emu_thread *thread, const emu_fence *fence, int *clock);
/* A snapshot of the sum, owned by the caller. */
emu_snapshot *kiln__clocks_publish(emu_machine *machine, const emu_sum *sum);
void kiln__clocks_drop(emu_machine *machine, emu_snapshot *snapshot); /* NULL is accepted */
void kiln__clocks_clear(emu_machine *machine, emu_sum *sum);
void kiln__clocks_minimum(int *clock, const int *other, u32 count);
void kiln__clocks_maximum(int *clock, const int *other, u32 count);
/* Whether every component of a is at least that of b. */
int kiln__clocks_cover(const int *a, const int *b, u32 count);

/* Whether the thread has seen component `index` reach `value`. */
static inline int kiln__clocks_knows(const emu_knowledge *k, u32 index, int value) {
  if (k->seen->clock[index] >= value) return 1;
  if (index - k->first < EMU_OWN) return k->own[index - k->first] >= value;
  return index == k->wgmma && k->wgmma_done >= value;
}

#endif
