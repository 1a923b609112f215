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

#include <jansson.h>

/* What a kernel wrote, gathered. */
typedef struct kiln__output {
  uint16_t *o;            /* codes, packed (batch, seqlen_q, num_heads, head_dim_v) */
  float *lse;             /* (batch, num_heads, seqlen_q); NULL = not wanted */
  uint16_t *dq, *dk, *dv; /* of a backward pass, packed as q, k and v */
  uint16_t *dq_again;     /* of a second run; NULL = there was none */
} kiln__output;

typedef struct kiln__figure {
  double max_abs_error, rel_rms_error;
} kiln__figure;

typedef struct kiln__figures {
  double max_abs_error, rel_rms_error, lse_max_abs_error; /* the worst, where there are gradients */
  double tolerance;                                       /* of rel_rms_error */
  int64_t checked_rows, rows; /* rows of o, or of dq: those compared, and all */
  bool o_passes, lse_passes;  /* o, or all gradients */
  bool exact_passes;          /* every element is the reference rounded once */
  kiln__figure gradients[3];  /* dq, dk, dv: of a backward pass */
} kiln__figures;

/* ORDER: kiln__figures.gradients */
extern const char *const kiln__gradient_names[3];

/* Adds dq_rel_rms_error, dq_max_abs_error and so on to an object. */
void kiln__figures_json(json_t *object, const kiln__figures *figures);

#define KILN__COMPARE_ALL (-1.0) /* a budget: the whole problem, however large */

/* budget: multiplications of the reference. Of a backward pass the gradients are compared, by whole
 * key heads with all their query heads. What their rel_rms_error is relative to: reference.h. */
kiln_status kiln__compare(const kiln__inputs *inputs, const kiln__output *output, double budget,
                          kiln__figures *figures);
kiln_status kiln__compare_backward(const kiln__inputs *inputs, const kiln__output *output,
                                   double budget, kiln__figures *figures);

#endif
