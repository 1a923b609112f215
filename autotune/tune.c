/* See tune.h. */
#include "autotune/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/child.h"
#include "autotune/journal.h"
#include "autotune/simulate.h"

#define LOCK_WAIT_MS 600000 /* afterwards a problem is measured by two processes at once */

typedef struct session {
  const kiln__tuning *tuning;
  kiln__problem problem;
  kiln__space space;
  kiln__search search;
  int chosen_before; /* by a journal's choice of at least the strategy's effort; -1 = none */
  char *error;
  size_t error_size;
} session;

/* ---- what the journal knows ---- */

static int same_environment(const kiln__environment *a, const kiln__environment *b) {
  char hard[256], soft[256];
  kiln__environment_compare(a, b, hard, soft, sizeof hard);
  return !hard[0] && !soft[0];
}

/* A tile that failed for one shape fails for every other; that its times spread is of one. */
static int fails_everywhere(kiln__outcome outcome) {
  return outcome != KILN__OUTCOME_TIMED && outcome != KILN__OUTCOME_NOISY;
}

static kiln_status learn(void *user, int64_t number, kiln__line *line, const char *why) {
  session *s = user;
  (void)number;
  (void)why;
  if (!line || !same_environment(&line->environment, &s->tuning->environment)) return KILN_OK;
  const int same = kiln__problem_same(&line->problem, &s->problem);
  if (!kiln__spec_same(&line->problem.spec, &s->problem.spec)) return KILN_OK;
  for (int i = 0; i < line->num_candidates; i++) {
    const kiln__candidate *c = &line->candidates[i];
    const int index = kiln__space_find(&s->space, &c->tile);
    /* Without a time of the default there is no tuning: it is tried again. */
    if (index == s->space.default_index && c->outcome == KILN__OUTCOME_NOISY) continue;
    if (index >= 0 && (same || fails_everywhere(c->outcome))) s->search.known[index] = *c;
  }
  if (!same || line->kind != KILN__LINE_CHOICE) return KILN_OK;
  const kiln__strategy *strategy = kiln__strategy_find(line->strategy);
  if (strategy && strategy->effort >= s->tuning->strategy->effort)
    s->chosen_before = kiln__space_find(&s->space, &line->tile);
  return KILN_OK;
}

/* A choice among all tiles is one only while there is no new tile. */
static int is_done(const session *s) {
  if (s->chosen_before < 0) return 0;
  if (s->tuning->strategy != &kiln__strategy_exhaustive) return 1;
  for (int i = 0; i < s->space.count; i++)
    if (s->search.known[i].outcome == KILN__OUTCOME_UNKNOWN) return 0;
  return 1;
}

/* ---- what it is told ---- */

static kiln__line line_of(const session *s, kiln__line_kind kind, kiln__candidate *candidates,
                          int count) {
  return (kiln__line){.kind = kind,
                      .environment = s->tuning->environment,
                      .problem = s->problem,
                      .shape = s->tuning->shape,
                      .candidates = candidates,
                      .num_candidates = count};
}

static void tell(const session *s) {
  int known = 0;
  if (!s->tuning->progress) return;
  for (int i = 0; i < s->space.count; i++)
    known += s->search.known[i].outcome != KILN__OUTCOME_UNKNOWN;
  s->tuning->progress(s->tuning->progress_user, known, s->tuning->strategy->most(&s->space));
}

static kiln_status keep(void *user, const kiln__candidate *candidate) {
  const session *s = user;
  kiln__candidate copy = *candidate;
  tell(s);
  if (!s->tuning->records) return KILN_OK;
  const kiln__line line = line_of(s, KILN__LINE_CANDIDATE, &copy, 1);
  return kiln__journal_append(s->tuning->records, &line, s->error, s->error_size);
}

/* A search that ran out of time says so in place of its strategy: it is usable, and the next one
 * goes on. */
static kiln__line choice_of(const session *s, kiln__candidate *candidates, int count) {
  kiln__line line = line_of(s, KILN__LINE_CHOICE, candidates, count);
  line.tile = s->space.tiles[s->search.chosen];
  line.standard = s->space.tiles[s->space.default_index];
  snprintf(line.strategy, sizeof line.strategy, "%s",
           s->search.out_of_time ? "partial" : s->tuning->strategy->name);
  return line;
}

static kiln_status keep_choice(const session *s) {
  int count = 0;
  if (!s->tuning->records) return KILN_OK;
  kiln__candidate *candidates = calloc((size_t)s->space.count, sizeof *candidates);
  if (!candidates) return KILN_OUT_OF_MEMORY;
  for (int i = 0; i < s->space.count; i++)
    if (s->search.known[i].outcome != KILN__OUTCOME_UNKNOWN)
      candidates[count++] = s->search.known[i];
  const kiln__line line = choice_of(s, candidates, count);
  kiln_status status = kiln__journal_append(s->tuning->records, &line, s->error, s->error_size);
  free(candidates);
  return status;
}

/* The choice with all tiles, and what the model said of each. */
static kiln_status give_record(session *s) {
  if (!s->tuning->record) return KILN_OK;
  for (int i = 0; i < s->space.count; i++) s->search.known[i].tile = s->space.tiles[i];
  const kiln__line line = choice_of(s, s->search.known, s->space.count);
  char *text = kiln__line_text(&line);
  json_t *root = text ? json_loads(text, 0, NULL) : NULL;
  free(text);
  const json_t *list = json_object_get(root, "candidates");
  for (int i = 0; i < s->space.count; i++)
    json_object_set_new(json_array_get(list, (size_t)i), "predicted_us",
                        json_real(s->space.predicted_us[i]));
  *s->tuning->record = root ? json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
  json_decref(root);
  return *s->tuning->record ? KILN_OK : KILN_OUT_OF_MEMORY;
}

/* ---- the run ---- */

static kiln_status refuse_default(session *s) {
  const kiln__candidate *c = &s->search.known[s->space.default_index];
  if (c->outcome == KILN__OUTCOME_UNKNOWN)
    snprintf(s->error, s->error_size,
             "the budget ended before the default tile was timed; give a larger --budget");
  else
    snprintf(s->error, s->error_size,
             "the default tile could not be timed (%s: %s); nothing was chosen, so look at it with "
             "kiln verify, or tune again when the device is idle",
             kiln__outcome_name(c->outcome), c->reason);
  return c->outcome == KILN__OUTCOME_UNKNOWN ? KILN_TIMEOUT : KILN_CHECK_FAILED;
}

/* The default, and most of what the strategy will measure. */
static void foresee(session *s) {
  int list[KILN__EXPECTED_MOST], count = 0;
  const int most = s->tuning->strategy->most(&s->space);
  list[count++] = s->space.default_index;
  for (int i = 0; i < most && count < KILN__EXPECTED_MOST; i++)
    if (s->space.order[i] != s->space.default_index) list[count++] = s->space.order[i];
  kiln__search_expect(&s->search, list, count);
}

static kiln_status search(session *s) {
  kiln__search *x = &s->search;
  foresee(s);
  kiln_status status = kiln__search_race(x, &s->space.default_index, 1);
  if (status != KILN_OK) return status;
  if (x->known[s->space.default_index].outcome != KILN__OUTCOME_TIMED) return refuse_default(s);
  status = s->tuning->strategy->run(x);
  if (status == KILN_OK) status = kiln__search_finish(x);
  return status == KILN_CHECK_FAILED ? refuse_default(s) : status;
}

/* The journal is read with the lock held: what another process has measured by then is known. */
static kiln_status measure(session *s, int *from_records) {
  const kiln__tuning *t = s->tuning;
  const int lock = t->records ? kiln__journal_lock(t->records, LOCK_WAIT_MS) : -1;
  kiln_status status = KILN_OK;
  if (t->budget_s > 0) s->search.deadline = t->measurer.ops->now(t->measurer.self) + t->budget_s;
  if (t->records) status = kiln__journal_read(t->records, 1, learn, s, s->error, s->error_size);
  *from_records = status == KILN_OK && is_done(s);
  if (*from_records) {
    s->search.chosen = s->chosen_before;
  } else if (status == KILN_OK) {
    status = search(s);
    if (status == KILN_OK) status = keep_choice(s);
    if (s->search.is_broken)
      snprintf(s->error, s->error_size, "measuring ended: %s", s->search.reason);
  }
  kiln__journal_unlock(lock);
  return status;
}

static double median_us(const kiln__candidate *c) {
  return c->outcome == KILN__OUTCOME_TIMED ? (double)c->median_ns / 1e3 : 0;
}

static void report(const session *s, int from_records, kiln_tune_result *r) {
  const kiln__search *x = &s->search;
  const int chosen = x->chosen, fallback = s->space.default_index;
  *r = (kiln_tune_result){.size = sizeof *r,
                          .tile = s->space.tiles[chosen],
                          .default_tile = s->space.tiles[fallback],
                          .time_us = median_us(&x->known[chosen]),
                          .default_us = median_us(&x->known[fallback]),
                          .predicted_us = s->space.predicted_us[chosen],
                          .legal = s->space.count,
                          .measured = x->measured,
                          .samples = x->num_samples,
                          .complete = !x->out_of_time,
                          .from_records = from_records};
  for (int i = 0; i < s->space.count; i++) {
    const kiln__outcome outcome = x->known[i].outcome;
    r->known += outcome != KILN__OUTCOME_UNKNOWN;
    r->failed += outcome != KILN__OUTCOME_UNKNOWN && outcome != KILN__OUTCOME_TIMED;
  }
}

static kiln_status run(session *s, kiln_tune_result *result) {
  int from_records = 0;
  s->search.keep = keep;
  s->search.user = s;
  kiln_status status = s->tuning->strategy->measures ? measure(s, &from_records)
                                                     : s->tuning->strategy->run(&s->search);
  if (status == KILN_OK) status = give_record(s);
  if (status == KILN_OK) report(s, from_records, result);
  return status;
}

kiln_status kiln__tuning_run(const kiln__tuning *t, kiln_tune_result *result, char *error,
                             size_t error_size) {
  session s = {.tuning = t, .chosen_before = -1, .error = error, .error_size = error_size};
  snprintf(error, error_size, "no memory is left to tune");
  s.problem = kiln__problem_of(&t->spec, &t->shape);
  kiln_status status =
      kiln__space_create(t->ctx, &t->spec, &t->shape, t->environment.num_sms, &s.space);
  if (status != KILN_OK) {
    snprintf(error, error_size, "%s", kiln_last_error(t->ctx));
    return status;
  }
  if (t->wanted && kiln__space_restrict(&s.space, t->wanted, t->user) != 0) {
    snprintf(error, error_size, "there is no time of the default tile; record a tuning first");
    status = KILN_INVALID_ARGUMENT;
  }
  if (status == KILN_OK) status = kiln__search_create(&s.space, t->measurer, &s.search);
  if (status == KILN_OK) status = run(&s, result);
  kiln__search_destroy(&s.search);
  kiln__space_destroy(&s.space);
  return status;
}

/* ---- a journal in place of a device ---- */

typedef struct replay {
  kiln__problem problem;
  int found;
  kiln__environment environment; /* of the first record of the problem */
  kiln__candidate *rows;
  int count, room;
} replay;

static kiln_status add_row(replay *r, const kiln__candidate *candidate) {
  for (int i = 0; i < r->count; i++) {
    if (kiln__tile_compare(&r->rows[i].tile, &candidate->tile) != 0) continue;
    r->rows[i] = *candidate;
    return KILN_OK;
  }
  if (r->count == r->room) {
    const int room = r->room ? 2 * r->room : 64;
    kiln__candidate *grown = realloc(r->rows, (size_t)room * sizeof *grown);
    if (!grown) return KILN_OUT_OF_MEMORY;
    r->rows = grown;
    r->room = room;
  }
  r->rows[r->count++] = *candidate;
  return KILN_OK;
}

static kiln_status collect(void *user, int64_t number, kiln__line *line, const char *why) {
  replay *r = user;
  kiln_status status = KILN_OK;
  (void)number;
  (void)why;
  if (!line || !kiln__problem_same(&line->problem, &r->problem)) return KILN_OK;
  if (!r->found) r->environment = line->environment;
  r->found = 1;
  if (!same_environment(&line->environment, &r->environment)) return KILN_OK;
  for (int i = 0; i < line->num_candidates && status == KILN_OK; i++)
    status = add_row(r, &line->candidates[i]);
  return status;
}

static int is_row(void *user, const kiln_tile *tile) {
  const replay *r = user;
  for (int i = 0; i < r->count; i++)
    if (kiln__tile_compare(&r->rows[i].tile, tile) == 0) return 1;
  return 0;
}

static kiln_status simulate(kiln__tuning t, const char *path, kiln_tune_result *result, char *error,
                            size_t error_size) {
  replay r = {.problem = kiln__problem_of(&t.spec, &t.shape)};
  snprintf(error, error_size, "no memory is left for %s", path);
  kiln_status status = kiln__journal_read(path, 0, collect, &r, error, error_size);
  if (status == KILN_OK && !r.found) {
    snprintf(error, error_size, "%s has no record of this problem; kiln records show lists them",
             path);
    status = KILN_INVALID_ARGUMENT;
  }
  if (status == KILN_OK) {
    kiln__simulation device = {.rows = r.rows, .count = r.count, .seed = 1, .noise = -1};
    t.environment = r.environment;
    t.measurer = kiln__simulation_measurer(&device);
    t.wanted = is_row;
    t.user = &r;
    status = kiln__tuning_run(&t, result, error, error_size);
  }
  free(r.rows);
  return status;
}

/* ---- the device ---- */

void *kiln__tuner_open(int device, const char *template_dir, const char *cache_dir, int jit_off) {
  const kiln__child_options options = {
      .device = device, .template_dir = template_dir, .cache_dir = cache_dir, .jit_off = jit_off};
  return kiln__child_create(&options);
}

void kiln__tuner_close(void *tuner) { kiln__child_destroy(tuner); }

static kiln_status measure_on(kiln__child *child, kiln__tuning t, kiln_tune_result *result,
                              char *error, size_t error_size) {
  const char *sentence = NULL;
  kiln_status status = kiln__environment_of(t.ctx, &t.spec, &t.environment);
  if (status != KILN_OK) {
    snprintf(error, error_size, "%s", kiln_last_error(t.ctx));
    return status;
  }
  kiln__child_set_problem(child, &t.spec, &t.shape);
  t.measurer = kiln__child_measurer(child);
  status = kiln__tuning_run(&t, result, error, error_size);
  const kiln_status failure = kiln__child_failure(child, &sentence);
  if (status == KILN_OK || failure == KILN_OK) return status;
  snprintf(error, error_size, "%s", sentence);
  return failure;
}

kiln_status kiln__tune(void *tuner, kiln_context *ctx, const kiln_attn_spec *spec,
                       const kiln_attn_args *shape, const kiln_tune_options *options,
                       kiln_tune_result *result, char **record, char *error, size_t error_size) {
  kiln__tuning t = {.ctx = ctx,
                    .spec = *spec,
                    .shape = *shape,
                    .budget_s = options->budget_s,
                    .records = options->records,
                    .record = record,
                    .progress = options->progress,
                    .progress_user = options->progress_user};
  if (record) *record = NULL;
  t.strategy = kiln__strategy_find(options->strategy ? options->strategy : "hillclimb");
  if (!t.strategy) {
    snprintf(error, error_size, "strategy %s is unknown; there are %s", options->strategy,
             kiln__strategy_names());
    return KILN_INVALID_ARGUMENT;
  }
  if (options->simulate) return simulate(t, options->simulate, result, error, error_size);
  if (!t.strategy->measures) {
    t.budget_s = 0; /* there is no clock */
    return kiln__tuning_run(&t, result, error, error_size);
  }
  if (kiln__child_has_device(tuner)) return measure_on(tuner, t, result, error, error_size);
  snprintf(error, error_size,
           "tuning measures on a GPU and the context has none: create it with the number of a GPU, "
           "or give a journal to replay (--simulate)");
  return KILN_NO_DEVICE;
}
