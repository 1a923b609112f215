/* Shadow of shared memory: for every 16 bytes who wrote them last and who has read them since, so
 * that each access can be checked against the vector clocks.
 *
 * Invariant: an access is a fault unless every earlier conflicting access is ordered before it by
 * something that the PTX ISA accepts, whatever the values are and whatever the schedule was. A
 * granule is kept whole until it meets a 4-byte access; then its four words are kept apart.
 * Called by the instructions that touch shared memory. */
#ifndef KILN_EMULATOR_SHADOW_H
#define KILN_EMULATOR_SHADOW_H

#include "runtime/emulator/clocks.h"

#define EMU_GRANULE 16u
#define EMU_READERS 8 /* generic readers remembered for each granule or word */

typedef struct emu_block emu_block;

typedef enum emu_writer {
  EMU_BY_NOBODY,
  EMU_BY_THREAD, /* generic proxy: component EMU_GENERIC of a thread */
  EMU_BY_ATOMIC, /* the same, of several threads in no order: `reads` holds all but the last */
  EMU_BY_COPY,   /* cp.async: component EMU_COPIES of a thread, value = group */
  EMU_BY_TMA     /* async proxy: component of an mbarrier, value = phase + 1 */
} emu_writer;

typedef struct emu_mark {
  u32 component;
  int value;
} emu_mark;

typedef struct emu_word {
  const char *write_site, *read_site;
  emu_mark write;
  emu_mark reads[EMU_READERS];
  u8 writer; /* emu_writer */
  u8 num_reads, next_read;
} emu_word;

typedef struct emu_granule {
  emu_word whole;
  emu_word *words; /* four, NULL until the granule is first split */
  const char *wgmma_site, *store_site;
  emu_mark store; /* the bulk copy that reads it: component EMU_BULK of a thread, or the mbarrier
                   * that tells when it is done; value 0 = none */
  u8 split;       /* the words count, not the whole */
} emu_granule;

typedef struct emu_shadow {
  emu_granule *granules;
  int *wgmma_reads; /* for each granule and warp: the last wgmma group that reads it */
} emu_shadow;

void kiln__shadow_create(emu_block *block);

/* Generic proxy, 4 or 16 bytes. */
void kiln__shadow_read(emu_thread *thread, u32 at, u32 bytes, const char *site);
void kiln__shadow_write(emu_thread *thread, u32 at, u32 bytes, const char *site);
/* Flags, 4 bytes. */
void kiln__shadow_flag_read(emu_thread *thread, u32 at, const char *site);
void kiln__shadow_flag_write(emu_thread *thread, u32 at, const char *site);
/* Atomics, 4 bytes: they are ordered after what is none, and need no order among themselves. */
void kiln__shadow_atomic(emu_thread *thread, u32 at, const char *site);
/* cp.async of 16 bytes, part of the thread's group `group`. */
void kiln__shadow_copy(emu_thread *thread, u32 at, int group, const char *site);

/* Async proxy, whole granules. */
void kiln__shadow_tma_load(emu_thread *thread, emu_block *block, u32 at, u32 bytes, emu_mark mark,
                           const char *site);
/* A bulk copy reads; `mark` says when it is done. */
void kiln__shadow_tma_store(emu_thread *thread, u32 at, u32 bytes, emu_mark mark, const char *site);

/* A wgmma's read of one granule; `known` is what all threads of the warpgroup know. */
typedef struct emu_wgmma_read {
  emu_block *block;
  const int *known;
  u32 first_warp, num_warps; /* who must have waited for it before it may be overwritten */
  int group;
  const char *site;
} emu_wgmma_read;

void kiln__shadow_wgmma(const emu_wgmma_read *read, u32 at);

#endif
