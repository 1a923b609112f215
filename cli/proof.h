/* Whether a kernel is right, quickly: a handful of the problems that break kernels (problems.h),
 * asked before a kernel's time counts.
 *
 * Invariant: the reference of a forward pass is computed once and kept, so that a proof costs a few
 * launches; the rule of rightness is verify's: every element written, nothing else touched, every
 * figure within its tolerance.
 *
 * Called by workbench.c. */
#ifndef KILN_CLI_PROOF_H
#define KILN_CLI_PROOF_H

#include "trial.h"

typedef struct kiln__proof kiln__proof;

/* The problems of a resolved spec with their reference; on_gpu: whole, else in sizes for the
 * emulator. Errors: OUT_OF_MEMORY. */
kiln_status kiln__proof_create(const kiln_attn_spec *spec, bool on_gpu, kiln__proof **proof);
void kiln__proof_destroy(kiln__proof *proof); /* accepts NULL */

typedef struct kiln__verdict {
  bool right, faulted; /* faulted: the device fell out; the context is of no use any more */
  char why[512];       /* of what is not right: the problem and what is wrong */
} kiln__verdict;

/* A status other than OK is a failure of the machine and not of the kernel; it is printed. */
kiln_status kiln__proof_try(const kiln__proof *proof, kiln_context *ctx, kiln_plan *plan,
                            kiln__verdict *verdict);

#endif
