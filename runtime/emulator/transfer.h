/* Bulk copies in flight: boxes of tensors (tma.c) and bytes in a row (bulk.c), into shared memory
 * and out of it.
 *
 * Invariant: a load's destination holds poison from its issue until its rows land; its bytes count
 * down on the mbarrier as they land. A store reads shared memory in one step and changes global
 * memory in a later one. */
#ifndef KILN_EMULATOR_TRANSFER_H
#define KILN_EMULATOR_TRANSFER_H

#include "runtime/emulator/machine.h"

#define EMU_CHUNK   16u   /* bytes that a swizzle moves together, and a row of a flat copy */
#define EMU_MAX_ROW 1024u /* bytes: a box's 256 numbers of 4 */

/* Issues a load into `block`, told by its mbarrier at `bar`; block, mbarrier and order are filled
 * in here. */
void kiln__transfer_load(emu_thread *thread, emu_block *block, const emu_transfer *model, u32 bar);
/* Issues a store of the thread's next bulk group. */
void kiln__transfer_store(emu_thread *thread, const emu_transfer *model);

/* What a row of a box is in its tensor: the bytes [first, end) of the row lie there, from the
 * address on that is returned; NULL where none do. A store's `end` is a multiple of 16 bytes, past
 * the end of a tensor whose rows are none. Implemented by tma.c. */
char *kiln__box_row(const emu_transfer *t, u32 row, u32 *first, u32 *end);

/* to[i] += from[i], as a reduction of the memory system does it. Implemented by sum.c. */
void kiln__sum(char *to, const char *from, u32 bytes, int dtype);

#endif
