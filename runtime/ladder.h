/* The ladder: which tile a plan takes where the caller leaves it to Kiln, and why.
 *
 * Invariant: nothing falls back in silence: a decision names its step and what refused those above
 * it. Records are read once for each spec, at its first plan, and again after a tuning. Measuring
 * is one tuning at a time in a context; whoever waited for it looks for its record first. Called by
 * plan.c, call.c, tuning.c and context.c. */
#ifndef KILN_RUNTIME_LADDER_H
#define KILN_RUNTIME_LADDER_H

#include <pthread.h>

#include <kiln/kiln.h>

#include "runtime/env.h"
#include "runtime/log.h"
#include "runtime/services.h"

typedef enum kiln__tune_mode {
  KILN__TUNE_CACHED, /* records are read */
  KILN__TUNE_OFF,    /* default tiles alone */
  KILN__TUNE_MEASURE /* what has no exact record is tuned */
} kiln__tune_mode;

typedef struct kiln__ladder {
  kiln__tune_mode mode;
  pthread_mutex_t lock;           /* guards the choices */
  struct kiln__known_spec *known; /* whose records were read */
  pthread_mutex_t measure_lock;
  int cannot_measure; /* under measure_lock: nothing on this machine can */
} kiln__ladder;

void kiln__ladder_configure(kiln__ladder *ladder, const kiln__env *env, const kiln__log *log);
void kiln__ladder_close(kiln_context *ctx);

/* What the tuner wrote is read again at the next plan. */
void kiln__ladder_forget(kiln_context *ctx);

/* given: the caller's tile; shape and options may be NULL. chosen->tile has zeros where the default
 * is meant. UNSUPPORTED where the step lies below the options' lowest, OUT_OF_MEMORY; chosen holds
 * nothing then. */
kiln_status kiln__ladder_choose(kiln_context *ctx, const kiln_attn_spec *spec,
                                const kiln_tile *given, const kiln_attn_args *shape,
                                const kiln_plan_options *options, kiln__chosen_tile *chosen);
void kiln__chosen_free(kiln__chosen_tile *chosen);

/* Where this user's own records are appended to: the first file of KILN_RECORDS, else one in the
 * cache directory. NULL where there is neither. */
const char *kiln__ladder_own_records(const kiln_context *ctx, char *path, size_t size);

#endif
