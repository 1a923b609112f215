/* Memory that is given up all at once: see arena.h. */
#include "runtime/emulator/arena.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)256 << 10)
#define KEPT_BYTES  ((size_t)512 << 20) /* of a pool at most */

struct emu_chunk {
  struct emu_chunk *next;
  size_t used, size;
  _Alignas(16) char bytes[];
};

/* ---- chunks ---- */

/* The step of the smallest chunk that holds so many bytes; EMU_CHUNK_SIZES where none does. */
static unsigned step_of(size_t bytes) {
  unsigned step = 0;
  while (step < EMU_CHUNK_SIZES && CHUNK_BYTES << step < bytes) step++;
  return step;
}

static struct emu_chunk *pool_take(emu_chunk_pool *pool, unsigned step) {
  if (!pool || step == EMU_CHUNK_SIZES) return NULL;
  pthread_mutex_lock(&pool->lock);
  struct emu_chunk *chunk = pool->kept[step];
  if (chunk) {
    pool->kept[step] = chunk->next;
    pool->bytes -= chunk->size;
  }
  pthread_mutex_unlock(&pool->lock);
  return chunk;
}

static int pool_give(emu_chunk_pool *pool, struct emu_chunk *chunk) {
  const unsigned step = step_of(chunk->size);
  if (!pool || step == EMU_CHUNK_SIZES) return 0;
  pthread_mutex_lock(&pool->lock);
  const int kept = pool->bytes + chunk->size <= KEPT_BYTES;
  if (kept) {
    chunk->next = pool->kept[step];
    pool->kept[step] = chunk;
    pool->bytes += chunk->size;
  }
  pthread_mutex_unlock(&pool->lock);
  return kept;
}

/* A chunk that was cleared, one of an earlier launch, or a new one. */
static struct emu_chunk *chunk_new(emu_arena *arena, size_t bytes) {
  const unsigned step = step_of(bytes);
  const size_t size = step < EMU_CHUNK_SIZES ? CHUNK_BYTES << step : bytes;
  struct emu_chunk **at = &arena->spare;
  while (*at && (*at)->size != size) at = &(*at)->next;
  struct emu_chunk *chunk = *at;
  if (chunk) *at = chunk->next;
  if (!chunk) chunk = pool_take(arena->pool, step);
  if (!chunk) chunk = calloc(1, sizeof *chunk + size);
  if (!chunk) return NULL;
  chunk->size = size;
  chunk->next = arena->used;
  arena->used = chunk;
  return chunk;
}

/* ---- pools ---- */

void kiln__chunk_pool_create(emu_chunk_pool *pool) {
  memset(pool, 0, sizeof *pool);
  pthread_mutex_init(&pool->lock, NULL);
}

void kiln__chunk_pool_destroy(emu_chunk_pool *pool) {
  for (unsigned step = 0; step < EMU_CHUNK_SIZES; step++) {
    while (pool->kept[step]) {
      struct emu_chunk *chunk = pool->kept[step];
      pool->kept[step] = chunk->next;
      free(chunk);
    }
  }
  pthread_mutex_destroy(&pool->lock);
}

/* ---- arenas ---- */

void *kiln__arena_take(emu_arena *arena, size_t bytes) {
  bytes = (bytes + 15) / 16 * 16;
  struct emu_chunk *chunk = arena->used;
  if (!chunk || chunk->size - chunk->used < bytes) chunk = chunk_new(arena, bytes);
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

void kiln__arena_free(emu_arena *arena) {
  kiln__arena_clear(arena);
  while (arena->spare) {
    struct emu_chunk *chunk = arena->spare;
    arena->spare = chunk->next;
    if (!pool_give(arena->pool, chunk)) free(chunk);
  }
}
