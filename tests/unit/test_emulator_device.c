/* The emulator as a device: what it refuses before a launch, its compiler, its memory. */
#include "emulated.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>

static const char empty_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) { (void)a; }\n";

/* ---- tensor maps ---- */

static const kiln__tensor_map good_map = {.address = (const void *)4096,
                                          .rank = 4,
                                          .dims = {64, 10, 2, 1},
                                          .strides = {128, 1280, 2560},
                                          .box = {64, 8, 1, 1},
                                          .dtype = KILN_DTYPE_FP16,
                                          .swizzle = 128};

static kiln_status encode(const kiln__tensor_map *map, char *message, size_t size) {
  static char out[KILN__TENSOR_MAP_BYTES] __attribute__((aligned(64)));
  kiln__text error;
  kiln__text_init_fixed(&error, message, size);
  return kiln__emulator_ops.tensor_map_encode(NULL, map, &error, out);
}

START_TEST(tensor_maps_refuse_what_cuda_refuses) {
  enum { COUNT = 13 };
  kiln__tensor_map m[COUNT];
  static const char *const words[COUNT] = {"address", "dimension", "stride",    "stride",  "box",
                                           "box",     "inner box", "inner box", "swizzle", "dtype",
                                           "rank",    "rank",      "inner box"};
  char message[256];
  for (int i = 0; i < COUNT; i++) m[i] = good_map;
  m[0].address = (const void *)4104;
  m[1].dims[1] = 0;
  m[2].strides[0] = 120;
  m[3].strides[2] = 1ull << 40;
  m[4].box[1] = 0;
  m[5].box[0] = 257;
  m[6].box[0] = 60;
  m[7].swizzle = 64;
  m[8].swizzle = 48;
  m[9].dtype = (kiln_dtype)4;
  m[10].rank = 0;
  m[11].rank = 6;
  m[12].dtype = KILN_DTYPE_FP32;
  ck_assert_int_eq(encode(&good_map, message, sizeof message), KILN_OK);
  for (int i = 0; i < COUNT; i++) {
    ck_assert_int_eq(encode(&m[i], message, sizeof message), KILN_INVALID_ARGUMENT);
    ck_assert_msg(strstr(message, words[i]) != NULL, "%d: %s", i, message);
  }
}
END_TEST

/* ---- the compiler ---- */

START_TEST(a_missing_compiler_is_named) {
  kiln__env env;
  kiln__text error;
  void *compiler;
  kiln__text_init(&error, 4096);
  setenv("KILN_EMU_CC", "/nowhere/cc", 1);
  ck_assert_int_eq(kiln__env_read(&env), 0);
  ck_assert_int_eq(kiln__emulator_compiler_ops.open(&env, 0, &error, &compiler), KILN_NO_COMPILER);
  ck_assert_ptr_null(compiler);
  ck_assert_ptr_nonnull(strstr(kiln__text_get(&error), "/nowhere/cc"));
  kiln__env_free(&env);
  kiln__text_free(&error);
}
END_TEST

START_TEST(a_path_without_compilers_is_named) {
  kiln__env env;
  kiln__text error;
  void *compiler;
  kiln__text_init(&error, 4096);
  unsetenv("KILN_EMU_CC");
  setenv("PATH", "/nowhere", 1);
  ck_assert_int_eq(kiln__env_read(&env), 0);
  ck_assert_int_eq(kiln__emulator_compiler_ops.open(&env, 0, &error, &compiler), KILN_NO_COMPILER);
  ck_assert_ptr_nonnull(strstr(kiln__text_get(&error), "install one"));
  kiln__env_free(&env);
  kiln__text_free(&error);
}
END_TEST

START_TEST(compile_errors_name_the_line) {
  emulated e;
  kiln__compiled out;
  static const char text[] = "#line 7 \"/kiln/templates/x\"\nint f(void) { return missing; }\n";
  emulated_create(&e, "late", -1, 32);
  ck_assert_int_eq(
      kiln__emulator_compiler_ops.compile(e.compiler, text, strlen(text), "sm_80", &out, &e.error),
      KILN_COMPILE_FAILED);
  ck_assert_ptr_nonnull(strstr(kiln__text_get(&e.error), "/kiln/templates/x:7"));
  emulated_destroy(&e);
}
END_TEST

START_TEST(an_object_that_is_no_kernel_is_refused) {
  emulated e;
  kiln__compiled out;
  void *module;
  static const char text[] = "int f(void) { return 1; }\n";
  emulated_create(&e, "late", -1, 32);
  ck_assert_int_eq(
      kiln__emulator_compiler_ops.compile(e.compiler, text, strlen(text), "sm_80", &out, &e.error),
      KILN_OK);
  ck_assert_int_eq(
      kiln__emulator_ops.module_load(e.device, out.image, out.image_size, &e.error, &module),
      KILN_CORRUPT);
  ck_assert_int_eq(
      kiln__emulator_ops.module_load(e.device, out.image, out.image_size / 3, &e.error, &module),
      KILN_CORRUPT);
  free(out.image);
  emulated_destroy(&e);
}
END_TEST

/* ---- launches ---- */

START_TEST(launches_are_checked) {
  emulated e;
  emulated_create(&e, "late", -1, 32);
  emulated_compile(&e, empty_text);
  emulated_run(&e);
  e.blocks = 0;
  ck_assert_int_eq(emulated_launch(&e), KILN_INVALID_ARGUMENT);
  e.blocks = 3;
  e.shape.cluster = 2;
  ck_assert_int_eq(emulated_launch(&e), KILN_INVALID_ARGUMENT);
  e.blocks = 4;
  emulated_run(&e);
  e.num_maps = 1;
  ck_assert_int_eq(emulated_launch(&e), KILN_MISMATCH);
  ck_assert_ptr_nonnull(strstr(kiln__text_get(&e.error), "takes 1 parameters, not 2"));
  emulated_destroy(&e);
}
END_TEST

START_TEST(an_entry_is_checked) {
  emulated e;
  void *entry;
  kiln__entry_attributes attributes;
  static const kiln__entry_shape bad[] = {
      {33, 1, 0}, {0, 1, 0}, {2048, 1, 0}, {32, 17, 0}, {32, 1, 300 << 10}};
  static const kiln__entry_shape good = {1024, 16, 227 << 10};
  emulated_create(&e, "late", -1, 32);
  emulated_compile(&e, empty_text);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    ck_assert_int_eq(kiln__emulator_ops.entry_get(e.device, e.module, "test_kernel", &bad[i],
                                                  &e.error, &entry, &attributes),
                     KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln__emulator_ops.entry_get(e.device, e.module, "test_kernel", &good, &e.error,
                                                &entry, &attributes),
                   KILN_OK);
  ck_assert_int_eq(kiln__emulator_ops.entry_get(e.device, e.module, "other", &good, &e.error,
                                                &entry, &attributes),
                   KILN_CORRUPT);
  emulated_destroy(&e);
}
END_TEST

/* ---- memory ---- */

START_TEST(memory_begins_as_nan_and_has_bounds) {
  emulated e;
  emulated_create(&e, "late", -1, 32);
  unsigned char *at = emulated_alloc(&e, 1000), bytes[1001];
  ck_assert_uint_eq((uintptr_t)at % 256, 0);
  emulated_download(&e, bytes, at, 1000);
  for (int i = 0; i < 1000; i++) ck_assert_int_eq(bytes[i], 0xff);
  ck_assert_int_eq(kiln__emulator_ops.download(e.device, bytes, at, 1001, &e.error),
                   KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln__emulator_ops.upload(e.device, at - 1, bytes, 1, &e.error),
                   KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln__emulator_ops.memory_free(e.device, at + 16, &e.error),
                   KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln__emulator_ops.memory_free(e.device, at, &e.error), KILN_OK);
  ck_assert_int_eq(kiln__emulator_ops.memory_free(e.device, at, &e.error), KILN_INVALID_ARGUMENT);
  emulated_destroy(&e);
}
END_TEST

START_TEST(an_unknown_schedule_is_refused) {
  kiln__text error;
  void *device;
  const kiln__device_options options = {.emu_seed = -1, .emu_schedule = "soon"};
  kiln__text_init(&error, 4096);
  ck_assert_int_eq(kiln__emulator_ops.open(&options, &error, &device), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(kiln__text_get(&error), "late, eager, random"));
  kiln__text_free(&error);
}
END_TEST

Suite *suite_emulator_device(void) {
  Suite *suite = suite_create("emulator_device");
  TCase *tests = tcase_create("device");
  tcase_add_test(tests, tensor_maps_refuse_what_cuda_refuses);
  tcase_add_test(tests, a_missing_compiler_is_named);
  tcase_add_test(tests, a_path_without_compilers_is_named);
  tcase_add_test(tests, compile_errors_name_the_line);
  tcase_add_test(tests, an_object_that_is_no_kernel_is_refused);
  tcase_add_test(tests, launches_are_checked);
  tcase_add_test(tests, an_entry_is_checked);
  tcase_add_test(tests, memory_begins_as_nan_and_has_bounds);
  tcase_add_test(tests, an_unknown_schedule_is_refused);
  suite_add_tcase(suite, tests);
  return suite;
}
