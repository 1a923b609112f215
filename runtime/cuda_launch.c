/* A GPU as a device: modules, tensor maps, launches, timing. Rows of the table in cuda.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda_internal.h"

/* ---- modules ---- */

kiln_status kiln__cuda_module_load(void *device, const void *image, size_t size, kiln__text *error,
                                   void **module) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  (void)size; /* the image says its own size */
  kiln__cu_result result = kiln__cuda_enter(cuda, 1, &scope);
  if (result == 0) result = cuda->driver.module_load(module, image);
  kiln_status status = kiln__cuda_done(&scope, result, "the kernel cannot be loaded", error);
  if (status != KILN_OK && status != KILN_OUT_OF_MEMORY)
    kiln__text_printf(error,
                      "; the driver is made for CUDA %d.%d, and a kernel that a newer NVRTC "
                      "compiled needs a newer driver",
                      cuda->driver.installed / 1000, cuda->driver.installed % 1000 / 10);
  return status;
}

void kiln__cuda_module_unload(void *device, void *module) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  if (kiln__cuda_enter(cuda, 1, &scope) == 0) cuda->driver.module_unload(module);
  kiln__cuda_leave(&scope);
}

static kiln__cu_result read_attributes(const kiln__driver *driver, void *function,
                                       kiln__entry_attributes *out) {
  int values[4];
  const int attributes[4] = {KILN__CU_FUNC_REGISTERS, KILN__CU_FUNC_STATIC_BYTES,
                             KILN__CU_FUNC_LOCAL_BYTES, KILN__CU_FUNC_MAX_THREADS};
  for (int i = 0; i < 4; i++) {
    kiln__cu_result result = driver->function_get(&values[i], attributes[i], function);
    if (result != 0) return result;
  }
  out->registers = values[0];
  out->static_bytes = values[1];
  out->local_bytes = values[2];
  out->max_threads = values[3];
  return 0;
}

/* Loads the function now, because loading it at its first launch could fall into a capture. */
static kiln__cu_result prepare(const kiln__driver *driver, void *function,
                               const kiln__entry_shape *shape) {
  kiln__cu_result result = driver->function_load ? driver->function_load(function) : 0;
  if (result == 0 && shape->shared_bytes > 0)
    result = driver->function_set(function, KILN__CU_FUNC_DYNAMIC_BYTES, (int)shape->shared_bytes);
  if (result == 0 && shape->cluster > 8)
    result = driver->function_set(function, KILN__CU_FUNC_WIDE_CLUSTER, 1);
  return result;
}

kiln_status kiln__cuda_entry_get(void *device, void *module, const char *name,
                                 const kiln__entry_shape *shape, kiln__text *error, void **entry,
                                 kiln__entry_attributes *attributes) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  char what[256];
  *entry = NULL;
  kiln__cu_result result = kiln__cuda_enter(cuda, 1, &scope);
  if (result == 0) result = cuda->driver.module_function(entry, module, name);
  if (result == 0) result = prepare(&cuda->driver, *entry, shape);
  if (result == 0) result = read_attributes(&cuda->driver, *entry, attributes);
  snprintf(what, sizeof what,
           "entry %.100s (%d threads, %lld bytes of shared memory) does not fit this device", name,
           (int)shape->threads, (long long)shape->shared_bytes);
  kiln_status status = kiln__cuda_done(&scope, result, what, error);
  if (status != KILN_OK || attributes->max_threads >= shape->threads) return status;
  kiln__text_printf(error, "entry %.100s can have %d threads on this device and needs %d", name,
                    (int)attributes->max_threads, (int)shape->threads);
  return KILN_MISMATCH;
}

/* ---- the launch path ---- */

kiln_status kiln__cuda_tensor_map(void *device, const kiln__tensor_map *map, kiln__text *error,
                                  void *out) {
  static const int dtypes[] = {6, 9, 0, 7}; /* of the driver, by kiln_dtype */
  const unsigned steps[KILN__TENSOR_RANK] = {1, 1, 1, 1, 1};
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  int swizzle = map->swizzle == 128 ? 3 : map->swizzle == 64 ? 2 : map->swizzle == 32 ? 1 : 0;
  kiln__cu_result result = kiln__cuda_enter(cuda, 0, &scope);
  /* promotion 2: lines of 128 bytes in L2; fill 0: zeros out of bounds */
  if (result == 0)
    result = cuda->driver.tensor_map(out, dtypes[map->dtype], (unsigned)map->rank,
                                     (void *)(uintptr_t)map->address, map->dims, map->strides,
                                     map->box, steps, 0, swizzle, 2, 0);
  return kiln__cuda_done(&scope, result, "a tensor map was refused", error);
}

kiln_status kiln__cuda_clear(void *device, void *address, size_t bytes, kiln__cu_stream stream,
                             kiln__text *error) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  kiln__cu_result result = kiln__cuda_enter(cuda, 0, &scope);
  if (result == 0) result = cuda->driver.clear((uintptr_t)address, 0, bytes, stream);
  return kiln__cuda_done(&scope, result, "the workspace cannot be cleared", error);
}

kiln_status kiln__cuda_launch(void *device, const kiln__launch *launch, kiln__cu_stream stream,
                              kiln__text *error) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  kiln__cu_attribute cluster;
  memset(&cluster, 0, sizeof cluster);
  cluster.id = KILN__CU_ATTRIBUTE_CLUSTER;
  cluster.value.cluster[0] = (unsigned)launch->shape.cluster;
  cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
  kiln__cu_launch config = {
      .grid = {launch->grid[0], launch->grid[1], 1},
      .block = {(unsigned)launch->shape.threads, 1, 1},
      .shared_bytes = (unsigned)launch->shape.shared_bytes,
      .stream = stream,
      .attributes = &cluster,
      .num_attributes = launch->shape.cluster > 1 ? 1u : 0u,
  };
  kiln__cu_result result = kiln__cuda_enter(cuda, 0, &scope);
  if (result == 0) result = cuda->driver.launch(&config, launch->entry, launch->params, NULL);
  return kiln__cuda_done(&scope, result, "the launch failed", error);
}

kiln_status kiln__cuda_is_capturing(void *device, kiln__cu_stream stream, int *capturing,
                                    kiln__text *error) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  int status = 0;
  *capturing = 0;
  kiln__cu_result result = kiln__cuda_enter(cuda, 0, &scope);
  if (result == 0) result = cuda->driver.stream_capturing(stream, &status);
  if (result == KILN__CU_CAPTURE_IMPLICIT) {
    *capturing = 1;
    result = 0;
  } else {
    *capturing = status != 0;
  }
  return kiln__cuda_done(&scope, result, "the stream's capture state cannot be read", error);
}

/* ---- timing ---- */

typedef struct cuda_timer {
  void *start, *stop;
} cuda_timer;

static void free_timer(const kiln__driver *driver, cuda_timer *timer) {
  if (timer->start) driver->event_destroy(timer->start);
  if (timer->stop) driver->event_destroy(timer->stop);
  free(timer);
}

kiln_status kiln__cuda_timer_start(void *device, kiln__text *error, void **out) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  cuda_timer *timer = calloc(1, sizeof *timer);
  *out = NULL;
  if (!timer) {
    kiln__text_string(error, "no memory is left for a timer");
    return KILN_OUT_OF_MEMORY;
  }
  kiln__cu_result result = kiln__cuda_enter(cuda, 0, &scope);
  if (result == 0) result = cuda->driver.event_create(&timer->start, 0);
  if (result == 0) result = cuda->driver.event_create(&timer->stop, 0);
  if (result == 0) result = cuda->driver.event_record(timer->start, NULL);
  if (result == 0)
    *out = timer;
  else
    free_timer(&cuda->driver, timer);
  return kiln__cuda_done(&scope, result, "the time cannot be taken", error);
}

kiln_status kiln__cuda_timer_stop(void *device, void *given, kiln__text *error, double *time_us) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  cuda_timer *timer = given;
  float milliseconds = 0;
  kiln__cu_result result = kiln__cuda_enter(cuda, 0, &scope);
  if (result == 0) result = cuda->driver.event_record(timer->stop, NULL);
  if (result == 0) result = cuda->driver.event_synchronize(timer->stop);
  if (result == 0) result = cuda->driver.event_elapsed(&milliseconds, timer->start, timer->stop);
  free_timer(&cuda->driver, timer);
  *time_us = (double)milliseconds * 1000.0;
  return kiln__cuda_done(&scope, result, "the timed work failed", error);
}
