/* From arguments to launches, on a device that records: what is refused and in which words, the
 * derived values, grids, tensor maps, workspace. */
#include "suites.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "fake.h"

#define MEMORY ((char *)0x100000) /* an address that nothing reads */

/* batch 2, seqlen_q 300, seqlen_k 200, heads 6/3, head_dim 64: packed */
static void good_args(kiln_attn_args *args) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  *args = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  spec.head_dim = 64;
  args->batch = 2;
  args->seqlen_q = 300;
  args->seqlen_k = 200;
  args->num_heads = 6;
  args->num_heads_k = 3;
  kiln_attn_args_pack(args, &spec);
  args->q = MEMORY;
  args->k = MEMORY + 0x10000;
  args->v = MEMORY + 0x20000;
  args->o = MEMORY + 0x30000;
  args->lse = (float *)(MEMORY + 0x40000);
  args->workspace = MEMORY + 0x50000;
  args->workspace_bytes = 4096;
}

typedef struct bench {
  fake device;
  kiln__record record;
  kiln__loaded loaded;
  kiln_attn_args args;
  char sentence[1024];
} bench;

static void bench_init(bench *b) {
  memset(b, 0, sizeof *b);
  fake_parse_record(fake_record, &b->record);
  b->loaded.ops = &fake_device_ops;
  b->loaded.device = &b->device;
  b->loaded.num_sms = 4;
  b->loaded.record = &b->record;
  b->loaded.entries[0] = &b->device;
  good_args(&b->args);
}

static kiln_status bench_run(bench *b) {
  kiln__text error;
  kiln__text_init_fixed(&error, b->sentence, sizeof b->sentence);
  return kiln__launch_run(&b->loaded, &b->args, NULL, &error);
}

/* ---- refusals ---- */

static void set_batch(bench *b) { b->args.batch = -1; }
static void set_seqlen_q(bench *b) { b->args.seqlen_q = -5; }
static void set_seqlen_k(bench *b) { b->args.seqlen_k = -2; }
static void set_long_q(bench *b) { b->args.seqlen_q = 0x7ffff001; }
static void set_long_k(bench *b) { b->args.seqlen_k = INT32_MAX, b->args.k_stride.row = 0; }
static void set_no_heads(bench *b) { b->args.num_heads = 0; }
static void set_no_heads_k(bench *b) { b->args.num_heads_k = 0; }
static void set_ratio(bench *b) { b->args.num_heads = 10, b->args.num_heads_k = 4; }
static void set_nan(bench *b) { b->args.softmax_scale = NAN; }
static void set_inf(bench *b) { b->args.softmax_scale = INFINITY; }
static void set_negative(bench *b) { b->args.softmax_scale = -0.5f; }
static void set_null_q(bench *b) { b->args.q = NULL; }
static void set_null_v(bench *b) { b->args.v = NULL; }
static void set_null_o(bench *b) { b->args.o = NULL; }
static void set_k_plus_2(bench *b) { b->args.k = MEMORY + 2; }
static void set_k_plus_8(bench *b) { b->args.k = MEMORY + 8; }
static void set_row_68(bench *b) { b->args.v_stride.row = 196; }
static void set_lse_odd(bench *b) { b->args.lse = (float *)(MEMORY + 2); }
static void set_negative_stride(bench *b) { b->args.k_stride.row = -64; }
static void set_huge_stride(bench *b) { b->args.q_stride.batch = INT64_C(1) << 40; }
static void set_o_broadcast(bench *b) { b->args.o_stride.head = 0; }
static void set_o_overlap(bench *b) { b->args.o_stride.head = 56; }
static void set_o_rows_overlap(bench *b) { b->args.o_stride.row = 5 * 64; }
static void set_many_tiles(bench *b) { /* 2^32, which fit no 32 bits of a persistent kernel */
  kiln_attn_spec spec = b->record.spec;
  b->args.batch = b->args.num_heads = b->args.num_heads_k = 65536;
  b->args.seqlen_q = 1;
  b->args.workspace_bytes = SIZE_MAX;
  kiln_attn_args_pack(&b->args, &spec);
}
static void set_small_workspace(bench *b) { b->args.workspace_bytes = 1000; }
static void set_no_workspace(bench *b) { b->args.workspace = NULL; }
static void set_odd_workspace(bench *b) { b->args.workspace = MEMORY + 16; }

static const struct {
  void (*spoil)(bench *b);
  kiln_status status;
  const char *named[3]; /* what the sentence must hold */
} refusals[] = {
    {set_batch, KILN_INVALID_ARGUMENT, {"batch is -1", "not be negative"}},
    {set_seqlen_q, KILN_INVALID_ARGUMENT, {"seqlen_q is -5"}},
    {set_seqlen_k, KILN_INVALID_ARGUMENT, {"seqlen_k is -2"}},
    {set_long_q, KILN_INVALID_ARGUMENT, {"seqlen_q is 2147479553", "at most 2147479552"}},
    {set_long_k, KILN_INVALID_ARGUMENT, {"seqlen_k is 2147483647", "at most 2147479552"}},
    {set_no_heads, KILN_INVALID_ARGUMENT, {"num_heads is 0", "at least 1"}},
    {set_no_heads_k, KILN_INVALID_ARGUMENT, {"num_heads_k is 0"}},
    {set_ratio, KILN_INVALID_ARGUMENT, {"num_heads is 10", "num_heads_k is 4", "whole multiple"}},
    {set_nan, KILN_INVALID_ARGUMENT, {"softmax_scale is", "nan"}},
    {set_inf, KILN_INVALID_ARGUMENT, {"softmax_scale is inf"}},
    {set_negative, KILN_INVALID_ARGUMENT, {"softmax_scale is -0.5", "KILN_SCALE_DEFAULT"}},
    {set_null_q, KILN_INVALID_ARGUMENT, {"q is NULL"}},
    {set_null_v, KILN_INVALID_ARGUMENT, {"v is NULL"}},
    {set_null_o, KILN_INVALID_ARGUMENT, {"o is NULL"}},
    {set_k_plus_2, KILN_MISALIGNED, {"k's address", "aligned to 2 bytes", "needs 16"}},
    {set_k_plus_8, KILN_MISALIGNED, {"k's address", "aligned to 8 bytes", "needs 16"}},
    {set_row_68, KILN_MISALIGNED, {"v's row stride", "aligned to 8 bytes", "needs 16"}},
    {set_lse_odd, KILN_MISALIGNED, {"lse"}},
    {set_negative_stride, KILN_INVALID_ARGUMENT, {"k's row stride is -64"}},
    {set_huge_stride, KILN_INVALID_ARGUMENT, {"q's batch stride"}},
    {set_o_broadcast, KILN_INVALID_ARGUMENT, {"o's head stride is 0", "overlap"}},
    {set_o_overlap, KILN_INVALID_ARGUMENT, {"o's head stride is 56", "at least 64"}},
    {set_o_rows_overlap, KILN_INVALID_ARGUMENT, {"o's row stride is 320", "at least 384"}},
    {set_many_tiles, KILN_INVALID_ARGUMENT, {"batch, num_heads and seqlen_q are too large"}},
    {set_small_workspace, KILN_WORKSPACE_TOO_SMALL, {"has 1000 bytes", "needs 1024"}},
    {set_no_workspace, KILN_WORKSPACE_TOO_SMALL, {"has 0 bytes"}},
    {set_odd_workspace, KILN_MISALIGNED, {"workspace"}},
};

START_TEST(refusals_launch_nothing) {
  bench b;
  bench_init(&b);
  refusals[_i].spoil(&b);
  ck_assert_int_eq(bench_run(&b), refusals[_i].status);
  for (int i = 0; i < 3 && refusals[_i].named[i]; i++)
    ck_assert_msg(strstr(b.sentence, refusals[_i].named[i]) != NULL, "%s", b.sentence);
  ck_assert_int_eq(b.device.num_launches + b.device.num_clears + b.device.num_maps, 0);
}
END_TEST

/* ---- what is legal ---- */

START_TEST(the_derived_values) {
  bench b;
  bench_init(&b);
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  ck_assert_int_eq(b.device.num_launches, 1);
  const fake_launch *l = &b.device.launches[0];
  ck_assert_int_eq(l->num_params, 5);
  ck_assert_int_eq(l->shape.threads, 384);
  ck_assert_int_eq(l->args.tiles, 3 * 6 * 2);
  ck_assert_uint_eq(l->grid[0], 4); /* persistent: one block per SM */
  ck_assert_uint_eq(l->grid[1], 1);
  ck_assert_int_eq(l->args.group, 2);
  ck_assert_int_eq(l->args.m_blocks, 3);
  ck_assert_int_eq(l->args.shift, 8);
  ck_assert(l->args.softmax_scale == 0.125f);
  ck_assert(fabsf(l->args.scale_log2 - 0.125f * 1.442695041f) < 1e-7f);
  ck_assert_ptr_eq(l->args.q, b.args.q);
  ck_assert_ptr_eq(l->args.lse, b.args.lse);
  ck_assert_ptr_eq(l->args.workspace, b.args.workspace);
  ck_assert_int_eq(l->args.k_stride.row, 3 * 64);
}
END_TEST

START_TEST(scales) {
  bench b;
  bench_init(&b);
  b.args.softmax_scale = 0;
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  ck_assert(b.device.launches[0].args.softmax_scale == 0);
  ck_assert(b.device.launches[0].args.scale_log2 == FLT_TRUE_MIN);
  b.args.softmax_scale = FLT_MAX;
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  ck_assert(b.device.launches[1].args.scale_log2 == FLT_MAX);
}
END_TEST

START_TEST(shift_is_the_rounded_up_logarithm) {
  static const int32_t rows[][2] = {{0, 0}, {1, 0},   {2, 1},   {3, 2},
                                    {4, 2}, {127, 7}, {129, 8}, {INT32_MAX, 31}};
  bench b;
  bench_init(&b);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    kiln__forward_args out;
    b.args.seqlen_k = rows[i][0];
    kiln__launch_args(&b.record, &b.args, &out);
    ck_assert_int_eq(out.shift, rows[i][1]);
  }
}
END_TEST

START_TEST(empty_sizes) {
  bench b;
  bench_init(&b);
  b.args.batch = 0;
  b.args.q = b.args.k = b.args.v = b.args.o = NULL;
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  bench_init(&b);
  b.args.seqlen_q = 0;
  b.args.q = b.args.o = NULL;
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  ck_assert_int_eq(b.device.num_launches, 0);
  bench_init(&b);
  b.args.seqlen_k = 0; /* outputs are still written */
  b.args.k = b.args.v = NULL;
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  ck_assert_int_eq(b.device.num_launches, 1);
  ck_assert_ptr_eq(b.device.maps[KILN__K].address, b.args.q);
  for (int i = 1; i < 4; i++) ck_assert_uint_eq(b.device.maps[KILN__K].dims[i], 1);
}
END_TEST

START_TEST(unused_strides_may_be_anything) {
  bench b;
  bench_init(&b);
  b.args.batch = 1;
  b.args.seqlen_q = 1;
  b.args.num_heads_k = 1;
  b.args.q_stride.batch = b.args.k_stride.batch = b.args.o_stride.batch = -3;
  b.args.q_stride.row = 1;
  b.args.o_stride.row = 0;
  b.args.k_stride.head = b.args.v_stride.head = 5;
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  for (int m = 0; m < 4; m++)
    for (int i = 0; i < 3; i++) ck_assert_uint_eq(b.device.maps[m].strides[i] % 16, 0);
}
END_TEST

START_TEST(broadcast_and_sliced_tensors) {
  bench b;
  bench_init(&b);
  b.args.k_stride = (kiln_stride){0, 64, 0};
  b.args.v_stride = (kiln_stride){0, 2 * 64, 0};
  b.args.o_stride = (kiln_stride){64, 2 * 6 * 64 * 2, 2 * 64}; /* batch innermost */
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  ck_assert_uint_eq(b.device.maps[KILN__K].strides[0], 128);
  ck_assert_uint_eq(b.device.maps[KILN__K].strides[1], 0);
  ck_assert_uint_eq(b.device.maps[KILN__K].strides[2], 0);
  ck_assert_uint_eq(b.device.maps[KILN__K].dims[3], 2);
}
END_TEST

START_TEST(tensor_maps) {
  bench b;
  bench_init(&b);
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  ck_assert_int_eq(b.device.num_maps, 4);
  const kiln__tensor_map *q = &b.device.maps[KILN__Q];
  const uint64_t dims[4] = {64, 300, 6, 2};
  const uint64_t strides[3] = {6 * 64 * 2, 64 * 2, 300 * 6 * 64 * 2};
  const uint32_t box[4] = {64, 128, 1, 1};
  ck_assert_mem_eq(q->dims, dims, sizeof dims);
  ck_assert_mem_eq(q->strides, strides, sizeof strides);
  ck_assert_mem_eq(q->box, box, sizeof box);
  ck_assert_int_eq(q->swizzle, 128);
  ck_assert_int_eq(q->dtype, KILN_DTYPE_BF16);
  ck_assert_uint_eq(b.device.maps[KILN__V].dims[2], 3);
}
END_TEST

START_TEST(workspace) {
  bench b;
  size_t bytes;
  kiln__text error;
  bench_init(&b);
  kiln__text_init_fixed(&error, b.sentence, sizeof b.sentence);
  /* 16 -> 256, then 100 bytes * 3 * 2 -> 768 */
  ck_assert_int_eq(kiln__launch_workspace(&b.record, &b.args, &error, &bytes), KILN_OK);
  ck_assert_uint_eq(bytes, 1024);
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  ck_assert_int_eq(b.device.num_clears, 1);
  ck_assert_uint_eq(b.device.cleared[0], 256);
  ck_assert_ptr_eq(b.device.cleared_at[0], b.args.workspace);
  b.record.workspace[1].zero = 1;
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  ck_assert_int_eq(b.device.num_clears, 3);
  ck_assert_ptr_eq(b.device.cleared_at[2], (char *)b.args.workspace + 256);
  ck_assert_uint_eq(b.device.cleared[2], 768);
  b.record.workspace[1].bytes = INT64_C(3) << 60; /* times 6 it is positive again in 64 bits */
  ck_assert_int_eq(kiln__launch_workspace(&b.record, &b.args, &error, &bytes),
                   KILN_INVALID_ARGUMENT);
  ck_assert_uint_eq(bytes, 0);
}
END_TEST

START_TEST(grids) {
  uint32_t grid[2];
  ck_assert_int_eq(kiln__grid_choose(1000, 0, 132, 1, grid), 0);
  ck_assert_uint_eq(grid[0], 1000);
  ck_assert_int_eq(kiln__grid_choose(1000, 2, 132, 1, grid), 0);
  ck_assert_uint_eq(grid[0], 264);
  ck_assert_int_eq(kiln__grid_choose(3, 0, 132, 2, grid), 0);
  ck_assert_uint_eq(grid[0], 6); /* a cluster for each tile */
  ck_assert_int_eq(kiln__grid_choose(1000, 1, 133, 2, grid), 0);
  ck_assert_uint_eq(grid[0], 132); /* whole clusters */
  ck_assert_int_eq(kiln__grid_choose(INT64_C(3) << 31, 0, 132, 1, grid), 0);
  ck_assert_uint_eq(grid[0], 2147483647u);
  ck_assert_uint_eq(grid[1], 4);
  ck_assert_int_eq(kiln__grid_choose(INT64_C(3) << 31, 0, 132, 4, grid), 0);
  ck_assert_uint_eq(grid[0] % 4, 0);
  ck_assert_uint_ge((uint64_t)grid[0] * grid[1], UINT64_C(3) << 33);
  ck_assert_int_eq(kiln__grid_choose(INT64_MAX / 2, 0, 132, 1, grid), -1);
}
END_TEST

START_TEST(too_many_blocks_are_refused) {
  bench b;
  bench_init(&b);
  b.record.spec.head_dim = b.record.spec.head_dim_v = 8;
  b.record.entries[0].persistent = 0;
  b.record.entries[0].grid[0].divisor = 1;
  b.args.batch = b.args.seqlen_q = 1 << 20;
  b.args.num_heads = b.args.num_heads_k = 1 << 10;
  kiln_attn_args_pack(&b.args, &b.record.spec);
  b.args.workspace_bytes = SIZE_MAX;
  ck_assert_int_eq(bench_run(&b), KILN_INVALID_ARGUMENT);
  ck_assert_msg(strstr(b.sentence, "more blocks than a launch can hold") != NULL, "%s", b.sentence);
  ck_assert_int_eq(b.device.num_launches, 0);
}
END_TEST

START_TEST(a_failed_launch_is_reported) {
  bench b;
  bench_init(&b);
  b.device.fail_launch = KILN_DRIVER_FAILED;
  ck_assert_int_eq(bench_run(&b), KILN_DRIVER_FAILED);
  ck_assert_str_eq(b.sentence, "the fake does not launch");
}
END_TEST

/* The contract of docs/record.md: the kernel's copy of the struct has these offsets. */
START_TEST(the_layout_of_the_arguments) {
  ck_assert_uint_eq(offsetof(kiln__forward_args, workspace), 40);
  ck_assert_uint_eq(offsetof(kiln__forward_args, q_stride), 48);
  ck_assert_uint_eq(offsetof(kiln__forward_args, o_stride), 120);
  ck_assert_uint_eq(offsetof(kiln__forward_args, tiles), 144);
  ck_assert_uint_eq(offsetof(kiln__forward_args, batch), 152);
  ck_assert_uint_eq(offsetof(kiln__forward_args, group), 172);
  ck_assert_uint_eq(offsetof(kiln__forward_args, softmax_scale), 184);
  ck_assert_uint_eq(sizeof(kiln__forward_args), 192);
}
END_TEST

Suite *suite_launch(void) {
  Suite *suite = suite_create("launch");
  TCase *tests = tcase_create("launch");
  tcase_add_loop_test(tests, refusals_launch_nothing, 0,
                      (int)(sizeof refusals / sizeof refusals[0]));
  tcase_add_test(tests, the_derived_values);
  tcase_add_test(tests, scales);
  tcase_add_test(tests, shift_is_the_rounded_up_logarithm);
  tcase_add_test(tests, empty_sizes);
  tcase_add_test(tests, unused_strides_may_be_anything);
  tcase_add_test(tests, broadcast_and_sliced_tensors);
  tcase_add_test(tests, tensor_maps);
  tcase_add_test(tests, workspace);
  tcase_add_test(tests, grids);
  tcase_add_test(tests, too_many_blocks_are_refused);
  tcase_add_test(tests, a_failed_launch_is_reported);
  tcase_add_test(tests, the_layout_of_the_arguments);
  suite_add_tcase(suite, tests);
  return suite;
}
