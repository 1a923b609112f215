/* See simulate.h. */
#include "autotune/simulate.h"

#include "autotune/space.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPILE_SECONDS 1.5
#define SAMPLE_SECONDS  3e-4
#define HANG_SECONDS    10.0
#define DRIFT_PERIOD    20.0
#define MAD_OF_NORMAL   0.6745 /* of a standard deviation */

typedef struct handle {
  const kiln__candidate *row;
  uint64_t state; /* of this tile's noise */
  int count;      /* samples so far */
} handle;

/* splitmix64 */
static uint64_t next(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static double uniform(uint64_t *state) { return ((double)(next(state) >> 11) + 0.5) * 0x1p-53; }

/* By Box and Muller. */
static double normal(uint64_t *state) {
  const double radius = sqrt(-2 * log(uniform(state)));
  return radius * cos(6.283185307179586 * uniform(state));
}

static uint64_t seed_of(const kiln__simulation *s, const kiln_tile *tile) {
  uint64_t state = s->seed;
  const int32_t fields[] = {tile->block_m, tile->block_n, tile->num_stages, tile->num_warps};
  for (int i = 0; i < 4; i++) {
    state ^= (uint64_t)fields[i];
    next(&state);
  }
  return state;
}

static const kiln__candidate *find_row(const kiln__simulation *s, const kiln_tile *tile) {
  for (int i = 0; i < s->count; i++)
    if (kiln__tile_compare(&s->rows[i].tile, tile) == 0) return &s->rows[i];
  return NULL;
}

static int hangs_later(const kiln__simulation *s, const kiln__candidate *row) {
  return s->fails_in_sample && row->outcome == KILN__OUTCOME_HANG;
}

static kiln__outcome prepare(void *self, kiln__candidate *candidate, void **out) {
  kiln__simulation *s = self;
  const kiln__candidate *row = find_row(s, &candidate->tile);
  s->clock += COMPILE_SECONDS;
  if (!row) {
    strcpy(candidate->reason, "the simulated device does not know this tile");
    return KILN__OUTCOME_COMPILE_FAILED;
  }
  candidate->registers = row->registers;
  candidate->spill_bytes = row->spill_bytes;
  candidate->shared_bytes = row->shared_bytes;
  const int is_time = row->outcome == KILN__OUTCOME_TIMED || row->outcome == KILN__OUTCOME_NOISY;
  if (!is_time && !hangs_later(s, row)) {
    if (row->outcome == KILN__OUTCOME_HANG) s->clock += HANG_SECONDS;
    memcpy(candidate->reason, row->reason, sizeof candidate->reason);
    return row->outcome;
  }
  handle *made = malloc(sizeof *made);
  if (!made) {
    strcpy(candidate->reason, "no memory is left");
    return KILN__OUTCOME_COMPILE_FAILED;
  }
  *made = (handle){row, seed_of(s, &candidate->tile), 0};
  *out = made;
  return KILN__OUTCOME_TIMED;
}

static kiln__outcome sample(void *self, void *candidate, int64_t *time_ns, char *reason) {
  kiln__simulation *s = self;
  handle *h = candidate;
  const double median = (double)h->row->median_ns;
  if (h->row->outcome == KILN__OUTCOME_HANG && h->count == 2) {
    s->clock += HANG_SECONDS;
    snprintf(reason, KILN__REASON_SIZE, "a launch did not end");
    return KILN__OUTCOME_HANG;
  }
  double share =
      s->noise < 0 && median > 0 ? (double)h->row->mad_ns / MAD_OF_NORMAL / median : s->noise;
  if (h->row->outcome == KILN__OUTCOME_NOISY) share = 0.5;
  const double period = s->drift_period > 0 ? s->drift_period : DRIFT_PERIOD;
  const double rate = 1 + s->drift * sin(6.283185307179586 * s->clock / period);
  const double time = median * rate * (1 + share * normal(&h->state));
  *time_ns = (int64_t)(time < 1 ? 1 : time);
  h->count++;
  s->clock += SAMPLE_SECONDS + time * 1e-9;
  return KILN__OUTCOME_TIMED;
}

static void drop(void *self, void *candidate) {
  (void)self;
  free(candidate);
}

static double now(void *self) { return ((kiln__simulation *)self)->clock; }

static const kiln__measurer_ops ops = {
    .prepare = prepare, .sample = sample, .drop = drop, .now = now};

kiln__measurer kiln__simulation_measurer(kiln__simulation *simulation) {
  return (kiln__measurer){&ops, simulation};
}
