/* Instructions that a whole warp executes together: the lanes meet, the last one acts for all.
 * Used by warp.c, shared.c and mma.c. */
#ifndef KILN_EMULATOR_WARP_H
#define KILN_EMULATOR_WARP_H

#include "runtime/emulator/machine.h"

/* Leaves the lane's offer; once all 32 are there, action(warp) runs once and every lane goes on.
 * Lanes that meet with different instructions are a fault. */
emu_offer *kiln__warp_meet(emu_thread *thread, emu_offer offer, emu_action *action,
                           const char *site);

#endif
