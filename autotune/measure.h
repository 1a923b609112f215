/* What tuning asks of a device: to make a candidate ready, to time it, to let it go. search.c calls
 * it; child.c is a GPU, simulate.c a device of numbers.
 *
 * A candidate costs itself and nothing else: whatever goes wrong with one is an outcome, after
 * which the others can still be measured. */
#ifndef KILN_AUTOTUNE_MEASURE_H
#define KILN_AUTOTUNE_MEASURE_H

#include <kiln/kiln.h>

#define KILN__REASON_SIZE 128

enum { KILN__EXPECTED_MOST = 64 }; /* tiles that a device is told of at once */

/* Append only: their names are in journals. */
typedef enum kiln__outcome {
  KILN__OUTCOME_UNKNOWN = 0, /* not measured */
  KILN__OUTCOME_TIMED,
  KILN__OUTCOME_COMPILE_FAILED,
  KILN__OUTCOME_WRONG_RESULT,
  KILN__OUTCOME_HANG,  /* or a fault: the device had to be freed of it */
  KILN__OUTCOME_NOISY, /* its times spread too widely to say anything */
  KILN__OUTCOME_COUNT
} kiln__outcome;

/* What is known of one tile on one problem. Times are of a launch. */
typedef struct kiln__candidate {
  kiln_tile tile;
  kiln__outcome outcome;
  int32_t samples;
  int64_t median_ns, mad_ns;
  int64_t lower_ns, upper_ns; /* quartiles */
  int32_t registers, spill_bytes;
  int64_t shared_bytes;
  char reason[KILN__REASON_SIZE]; /* of an outcome that is no time */
} kiln__candidate;

/* prepare and sample give UNKNOWN, and the reason, where the device itself fails and no candidate
 * can be measured any more: nothing is said of this one then. */
typedef struct kiln__measurer_ops {
  /* The tiles that will be prepared next, so that they can be compiled side by side; gives how many
   * of them, from the first, were taken: one at least. May be NULL. */
  int (*expect)(void *self, const kiln_tile *tiles, int count);
  /* Compiles and loads the candidate's tile, proves it right, warms it up; fills its resources, and
   * its reason after a failure. TIMED = ready to be sampled through *handle. */
  kiln__outcome (*prepare)(void *self, kiln__candidate *candidate, void **handle);
  /* One sample: the mean time of a launch. TIMED, or what went wrong and the reason. */
  kiln__outcome (*sample)(void *self, void *handle, int64_t *time_ns, char *reason);
  void (*drop)(void *self, void *handle); /* also after a failed sample */
  double (*now)(void *self);              /* seconds, for the budget */
} kiln__measurer_ops;

typedef struct kiln__measurer {
  const kiln__measurer_ops *ops;
  void *self;
} kiln__measurer;

#endif
