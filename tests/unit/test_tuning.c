/* Strategies, races and choices on a simulated device whose true times are known. */
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "autotune/journal.h"
#include "fixture.h"
#include "landscape.h"

static landscape land;

static void create_land(void) { landscape_create(&land, "sm_90a", 64, 2048, 0.08, 5); }
static void destroy_land(void) { landscape_destroy(&land); }

static kiln_tune_result tune(const char *strategy, unsigned seed) {
  kiln_tune_result r = {.size = sizeof r};
  kiln_status status = landscape_tune(&land, strategy, seed, 0, NULL, &r);
  ck_assert_msg(status == KILN_OK, "%s", landscape_error);
  return r;
}

static double true_us(const kiln_tile *tile) {
  return (double)landscape_row(&land, tile)->median_ns / 1e3;
}

static void expect_tile(const kiln_tile *got, const kiln_tile *wanted) {
  ck_assert_msg(kiln__tile_compare(got, wanted) == 0, "%dx%d s%d w%d, wanted %dx%d s%d w%d",
                got->block_m, got->block_n, got->num_stages, got->num_warps, wanted->block_m,
                wanted->block_n, wanted->num_stages, wanted->num_warps);
}

/* ---- strategies ---- */

static const struct {
  const char *arch;
  int head_dim, seqlen;
} problems[] = {{"sm_90a", 64, 512}, {"sm_90a", 128, 4096}, {"sm_90a", 256, 2048},
                {"sm_90", 64, 1024}, {"sm_90", 128, 4096},  {"sm_90", 256, 512}};

static void compare_strategies(const char *arch, int head_dim, int seqlen, double distortion,
                               unsigned seed) {
  landscape_create(&land, arch, head_dim, seqlen, distortion, seed);
  const kiln_tune_result all = tune("exhaustive", seed), few = tune("hillclimb", seed);
  const kiln_tile standard = landscape_default(&land);
  const double best = true_us(&all.tile), found = true_us(&few.tile);
  ck_assert_int_eq(all.known, land.count);
  ck_assert_msg(found <= 1.02 * best, "%s %d %d distorted by %g, seed %u: %g, the best is %g", arch,
                head_dim, seqlen, distortion, seed, found, best);
  ck_assert_msg(few.known <= 0.25 * all.known, "%s %d: %d of %d tiles", arch, head_dim, few.known,
                all.known);
  ck_assert_double_le(best, 1.005 * true_us(&standard));
  ck_assert_double_le(found, 1.005 * true_us(&standard));
  landscape_destroy(&land);
}

START_TEST(hillclimb_is_near_exhaustive) {
  for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
    compare_strategies(problems[i].arch, problems[i].head_dim, problems[i].seqlen, 0, 1);
}
END_TEST

START_TEST(hillclimb_is_near_exhaustive_where_the_model_errs) {
  for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
    for (unsigned seed = 1; seed <= 10; seed++)
      compare_strategies(problems[i].arch, problems[i].head_dim, problems[i].seqlen, 0.04, seed);
}
END_TEST

/* The neighbours of the default are slow, and every start is: that does not end the climb. */
START_TEST(a_default_that_stands_alone_does_not_end_the_climb) {
  const kiln_tile standard = landscape_default(&land);
  for (int i = 0; i < land.count; i++) land.rows[i].median_ns = 400000;
  landscape_row(&land, &standard)->median_ns = 200000;
  const kiln_tune_result r = tune("hillclimb", 1);
  expect_tile(&r.tile, &standard);
  ck_assert_int_eq(r.known, 14);
}
END_TEST

START_TEST(exhaustive_finds_the_fastest) {
  const kiln_tune_result r = tune("exhaustive", 3);
  int64_t best = INT64_MAX;
  for (int i = 0; i < land.count; i++)
    if (land.rows[i].median_ns < best) best = land.rows[i].median_ns;
  ck_assert_double_le(true_us(&r.tile), 1.011 * (double)best / 1e3);
  ck_assert_double_eq_tol(r.time_us, true_us(&r.tile), 0.01 * r.time_us);
  ck_assert_int_eq(r.legal, land.count);
  ck_assert(r.complete == 1 && r.from_records == 0 && r.failed == 0);
}
END_TEST

START_TEST(estimate_measures_nothing) {
  const kiln_tune_result r = tune("estimate", 1);
  const kiln_tile standard = landscape_default(&land);
  ck_assert(r.samples == 0 && r.measured == 0 && r.time_us == 0);
  ck_assert_double_gt(r.predicted_us, 0);
  expect_tile(&r.tile, &standard); /* the model sees no gain of 5 % on a default that it was
                                      fitted to */
}
END_TEST

/* ---- the choice ---- */

/* All tiles but these are twice as slow. */
static void make_slow(void) {
  for (int i = 0; i < land.count; i++) land.rows[i].median_ns = 400000;
}

static kiln__candidate *tile_at(int block_n, int num_stages) {
  const kiln_tile tile = {sizeof tile, 128, block_n, num_stages, 12};
  return landscape_row(&land, &tile);
}

START_TEST(noise_does_not_change_the_choice) {
  kiln_tune_result first = tune("hillclimb", 100);
  for (unsigned seed = 101; seed < 110; seed++) {
    const kiln_tune_result again = tune("hillclimb", seed);
    expect_tile(&again.tile, &first.tile);
  }
}
END_TEST

START_TEST(ties_go_by_spills_then_shared_memory_then_tile) {
  make_slow();
  kiln__candidate *a = tile_at(128, 2), *b = tile_at(112, 3), *c = tile_at(96, 2);
  a->median_ns = 200400;
  b->median_ns = 200000;
  c->median_ns = 201000;
  a->shared_bytes = b->shared_bytes = c->shared_bytes = 1000;
  kiln_tune_result r = tune("exhaustive", 1);
  expect_tile(&r.tile, &c->tile);
  a->shared_bytes = 900;
  r = tune("exhaustive", 1);
  expect_tile(&r.tile, &a->tile);
  a->spill_bytes = c->spill_bytes = 8;
  r = tune("exhaustive", 1);
  expect_tile(&r.tile, &b->tile);
  b->median_ns = 206000; /* no tie: 3 % slower */
  r = tune("exhaustive", 1);
  expect_tile(&r.tile, &a->tile);
}
END_TEST

START_TEST(a_default_that_ties_stays) {
  const kiln_tile standard = landscape_default(&land);
  make_slow();
  landscape_row(&land, &standard)->median_ns = 201000;
  tile_at(112, 2)->median_ns = 200000;
  kiln_tune_result r = tune("exhaustive", 1);
  expect_tile(&r.tile, &standard);
  tile_at(112, 2)->median_ns = 190000;
  r = tune("exhaustive", 1);
  expect_tile(&r.tile, &tile_at(112, 2)->tile);
  ck_assert_double_lt(r.time_us, r.default_us);
}
END_TEST

/* A GPU's clock, between races and within them: what is compared ran side by side, or in one
 * pace. */
START_TEST(a_drifting_clock_misleads_nobody) {
  static const double periods[] = {20, 0.2, 0.07};
  for (unsigned seed = 1; seed <= 8; seed++) {
    landscape_destroy(&land);
    landscape_create(&land, "sm_90a", 64, 2048, 0.08, seed);
    const kiln_tune_result still = tune("exhaustive", seed);
    const double best = true_us(&still.tile);
    land.device.drift = 0.06;
    for (int i = 0; i < 3; i++) {
      land.device.drift_period = periods[i];
      const kiln_tune_result all = tune("exhaustive", seed), few = tune("hillclimb", seed);
      ck_assert_double_le(true_us(&all.tile), 1.012 * best);
      ck_assert_double_le(true_us(&few.tile), 1.03 * best);
    }
  }
}
END_TEST

/* It swings within the final race, by more than lies between the candidates. */
START_TEST(a_swinging_clock_makes_no_ties) {
  const kiln_tile standard = landscape_default(&land);
  make_slow();
  landscape_row(&land, &standard)->median_ns = 206000;
  tile_at(112, 3)->median_ns = 200000;
  tile_at(96, 2)->median_ns = 203500; /* less shared memory: it would win a tie */
  land.device.drift = 0.04;
  for (int i = 0; i < 10; i++) {
    land.device.drift_period = 0.015 + 0.004 * i;
    const kiln_tune_result r = tune("exhaustive", (unsigned)i);
    expect_tile(&r.tile, &tile_at(112, 3)->tile);
    ck_assert_double_eq_tol(r.default_us / r.time_us, 1.03, 0.01);
  }
}
END_TEST

/* Three that are equal, with noise of their own: what is common to a round is chance, no clock. */
START_TEST(noise_does_not_pass_for_the_clock) {
  const kiln_tile standard = landscape_default(&land);
  make_slow();
  landscape_row(&land, &standard)->median_ns = 200000;
  tile_at(112, 3)->median_ns = tile_at(96, 2)->median_ns = 200000;
  land.noise = 0.025;
  int others = 0;
  for (unsigned seed = 1; seed <= 100; seed++) {
    const kiln_tune_result r = tune("exhaustive", seed);
    others += kiln__tile_compare(&r.tile, &standard) != 0;
  }
  ck_assert_int_le(others, 2);
}
END_TEST

/* Two of which the slower has less shared memory, so it wins where it ties, and it nearly does. */
static void make_doubtful(int64_t behind_ns) {
  const kiln_tile standard = landscape_default(&land);
  make_slow();
  landscape_row(&land, &standard)->median_ns = 230000;
  tile_at(112, 3)->median_ns = 200000;
  tile_at(96, 2)->median_ns = 200000 + behind_ns;
  land.noise = 0.006;
}

START_TEST(a_final_race_goes_on_while_noise_may_change_the_choice) {
  make_doubtful(2600);
  int others = 0;
  for (unsigned seed = 1; seed <= 100; seed++) {
    const kiln_tune_result r = tune("exhaustive", seed);
    others += kiln__tile_compare(&r.tile, &tile_at(112, 3)->tile) != 0;
  }
  ck_assert_int_le(others, 1);
}
END_TEST

START_TEST(slow_candidates_drop_out_early) {
  const kiln_tile standard = landscape_default(&land);
  make_slow();
  landscape_row(&land, &standard)->median_ns = 200000;
  const kiln_tune_result r = tune("exhaustive", 1);
  expect_tile(&r.tile, &standard);
  const int64_t others = land.count - 1,
                groups = (others + KILN__RACE_GROUP - 1) / KILN__RACE_GROUP;
  ck_assert_int_eq(r.samples, KILN__RACE_SAMPLES + KILN__RACE_LEAST * (others + groups));
}
END_TEST

/* ---- faults ---- */

START_TEST(a_fault_costs_one_candidate) {
  for (int outcome = KILN__OUTCOME_COMPILE_FAILED; outcome < KILN__OUTCOME_COUNT; outcome++)
    for (int late = 0; late < 2; late++) {
      const kiln_tune_result whole = tune("exhaustive", 1);
      kiln__candidate *row = landscape_row(&land, &whole.tile);
      const kiln__candidate saved = *row;
      row->outcome = (kiln__outcome)outcome;
      strcpy(row->reason, "planted");
      land.device.fails_in_sample = late;
      const kiln_tune_result r = tune("exhaustive", 1);
      ck_assert_int_eq(r.failed, 1);
      ck_assert_int_eq(r.known, land.count);
      ck_assert_int_ne(kiln__tile_compare(&r.tile, &whole.tile), 0);
      ck_assert_double_le(whole.time_us, 1.005 * r.time_us);
      *row = saved;
    }
}
END_TEST

START_TEST(a_default_that_fails_ends_the_tuning) {
  const kiln_tile standard = landscape_default(&land);
  kiln_tune_result r = {.size = sizeof r};
  landscape_row(&land, &standard)->outcome = KILN__OUTCOME_WRONG_RESULT;
  strcpy(landscape_row(&land, &standard)->reason, "o differs");
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 1, 0, NULL, &r), KILN_CHECK_FAILED);
  ck_assert_ptr_nonnull(strstr(landscape_error, "wrong_result: o differs"));
  landscape_row(&land, &standard)->outcome = KILN__OUTCOME_NOISY;
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 1, 0, NULL, &r), KILN_CHECK_FAILED);
  ck_assert_ptr_nonnull(strstr(landscape_error, "noisy: its times spread too widely"));
}
END_TEST

/* ---- budget and journal ---- */

START_TEST(a_budget_ends_the_search) {
  kiln_tune_result r = {.size = sizeof r}, none = r;
  const kiln_tile standard = landscape_default(&land);
  const double before = land.device.clock;
  ck_assert_int_eq(landscape_tune(&land, "exhaustive", 1, 40, NULL, &r), KILN_OK);
  ck_assert_int_eq(r.complete, 0);
  ck_assert_int_lt(r.known, land.count / 2);
  ck_assert_int_gt(r.known, 8);
  ck_assert_double_le(true_us(&r.tile), 1.005 * true_us(&standard));
  ck_assert_double_lt(land.device.clock - before, 42); /* the compile that was under way */
  ck_assert_int_eq(landscape_tune(&land, "exhaustive", 1, 0.1, NULL, &none), KILN_TIMEOUT);
}
END_TEST

typedef struct counts {
  int choices, candidates, damaged;
  int most_samples; /* of a candidate */
  int chosen_samples;
  char strategy[32];
} counts;

static kiln_status count_line(void *user, int64_t number, kiln__line *line, const char *why) {
  counts *c = user;
  (void)number;
  (void)why;
  if (!line) {
    c->damaged++;
    return KILN_OK;
  }
  c->choices += line->kind == KILN__LINE_CHOICE;
  c->candidates += line->kind == KILN__LINE_CANDIDATE;
  for (int i = 0; i < line->num_candidates; i++) {
    const kiln__candidate *one = &line->candidates[i];
    if (one->samples > c->most_samples) c->most_samples = one->samples;
    if (kiln__tile_compare(&one->tile, &line->tile) == 0) c->chosen_samples = one->samples;
  }
  if (line->kind == KILN__LINE_CHOICE) strcpy(c->strategy, line->strategy);
  return KILN_OK;
}

static counts count_lines(const char *path) {
  counts c = {0};
  char error[256];
  ck_assert_int_eq(kiln__journal_read(path, 0, count_line, &c, error, sizeof error), KILN_OK);
  return c;
}

static counts count_tuning(void) {
  fixture f;
  kiln_tune_result r = {.size = sizeof r};
  fixture_create(&f);
  const char *path = fixture_path(&f, "journal");
  ck_assert_int_eq(landscape_tune(&land, "exhaustive", 1, 0, path, &r), KILN_OK);
  const counts c = count_lines(path);
  fixture_destroy(&f);
  return c;
}

/* How many of each the final race took. */
static int final_samples(void) { return count_tuning().most_samples; }

/* Many tie, and those with the least shared memory are not among the six that were in it. */
START_TEST(who_was_not_in_the_final_race_is_not_chosen) {
  const kiln_tile standard = landscape_default(&land);
  for (int i = 0; i < land.count; i++) land.rows[i].median_ns = 200000;
  landscape_row(&land, &standard)->median_ns = 230000;
  ck_assert_int_ge(count_tuning().chosen_samples, KILN__FINAL_SAMPLES);
}
END_TEST

START_TEST(a_final_race_is_as_long_as_its_doubt) {
  make_doubtful(4000);
  ck_assert_int_eq(final_samples(), KILN__FINAL_SAMPLES);
  make_doubtful(2500);
  ck_assert_int_gt(final_samples(), KILN__FINAL_SAMPLES);
  ck_assert_int_lt(final_samples(), KILN__SAMPLES_MOST);
  make_doubtful(2000);
  ck_assert_int_eq(final_samples(), KILN__SAMPLES_MOST);
}
END_TEST

/* What it takes beyond its least, it takes where there is time: without, it is whole. */
START_TEST(a_deadline_ends_a_final_race_in_doubt) {
  kiln_tune_result r = {.size = sizeof r};
  make_doubtful(2000);
  const double start = land.device.clock;
  const int64_t samples = tune("exhaustive", 1).samples;
  const double whole = land.device.clock - start;
  ck_assert_int_eq(landscape_tune(&land, "exhaustive", 1, whole - 0.1, NULL, &r), KILN_OK);
  ck_assert_int_eq(r.complete, 1);
  ck_assert_int_lt(r.samples, samples - 100);
  ck_assert_int_eq(landscape_tune(&land, "exhaustive", 1, whole - 0.3, NULL, &r), KILN_OK);
  ck_assert_int_eq(r.complete, 0);
}
END_TEST

START_TEST(a_finished_tuning_is_not_repeated) {
  fixture f;
  kiln_tune_result first = {.size = sizeof first}, again = first;
  fixture_create(&f);
  char path[320];
  strcpy(path, fixture_path(&f, "journal"));
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 1, 0, path, &first), KILN_OK);
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 2, 0, path, &again), KILN_OK);
  ck_assert(again.from_records == 1 && again.samples == 0 && again.measured == 0);
  ck_assert_double_eq(again.time_us, first.time_us);
  expect_tile(&again.tile, &first.tile);
  ck_assert_int_eq(count_lines(path).choices, 1);
  /* another driver, another tuning */
  strcpy(land.environment.driver, "590.1");
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 2, 0, path, &again), KILN_OK);
  ck_assert_int_eq(again.from_records, 0);
  fixture_destroy(&f);
}
END_TEST

START_TEST(a_new_candidate_is_one_measurement) {
  fixture f;
  kiln_tune_result r = {.size = sizeof r};
  fixture_create(&f);
  char path[320], other[320];
  strcpy(path, fixture_path(&f, "journal"));
  strcpy(other, fixture_path(&f, "without"));
  ck_assert_int_eq(landscape_tune(&land, "exhaustive", 1, 0, path, &r), KILN_OK);
  /* the journal without the lines of one slow tile, and without the choice */
  FILE *from = fopen(path, "r"), *to = fopen(other, "w");
  static char line[1 << 20];
  while (fgets(line, sizeof line, from)) {
    const char *tile = strstr(line, "\"tile\":{\"block_m\":64,\"block_n\":16,\"num_stages\":2,");
    if (!strstr(line, "\"kind\":\"choice\"") && !tile) fputs(line, to);
  }
  fclose(from);
  fclose(to);
  ck_assert_int_eq(landscape_tune(&land, "exhaustive", 1, 0, other, &r), KILN_OK);
  ck_assert_int_eq(r.measured, 1);
  fixture_destroy(&f);
}
END_TEST

/* Kills a tuning after every so many records by keeping that many lines and a torn one. */
START_TEST(a_killed_tuning_goes_on) {
  fixture f;
  kiln_tune_result whole = {.size = sizeof whole}, rest = whole;
  fixture_create(&f);
  char path[320], cut[320];
  strcpy(path, fixture_path(&f, "journal"));
  strcpy(cut, fixture_path(&f, "cut"));
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 7, 0, path, &whole), KILN_OK);
  const int lines = count_lines(path).candidates;
  ck_assert_int_gt(lines, 10);
  for (int kept = 0; kept < lines; kept += 3) {
    static char line[1 << 20];
    FILE *from = fopen(path, "r"), *to = fopen(cut, "w");
    for (int i = 0; i < kept; i++) fputs(fgets(line, sizeof line, from), to);
    fwrite(fgets(line, sizeof line, from), 1, 100, to);
    fclose(from);
    fclose(to);
    ck_assert_int_eq(landscape_tune(&land, "hillclimb", 7, 0, cut, &rest), KILN_OK);
    expect_tile(&rest.tile, &whole.tile);
    ck_assert_int_le(rest.measured, whole.measured - (kept < lines - 7 ? kept : 0));
    const counts c = count_lines(cut);
    ck_assert(c.choices == 1 && c.damaged == 1); /* the torn line, ended by what came after */
  }
  fixture_destroy(&f);
}
END_TEST

START_TEST(a_faulty_tile_is_not_tried_on_another_shape) {
  fixture f;
  kiln_tune_result r = {.size = sizeof r};
  fixture_create(&f);
  char path[320];
  strcpy(path, fixture_path(&f, "journal"));
  kiln__candidate *row = tile_at(112, 2);
  row->outcome = KILN__OUTCOME_HANG;
  ck_assert_int_eq(landscape_tune(&land, "exhaustive", 1, 0, path, &r), KILN_OK);
  land.shape.seqlen_k *= 4;
  row->outcome = KILN__OUTCOME_TIMED;
  ck_assert_int_eq(landscape_tune(&land, "exhaustive", 1, 0, path, &r), KILN_OK);
  ck_assert_int_eq(r.failed, 1);
  fixture_destroy(&f);
}
END_TEST

START_TEST(a_partial_tuning_is_kept_and_continued) {
  fixture f;
  kiln_tune_result r = {.size = sizeof r};
  fixture_create(&f);
  char path[320];
  strcpy(path, fixture_path(&f, "journal"));
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 1, 8, path, &r), KILN_OK);
  ck_assert_int_eq(r.complete, 0);
  ck_assert_str_eq(count_lines(path).strategy, "partial");
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 1, 0, path, &r), KILN_OK);
  ck_assert(r.complete == 1 && r.from_records == 0);
  ck_assert_str_eq(count_lines(path).strategy, "hillclimb");
  fixture_destroy(&f);
}
END_TEST

START_TEST(a_journal_that_cannot_be_written_ends_the_tuning) {
  kiln_tune_result r = {.size = sizeof r};
  fixture f;
  fixture_create(&f);
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 1, 0, f.folder, &r), KILN_IO_FAILED);
  ck_assert_ptr_nonnull(strstr(landscape_error, f.folder));
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 1, 0, "/dev/full", &r), KILN_IO_FAILED);
  fixture_destroy(&f);
}
END_TEST

/* ---- neighbours ---- */

START_TEST(neighbours_are_one_step_away) {
  kiln__space space;
  int near[KILN__NEIGHBOURS_MAX], seen[4] = {0};
  ck_assert_int_eq(kiln__space_create(land.ctx, &land.spec, &land.shape, 132, &space), KILN_OK);
  const int at = kiln__space_find(&space, &tile_at(128, 3)->tile);
  const int count = kiln__space_neighbours(&space, at, near);
  for (int i = 0; i < count; i++) {
    const kiln_tile *t = &space.tiles[near[i]];
    if (t->block_m != 128) {
      ck_assert(t->block_n == 128 && t->num_stages == 3);
      seen[0]++;
    } else if (t->block_n != 128) {
      ck_assert(abs(t->block_n - 128) == 16 && t->num_stages == 3);
      seen[1]++;
    } else {
      ck_assert_int_eq(abs(t->num_stages - 3), 1);
      seen[2]++;
    }
  }
  ck_assert(seen[0] == 2 && seen[1] == 2 && seen[2] == 2);
  kiln__space_destroy(&space);
}
END_TEST

Suite *suite_tuning(void) {
  Suite *suite = suite_create("tuning");
  TCase *compare = tcase_create("strategies"), *tests = tcase_create("tuning");
  tcase_set_timeout(compare, 60);
  tcase_add_test(compare, hillclimb_is_near_exhaustive);
  tcase_add_test(compare, hillclimb_is_near_exhaustive_where_the_model_errs);
  tcase_add_checked_fixture(tests, create_land, destroy_land);
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, a_default_that_stands_alone_does_not_end_the_climb);
  tcase_add_test(tests, exhaustive_finds_the_fastest);
  tcase_add_test(tests, estimate_measures_nothing);
  tcase_add_test(tests, noise_does_not_change_the_choice);
  tcase_add_test(tests, ties_go_by_spills_then_shared_memory_then_tile);
  tcase_add_test(tests, a_default_that_ties_stays);
  tcase_add_test(tests, slow_candidates_drop_out_early);
  tcase_add_test(tests, a_drifting_clock_misleads_nobody);
  tcase_add_test(tests, a_swinging_clock_makes_no_ties);
  tcase_add_test(tests, noise_does_not_pass_for_the_clock);
  tcase_add_test(tests, a_final_race_goes_on_while_noise_may_change_the_choice);
  tcase_add_test(tests, who_was_not_in_the_final_race_is_not_chosen);
  tcase_add_test(tests, a_final_race_is_as_long_as_its_doubt);
  tcase_add_test(tests, a_deadline_ends_a_final_race_in_doubt);
  tcase_add_test(tests, a_fault_costs_one_candidate);
  tcase_add_test(tests, a_default_that_fails_ends_the_tuning);
  tcase_add_test(tests, a_budget_ends_the_search);
  tcase_add_test(tests, a_finished_tuning_is_not_repeated);
  tcase_add_test(tests, a_new_candidate_is_one_measurement);
  tcase_add_test(tests, a_killed_tuning_goes_on);
  tcase_add_test(tests, a_faulty_tile_is_not_tried_on_another_shape);
  tcase_add_test(tests, a_partial_tuning_is_kept_and_continued);
  tcase_add_test(tests, a_journal_that_cannot_be_written_ends_the_tuning);
  tcase_add_test(tests, neighbours_are_one_step_away);
  suite_add_tcase(suite, compare);
  suite_add_tcase(suite, tests);
  return suite;
}
