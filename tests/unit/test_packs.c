/* Packs of a context: what a plan takes from them, and that it takes nothing else. */
#include "suites.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"
#include "fixture.h"
#include "packing.h"

static kiln_attn_spec spec_of(int head_dim) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  spec.head_dim = head_dim;
  return spec;
}

static kiln_status make_plan(kiln_context *ctx, int head_dim, int block_m, kiln_plan_info *info) {
  kiln_attn_spec spec = spec_of(head_dim);
  kiln_tile tile = KILN_TILE_INIT;
  kiln_plan *plan = NULL;
  tile.block_m = block_m;
  kiln_status status = kiln_plan_create(ctx, &spec, &tile, NULL, &plan);
  ck_assert_int_eq(plan != NULL, status == KILN_OK);
  *info = (kiln_plan_info){.size = sizeof *info};
  if (plan) kiln_plan_get_info(plan, info);
  /* Kept for a look by the caller: numbers alone are still good. */
  kiln_plan_destroy(plan);
  info->record = info->why = info->kernel_id = info->source_id = NULL;
  return status;
}

/* As in libkiln_rt. */
static void take_services(kiln_context *ctx) {
  ctx->generator = ctx->compiler = NULL;
  memset(&ctx->services, 0, sizeof ctx->services);
}

START_TEST(a_plan_without_generator_and_compiler) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_of(72);
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  kiln_plan_info info = {.size = sizeof info};
  kiln_plan *plan;
  take_services(ctx);
  kiln_pack *pack = packing_pack(ctx, 2);
  ck_assert_int_eq(kiln_context_add_pack(ctx, pack), KILN_OK);
  kiln_pack_destroy(pack); /* the context keeps it */
  args.batch = args.seqlen_q = args.seqlen_k = args.num_heads = args.num_heads_k = 2;
  kiln_attn_args_pack(&args, &spec);
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &args, &plan), KILN_OK);
  kiln_plan_get_info(plan, &info);
  ck_assert_str_eq(info.pack, "");
  ck_assert_str_eq(info.why, "pack in memory: its default tile for this spec");
  ck_assert_int_eq(info.spec.head_dim_v, 72);
  ck_assert_str_eq(info.spec.arch, "sm_90a");
  ck_assert_int_eq(info.tile.num_warps, 12);
  ck_assert_uint_eq(info.workspace_bytes, 512);
  ck_assert_uint_eq(f.loaded_bytes, PACKING_IMAGE);
  args.q = args.k = args.v = args.o = args.workspace = (void *)0x1000;
  args.workspace_bytes = 4096;
  ck_assert_int_eq(kiln_plan_run(plan, &args, NULL), KILN_OK);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
  ck_assert_int_eq(f.num_launches, 2);
  kiln_plan_destroy(plan);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(a_missing_kernel_is_named) {
  static const char command[] =
      "there is no kernel for sm_90a bf16 256 none block_m=64 in a pack, and this library compiles "
      "none: add it by `kiln pack build --arch sm_90a --pass forward --algorithm flash --dtype "
      "bf16 --head-dim 256 --head-dim-v 256 --mask none --block-m 64` and name the file in "
      "KILN_PACK_PATH";
  fake f;
  kiln_plan_info info;
  kiln_context *ctx = fake_context(&f, "");
  kiln_pack *pack = packing_pack(ctx, 1);
  ck_assert_int_eq(kiln_context_add_pack(ctx, pack), KILN_OK);
  kiln_pack_destroy(pack);
  ctx->compile_off = 1;
  ck_assert_int_eq(make_plan(ctx, 64, 0, &info), KILN_OK);
  ck_assert_int_eq(make_plan(ctx, 256, 0, &info), KILN_MISSING_KERNEL);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "`kiln pack build --arch sm_90a"));
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "KILN_JIT"));
  ck_assert_int_eq(f.num_compiles, 0);
  take_services(ctx);
  ck_assert_int_eq(make_plan(ctx, 256, 64, &info), KILN_MISSING_KERNEL);
  ck_assert_str_eq(kiln_last_error(ctx), command);
  fake_context_destroy(ctx);
}
END_TEST

/* No command makes what is no kernel, and without the generator nobody says what is one. */
START_TEST(numbers_without_a_word) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_of(64);
  kiln_plan *plan;
  spec.pass = KILN_PASS_BACKWARD;
  take_services(ctx);
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_MISSING_KERNEL);
  if (_i == 0) spec.pass = (kiln_pass)5;
  if (_i == 1) spec.algorithm = (kiln_algorithm)5;
  if (_i == 2) spec.dtype = KILN_DTYPE_E4M3;
  if (_i == 3) spec.mask = (kiln_mask)-1;
  if (_i == 4) spec.deterministic = 2;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_INVALID_ARGUMENT);
  ck_assert_msg(strstr(kiln_last_error(ctx), "is no number of this version's") != NULL, "%s",
                kiln_last_error(ctx));
  fake_context_destroy(ctx);
}
END_TEST

/* A pack of two tiles of a spec. */
static void add_tiles(kiln_context *ctx, int default_block_m) {
  kiln_pack_writer *writer;
  kiln_pack *pack;
  ck_assert_int_eq(kiln_pack_writer_create(ctx, &writer), KILN_OK);
  for (int block_m = 64; block_m <= 192; block_m += 128) {
    kiln_binary *binary = packing_binary("sm_90a", 64, block_m);
    unsigned flags = block_m == default_block_m ? KILN_PACK_DEFAULT : 0;
    ck_assert_int_eq(kiln_pack_writer_add(writer, binary, flags), KILN_OK);
    kiln_binary_destroy(binary);
  }
  ck_assert_int_eq(kiln_pack_writer_finish(writer, &pack), KILN_OK);
  kiln_pack_writer_destroy(writer);
  ck_assert_int_eq(kiln_context_add_pack(ctx, pack), KILN_OK);
  kiln_pack_destroy(pack);
}

/* Whichever of the two comes first in the file, and whichever is the smaller. */
START_TEST(which_kernel_a_plan_takes) {
  const int default_block_m = _i ? 192 : 64;
  fake f;
  kiln_plan_info info;
  kiln_context *ctx = fake_context(&f, "");
  add_tiles(ctx, default_block_m);
  kiln_pack *pack = packing_pack(ctx, 1);
  ck_assert_int_eq(kiln_context_add_pack(ctx, pack), KILN_OK);
  kiln_pack_destroy(pack);
  ck_assert_int_eq(make_plan(ctx, 64, 0, &info), KILN_OK);
  ck_assert_int_eq(info.tile.block_m, default_block_m);
  for (int block_m = 64; block_m <= 192; block_m += 64) { /* 128 is of the second pack */
    ck_assert_int_eq(make_plan(ctx, 64, block_m, &info), KILN_OK);
    ck_assert_int_eq(info.tile.block_m, block_m);
  }
  ck_assert_int_eq(f.num_renders + f.num_compiles, 0);
  ck_assert_int_eq(make_plan(ctx, 64, 256, &info), KILN_OK); /* in neither: compiled */
  ck_assert_int_eq(f.num_compiles, 1);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(a_shape_is_looked_at_before_the_driver_loads) {
  fake f;
  kiln_plan *plan;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = spec_of(64);
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  add_tiles(ctx, 64);
  args.batch = args.seqlen_q = args.seqlen_k = args.num_heads_k = 2;
  args.num_heads = 3;
  kiln_attn_args_pack(&args, &spec);
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, &args, &plan), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "num_heads is 3"));
  ck_assert_int_eq(f.num_loads, 0);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(another_arch_than_the_device) {
  fake f;
  kiln_plan *plan;
  kiln_context *ctx = fake_context(&f, "");
  kiln_pack *pack = packing_pack(ctx, 1);
  kiln_attn_spec spec = spec_of(64);
  take_services(ctx);
  ck_assert_int_eq(kiln_context_add_pack(ctx, pack), KILN_OK);
  kiln_pack_destroy(pack);
  strcpy(ctx->info.arch, "sm_86");
  ctx->info.compute_major = 8;
  ctx->info.compute_minor = 6;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_MISSING_KERNEL);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "sm_86 bf16 64 none"));
  strcpy(spec.arch, "sm_90a"); /* the pack has it, and the device does not run it */
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_MISMATCH);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "make it for sm_86"));
  strcpy(spec.arch, "sm_80");
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_MISMATCH);
  ck_assert_int_eq(f.num_loads, 0);
  fake_context_destroy(ctx);
}
END_TEST

/* The root hash is right and an image is not: the driver must not see it. */
START_TEST(a_wrong_image_does_not_reach_the_driver) {
  fake f;
  size_t size;
  kiln_plan_info info;
  kiln_context *ctx = fake_context(&f, "");
  kiln_pack *pack = packing_pack(ctx, 1), *wrong;
  unsigned char *bytes = packing_copy(pack, &size);
  bytes[size - 1] ^= 1;
  packing_reroot(bytes, size);
  ck_assert_int_eq(kiln_pack_open_memory(ctx, bytes, size, NULL, &wrong), KILN_OK);
  ck_assert_int_eq(kiln_context_add_pack(ctx, wrong), KILN_OK);
  kiln_pack_destroy(wrong);
  ck_assert_int_eq(make_plan(ctx, 64, 0, &info), KILN_CORRUPT);
  ck_assert_int_eq(f.num_loads, 0);
  ck_assert_int_eq(f.num_compiles, 0); /* and it is not passed over */
  kiln_pack_destroy(pack);
  fake_context_destroy(ctx);
  free(bytes);
}
END_TEST

/* ---- files ---- */

static kiln_context *context_with_path(fake *f, const char *path) {
  kiln_context *ctx = fake_context(f, "");
  free(ctx->env.values[KILN__ENV_KILN_PACK_PATH]);
  ctx->env.values[KILN__ENV_KILN_PACK_PATH] = strdup(path);
  return ctx;
}

static void write_pack(fixture *files, const char *name, int count) {
  fake f;
  size_t size;
  kiln_context *ctx = fake_context(&f, "");
  kiln_pack *pack = packing_pack(ctx, count);
  const void *bytes = kiln_pack_bytes(pack, &size);
  fixture_write(files, name, bytes, size);
  kiln_pack_destroy(pack);
  fake_context_destroy(ctx);
}

START_TEST(packs_of_the_environment) {
  fake f;
  fixture files;
  char path[1024];
  kiln_plan_info info;
  fixture_create(&files);
  write_pack(&files, "one", 1);
  write_pack(&files, "three", 3);
  snprintf(path, sizeof path, ":%s/one::%s/three:", files.folder, files.folder);
  kiln_context *ctx = context_with_path(&f, path);
  kiln_attn_spec spec = spec_of(64);
  kiln_plan *plan;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_OK);
  info = (kiln_plan_info){.size = sizeof info};
  kiln_plan_get_info(plan, &info);
  ck_assert_str_eq(info.pack, fixture_path(&files, "one")); /* the first that has it */
  ck_assert_ptr_nonnull(strstr(info.why, files.path));
  kiln_plan_destroy(plan);
  ck_assert_int_eq(make_plan(ctx, 80, 0, &info), KILN_OK);
  ck_assert_int_eq(f.num_compiles, 0);
  kiln_pack *added = packing_pack(ctx, 1); /* goes before them */
  ck_assert_int_eq(kiln_context_add_pack(ctx, added), KILN_OK);
  kiln_pack_destroy(added);
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_OK);
  kiln_plan_get_info(plan, &info);
  ck_assert_str_eq(info.pack, "");
  kiln_plan_destroy(plan);
  fake_context_destroy(ctx);
  fixture_destroy(&files);
}
END_TEST

START_TEST(a_file_of_the_environment_is_never_passed_over) {
  fake f;
  fixture files;
  char path[1024];
  kiln_plan_info info;
  fixture_create(&files);
  write_pack(&files, "good", 1);
  fixture_write(&files, "bad", "KILNPACK", 8);
  snprintf(path, sizeof path, "%s/good:%s/bad", files.folder, files.folder);
  kiln_context *ctx = context_with_path(&f, path);
  ck_assert_int_eq(make_plan(ctx, 64, 0, &info), KILN_CORRUPT);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "/bad is damaged"));
  ck_assert_int_eq(unlink(fixture_path(&files, "bad")), 0);
  ck_assert_int_eq(make_plan(ctx, 64, 0, &info), KILN_IO_FAILED);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "No such file"));
  write_pack(&files, "bad", 2); /* put right: the next plan finds it */
  ck_assert_int_eq(make_plan(ctx, 72, 0, &info), KILN_OK);
  ck_assert_int_eq(f.num_compiles, 0);
  fake_context_destroy(ctx);
  fixture_destroy(&files);
}
END_TEST

START_TEST(files_that_are_no_packs) {
  fake f;
  fixture files;
  kiln_pack *pack;
  kiln_context *ctx = fake_context(&f, "");
  fixture_create(&files);
  ck_assert_int_eq(kiln_pack_open_file(ctx, files.folder, NULL, &pack), KILN_CORRUPT);
  ck_assert_int_eq(mkfifo(fixture_path(&files, "fifo"), 0600), 0);
  ck_assert_int_eq(kiln_pack_open_file(ctx, files.path, NULL, &pack), KILN_CORRUPT);
  fixture_write(&files, "empty", "", 0);
  ck_assert_int_eq(kiln_pack_open_file(ctx, files.path, NULL, &pack), KILN_CORRUPT);
  ck_assert_ptr_null(pack);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "kiln pack build"));
  ck_assert_int_eq(symlink("loop", fixture_path(&files, "loop")), 0);
  ck_assert_int_eq(kiln_pack_open_file(ctx, files.path, NULL, &pack), KILN_IO_FAILED);
  fake_context_destroy(ctx);
  fixture_destroy(&files);
}
END_TEST

/* Somebody writes into the file after it was opened. */
START_TEST(a_file_that_changes_below_the_mapping) {
  fake f;
  fixture files;
  kiln_pack *pack;
  kiln_plan_info info;
  kiln_context *ctx = fake_context(&f, "");
  fixture_create(&files);
  write_pack(&files, "pack", 1);
  const char *path = fixture_path(&files, "pack");
  ck_assert_int_eq(kiln_pack_open_file(ctx, path, NULL, &pack), KILN_OK);
  ck_assert_int_eq(kiln_context_add_pack(ctx, pack), KILN_OK);
  ck_assert_int_eq(make_plan(ctx, 64, 0, &info), KILN_OK);
  size_t size;
  kiln_pack_bytes(pack, &size);
  int file = open(path, O_WRONLY);
  ck_assert_int_eq(pwrite(file, "!", 1, (off_t)size - 1), 1);
  close(file);
  ck_assert_int_eq(make_plan(ctx, 64, 0, &info), KILN_CORRUPT);
  ck_assert_int_eq(f.num_loads, 1);
  kiln_pack_destroy(pack);
  fake_context_destroy(ctx);
  fixture_destroy(&files);
}
END_TEST

START_TEST(the_option_that_switches_compiling_off) {
  kiln_context *ctx;
  kiln_context_options o = KILN_CONTEXT_OPTIONS_INIT;
  o.jit_off = 1;
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &o, &ctx), KILN_OK);
  ck_assert_int_eq(ctx->compile_off, 1);
  kiln_context_destroy(ctx);
  o.jit_off = 1; /* a caller whose header is older has no such field */
  o.size = offsetof(kiln_context_options, jit_off);
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &o, &ctx), KILN_OK);
  ck_assert_int_eq(ctx->compile_off, 0);
  kiln_context_destroy(ctx);
}
END_TEST

Suite *suite_packs(void) {
  Suite *suite = suite_create("packs");
  TCase *tests = tcase_create("packs");
  tcase_add_test(tests, a_plan_without_generator_and_compiler);
  tcase_add_test(tests, a_missing_kernel_is_named);
  tcase_add_loop_test(tests, numbers_without_a_word, 0, 5);
  tcase_add_loop_test(tests, which_kernel_a_plan_takes, 0, 2);
  tcase_add_test(tests, a_shape_is_looked_at_before_the_driver_loads);
  tcase_add_test(tests, another_arch_than_the_device);
  tcase_add_test(tests, a_wrong_image_does_not_reach_the_driver);
  tcase_add_test(tests, packs_of_the_environment);
  tcase_add_test(tests, a_file_of_the_environment_is_never_passed_over);
  tcase_add_test(tests, files_that_are_no_packs);
  tcase_add_test(tests, a_file_that_changes_below_the_mapping);
  tcase_add_test(tests, the_option_that_switches_compiling_off);
  suite_add_tcase(suite, tests);
  return suite;
}
