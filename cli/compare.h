/* How far a kernel's result is from the fp64 reference, and whether that is near enough.
 *
 * Invariant: the reference is made from the very codes that the kernel was given. A problem within
 * the budget is compared whole; a larger one at rows spread over all its sequences and heads, the
 * first and the last among them, and the figures say so.
 *
 * Called by run --check and by verify. */
#ifndef KILN_CLI_COMPARE_H
#define KILN_CLI_COMPARE_H

#include "inputs.h"

/* What a kernel wrote, gathered. */
typedef struct kiln__output {
  uint16_t *o; /* codes, packed (batch, seqlen_q, num_heads, head_dim_v) */
  float *lse;  /* (batch, num_heads, seqlen_q); NULL = not wanted */
} kiln__output;

typedef struct kiln__figures {
  double max_abs_error, rel_rms_error, lse_max_abs_error;
  double tolerance;           /* of rel_rms_error */
  int64_t checked_rows, rows; /* rows of o: those compared, and all */
  bool o_passes, lse_passes;
  bool exact_passes; /* every element is the reference rounded once */
} kiln__figures;

#define KILN__COMPARE_ALL (-1.0) /* a budget: the whole problem, however large */

/* budget: multiplications of the reference. */
kiln_status kiln__compare(const kiln__inputs *inputs, const kiln__output *output, double budget,
                          kiln__figures *figures);

#endif
