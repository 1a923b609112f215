/* Figures of speed: the arithmetic that attention needs, and what a list of samples says.
 *
 * Invariant: operations are counted over the pairs of a query and a key that see each other, so
 * that a rate never counts work that the mask leaves out.
 *
 * Called by run and bench. */
#ifndef KILN_CLI_RATE_H
#define KILN_CLI_RATE_H

#include <kiln/kiln.h>

/* Floating-point operations of one launch, two a multiplication: 2 (head_dim + head_dim_v) for
 * every pair of a forward pass, and 2 (3 head_dim + 2 head_dim_v), its five products, of a backward
 * pass. `spec` is resolved. */
double kiln__rate_flops(const kiln_attn_spec *spec, const kiln_attn_args *shape);

typedef struct kiln__spread {
  double median, least, most;
  double mad; /* median absolute deviation from the median */
} kiln__spread;

/* count >= 1; overwrites the samples. */
kiln__spread kiln__rate_spread(double *samples, int count);

#endif
