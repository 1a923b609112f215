/* What kiln bench counts and in which order it launches, with a device that records; and which
 * kernels its selection holds. The program itself is run by tests/cli/bench.sh. */
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inputs.h"
#include "cli/race.h"
#include "cli/selection.h"
#include "cli/stage.h"
#include "cli/verbs.h"
#include "fake.h"

static kiln_attn_spec spec_of(int32_t head_dim, int32_t head_dim_v, kiln_mask mask) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  spec.head_dim = head_dim;
  spec.head_dim_v = head_dim_v;
  spec.mask = mask;
  return spec;
}

static kiln_attn_args shape_of(int32_t batch, int32_t seqlen_q, int32_t seqlen_k, int32_t heads) {
  kiln_attn_args shape = KILN_ATTN_ARGS_INIT;
  shape.batch = batch;
  shape.seqlen_q = seqlen_q;
  shape.seqlen_k = seqlen_k;
  shape.num_heads = shape.num_heads_k = heads;
  return shape;
}

/* ---- rates ---- */

/* Pair by pair, by the words of the mask in kiln.h. */
static int64_t count_pairs(const kiln_attn_args *shape, kiln_mask mask) {
  int64_t pairs = 0;
  for (int64_t i = 0; i < shape->seqlen_q; i++)
    for (int64_t j = 0; j < shape->seqlen_k; j++)
      pairs += mask == KILN_MASK_NONE || j <= i + shape->seqlen_k - shape->seqlen_q;
  return pairs;
}

START_TEST(operations_are_counted_by_pairs) {
  static const int32_t sizes[][2] = {{1, 1},  {5, 5}, {3, 7}, {7, 3},
                                     {64, 1}, {0, 4}, {4, 0}, {100, 101}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (int mask = KILN_MASK_NONE; mask <= KILN_MASK_CAUSAL; mask++) {
      kiln_attn_spec spec = spec_of(192, 128, (kiln_mask)mask);
      kiln_attn_args shape = shape_of(2, sizes[i][0], sizes[i][1], 6);
      shape.num_heads_k = 3; /* of no matter */
      double flops = kiln__rate_flops(&spec, &shape);
      ck_assert(flops == (double)(2 * 2 * 6 * (192 + 128) * count_pairs(&shape, spec.mask)));
    }
  kiln_attn_spec spec = spec_of(128, 128, KILN_MASK_NONE);
  kiln_attn_args shape = shape_of(4, 4096, 4096, 16);
  ck_assert(kiln__rate_flops(&spec, &shape) == 549755813888.0); /* 4 b h s^2 d */
}
END_TEST

START_TEST(spread_of_samples) {
  double odd[] = {9, 1, 4, 2, 100}, even[] = {4, 1, 3, 10}, one[] = {7};
  kiln__spread s = kiln__rate_spread(odd, 5);
  ck_assert(s.median == 4 && s.least == 1 && s.most == 100 && s.mad == 3);
  s = kiln__rate_spread(even, 4);
  ck_assert(s.median == 3.5 && s.least == 1 && s.most == 10 && s.mad == 1.5);
  s = kiln__rate_spread(one, 1);
  ck_assert(s.median == 7 && s.least == 7 && s.most == 7 && s.mad == 0);
}
END_TEST

/* ---- tensors ---- */

static void expect_normal(const void *codes, int64_t count) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; i++) {
    double x = kiln__decode(KILN_DTYPE_BF16, ((const uint16_t *)codes)[i]);
    sum += x;
    squares += x * x;
  }
  ck_assert_msg(fabs(sum / (double)count) < 0.05, "mean %g", sum / (double)count);
  ck_assert_msg(fabs(squares / (double)count - 1) < 0.05, "variance %g", squares / (double)count);
}

START_TEST(sets_are_normal_and_larger_than_l2) {
  enum { ROWS = 300, HEADS = 2, DIM = 64, DIM_V = 40, BYTES = ROWS * HEADS * 2 };
  fake f;
  kiln__stage stage;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_of(DIM, DIM_V, KILN_MASK_NONE);
  kiln_attn_args shape = shape_of(1, ROWS, ROWS, HEADS);
  ctx->info.memory_bytes = 1 << 30;
  ctx->info.l2_bytes = 1000000;
  ck_assert_int_eq(kiln__stage_create(ctx, &spec, &shape, 1000, 0, &stage), KILN_OK);
  ck_assert_int_eq(f.num_allocs, 2);
  ck_assert_int_ge(stage.num_sets * (BYTES * 2 * (DIM + DIM_V) + 2 * BYTES), 3000000);
  ck_assert_int_le((stage.num_sets - 1) * (BYTES * 2 * (DIM + DIM_V) + 5 * 256 + 2400), 3000000);
  const char *end = stage.memory;
  for (int i = 0; i < stage.num_sets; i++) {
    const kiln_attn_args *a = stage.sets[i];
    const char *tensors[] = {a->q, a->k, a->v, a->o, (const char *)a->lse};
    const int bytes[] = {BYTES * DIM, BYTES * DIM, BYTES * DIM_V, BYTES * DIM_V, BYTES * 2};
    for (int t = 0; t < 5; t++) { /* one behind the other, aligned, no overlap */
      ck_assert(tensors[t] >= end);
      ck_assert(tensors[t] < end + 256);
      ck_assert_uint_eq((uintptr_t)tensors[t] % 256, 0);
      if (t < 3) expect_normal(tensors[t], bytes[t] / 2);
      end = tensors[t] + bytes[t];
    }
    ck_assert_mem_ne(a->q, a->k, 64);
    ck_assert_ptr_eq(a->workspace, stage.workspace);
    ck_assert_uint_eq(a->workspace_bytes, 1000);
    ck_assert_int_eq(a->v_stride.row, HEADS * DIM_V);
  }
  kiln__stage_destroy(&stage);
  ck_assert_int_eq(f.num_frees, 2);
  fake_context_destroy(ctx);
}
END_TEST

/* Sizes whose product fits nothing are refused before any memory is asked for. */
START_TEST(shapes_that_do_not_fit) {
  fake f;
  kiln__stage stage;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_of(256, 256, KILN_MASK_NONE);
  kiln_attn_args shape = shape_of(INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX);
  ctx->info.memory_bytes = 1 << 20;
  ck_assert_int_eq(kiln__stage_create(ctx, &spec, &shape, 0, 0, &stage), KILN_OUT_OF_MEMORY);
  kiln__stage_destroy(&stage);
  shape = shape_of(1, 8, 8, 1);
  ck_assert_int_eq(kiln__stage_create(ctx, &spec, &shape, 1 << 20, 0, &stage), KILN_OUT_OF_MEMORY);
  kiln__stage_destroy(&stage);
  ck_assert_int_eq(f.num_allocs, 0);
  ck_assert_int_eq(kiln__stage_create(ctx, &spec, &shape, 0, 0, &stage), KILN_OK);
  ck_assert_int_eq(stage.num_sets, 1); /* this device says that it has no L2 */
  ck_assert_ptr_null(stage.workspace);
  kiln__stage_destroy(&stage);
  fake_context_destroy(ctx);
}
END_TEST

/* ---- races ---- */

typedef struct course {
  fake f;
  kiln_context *ctx;
  kiln_attn_spec spec;
  kiln__entrant entrants[2];
  kiln__race race;
} course;

static void course_create(course *c, int64_t l2_bytes) {
  kiln_tile tile = KILN_TILE_INIT;
  *c = (course){.spec = spec_of(64, 64, KILN_MASK_NONE)};
  c->ctx = fake_context(&c->f, "");
  c->ctx->info.memory_bytes = 1 << 30;
  c->ctx->info.l2_bytes = l2_bytes;
  for (int i = 0; i < 2; i++) {
    tile.block_m = 64 * (i + 1);
    ck_assert_int_eq(kiln_plan_create(c->ctx, &c->spec, &tile, NULL, &c->entrants[i].plan),
                     KILN_OK);
  }
  c->race = (kiln__race){.ctx = c->ctx,
                         .spec = &c->spec,
                         .shape = shape_of(1, 256, 256, 2),
                         .num_samples = 5,
                         .entrants = c->entrants,
                         .num_entrants = 2};
}

static void course_destroy(course *c) {
  ck_assert_int_gt(c->f.num_allocs, 0);
  ck_assert_int_eq(c->f.num_frees, c->f.num_allocs);
  for (int i = 0; i < 2; i++) kiln_plan_destroy(c->entrants[i].plan);
  fake_context_destroy(c->ctx);
}

/* After 20 ms of each, the kernels take turns sample by sample. */
START_TEST(kernels_take_turns) {
  course c;
  course_create(&c, 0);
  c.f.launch_us = 250;
  ck_assert_int_eq(kiln__race_run(&c.race), KILN_OK);
  ck_assert_int_eq(c.race.num_sets, 1);
  ck_assert_int_eq(c.f.num_launches, 2 * (1 + 80) + 2 * 5);
  for (int i = 0; i < 10; i++) {
    const fake_launch *now = &c.f.launches[(c.f.num_launches - 10 + i) % FAKE_MAX];
    ck_assert_ptr_eq(now->entry, &c.f.launches[i % 2]);
  }
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(c.entrants[i].turns, 1);
    ck_assert(c.entrants[i].spread.median == 250 && c.entrants[i].spread.mad == 0);
  }
  course_destroy(&c);
}
END_TEST

/* 4 sets of 264,192 bytes are 3 L2 of 300,000; a sample of 12 us launches takes 5 rounds. */
START_TEST(samples_are_long_enough) {
  course c;
  course_create(&c, 300000);
  ck_assert_int_eq(kiln__race_run(&c.race), KILN_OK);
  ck_assert_int_eq(c.race.num_sets, 4);
  ck_assert_int_eq(c.entrants[0].turns, 5);
  ck_assert_int_eq(c.f.num_launches, 2 * (4 + 4 * 417 + 5 * 4 * 5));
  for (int i = 0; i < 8; i++) { /* every launch on the next set */
    const fake_launch *now = &c.f.launches[(c.f.num_launches - 8 + i) % FAKE_MAX];
    const fake_launch *before = &c.f.launches[(c.f.num_launches - 9 + i) % FAKE_MAX];
    ck_assert_int_eq((const char *)now->args.q - (const char *)before->args.q,
                     i % 4 ? 264192 : -3 * 264192);
  }
  ck_assert(c.entrants[1].spread.least == 12 && c.entrants[1].spread.most == 12);
  course_destroy(&c);
}
END_TEST

START_TEST(a_failure_ends_the_race) {
  course c;
  course_create(&c, 0);
  c.f.fail_launch = KILN_DRIVER_FAILED;
  ck_assert_int_eq(kiln__race_run(&c.race), KILN_DRIVER_FAILED);
  ck_assert_int_eq(c.f.num_launches, 0);
  course_destroy(&c);
}
END_TEST

/* A device whose clock stands still ends too. */
START_TEST(no_time_at_all) {
  course c;
  course_create(&c, 0);
  c.f.launch_us = 0;
  c.race.num_samples = 1;
  c.race.num_entrants = 1;
  ck_assert_int_eq(kiln__race_run(&c.race), KILN_OK);
  ck_assert_int_eq(c.entrants[0].turns, 1000000);
  course_destroy(&c);
}
END_TEST

/* ---- the selection ---- */

static int64_t select_count(const char *const *words, int count, kiln__selection *selection) {
  kiln__schema schema;
  kiln__args args;
  kiln_context *ctx;
  kiln_status status;
  ck_assert_int_eq(kiln__schema_load(&schema), KILN_OK);
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, NULL, &ctx), KILN_OK);
  ck_assert_int_eq(
      kiln__args_parse(&kiln__verb_bench, &schema, count, (char **)(uintptr_t)words, &args),
      KILN_OK);
  status = kiln__selection_create(ctx, KILN_DEVICE_NONE, &args, KILN__OPEN_IS_GRID, selection);
  ck_assert_int_eq(status, KILN_OK);
  kiln__args_destroy(&args);
  kiln_context_destroy(ctx);
  kiln__schema_destroy(&schema);
  return selection->count;
}

START_TEST(what_is_left_out_is_the_grid) {
  static const char *const bare[] = {"--arch", "sm_90a"};
  static const char *const given[] = {"--arch",  "sm_90,sm_90a", "--head-dim",  "80",
                                      "--dtype", "fp16",         "--algorithm", "standard,flash"};
  kiln__selection s;
  int dims[257] = {0}, causal = 0, fp16 = 0;
  ck_assert_int_eq(select_count(bare, 2, &s), 12);
  ck_assert_int_eq(s.left_out, 0);
  for (int64_t i = 0; i < s.count; i++) {
    const kiln_attn_spec *spec = &s.variants[i].spec;
    ck_assert_int_eq(spec->algorithm, KILN_ALGORITHM_FLASH);
    ck_assert_int_eq(spec->head_dim_v, spec->head_dim);
    dims[spec->head_dim]++;
    causal += spec->mask == KILN_MASK_CAUSAL;
    fp16 += spec->dtype == KILN_DTYPE_FP16;
  }
  ck_assert(dims[64] == 4 && dims[128] == 4 && dims[256] == 4 && causal == 6 && fp16 == 6);
  kiln__selection_destroy(&s);
  ck_assert_int_eq(select_count(given, 8, &s) + s.left_out, 8);
  for (int64_t i = 0; i < s.count; i++) ck_assert_int_eq(s.variants[i].spec.head_dim, 80);
  kiln__selection_destroy(&s);
}
END_TEST

Suite *suite_bench(void) {
  Suite *suite = suite_create("bench");
  TCase *tests = tcase_create("bench");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, operations_are_counted_by_pairs);
  tcase_add_test(tests, spread_of_samples);
  tcase_add_test(tests, sets_are_normal_and_larger_than_l2);
  tcase_add_test(tests, shapes_that_do_not_fit);
  tcase_add_test(tests, kernels_take_turns);
  tcase_add_test(tests, samples_are_long_enough);
  tcase_add_test(tests, a_failure_ends_the_race);
  tcase_add_test(tests, no_time_at_all);
  tcase_add_test(tests, what_is_left_out_is_the_grid);
  suite_add_tcase(suite, tests);
  return suite;
}
