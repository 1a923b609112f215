/* One context in many threads, over the stub driver, the real generator and a compiler that copies:
 * plans on a cold cache, packs that are added meanwhile, one-call runs, sentences per thread (X1).
 * tools/checks/sanitize.sh runs it under ThreadSanitizer, which sees what no result shows. */
#include "suites.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "packing.h"
#include "tests/stub/stub.h"

enum { THREADS = 8, ROUNDS = 25, NUM_SPECS = 4, PACKS = 6, MEMORY = 1 << 20 };

/* ---- the compiler: thread-safe, as NVRTC is ---- */

static atomic_int num_compiles; /* every test is a process of its own */

static kiln_status compiler_open(const kiln__env *env, int no_line_info, kiln__text *error,
                                 void **compiler) {
  (void)env, (void)no_line_info, (void)error;
  *compiler = &num_compiles;
  return KILN_OK;
}

static void compiler_close(void *compiler) { (void)compiler; }

static kiln_status compiler_identify(void *compiler, const char *arch,
                                     kiln__compiler_identity *identity, kiln__text *error) {
  static const char *const options[] = {"--copy"};
  (void)compiler, (void)arch, (void)error;
  *identity = (kiln__compiler_identity){"copier 1.0", options, 1};
  return KILN_OK;
}

static kiln_status compiler_compile(void *compiler, const char *text, size_t length,
                                    const char *arch, kiln__compiled *out, kiln__text *error) {
  (void)compiler, (void)arch, (void)error;
  atomic_fetch_add(&num_compiles, 1);
  usleep(2000); /* so that others come meanwhile */
  *out = (kiln__compiled){.image = strdup(text), .image_size = length, .num_entries = 1};
  out->entries[0] = (kiln__entry_resources){"kiln_forward", 128, 0, 0};
  return out->image ? KILN_OK : KILN_OUT_OF_MEMORY;
}

static void compiler_report(const kiln__env *env, kiln__text *json) {
  (void)env;
  kiln__text_string(json, "{}");
}

static const kiln__compiler_ops copier = {.open = compiler_open,
                                          .close = compiler_close,
                                          .identify = compiler_identify,
                                          .compile = compiler_compile,
                                          .report = compiler_report};

/* ---- the bench ---- */

typedef struct bench {
  stub_state *stub;
  kiln_context *ctx;
  char root[256], cache[300];
  void *memory;
  pthread_barrier_t start;
  kiln_pack *packs[PACKS];
  atomic_int num_added;
  atomic_int wrong; /* of all threads */
  char what[256];   /* the first thing that was wrong */
  kiln_plan *shared;
} bench;

typedef struct worker {
  bench *b;
  int index;
  pthread_t thread;
} worker;

/* A thread of its own may not use check's asserts. */
static void expect(bench *b, int holds, const char *what) {
  if (!holds && atomic_fetch_add(&b->wrong, 1) == 0) snprintf(b->what, sizeof b->what, "%s", what);
}

static void bench_open(bench *b) {
  kiln_context_options o = KILN_CONTEXT_OPTIONS_INIT;
  void *library = dlopen(KILN_TEST_STUB_CUDA, RTLD_NOW);
  ck_assert_msg(library != NULL, "%s", dlerror());
  *b = (bench){.stub = dlsym(library, "stub")};
  b->stub->num_devices = 1;
  b->stub->devices[0] = (stub_device){"stub 90", 9, 0, 132, 232448};
  const char *root = getenv("TMPDIR");
  snprintf(b->root, sizeof b->root, "%s/kiln-test-XXXXXX", root ? root : "/tmp");
  ck_assert_ptr_nonnull(mkdtemp(b->root));
  snprintf(b->cache, sizeof b->cache, "%s/cache", b->root);
  o.cache_dir = b->cache;
  ck_assert_int_eq(kiln_context_create(0, &o, &b->ctx), KILN_OK);
  b->ctx->services.nvrtc = &copier;
  ck_assert_int_eq(kiln_memory_alloc(b->ctx, MEMORY, &b->memory), KILN_OK);
  pthread_barrier_init(&b->start, NULL, THREADS);
}

static void bench_close(bench *b) {
  char command[300];
  kiln_memory_free(b->ctx, b->memory);
  kiln_context_destroy(b->ctx);
  ck_assert_int_eq(b->stub->retained, 0);
  ck_assert_int_eq(b->stub->num_loaded, 0);
  pthread_barrier_destroy(&b->start);
  snprintf(command, sizeof command, "rm -rf '%s'", b->root);
  ck_assert_int_eq(system(command), 0);
}

static void run_threads(bench *b, void *(*body)(void *)) {
  worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){.b = b, .index = i};
    ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, body, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
  ck_assert_msg(b->wrong == 0, "%d times wrong, the first time: %s", b->wrong, b->what);
}

static kiln_attn_spec spec_of(int index) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  spec.head_dim = 64 + 16 * index; /* 72 and 80 would be one text */
  return spec;
}

static kiln_attn_args args_of(const bench *b, const kiln_attn_spec *spec) {
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  args.batch = 2;
  args.seqlen_q = args.seqlen_k = 256;
  args.num_heads = args.num_heads_k = 4;
  kiln_attn_args_pack(&args, spec);
  args.q = args.k = args.v = args.o = args.workspace = b->memory;
  args.workspace_bytes = MEMORY;
  return args;
}

/* ---- plans ---- */

static void *make_plans(void *user) {
  const worker *w = user;
  bench *b = w->b;
  pthread_barrier_wait(&b->start);
  for (int i = 0; i < ROUNDS; i++) {
    const kiln_attn_spec spec =
        spec_of((w->index / 2 + i) % NUM_SPECS); /* pairs ask for the same */
    kiln_attn_args args = args_of(b, &spec);
    kiln_plan *plan = NULL;
    kiln_plan_info info = {.size = sizeof info};
    kiln_status status = kiln_plan_create(b->ctx, &spec, NULL, &args, &plan);
    expect(b, status == KILN_OK, kiln_last_error(b->ctx));
    if (status != KILN_OK) return NULL;
    kiln_plan_get_info(plan, &info);
    expect(b, info.spec.head_dim == spec.head_dim, "a plan is for another head_dim");
    expect(b, kiln_plan_run(plan, &args, NULL) == KILN_OK, kiln_last_error(b->ctx));
    kiln_plan_destroy(plan);
  }
  return NULL;
}

START_TEST(plans_on_a_cold_cache) {
  bench b;
  bench_open(&b);
  run_threads(&b, make_plans);
  ck_assert_int_eq(num_compiles, NUM_SPECS);
  ck_assert_int_eq(b.stub->num_launches, THREADS * ROUNDS);
  bench_close(&b);
}
END_TEST

static void *run_forward(void *user) {
  const worker *w = user;
  bench *b = w->b;
  pthread_barrier_wait(&b->start);
  for (int i = 0; i < 4 * ROUNDS; i++) {
    const kiln_attn_spec spec = spec_of(i % NUM_SPECS);
    const kiln_attn_args args = args_of(b, &spec);
    expect(b, kiln_attn_forward(b->ctx, &spec, &args, NULL) == KILN_OK, kiln_last_error(b->ctx));
  }
  return NULL;
}

START_TEST(one_call_from_many_threads) {
  bench b;
  bench_open(&b);
  run_threads(&b, run_forward);
  ck_assert_int_eq(num_compiles, NUM_SPECS);
  ck_assert_int_eq(b.stub->num_launches, THREADS * 4 * ROUNDS);
  bench_close(&b);
}
END_TEST

/* ---- packs that come while plans are made ---- */

/* Kernel number `index` in a pack of its own. */
static kiln_pack *make_pack(kiln_context *ctx, int index) {
  kiln_pack_writer *writer;
  kiln_pack *pack;
  kiln_binary *binary = packing_binary("sm_90a", spec_of(index).head_dim, 128);
  ck_assert_int_eq(kiln_pack_writer_create(ctx, &writer), KILN_OK);
  ck_assert_int_eq(kiln_pack_writer_add(writer, binary, KILN_PACK_DEFAULT), KILN_OK);
  ck_assert_int_eq(kiln_pack_writer_finish(writer, &pack), KILN_OK);
  kiln_pack_writer_destroy(writer);
  kiln_binary_destroy(binary);
  return pack;
}

static void add_packs(bench *b) {
  for (int i = 0; i < PACKS; i++) {
    expect(b, kiln_context_add_pack(b->ctx, b->packs[i]) == KILN_OK, "a pack was not added");
    kiln_pack_destroy(b->packs[i]);
    atomic_store(&b->num_added, i + 1);
    usleep(3000);
  }
}

/* A kernel of a pack that was there before the plan is found in it; any other is compiled. */
static void *look_for_packs(void *user) {
  const worker *w = user;
  bench *b = w->b;
  pthread_barrier_wait(&b->start);
  if (w->index == 0) add_packs(b);
  for (int i = 0; w->index > 0 && i < 3 * ROUNDS; i++) {
    const int wanted = (w->index + i) % PACKS, there = atomic_load(&b->num_added) > wanted;
    const kiln_attn_spec spec = spec_of(wanted);
    kiln_plan *plan = NULL;
    kiln_plan_info info = {.size = sizeof info};
    kiln_status status = kiln_plan_create(b->ctx, &spec, NULL, NULL, &plan);
    expect(b, status == KILN_OK, kiln_last_error(b->ctx));
    if (status != KILN_OK) return NULL;
    kiln_plan_get_info(plan, &info);
    expect(b, !there || info.pack, "a pack was passed over");
    kiln_plan_destroy(plan);
  }
  return NULL;
}

START_TEST(packs_come_while_plans_are_made) {
  bench b;
  bench_open(&b);
  for (int i = 0; i < PACKS; i++) b.packs[i] = make_pack(b.ctx, i);
  run_threads(&b, look_for_packs);
  ck_assert_int_eq(b.num_added, PACKS);
  bench_close(&b);
}
END_TEST

/* ---- what is a thread's own ---- */

static void *fail_in_turn(void *user) {
  const worker *w = user;
  bench *b = w->b;
  char own[64];
  pthread_barrier_wait(&b->start);
  snprintf(own, sizeof own, "head_dim %d is not a multiple of 8", 301 + 8 * w->index);
  for (int i = 0; i < ROUNDS; i++) {
    kiln_attn_spec spec = spec_of(0);
    const char *json = NULL;
    spec.head_dim = 301 + 8 * w->index;
    expect(b, kiln_attn_spec_resolve(b->ctx, &spec, NULL) == KILN_INVALID_ARGUMENT, "no refusal");
    expect(b, strstr(kiln_last_error(b->ctx), own) != NULL, kiln_last_error(b->ctx));
    expect(b, kiln_context_report(b->ctx, &json) == KILN_OK && strstr(json, "stub 90"), "a report");
  }
  return NULL;
}

START_TEST(sentences_are_a_threads_own) {
  bench b;
  bench_open(&b);
  run_threads(&b, fail_in_turn);
  bench_close(&b);
}
END_TEST

/* X1: nothing is current in a new thread, and nothing is afterwards. */
static void *first_call(void *user) {
  bench *b = user;
  const kiln_attn_spec spec = spec_of(0);
  const kiln_attn_args args = args_of(b, &spec);
  expect(b, b->stub->this_thread()->current == NULL, "a context is current at first");
  expect(b, kiln_plan_create(b->ctx, &spec, NULL, &args, &b->shared) == KILN_OK,
         kiln_last_error(b->ctx));
  expect(b, b->stub->this_thread()->current == NULL, "a context stays current");
  return NULL;
}

static void *launch_it(void *user) {
  bench *b = user;
  const kiln_attn_spec spec = spec_of(0);
  const kiln_attn_args args = args_of(b, &spec);
  expect(b, kiln_plan_run(b->shared, &args, NULL) == KILN_OK, kiln_last_error(b->ctx));
  expect(b, b->stub->this_thread()->current == NULL, "a context stays current");
  return NULL;
}

static int child_is_refused(bench *b) {
  const kiln_attn_spec spec = spec_of(0);
  const kiln_attn_args args = args_of(b, &spec);
  const int before = b->stub->num_launches;
  return kiln_plan_run(b->shared, &args, NULL) == KILN_FORKED &&
         kiln_attn_forward(b->ctx, &spec, &args, NULL) == KILN_FORKED &&
         b->stub->num_launches == before;
}

START_TEST(compiled_here_and_launched_there) {
  bench b;
  pthread_t thread;
  int result = 0;
  bench_open(&b);
  ck_assert_int_eq(pthread_create(&thread, NULL, first_call, &b), 0);
  pthread_join(thread, NULL);
  ck_assert_msg(b.wrong == 0, "%s", b.what);
  ck_assert_int_eq(pthread_create(&thread, NULL, launch_it, &b), 0);
  pthread_join(thread, NULL);
  ck_assert_msg(b.wrong == 0, "%s", b.what);
  ck_assert_int_eq(b.stub->num_launches, 1);
  pid_t child = fork();
  if (child == 0) _exit(child_is_refused(&b) ? 0 : 1);
  ck_assert_int_eq(waitpid(child, &result, 0), child);
  ck_assert(WIFEXITED(result) && WEXITSTATUS(result) == 0);
  kiln_plan_destroy(b.shared);
  bench_close(&b);
}
END_TEST

/* ---- D3: after a warm-up nothing is compiled or loaded ---- */

enum { WARM_SPECS = 30, CALLS = 1000 };

static uint32_t next_random(uint32_t *state, uint32_t below) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % below;
}

static kiln_attn_spec warm_spec(int index) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  spec.head_dim = 16 * (1 + index % 15);
  spec.dtype = index < 15 ? KILN_DTYPE_BF16 : KILN_DTYPE_FP16;
  return spec;
}

/* Compiled by one thread, and by two. */
START_TEST(thirty_shapes_then_a_thousand_calls) {
  bench b;
  kiln_attn_spec specs[WARM_SPECS];
  kiln_attn_args shapes[WARM_SPECS];
  uint32_t state = 7;
  ck_assert_int_eq(setenv("KILN_JOBS", _i ? "2" : "1", 1), 0);
  bench_open(&b);
  for (int i = 0; i < WARM_SPECS; i++) {
    specs[i] = warm_spec(i);
    shapes[i] = args_of(&b, &specs[i]);
  }
  ck_assert_msg(kiln_prewarm(b.ctx, specs, shapes, WARM_SPECS) == KILN_OK, "%s",
                kiln_last_error(b.ctx));
  const int compiles = num_compiles, loaded = b.stub->num_loaded;
  ck_assert_int_ge(compiles, WARM_SPECS / 2);
  ck_assert_int_eq(b.stub->num_launches, 0);
  for (int i = 0; i < CALLS; i++) {
    const kiln_attn_spec *spec = &specs[next_random(&state, WARM_SPECS)];
    kiln_attn_args args = args_of(&b, spec);
    args.batch = 1 + (int32_t)next_random(&state, 8);
    args.seqlen_q = 1 + (int32_t)next_random(&state, 5000);
    args.seqlen_k = 1 + (int32_t)next_random(&state, 50000);
    args.num_heads_k = 1 + (int32_t)next_random(&state, 8);
    args.num_heads = args.num_heads_k * (1 + (int32_t)next_random(&state, 8));
    kiln_attn_args_pack(&args, spec);
    ck_assert_msg(kiln_attn_forward(b.ctx, spec, &args, NULL) == KILN_OK, "%s",
                  kiln_last_error(b.ctx));
  }
  ck_assert_int_eq(num_compiles, compiles);
  ck_assert_int_eq(b.stub->num_loaded, loaded);
  ck_assert_int_eq(b.stub->num_launches, CALLS);
  bench_close(&b);
}
END_TEST

Suite *suite_threads(void) {
  Suite *suite = suite_create("threads");
  TCase *tests = tcase_create("threads");
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, plans_on_a_cold_cache);
  tcase_add_test(tests, one_call_from_many_threads);
  tcase_add_test(tests, packs_come_while_plans_are_made);
  tcase_add_test(tests, sentences_are_a_threads_own);
  tcase_add_test(tests, compiled_here_and_launched_there);
  tcase_add_loop_test(tests, thirty_shapes_then_a_thousand_calls, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
