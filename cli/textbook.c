/* The running softmax of one row, a block of scores at a time; textbook.h states the invariant. */
#include "textbook.h"

#include <math.h>

kiln__running_softmax kiln__softmax_start(void) { return (kiln__running_softmax){-INFINITY, 0}; }

/* A block that is masked everywhere leaves the state alone: -inf minus -inf would be NaN. */
void kiln__softmax_add(kiln__running_softmax *state, const double *scores, int64_t count) {
  double maximum = state->maximum;
  for (int64_t i = 0; i < count; i++) maximum = scores[i] > maximum ? scores[i] : maximum;
  if (isinf(maximum) && maximum < 0) return;
  double sum = state->sum * exp(state->maximum - maximum);
  for (int64_t i = 0; i < count; i++) sum += exp(scores[i] - maximum);
  *state = (kiln__running_softmax){maximum, sum};
}

uint64_t kiln__score_table_bytes(uint64_t seqlen_q, uint64_t seqlen_k, uint64_t element_bytes) {
  return seqlen_q * seqlen_k * element_bytes;
}
