/* A launch: one grid of a kernel, run to its end by one machine a host thread.
 * Called by device.c; machines read it. */
#ifndef KILN_EMULATOR_LAUNCH_H
#define KILN_EMULATOR_LAUNCH_H

#include "runtime/device.h"
#include "runtime/emulator/machine.h"

typedef struct emu_options {
  emu_schedule schedule;
  u64 seed;
  u64 starve;   /* bit mask of warps that run only when nothing else can */
  int checking; /* happens-before, and rules that the hardware may forgive */
  int host_threads;
} emu_options;

struct emu_launch {
  const kiln_emu_entry *entry;
  void **params;
  i64 num_blocks;
  u32 threads, cluster, shared_bytes;
  int talks;    /* blocks meet in global memory: one host thread, several clusters in turns */
  i64 resident; /* clusters that the device holds together */
  emu_options options;
  const kiln__trace *trace; /* NULL, or: the cluster of this block alone, under EMU_TIMED */
  emu_stack_pool *stacks;
  emu_chunk_pool *chunks;
  const emu_allocation *memory; /* device memory while the launch runs */
  size_t num_allocations;
};

/* 0, or -1 with a sentence in message (EMU_MESSAGE_BYTES). */
int kiln__launch_grid(const emu_launch *launch, char *message);

#endif
