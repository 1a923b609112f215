/* Which device a verb works with: --device and --emu-*.
 *
 * Invariant: a device that was named is the one that is opened, or the verb is refused; only where
 * none was named is one chosen.
 *
 * Called by every verb that needs a context. */
#ifndef KILN_CLI_DEVICE_H
#define KILN_CLI_DEVICE_H

#include "args.h"

/* What is opened where --device is not given. */
typedef enum kiln__device_choice {
  KILN__DEVICE_TO_RUN,  /* the first GPU, else the emulator */
  KILN__DEVICE_TO_ASK,  /* the first GPU where its arch is needed, else none: nothing is launched */
  KILN__DEVICE_TO_TRACE /* the emulator */
} kiln__device_choice;

/* "emu", "none", "cuda" or "cuda:N"; the number is kiln_context_create's. Refusals are printed. */
kiln_status kiln__device_parse(const char *text, int *device);

/* Refusals are printed. *device (may be NULL) is what was opened. */
kiln_status kiln__device_open(const kiln__args *args, kiln__device_choice choice, int *device,
                              kiln_context **ctx);

#endif
