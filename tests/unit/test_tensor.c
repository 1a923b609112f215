/* Tensors in memory: their sizes, their conversion, and how a word of the command line is read. */
#include "fixture.h"
#include "suites.h"
#include "tensor.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

START_TEST(create_checks_the_size) {
  kiln__tensor t;
  const int64_t plain[3] = {2, 0, 3}, negative[2] = {4, -1};
  const int64_t huge[2] = {INT64_C(1) << 40, INT64_C(1) << 40};
  const int64_t hidden[3] = {0, INT64_C(1) << 40, INT64_C(1) << 40};
  ck_assert_int_eq(kiln__tensor_create(KILN__TENSOR_FP16, 3, plain, &t), KILN_OK);
  ck_assert_uint_eq(t.bytes, 0);
  ck_assert_ptr_nonnull(t.data);
  kiln__tensor_destroy(&t);
  ck_assert_ptr_null(t.data);
  kiln__tensor_destroy(&t);
  ck_assert_int_eq(kiln__tensor_create(KILN__TENSOR_FP16, 2, negative, &t), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln__tensor_create(KILN__TENSOR_FP16, 2, huge, &t), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln__tensor_create(KILN__TENSOR_FP16, 3, hidden, &t), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln__tensor_create(KILN__TENSOR_FP16, 9, plain, &t), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln__tensor_create(KILN__TENSOR_FP16, -1, plain, &t), KILN_INVALID_ARGUMENT);
}
END_TEST

/* 1 + 2^-11 + 2^-40 is above the middle of two fp16 numbers; as a float it would be the middle. */
START_TEST(convert_rounds_once) {
  const kiln__tensor_dtype dtypes[] = {KILN__TENSOR_FP16, KILN__TENSOR_BF16, KILN__TENSOR_E4M3,
                                       KILN__TENSOR_FP32, KILN__TENSOR_FP64};
  const double expected[][2] = {{1 + 0x1p-10, -3.25},
                                {1, -3.25},
                                {1, -3.25},
                                {1 + 0x1p-11, -3.25},
                                {1 + 0x1p-11 + 0x1p-40, -3.25}};
  const int64_t shape[2] = {1, 2};
  kiln__tensor from, narrow, back;
  ck_assert_int_eq(kiln__tensor_create(KILN__TENSOR_FP64, 2, shape, &from), KILN_OK);
  memcpy(from.data, expected[4], from.bytes);
  for (int i = 0; i < 5; i++) {
    ck_assert_int_eq(kiln__tensor_convert(&from, dtypes[i], &narrow), KILN_OK);
    ck_assert_int_eq(kiln__tensor_convert(&narrow, KILN__TENSOR_FP64, &back), KILN_OK);
    ck_assert_uint_eq(narrow.bytes, 2 * kiln__tensor_dtype_size(dtypes[i]));
    ck_assert_int_eq(narrow.rank, 2);
    ck_assert_int_eq(kiln__tensor_count(&narrow), 2);
    ck_assert_mem_eq(back.data, expected[i], sizeof expected[i]);
    kiln__tensor_destroy(&narrow);
    kiln__tensor_destroy(&back);
  }
  kiln__tensor_destroy(&from);
}
END_TEST

static void refuse(const char *source, kiln_status status, const char *reason) {
  kiln__tensor t;
  kiln__tensor_error error;
  ck_assert_int_eq(kiln__tensor_load(source, &t, &error), status);
  ck_assert_ptr_nonnull(strstr(error.text, reason));
  ck_assert_ptr_null(t.data);
  ck_assert_int_eq(t.rank, 0);
}

/* Opening the FIFO must not wait for a writer: check's timeout would end this test. */
START_TEST(load_refuses_what_is_no_file) {
  fixture f;
  fixture_create(&f);
  refuse(f.folder, KILN_IO_FAILED, "is not a regular file");
  refuse(fixture_path(&f, "none.npy"), KILN_IO_FAILED, "No such file or directory");
  refuse(fixture_path(&f, "none.safetensors:q"), KILN_IO_FAILED, "No such file or directory");
  ck_assert_int_eq(mkfifo(fixture_path(&f, "fifo"), 0600), 0);
  refuse(f.path, KILN_IO_FAILED, "is not a regular file");
  refuse("/dev/zero", KILN_IO_FAILED, "is not a regular file");
  refuse("", KILN_IO_FAILED, "cannot be opened");
  fixture_destroy(&f);
}
END_TEST

START_TEST(load_without_a_tensor_name) {
  fixture f;
  fixture_create(&f);
  refuse(fixture_write(&f, "a.safetensors", "\2\0\0\0\0\0\0\0{}", 10), KILN_CORRUPT, "FILE:NAME");
  refuse(fixture_write(&f, "empty", "", 0), KILN_CORRUPT, "is not a .npy file");
  fixture_destroy(&f);
}
END_TEST

/* A colon belongs to a path that exists, and to a tensor's name after the first file. */
START_TEST(colons) {
  static const char header[] = "{\"x:y\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}";
  char bytes[8 + sizeof header - 1 + 4] = {sizeof header - 1};
  const float value = 2.5f;
  kiln__tensor t;
  kiln__tensor_error error;
  fixture f;
  fixture_create(&f);
  memcpy(bytes + 8, header, sizeof header - 1);
  memcpy(bytes + sizeof bytes - 4, &value, 4);
  fixture_write(&f, "a:b", bytes, sizeof bytes);
  fixture_write(&f, "a:b:x", "", 0);
  fixture_write(&f, "c", "", 0);
  ck_assert_int_eq(kiln__tensor_load(fixture_path(&f, "a:b:x:y"), &t, &error), KILN_OK);
  ck_assert(*(float *)t.data == value);
  ck_assert_int_eq(t.rank, 0);
  kiln__tensor_destroy(&t);
  ck_assert_int_eq(kiln__tensor_save(fixture_path(&f, "c:d"), &value, 0, NULL, &error), KILN_OK);
  ck_assert_int_eq(kiln__tensor_load(f.path, &t, &error), KILN_OK);
  ck_assert(*(float *)t.data == value);
  kiln__tensor_destroy(&t);
  fixture_destroy(&f);
}
END_TEST

/* A refusal names the file even where its name is long, and never sends escapes to a terminal. */
START_TEST(errors_are_one_printable_line) {
  char name[3000];
  kiln__tensor t;
  kiln__tensor_error error;
  memset(name, 'n', sizeof name);
  memcpy(name, "\x1b[31m\n", 6);
  name[sizeof name - 1] = '\0';
  ck_assert_int_eq(kiln__tensor_load(name, &t, &error), KILN_IO_FAILED);
  ck_assert_int_eq(strncmp(error.text, "?[31m?nnn", 9), 0);
  ck_assert_ptr_nonnull(strstr(error.text, ": cannot be opened (File name too long)"));
}
END_TEST

Suite *suite_tensor(void) {
  Suite *suite = suite_create("tensor");
  TCase *cases = tcase_create("memory and names");
  tcase_add_test(cases, create_checks_the_size);
  tcase_add_test(cases, convert_rounds_once);
  tcase_add_test(cases, load_refuses_what_is_no_file);
  tcase_add_test(cases, load_without_a_tensor_name);
  tcase_add_test(cases, colons);
  tcase_add_test(cases, errors_are_one_printable_line);
  suite_add_tcase(suite, cases);
  return suite;
}
