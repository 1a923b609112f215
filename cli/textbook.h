/* The figures that explain FlashAttention: its running softmax, and the table it never stores.
 *
 * Invariant: after any number of blocks, maximum is the largest score seen and sum is the sum of
 * exp(score - maximum) over all of them, as if they had come at once.
 *
 * Called by explain (what standard attention would write) and by the unit tests, which keep the
 * tutorial's numbers true. */
#ifndef KILN_CLI_TEXTBOOK_H
#define KILN_CLI_TEXTBOOK_H

#include <stdint.h>

typedef struct kiln__running_softmax {
  double maximum; /* -inf before the first score */
  double sum;
} kiln__running_softmax;

kiln__running_softmax kiln__softmax_start(void);
void kiln__softmax_add(kiln__running_softmax *state, const double *scores, int64_t count);

/* Bytes of one head's (seqlen_q, seqlen_k) score table, for sizes whose product fits 64 bits. */
uint64_t kiln__score_table_bytes(uint64_t seqlen_q, uint64_t seqlen_k, uint64_t element_bytes);

#endif
