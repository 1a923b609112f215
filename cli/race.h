/* Timing kernels that compute the same, side by side on one shape.
 *
 * Invariant: every sample is 200 us of launches at least, on inputs that are not in L2 (stage.h);
 * kernels take turns sample by sample, so that what the GPU's clock does meanwhile meets all alike;
 * nothing counts before the GPU has worked for 20 ms.
 *
 * Called by bench. */
#ifndef KILN_CLI_RACE_H
#define KILN_CLI_RACE_H

#include "rate.h"

typedef struct kiln__entrant {
  kiln_plan *plan;     /* borrowed */
  int turns;           /* rounds over the sets in a sample */
  double *samples;     /* us of a launch */
  kiln__spread spread; /* of them, us */
} kiln__entrant;

typedef struct kiln__race {
  kiln_context *ctx;
  const kiln_attn_spec *spec; /* of every entrant, but for arch and algorithm */
  kiln_attn_args shape;       /* the sizes */
  int num_samples;            /* of each entrant, >= 1 */
  kiln__entrant *entrants;
  int num_entrants;
  int num_sets; /* result: launches of a round */
} kiln__race;

/* Fills num_sets, and turns and spread of every entrant. Refusals are printed; nothing is left
 * allocated. */
kiln_status kiln__race_run(kiln__race *race);

#endif
