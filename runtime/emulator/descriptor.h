/* Shared-memory matrix descriptors of wgmma, decoded as the hardware does. Used by wgmma.c. */
#ifndef KILN_EMULATOR_DESCRIPTOR_H
#define KILN_EMULATOR_DESCRIPTOR_H

#include "runtime/emulator/api.h"

/* A fault unless the fields are ones that the emulator knows. */
void kiln__descriptor_check(u64 descriptor, const char *site);

/* The shared address of 16 bytes of an operand: K-major, columns k .. k + 7 of row mn; MN-major,
 * rows mn .. mn + 7 of column k. */
u32 kiln__descriptor_chunk(u64 descriptor, u32 mn, u32 k, int mn_major);

#endif
