/* A GPU as a measurer: the parent's side of kiln-measure (cli/measure.c), a process of its own that
 * compiles, proves and times candidates.
 *
 * Invariant: a candidate that hangs, crashes or leaves the GPU in a state that it does not come out
 * of costs itself: the process is killed and the next candidate meets a new one, in which the
 * others are made ready again without a word. The process outlives a tuning, because the kernels
 * that it holds serve the next shape of the same spec. Used by tune.c. */
#ifndef KILN_AUTOTUNE_CHILD_H
#define KILN_AUTOTUNE_CHILD_H

#include "autotune/measure.h"

/* How long an answer may take before the process counts as hung. */
enum {
  KILN__OPEN_MS = 60000,    /* to come up, and to place the tensors of a problem */
  KILN__PREPARE_MS = 60000, /* to compile, load, prove, warm up */
  KILN__SAMPLE_MS = 10000
};

typedef struct kiln__child_options {
  int device; /* CUDA ordinal; below 0 = none */
  const char *template_dir, *cache_dir;
  int jit_off;
  const char *program; /* NULL = the installed one */
  int prepare_ms, sample_ms;
} kiln__child_options;

typedef struct kiln__child kiln__child;

/* Nothing is started yet. The strings are copied. NULL without memory. */
kiln__child *kiln__child_create(const kiln__child_options *options);
void kiln__child_destroy(kiln__child *child); /* accepts NULL */

int kiln__child_has_device(const kiln__child *child);

/* What the measurer measures from now on; spec is resolved. */
void kiln__child_set_problem(kiln__child *child, const kiln_attn_spec *spec,
                             const kiln_attn_args *shape);
kiln__measurer kiln__child_measurer(kiln__child *child);

/* Why nothing can be measured: what prepare or sample gave UNKNOWN for; OK = nothing of the kind.
 * The sentence lives until the next set_problem. */
kiln_status kiln__child_failure(const kiln__child *child, const char **sentence);

#endif
