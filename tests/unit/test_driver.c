/* The GPU device over a stub driver: versions, devices, contexts, failures, what a launch asks for.
 * The stub is loaded first; the runtime's own dlopen then finds it by its name, also on a machine
 * with a real driver. */
#include "suites.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "tests/stub/stub.h"

static stub_state *stub_open(void) {
  void *library = dlopen(KILN_TEST_STUB_CUDA, RTLD_NOW);
  ck_assert_msg(library != NULL, "%s", dlerror());
  stub_state *stub = dlsym(library, "stub");
  ck_assert_ptr_nonnull(stub);
  stub->num_devices = 1;
  stub->devices[0] = (stub_device){"stub 90", 9, 0, 132, 232448};
  return stub;
}

static kiln_status open_context(int device, kiln_context **ctx, char sentence[512]) {
  kiln_context_options o = KILN_CONTEXT_OPTIONS_INIT;
  o.cache_dir = "";
  o.error = sentence;
  o.error_size = 512;
  sentence[0] = '\0';
  return kiln_context_create(device, &o, ctx);
}

START_TEST(versions_and_failures_at_the_start) {
  char sentence[512];
  kiln_context *ctx;
  stub_state *stub = stub_open();
  stub->version = 11080;
  ck_assert_int_eq(open_context(0, &ctx, sentence), KILN_NO_DRIVER);
  ck_assert_str_eq(sentence,
                   "the CUDA driver is made for CUDA 11.8 and Kiln needs 12.0: update it");
  stub->version = 13000;
  stub->fail_init = 100;
  ck_assert_int_eq(open_context(0, &ctx, sentence), KILN_NO_DEVICE);
  stub->fail_init = 803;
  ck_assert_int_eq(open_context(0, &ctx, sentence), KILN_NO_DRIVER);
  ck_assert_int_eq(kiln_device_count(), 0);
  stub->fail_init = 0;
  ck_assert_int_eq(kiln_device_count(), 1);
  ck_assert_int_eq(open_context(1, &ctx, sentence), KILN_NO_DEVICE);
  ck_assert_ptr_nonnull(strstr(sentence, "device is 1: this machine has 1 CUDA device,"));
  ck_assert_int_eq(stub->retained, 0);
}
END_TEST

/* X2: several devices, a slice of one, one that no kernel is made for. */
START_TEST(properties_per_device) {
  static const stub_device devices[STUB_MAX_DEVICES] = {{"first", 12, 0, 78, 101376},
                                                        {"second", 8, 6, 20, 101376},
                                                        {"slice 1g.10gb", 9, 0, 1, 232448},
                                                        {"old", 7, 5, 40, 65536}};
  static const char *const arches[STUB_MAX_DEVICES] = {"sm_120", "sm_86", "sm_90a", ""};
  char sentence[512];
  kiln_context *ctx;
  stub_state *stub = stub_open();
  stub->num_devices = STUB_MAX_DEVICES;
  memcpy(stub->devices, devices, sizeof devices);
  for (int i = 0; i < STUB_MAX_DEVICES; i++) {
    kiln_device_info info = {.size = sizeof info};
    ck_assert_int_eq(open_context(i, &ctx, sentence), KILN_OK);
    ck_assert_int_eq(kiln_context_device(ctx, &info), KILN_OK);
    ck_assert_str_eq(info.name, devices[i].name);
    ck_assert_str_eq(info.arch, arches[i]);
    ck_assert_int_eq(info.num_sms, devices[i].num_sms);
    ck_assert_int_eq(info.shared_bytes_block, devices[i].shared_bytes_block);
    kiln_context_destroy(ctx);
  }
  ck_assert_int_eq(stub->retained, 0);
}
END_TEST

/* The stub's GPU with the fake's generator and compiler. */
static kiln_context *open_bench(fake *f, stub_state *stub) {
  char sentence[512];
  kiln_context *ctx, *parts = fake_context(f, "");
  ck_assert_int_eq(open_context(0, &ctx, sentence), KILN_OK);
  ctx->services.generator = parts->services.generator;
  ctx->services.nvrtc = parts->services.nvrtc;
  ctx->generator = ctx->compiler = f;
  fake_context_destroy(parts);
  stub->this_thread()->current = f; /* the caller's own context */
  stub->this_thread()->capture_mode = 1;
  return ctx;
}

static void expect_untouched(const stub_state *stub, const fake *f) {
  ck_assert_ptr_eq(stub->this_thread()->current, f);
  ck_assert_int_eq(stub->this_thread()->capture_mode, 1);
}

static kiln_attn_args args_64(kiln_context *ctx, void *memory) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  (void)ctx;
  spec.head_dim = 64;
  args.batch = 2;
  args.seqlen_q = args.seqlen_k = 256;
  args.num_heads = args.num_heads_k = 200;
  kiln_attn_args_pack(&args, &spec);
  args.q = args.k = args.v = args.o = args.workspace = memory;
  args.workspace_bytes = 4096;
  return args;
}

START_TEST(a_launch_and_what_it_leaves) {
  fake f;
  void *memory;
  double time_us;
  kiln_plan *plan;
  stub_state *stub = stub_open();
  kiln_context *ctx = open_bench(&f, stub);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  ck_assert_int_eq(kiln_memory_alloc(ctx, 4096, &memory), KILN_OK);
  memset(memory, 0xff, 4096);
  kiln_attn_args args = args_64(ctx, memory);
  ck_assert_msg(kiln_plan_create(ctx, &spec, NULL, &args, &plan) == KILN_OK, "%s",
                kiln_last_error(ctx));
  ck_assert_int_ge(stub->relaxed_allocs, 2); /* the memory and the module */
  ck_assert_int_eq(kiln_plan_run(plan, &args, NULL), KILN_OK);
  ck_assert_int_eq(stub->num_launches, 1);
  ck_assert_uint_eq(stub->grid[0], 132);
  ck_assert_uint_eq(stub->block[0], 384);
  ck_assert_uint_eq(stub->shared_bytes, 98304);
  ck_assert_uint_eq(stub->cluster, 1);
  ck_assert_int_eq(((unsigned char *)memory)[255], 0); /* the workspace's zeroed item */
  ck_assert_int_eq(((unsigned char *)memory)[256], 0xff);
  ck_assert_int_eq(kiln_plan_time(plan, &args, 1, 4, &time_us), KILN_OK);
  ck_assert(time_us == 125.0);
  expect_untouched(stub, &f);
  kiln_plan_destroy(plan);
  ck_assert_int_eq(stub->num_loaded, 0);
  ck_assert_int_eq(kiln_memory_free(ctx, memory), KILN_OK);
  expect_untouched(stub, &f);
  kiln_context_destroy(ctx);
  ck_assert_int_eq(stub->retained, 0);
}
END_TEST

/* X2: as many blocks of a persistent kernel as there are multiprocessors, and never more tiles. */
START_TEST(grids_of_any_device) {
  static const int sms[] = {132, 78, 20, 1};
  fake f;
  void *memory;
  kiln_plan *plan;
  stub_state *stub = stub_open();
  stub->devices[0].num_sms = sms[_i];
  kiln_context *ctx = open_bench(&f, stub);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  ck_assert_int_eq(kiln_memory_alloc(ctx, 4096, &memory), KILN_OK);
  kiln_attn_args args = args_64(ctx, memory);
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &args, &plan), KILN_OK);
  ck_assert_int_eq(kiln_plan_run(plan, &args, NULL), KILN_OK);
  ck_assert_uint_eq(stub->grid[0], (unsigned)sms[_i]);
  args.batch = 1;
  args.num_heads = args.num_heads_k = 1; /* two tiles of 128 rows */
  kiln_attn_args_pack(&args, &(kiln_attn_spec){.head_dim = 64});
  ck_assert_int_eq(kiln_plan_run(plan, &args, NULL), KILN_OK);
  ck_assert_uint_eq(stub->grid[0], sms[_i] < 2 ? 1 : 2);
  kiln_plan_destroy(plan);
  kiln_memory_free(ctx, memory);
  kiln_context_destroy(ctx);
}
END_TEST

START_TEST(failures_are_named_and_leave_nothing) {
  fake f;
  void *memory;
  kiln_plan *plan;
  stub_state *stub = stub_open();
  kiln_context *ctx = open_bench(&f, stub);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  stub->fail_alloc = 2;
  ck_assert_int_eq(kiln_memory_alloc(ctx, 4096, &memory), KILN_OUT_OF_MEMORY);
  ck_assert_ptr_null(memory);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "out of memory"));
  stub->fail_alloc = 0;
  stub->fail_load = 209;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_MISMATCH);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "made for CUDA 13.0"));
  stub->fail_load = 0;
  stub->devices[0].shared_bytes_block = 50000;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_DRIVER_FAILED);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "98304 bytes of shared memory"));
  stub->devices[0].shared_bytes_block = 232448;
  stub->max_threads = 256;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_MISMATCH);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "needs 384"));
  stub->max_threads = 1024;
  ck_assert_int_eq(stub->num_loaded, 0);
  stub->capturing = 1;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_CAPTURE_ACTIVE);
  stub->capturing = 0;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_OK);
  ck_assert_int_eq(kiln_memory_alloc(ctx, 4096, &memory), KILN_OK);
  kiln_attn_args args = args_64(ctx, memory);
  stub->fail_launch = 719;
  ck_assert_int_eq(kiln_plan_run(plan, &args, NULL), KILN_DRIVER_FAILED);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "CUDA_ERROR_LAUNCH_FAILED"));
  expect_untouched(stub, &f);
  kiln_plan_destroy(plan);
  kiln_memory_free(ctx, memory);
  kiln_context_destroy(ctx);
}
END_TEST

START_TEST(the_report_names_the_devices) {
  const char *json;
  char sentence[512];
  kiln_context *ctx;
  stub_state *stub = stub_open();
  (void)stub;
  ck_assert_int_eq(open_context(0, &ctx, sentence), KILN_OK);
  ck_assert_int_eq(kiln_context_report(ctx, &json), KILN_OK);
  ck_assert_ptr_nonnull(strstr(json, "\"minimum_version\":\"12.0\""));
  ck_assert_ptr_nonnull(strstr(json, "\"name\":\"stub 90\""));
  ck_assert_ptr_nonnull(strstr(json, "\"version\":\"13.0\""));
  kiln_context_destroy(ctx);
}
END_TEST

Suite *suite_driver(void) {
  Suite *suite = suite_create("driver");
  TCase *tests = tcase_create("driver");
  tcase_add_test(tests, versions_and_failures_at_the_start);
  tcase_add_test(tests, properties_per_device);
  tcase_add_test(tests, a_launch_and_what_it_leaves);
  tcase_add_loop_test(tests, grids_of_any_device, 0, 4);
  tcase_add_test(tests, failures_are_named_and_leave_nothing);
  tcase_add_test(tests, the_report_names_the_devices);
  suite_add_tcase(suite, tests);
  return suite;
}
