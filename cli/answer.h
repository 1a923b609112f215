/* o and lse of one problem by the fp64 reference.
 *
 * Invariant: the answer is packed, whatever the layout of the problem's tensors.
 * Called by proof.c, which compares with it, and by trial.c, which makes gradients with it. */
#ifndef KILN_CLI_ANSWER_H
#define KILN_CLI_ANSWER_H

#include "inputs.h"

typedef struct kiln__answer {
  double *o;   /* (batch, rows, heads, dim) */
  double *lse; /* (batch, heads, rows), natural logarithm */
} kiln__answer;

/* OUT_OF_MEMORY; INVALID_ARGUMENT for heads that do not divide. A failure leaves nothing. */
kiln_status kiln__answer_create(const kiln__inputs *inputs, kiln__answer *answer);
void kiln__answer_destroy(kiln__answer *answer);

#endif
