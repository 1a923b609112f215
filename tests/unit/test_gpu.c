/* What only a GPU can show about the runtime: threads, contexts, captures, broadcast tensor maps.
 * The suite is empty on a machine without one. Inputs are small; the reference is a plain loop in
 * double precision. */
#include "suites.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kiln/kiln.h>

/* ---- a problem and its answer ---- */

enum { BATCH = 2, SEQLEN_Q = 70, SEQLEN_K = 130, HEADS = 4, HEADS_K = 2, DIM = 64 };

typedef struct problem {
  kiln_context *ctx;
  uint16_t *q, *k, *v, *o; /* host, bf16 */
  size_t q_count, k_count; /* elements; o as q, v as k */
  kiln_attn_args args;     /* device */
} problem;

static float widen(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

static uint16_t narrow(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  return (uint16_t)((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}

static uint16_t *random_tensor(size_t count) {
  uint16_t *values = malloc(count * sizeof *values);
  ck_assert_ptr_nonnull(values);
  for (size_t i = 0; i < count; i++) values[i] = narrow((float)(rand() % 2001 - 1000) / 500.0f);
  return values;
}

static void *to_device(kiln_context *ctx, const uint16_t *values, size_t count) {
  void *address;
  ck_assert_int_eq(kiln_memory_alloc(ctx, count * 2, &address), KILN_OK);
  ck_assert_int_eq(kiln_memory_upload(ctx, address, values, count * 2), KILN_OK);
  return address;
}

static void problem_init(problem *p, kiln_context *ctx) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  p->ctx = ctx;
  p->q_count = (size_t)BATCH * SEQLEN_Q * HEADS * DIM;
  p->k_count = (size_t)BATCH * SEQLEN_K * HEADS_K * DIM;
  p->q = random_tensor(p->q_count);
  p->k = random_tensor(p->k_count);
  p->v = random_tensor(p->k_count);
  p->o = random_tensor(p->q_count);
  p->args = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  p->args.batch = BATCH;
  p->args.seqlen_q = SEQLEN_Q;
  p->args.seqlen_k = SEQLEN_K;
  p->args.num_heads = HEADS;
  p->args.num_heads_k = HEADS_K;
  spec.head_dim = DIM;
  kiln_attn_args_pack(&p->args, &spec);
  p->args.q = to_device(ctx, p->q, p->q_count);
  p->args.k = to_device(ctx, p->k, p->k_count);
  p->args.v = to_device(ctx, p->v, p->k_count);
  p->args.o = to_device(ctx, p->o, p->q_count);
}

static void problem_free(problem *p) {
  kiln_memory_free(p->ctx, (void *)(uintptr_t)p->args.q);
  kiln_memory_free(p->ctx, (void *)(uintptr_t)p->args.k);
  kiln_memory_free(p->ctx, (void *)(uintptr_t)p->args.v);
  kiln_memory_free(p->ctx, p->args.o);
  free(p->q);
  free(p->k);
  free(p->v);
  free(p->o);
}

/* One row of the answer, with the strides that the args say. */
static void reference_row(const problem *p, int b, int i, int h, double row[DIM]) {
  const kiln_stride *ks = &p->args.k_stride, *vs = &p->args.v_stride;
  const uint16_t *q = p->q + ((b * SEQLEN_Q + i) * HEADS + h) * DIM;
  int hk = h / (HEADS / HEADS_K);
  double weights[SEQLEN_K], most = -INFINITY, sum = 0;
  for (int j = 0; j < SEQLEN_K; j++) {
    const uint16_t *k = p->k + b * ks->batch + j * ks->row + hk * ks->head;
    weights[j] = 0;
    for (int d = 0; d < DIM; d++) weights[j] += (double)widen(q[d]) * widen(k[d]);
    weights[j] /= sqrt(DIM);
    most = fmax(most, weights[j]);
  }
  memset(row, 0, DIM * sizeof *row);
  for (int j = 0; j < SEQLEN_K; j++) {
    const uint16_t *v = p->v + b * vs->batch + j * vs->row + hk * vs->head;
    double weight = exp(weights[j] - most);
    sum += weight;
    for (int d = 0; d < DIM; d++) row[d] += weight * widen(v[d]);
  }
  for (int d = 0; d < DIM; d++) row[d] /= sum;
}

/* The relative error of o in the root mean square. */
static double error_of(problem *p) {
  double wrong = 0, all = 0, row[DIM];
  ck_assert_int_eq(kiln_context_synchronize(p->ctx), KILN_OK);
  ck_assert_int_eq(kiln_memory_download(p->ctx, p->o, p->args.o, p->q_count * 2), KILN_OK);
  for (int b = 0; b < BATCH; b++)
    for (int i = 0; i < SEQLEN_Q; i++)
      for (int h = 0; h < HEADS; h++) {
        const uint16_t *o = p->o + ((b * SEQLEN_Q + i) * HEADS + h) * DIM;
        reference_row(p, b, i, h, row);
        for (int d = 0; d < DIM; d++) {
          wrong += (widen(o[d]) - row[d]) * (widen(o[d]) - row[d]);
          all += row[d] * row[d];
        }
      }
  return sqrt(wrong / all);
}

static void poison(problem *p) {
  for (size_t i = 0; i < p->q_count; i++) p->o[i] = 0x7fc0; /* NaN */
  ck_assert_int_eq(kiln_memory_upload(p->ctx, p->args.o, p->o, p->q_count * 2), KILN_OK);
}

static kiln_context *open_context(void) {
  char sentence[1024] = "";
  kiln_context *ctx = NULL;
  kiln_context_options o = KILN_CONTEXT_OPTIONS_INIT;
  o.cache_dir = "";
  o.error = sentence;
  o.error_size = sizeof sentence;
  ck_assert_msg(kiln_context_create(0, &o, &ctx) == KILN_OK, "%s", sentence);
  return ctx;
}

static kiln_attn_spec spec_64(void) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  spec.head_dim = DIM;
  return spec;
}

/* ---- the driver, as a caller of Kiln uses it ---- */

typedef struct driver {
  int (*context_create)(void **context, void *params, unsigned flags, int device);
  int (*context_current)(void **context);
  int (*context_set)(void *context);
  int (*stream_create)(struct CUstream_st **stream, unsigned flags);
  int (*begin)(struct CUstream_st *stream, int mode);
  int (*end)(struct CUstream_st *stream, void **graph);
  int (*instantiate)(void **exec, void *graph, unsigned long long flags);
  int (*launch)(void *exec, struct CUstream_st *stream);
  int (*synchronize)(struct CUstream_st *stream);
  int (*primary)(void **context, int device);
} driver;

static void driver_open(driver *d) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  ck_assert_ptr_nonnull(library);
  *(void **)&d->context_create = dlsym(library, "cuCtxCreate_v4");
  *(void **)&d->context_current = dlsym(library, "cuCtxGetCurrent");
  *(void **)&d->context_set = dlsym(library, "cuCtxSetCurrent");
  *(void **)&d->stream_create = dlsym(library, "cuStreamCreate");
  *(void **)&d->begin = dlsym(library, "cuStreamBeginCapture_v2");
  *(void **)&d->end = dlsym(library, "cuStreamEndCapture");
  *(void **)&d->instantiate = dlsym(library, "cuGraphInstantiateWithFlags");
  *(void **)&d->launch = dlsym(library, "cuGraphLaunch");
  *(void **)&d->synchronize = dlsym(library, "cuStreamSynchronize");
  *(void **)&d->primary = dlsym(library, "cuDevicePrimaryCtxRetain");
  ck_assert(d->context_create && d->instantiate && d->primary);
}

START_TEST(one_call_is_right) {
  problem p;
  kiln_attn_spec spec = spec_64();
  kiln_context *ctx = open_context();
  problem_init(&p, ctx);
  poison(&p);
  ck_assert_msg(kiln_attn_forward(ctx, &spec, &p.args, NULL) == KILN_OK, "%s",
                kiln_last_error(ctx));
  double error = error_of(&p);
  ck_assert_msg(error < 2.8e-3, "%g", error);
  problem_free(&p);
  kiln_context_destroy(ctx);
}
END_TEST

START_TEST(broadcast_keys_and_values) {
  problem p;
  kiln_attn_spec spec = spec_64();
  kiln_context *ctx = open_context();
  problem_init(&p, ctx);
  for (int i = 0; i < 3; i++) { /* over the heads, over the batch, over both */
    kiln_attn_args packed = p.args;
    if (i != 1) p.args.k_stride.head = p.args.v_stride.head = 0;
    if (i != 0) p.args.k_stride.batch = p.args.v_stride.batch = 0;
    poison(&p);
    ck_assert_msg(kiln_attn_forward(ctx, &spec, &p.args, NULL) == KILN_OK, "%s",
                  kiln_last_error(ctx));
    double error = error_of(&p);
    ck_assert_msg(error < 2.8e-3, "%d: %g", i, error);
    p.args = packed;
  }
  problem_free(&p);
  kiln_context_destroy(ctx);
}
END_TEST

static void *run_in_thread(void *user) {
  problem *p = user;
  kiln_attn_spec spec = spec_64();
  return (void *)(intptr_t)kiln_attn_forward(p->ctx, &spec, &p->args, NULL);
}

START_TEST(threads_and_contexts) { /* X1 */
  problem p;
  driver d;
  pthread_t thread;
  void *result, *own = NULL, *current = NULL;
  kiln_attn_spec spec = spec_64();
  kiln_context *ctx = open_context();
  driver_open(&d);
  problem_init(&p, ctx);
  poison(&p);
  pthread_create(&thread, NULL, run_in_thread, &p); /* nothing is current in it */
  pthread_join(thread, &result);
  ck_assert_int_eq((intptr_t)result, KILN_OK);
  ck_assert(error_of(&p) < 2.8e-3);
  poison(&p);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &p.args, NULL), KILN_OK); /* its plan, here */
  ck_assert(error_of(&p) < 2.8e-3);
  ck_assert_int_eq(d.context_current(&current), 0);
  ck_assert_ptr_null(current); /* Kiln left nothing behind */
  ck_assert_int_eq(d.context_create(&own, NULL, 0, 0), 0);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &p.args, NULL), KILN_OK);
  ck_assert_int_eq(kiln_context_synchronize(ctx), KILN_OK);
  ck_assert_int_eq(d.context_current(&current), 0);
  ck_assert_ptr_eq(current, own);
  problem_free(&p);
  kiln_context_destroy(ctx);
}
END_TEST

START_TEST(after_a_fork) {
  problem p;
  int result;
  kiln_attn_spec spec = spec_64();
  kiln_context *ctx = open_context();
  problem_init(&p, ctx);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &p.args, NULL), KILN_OK);
  pid_t child = fork();
  if (child == 0) _exit(kiln_attn_forward(ctx, &spec, &p.args, NULL) == KILN_FORKED ? 0 : 1);
  ck_assert_int_eq(waitpid(child, &result, 0), child);
  ck_assert_int_eq(result, 0);
  ck_assert(error_of(&p) < 2.8e-3);
  problem_free(&p);
  kiln_context_destroy(ctx);
}
END_TEST

/* T4: modes global, thread-local, relaxed; a blocking and a non-blocking stream. */
START_TEST(inside_a_capture) {
  problem p;
  driver d;
  void *primary, *graph = NULL, *exec = NULL;
  struct CUstream_st *stream;
  kiln_plan *plan = NULL;
  int mode = _i / 2, non_blocking = _i % 2;
  kiln_attn_spec spec = spec_64(), other = spec_64();
  kiln_context *ctx = open_context();
  driver_open(&d);
  problem_init(&p, ctx);
  ck_assert_int_eq(d.primary(&primary, 0), 0);
  ck_assert_int_eq(d.context_set(primary), 0);
  ck_assert_int_eq(d.stream_create(&stream, (unsigned)non_blocking), 0);
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &p.args, &plan), KILN_OK);
  poison(&p);
  other.mask = KILN_MASK_CAUSAL;
  ck_assert_int_eq(d.begin(stream, mode), 0);
  /* The first call of a spec is refused; a plan made before is captured. */
  ck_assert_int_eq(kiln_attn_forward(ctx, &other, &p.args, stream), KILN_CAPTURE_ACTIVE);
  ck_assert_msg(kiln_plan_run(plan, &p.args, stream) == KILN_OK, "%s", kiln_last_error(ctx));
  /* Without the stream a plan is refused where the driver shows the capture, and harmless
   * elsewhere. */
  kiln_plan *second = NULL;
  kiln_status status = kiln_plan_create(ctx, &other, NULL, &p.args, &second);
  ck_assert_msg(status == KILN_CAPTURE_ACTIVE || (non_blocking && status == KILN_OK), "%s",
                kiln_last_error(ctx));
  ck_assert_int_eq(d.end(stream, &graph), 0); /* the capture is still valid */
  ck_assert_int_eq(d.instantiate(&exec, graph, 0), 0);
  ck_assert_int_eq(d.launch(exec, stream), 0);
  ck_assert_int_eq(d.synchronize(stream), 0);
  ck_assert(error_of(&p) < 2.8e-3);
  kiln_plan_destroy(second);
  kiln_plan_destroy(plan);
  problem_free(&p);
  kiln_context_destroy(ctx);
}
END_TEST

START_TEST(empty_problems) {
  problem p;
  kiln_attn_spec spec = spec_64();
  kiln_context *ctx = open_context();
  problem_init(&p, ctx);
  kiln_attn_args args = p.args;
  args.batch = 0;
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
  args = p.args;
  args.seqlen_q = 0;
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
  args = p.args;
  args.seqlen_k = 0;
  args.k = args.v = NULL;
  poison(&p);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
  ck_assert_int_eq(kiln_context_synchronize(ctx), KILN_OK);
  ck_assert_int_eq(kiln_memory_download(ctx, p.o, p.args.o, p.q_count * 2), KILN_OK);
  for (size_t i = 0; i < p.q_count; i++) ck_assert_uint_eq(p.o[i] & 0x7fff, 0);
  problem_free(&p);
  kiln_context_destroy(ctx);
}
END_TEST

START_TEST(an_arch_of_another_device) {
  kiln_attn_spec spec = spec_64();
  kiln_context *ctx = open_context();
  kiln_device_info info = {.size = sizeof info};
  kiln_plan *plan;
  ck_assert_int_eq(kiln_context_device(ctx, &info), KILN_OK);
  strcpy(spec.arch, info.compute_major == 8 ? "sm_90a" : "sm_80");
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_MISMATCH);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), info.arch));
  kiln_context_destroy(ctx);
}
END_TEST

/* Host time of a launch: far below the device's 10 us, or something on the path waits. */
START_TEST(launches_are_cheap) {
  problem p;
  struct timespec start, end;
  kiln_plan *plan;
  kiln_attn_spec spec = spec_64();
  kiln_context *ctx = open_context();
  problem_init(&p, ctx);
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &p.args, &plan), KILN_OK);
  double best = 1e9, device_us;
  for (int round = 0; round < 50; round++) {
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < 20; i++) ck_assert_int_eq(kiln_plan_run(plan, &p.args, NULL), KILN_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    ck_assert_int_eq(kiln_context_synchronize(ctx), KILN_OK);
    double us =
        ((double)(end.tv_sec - start.tv_sec) * 1e6 + (double)(end.tv_nsec - start.tv_nsec) * 1e-3) /
        20;
    best = us < best ? us : best;
  }
  ck_assert_int_eq(kiln_plan_time(plan, &p.args, 5, 100, &device_us), KILN_OK);
  printf("gpu: %.2f us of host time a launch, %.2f us on the device\n", best, device_us);
  ck_assert_msg(best < 50, "%g us", best);
  kiln_plan_destroy(plan);
  problem_free(&p);
  kiln_context_destroy(ctx);
}
END_TEST

/* Asked for in a child process, because a driver that was started does not survive check's forks.
 * */
static int has_gpu(void) {
  int result = 0;
  pid_t child = fork();
  if (child == 0) _exit(kiln_device_count() > 0);
  return waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == 1;
}

Suite *suite_gpu(void) {
  Suite *suite = suite_create("gpu");
  TCase *tests = tcase_create("gpu");
  suite_add_tcase(suite, tests);
  if (!has_gpu()) return suite;
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, one_call_is_right);
  tcase_add_test(tests, broadcast_keys_and_values);
  tcase_add_test(tests, threads_and_contexts);
  tcase_add_test(tests, after_a_fork);
  tcase_add_loop_test(tests, inside_a_capture, 0, 6);
  tcase_add_test(tests, empty_problems);
  tcase_add_test(tests, an_arch_of_another_device);
  tcase_add_test(tests, launches_are_cheap);
  return suite;
}
