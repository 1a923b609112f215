/* Fibers: the stacks on which emulated CUDA threads run, and the switch between them.
 *
 * A fiber is entered by kiln__fiber_switch and leaves the same way; one that is never switched to
 * again is simply forgotten. Each stack has an unmapped page at its end. x86-64 only.
 * Used by machine.c, scheduler.c, crash.c and device.c. */
#ifndef KILN_EMULATOR_FIBER_H
#define KILN_EMULATOR_FIBER_H

#include <pthread.h>
#include <stddef.h>

#define EMU_STACK_BYTES (128u << 10)

typedef struct emu_stacks {
  char *base; /* count stacks of EMU_STACK_BYTES, one behind the other */
  size_t count;
} emu_stacks;

#define EMU_KEPT_SETS 128

/* Stacks that launches have left behind: mapping them anew costs more than a short launch. */
typedef struct emu_stack_pool {
  pthread_mutex_t lock;
  emu_stacks kept[EMU_KEPT_SETS]; /* the oldest first */
  size_t num_kept, num_stacks;
} emu_stack_pool;

int kiln__fiber_supported(void); /* 0 on a machine other than x86-64 */
int kiln__fiber_stacks_create(emu_stacks *stacks, size_t count); /* 0, or -1 without memory */
void kiln__fiber_stacks_destroy(emu_stacks *stacks);

void kiln__stack_pool_create(emu_stack_pool *pool);
void kiln__stack_pool_destroy(emu_stack_pool *pool);
/* `count` stacks at least, kept ones or new ones; 0, or -1 without memory. */
int kiln__stack_pool_take(emu_stack_pool *pool, size_t count, emu_stacks *stacks);
void kiln__stack_pool_give(emu_stack_pool *pool, emu_stacks *stacks); /* empties *stacks */

char *kiln__fiber_stack(const emu_stacks *stacks, size_t index); /* lowest address */

/* The stack pointer of a fiber that will run body() when it is first switched to. body never
 * returns. */
void *kiln__fiber_prepare(const emu_stacks *stacks, size_t index, void (*body)(void));
void kiln__fiber_switch(void **from, void *to); /* *from: where the current one can be resumed */
void kiln__fiber_resume(void *to) __attribute__((noreturn)); /* the current one is given up */

#endif
