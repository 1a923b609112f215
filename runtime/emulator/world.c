/* Clusters that are resident together: see world.h. */
#include "runtime/emulator/world.h"

#include <stdio.h>
#include <string.h>

#include "runtime/emulator/launch.h"

void *kiln__world_take(emu_world *world, size_t bytes) {
  void *taken = kiln__arena_take(&world->arena, bytes);
  if (!taken) kiln__emu_fault("the emulator is out of host memory");
  return taken;
}

void kiln__world_free(emu_world *world) { kiln__arena_free(&world->arena); }

/* ---- waits for words ---- */

/* The next thread behind `from` that waits for a word, by its number in the cluster. */
static emu_thread *next_waiting(const emu_machine *machine, u32 *from) {
  const u32 all = machine->num_blocks * machine->num_threads;
  while (*from < all) {
    const u32 i = (*from)++;
    emu_thread *thread =
        &machine->blocks[i / machine->num_threads].threads[i % machine->num_threads];
    if (thread->wait.kind == EMU_WAIT_WORD) return thread;
  }
  return NULL;
}

int kiln__world_waits(const emu_machine *machine) {
  u32 from = 0;
  return next_waiting(machine, &from) != NULL;
}

u32 kiln__world_wake(emu_machine *machine) {
  u32 from = 0, count = 0;
  emu_thread *thread;
  while ((thread = next_waiting(machine, &from))) {
    if (*(const u32 *)thread->wait.object != (u32)thread->wait.target) continue;
    kiln__scheduler_wake(thread);
    count++;
  }
  return count;
}

void kiln__world_wait(emu_thread *thread, const u32 *word, u32 value, const char *site) {
  while (*(const volatile u32 *)word != value)
    kiln__scheduler_block(thread, (emu_wait){EMU_WAIT_WORD, word, (int)value, 0, site});
}

/* ---- whose turn it is ---- */

/* A cluster that is stuck can go on only after a word has changed. */
static int can_run(const emu_world *world, const emu_machine *machine) {
  return machine->resident && !(machine->stuck && machine->stuck_at == world->changes);
}

static u32 next_random(emu_world *world) {
  world->random = world->random * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)(world->random >> 33);
}

static emu_machine *pick(emu_world *world) {
  const u32 count = world->num_machines;
  const int is_random = world->machines[0].schedule == EMU_RANDOM;
  const u32 start = is_random ? next_random(world) % count : world->last + 1;
  for (u32 i = 0; i < count; i++) {
    const u32 number = (start + i) % count;
    if (!can_run(world, &world->machines[number])) continue;
    world->last = number;
    return &world->machines[number];
  }
  return NULL;
}

/* Clusters take the places of those that have ended. */
static void begin_clusters(emu_world *world) {
  for (u32 i = 0; i < world->num_machines && world->next < world->end; i++) {
    emu_machine *machine = &world->machines[i];
    if (machine->resident) continue;
    machine->world = world;
    kiln__scheduler_start(machine, world->next++);
  }
}

static int is_empty(const emu_world *world) {
  for (u32 i = 0; i < world->num_machines; i++)
    if (world->machines[i].resident) return 0;
  return 1;
}

/* Every resident cluster waits for words that none of them will change. */
static void report_deadlock(const emu_world *world) {
  const emu_machine *first = &world->machines[0];
  const i64 blocks = first->num_blocks;
  char why[128] = "";
  if (world->next < world->end)
    snprintf(why, sizeof why, "; blocks %lld to %lld have not begun, as no more than %lld fit",
             world->next * blocks, world->end * blocks - 1, world->num_machines * blocks);
  kiln__emu_describe_deadlock(first, world->num_machines, why, first->message);
}

int kiln__world_run(emu_world *world, i64 first, i64 end) {
  kiln__clocks_create(&world->machines[0]);
  world->components = world->machines[0].clocks.count;
  world->next = first;
  world->end = end;
  world->last = world->num_machines - 1;
  world->random = world->machines[0].launch->options.seed;
  for (;;) {
    begin_clusters(world);
    emu_machine *machine = pick(world);
    if (!machine && is_empty(world)) return -1;
    if (!machine) {
      report_deadlock(world);
      return 0;
    }
    kiln__scheduler_resume(machine);
    if (machine->message[0]) return (int)(machine - world->machines);
    if (machine->ended) kiln__machine_end(machine);
  }
}
