/* The queue of wgmma operations of a warpgroup. Used by wgmma.c and wgmma_order.c. */
#ifndef KILN_EMULATOR_WGMMA_H
#define KILN_EMULATOR_WGMMA_H

#include "runtime/emulator/machine.h"

#define EMU_OPERATIONS 128 /* in flight, and until their group has been waited for */
#define EMU_GROUPS     64
#define EMU_MEETINGS   32
#define EMU_PARTIES    8
#define EMU_MAX_N      256u
#define EMU_TILE_ROWS  64u
#define EMU_TILE_DEPTH 16u /* 16-bit numbers, or pairs of 8-bit ones */

/* What every operand and shape of one instruction is; the same in all threads of the warpgroup. */
typedef struct emu_shape {
  u32 n;
  int dtype, from_registers, accumulate;
  int major; /* bit 0: b is MN-major, bit 1: a is */
  u64 a, b;  /* descriptors; a is 0 where a comes from registers */
  u32 accumulator;
  int group;
} emu_shape;

typedef struct emu_operation {
  emu_shape shape;
  const char *site;
  u32 count;                           /* threads that have issued it */
  u32 meeting;                         /* what they know: index into meetings */
  const u32 *registers[EMU_WARPGROUP]; /* a */
  u32 registers_at_issue[EMU_WARPGROUP][4];
} emu_operation;

/* A register array that operations accumulate into. From the first operation on it until it is
 * touched behind the wait its values live here, and the thread's registers hold poison. */
typedef struct emu_accumulator {
  int used;
  ptrdiff_t offset; /* from the thread's top: the same in all threads */
  u32 n;
  float *values;          /* EMU_TILE_ROWS x EMU_MAX_N */
  u8 held[EMU_WARPGROUP]; /* emu_held, for each thread */
} emu_accumulator;

typedef enum emu_held { EMU_NOT_HELD, EMU_IN_FLIGHT, EMU_WAITED } emu_held;

/* What all threads that issued an operation know: snapshots, each with the number of threads that
 * hold it. A thread's own components count where it is the only one. See wgmma_order.c. */
typedef struct emu_meeting {
  u32 num_parties;
  struct emu_party {
    emu_snapshot *seen;
    u32 threads, first;
    int own[EMU_OWN];
  } parties[EMU_PARTIES];
  int *known; /* the minimum; valid once `ready` */
  int ready;
} emu_meeting;

struct emu_warpgroup {
  emu_operation operations[EMU_OPERATIONS];
  long issued, landed;
  long group_end[EMU_GROUPS];  /* operations up to the group's end */
  u32 group_count[EMU_GROUPS]; /* threads that have committed it */
  long groups, groups_landed;
  emu_accumulator accumulators[EMU_ACCUMULATORS];
  emu_meeting meetings[EMU_MEETINGS];
  u32 next_meeting;
  u32 waiting; /* threads blocked in a wait */
};

/* Adds the thread to those who have issued op; `previous` is its own operation before in the same
 * group, or NULL. */
void kiln__wgmma_meet(emu_thread *thread, emu_warpgroup *group, emu_operation *op,
                      const emu_operation *previous);
/* All threads have issued op: checks the operands in shared memory, and marks them as read. */
void kiln__wgmma_order(emu_thread *thread, emu_warpgroup *group, emu_operation *op);

#endif
