/* Device memory of the emulator: see memory.h. */
#include "runtime/emulator/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE      4096u
#define ALIGNMENT 256u
#define POISON    0xff /* NaN in fp16, bf16 and fp32 */

static size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int kiln__memory_create(emu_memory *memory) {
  memset(memory, 0, sizeof *memory);
  return pthread_mutex_init(&memory->lock, NULL) == 0 ? 0 : -1;
}

void kiln__memory_destroy(emu_memory *memory) {
  for (size_t i = 0; i < memory->count; i++) munmap(memory->list[i].map, memory->list[i].map_bytes);
  free(memory->list);
  pthread_mutex_destroy(&memory->lock);
}

/* The allocation ends at an unmapped page and another lies in front of it. */
static int map_guarded(size_t bytes, emu_allocation *out) {
  const size_t inside = round_up(round_up(bytes ? bytes : 1, ALIGNMENT), PAGE);
  if (inside < bytes || inside + 2 * PAGE < inside) return -1;
  char *map = mmap(NULL, inside + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return -1;
  if (mprotect(map + PAGE, inside, PROT_READ | PROT_WRITE) != 0) {
    munmap(map, inside + 2 * PAGE);
    return -1;
  }
  out->map = map;
  out->map_bytes = inside + 2 * PAGE;
  out->start = map + PAGE + inside - round_up(bytes ? bytes : 1, ALIGNMENT);
  out->bytes = bytes;
  memset(out->start, POISON, bytes);
  return 0;
}

static int grow(emu_memory *memory) {
  if (memory->count < memory->capacity) return 0;
  const size_t capacity = memory->capacity ? 2 * memory->capacity : 16;
  emu_allocation *list = realloc(memory->list, capacity * sizeof *list);
  if (!list) return -1;
  memory->list = list;
  memory->capacity = capacity;
  return 0;
}

static void insert(emu_memory *memory, emu_allocation allocation) {
  size_t i = memory->count++;
  for (; i > 0 && memory->list[i - 1].start > allocation.start; i--)
    memory->list[i] = memory->list[i - 1];
  memory->list[i] = allocation;
}

void *kiln__memory_take(emu_memory *memory, size_t bytes) {
  emu_allocation allocation;
  if (map_guarded(bytes, &allocation) != 0) return NULL;
  pthread_mutex_lock(&memory->lock);
  const int failed = grow(memory);
  if (!failed) insert(memory, allocation);
  pthread_mutex_unlock(&memory->lock);
  if (!failed) return allocation.start;
  munmap(allocation.map, allocation.map_bytes);
  return NULL;
}

int kiln__memory_give(emu_memory *memory, void *address) {
  int found = -1;
  pthread_mutex_lock(&memory->lock);
  for (size_t i = 0; i < memory->count && found != 0; i++) {
    if (memory->list[i].start != address) continue;
    munmap(memory->list[i].map, memory->list[i].map_bytes);
    memory->count--;
    memmove(memory->list + i, memory->list + i + 1, (memory->count - i) * sizeof *memory->list);
    found = 0;
  }
  pthread_mutex_unlock(&memory->lock);
  return found;
}

const emu_allocation *kiln__memory_find(const emu_allocation *list, size_t count,
                                        const void *address) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if ((uintptr_t)list[middle].start <= (uintptr_t)address)
      low = middle + 1;
    else
      high = middle;
  }
  return low ? &list[low - 1] : NULL;
}

int kiln__memory_holds(emu_memory *memory, const void *address, size_t bytes) {
  pthread_mutex_lock(&memory->lock);
  const emu_allocation *a = kiln__memory_find(memory->list, memory->count, address);
  const size_t offset = a ? (size_t)((const char *)address - a->start) : 0;
  const int holds = a && offset <= a->bytes && bytes <= a->bytes - offset;
  pthread_mutex_unlock(&memory->lock);
  return holds;
}

emu_allocation *kiln__memory_copy(emu_memory *memory, size_t *count) {
  pthread_mutex_lock(&memory->lock);
  *count = memory->count;
  emu_allocation *copy = malloc((memory->count + 1) * sizeof *copy);
  if (copy && memory->count) memcpy(copy, memory->list, memory->count * sizeof *copy);
  pthread_mutex_unlock(&memory->lock);
  return copy;
}
