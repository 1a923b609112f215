/* A device of numbers: the time of every tile is a row of a table, with noise that depends on the
 * seed, the tile and the number of the sample alone (with drift, on the clock too), so that a
 * tuning that was interrupted meets the same times. Tests give it invented rows, `kiln tune
 * --simulate` those of a journal.
 *
 * Its clock runs by what its work would take, never by the host's. */
#ifndef KILN_AUTOTUNE_SIMULATE_H
#define KILN_AUTOTUNE_SIMULATE_H

#include "autotune/measure.h"

typedef struct kiln__simulation {
  const kiln__candidate *rows; /* true median, MAD and resources; or an outcome that is no time */
  int count;
  uint64_t seed;
  double noise;        /* standard deviation as a share of the time; < 0 = from the row's MAD */
  int fails_in_sample; /* a hang shows in the third sample, not before the first */
  double drift;        /* the clock rate swings by this share ... */
  double drift_period; /* every so many seconds; 0 = 20 */
  double clock;        /* seconds */
} kiln__simulation;

kiln__measurer kiln__simulation_measurer(kiln__simulation *simulation);

#endif
