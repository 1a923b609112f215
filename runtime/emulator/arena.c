/* Memory that is given up all at once: see arena.h. */
#include "runtime/emulator/arena.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)256 << 10)

struct emu_chunk {
  struct emu_chunk *next;
  size_t used, size;
  _Alignas(16) char bytes[];
};

/* A chunk that was cleared, or a new one. */
static struct emu_chunk *chunk_new(emu_arena *arena, size_t size) {
  struct emu_chunk **at = &arena->spare;
  while (*at && (*at)->size < size) at = &(*at)->next;
  struct emu_chunk *chunk = *at;
  if (chunk)
    *at = chunk->next;
  else
    chunk = calloc(1, sizeof *chunk + size);
  if (!chunk) return NULL;
  if (!chunk->size) chunk->size = size;
  chunk->next = arena->used;
  arena->used = chunk;
  return chunk;
}

void *kiln__arena_take(emu_arena *arena, size_t bytes) {
  bytes = (bytes + 15) / 16 * 16;
  struct emu_chunk *chunk = arena->used;
  if (!chunk || chunk->size - chunk->used < bytes)
    chunk = chunk_new(arena, bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES);
  if (!chunk) return NULL;
  void *taken = chunk->bytes + chunk->used;
  chunk->used += bytes;
  return taken;
}

void kiln__arena_clear(emu_arena *arena) {
  while (arena->used) {
    struct emu_chunk *chunk = arena->used;
    arena->used = chunk->next;
    memset(chunk->bytes, 0, chunk->used);
    chunk->used = 0;
    chunk->next = arena->spare;
    arena->spare = chunk;
  }
}

static void free_chunks(struct emu_chunk *chunk) {
  while (chunk) {
    struct emu_chunk *next = chunk->next;
    free(chunk);
    chunk = next;
  }
}

void kiln__arena_free(emu_arena *arena) {
  free_chunks(arena->used);
  free_chunks(arena->spare);
  *arena = (emu_arena){NULL, NULL};
}
