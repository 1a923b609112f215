/* Buckets of sizes: round(log2 x), 0 for x <= 1, in whole numbers. Sizes of one bucket share a plan
 * of kiln_attn_forward and kiln_attn_backward; tuning records name the same buckets
 * (autotune/line.c). Included by call.c. */
#ifndef KILN_RUNTIME_BUCKET_H
#define KILN_RUNTIME_BUCKET_H

#include <stdint.h>

static inline int kiln__bucket_of(uint64_t x) {
  const uint64_t root_of_2 = 0xb504f333f9de6484u; /* 2^63 sqrt(2), rounded down */
  if (x <= 1) return 0;
  const int log2 = 63 - __builtin_clzll(x);
  return log2 + (x << (63 - log2) > root_of_2);
}

#endif
