/* The samples of one candidate in a race, what they say of it (median, quartiles, MAD), and how
 * those of a race are told in one pace. Used by search.c.
 *
 * A GPU's clock moves while a race runs, and moves all who run: what is common to a round is
 * divided out of the medians. How far a candidate spreads stays its own. */
#ifndef KILN_AUTOTUNE_SAMPLES_H
#define KILN_AUTOTUNE_SAMPLES_H

#include "autotune/measure.h"

enum {
  KILN__SAMPLES_MOST = 200, /* of a candidate in a race, one a round */
  KILN__SAMPLED_MOST = 9    /* candidates of a race */
};

typedef struct kiln__samples {
  kiln__candidate found; /* the times are those of the samples */
  int count;
  int64_t times[KILN__SAMPLES_MOST]; /* ns */
} kiln__samples;

/* A time as a clock of another pace tells it: divided by it, 1e18 ns at most. */
int64_t kiln__time_in_pace(int64_t time_ns, double pace);

/* One more: there must be room. */
void kiln__samples_add(kiln__samples *samples, int64_t time_ns);

/* Tells samples of one race, and what they say, in one pace. Each has at least one; the i-th of
 * each were taken side by side, and whoever has fewer dropped out. Fewer than two are left as they
 * are. */
void kiln__samples_even_out(kiln__samples *const *samples, int count);

#endif
