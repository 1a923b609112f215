/* What the runtime asks of a device: one table of functions, implemented by runtime/cuda.c (a GPU
 * through the driver) and by runtime/emulator/device.c. Nothing above this table knows which one it
 * talks to.
 *
 * Every function returns a status and, when that is not OK, one sentence in `error` (never NULL).
 * Every function may be called from any thread at any time, except close(). `launch`, `clear`,
 * `tensor_map_encode` and `is_capturing` allocate nothing and take no lock on a GPU: they are the
 * launch path. */
#ifndef KILN_RUNTIME_DEVICE_H
#define KILN_RUNTIME_DEVICE_H

#include <kiln/kiln.h>

#include "runtime/env.h"
#include "runtime/text.h"

#define KILN__TENSOR_MAP_BYTES 128

typedef struct kiln__device_options {
  int ordinal;              /* CUDA device; unused by the emulator */
  const kiln__env *env;     /* outlives the device */
  int64_t emu_seed;         /* as in kiln_context_options */
  const char *emu_schedule; /* never NULL; copied by the emulator */
  uint64_t emu_starve;
} kiln__device_options;

#define KILN__TENSOR_RANK 5 /* the highest */

/* A TMA descriptor of one tensor. Those of q, k, v and o have rank 4: (dim, seqlen, heads, batch).
 * */
typedef struct kiln__tensor_map {
  const void *address;                     /* 16-byte aligned */
  int32_t rank;                            /* 1 .. KILN__TENSOR_RANK */
  uint64_t dims[KILN__TENSOR_RANK];        /* elements, innermost first; 1 .. 2^32 */
  uint64_t strides[KILN__TENSOR_RANK - 1]; /* bytes, from dim 1 on: multiples of 16, < 2^40 */
  uint32_t box[KILN__TENSOR_RANK];         /* elements, 1 .. 256 */
  kiln_dtype dtype;                        /* E4M3 stands for any 8-bit number */
  int32_t swizzle;                         /* bytes: 0, 32, 64 or 128 */
} kiln__tensor_map;

/* What an entry is launched with; known when it is loaded, so that the device prepares for it once.
 * */
typedef struct kiln__entry_shape {
  int32_t threads;      /* of a block */
  int32_t cluster;      /* blocks of a cluster, along x; 1 = none */
  int64_t shared_bytes; /* dynamic */
} kiln__entry_shape;

typedef struct kiln__entry_attributes {
  int32_t registers;    /* per thread; 0 where the device has none */
  int64_t static_bytes; /* shared memory besides the dynamic */
  int64_t local_bytes;  /* per thread: stack and spills */
  int32_t max_threads;
} kiln__entry_attributes;

/* The timeline of one block: see kiln_plan_trace. */
typedef struct kiln__trace {
  int64_t block;    /* of the grid */
  kiln__text *json; /* one object is appended; after a failure, a part of one */
} kiln__trace;

typedef struct kiln__launch {
  void *entry;             /* from entry_get */
  uint32_t grid[2];        /* blocks along x and y; z is 1 */
  kiln__entry_shape shape; /* as given to entry_get */
  void **params;           /* addresses of the parameters, in order */
  const size_t
      *param_sizes; /* bytes of each: 128 for a tensor map, sizeof(kiln__forward_args) for args */
  int num_params;
  const kiln__trace *trace; /* NULL but on the emulator: then the block's cluster alone runs */
} kiln__launch;

typedef struct kiln__device_ops {
  kiln_status (*open)(const kiln__device_options *options, kiln__text *error, void **device);
  void (*close)(void *device);
  kiln_status (*info)(void *device, kiln_device_info *info, kiln__text *error);

  /* Device memory: 256-byte aligned; copies are synchronous and ordered after the default stream.
   * */
  kiln_status (*memory_alloc)(void *device, size_t bytes, void **address, kiln__text *error);
  kiln_status (*memory_free)(void *device, void *address, kiln__text *error);
  kiln_status (*upload)(void *device, void *to, const void *from, size_t bytes, kiln__text *error);
  kiln_status (*download)(void *device, void *to, const void *from, size_t bytes,
                          kiln__text *error);
  kiln_status (*synchronize)(void *device, kiln__text *error);

  kiln_status (*module_load)(void *device, const void *image, size_t size, kiln__text *error,
                             void **module);
  void (*module_unload)(void *device, void *module);
  /* The entry lives as long as its module. */
  kiln_status (*entry_get)(void *device, void *module, const char *name,
                           const kiln__entry_shape *shape, kiln__text *error, void **entry,
                           kiln__entry_attributes *attributes);

  /* out: KILN__TENSOR_MAP_BYTES, 64-byte aligned */
  kiln_status (*tensor_map_encode)(void *device, const kiln__tensor_map *map, kiln__text *error,
                                   void *out);
  kiln_status (*clear)(void *device, void *address, size_t bytes, struct CUstream_st *stream,
                       kiln__text *error);
  kiln_status (*launch)(void *device, const kiln__launch *launch, struct CUstream_st *stream,
                        kiln__text *error);
  /* *capturing: whether work on the stream goes into a graph; NULL asks for the default stream,
   * which also sees a capture of any blocking stream. Never disturbs a capture. */
  kiln_status (*is_capturing)(void *device, struct CUstream_st *stream, int *capturing,
                              kiln__text *error);

  /* A pair of time stamps on the default stream. timer_stop waits and gives the microseconds since
   * timer_start. */
  kiln_status (*timer_start)(void *device, kiln__text *error, void **timer);
  kiln_status (*timer_stop)(void *device, void *timer, kiln__text *error, double *time_us);
} kiln__device_ops;

#endif
