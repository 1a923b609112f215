/* The lists of tiles and the cost model through the public functions; what the model says is tested
 * by tests/lua/test_tiles.lua. */
#include "suites.h"

#include <kiln/kiln.h>

#include <string.h>

static kiln_context *ctx;

static void open_context(void) {
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  options.cache_dir = "";
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &options, &ctx), KILN_OK);
}

static void close_context(void) { kiln_context_destroy(ctx); }

static kiln_attn_args shape_of(int32_t seqlen) {
  kiln_attn_args shape = KILN_ATTN_ARGS_INIT;
  shape.batch = 4;
  shape.seqlen_q = shape.seqlen_k = seqlen;
  shape.num_heads = shape.num_heads_k = 16;
  return shape;
}

static void expect_refusal(kiln_status status, kiln_status wanted, const char *piece) {
  ck_assert_int_eq(status, wanted);
  ck_assert_msg(strstr(kiln_last_error(ctx), piece) != NULL, "%s", kiln_last_error(ctx));
}

START_TEST(lists_fill_the_room_they_have) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  static kiln_tile all[1024], few[3];
  int32_t count = 0, again = 0;
  memset(few, 0xff, sizeof few);
  ck_assert_int_eq(kiln_tile_list(ctx, &spec, NULL, 0, &count), KILN_OK);
  ck_assert_int_gt(count, 20);
  ck_assert_int_lt(count, 1024);
  ck_assert_int_eq(kiln_tile_list(ctx, &spec, all, 1024, &again), KILN_OK);
  ck_assert_int_eq(again, count);
  ck_assert_int_eq(kiln_tile_list(ctx, &spec, few, 2, &again), KILN_OK);
  ck_assert_int_eq(again, count);
  ck_assert_mem_eq(few, all, 2 * sizeof *few);
  ck_assert_int_eq(few[2].block_m, -1);
  for (int32_t i = 0; i < count; i++) {
    kiln_tile resolved = all[i];
    ck_assert_uint_eq(all[i].size, sizeof(kiln_tile));
    ck_assert_int_eq(kiln_attn_spec_resolve(ctx, &spec, &resolved), KILN_OK);
    ck_assert_mem_eq(&resolved, &all[i], sizeof resolved);
  }
}
END_TEST

START_TEST(lists_refuse_what_no_kernel_serves) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  int32_t count = 7;
  spec.head_dim = 59;
  expect_refusal(kiln_tile_list(ctx, &spec, NULL, 0, &count), KILN_INVALID_ARGUMENT,
                 "head_dim 59 is not a multiple of 8");
  ck_assert_int_eq(count, 0);
  spec.head_dim = 64;
  ck_assert_int_eq(kiln_tile_list(ctx, &spec, NULL, 1, &count), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_tile_list(ctx, &spec, NULL, 0, NULL), KILN_INVALID_ARGUMENT);
}
END_TEST

START_TEST(predictions_follow_shape_and_tile) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_tile narrow = KILN_TILE_INIT;
  kiln_attn_args shape = shape_of(4096), twice = shape_of(8192);
  kiln_prediction one = {.size = sizeof one}, two = one, other = one, few = one;
  narrow.block_n = 32;
  ck_assert_int_eq(kiln_tile_predict(ctx, &spec, NULL, &shape, 0, &one), KILN_OK);
  ck_assert_int_eq(kiln_tile_predict(ctx, &spec, NULL, &twice, 0, &two), KILN_OK);
  ck_assert_int_eq(kiln_tile_predict(ctx, &spec, &narrow, &shape, 0, &other), KILN_OK);
  ck_assert_int_eq(kiln_tile_predict(ctx, &spec, NULL, &shape, 66, &few), KILN_OK);
  ck_assert_double_gt(two.time_us, 3.5 * one.time_us);
  ck_assert_double_lt(two.time_us, 4.5 * one.time_us);
  ck_assert_double_gt(other.time_us, 1.1 * one.time_us);
  ck_assert_double_gt(few.time_us, 1.8 * one.time_us);
  ck_assert_double_gt(one.tensor_us, one.softmax_us);
  ck_assert_double_gt(one.memory_us, 0);
  ck_assert_double_gt(one.launch_us, 0);
  ck_assert_int_eq(one.resident, 1);
}
END_TEST

START_TEST(predictions_fill_the_size_they_have) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args shape = shape_of(1024);
  kiln_prediction p = {.size = offsetof(kiln_prediction, tensor_us), .tensor_us = -1};
  ck_assert_int_eq(kiln_tile_predict(ctx, &spec, NULL, &shape, 0, &p), KILN_OK);
  ck_assert_double_gt(p.time_us, 0);
  ck_assert(p.tensor_us == -1 && p.size == offsetof(kiln_prediction, tensor_us));
}
END_TEST

START_TEST(predictions_refuse_impossible_sizes) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args shape = shape_of(1024);
  kiln_prediction p = {.size = sizeof p};
  shape.num_heads_k = 3;
  expect_refusal(kiln_tile_predict(ctx, &spec, NULL, &shape, 0, &p), KILN_INVALID_ARGUMENT,
                 "num_heads 16 is not a whole multiple of num_heads_k 3");
  shape.num_heads_k = 0;
  expect_refusal(kiln_tile_predict(ctx, &spec, NULL, &shape, 0, &p), KILN_INVALID_ARGUMENT,
                 "num_heads_k 0");
  shape = shape_of(-1);
  expect_refusal(kiln_tile_predict(ctx, &spec, NULL, &shape, 0, &p), KILN_INVALID_ARGUMENT,
                 "a negative size");
  shape = shape_of(64);
  ck_assert_int_eq(kiln_tile_predict(ctx, &spec, NULL, &shape, -1, &p), KILN_INVALID_ARGUMENT);
  ck_assert_double_eq(p.time_us, 0);
}
END_TEST

Suite *suite_tiles(void) {
  Suite *suite = suite_create("tiles");
  TCase *tests = tcase_create("tiles");
  tcase_add_checked_fixture(tests, open_context, close_context);
  tcase_add_test(tests, lists_fill_the_room_they_have);
  tcase_add_test(tests, lists_refuse_what_no_kernel_serves);
  tcase_add_test(tests, predictions_follow_shape_and_tile);
  tcase_add_test(tests, predictions_fill_the_size_they_have);
  tcase_add_test(tests, predictions_refuse_impossible_sizes);
  suite_add_tcase(suite, tests);
  return suite;
}
