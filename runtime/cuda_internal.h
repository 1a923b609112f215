/* Shared by cuda.c and cuda_launch.c: the device, and how a call enters it.
 * Every call leaves the caller's current context as it found it. */
#ifndef KILN_RUNTIME_CUDA_INTERNAL_H
#define KILN_RUNTIME_CUDA_INTERNAL_H

#include "runtime/cuda.h"
#include "runtime/driver.h"

typedef struct kiln__cuda {
  kiln__driver driver;
  int device;
  void *primary; /* the device's primary context, retained */
} kiln__cuda;

typedef struct kiln__cuda_scope {
  const kiln__cuda *cuda;
  int pushed;
  int mode; /* the thread's capture mode, while it is relaxed; else -1 */
} kiln__cuda_scope;

/* relaxed: the call may allocate or load, which must not break a capture on another stream. */
kiln__cu_result kiln__cuda_enter(const kiln__cuda *cuda, int relaxed, kiln__cuda_scope *scope);
void kiln__cuda_leave(kiln__cuda_scope *scope);
/* Leaves, and gives OK or the status and sentence of a failure. */
kiln_status kiln__cuda_done(kiln__cuda_scope *scope, kiln__cu_result result, const char *what,
                            kiln__text *error);

/* cuda_launch.c: rows of the table */
kiln_status kiln__cuda_module_load(void *device, const void *image, size_t size, kiln__text *error,
                                   void **module);
void kiln__cuda_module_unload(void *device, void *module);
kiln_status kiln__cuda_entry_get(void *device, void *module, const char *name,
                                 const kiln__entry_shape *shape, kiln__text *error, void **entry,
                                 kiln__entry_attributes *attributes);
kiln_status kiln__cuda_tensor_map(void *device, const kiln__tensor_map *map, kiln__text *error,
                                  void *out);
kiln_status kiln__cuda_clear(void *device, void *address, size_t bytes, kiln__cu_stream stream,
                             kiln__text *error);
kiln_status kiln__cuda_launch(void *device, const kiln__launch *launch, kiln__cu_stream stream,
                              kiln__text *error);
kiln_status kiln__cuda_is_capturing(void *device, kiln__cu_stream stream, int *capturing,
                                    kiln__text *error);
kiln_status kiln__cuda_timer_start(void *device, kiln__text *error, void **timer);
kiln_status kiln__cuda_timer_stop(void *device, void *timer, kiln__text *error, double *time_us);

#endif
