/* See search.h. */
#include "autotune/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FINALISTS     6
#define FINAL_PERCENT 5  /* of the leader's time: who is further away is not raced again */
#define NOISY_PERCENT 10 /* of the median: a MAD above it says nothing */
#define TIE_PERCENT   1
#define MEDIAN_ERROR  1.86 /* of a median of n samples, in MADs over the root of n; normal noise */

kiln_status kiln__search_create(const kiln__space *space, kiln__measurer measurer,
                                kiln__search *search) {
  *search = (kiln__search){.space = space, .measurer = measurer, .chosen = -1};
  search->known = calloc((size_t)space->count + 1, sizeof *search->known);
  search->expected = calloc((size_t)space->count + 1, 1);
  if (!search->known || !search->expected) {
    kiln__search_destroy(search);
    return KILN_OUT_OF_MEMORY;
  }
  for (int i = 0; i < space->count; i++) search->known[i].tile = space->tiles[i];
  return KILN_OK;
}

void kiln__search_destroy(kiln__search *search) {
  free(search->known);
  free(search->expected);
  *search = (kiln__search){0};
}

static int timed(const kiln__search *s, int index) {
  return s->known[index].outcome == KILN__OUTCOME_TIMED;
}

static int is_past(const kiln__search *s) {
  return s->deadline > 0 && s->measurer.ops->now(s->measurer.self) >= s->deadline;
}

static int is_late(kiln__search *s) {
  if (is_past(s)) s->out_of_time = 1;
  return s->out_of_time;
}

static int is_over(kiln__search *s) { return s->is_broken || is_late(s); }

/* ---- the choice ---- */

/* Candidates among which one is chosen: those of at least so many samples that were timed. */
typedef struct field {
  const kiln__candidate *of;
  int count, fallback; /* fallback: the default's index */
  int least_samples;
} field;

static int is_in(const field *f, int index) {
  return f->of[index].outcome == KILN__OUTCOME_TIMED && f->of[index].samples >= f->least_samples;
}

static int fastest(const field *f) {
  int best = -1;
  for (int i = 0; i < f->count; i++)
    if (is_in(f, i) && (best < 0 || f->of[i].median_ns < f->of[best].median_ns)) best = i;
  return best;
}

/* What noise adds to the difference of two medians, ns: two standard errors of it. */
static double noise_of(const kiln__candidate *a, const kiln__candidate *b) {
  const double least = (double)(a->samples < b->samples ? a->samples : b->samples);
  return 2 * MEDIAN_ERROR * hypot((double)a->mad_ns, (double)b->mad_ns) / sqrt(least);
}

/* noise: how much of it is taken from the candidate's time */
static int ties_with(const kiln__candidate *c, const kiln__candidate *leader, double noise) {
  const int64_t percent = leader->median_ns * TIE_PERCENT / 100;
  const double limit = fmax((double)percent, 2 * (double)leader->mad_ns);
  const double behind = (double)(c->median_ns - leader->median_ns);
  return c == leader || behind - noise * noise_of(c, leader) <= limit;
}

/* The fixed order of those who tie. */
static int is_before(const kiln__candidate *a, const kiln__candidate *b) {
  if (a->spill_bytes != b->spill_bytes) return a->spill_bytes < b->spill_bytes;
  if (a->shared_bytes != b->shared_bytes) return a->shared_bytes < b->shared_bytes;
  return kiln__tile_compare(&a->tile, &b->tile) < 0;
}

/* -1 where the default was not timed */
static int choose(const field *f, double noise) {
  if (f->of[f->fallback].outcome != KILN__OUTCOME_TIMED) return -1;
  const int leader = fastest(f);
  int best = leader;
  for (int i = 0; i < f->count; i++) {
    if (!is_in(f, i) || !ties_with(&f->of[i], &f->of[leader], noise)) continue;
    if (i == f->fallback) return i;
    if (is_before(&f->of[i], &f->of[best])) best = i;
  }
  return best;
}

static field field_of(const kiln__search *s, int least_samples) {
  return (field){s->known, s->space->count, s->space->default_index, least_samples};
}

int kiln__search_leader(const kiln__search *s) {
  const field all = field_of(s, 1);
  return fastest(&all);
}

/* Finalists compare with each other alone; where there was no final race, all do. */
int kiln__search_choose(const kiln__search *s) {
  const int32_t samples = s->known[s->space->default_index].samples;
  const field f = field_of(s, samples < KILN__FINAL_SAMPLES ? 1 : KILN__FINAL_SAMPLES);
  return choose(&f, 0);
}

/* ---- a race ---- */

typedef struct runner {
  int index;    /* of the space */
  void *handle; /* NULL = not running: failed or dropped out */
  kiln__samples samples;
} runner;

static void drop(kiln__search *s, runner *r) {
  if (r->handle) s->measurer.ops->drop(s->measurer.self, r->handle);
  r->handle = NULL;
}

/* An outcome that says nothing of the candidate says that nothing more can be measured. */
static void look_for_end(kiln__search *s, const kiln__candidate *found) {
  if (found->outcome != KILN__OUTCOME_UNKNOWN || s->is_broken) return;
  s->is_broken = 1;
  memcpy(s->reason, found->reason, sizeof s->reason);
}

void kiln__search_expect(kiln__search *s, const int *indexes, int count) {
  kiln_tile tiles[KILN__EXPECTED_MOST];
  int told[KILN__EXPECTED_MOST], num_told = 0;
  for (int i = 0; i < count && num_told < KILN__EXPECTED_MOST; i++) {
    if (s->expected[indexes[i]] || s->known[indexes[i]].outcome != KILN__OUTCOME_UNKNOWN) continue;
    tiles[num_told] = s->space->tiles[indexes[i]];
    told[num_told++] = indexes[i];
  }
  if (!s->measurer.ops->expect || num_told == 0 || is_late(s)) return;
  const int taken = s->measurer.ops->expect(s->measurer.self, tiles, num_told);
  for (int i = 0; i < taken; i++) s->expected[told[i]] = 1;
}

static void prepare(kiln__search *s, int index, runner *r) {
  *r = (runner){.index = index, .samples.found.tile = s->space->tiles[index]};
  r->samples.found.outcome =
      s->measurer.ops->prepare(s->measurer.self, &r->samples.found, &r->handle);
  look_for_end(s, &r->samples.found);
}

static void take_sample(kiln__search *s, runner *r) {
  kiln__candidate *found = &r->samples.found;
  int64_t time = 0;
  s->num_samples++;
  found->outcome = s->measurer.ops->sample(s->measurer.self, r->handle, &time, found->reason);
  if (found->outcome == KILN__OUTCOME_TIMED) {
    kiln__samples_add(&r->samples, time);
    return;
  }
  look_for_end(s, found);
  drop(s, r);
}

/* The least upper quartile of the race: the leader's. */
static int64_t bar_of(const runner *runners, int count) {
  const runner *leader = NULL;
  for (int i = 0; i < count; i++) {
    const runner *r = &runners[i];
    if (r->samples.found.outcome != KILN__OUTCOME_TIMED || r->samples.count == 0) continue;
    if (!leader || r->samples.found.median_ns < leader->samples.found.median_ns) leader = r;
  }
  return leader ? leader->samples.found.upper_ns : INT64_MAX;
}

/* A GPU's clock moves by several per cent from one race to the next, so the default runs in every
 * race, and what others took is told in its own, first time: times this factor. 1 where it was not
 * timed in this race. */
static double factor_of(const kiln__search *s, const runner *runners, int count) {
  const int fallback = s->space->default_index;
  for (int i = 0; i < count; i++) {
    const kiln__candidate *c = &runners[i].samples.found;
    if (runners[i].index == fallback && timed(s, fallback) && c->outcome == KILN__OUTCOME_TIMED &&
        runners[i].samples.count >= KILN__RACE_LEAST)
      return (double)s->known[fallback].median_ns / (double)c->median_ns;
  }
  return 1;
}

static void scale(kiln__candidate *c, double factor) {
  int64_t *const times[] = {&c->median_ns, &c->mad_ns, &c->lower_ns, &c->upper_ns};
  for (int i = 0; i < 4; i++) *times[i] = kiln__time_in_pace(*times[i], 1 / factor);
}

static void drop_slow(kiln__search *s, runner *runners, int count) {
  int64_t bar = bar_of(runners, count);
  const int leader = kiln__search_leader(s);
  const double factor = factor_of(s, runners, count);
  if (leader >= 0 && (double)s->known[leader].upper_ns / factor < (double)bar)
    bar = (int64_t)((double)s->known[leader].upper_ns / factor);
  for (int i = 0; i < count; i++) {
    runner *r = &runners[i];
    if (r->handle && r->index != s->space->default_index && r->samples.found.lower_ns > bar)
      drop(s, r);
  }
}

/* Takes over what a runner found; what had too little time for a figure stays unknown. */
static kiln_status take_over(kiln__search *s, runner *r, double factor) {
  kiln__candidate *c = &r->samples.found;
  drop(s, r);
  if (c->outcome == KILN__OUTCOME_UNKNOWN) return KILN_OK;
  if (c->outcome == KILN__OUTCOME_TIMED && r->samples.count < KILN__RACE_LEAST) return KILN_OK;
  if (c->outcome == KILN__OUTCOME_TIMED && c->mad_ns * 100 > c->median_ns * NOISY_PERCENT) {
    c->outcome = KILN__OUTCOME_NOISY;
    strcpy(c->reason, "its times spread too widely");
  }
  if (c->outcome == KILN__OUTCOME_TIMED) scale(c, factor);
  s->known[r->index] = *c;
  return s->keep ? s->keep(s->user, c) : KILN_OK;
}

/* Whether anybody but the first, who sets the pace, is still in the race. */
static int is_running(const runner *runners, int count) {
  for (int i = 1; i < count; i++)
    if (runners[i].handle) return 1;
  return count == 1 && runners[0].handle != NULL;
}

static void run_round(kiln__search *s, runner *runners, int count) {
  for (int i = 0; i < count && !s->is_broken; i++)
    if (runners[i].handle) take_sample(s, &runners[i]);
}

static void run_rounds(kiln__search *s, runner *runners, int count, int is_final) {
  const int samples = is_final ? KILN__FINAL_SAMPLES : KILN__RACE_SAMPLES;
  for (int round = 0; round < samples && is_running(runners, count) && !is_over(s); round++) {
    run_round(s, runners, count);
    if (round + 1 >= KILN__RACE_LEAST && !is_final) drop_slow(s, runners, count);
  }
}

/* Who failed on the way, or had too little time, is left out. */
static void even_out(runner *runners, int count) {
  kiln__samples *ran[KILN__RACE_GROUP + 1];
  int num = 0;
  for (int i = 0; i < count; i++) {
    kiln__samples *s = &runners[i].samples;
    if (s->found.outcome == KILN__OUTCOME_TIMED && s->count >= KILN__RACE_LEAST) ran[num++] = s;
  }
  kiln__samples_even_out(ran, num);
}

/* Whether noise may change the choice among those of a final race, the first of whom is the
 * default: whether it is another where all but the leader are a little faster, or slower. */
static int is_in_doubt(const runner *runners, int count) {
  runner seen[KILN__RACE_GROUP + 1];
  kiln__candidate found[KILN__RACE_GROUP + 1];
  memcpy(seen, runners, (size_t)count * sizeof *seen);
  even_out(seen, count);
  for (int i = 0; i < count; i++) found[i] = seen[i].samples.found;
  const field finalists = {found, count, 0, 1};
  return choose(&finalists, -1) != choose(&finalists, 1);
}

/* More rounds of a final race while its choice is in doubt. It is whole without them, so a deadline
 * that they meet cuts nothing short. */
static void run_on(kiln__search *s, runner *runners, int count) {
  for (int round = KILN__FINAL_SAMPLES; round < KILN__SAMPLES_MOST; round++) {
    if (!is_running(runners, count) || s->is_broken || is_past(s)) return;
    if (round % KILN__FINAL_SAMPLES == 0 && !is_in_doubt(runners, count)) return;
    run_round(s, runners, count);
  }
}

/* In the final race nobody drops out: who ties with the leader is told by as many samples of each.
 * It is the last word on the default too, and those who did not run in it follow its pace. */
static kiln_status run_group(kiln__search *s, const int *indexes, int count, int is_final) {
  const int fallback = s->space->default_index;
  runner runners[KILN__RACE_GROUP + 1];
  int started = 0;
  if (!is_final && timed(s, fallback) && !is_over(s)) prepare(s, fallback, &runners[started++]);
  const int paced = started;
  for (int i = 0; i < count && !is_over(s); i++) {
    prepare(s, indexes[i], &runners[started++]);
    s->measured++;
  }
  run_rounds(s, runners, started, is_final);
  if (is_final) run_on(s, runners, started);
  even_out(runners, started);
  const double factor = factor_of(s, runners, started);
  kiln_status status = KILN_OK;
  if (is_final)
    for (int i = 0; i < s->space->count; i++)
      if (timed(s, i)) scale(&s->known[i], 1 / factor);
  if (paced) drop(s, &runners[0]);
  for (int i = paced; i < started; i++) {
    const kiln_status kept = take_over(s, &runners[i], is_final ? 1 : factor);
    if (status == KILN_OK) status = kept;
  }
  return status == KILN_OK && s->is_broken ? KILN_DRIVER_FAILED : status;
}

kiln_status kiln__search_race(kiln__search *s, const int *indexes, int count) {
  int *wanted = calloc((size_t)count + 1, sizeof *wanted);
  int left = 0;
  kiln_status status = KILN_OK;
  if (!wanted) return KILN_OUT_OF_MEMORY;
  for (int i = 0; i < count; i++)
    if (s->known[indexes[i]].outcome == KILN__OUTCOME_UNKNOWN) wanted[left++] = indexes[i];
  for (const int *at = wanted; left > 0 && status == KILN_OK && !is_over(s);) {
    const int size = left < KILN__RACE_GROUP ? left : KILN__RACE_GROUP;
    for (int i = 0; i < size; i++)
      if (!s->expected[at[i]]) kiln__search_expect(s, at, left);
    status = run_group(s, at, size, 0);
    at += size;
    left -= size;
  }
  free(wanted);
  return status;
}

/* The default, and the fastest near the leader; gives their number. */
static int find_finalists(const kiln__search *s, int *out) {
  const int leader = kiln__search_leader(s);
  int count = 0;
  out[count++] = s->space->default_index;
  for (;;) {
    int best = -1;
    for (int i = 0; i < s->space->count; i++) {
      const kiln__candidate *c = &s->known[i];
      int taken = !timed(s, i);
      for (int k = 0; k < count; k++) taken |= out[k] == i;
      if (!taken && (best < 0 || c->median_ns < s->known[best].median_ns)) best = i;
    }
    if (best < 0 || count == FINALISTS + 1) return count;
    const int64_t limit = s->known[leader].median_ns * (100 + FINAL_PERCENT) / 100;
    if (s->known[best].median_ns > limit) return count;
    out[count++] = best;
  }
}

/* A journal may hold the final race already. */
static int was_final(const kiln__search *s) {
  const int leader = kiln__search_leader(s), fallback = s->space->default_index;
  return s->known[leader].samples >= KILN__FINAL_SAMPLES &&
         s->known[fallback].samples >= KILN__FINAL_SAMPLES;
}

kiln_status kiln__search_finish(kiln__search *s) {
  int finalists[FINALISTS + 1];
  _Static_assert(FINALISTS + 1 <= KILN__RACE_GROUP, "finalists race together");
  kiln_status status = KILN_OK;
  if (!timed(s, s->space->default_index)) return KILN_CHECK_FAILED;
  const int count = find_finalists(s, finalists);
  if (count > 1 && !is_late(s) && !was_final(s)) status = run_group(s, finalists, count, 1);
  if (status == KILN_OK) s->chosen = kiln__search_choose(s);
  return status == KILN_OK && s->chosen < 0 ? KILN_CHECK_FAILED : status;
}
