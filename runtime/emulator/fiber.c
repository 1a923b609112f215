/* Stacks and the stack switch: see fiber.h. A switch saves the six registers that the x86-64
 * calling convention gives to the callee; everything else is dead across a call. */
#include "runtime/emulator/fiber.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u

/* Stacks that a pool keeps: two mappings each, of which a process has 65,530. */
#define KEPT_STACKS 12288u

/* Stack tops lie on different cache sets: threads of a block touch the same offsets at once. */
#define COLOURS      16u
#define COLOUR_BYTES 320u

/* What a fiber finds where nothing was written: a signalling NaN in fp32 and bf16, a NaN in fp16,
 * and an index far outside anything. Frames of kernels are smaller than the part that is filled. */
#define UNWRITTEN    0x7fa07fa07fa07fa0ull
#define FILLED_BYTES (12u << 10)

int kiln__fiber_stacks_create(emu_stacks *stacks, size_t count) {
  char *base = mmap(NULL, count * EMU_STACK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  stacks->base = NULL;
  stacks->count = 0;
  if (base == MAP_FAILED) return -1;
  stacks->base = base;
  stacks->count = count;
  for (size_t i = 0; i < count; i++) {
    if (mprotect(base + i * EMU_STACK_BYTES, PAGE, PROT_NONE) != 0) {
      kiln__fiber_stacks_destroy(stacks);
      return -1;
    }
  }
  return 0;
}

void kiln__fiber_stacks_destroy(emu_stacks *stacks) {
  if (stacks->base) munmap(stacks->base, stacks->count * EMU_STACK_BYTES);
  stacks->base = NULL;
  stacks->count = 0;
}

void kiln__stack_pool_create(emu_stack_pool *pool) {
  memset(pool, 0, sizeof *pool);
  pthread_mutex_init(&pool->lock, NULL);
}

static emu_stacks remove_kept(emu_stack_pool *pool, size_t i) {
  const emu_stacks removed = pool->kept[i];
  pool->num_kept--;
  pool->num_stacks -= removed.count;
  memmove(pool->kept + i, pool->kept + i + 1, (pool->num_kept - i) * sizeof *pool->kept);
  return removed;
}

void kiln__stack_pool_destroy(emu_stack_pool *pool) {
  while (pool->num_kept > 0) {
    emu_stacks stacks = remove_kept(pool, pool->num_kept - 1);
    kiln__fiber_stacks_destroy(&stacks);
  }
  pthread_mutex_destroy(&pool->lock);
}

/* The smallest set that will do; num_kept = none. */
static size_t find_kept(const emu_stack_pool *pool, size_t count) {
  size_t best = pool->num_kept;
  for (size_t i = 0; i < pool->num_kept; i++)
    if (pool->kept[i].count >= count &&
        (best == pool->num_kept || pool->kept[i].count < pool->kept[best].count))
      best = i;
  return best;
}

int kiln__stack_pool_take(emu_stack_pool *pool, size_t count, emu_stacks *stacks) {
  pthread_mutex_lock(&pool->lock);
  const size_t best = find_kept(pool, count);
  const int found = best < pool->num_kept;
  if (found) *stacks = remove_kept(pool, best);
  pthread_mutex_unlock(&pool->lock);
  return found ? 0 : kiln__fiber_stacks_create(stacks, count);
}

void kiln__stack_pool_give(emu_stack_pool *pool, emu_stacks *stacks) {
  if (!stacks->base) return;
  pthread_mutex_lock(&pool->lock);
  while (pool->num_kept == EMU_KEPT_SETS ||
         (pool->num_kept && pool->num_stacks + stacks->count > KEPT_STACKS)) {
    emu_stacks oldest = remove_kept(pool, 0);
    kiln__fiber_stacks_destroy(&oldest);
  }
  pool->kept[pool->num_kept++] = *stacks;
  pool->num_stacks += stacks->count;
  pthread_mutex_unlock(&pool->lock);
  stacks->base = NULL;
  stacks->count = 0;
}

char *kiln__fiber_stack(const emu_stacks *stacks, size_t index) {
  return stacks->base + index * EMU_STACK_BYTES;
}

/* AddressSanitizer remembers the frames of a fiber that was given up; a new one begins clean. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

#if defined(__x86_64__)

int kiln__fiber_supported(void) { return 1; }

/* Laid out as kiln__fiber_switch leaves a stack: six registers, then the address to return to, then
 * a zero as the caller's return address, on which debuggers end a backtrace. Locals and registers
 * that the body does not set are NaN, not what an earlier thread has left. */
void *kiln__fiber_prepare(const emu_stacks *stacks, size_t index, void (*body)(void)) {
  char *top = kiln__fiber_stack(stacks, index) + EMU_STACK_BYTES;
  ASAN_UNPOISON_MEMORY_REGION(top - EMU_STACK_BYTES + PAGE, EMU_STACK_BYTES - PAGE);
  uintptr_t *sp = (uintptr_t *)(top - 64 - index % COLOURS * COLOUR_BYTES);
  for (uintptr_t *at = sp - FILLED_BYTES / sizeof *at; at < sp; at++) *at = UNWRITTEN;
  *--sp = 0;
  *--sp = (uintptr_t)body;
  return sp - 6; /* the registers are filled */
}

__attribute__((naked)) void kiln__fiber_switch(void **from __attribute__((unused)),
                                               void *to __attribute__((unused))) {
  __asm__("push %rbx\n"
          "push %rbp\n"
          "push %r12\n"
          "push %r13\n"
          "push %r14\n"
          "push %r15\n"
          "mov %rsp, (%rdi)\n"
          "mov %rsi, %rsp\n"
          "pop %r15\n"
          "pop %r14\n"
          "pop %r13\n"
          "pop %r12\n"
          "pop %rbp\n"
          "pop %rbx\n"
          "pop %rcx\n" /* not ret: the processor would expect this fiber's own caller */
          "jmp *%rcx\n");
}

__attribute__((naked)) void kiln__fiber_resume(void *to __attribute__((unused))) {
  __asm__("mov %rdi, %rsp\n"
          "pop %r15\n"
          "pop %r14\n"
          "pop %r13\n"
          "pop %r12\n"
          "pop %rbp\n"
          "pop %rbx\n"
          "ret\n");
}

#else

int kiln__fiber_supported(void) { return 0; }

void *kiln__fiber_prepare(const emu_stacks *stacks, size_t index, void (*body)(void)) {
  (void)stacks, (void)index, (void)body;
  return NULL;
}

void kiln__fiber_switch(void **from, void *to) { (void)from, (void)to; }

void kiln__fiber_resume(void *to) {
  (void)to;
  __builtin_trap();
}

#endif
