/* The emulator's device memory: allocations between unmapped pages, filled with NaN.
 *
 * Invariant: an access of emulated kernel text lies wholly inside one allocation, to the byte. The
 * unmapped pages catch what goes past the wrappers. Used by device.c, launch.c and global.c. */
#ifndef KILN_EMULATOR_MEMORY_H
#define KILN_EMULATOR_MEMORY_H

#include <pthread.h>
#include <stddef.h>

typedef struct emu_allocation {
  char *start; /* 256-byte aligned */
  size_t bytes;
  char *map;
  size_t map_bytes;
} emu_allocation;

typedef struct emu_memory {
  pthread_mutex_t lock;
  emu_allocation *list; /* by address */
  size_t count, capacity;
} emu_memory;

int kiln__memory_create(emu_memory *memory);
void kiln__memory_destroy(emu_memory *memory);             /* and every allocation */
void *kiln__memory_take(emu_memory *memory, size_t bytes); /* NULL without memory */
int kiln__memory_give(emu_memory *memory, void *address);  /* -1: not an allocation */
int kiln__memory_holds(emu_memory *memory, const void *address, size_t bytes);
/* A copy of the list, for the duration of a launch. The caller frees it. NULL without memory. */
emu_allocation *kiln__memory_copy(emu_memory *memory, size_t *count);
/* The last allocation that starts at or before an address; NULL when there is none. */
const emu_allocation *kiln__memory_find(const emu_allocation *list, size_t count,
                                        const void *address);

#endif
