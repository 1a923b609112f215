/* The ladder: which record a plan takes, and what refuses one; and the records that are shipped.
 * Records are of simulated tunings with the real generator. */
#include "suites.h"

#include <stdlib.h>
#include <string.h>

#include "autotune/journal.h"
#include "fixture.h"
#include "generator/embedded.h"
#include "landscape.h"
#include "runtime/objects.h"

/* ---- records ---- */

static landscape land;
static fixture files;
static char own[320];

static void tune_at(int seqlen, const char *path) {
  kiln_tune_result r = {.size = sizeof r};
  land.shape.batch = 16384 / seqlen;
  land.shape.seqlen_q = land.shape.seqlen_k = seqlen;
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 1, 0, path, &r), KILN_OK);
}

/* The landscape's context as one of the GPU that was invented for it. */
static void create(void) {
  landscape_create(&land, "sm_90a", 128, 2048, 0.08, 5);
  fixture_create(&files);
  strcpy(own, fixture_path(&files, "own"));
  land.ctx->device_id = 0;
  kiln_device_info *info = &land.ctx->info;
  info->compute_major = 9;
  info->compute_minor = 7; /* so that no record that is shipped is of a near device */
  strcpy(land.environment.compute_capability, "9.7");
  info->num_sms = 132;
  info->shared_bytes_block = 232448;
  info->l2_bytes = 50 << 20;
  strcpy(info->arch, "sm_90a");
  strcpy(info->name, "an invented GPU");
  strcpy(land.environment.kiln, kiln_version());
  land.ctx->env.values[KILN__ENV_KILN_RECORDS] = strdup(own);
}

static void destroy(void) {
  land.ctx->device_id = KILN_DEVICE_NONE;
  landscape_destroy(&land);
  fixture_destroy(&files);
}

static kiln_status choose_at(int seqlen, const kiln_plan_options *options, kiln__chosen_tile *c) {
  const kiln_tile none = KILN_TILE_INIT;
  kiln_attn_args shape = land.shape;
  shape.batch = 16384 / seqlen;
  shape.seqlen_q = shape.seqlen_k = seqlen;
  return kiln__ladder_choose(land.ctx, &land.spec, &none, &shape, options, c);
}

/* The step that is taken for a length; its sentence has to hold the words. */
static kiln_plan_step step_at(int seqlen, const char *words) {
  kiln__chosen_tile c;
  ck_assert_int_eq(choose_at(seqlen, NULL, &c), KILN_OK);
  ck_assert_msg(strstr(c.why, words), "%s", c.why);
  const kiln_plan_step step = c.step;
  kiln__chosen_free(&c);
  return step;
}

/* The last line of `own` with one text in place of another. */
static void rewrite(const char *from, const char *to) {
  static char text[1 << 20], changed[1 << 20];
  text[fixture_read(own, text, sizeof text - 1)] = '\0';
  const char *at = strstr(text, from);
  ck_assert_ptr_nonnull(at);
  char *end = changed;
  for (const char *rest = text; *rest;) {
    at = strstr(rest, from);
    const size_t before = at ? (size_t)(at - rest) : strlen(rest);
    end += sprintf(end, "%.*s%s", (int)before, rest, at ? to : "");
    rest += before + (at ? strlen(from) : 0);
  }
  fixture_write(&files, "own", changed, (size_t)(end - changed));
  kiln__ladder_forget(land.ctx);
}

START_TEST(steps_by_distance) {
  ck_assert_int_eq(step_at(2048, "no tuning record applies"), KILN_STEP_DEFAULT);
  tune_at(2048, own);
  kiln__ladder_forget(land.ctx);
  ck_assert_int_eq(step_at(2048, "exact: tuned on an invented GPU"), KILN_STEP_EXACT);
  ck_assert_int_eq(step_at(2000, own), KILN_STEP_EXACT);
  ck_assert_int_eq(step_at(4096, "near_shape: "), KILN_STEP_NEAR_SHAPE);
  ck_assert_int_eq(step_at(1024, "near_shape: "), KILN_STEP_NEAR_SHAPE);
  ck_assert_int_eq(step_at(512, "no tuning record applies"), KILN_STEP_DEFAULT);
  ck_assert_int_eq(step_at(8192, "no tuning record applies"), KILN_STEP_DEFAULT);
  tune_at(8192, own);
  kiln__ladder_forget(land.ctx);
  ck_assert_int_eq(step_at(8192, "exact"), KILN_STEP_EXACT);
}
END_TEST

/* With as many heads, so that the lengths alone are far. */
START_TEST(what_is_missing_is_named) {
  const kiln_tile none = KILN_TILE_INIT;
  kiln__chosen_tile c;
  tune_at(512, own);
  kiln__ladder_forget(land.ctx);
  ck_assert_int_eq(step_at(512, "exact"), KILN_STEP_EXACT);
  kiln_attn_args shape = land.shape;
  shape.seqlen_q = shape.seqlen_k = 32768;
  ck_assert_int_eq(kiln__ladder_choose(land.ctx, &land.spec, &none, &shape, NULL, &c), KILN_OK);
  ck_assert_int_eq(c.step, KILN_STEP_DEFAULT);
  ck_assert_int_eq(c.tile.block_m, 0);
  ck_assert_ptr_nonnull(strstr(c.ladder, "there is no tuning of these sizes"));
  ck_assert_ptr_nonnull(strstr(c.ladder, "there is no tuning within one bucket of them"));
  kiln__chosen_free(&c);
}
END_TEST

/* Each bucket counts by itself, and the grouping of heads is no distance. */
START_TEST(every_size_counts) {
  const kiln_tile none = KILN_TILE_INIT;
  const int changes[][4] = {{4, 1, 1, 1}, {1, 4, 1, 1}, {1, 1, 4, 1}, {1, 1, 1, 2}};
  kiln__chosen_tile c;
  tune_at(2048, own);
  for (int i = 0; i < 4; i++) {
    kiln_attn_args shape = land.shape;
    shape.seqlen_q *= changes[i][0];
    shape.seqlen_k *= changes[i][1];
    shape.batch *= changes[i][2];
    shape.num_heads_k /= changes[i][3];
    ck_assert_int_eq(kiln__ladder_choose(land.ctx, &land.spec, &none, &shape, NULL, &c), KILN_OK);
    ck_assert_int_eq(c.step, KILN_STEP_DEFAULT);
    kiln__chosen_free(&c);
  }
}
END_TEST

START_TEST(the_chosen_tile_is_the_record_s) {
  kiln__chosen_tile c;
  kiln_tune_result r = {.size = sizeof r};
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 1, 0, own, &r), KILN_OK);
  ck_assert_int_eq(choose_at(2048, NULL, &c), KILN_OK);
  ck_assert_int_eq(kiln__tile_compare(&c.tile, &r.tile), 0);
  const kiln_tile fallback = landscape_default(&land);
  ck_assert_int_ne(kiln__tile_compare(&c.tile, &fallback), 0); /* else this shows nothing */
  json_t *ladder = json_loads(c.ladder, 0, NULL);
  const json_t *record = json_object_get(ladder, "record");
  ck_assert_str_eq(json_string_value(json_object_get(record, "file")), own);
  ck_assert_int_gt(json_array_size(json_object_get(record, "candidates")), 5);
  const json_t *steps = json_object_get(ladder, "steps");
  ck_assert_int_eq(json_array_size(steps), 1);
  ck_assert(json_is_true(json_object_get(json_array_get(steps, 0), "taken")));
  json_decref(ladder);
  kiln__chosen_free(&c);
}
END_TEST

START_TEST(other_environments_are_refused_by_name) {
  kiln__chosen_tile c;
  tune_at(2048, own);
  rewrite("\"num_sms\":132", "\"num_sms\":78");
  ck_assert_int_eq(step_at(2048, "near_device: "), KILN_STEP_NEAR_DEVICE);
  rewrite("\"source_id\":\"", "\"source_id\":\"0");
  ck_assert_int_eq(choose_at(2048, NULL, &c), KILN_OK);
  ck_assert_int_eq(c.step, KILN_STEP_DEFAULT);
  ck_assert_ptr_nonnull(strstr(c.ladder, "is of another environment: num_sms, source_id"));
  kiln__chosen_free(&c);
}
END_TEST

START_TEST(a_doubtful_record_holds_and_says_so) {
  tune_at(2048, own);
  rewrite("\"name\":\"an invented GPU\"", "\"name\":\"another GPU\"");
  ck_assert_int_eq(step_at(2048, "; doubtful, other name"), KILN_STEP_EXACT);
}
END_TEST

START_TEST(a_record_is_data) {
  tune_at(2048, own);
  kiln__chosen_tile c;
  ck_assert_int_eq(choose_at(2048, NULL, &c), KILN_OK);
  char tile[64], illegal[64];
  snprintf(tile, sizeof tile, "\"block_n\":%d,", (int)c.tile.block_n);
  snprintf(illegal, sizeof illegal, "\"block_n\":%d,", (int)c.tile.block_n + 1);
  kiln__chosen_free(&c);
  rewrite(tile, illegal);
  ck_assert_int_eq(step_at(2048, "the tile of its tuning record is refused"), KILN_STEP_DEFAULT);
}
END_TEST

START_TEST(the_first_file_goes_before_the_others) {
  char both[700], other[320];
  kiln__chosen_tile c;
  strcpy(other, fixture_path(&files, "other"));
  tune_at(2048, own);
  tune_at(2048, other);
  for (int swapped = 0; swapped < 2; swapped++) {
    snprintf(both, sizeof both, "%s:%s", swapped ? other : own, swapped ? own : other);
    free(land.ctx->env.values[KILN__ENV_KILN_RECORDS]);
    land.ctx->env.values[KILN__ENV_KILN_RECORDS] = strdup(both);
    kiln__ladder_forget(land.ctx);
    ck_assert_int_eq(choose_at(2048, NULL, &c), KILN_OK);
    ck_assert_ptr_nonnull(strstr(c.why, swapped ? other : own));
    kiln__chosen_free(&c);
  }
}
END_TEST

START_TEST(off_reads_nothing) {
  tune_at(2048, own);
  land.ctx->ladder.mode = KILN__TUNE_OFF;
  ck_assert_int_eq(step_at(2048, "KILN_TUNE is off"), KILN_STEP_DEFAULT);
}
END_TEST

START_TEST(a_lowest_step_refuses_what_lies_below) {
  kiln__chosen_tile c;
  kiln_plan_options options = KILN_PLAN_OPTIONS_INIT;
  options.lowest_step = KILN_STEP_EXACT;
  tune_at(2048, own);
  ck_assert_int_eq(choose_at(2048, &options, &c), KILN_OK);
  kiln__chosen_free(&c);
  ck_assert_int_eq(choose_at(64, &options, &c), KILN_UNSUPPORTED);
  ck_assert_ptr_null(c.why);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(land.ctx), "there is no tuning of these sizes"));
}
END_TEST

START_TEST(an_estimate_asks_the_model) {
  kiln__chosen_tile c;
  kiln_plan_options options = KILN_PLAN_OPTIONS_INIT;
  options.mode = KILN_PLAN_ESTIMATE;
  tune_at(2048, own);
  ck_assert_int_eq(choose_at(2048, &options, &c), KILN_OK);
  ck_assert_int_eq(c.step, KILN_STEP_MODEL);
  ck_assert_ptr_nonnull(strstr(c.why, "the cost model predicts"));
  ck_assert_int_gt(c.tile.block_m, 0);
  kiln__chosen_free(&c);
}
END_TEST

START_TEST(damaged_lines_cost_themselves) {
  tune_at(2048, own);
  rewrite("\"kind\":\"choice\"", "\"kind\":\"choices\"");
  ck_assert_int_eq(step_at(2048, "no tuning record applies"), KILN_STEP_DEFAULT);
  tune_at(4096, own);
  kiln__ladder_forget(land.ctx);
  ck_assert_int_eq(step_at(4096, "exact"), KILN_STEP_EXACT);
}
END_TEST

/* ---- shipped records ---- */

typedef struct shipped {
  kiln__environment here; /* its source id is that of spec */
  kiln_attn_spec spec;
  int count;
} shipped;

/* A kernel whose text has changed is tuned again, or its lines are taken out. */
static kiln_status judge_shipped(void *user, int64_t number, kiln__line *line, const char *why) {
  shipped *s = user;
  ck_assert_msg(line && line->kind == KILN__LINE_CHOICE, "line %lld: %s", (long long)number,
                why ? why : "no finished tuning");
  if (s->count == 0 || !kiln__spec_same(&s->spec, &line->problem.spec))
    kiln__environment_take_source(land.ctx, &line->problem.spec, &s->here);
  s->spec = line->problem.spec;
  ck_assert_msg(strcmp(s->here.source_id, line->environment.source_id) == 0,
                "line %lld is of another text of its kernel", (long long)number);
  ck_assert_int_eq(kiln_attn_spec_resolve(land.ctx, &line->problem.spec, &line->tile), KILN_OK);
  s->count++;
  return KILN_OK;
}

START_TEST(shipped_records_hold) {
  shipped s = {0};
  for (size_t i = 0; i < kiln__embedded_count; i++) {
    const kiln__embedded_file *file = &kiln__embedded_files[i];
    if (strncmp(file->name, "records/", 8) == 0)
      ck_assert_int_eq(kiln__journal_read_memory((const char *)file->bytes, file->length, NULL,
                                                 judge_shipped, &s),
                       KILN_OK);
  }
  ck_assert_int_ge(s.count, 84 + 48); /* forward, backward */
}
END_TEST

/* A fresh context on an H200 measures nothing and takes what was measured there. */
START_TEST(an_h200_takes_the_shipped_ones) {
  kiln_device_info *info = &land.ctx->info;
  info->compute_minor = 0;
  info->l2_bytes = 62914560;
  strcpy(info->name, "NVIDIA H200");
  ck_assert_int_eq(step_at(4096, "exact: tuned on NVIDIA H200"), KILN_STEP_EXACT);
  ck_assert_int_eq(step_at(256, "(shipped:"), KILN_STEP_EXACT);
  ck_assert_int_eq(step_at(128, "near_shape: "), KILN_STEP_NEAR_SHAPE);
  land.spec.pass = KILN_PASS_BACKWARD;
  ck_assert_int_eq(step_at(4096, "(shipped:"), KILN_STEP_EXACT);
  land.spec.pass = KILN_PASS_FORWARD;
  info->num_sms = 114; /* as an H100 for PCIe has */
  ck_assert_int_eq(step_at(4096, "near_device: "), KILN_STEP_NEAR_DEVICE);
}
END_TEST

Suite *suite_ladder(void) {
  Suite *suite = suite_create("ladder");
  TCase *records = tcase_create("records");
  tcase_add_checked_fixture(records, create, destroy);
  tcase_add_test(records, steps_by_distance);
  tcase_add_test(records, what_is_missing_is_named);
  tcase_add_test(records, every_size_counts);
  tcase_add_test(records, the_chosen_tile_is_the_record_s);
  tcase_add_test(records, other_environments_are_refused_by_name);
  tcase_add_test(records, a_doubtful_record_holds_and_says_so);
  tcase_add_test(records, a_record_is_data);
  tcase_add_test(records, the_first_file_goes_before_the_others);
  tcase_add_test(records, off_reads_nothing);
  tcase_add_test(records, a_lowest_step_refuses_what_lies_below);
  tcase_add_test(records, an_estimate_asks_the_model);
  tcase_add_test(records, damaged_lines_cost_themselves);
  tcase_add_test(records, shipped_records_hold);
  tcase_add_test(records, an_h200_takes_the_shipped_ones);
  suite_add_tcase(suite, records);
  return suite;
}
