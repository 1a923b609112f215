/* The bounds of global memory, for every instruction that reads or writes it. */
#ifndef KILN_EMULATOR_GLOBAL_H
#define KILN_EMULATOR_GLOBAL_H

#include "runtime/emulator/machine.h"

/* A fault unless [p, p + bytes) lies inside one allocation and p is a multiple of align. */
void kiln__global_check(const emu_machine *machine, const void *p, size_t bytes, size_t align,
                        const char *site);

#endif
