/* A launch: clusters are handed to machines. See launch.h.
 *
 * Where blocks do not talk, a cluster's run depends on its number and the seed alone, so that the
 * number of host threads, each with a machine, changes nothing but the time. Where they do, one
 * host thread runs as many machines in turns as the device holds clusters (world.c). The first
 * fault in the order of the clusters is the one reported. */
#include "runtime/emulator/launch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/crash.h"
#include "runtime/emulator/world.h"

typedef struct work {
  const emu_launch *launch;
  atomic_llong next;  /* cluster */
  atomic_llong limit; /* clusters from here on need not run: one before has failed */
  pthread_mutex_t lock;
  i64 failed; /* the lowest number of a cluster that failed; -1 = none */
  char *message;
  emu_global_shadow shadows[EMU_HOST_THREADS]; /* one a host thread */
  atomic_uint num_shadows;                     /* the first so many are in use */
} work;

static const char no_memory[] = "the emulator is out of host memory";

static int machine_create(emu_machine *machine, const emu_launch *launch,
                          emu_global_shadow *shadow) {
  memset(machine, 0, sizeof *machine);
  machine->launch = launch;
  machine->arena.pool = launch->chunks;
  machine->global = shadow;
  machine->schedule = launch->trace ? EMU_TIMED : launch->options.schedule;
  machine->starve = launch->options.starve;
  machine->checking = launch->options.checking;
  machine->num_blocks = launch->cluster;
  machine->num_threads = launch->threads;
  machine->num_warps = launch->threads / EMU_WARP;
  machine->shared_bytes = launch->shared_bytes;
  return kiln__machine_open(machine);
}

static void fail(work *w, i64 cluster, const char *message) {
  pthread_mutex_lock(&w->lock);
  if (w->failed < 0 || cluster < w->failed) {
    w->failed = cluster;
    memcpy(w->message, message, strlen(message) + 1);
    atomic_store(&w->limit, cluster);
  }
  pthread_mutex_unlock(&w->lock);
}

static void run_clusters(work *w, emu_machine *machine) {
  for (;;) {
    const i64 cluster = atomic_fetch_add(&w->next, 1);
    if (cluster >= atomic_load(&w->limit)) return;
    kiln__scheduler_start(machine, cluster);
    kiln__scheduler_resume(machine);
    if (machine->message[0]) {
      fail(w, cluster, machine->message);
      return;
    }
    kiln__machine_end(machine);
  }
}

/* Where blocks talk: all clusters, those that are resident together in turns. */
static void run_together(work *w, emu_machine *machines, u32 count) {
  emu_world world = {.machines = machines, .num_machines = count, .arena.pool = w->launch->chunks};
  const int failed = kiln__world_run(&world, atomic_load(&w->next), atomic_load(&w->limit));
  if (failed >= 0) fail(w, machines[failed].cluster, machines[failed].message);
  kiln__world_free(&world);
}

/* The machines of one host thread, then the clusters on them. */
static void run_machines(work *w, emu_machine *machines, u32 count, emu_global_shadow *shadow) {
  u32 open = 0;
  while (open < count && machine_create(&machines[open], w->launch, shadow) == 0) open++;
  if (open < count)
    fail(w, 0, no_memory);
  else if (w->launch->talks)
    run_together(w, machines, count);
  else
    run_clusters(w, machines);
  while (open > 0) kiln__machine_close(&machines[--open]);
}

static u32 machines_of_thread(const work *w) {
  const i64 clusters = w->limit - w->next, most = w->launch->resident;
  if (!w->launch->talks) return 1;
  return (u32)(clusters < most ? clusters : most);
}

static void *worker(void *argument) {
  work *w = argument;
  emu_global_shadow *shadow = &w->shadows[atomic_fetch_add(&w->num_shadows, 1)];
  const u32 count = machines_of_thread(w);
  emu_machine *machines = calloc(count, sizeof *machines);
  emu_crash_stack stack;
  if (!machines || kiln__global_shadow_create(shadow, w->launch->chunks, w->launch->memory,
                                              w->launch->num_allocations) != 0) {
    fail(w, 0, no_memory);
  } else if (kiln__crash_begin(&stack) == 0) {
    run_machines(w, machines, count, shadow);
    kiln__crash_end(&stack);
  } else {
    fail(w, 0, "the emulator cannot install its signal handler");
  }
  free(machines);
  return NULL;
}

/* Where a thread cannot be started, the ones that run do its work. */
static void run_workers(work *w, int count) {
  pthread_t threads[EMU_HOST_THREADS];
  int started = 0;
  while (started < count - 1 && pthread_create(&threads[started], NULL, worker, w) == 0) started++;
  worker(w);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

/* All clusters have ended well: what the host threads saw of global memory is put together. */
static void settle(work *w) {
  emu_machine geometry = {.num_blocks = w->launch->cluster,
                          .num_threads = w->launch->threads,
                          .num_warps = w->launch->threads / EMU_WARP};
  kiln__clocks_create(&geometry);
  if (kiln__global_shadow_settle(w->shadows, atomic_load(&w->num_shadows), &geometry, w->message))
    w->failed = 0;
}

int kiln__launch_grid(const emu_launch *launch, char *message) {
  const i64 first = launch->trace ? launch->trace->block / launch->cluster : 0;
  const i64 clusters = launch->trace ? 1 : launch->num_blocks / launch->cluster;
  work w = {.launch = launch, .failed = -1, .message = message};
  atomic_init(&w.next, first);
  atomic_init(&w.limit, first + clusters);
  atomic_init(&w.num_shadows, 0);
  pthread_mutex_init(&w.lock, NULL);
  i64 count = launch->talks ? 1 : launch->options.host_threads;
  if (count > clusters) count = clusters;
  if (count > EMU_HOST_THREADS) count = EMU_HOST_THREADS;
  run_workers(&w, count < 1 ? 1 : (int)count);
  if (w.failed < 0 && !launch->talks && launch->options.checking) settle(&w);
  for (u32 i = 0; i < EMU_HOST_THREADS; i++) kiln__global_shadow_free(&w.shadows[i]);
  pthread_mutex_destroy(&w.lock);
  return w.failed >= 0 ? -1 : 0;
}
