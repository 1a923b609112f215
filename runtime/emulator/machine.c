/* One cluster on a machine: its memory, blocks and threads. See machine.h. */
#include "runtime/emulator/machine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/emulator/launch.h"
#include "runtime/emulator/trace.h"

#define PAGE 4096u

_Thread_local emu_current kiln__emu_current;

void *kiln__machine_take(emu_machine *machine, size_t bytes) {
  void *taken = kiln__arena_take(&machine->arena, bytes);
  if (!taken) kiln__emu_fault("the emulator is out of host memory");
  return taken;
}

/* ---- blocks ---- */

/* Bytes of a block's window in whole pages; an unmapped page follows it. */
static size_t window_bytes(const emu_machine *machine) {
  return (EMU_SHARED_BASE + machine->shared_bytes + PAGE - 1) / PAGE * PAGE;
}

/* The windows of all blocks of a cluster; 0, or -1. */
static int map_windows(emu_machine *machine) {
  const size_t each = window_bytes(machine) + PAGE;
  char *map = mmap(NULL, each * machine->num_blocks, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return -1;
  machine->windows = map;
  for (u32 rank = 0; rank < machine->num_blocks; rank++)
    if (mprotect(map + (rank + 1) * each - PAGE, PAGE, PROT_NONE) != 0) return -1;
  return 0;
}

static void unmap_windows(emu_machine *machine) {
  if (machine->windows)
    munmap(machine->windows, (window_bytes(machine) + PAGE) * machine->num_blocks);
  machine->windows = NULL;
}

/* The window ends at its unmapped page; everything in it begins as NaN. */
static void create_window(emu_block *block) {
  const emu_machine *machine = block->machine;
  const size_t inside = window_bytes(machine);
  const size_t bytes = EMU_SHARED_BASE + machine->shared_bytes;
  block->shared = machine->windows + block->rank * (inside + PAGE) + inside - bytes;
  memset(block->shared, 0xff, bytes);
}

static void create_mbarriers(emu_block *block) {
  emu_machine *machine = block->machine;
  const size_t places = machine->shared_bytes / 8 + 1;
  block->mbarriers = kiln__machine_take(machine, EMU_MBARRIERS * sizeof *block->mbarriers);
  block->mbarrier_at = kiln__machine_take(machine, places * sizeof *block->mbarrier_at);
  memset(block->mbarrier_at, 0xff, places * sizeof *block->mbarrier_at);
}

/* Registers of a thread at entry: what the file holds for so many threads, in steps of 8. */
static int entry_registers(const emu_machine *machine) {
  const int each = EMU_REGISTER_FILE / (int)machine->num_threads / 8 * 8;
  return each > 255 ? 255 : each;
}

static void thread_main(void);

static void create_threads(emu_block *block) {
  emu_machine *machine = block->machine;
  for (u32 i = 0; i < machine->num_threads; i++) {
    emu_thread *thread = &block->threads[i];
    const size_t fiber = block->rank * machine->num_threads + i;
    thread->machine = machine;
    thread->block = block;
    thread->index = i;
    thread->warp = i / EMU_WARP;
    thread->lane = i % EMU_WARP;
    thread->site = "the kernel's entry";
    thread->registers = entry_registers(machine);
    thread->stack = kiln__fiber_stack(&machine->stacks, fiber);
    thread->sp = kiln__fiber_prepare(&machine->stacks, fiber, thread_main);
    thread->top = thread->sp;
    block->warps[thread->warp].runnable |= 1u << thread->lane;
    if (machine->checking) kiln__clocks_thread(thread);
  }
}

static void create_block(emu_machine *machine, u32 rank, i64 index) {
  emu_block *block = &machine->blocks[rank];
  block->machine = machine;
  block->rank = rank;
  block->index = index;
  block->alive = machine->num_threads;
  block->threads = kiln__machine_take(machine, machine->num_threads * sizeof *block->threads);
  block->warps = kiln__machine_take(machine, machine->num_warps * sizeof *block->warps);
  block->named = kiln__machine_take(machine, EMU_NAMED_BARRIERS * sizeof *block->named);
  for (u32 w = 0; w < machine->num_warps; w++) {
    block->warps[w].threads = block->threads + w * EMU_WARP;
    block->warps[w].priority = kiln__scheduler_random(machine);
  }
  create_window(block);
  create_mbarriers(block);
  create_threads(block);
  kiln__shadow_create(block);
  kiln__wgmma_create(block);
}

void kiln__machine_begin(emu_machine *machine, i64 cluster) {
  machine->blocks = kiln__machine_take(machine, machine->num_blocks * sizeof *machine->blocks);
  if (machine->checking) kiln__clocks_create(machine);
  if (machine->launch->trace) kiln__trace_begin(machine, machine->launch->trace);
  for (u32 rank = 0; rank < machine->num_blocks; rank++)
    create_block(machine, rank, cluster * machine->num_blocks + rank);
}

int kiln__machine_open(emu_machine *machine) {
  const size_t fibers = (size_t)machine->num_blocks * machine->num_threads + 1;
  machine->message = calloc(1, EMU_MESSAGE_BYTES);
  if (machine->message && map_windows(machine) == 0 &&
      kiln__stack_pool_take(machine->launch->stacks, fibers, &machine->stacks) == 0)
    return 0;
  kiln__machine_close(machine);
  return -1;
}

void kiln__machine_close(emu_machine *machine) {
  kiln__stack_pool_give(machine->launch->stacks, &machine->stacks);
  unmap_windows(machine);
  kiln__arena_free(&machine->arena);
  free(machine->message);
  machine->message = NULL;
}

void kiln__machine_end(emu_machine *machine) {
  kiln__arena_clear(&machine->arena);
  machine->blocks = NULL;
  machine->trace = NULL;
  machine->transfers = NULL;
  machine->num_transfers = machine->capacity_transfers = 0;
  machine->cluster_count = 0;
  machine->cluster_sum = (emu_sum){0};
  machine->last_warp = 0;
  machine->polls = 0;
  machine->time_outs = 0;
  machine->talks = 0;
  machine->gives_way = machine->stuck = machine->resident = machine->ended = 0;
}

/* ---- a thread's life ---- */

static void thread_main(void) {
  emu_thread *thread = kiln__emu_current.thread;
  thread->machine->launch->entry->run(thread->machine->launch->params);
  thread->site = "the kernel's end";
  kiln__copy_exit(thread);
  kiln__tma_exit(thread);
  kiln__wgmma_exit(thread);
  kiln__peer_exit(thread);
  if (thread->machine->trace) kiln__trace_exit(thread);
  thread->state = EMU_DONE;
  thread->block->alive--;
  thread->block->warps[thread->warp].runnable &= ~(1u << thread->lane);
  kiln__fiber_resume(thread->machine->scheduler);
}
