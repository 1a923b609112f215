/* A launch: clusters are handed to machines, one machine a host thread. See launch.h.
 *
 * A cluster's run depends on its number and the seed alone, so the number of host threads changes
 * nothing but the time; where blocks meet in global memory there is one. The first fault in the
 * order of the clusters is the one reported. */
#include "runtime/emulator/launch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/emulator/crash.h"

#define MAX_HOST_THREADS 16

typedef struct work {
  const emu_launch *launch;
  atomic_llong next;  /* cluster */
  atomic_llong limit; /* clusters from here on need not run: one before has failed */
  pthread_mutex_t lock;
  i64 failed; /* the lowest number of a cluster that failed; -1 = none */
  char *message;
} work;

static int machine_create(emu_machine *machine, const emu_launch *launch) {
  memset(machine, 0, sizeof *machine);
  machine->launch = launch;
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
    if (kiln__scheduler_run(machine, cluster) != 0) {
      fail(w, cluster, machine->message);
      return;
    }
  }
}

static void *worker(void *argument) {
  work *w = argument;
  emu_machine machine;
  emu_crash_stack stack;
  if (machine_create(&machine, w->launch) != 0) {
    fail(w, 0, "the emulator is out of host memory");
    return NULL;
  }
  if (kiln__crash_begin(&stack) == 0) {
    run_clusters(w, &machine);
    kiln__crash_end(&stack);
  } else {
    fail(w, 0, "the emulator cannot install its signal handler");
  }
  kiln__machine_close(&machine);
  return NULL;
}

/* Where a thread cannot be started, the ones that run do its work. */
static void run_workers(work *w, int count) {
  pthread_t threads[MAX_HOST_THREADS];
  int started = 0;
  while (started < count - 1 && pthread_create(&threads[started], NULL, worker, w) == 0) started++;
  worker(w);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

int kiln__launch_grid(const emu_launch *launch, char *message) {
  const i64 first = launch->trace ? launch->trace->block / launch->cluster : 0;
  const i64 clusters = launch->trace ? 1 : launch->num_blocks / launch->cluster;
  work w = {.launch = launch, .failed = -1, .message = message};
  atomic_init(&w.next, first);
  atomic_init(&w.limit, first + clusters);
  pthread_mutex_init(&w.lock, NULL);
  i64 count = launch->talks ? 1 : launch->options.host_threads;
  if (count > clusters) count = clusters;
  if (count > MAX_HOST_THREADS) count = MAX_HOST_THREADS;
  run_workers(&w, count < 1 ? 1 : (int)count);
  pthread_mutex_destroy(&w.lock);
  return w.failed >= 0 ? -1 : 0;
}
