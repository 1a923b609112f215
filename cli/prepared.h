/* Plans of a selection's kernels, made in the background.
 *
 * Invariant: a kernel that cannot be compiled or loaded keeps its status and its sentence for the
 * thread that asks later; the context's own last error belongs to the thread that made the plan.
 *
 * Called by verify and bench, as jobs of a pool. */
#ifndef KILN_CLI_PREPARED_H
#define KILN_CLI_PREPARED_H

#include "selection.h"

typedef struct kiln__prepared {
  kiln_status status;
  char *error; /* of a failure; NULL = none */
  kiln_plan *plan;
} kiln__prepared;

void kiln__prepare(kiln_context *ctx, const kiln__variant *variant, kiln__prepared *prepared);
void kiln__prepared_destroy(kiln__prepared *prepared);

#endif
