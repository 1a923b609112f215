/* Memory that is given up all at once: of a cluster, of a launch, of a shadow.
 *
 * Invariant: what is taken is zeroed and aligned to 16 bytes, and stays where it is until the arena
 * is cleared or freed; a cleared arena serves again from the chunks it has. Used by machine.c,
 * world.c and global_shadow.c. */
#ifndef KILN_EMULATOR_ARENA_H
#define KILN_EMULATOR_ARENA_H

#include <stddef.h>

typedef struct emu_arena {
  struct emu_chunk *used, *spare;
} emu_arena;

void *kiln__arena_take(emu_arena *arena, size_t bytes); /* NULL without memory */
void kiln__arena_clear(emu_arena *arena);
void kiln__arena_free(emu_arena *arena);

#endif
