/* The bounds of global memory, for every instruction that reads or writes it. */
#ifndef KILN_EMULATOR_GLOBAL_H
#define KILN_EMULATOR_GLOBAL_H

#include "runtime/emulator/machine.h"

/* The allocation in which [p, p + bytes) lies; a fault where there is none, or p is no multiple of
 * align. */
const emu_allocation *kiln__global_check(const emu_machine *machine, const void *p, size_t bytes,
                                         size_t align, const char *site);
/* "offset 64 of an allocation of 256 bytes" */
const char *kiln__global_place(const emu_machine *machine, const void *p, char *out, size_t size);
/* The mark of a generic access that the thread makes now. */
emu_mark kiln__global_mark(const emu_thread *thread);

#endif
