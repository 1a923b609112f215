/* Instructions that a whole warp executes together: the lanes meet, the last one acts for all.
 * Used by warp.c, shared.c and mma.c. */
#ifndef KILN_EMULATOR_WARP_H
#define KILN_EMULATOR_WARP_H

#include "runtime/emulator/machine.h"

/* The lane's offer, to be filled in place: meetings are what most of a run is made of. */
static inline emu_offer *kiln__warp_offer(const emu_thread *thread) {
  return &thread->block->warps[thread->warp].offers[thread->lane];
}

/* The lane has filled its offer; once all 32 have, action(warp) runs once and every lane goes on.
 * Lanes that meet with different instructions are a fault. Returns the offer. */
const emu_offer *kiln__warp_meet(emu_thread *thread, emu_action *action, const char *site);

#endif
