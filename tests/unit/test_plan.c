/* Plans and the one call, with a device, a generator and a compiler that record. */
#include "suites.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake.h"
#include "fixture.h"
#include "runtime/cuda.h"

#define MEMORY ((char *)0x100000) /* an address that nothing reads */

static kiln_attn_spec spec_64(void) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  spec.head_dim = 64;
  return spec;
}

static kiln_attn_args args_64(void) {
  kiln_attn_spec spec = spec_64();
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  args.batch = 1;
  args.seqlen_q = args.seqlen_k = 256;
  args.num_heads = args.num_heads_k = 2;
  kiln_attn_args_pack(&args, &spec);
  args.q = args.k = args.v = MEMORY;
  args.o = MEMORY + 0x100000;
  args.workspace = MEMORY + 0x200000;
  args.workspace_bytes = 4096;
  return args;
}

START_TEST(a_plan_from_spec_to_launch) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_64();
  kiln_attn_args args = args_64(), shape = args;
  kiln_plan *plan;
  kiln_plan_info info = {.size = sizeof info};
  shape.q = shape.k = shape.v = shape.o = shape.workspace = NULL;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &shape, &plan), KILN_OK);
  kiln_plan_get_info(plan, &info);
  ck_assert_str_eq(info.spec.arch, "sm_90a"); /* the device's */
  ck_assert_int_eq(info.spec.head_dim_v, 64);
  ck_assert_int_eq(info.tile.block_m, 128);
  ck_assert_uint_eq(strlen(info.kernel_id), 64);
  ck_assert_uint_eq(info.workspace_bytes, 256 + 256);
  ck_assert_int_eq(info.from_cache, 0);
  ck_assert_ptr_nonnull(strstr(info.why, "arch default"));
  ck_assert_ptr_nonnull(strstr(info.record, "\"registers\":168"));
  ck_assert_int_eq(kiln_plan_run(plan, &args, NULL), KILN_OK);
  ck_assert_int_eq(f.num_launches, 1);
  size_t bytes;
  args.seqlen_q = 1280;
  ck_assert_int_eq(kiln_plan_workspace(plan, &args, &bytes), KILN_OK);
  ck_assert_uint_eq(bytes, 256 + 1024);
  kiln_plan_destroy(plan);
  ck_assert_int_eq(f.num_unloads, 1);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(an_explicit_tile_is_named) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_64();
  kiln_tile tile = KILN_TILE_INIT;
  kiln_plan *plan;
  kiln_plan_info info = {.size = sizeof info};
  tile.block_m = 64;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, &tile, NULL, &plan), KILN_OK);
  kiln_plan_get_info(plan, &info);
  ck_assert_ptr_nonnull(strstr(info.why, "explicit: the caller chose block_m = 64"));
  /* An older caller's struct ends earlier: nothing behind it is written. */
  kiln_plan_info older = {.size = offsetof(kiln_plan_info, why), .why = "untouched"};
  kiln_plan_get_info(plan, &older);
  ck_assert_str_eq(older.why, "untouched");
  ck_assert_str_eq(older.record, info.record);
  ck_assert_uint_eq(older.size, offsetof(kiln_plan_info, why));
  ck_assert_int_eq(info.tile.block_m, 64);
  kiln_plan_destroy(plan);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(step_by_step) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_64();
  kiln_attn_args args = args_64();
  kiln_source *source;
  kiln_binary *binary;
  kiln_kernel *kernel;
  kiln_plan *plan;
  kiln_binary_info info = {.size = sizeof info};
  kiln_plan_info made = {.size = sizeof made};
  size_t size;
  ck_assert_int_eq(kiln_source_generate(ctx, &spec, NULL, 0, &source), KILN_OK);
  ck_assert_str_eq(kiln_source_text(source, &size), "kernel sm_90a 64 128");
  ck_assert_uint_eq(size, strlen("kernel sm_90a 64 128"));
  ck_assert_int_eq(kiln_binary_compile(ctx, source, &binary), KILN_OK);
  kiln_binary_get_info(binary, &info);
  ck_assert_int_eq(info.registers, 168);
  ck_assert_int_eq(info.spill_bytes, 24);
  ck_assert_int_eq(info.shared_bytes, 98304 + 1024);
  ck_assert_str_eq(info.notes, "(C7510) a remark");
  ck_assert_str_eq(kiln_binary_ptx(binary, NULL), "// ptx");
  kiln_source_destroy(source);
  ck_assert_int_eq(kiln_kernel_load(ctx, binary, &kernel), KILN_OK);
  ck_assert_int_eq(kiln_plan_load(ctx, binary, &plan), KILN_OK);
  kiln_binary_destroy(binary); /* the kernel needs neither */
  ck_assert_int_eq(kiln_kernel_launch(kernel, &args, NULL), KILN_OK);
  kiln_kernel_destroy(kernel);
  kiln_plan_get_info(plan, &made);
  ck_assert(made.spec.head_dim == 64 && made.tile.block_m == 128 && made.kernel_id[0]);
  ck_assert_str_eq(made.why, "explicit: the caller's binary");
  ck_assert_int_eq(f.num_compiles, 1);
  ck_assert_int_eq(kiln_plan_run(plan, &args, NULL), KILN_OK);
  kiln_plan_destroy(plan);
  ck_assert_int_eq(f.num_loads, f.num_unloads);
  ck_assert_int_eq(kiln_plan_load(ctx, NULL, &plan), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_null(plan);
  ck_assert_int_eq(kiln_source_generate(ctx, &spec, NULL, 8, &source), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_null(source);
  fake_context_destroy(ctx);
}
END_TEST

/* Neither kernels nor notes nor locks, and yet what another has published is read. */
START_TEST(a_read_only_cache_is_left_as_it_is) {
  fake f;
  fixture files;
  kiln_plan *plan;
  char remove[320];
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  kiln_attn_spec spec = spec_64();
  fixture_create(&files);
  kiln_context *ctx = fake_context(&f, fixture_path(&files, "cache"));
  f.compiler_key = f.stamp = "a key";
  for (int i = 0; i < 4; i++) {
    ctx->cache.read_only = i != 2;
    ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_OK);
    kiln_plan_destroy(plan);
    ck_assert_int_eq(f.num_compiles, i < 3 ? i + 1 : 3);
    ck_assert_int_eq(fixture_count(&files), i < 2 ? 0 : 1);
  }
  fake_context_destroy(ctx);
  for (options.cache_read_only = 0; options.cache_read_only < 2; options.cache_read_only++) {
    ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &options, &ctx), KILN_OK);
    ck_assert_int_eq(ctx->cache.read_only, options.cache_read_only);
    kiln_context_destroy(ctx);
  }
  snprintf(remove, sizeof remove, "rm -r '%s'", files.folder);
  ck_assert_int_eq(system(remove), 0);
}
END_TEST

START_TEST(refusals_come_before_the_compiler) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_64();
  kiln_attn_args args = args_64();
  kiln_plan *plan = (kiln_plan *)&f;
  args.num_heads = 3;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &args, &plan), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_null(plan);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "num_heads is 3"));
  strcpy(spec.arch, "sm_80");
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_MISMATCH);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "make it for sm_90a"));
  spec = spec_64();
  spec.head_dim = 59;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_INVALID_ARGUMENT);
  ck_assert_str_eq(kiln_last_error(ctx), "head_dim is 59");
  spec.size = 3;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_INVALID_ARGUMENT);
  spec = spec_64();
  f.capturing = 1;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_CAPTURE_ACTIVE);
  ck_assert_int_eq(f.num_compiles, 0);
  fake_context_destroy(ctx);
}
END_TEST

/* arch of the kernel, compute capability and best arch of the device, whether it runs */
static const struct {
  const char *arch;
  int major, minor;
  const char *best;
  kiln_status status;
} matches[] = {
    {"sm_90a", 9, 0, "sm_90a", KILN_OK},     {"sm_90", 9, 0, "sm_90a", KILN_OK},
    {"sm_80", 8, 6, "sm_86", KILN_MISMATCH}, {"sm_86", 8, 7, "sm_86", KILN_OK},
    {"sm_90a", 10, 0, "", KILN_MISMATCH},    {"sm_90a", 8, 6, "sm_86", KILN_MISMATCH},
    {"sm_120", 12, 1, "sm_120", KILN_OK},    {"sm_89", 8, 9, "sm_89", KILN_OK},
};

START_TEST(which_arch_runs_where) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  ctx->info.compute_major = matches[_i].major;
  ctx->info.compute_minor = matches[_i].minor;
  strcpy(ctx->info.arch, matches[_i].best);
  ck_assert_str_eq(kiln__arch_best(matches[_i].major, matches[_i].minor), matches[_i].best);
  ck_assert_int_eq(kiln__check_arch(ctx, matches[_i].arch), matches[_i].status);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(failures_leave_nothing) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_64();
  kiln_plan *plan;
  f.fail_compile = KILN_COMPILE_FAILED;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_COMPILE_FAILED);
  ck_assert_str_eq(kiln_last_error(ctx), "/kiln/templates/x.tmpl.cu(7): error: planted");
  f.fail_compile = KILN_OK;
  f.fail_load = KILN_DRIVER_FAILED;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_DRIVER_FAILED);
  ck_assert_ptr_null(plan);
  ck_assert_int_eq(f.num_unloads, 0);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(compiling_switched_off) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_64();
  kiln_plan *plan;
  ctx->compile_off = 1;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_MISSING_KERNEL);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "KILN_JIT"));
  ck_assert_int_eq(f.num_compiles, 0);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(one_call_keeps_its_plan) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_64(), other = spec_64();
  kiln_attn_args args = args_64();
  other.mask = KILN_MASK_CAUSAL;
  for (int i = 0; i < 3; i++) ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
  ck_assert_int_eq(f.num_compiles, 1);
  ck_assert_int_eq(f.num_loads, 1);
  ck_assert_int_eq(f.num_launches, 3);
  f.capturing = 1; /* a plan that is at hand runs inside a capture; a new one is refused */
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
  ck_assert_int_eq(kiln_attn_forward(ctx, &other, &args, NULL), KILN_CAPTURE_ACTIVE);
  f.capturing = 0;
  ck_assert_int_eq(kiln_attn_forward(ctx, &other, &args, NULL), KILN_OK);
  ck_assert_int_eq(f.num_loads, 2);
  args.size = 1;
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_INVALID_ARGUMENT);
  fake_context_destroy(ctx);
  ck_assert_int_eq(f.num_unloads, 2);
}
END_TEST

START_TEST(timing) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_64();
  kiln_attn_args args = args_64();
  kiln_plan *plan;
  double time_us;
  const char *json = "";
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &args, &plan), KILN_OK);
  ck_assert_int_eq(kiln_plan_time(plan, &args, 3, 10, &time_us), KILN_OK);
  ck_assert_int_eq(f.num_launches, 13);
  ck_assert(time_us == 12.0);
  ck_assert_int_eq(kiln_plan_time(plan, &args, 0, 0, &time_us), KILN_INVALID_ARGUMENT);
  args.batch = -1;
  ck_assert_int_eq(kiln_plan_time(plan, &args, 0, 1, &time_us), KILN_INVALID_ARGUMENT);
  ck_assert(time_us == 0);
  /* A device has no timeline to give. */
  ck_assert_int_eq(kiln_plan_trace(plan, &args, 0, &json), KILN_UNSUPPORTED);
  ck_assert_ptr_null(json);
  kiln_plan_destroy(plan);
  fake_context_destroy(ctx);
}
END_TEST

/* The sets take turns, and the mean is of all launches. */
START_TEST(samples) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_64();
  kiln_attn_args first = args_64(), second = first;
  const kiln_attn_args *sets[] = {&first, &second};
  kiln_plan *plan;
  double time_us = 1;
  second.q = MEMORY + 0x300000;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &first, &plan), KILN_OK);
  ck_assert_int_eq(kiln_plan_sample(plan, sets, 2, 3, &time_us), KILN_OK);
  ck_assert_int_eq(f.num_launches, 6);
  for (int i = 0; i < 6; i++) ck_assert_ptr_eq(f.launches[i].args.q, sets[i % 2]->q);
  ck_assert(time_us == 12);
  ck_assert_int_eq(kiln_plan_sample(plan, sets, 0, 1, &time_us), KILN_INVALID_ARGUMENT);
  ck_assert_str_eq(kiln_last_error(ctx), "num_sets is 0 and turns 1: both must be at least 1");
  ck_assert(time_us == 0);
  ck_assert_int_eq(kiln_plan_sample(plan, sets, 2, 0, &time_us), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_plan_sample(plan, NULL, 1, 1, &time_us), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_plan_sample(NULL, sets, 1, 1, &time_us), KILN_INVALID_ARGUMENT);
  second.batch = -1; /* what is refused stops the sample */
  time_us = 1;
  ck_assert_int_eq(kiln_plan_sample(plan, sets, 2, 3, &time_us), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(f.num_launches, 7);
  ck_assert(time_us == 0);
  ctx->device_id = KILN_DEVICE_EMU;
  ck_assert_int_eq(kiln_plan_sample(plan, sets, 1, 1, &time_us), KILN_UNSUPPORTED);
  ck_assert_str_eq(kiln_last_error(ctx), "the emulator has no time to measure: create the context "
                                         "with the number of a GPU");
  ck_assert_int_eq(f.num_launches, 7);
  ctx->device_id = 0;
  kiln_plan_destroy(plan);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(a_child_process_may_not_launch) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_64();
  kiln_attn_args args = args_64();
  kiln_plan *plan;
  int result;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &args, &plan), KILN_OK);
  pid_t child = fork();
  if (child == 0) {
    kiln_status status = kiln_plan_run(plan, &args, NULL);
    kiln_plan_destroy(plan);
    _exit(status == KILN_FORKED && f.num_launches == 0 && f.num_unloads == 0 ? 0 : 1);
  }
  ck_assert_int_eq(waitpid(child, &result, 0), child);
  ck_assert_int_eq(result, 0);
  kiln_plan_destroy(plan);
  fake_context_destroy(ctx);
}
END_TEST

static void plan_for(kiln_context *ctx, const kiln_attn_spec *spec, const kiln_attn_args *shape) {
  kiln_plan *plan;
  ck_assert_int_eq(kiln_plan_create(ctx, spec, NULL, shape, &plan), KILN_OK);
  kiln_plan_destroy(plan);
}

/* KILN_RECORD: each spec and shape once, whole lines, nothing of a plan without a shape. */
START_TEST(a_run_records_its_problems) {
  static const char first[] =
      "{\"arch\":\"sm_90a\",\"algorithm\":\"flash\",\"dtype\":\"bf16\",\"head_dim\":64,"
      "\"head_dim_v\":64,\"mask\":\"none\",\"batch\":1,\"seqlen_q\":256,\"seqlen_k\":256,"
      "\"num_heads\":2,\"num_heads_k\":2}\n";
  fake f;
  char path[] = "/tmp/kiln-record-XXXXXX", text[2048] = "";
  int file = mkstemp(path);
  ck_assert_int_ge(file, 0);
  setenv("KILN_RECORD", path, 1);
  kiln_context *ctx = fake_context(&f, "");
  unsetenv("KILN_RECORD");
  kiln_attn_spec spec = spec_64();
  kiln_attn_args shape = args_64(), longer = args_64(), none = KILN_ATTN_ARGS_INIT;
  longer.seqlen_q = 512;
  plan_for(ctx, &spec, &shape);
  plan_for(ctx, &spec, &longer);
  plan_for(ctx, &spec, &shape);
  plan_for(ctx, &spec, NULL);
  none.num_heads = none.num_heads_k = 1;
  plan_for(ctx, &spec, &none);
  ck_assert_int_gt(read(file, text, sizeof text - 1), 0);
  ck_assert_mem_eq(text, first, strlen(first));
  const char *second = text + strlen(first), *end = strchr(second, '\n');
  ck_assert_ptr_nonnull(end);
  ck_assert_str_eq(end, "\n");
  ck_assert_ptr_nonnull(strstr(second, "\"seqlen_q\":512,"));
  close(file);
  unlink(path);
  fake_context_destroy(ctx);
}
END_TEST

Suite *suite_plan(void) {
  Suite *suite = suite_create("plan");
  TCase *tests = tcase_create("plan");
  tcase_add_test(tests, a_plan_from_spec_to_launch);
  tcase_add_test(tests, an_explicit_tile_is_named);
  tcase_add_test(tests, step_by_step);
  tcase_add_test(tests, a_read_only_cache_is_left_as_it_is);
  tcase_add_test(tests, refusals_come_before_the_compiler);
  tcase_add_loop_test(tests, which_arch_runs_where, 0, (int)(sizeof matches / sizeof matches[0]));
  tcase_add_test(tests, failures_leave_nothing);
  tcase_add_test(tests, compiling_switched_off);
  tcase_add_test(tests, one_call_keeps_its_plan);
  tcase_add_test(tests, timing);
  tcase_add_test(tests, samples);
  tcase_add_test(tests, a_child_process_may_not_launch);
  tcase_add_test(tests, a_run_records_its_problems);
  suite_add_tcase(suite, tests);
  return suite;
}
