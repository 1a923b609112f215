/* What plans and the one call make of the ladder: when is measured, what buckets share, what a
 * capture and a prewarmed call may do. On the fake device, with a tuner that is a table of answers.
 */
#include "suites.h"

#include <stdlib.h>
#include <string.h>

#include "autotune/line.h"
#include "fake.h"
#include "fixture.h"
#include "runtime/bucket.h"

static fixture files;

/* ---- buckets ---- */

START_TEST(buckets_are_those_of_records) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args shape = KILN_ATTN_ARGS_INIT;
  shape.num_heads = shape.num_heads_k = 1;
  for (int64_t x = 0; x <= INT32_MAX; x += x < 5000 ? 1 : x / 97) {
    shape.batch = shape.seqlen_q = shape.seqlen_k = (int32_t)x;
    const kiln__problem p = kiln__problem_of(&spec, &shape);
    ck_assert_int_eq(kiln__bucket_of((uint64_t)x), p.seqlen_q_log2);
    ck_assert_int_eq(kiln__bucket_of((uint64_t)x), p.heads_log2);
  }
}
END_TEST

/* ---- plans ---- */

static struct answers {
  int tunings, tuned; /* calls of tune; whether they leave a record */
  int choices;        /* calls of choose */
  int block_m;        /* of the records; 64 unless set */
  kiln_status fail;
} answers;

static void *open_tuner(int device, const char *template_dir, const char *cache_dir, int jit_off) {
  (void)device, (void)template_dir, (void)cache_dir, (void)jit_off;
  return &answers;
}

static void close_tuner(void *tuner) { (void)tuner; }

static kiln_status fake_tune(void *tuner, kiln_context *ctx, const kiln_attn_spec *spec,
                             const kiln_attn_args *shape, const kiln_tune_options *options,
                             kiln_tune_result *result, char **record, char *error,
                             size_t error_size) {
  (void)tuner, (void)ctx, (void)spec, (void)shape, (void)options, (void)record;
  answers.tunings++;
  snprintf(error, error_size, "the measuring program is missing");
  result->tile.block_m = 64;
  if (answers.fail == KILN_OK) answers.tuned = 1;
  return answers.fail;
}

static kiln_status read_nothing(const kiln_attn_spec *spec, const char *const *paths, int num_files,
                                void **choices, char *warning, size_t warning_size) {
  (void)spec, (void)paths, (void)num_files, (void)warning_size;
  warning[0] = '\0';
  *choices = &answers;
  return KILN_OK;
}

static void free_nothing(void *choices) { (void)choices; }

/* Lengths from 4096 have a record of another tile. */
static kiln_status fake_choose(const void *choices, const kiln_attn_args *shape,
                               const kiln_device_info *device,
                               int (*source_id)(void *user, char id[KILN__ID_SIZE]), void *user,
                               kiln__chosen_tile *chosen) {
  char id[KILN__ID_SIZE];
  (void)choices, (void)device;
  answers.choices++;
  ck_assert_int_eq(source_id(user, id), 0);
  ck_assert_uint_eq(strlen(id), 64);
  const int known = answers.tuned || shape->seqlen_q >= 4096;
  *chosen = (kiln__chosen_tile){.step = known ? KILN_STEP_EXACT : KILN_STEP_DEFAULT,
                                .tile = KILN_TILE_INIT,
                                .why = strdup(known ? "exact: by the table" : "nothing is known"),
                                .ladder = strdup("{}")};
  if (known) chosen->tile.block_m = answers.block_m ? answers.block_m : 64;
  return KILN_OK;
}

static const kiln__tuner_ops fake_tuner = {.open = open_tuner,
                                           .close = close_tuner,
                                           .tune = fake_tune,
                                           .read_choices = read_nothing,
                                           .free_choices = free_nothing,
                                           .choose = fake_choose};

static kiln_context *tuned_context_in(fake *f, const char *cache_dir) {
  kiln_context *ctx = fake_context(f, cache_dir);
  ctx->services.tuner = &fake_tuner;
  answers = (struct answers){0};
  return ctx;
}

static kiln_context *tuned_context(fake *f) { return tuned_context_in(f, ""); }

/* The cache has folders. */
static void clean_files(void) {
  char command[300];
  snprintf(command, sizeof command, "rm -rf %s", files.folder);
  ck_assert_int_eq(system(command), 0);
}

static kiln_attn_args args_at(int seqlen) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  char *memory = (char *)0x100000; /* nothing reads it */
  args.batch = 1;
  args.seqlen_q = args.seqlen_k = seqlen;
  args.num_heads = args.num_heads_k = 2;
  kiln_attn_args_pack(&args, &spec);
  args.q = args.k = args.v = args.o = args.workspace = memory;
  args.workspace_bytes = 1 << 20;
  return args;
}

START_TEST(a_plan_takes_the_record_s_tile) {
  fake f;
  kiln_context *ctx = tuned_context(&f);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args = args_at(4096);
  kiln_plan_info info = {.size = sizeof info};
  kiln_plan *plan;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &args, &plan), KILN_OK);
  kiln_plan_get_info(plan, &info);
  ck_assert_int_eq(info.tile.block_m, 64);
  ck_assert_int_eq(info.step, KILN_STEP_EXACT);
  ck_assert_str_eq(info.why, "exact: by the table");
  kiln_plan_destroy(plan);
  kiln_tile tile = KILN_TILE_INIT; /* what is given is never overridden */
  tile.block_m = 192;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, &tile, &args, &plan), KILN_OK);
  kiln_plan_get_info(plan, &info);
  ck_assert_int_eq(info.tile.block_m, 192);
  ck_assert_int_eq(info.step, KILN_STEP_EXPLICIT);
  kiln_plan_destroy(plan);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(measuring_happens_once) {
  fake f;
  kiln_context *ctx = tuned_context(&f);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args = args_at(1024);
  kiln_plan_options options = KILN_PLAN_OPTIONS_INIT;
  kiln_plan_info info = {.size = sizeof info};
  kiln_plan *plan;
  options.mode = KILN_PLAN_MEASURE;
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(kiln_plan_create_with(ctx, &spec, NULL, &args, &options, &plan), KILN_OK);
    kiln_plan_get_info(plan, &info);
    ck_assert_int_eq(info.step, KILN_STEP_EXACT);
    kiln_plan_destroy(plan);
  }
  ck_assert_int_eq(answers.tunings, 1);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(nothing_is_measured_unless_asked) {
  fake f;
  kiln_context *ctx = tuned_context(&f);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args = args_at(1024);
  kiln_plan_options options = KILN_PLAN_OPTIONS_INIT;
  kiln_plan *plan;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &args, &plan), KILN_OK);
  kiln_plan_destroy(plan);
  ctx->ladder.mode = KILN__TUNE_MEASURE;
  options.mode = KILN_PLAN_CACHED_ONLY;
  ck_assert_int_eq(kiln_plan_create_with(ctx, &spec, NULL, &args, &options, &plan), KILN_OK);
  kiln_plan_destroy(plan);
  ctx->ladder.mode = KILN__TUNE_OFF;
  options.mode = KILN_PLAN_MEASURE;
  ck_assert_int_eq(kiln_plan_create_with(ctx, &spec, NULL, &args, &options, &plan), KILN_OK);
  kiln_plan_destroy(plan);
  ck_assert_int_eq(answers.tunings, 0);
  ctx->ladder.mode = KILN__TUNE_MEASURE; /* and this is what asks */
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &args, &plan), KILN_OK);
  kiln_plan_destroy(plan);
  ck_assert_int_eq(answers.tunings, 1);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(a_failed_measurement_costs_no_plan) {
  fake f;
  kiln_context *ctx = tuned_context(&f);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_plan_options options = KILN_PLAN_OPTIONS_INIT;
  kiln_plan_info info = {.size = sizeof info};
  kiln_plan *plan;
  options.mode = KILN_PLAN_MEASURE;
  answers.fail = KILN_UNSUPPORTED;
  for (int seqlen = 256; seqlen <= 1024; seqlen *= 2) {
    kiln_attn_args args = args_at(seqlen);
    ck_assert_int_eq(kiln_plan_create_with(ctx, &spec, NULL, &args, &options, &plan), KILN_OK);
    kiln_plan_get_info(plan, &info);
    ck_assert_int_eq(info.step, KILN_STEP_DEFAULT);
    ck_assert_ptr_nonnull(strstr(info.why, seqlen == 256 ? "measuring failed (the measuring program"
                                                         : "nothing can be measured here"));
    kiln_plan_destroy(plan);
  }
  ck_assert_int_eq(answers.tunings, 1);
  fake_context_destroy(ctx);
}
END_TEST

/* ---- the one call ---- */

START_TEST(buckets_share_a_kernel) {
  fake f;
  kiln_context *ctx = tuned_context(&f);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  const int lengths[] = {100, 110, 256, 1024, 4096, 8192, 16384, 100, 4096};
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
    kiln_attn_args args = args_at(lengths[i]);
    ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
  }
  ck_assert_int_eq(f.num_launches, 9);
  ck_assert_int_eq(f.num_loads, 1); /* nobody but the first compiles */
  ck_assert_int_eq(f.num_compiles, 1);
  fake_context_destroy(ctx);
  ck_assert_int_eq(f.num_unloads, 1);
}
END_TEST

/* Whether a record chose it or not, the default tile is one kernel. */
START_TEST(the_default_tile_is_loaded_once) {
  fake f;
  fixture_create(&files);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args small = args_at(256), large = args_at(4096);
  kiln_context *ctx = tuned_context_in(&f, files.folder);
  answers.block_m = 128;
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &large, NULL), KILN_OK);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &small, NULL), KILN_OK);
  ck_assert_int_eq(f.num_loads, 1);
  fake_context_destroy(ctx);
  clean_files();
}
END_TEST

/* What another process has compiled is loaded; what is to be measured is compiled. */
START_TEST(buckets_take_what_is_at_hand) {
  fake f;
  fixture_create(&files);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args small = args_at(256), large = args_at(4096);
  kiln_context *ctx = tuned_context_in(&f, files.folder);
  ck_assert_int_eq(kiln_prewarm(ctx, &spec, &large, 1), KILN_OK);
  fake_context_destroy(ctx);
  ctx = tuned_context_in(&f, files.folder);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &small, NULL), KILN_OK);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &large, NULL), KILN_OK);
  ck_assert(f.num_compiles == 1 && f.num_loads == 2);
  fake_context_destroy(ctx);
  ctx = tuned_context(&f);
  ctx->ladder.mode = KILN__TUNE_MEASURE;
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &large, NULL), KILN_OK);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &small, NULL), KILN_OK);
  ck_assert_int_eq(answers.tunings, 1);
  fake_context_destroy(ctx);
  clean_files();
}
END_TEST

/* KILN_JIT=off: the tuned tile's kernel was never compiled here, the default's was. */
START_TEST(what_is_not_at_hand_is_passed_over) {
  fake f;
  fixture_create(&files);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args small = args_at(256), large = args_at(4096);
  kiln_plan_options options = KILN_PLAN_OPTIONS_INIT;
  kiln_plan_info info = {.size = sizeof info};
  kiln_plan *plan;
  kiln_context *ctx = tuned_context_in(&f, files.folder);
  ck_assert_int_eq(kiln_prewarm(ctx, &spec, &small, 1), KILN_OK);
  ctx->compile_off = 1;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &large, &plan), KILN_OK);
  kiln_plan_get_info(plan, &info);
  ck_assert(info.step == KILN_STEP_DEFAULT && info.tile.block_m == 128);
  ck_assert_ptr_nonnull(strstr(info.why, "no kernel is at hand of exact: by the table"));
  kiln_plan_destroy(plan);
  options.lowest_step = KILN_STEP_EXACT;
  ck_assert_int_eq(kiln_plan_create_with(ctx, &spec, NULL, &large, &options, &plan),
                   KILN_MISSING_KERNEL);
  fake_context_destroy(ctx);
  clean_files();
}
END_TEST

START_TEST(lengths_of_a_bucket_tune_once) {
  fake f;
  kiln_context *ctx = tuned_context(&f);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  int choices = 0;
  ctx->ladder.mode = KILN__TUNE_MEASURE;
  for (int seqlen = 1000; seqlen <= 1100; seqlen++) {
    kiln_attn_args args = args_at(seqlen);
    ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
    if (seqlen == 1000) choices = answers.choices;
  }
  ck_assert_int_eq(answers.tunings, 1);
  ck_assert_int_eq(answers.choices, choices); /* the ladder is climbed for the first alone */
  ck_assert_int_eq(f.num_loads, 1);
  ck_assert_int_eq(f.num_launches, 101);
  fake_context_destroy(ctx);
}
END_TEST

/* By none of the modes is anything chosen, rendered, compiled or loaded in a capture. */
START_TEST(a_first_call_in_a_capture_is_refused) {
  const kiln__tune_mode modes[] = {KILN__TUNE_OFF, KILN__TUNE_CACHED, KILN__TUNE_MEASURE};
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args = args_at(1024);
  for (int i = 0; i < 3; i++) {
    fake f;
    kiln_context *ctx = tuned_context(&f);
    kiln_plan *plan;
    ctx->ladder.mode = modes[i];
    f.capturing = 1;
    ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_CAPTURE_ACTIVE);
    ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &args, &plan), KILN_CAPTURE_ACTIVE);
    ck_assert_ptr_null(plan);
    ck_assert_int_eq(answers.choices + answers.tunings, 0);
    ck_assert_int_eq(f.num_renders + f.num_compiles + f.num_loads + f.num_launches, 0);
    f.capturing = 0;
    ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
    ck_assert_int_eq(answers.tunings, modes[i] == KILN__TUNE_MEASURE);
    fake_context_destroy(ctx);
  }
}
END_TEST

START_TEST(a_capture_takes_what_is_there) {
  fake f;
  kiln_context *ctx = tuned_context(&f);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args = args_at(256);
  f.capturing = 1;
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_CAPTURE_ACTIVE);
  f.capturing = 0;
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
  f.capturing = 1;
  args = args_at(8192);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
  ck_assert_int_eq(f.num_loads, 1);
  ck_assert_int_eq(f.num_launches, 2);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(prewarmed_calls_load_nothing) {
  fake f;
  kiln_context *ctx = tuned_context(&f);
  kiln_attn_spec specs[3] = {KILN_ATTN_SPEC_INIT, KILN_ATTN_SPEC_INIT, KILN_ATTN_SPEC_INIT};
  kiln_attn_args shapes[3] = {args_at(256), args_at(4096), args_at(256)};
  ck_assert_int_eq(kiln_prewarm(ctx, specs, shapes, 2), KILN_OK);
  ck_assert_int_eq(f.num_launches, 0);
  const int loads = f.num_loads, compiles = f.num_compiles, renders = f.num_renders;
  for (int i = 0; i < 1000; i++)
    ck_assert_int_eq(kiln_attn_forward(ctx, &specs[0], &shapes[i % 2], NULL), KILN_OK);
  ck_assert(f.num_loads == loads && f.num_compiles == compiles && f.num_renders == renders);
  specs[0].head_dim = 7;
  specs[2].head_dim = 9; /* the one in the middle is made all the same */
  ck_assert_int_eq(kiln_prewarm(ctx, specs, shapes, 3), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "2 of 3 plans could not be made"));
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "head_dim is 7"));
  ck_assert_int_eq(kiln_prewarm(ctx, NULL, NULL, 1), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_prewarm(ctx, NULL, NULL, 0), KILN_OK);
  fake_context_destroy(ctx);
}
END_TEST

Suite *suite_ladder_plans(void) {
  Suite *suite = suite_create("ladder_plans");
  TCase *tests = tcase_create("ladder_plans");
  tcase_add_test(tests, buckets_are_those_of_records);
  tcase_add_test(tests, a_plan_takes_the_record_s_tile);
  tcase_add_test(tests, measuring_happens_once);
  tcase_add_test(tests, nothing_is_measured_unless_asked);
  tcase_add_test(tests, a_failed_measurement_costs_no_plan);
  tcase_add_test(tests, buckets_share_a_kernel);
  tcase_add_test(tests, the_default_tile_is_loaded_once);
  tcase_add_test(tests, buckets_take_what_is_at_hand);
  tcase_add_test(tests, what_is_not_at_hand_is_passed_over);
  tcase_add_test(tests, lengths_of_a_bucket_tune_once);
  tcase_add_test(tests, a_first_call_in_a_capture_is_refused);
  tcase_add_test(tests, a_capture_takes_what_is_there);
  tcase_add_test(tests, prewarmed_calls_load_nothing);
  suite_add_tcase(suite, tests);
  return suite;
}
