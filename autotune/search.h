/* One tuning: what is known of every tile of a space, races that add to it, and the choice.
 * Strategies (strategy.h) decide which tiles race; the rules of a race and of the choice are here,
 * the same for all. Used by tune.c.
 *
 * A race interleaves its candidates sample by sample; one whose lower quartile lies above the
 * leader's upper quartile drops out. A GPU's clock moves, within a race and between races: the
 * rounds of a race are told in one pace, and races in that of the default, which runs in each. The
 * fastest and the default meet in a final race, out of which nobody drops, and which goes on while
 * noise may change the choice. The choice: who lies within max(1 %, 2 MAD) of the fastest has tied
 * with it; of those the default is taken, else the one with fewer spills, then less shared memory,
 * then the smaller tuple. So a chosen tile is never slower than the default. */
#ifndef KILN_AUTOTUNE_SEARCH_H
#define KILN_AUTOTUNE_SEARCH_H

#include "autotune/measure.h"
#include "autotune/samples.h"
#include "autotune/space.h"

enum {
  KILN__RACE_GROUP = KILN__SAMPLED_MOST - 1, /* that are loaded and take turns with the default */
  KILN__RACE_SAMPLES = 9,                    /* of each, to find the fast ones */
  KILN__RACE_LEAST = 5,                      /* before one may drop out */
  KILN__FINAL_SAMPLES = 25                   /* of the finalists, and again while in doubt */
};

typedef struct kiln__search {
  const kiln__space *space;
  kiln__measurer measurer;
  kiln__candidate *known; /* by index of the space */
  char *expected;         /* by index: the device was told of it */
  double deadline;        /* of measurer.now; <= 0 = none */
  int out_of_time;
  int is_broken; /* the measurer failed: the reason */
  char reason[KILN__REASON_SIZE];
  int measured;        /* candidates that were prepared */
  int64_t num_samples; /* that were taken */
  /* Told of every candidate whose outcome is new; a failure ends the search. May be NULL. */
  kiln_status (*keep)(void *user, const kiln__candidate *candidate);
  void *user;
  int chosen; /* index; -1 before finish */
} kiln__search;

/* Nothing is known yet: the caller may fill `known` from a journal. OUT_OF_MEMORY. */
kiln_status kiln__search_create(const kiln__space *space, kiln__measurer measurer,
                                kiln__search *search);
void kiln__search_destroy(kiln__search *search);

/* Tells the device what will be measured, as far as nothing is known of it and it was not told
 * before: a strategy that foresees its races is compiled for side by side. */
void kiln__search_expect(kiln__search *search, const int *indexes, int count);

/* Measures those of the tiles of which nothing is known. Ends early, with out_of_time set, when the
 * deadline has passed. Errors: those of keep; DRIVER_FAILED where the measurer failed. */
kiln_status kiln__search_race(kiln__search *search, const int *indexes, int count);

/* The fastest tile that was timed, or -1. */
int kiln__search_leader(const kiln__search *search);

/* The last race, among the fastest and the default, and the choice. CHECK_FAILED where the default
 * itself could not be timed: then no figure means anything. */
kiln_status kiln__search_finish(kiln__search *search);

/* The choice from what is known, by the rule above; -1 where the default was not timed. */
int kiln__search_choose(const kiln__search *search);

#endif
