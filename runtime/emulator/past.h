/* What a thread knows of other clusters, in kernels whose blocks talk through global memory: for
 * each cluster it has heard of, that cluster's clock. The words through which they talk are here
 * too: a word holds what its last release and the atomics behind it have told.
 *
 * Invariant: a past is immutable and lives as long as the launch, so that it outlives its cluster.
 * NULL is the past of one who has heard nothing. Called by clocks.c and atomic.c. */
#ifndef KILN_EMULATOR_PAST_H
#define KILN_EMULATOR_PAST_H

#include <stddef.h>

#include "runtime/emulator/clocks.h"

typedef struct emu_world emu_world; /* world.h */

struct emu_past {
  u32 count;
  struct emu_chapter {
    i64 cluster;
    const int *clock; /* as many components as any snapshot of the launch */
  } of[];             /* by cluster */
};

const emu_past *kiln__past_join(emu_world *world, const emu_past *a, const emu_past *b);
const int *kiln__past_find(const emu_past *past, i64 cluster); /* NULL: has not heard of it */

/* An atomic step of the thread on a word of global memory, after the value is known: what it hears
 * and what it tells. `reads`: the value goes to a register. */
typedef enum emu_order { EMU_RELAXED = 0, EMU_ACQUIRE = 1, EMU_RELEASE = 2 } emu_order;

void kiln__past_read(emu_thread *thread, const void *word, int order);
void kiln__past_update(emu_thread *thread, const void *word, int order); /* read, change, write */
void kiln__past_store(emu_thread *thread, const void *word, int order);
/* Plain stores or copies of `bytes`: whoever reads these words hears nothing. */
void kiln__past_forget(emu_world *world, const void *at, size_t bytes);
void kiln__past_fence(emu_thread *thread); /* fence.acq_rel.gpu */

#endif
