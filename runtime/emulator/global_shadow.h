/* Shadow of global memory during a launch: for every 16 bytes that the kernel touches, who has
 * written and read which of them, so that each access can be checked against the vector clocks. A
 * launch begins with an empty one: the end of a kernel orders everything.
 *
 * Invariant: two accesses of the same bytes, at least one of them a write and not both atomic, are
 * a fault unless something that the PTX ISA accepts orders them. Clusters of one launch are ordered
 * only by what they tell each other (past.h). Where blocks do not talk, each host thread keeps a
 * shadow of its own, and conflicts between clusters are found when all have ended.
 * Called by global.c, atomic.c, copy.c, tma.c; made and settled by launch.c. */
#ifndef KILN_EMULATOR_GLOBAL_SHADOW_H
#define KILN_EMULATOR_GLOBAL_SHADOW_H

#include "runtime/emulator/arena.h"
#include "runtime/emulator/memory.h"
#include "runtime/emulator/shadow.h"

enum {
  EMU_READS = 0,
  EMU_WRITES = 1,
  EMU_ATOMIC = 2,      /* strong in the words of the memory model: two of them do not race */
  EMU_ASYNC_PROXY = 4, /* by TMA */
};

typedef struct emu_access {
  const char *site;
  u32 cluster;
  emu_mark mark; /* when it is over: of a component of its cluster's clock */
  u16 bytes;     /* a bit for each of the 16 */
  u8 kind;
} emu_access;

#define EMU_CELL_INLINE 3
#define EMU_CELL_MOST   32 /* where there are more unordered accesses, one is forgotten */

/* 16 bytes of global memory. */
typedef struct emu_cell {
  emu_access *list; /* the accesses, NULL while they fit in `first` */
  emu_access first[EMU_CELL_INLINE];
  u8 count, capacity, next;
} emu_cell;

typedef struct emu_page_place {
  struct emu_page *page; /* NULL: nothing in it was touched */
} emu_page_place;

typedef struct emu_pages {
  emu_page_place *at; /* NULL: nothing in the allocation was touched */
} emu_pages;

typedef struct emu_global_shadow {
  const emu_allocation *memory; /* of the launch */
  size_t num_allocations;
  emu_pages *pages; /* of each allocation */
  emu_arena arena;
} emu_global_shadow;

int kiln__global_shadow_create(emu_global_shadow *shadow, emu_chunk_pool *chunks,
                               const emu_allocation *memory,
                               size_t count); /* 0, or -1 without memory */
void kiln__global_shadow_free(emu_global_shadow *shadow);

/* Checks [p, p + bytes) of the allocation and remembers the access; it is over when its mark is
 * known. */
void kiln__global_shadow_access(emu_thread *thread, const emu_allocation *in, const void *p,
                                size_t bytes, int kind, emu_mark mark, const char *site);

/* All clusters have ended, and blocks do not talk: 0, or -1 with a sentence about two of them in
 * message (EMU_MESSAGE_BYTES). */
int kiln__global_shadow_settle(const emu_global_shadow *shadows, u32 count,
                               const emu_machine *geometry, char *message);

#endif
