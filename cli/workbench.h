/* Kernels side by side on one GPU: compiled, proved right, warmed up, sampled.
 *
 * Invariant: a kernel is compiled and proved once in the life of a workbench, whatever problems it
 * is timed on; none is published to the cache. Nothing is timed that was not proved. What a kernel
 * does wrong is an outcome; a status other than OK is a failure of the machine, and it is printed.
 *
 * Called by measure.c. */
#ifndef KILN_CLI_WORKBENCH_H
#define KILN_CLI_WORKBENCH_H

#include <kiln/kiln.h>

#include <stdint.h>

typedef struct kiln__workbench kiln__workbench;

typedef enum kiln__finding_outcome {
  KILN__FOUND_TIMED, /* ready, or timed */
  KILN__FOUND_COMPILE_FAILED,
  KILN__FOUND_WRONG_RESULT,
  KILN__FOUND_FAULT /* the device fell out: the process is of no use any more */
} kiln__finding_outcome;

typedef struct kiln__finding {
  kiln__finding_outcome outcome;
  char reason[512]; /* of an outcome that is no time */
  int handle;       /* of what is ready */
  int32_t registers, spill_bytes;
  int64_t shared_bytes;
} kiln__finding;

enum { KILN__WORKBENCH_HANDLES = 64, KILN__WORKBENCH_BATCH = 64 };

/* ctx is borrowed: one whose cache is read-only. */
kiln_status kiln__workbench_create(kiln_context *ctx, kiln__workbench **bench);
void kiln__workbench_destroy(kiln__workbench *bench);

/* The spec (resolved) and the sizes that everything is about from now on; what was ready is
 * dropped. OUT_OF_MEMORY where not even one set of tensors fits. */
kiln_status kiln__workbench_open(kiln__workbench *bench, const kiln_attn_spec *spec,
                                 const kiln_attn_args *shape);

/* Begins to compile, in the background, on as many threads as KILN_JOBS or the cores allow. */
kiln_status kiln__workbench_compile(kiln__workbench *bench, const kiln_tile *tiles, int count);

kiln_status kiln__workbench_prepare(kiln__workbench *bench, const kiln_tile *tile,
                                    kiln__finding *finding);

/* One sample: the mean microseconds of a launch over 200 us at least. */
kiln_status kiln__workbench_sample(kiln__workbench *bench, int handle, kiln__finding *finding,
                                   double *time_us);
void kiln__workbench_drop(kiln__workbench *bench, int handle);

#endif
