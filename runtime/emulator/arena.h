/* Memory that is given up all at once: of a cluster, of a launch, of a shadow.
 *
 * Invariant: what is taken is zeroed and aligned to 16 bytes, and stays where it is until the arena
 * is cleared or freed; a cleared arena serves again from the chunks it has, and a freed one leaves
 * them to the next launch: memory that the system maps anew costs several times its clearing. Used
 * by machine.c, world.c, global_shadow.c and, for the pool, device.c. */
#ifndef KILN_EMULATOR_ARENA_H
#define KILN_EMULATOR_ARENA_H

#include <pthread.h>
#include <stddef.h>

#define EMU_CHUNK_SIZES 12 /* 256 KB times a power of two */

/* Chunks that launches have left behind, zeroed. */
typedef struct emu_chunk_pool {
  pthread_mutex_t lock;
  struct emu_chunk *kept[EMU_CHUNK_SIZES];
  size_t bytes;
} emu_chunk_pool;

void kiln__chunk_pool_create(emu_chunk_pool *pool);
void kiln__chunk_pool_destroy(emu_chunk_pool *pool);

typedef struct emu_arena {
  emu_chunk_pool *pool; /* where chunks come from and go to; NULL = the heap */
  struct emu_chunk *used, *spare;
} emu_arena;

void *kiln__arena_take(emu_arena *arena, size_t bytes); /* NULL without memory */
void kiln__arena_clear(emu_arena *arena);
void kiln__arena_free(emu_arena *arena);

#endif
