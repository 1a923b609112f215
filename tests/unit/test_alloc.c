/* Every allocation of the runtime fails once: each public function must then give a status, leave
 * its result NULL and leak nothing (tools/checks/sanitize.sh shows leaks). The linker leads the
 * allocator here: --wrap in tests/CMakeLists.txt. The launch path must not allocate at all. */
#include "suites.h"

#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "packing.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

/* Of this process alone: check runs every test in a process of its own. */
static int armed;        /* count and fail */
static long allocations; /* since it was armed */
static long fail_at;     /* this one fails; 0 = none */

static int fails(void) { return armed && ++allocations == fail_at; }

void *__wrap_malloc(size_t size) { return fails() ? NULL : __real_malloc(size); }

void *__wrap_calloc(size_t count, size_t size) {
  return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) { return fails() ? NULL : __real_realloc(old, size); }
char *__wrap_strdup(const char *text) { return fails() ? NULL : __real_strdup(text); }

static void arm(long nth) {
  allocations = 0;
  fail_at = nth;
  armed = 1;
}

static void quiet(void *user, kiln_log_level level, const char *sentence) {
  (void)user;
  (void)level;
  (void)sentence;
}

START_TEST(contexts) {
  kiln_context_options o = KILN_CONTEXT_OPTIONS_INIT;
  kiln_context *ctx;
  long nth = 0;
  kiln_status status;
  o.log = quiet;
  o.cache_dir = "/nonexistent";
  do {
    arm(++nth);
    status = kiln_context_create(KILN_DEVICE_NONE, &o, &ctx);
    armed = 0;
    ck_assert_int_eq(ctx != NULL, status == KILN_OK);
    ck_assert(status == KILN_OK || status == KILN_OUT_OF_MEMORY);
    kiln_context_destroy(ctx);
  } while (allocations >= nth && nth < 1000);
  ck_assert_int_gt(nth, 3);
  ck_assert_int_eq(status, KILN_OK);
}
END_TEST

/* With and without a cache on disk: a failure there is a miss, never an error. */
START_TEST(plans) {
  char root[] = "/tmp/kiln-alloc-XXXXXX", command[64];
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_status status;
  long nth = 0;
  int failures = 0;
  ck_assert_ptr_nonnull(mkdtemp(root));
  do {
    fake f;
    kiln_plan *plan = NULL;
    kiln_context *ctx = fake_context(&f, _i ? root : "");
    ctx->log.write = quiet;
    arm(++nth);
    status = kiln_plan_create(ctx, &spec, NULL, NULL, &plan);
    armed = 0;
    failures += status != KILN_OK;
    ck_assert_int_eq(plan != NULL, status == KILN_OK);
    kiln_plan_destroy(plan);
    ck_assert_int_eq(f.num_unloads, status == KILN_OK || f.num_entries > 0);
    fake_context_destroy(ctx);
  } while (allocations >= nth && nth < 5000);
  ck_assert_int_eq(status, KILN_OK);
  ck_assert_int_gt(failures, 8);
  snprintf(command, sizeof command, "rm -rf %s", root);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

/* From kernels to a pack, to a context, to a plan. */
START_TEST(packs) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_binary *binary = packing_binary("sm_90a", 128, 128);
  kiln_status status;
  long nth = 0;
  int failures = 0;
  do {
    fake f;
    kiln_plan *plan = NULL;
    kiln_pack *pack = NULL;
    kiln_pack_writer *writer = NULL;
    kiln_context *ctx = fake_context(&f, "");
    arm(++nth);
    status = kiln_pack_writer_create(ctx, &writer);
    if (status == KILN_OK) status = kiln_pack_writer_add(writer, binary, 0);
    if (status == KILN_OK) status = kiln_pack_writer_finish(writer, &pack);
    if (status == KILN_OK) status = kiln_context_add_pack(ctx, pack);
    if (status == KILN_OK) status = kiln_plan_create(ctx, &spec, NULL, NULL, &plan);
    armed = 0;
    failures += status != KILN_OK;
    ck_assert_int_eq(plan != NULL, status == KILN_OK);
    kiln_plan_destroy(plan);
    kiln_pack_destroy(pack);
    kiln_pack_writer_destroy(writer);
    ck_assert_int_eq(f.num_unloads, status == KILN_OK || f.num_entries > 0);
    fake_context_destroy(ctx);
  } while (allocations >= nth && nth < 5000);
  ck_assert_int_eq(status, KILN_OK);
  ck_assert_int_gt(failures, 20);
  kiln_binary_destroy(binary);
}
END_TEST

START_TEST(reports_and_commands) {
  fake f;
  const char *json;
  long nth = 0;
  kiln_status status;
  kiln_context *ctx = fake_context(&f, "/nonexistent");
  ctx->log.write = quiet;
  ctx->services.nvrtc = NULL; /* the fake reports nothing */
  ctx->compiler = NULL;
  do {
    arm(++nth);
    status = kiln_context_report(ctx, &json);
    armed = 0;
    ck_assert_int_eq(json != NULL, status == KILN_OK);
  } while (allocations >= nth && nth < 5000);
  ck_assert_int_eq(status, KILN_OK);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(launches_allocate_nothing) {
  fake f;
  kiln_plan *plan;
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  kiln_context *ctx = fake_context(&f, "");
  args.batch = args.seqlen_q = args.seqlen_k = args.num_heads = args.num_heads_k = 2;
  kiln_attn_args_pack(&args, &spec);
  args.q = args.k = args.v = args.o = args.workspace = (void *)0x1000;
  args.workspace_bytes = 4096;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_OK);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
  arm(0);
  kiln_status run = kiln_plan_run(plan, &args, NULL);
  kiln_status forward = kiln_attn_forward(ctx, &spec, &args, NULL);
  long seen = allocations;
  free(strdup(kiln_version())); /* the counter itself counts */
  armed = 0;
  ck_assert_int_eq(run, KILN_OK);
  ck_assert_int_eq(forward, KILN_OK);
  ck_assert_int_eq(seen, 0);
  ck_assert_int_eq(allocations, 1);
  kiln_plan_destroy(plan);
  fake_context_destroy(ctx);
}
END_TEST

Suite *suite_alloc(void) {
  Suite *suite = suite_create("alloc");
  TCase *tests = tcase_create("alloc");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, contexts);
  tcase_add_loop_test(tests, plans, 0, 2);
  tcase_add_test(tests, packs);
  tcase_add_test(tests, reports_and_commands);
  tcase_add_test(tests, launches_allocate_nothing);
  suite_add_tcase(suite, tests);
  return suite;
}
