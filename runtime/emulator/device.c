/* The emulator as a device: the table of runtime/device.h on the host's memory and threads.
 *
 * A launch runs the grid to its end before it returns, and its fault is the launch's own error. So
 * every stream is always idle, and launches on one device run one after another. */
#include "runtime/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/emulator/launch.h"
#include "runtime/emulator/memory.h"
#include "runtime/emulator/module.h"
#include "runtime/emulator/tensor_map.h"
#include "runtime/services.h"

/* What the emulated device says of itself: an sm_90a with few multiprocessors, so that persistent
 * kernels give each block several tiles. */
#define NUM_SMS            4
#define SHARED_BYTES_BLOCK (227 << 10)
#define SHARED_BYTES_SM    (228 << 10)
#define L2_BYTES           (50ll << 20)
#define SM_THREADS         2048
#define SM_BLOCKS          32
#define RESERVED_BYTES     1024 /* of shared memory, by the system for each block */

typedef struct emu_device {
  emu_memory memory;
  emu_options options;
  emu_stack_pool stacks;
  emu_chunk_pool chunks;
  pthread_mutex_t launching;
} emu_device;

typedef struct emu_timer {
  struct timespec start;
} emu_timer;

/* ---- open, close, info ---- */

static kiln_status read_schedule(const char *text, kiln__text *error, emu_schedule *schedule) {
  static const struct {
    const char *name;
    emu_schedule schedule;
  } names[] = {{"late", EMU_LATE}, {"eager", EMU_EAGER}, {"random", EMU_RANDOM}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(text, names[i].name) != 0) continue;
    *schedule = names[i].schedule;
    return KILN_OK;
  }
  kiln__text_printf(error, "emu_schedule is \"%s\"; legal are late, eager, random", text);
  return KILN_INVALID_ARGUMENT;
}

static kiln_status read_options(const kiln__device_options *options, kiln__text *error,
                                emu_options *out) {
  const char *jobs = options->env ? kiln__env_get(options->env, KILN__ENV_KILN_JOBS) : NULL;
  long threads = jobs ? strtol(jobs, NULL, 10) : 0;
  if (threads < 1) threads = sysconf(_SC_NPROCESSORS_ONLN);
  out->seed = options->emu_seed < 0 ? 0 : (u64)options->emu_seed;
  out->starve = options->emu_starve;
  out->checking = 1;
  out->host_threads = threads < 1                  ? 1
                      : threads < EMU_HOST_THREADS ? (int)threads
                                                   : EMU_HOST_THREADS;
  return read_schedule(options->emu_schedule, error, &out->schedule);
}

static kiln_status device_open(const kiln__device_options *options, kiln__text *error,
                               void **device) {
  *device = NULL;
  if (!kiln__fiber_supported()) {
    kiln__text_string(error, "the emulator runs on x86-64 hosts only");
    return KILN_UNSUPPORTED;
  }
  emu_device *d = calloc(1, sizeof *d);
  if (!d) return KILN_OUT_OF_MEMORY;
  kiln_status status = read_options(options, error, &d->options);
  if (status == KILN_OK && kiln__memory_create(&d->memory) != 0) status = KILN_OUT_OF_MEMORY;
  if (status != KILN_OK) {
    free(d);
    return status;
  }
  kiln__stack_pool_create(&d->stacks);
  kiln__chunk_pool_create(&d->chunks);
  pthread_mutex_init(&d->launching, NULL);
  *device = d;
  return KILN_OK;
}

static void device_close(void *device) {
  emu_device *d = device;
  if (!d) return;
  kiln__memory_destroy(&d->memory);
  pthread_mutex_destroy(&d->launching);
  kiln__stack_pool_destroy(&d->stacks);
  kiln__chunk_pool_destroy(&d->chunks);
  free(d);
}

static kiln_status device_info(void *device, kiln_device_info *info, kiln__text *error) {
  (void)device, (void)error;
  snprintf(info->name, sizeof info->name, "emulator");
  snprintf(info->arch, sizeof info->arch, "sm_90a");
  info->compute_major = 9;
  info->compute_minor = 0;
  info->num_sms = NUM_SMS;
  info->shared_bytes_block = SHARED_BYTES_BLOCK;
  info->shared_bytes_sm = SHARED_BYTES_SM;
  info->l2_bytes = L2_BYTES;
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  info->memory_bytes = pages > 0 && page > 0 ? (int64_t)pages * page : 0;
  return KILN_OK;
}

/* ---- memory ---- */

static kiln_status memory_alloc(void *device, size_t bytes, void **address, kiln__text *error) {
  emu_device *d = device;
  *address = kiln__memory_take(&d->memory, bytes);
  if (*address) return KILN_OK;
  kiln__text_printf(error, "the host has no %zu bytes for the emulator", bytes);
  return KILN_OUT_OF_MEMORY;
}

static kiln_status memory_free(void *device, void *address, kiln__text *error) {
  emu_device *d = device;
  if (!address || kiln__memory_give(&d->memory, address) == 0) return KILN_OK;
  kiln__text_printf(error, "%p is no address of kiln_memory_alloc", address);
  return KILN_INVALID_ARGUMENT;
}

static kiln_status check_range(emu_device *d, const void *address, size_t bytes,
                               kiln__text *error) {
  if (bytes == 0 || kiln__memory_holds(&d->memory, address, bytes)) return KILN_OK;
  kiln__text_printf(error, "%zu bytes at %p do not lie in one allocation of kiln_memory_alloc",
                    bytes, address);
  return KILN_INVALID_ARGUMENT;
}

static kiln_status upload(void *device, void *to, const void *from, size_t bytes,
                          kiln__text *error) {
  const kiln_status status = check_range(device, to, bytes, error);
  if (status == KILN_OK && bytes) memcpy(to, from, bytes);
  return status;
}

static kiln_status download(void *device, void *to, const void *from, size_t bytes,
                            kiln__text *error) {
  const kiln_status status = check_range(device, from, bytes, error);
  if (status == KILN_OK && bytes) memcpy(to, from, bytes);
  return status;
}

static kiln_status clear(void *device, void *address, size_t bytes, struct CUstream_st *stream,
                         kiln__text *error) {
  (void)stream;
  const kiln_status status = check_range(device, address, bytes, error);
  if (status == KILN_OK && bytes) memset(address, 0, bytes);
  return status;
}

static kiln_status synchronize(void *device, kiln__text *error) {
  (void)device, (void)error;
  return KILN_OK;
}

/* ---- modules and entries ---- */

static kiln_status module_load(void *device, const void *image, size_t size, kiln__text *error,
                               void **module) {
  (void)device;
  *module = NULL;
  emu_module *m = malloc(sizeof *m);
  if (!m) return KILN_OUT_OF_MEMORY;
  const kiln_status status = kiln__module_open(m, image, size, error);
  if (status == KILN_OK)
    *module = m;
  else
    free(m);
  return status;
}

static void module_unload(void *device, void *module) {
  (void)device;
  if (!module) return;
  kiln__module_close(module);
  free(module);
}

static kiln_status check_shape(const char *name, const kiln__entry_shape *shape,
                               kiln__text *error) {
  if (shape->threads < 1 || shape->threads > (int)EMU_MAX_THREADS || shape->threads % (int)EMU_WARP)
    kiln__text_printf(error, "entry %s has %d threads; a multiple of 32 up to 1024 is legal", name,
                      shape->threads);
  else if (shape->cluster < 1 || shape->cluster > (int)EMU_MAX_CLUSTER)
    kiln__text_printf(error, "entry %s has clusters of %d; 1 to 16 is legal", name, shape->cluster);
  else if (shape->shared_bytes < 0 || shape->shared_bytes > SHARED_BYTES_BLOCK)
    kiln__text_printf(error, "entry %s asks for %lld bytes of shared memory; up to %d is legal",
                      name, (long long)shape->shared_bytes, SHARED_BYTES_BLOCK);
  else
    return KILN_OK;
  return KILN_INVALID_ARGUMENT;
}

static kiln_status entry_get(void *device, void *module, const char *name,
                             const kiln__entry_shape *shape, kiln__text *error, void **entry,
                             kiln__entry_attributes *attributes) {
  (void)device;
  *entry = NULL;
  const kiln_emu_entry *found = kiln__module_find(module, name);
  if (!found) {
    kiln__text_printf(error, "the kernel has no entry %s", name);
    return KILN_CORRUPT;
  }
  const kiln_status status = check_shape(name, shape, error);
  if (status != KILN_OK) return status;
  memset(attributes, 0, sizeof *attributes);
  attributes->max_threads = (int32_t)EMU_MAX_THREADS;
  *entry = (void *)found;
  return KILN_OK;
}

static kiln_status tensor_map_encode(void *device, const kiln__tensor_map *map, kiln__text *error,
                                     void *out) {
  (void)device;
  return kiln__tensor_map_encode(map, error, out);
}

/* ---- launch ---- */

static kiln_status check_launch(const kiln__launch *launch, kiln__text *error) {
  const kiln_emu_entry *entry = launch->entry;
  const u64 blocks = (u64)launch->grid[0] * launch->grid[1];
  if (launch->num_params != entry->num_params) {
    kiln__text_printf(error, "entry %s takes %d parameters, not %d", entry->name, entry->num_params,
                      launch->num_params);
    return KILN_MISMATCH;
  }
  for (int i = 0; i < entry->num_params; i++) {
    if (launch->param_sizes[i] == entry->sizes[i]) continue;
    kiln__text_printf(error, "parameter %d of entry %s has %lu bytes, not %zu", i, entry->name,
                      entry->sizes[i], launch->param_sizes[i]);
    return KILN_MISMATCH;
  }
  if (launch->trace && (launch->trace->block < 0 || (u64)launch->trace->block >= blocks)) {
    kiln__text_printf(error, "there is no block %lld in a grid of %llu; the first is 0",
                      (long long)launch->trace->block, blocks);
    return KILN_INVALID_ARGUMENT;
  }
  if (blocks > 0 && blocks % (u64)launch->shape.cluster == 0) return KILN_OK;
  kiln__text_printf(error, "a grid of %llu blocks; a multiple of the cluster, %d, is legal", blocks,
                    launch->shape.cluster);
  return KILN_INVALID_ARGUMENT;
}

/* How many clusters of this shape the device holds together. */
static i64 resident_clusters(const kiln__entry_shape *shape) {
  const i64 by_threads = SM_THREADS / shape->threads;
  const i64 by_bytes = SHARED_BYTES_SM / (shape->shared_bytes + RESERVED_BYTES);
  i64 blocks = by_threads < by_bytes ? by_threads : by_bytes;
  if (blocks > SM_BLOCKS) blocks = SM_BLOCKS;
  const i64 clusters = NUM_SMS * blocks / shape->cluster;
  return clusters < 1 ? 1 : clusters;
}

static kiln_status run_grid(emu_device *d, const kiln__launch *launch, kiln__text *error) {
  char message[EMU_MESSAGE_BYTES];
  emu_launch grid = {.entry = launch->entry,
                     .params = launch->params,
                     .num_blocks = (i64)launch->grid[0] * launch->grid[1],
                     .threads = (u32)launch->shape.threads,
                     .cluster = (u32)launch->shape.cluster,
                     .shared_bytes = (u32)launch->shape.shared_bytes,
                     .talks = ((const kiln_emu_entry *)launch->entry)->talks,
                     .resident = resident_clusters(&launch->shape),
                     .options = d->options,
                     .stacks = &d->stacks,
                     .chunks = &d->chunks,
                     .trace = launch->trace};
  emu_allocation *list = kiln__memory_copy(&d->memory, &grid.num_allocations);
  if (!list) return KILN_OUT_OF_MEMORY;
  grid.memory = list;
  const int failed = kiln__launch_grid(&grid, message);
  free(list);
  if (!failed) return KILN_OK;
  kiln__text_printf(error, "the emulator stopped kernel %s: %s", grid.entry->name, message);
  return KILN_DRIVER_FAILED;
}

static kiln_status launch_entry(void *device, const kiln__launch *launch,
                                struct CUstream_st *stream, kiln__text *error) {
  (void)stream;
  emu_device *d = device;
  kiln_status status = check_launch(launch, error);
  if (status != KILN_OK) return status;
  pthread_mutex_lock(&d->launching);
  status = run_grid(d, launch, error);
  pthread_mutex_unlock(&d->launching);
  return status;
}

static kiln_status is_capturing(void *device, struct CUstream_st *stream, int *capturing,
                                kiln__text *error) {
  (void)device, (void)stream, (void)error;
  *capturing = 0;
  return KILN_OK;
}

/* ---- timer: host time ---- */

static kiln_status timer_start(void *device, kiln__text *error, void **timer) {
  (void)device, (void)error;
  emu_timer *t = malloc(sizeof *t);
  *timer = t;
  if (!t) return KILN_OUT_OF_MEMORY;
  clock_gettime(CLOCK_MONOTONIC, &t->start);
  return KILN_OK;
}

static kiln_status timer_stop(void *device, void *timer, kiln__text *error, double *time_us) {
  (void)device, (void)error;
  emu_timer *t = timer;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *time_us = (double)(now.tv_sec - t->start.tv_sec) * 1e6 +
             (double)(now.tv_nsec - t->start.tv_nsec) * 1e-3;
  free(t);
  return KILN_OK;
}

const kiln__device_ops kiln__emulator_ops = {
    .open = device_open,
    .close = device_close,
    .info = device_info,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .upload = upload,
    .download = download,
    .synchronize = synchronize,
    .module_load = module_load,
    .module_unload = module_unload,
    .entry_get = entry_get,
    .tensor_map_encode = tensor_map_encode,
    .clear = clear,
    .launch = launch_entry,
    .is_capturing = is_capturing,
    .timer_start = timer_start,
    .timer_stop = timer_stop,
};
