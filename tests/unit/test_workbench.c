/* The workbench and its proof, over a device whose launches compute attention on the host: a kernel
 * that is right is timed, one that is wrong in any of the ways below is not. */
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inputs.h"
#include "cli/stage.h"
#include "cli/workbench.h"
#include "fake.h"

enum { DIM = 64 }; /* of the fake's record, which is bf16 and without a mask */

/* What is wrong with the kernel. */
typedef enum flaw {
  NONE,
  LAST_KEY_MISSING, /* of every sequence of more than one key */
  SCALED,           /* o is 1 % too large */
  LSE_SHIFTED,
  ROW_MISSING,   /* the last row is not written */
  WRITES_BEYOND, /* one element behind o */
  OTHER_BITS,    /* now and then */
  FAULT          /* the launch fails */
} flaw;

/* The device is the fake alone; what its kernel does wrong is kept beside it. */
typedef struct bench_device {
  fake f; /* first: the context's device */
  flaw flaw;
  int num_computed;
  size_t room; /* bytes of an allocation that still works; 0 = any */
} bench_device;

static double value(const void *tensor, int64_t at) {
  return kiln__decode(KILN_DTYPE_BF16, ((const uint16_t *)tensor)[at]);
}

static int64_t at(const kiln_stride *s, int64_t batch, int64_t row, int64_t head) {
  return batch * s->batch + row * s->row + head * s->head;
}

static double score(const kiln__forward_args *a, int64_t q, int64_t k) {
  double sum = 0;
  for (int col = 0; col < DIM; col++) sum += value(a->q, q + col) * value(a->k, k + col);
  return sum * (double)a->softmax_scale;
}

/* One row of o by the definition; gives its lse. */
static double attend(const bench_device *d, const kiln__forward_args *a, int64_t batch, int64_t row,
                     int64_t head, double o[DIM]) {
  const int64_t head_k = head / a->group;
  const int keys = a->seqlen_k - (d->flaw == LAST_KEY_MISSING);
  double scores[512], largest = -INFINITY, sum = 0;
  memset(o, 0, DIM * sizeof *o);
  ck_assert_int_le(keys, 512);
  for (int j = 0; j < keys; j++) {
    scores[j] = score(a, at(&a->q_stride, batch, row, head), at(&a->k_stride, batch, j, head_k));
    largest = fmax(largest, scores[j]);
  }
  for (int j = 0; j < keys; j++) {
    const double weight = exp(scores[j] - largest);
    sum += weight;
    for (int col = 0; col < DIM; col++)
      o[col] += weight * value(a->v, at(&a->v_stride, batch, j, head_k) + col);
  }
  for (int col = 0; col < DIM; col++) o[col] /= sum;
  return largest + log(sum) + (d->flaw == LSE_SHIFTED ? 0.01 : 0);
}

static void compute_row(const bench_device *d, const kiln__forward_args *a, int64_t batch,
                        int64_t row, int64_t head) {
  double o[DIM];
  const double lse = attend(d, a, batch, row, head, o);
  uint16_t *to = (uint16_t *)a->o + at(&a->o_stride, batch, row, head);
  if (d->flaw == ROW_MISSING && row == a->seqlen_q - 1) return;
  for (int col = 0; col < DIM; col++)
    to[col] = kiln__encode(KILN_DTYPE_BF16, o[col] * (d->flaw == SCALED ? 1.01 : 1));
  if (a->lse) a->lse[(batch * a->num_heads + head) * a->seqlen_q + row] = (float)lse;
}

static void compute(bench_device *d, const kiln__forward_args *a) {
  uint16_t *o = a->o;
  for (int64_t b = 0; b < a->batch; b++)
    for (int64_t h = 0; h < a->num_heads; h++)
      for (int64_t row = 0; row < a->seqlen_q; row++) compute_row(d, a, b, row, h);
  if (d->flaw == OTHER_BITS && d->num_computed % 2) o[0] ^= 1;
  if (d->flaw == WRITES_BEYOND)
    o[at(&a->o_stride, a->batch - 1, a->seqlen_q - 1, a->num_heads - 1) + DIM] = 0;
  d->num_computed++;
}

/* Timed launches are of the stage, and need no answer: those have a row of 512 and more queries. */
static kiln_status launch(void *device, const kiln__launch *l, struct CUstream_st *stream,
                          kiln__text *error) {
  bench_device *d = device;
  kiln__forward_args args;
  kiln_status status = fake_device_ops.launch(device, l, stream, error);
  memcpy(&args, l->params[l->num_params - 1], sizeof args);
  if (d->flaw == FAULT) {
    kiln__text_string(error, "planted: CUDA_ERROR_ILLEGAL_ADDRESS");
    return KILN_DRIVER_FAILED;
  }
  if (args.seqlen_q < 512) compute(d, &args);
  return status;
}

static kiln_status synchronize(void *device, kiln__text *error) {
  (void)device, (void)error;
  return KILN_OK;
}

static kiln_status memory_alloc(void *device, size_t bytes, void **address, kiln__text *error) {
  bench_device *d = device;
  if (d->room && bytes > d->room) {
    kiln__text_string(error, "device memory cannot be allocated");
    return KILN_OUT_OF_MEMORY;
  }
  return fake_device_ops.memory_alloc(device, bytes, address, error);
}

/* ---- the fixture ---- */

static bench_device device;
static kiln__device_ops ops;
static kiln_context *ctx;
static kiln__workbench *bench;
static kiln_attn_spec spec;
static kiln_attn_args shape;

static void create(void) {
  memset(&device, 0, sizeof device);
  ctx = fake_context(&device.f, "");
  ops = fake_device_ops;
  ops.launch = launch;
  ops.synchronize = synchronize;
  ops.memory_alloc = memory_alloc;
  ctx->ops = &ops;
  ctx->info.memory_bytes = (int64_t)1 << 30;
  ctx->info.l2_bytes = 1 << 20;
  spec = (kiln_attn_spec)KILN_ATTN_SPEC_INIT;
  strcpy(spec.arch, "sm_90a");
  spec.head_dim = spec.head_dim_v = DIM;
  shape = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  shape.batch = 1;
  shape.seqlen_q = shape.seqlen_k = 512;
  shape.num_heads = shape.num_heads_k = 2;
  ck_assert_int_eq(kiln__workbench_create(ctx, &bench), KILN_OK);
  ck_assert_int_eq(kiln__workbench_open(bench, &spec, &shape), KILN_OK);
}

static void destroy(void) {
  kiln__workbench_destroy(bench);
  ck_assert_int_eq(device.f.num_allocs, device.f.num_frees);
  ck_assert_int_eq(device.f.num_loads, device.f.num_unloads);
  fake_context_destroy(ctx);
}

static kiln_tile tile_of(int block_m) {
  kiln_tile tile = {sizeof tile, block_m, 64, 2, 12};
  return tile;
}

static kiln__finding prepare(int block_m) {
  kiln__finding found;
  const kiln_tile tile = tile_of(block_m);
  ck_assert_int_eq(kiln__workbench_prepare(bench, &tile, &found), KILN_OK);
  return found;
}

/* ---- proofs ---- */

START_TEST(a_right_kernel_is_timed) {
  double time_us = 0;
  kiln__finding found = prepare(128);
  ck_assert_msg(found.outcome == KILN__FOUND_TIMED, "%s", found.reason);
  ck_assert_int_eq(found.registers, 168);
  ck_assert_int_eq(found.spill_bytes, 24);
  ck_assert_int_eq(found.shared_bytes, 98304 + 1024);
  ck_assert_int_ge(device.num_computed, 2 * 6);
  const int before = device.f.num_launches;
  ck_assert_int_eq(kiln__workbench_sample(bench, found.handle, &found, &time_us), KILN_OK);
  ck_assert_double_eq_tol(time_us, 12, 1e-9);
  ck_assert_int_ge(12 * (device.f.num_launches - before), 200); /* us */
}
END_TEST

START_TEST(a_wrong_kernel_is_never_timed) {
  static const struct {
    flaw flaw;
    const char *why;
  } flaws[] = {{LAST_KEY_MISSING, "tolerance 0.0028"},
               {SCALED, "tolerance 0.0028"},
               {LSE_SHIFTED, "error 0.01, tolerance 0.001"},
               {ROW_MISSING, "elements of o were not written"},
               {WRITES_BEYOND, "memory around o was written"},
               {OTHER_BITS, "a second run gave other bits"}};
  for (size_t i = 0; i < sizeof flaws / sizeof flaws[0]; i++) {
    device.flaw = flaws[i].flaw;
    const kiln__finding found = prepare(16 * (int)(i + 1));
    ck_assert_int_eq(found.outcome, KILN__FOUND_WRONG_RESULT);
    ck_assert_msg(strstr(found.reason, flaws[i].why) != NULL, "%s: no %s", found.reason,
                  flaws[i].why);
  }
  ck_assert_int_eq(device.f.timed_from, 0);
  device.flaw = FAULT;
  ck_assert_int_eq(prepare(8).outcome, KILN__FOUND_FAULT);
}
END_TEST

START_TEST(a_kernel_is_compiled_and_proved_once) {
  const kiln_tile tiles[] = {tile_of(128), tile_of(64), tile_of(32)};
  ck_assert_int_eq(kiln__workbench_compile(bench, tiles, 3), KILN_OK);
  kiln__finding found = prepare(128);
  const int computed = device.num_computed;
  kiln__workbench_drop(bench, found.handle);
  ck_assert_int_eq(prepare(64).outcome, KILN__FOUND_TIMED);
  ck_assert_int_eq(device.num_computed, 2 * computed);
  prepare(32);
  shape.seqlen_q = 1024; /* another problem of the same spec */
  ck_assert_int_eq(kiln__workbench_open(bench, &spec, &shape), KILN_OK);
  ck_assert_int_eq(kiln__workbench_compile(bench, tiles, 3), KILN_OK);
  ck_assert_int_eq(prepare(128).outcome, KILN__FOUND_TIMED);
  ck_assert_int_eq(device.f.num_compiles, 3);
  ck_assert_int_eq(device.num_computed, 3 * computed);
}
END_TEST

START_TEST(what_does_not_compile_is_the_tile_s_fault) {
  const kiln_tile tile = tile_of(128);
  kiln__finding found;
  device.f.fail_compile = KILN_COMPILE_FAILED;
  ck_assert_int_eq(prepare(64).outcome, KILN__FOUND_COMPILE_FAILED);
  device.f.fail_compile = KILN_NO_COMPILER;
  ck_assert_int_eq(kiln__workbench_prepare(bench, &tile, &found), KILN_NO_COMPILER);
}
END_TEST

/* The first kernel of a problem warms the GPU up for 20 ms, the next ones for a tenth of it. */
START_TEST(warming_up) {
  device.f.launch_us = 100;
  prepare(128);
  const int first = device.f.num_launches;
  ck_assert_double_ge(100.0 * first, 20000);
  prepare(64);
  ck_assert_int_lt(device.f.num_launches - first, first / 2);
  ck_assert_double_ge(100.0 * (device.f.num_launches - first), 2000);
}
END_TEST

/* ---- memory ---- */

START_TEST(fewer_sets_where_memory_is_short) {
  kiln__stage stage, all;
  const size_t set = 4 * 512 * 2 * DIM * 2 + 512 * 2 * 4;
  ck_assert_int_eq(kiln__stage_create(ctx, &spec, &shape, 0, 0, &all), KILN_OK);
  ck_assert_int_gt(all.num_sets, 4);
  device.room = 2 * set;
  ck_assert_int_eq(kiln__stage_create(ctx, &spec, &shape, 0, 1, &stage), KILN_OK);
  ck_assert_int_ge(stage.num_sets, 1);
  ck_assert_int_le(stage.num_sets, 2);
  kiln__stage_destroy(&stage);
  ck_assert_int_eq(kiln__stage_create(ctx, &spec, &shape, 0, 0, &stage), KILN_OUT_OF_MEMORY);
  kiln__stage_destroy(&stage);
  kiln__stage_destroy(&all);
  device.room = set / 2;
  ck_assert_int_eq(kiln__workbench_open(bench, &spec, &shape), KILN_OUT_OF_MEMORY);
  device.room = 0;
  ck_assert_int_eq(kiln__workbench_open(bench, &spec, &shape), KILN_OK);
}
END_TEST

Suite *suite_workbench(void) {
  Suite *suite = suite_create("workbench");
  TCase *tests = tcase_create("workbench");
  tcase_add_checked_fixture(tests, create, destroy);
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, a_right_kernel_is_timed);
  tcase_add_test(tests, a_wrong_kernel_is_never_timed);
  tcase_add_test(tests, a_kernel_is_compiled_and_proved_once);
  tcase_add_test(tests, what_does_not_compile_is_the_tile_s_fault);
  tcase_add_test(tests, warming_up);
  tcase_add_test(tests, fewer_sets_where_memory_is_short);
  suite_add_tcase(suite, tests);
  return suite;
}
