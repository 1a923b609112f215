/* Counting operations and summing up samples; rate.h states what counts. */
#include "rate.h"

#include <math.h>
#include <stdlib.h>

/* Under the mask the last row that sees any key sees all of them, and each row before it one less.
 */
double kiln__rate_flops(const kiln_attn_spec *spec, const kiln_attn_args *shape) {
  double q = shape->seqlen_q, k = shape->seqlen_k, rows = q < k ? q : k;
  double pairs = spec->mask == KILN_MASK_CAUSAL ? rows * (2 * k - rows + 1) / 2 : q * k;
  double columns = spec->pass == KILN_PASS_BACKWARD ? 3.0 * spec->head_dim + 2.0 * spec->head_dim_v
                                                    : spec->head_dim + spec->head_dim_v;
  return 2.0 * shape->batch * shape->num_heads * pairs * columns;
}

static int compare(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/* Of sorted numbers. */
static double middle(const double *sorted, int count) {
  return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

kiln__spread kiln__rate_spread(double *samples, int count) {
  kiln__spread spread;
  qsort(samples, (size_t)count, sizeof *samples, compare);
  spread.median = middle(samples, count);
  spread.least = samples[0];
  spread.most = samples[count - 1];
  for (int i = 0; i < count; i++) samples[i] = fabs(samples[i] - spread.median);
  qsort(samples, (size_t)count, sizeof *samples, compare);
  spread.mad = middle(samples, count);
  return spread;
}
