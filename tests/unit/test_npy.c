/* .npy files: what NumPy writes is read to the bit, what lies is refused in one sentence, and what
 * Kiln writes is what NumPy would have written. */
#include "fixture.h"
#include "suites.h"
#include "tensor.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

typedef struct image {
  unsigned char bytes[1024];
  size_t count;
} image;

static void append(image *file, const void *bytes, size_t count) {
  ck_assert_uint_le(file->count + count, sizeof file->bytes);
  memcpy(file->bytes + file->count, bytes, count);
  file->count += count;
}

static image make_image(int version, const char *header, const void *data, size_t count) {
  image file = {.count = 0};
  uint32_t length = (uint32_t)strlen(header);
  append(&file, "\x93NUMPY", 6);
  append(&file, (unsigned char[2]){(unsigned char)version, 0}, 2);
  append(&file, &length, version == 1 ? 2 : 4);
  append(&file, header, length);
  append(&file, data, count);
  return file;
}

static kiln_status load(fixture *f, const image *file, kiln__tensor *t, kiln__tensor_error *error) {
  return kiln__tensor_load(fixture_write(f, "t.npy", file->bytes, file->count), t, error);
}

/* The error names the file and the reason, and no memory is left behind. */
static void refuse(fixture *f, const image *file, kiln_status status, const char *reason) {
  kiln__tensor t;
  kiln__tensor_error error;
  ck_assert_int_eq(load(f, file, &t, &error), status);
  ck_assert_msg(strstr(error.text, reason) != NULL, "'%s' lacks '%s'", error.text, reason);
  ck_assert_int_eq(strncmp(error.text, f->path, strlen(f->path)), 0);
  ck_assert_ptr_null(t.data);
  ck_assert_int_eq(t.rank, 0);
}

START_TEST(three_dtypes_in_three_versions) {
  static const struct {
    const char *descr;
    kiln__tensor_dtype dtype;
    size_t size;
  } rows[] = {
      {"<f2", KILN__TENSOR_FP16, 2}, {"<f4", KILN__TENSOR_FP32, 4}, {"<f8", KILN__TENSOR_FP64, 8}};
  unsigned char data[6 * 8];
  fixture f;
  fixture_create(&f);
  for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37 + 1);
  for (int version = 1; version <= 3; version++)
    for (int i = 0; i < 3; i++) {
      char header[128];
      kiln__tensor t;
      kiln__tensor_error error;
      snprintf(header, sizeof header,
               "{'descr': '%s', 'fortran_order': False, 'shape': (2, 3), }   \n", rows[i].descr);
      image file = make_image(version, header, data, 6 * rows[i].size);
      ck_assert_int_eq(load(&f, &file, &t, &error), KILN_OK);
      ck_assert_int_eq(t.dtype, rows[i].dtype);
      ck_assert_int_eq(t.rank, 2);
      ck_assert(t.shape[0] == 2 && t.shape[1] == 3);
      ck_assert_uint_eq(t.bytes, 6 * rows[i].size);
      ck_assert_mem_eq(t.data, data, t.bytes);
      kiln__tensor_destroy(&t);
    }
  fixture_destroy(&f);
}
END_TEST

/* Every spelling that a Python literal allows and NumPy's writers have used. */
START_TEST(legal_headers) {
  static const struct {
    const char *header;
    int rank;
    size_t count; /* elements */
  } rows[] = {
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }\n", 0, 1},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n", 1, 3},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}", 1, 0},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0, 4, 8)}", 4, 0},
      {"{'shape':(1,2),'fortran_order':False,'descr':'<f4'}", 2, 2},
      {"  { \"descr\" : \"<f4\" , \"fortran_order\" : False ,\n\"shape\" : ( 1 , 2 , ) }", 2, 2},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1)}", 8, 1},
  };
  const float data[4] = {1, -2, INFINITY, 4};
  fixture f;
  fixture_create(&f);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    kiln__tensor t;
    kiln__tensor_error error;
    image file = make_image(1, rows[i].header, data, rows[i].count * 4);
    ck_assert_msg(load(&f, &file, &t, &error) == KILN_OK, "%s", error.text);
    ck_assert_int_eq(t.rank, rows[i].rank);
    ck_assert_int_eq(kiln__tensor_count(&t), (int64_t)rows[i].count);
    ck_assert_int_eq(memcmp(t.data, data, t.bytes), 0);
    kiln__tensor_destroy(&t);
  }
  fixture_destroy(&f);
}
END_TEST

#define DICT(descr, order, shape) \
  "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }\n"

static const struct {
  const char *header;
  kiln_status status;
  const char *reason;
} bad_headers[] = {
    {DICT("'>f4'", "False", "(2,)"), KILN_UNSUPPORTED, "dtype '>f4'"},
    {DICT("'<i4'", "False", "(2,)"), KILN_UNSUPPORTED, "dtype '<i4'"},
    {DICT("'|V2'", "False", "(4,)"), KILN_UNSUPPORTED, "dtype '|V2'"},
    {DICT("'<f4'", "True", "(2,)"), KILN_UNSUPPORTED, "Fortran order"},
    {DICT("[('x', '<f4')]", "False", "(2,)"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "0", "(2,)"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "False", "(2)"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "False", "2"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "False", "(-2,)"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "False", "(2.0,)"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "False", "(2 1)"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "False", "(,)"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "False", "(2,"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "False", "(1,1,1,1,1,1,1,1,2)"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "False", "(9223372036854775808,)"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "False", "(18446744073709551618,)"), KILN_CORRUPT, "not a dict"},
    {DICT("'<f4'", "False", "(9223372036854775807,)"), KILN_CORRUPT, "63 bits"},
    {DICT("'<f4'", "False", "(4294967296, 4294967296)"), KILN_CORRUPT, "63 bits"},
    {DICT("'<f4'", "False", "(0, 4294967296, 4294967296)"), KILN_CORRUPT, "63 bits"},
    {DICT("'<f4'", "False", "(1099511627776,)"), KILN_CORRUPT, "need 4398046511104"},
    {DICT("'<f4'", "False", "(1,)"), KILN_CORRUPT, "8 bytes of data"},
    {DICT("'<f4'", "False", "(3,)"), KILN_CORRUPT, "need 12"},
    {DICT("'<f4'", "False", "()"), KILN_CORRUPT, "need 4"},
    {DICT("'<f4'", "False", "(0,)"), KILN_CORRUPT, "need 0"},
    {"{'descr': '<f4', 'fortran_order': False}", KILN_CORRUPT, "not a dict"},
    {"{'descr': '<f4', 'shape': (2,)}", KILN_CORRUPT, "not a dict"},
    {"{'fortran_order': False, 'shape': (2,)}", KILN_CORRUPT, "not a dict"},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", KILN_CORRUPT,
     "not a dict"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'shape': (2,)}", KILN_CORRUPT,
     "not a dict"},
    {"{'descr': '<f4', 'fortran_order': False, 'fortran_order': False, 'shape': (2,)}",
     KILN_CORRUPT, "not a dict"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", KILN_CORRUPT,
     "not a dict"},
    {"{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}", KILN_CORRUPT, "not a dict"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", KILN_CORRUPT, "not a dict"},
    {"{'a name that is far too long': 1}", KILN_CORRUPT, "not a dict"},
    {"{'descr': '<f4', 'fortran': False, 'shape': (2,)}", KILN_CORRUPT, "not a dict"},
    {"{'fortran_order':", KILN_CORRUPT, "not a dict"},
    {"{'fortran_order': Fals", KILN_CORRUPT, "not a dict"},
    {"{'descr': '<f", KILN_CORRUPT, "not a dict"},
    {"", KILN_CORRUPT, "not a dict"},
};

START_TEST(bad_header) {
  const float data[2] = {1, 2};
  fixture f;
  fixture_create(&f);
  image file = make_image(1, bad_headers[_i].header, data, sizeof data);
  refuse(&f, &file, bad_headers[_i].status, bad_headers[_i].reason);
  fixture_destroy(&f);
}
END_TEST

START_TEST(bad_magic_version_and_length) {
  fixture f;
  fixture_create(&f);
  image good = make_image(2, DICT("'<f4'", "False", "(0,)"), "", 0), file;
  for (int i = 0; i < 6; i++) {
    file = good;
    file.bytes[i] ^= 1;
    refuse(&f, &file, KILN_CORRUPT, "is not a .npy file");
  }
  file = good, file.bytes[6] = 4;
  refuse(&f, &file, KILN_UNSUPPORTED, "version 4.0");
  file = good, file.bytes[6] = 0;
  refuse(&f, &file, KILN_UNSUPPORTED, "version 0.0");
  file = good, file.bytes[7] = 1;
  refuse(&f, &file, KILN_UNSUPPORTED, "version 2.1");
  file = good, file.bytes[11] = 0xff;
  refuse(&f, &file, KILN_CORRUPT, "more than the 65536 allowed");
  file = good, file.bytes[8] += 1;
  refuse(&f, &file, KILN_CORRUPT, "ends inside");
  file = good, file.bytes[8] -= 2; /* the brace falls among the data */
  refuse(&f, &file, KILN_CORRUPT, "not a dict");
  fixture_destroy(&f);
}
END_TEST

/* No prefix of a file is a file, nor is a file with a byte too many. */
START_TEST(truncated_at_every_length) {
  const float data[2] = {1, 2};
  fixture f;
  fixture_create(&f);
  for (int version = 1; version <= 3; version++) {
    image whole = make_image(version, DICT("'<f4'", "False", "(2,)"), data, sizeof data);
    image file = whole;
    for (file.count = 0; file.count < whole.count; file.count++)
      refuse(&f, &file, KILN_CORRUPT, "");
    file.count = whole.count + 1;
    refuse(&f, &file, KILN_CORRUPT, "9 bytes of data");
  }
  fixture_destroy(&f);
}
END_TEST

/* Whatever one byte becomes, the file is refused or the tensor fits the data (memory errors are the
 * sanitizers' to find). */
START_TEST(each_byte_changed) {
  static const unsigned char values[] = {0,   '\n', ' ', '\'', '(', ')',
                                         ',', '-',  '0', '9',  '}', 255};
  const float data[2] = {1, 2};
  fixture f;
  fixture_create(&f);
  image whole = make_image(1, DICT("'<f4'", "False", "(2,)"), data, sizeof data);
  for (size_t at = 0; at < whole.count - sizeof data; at++)
    for (size_t i = 0; i < sizeof values; i++) {
      kiln__tensor t;
      kiln__tensor_error error;
      image file = whole;
      file.bytes[at] = values[i];
      if (load(&f, &file, &t, &error) == KILN_OK)
        ck_assert_uint_eq(t.bytes, sizeof data);
      else
        ck_assert(t.data == NULL && error.text[0] != '\0');
      kiln__tensor_destroy(&t);
    }
  fixture_destroy(&f);
}
END_TEST

/* The bytes that numpy.save makes of the same array. */
START_TEST(save_writes_what_numpy_writes) {
  const float data[6] = {1, -2, INFINITY, -INFINITY, 0x1p-149f, 3.5f};
  const int64_t shape[2] = {2, 3};
  const char dict[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  unsigned char bytes[256];
  kiln__tensor_error error;
  fixture f;
  fixture_create(&f);
  ck_assert_int_eq(kiln__tensor_save(fixture_path(&f, "o.npy"), data, 2, shape, &error), KILN_OK);
  ck_assert_uint_eq(fixture_read(f.path, bytes, sizeof bytes), 128 + sizeof data);
  ck_assert_mem_eq(bytes, "\x93NUMPY\1\0\x76\0", 10);
  ck_assert_mem_eq(bytes + 10, dict, sizeof dict - 1);
  for (size_t i = 10 + sizeof dict - 1; i < 127; i++) ck_assert_uint_eq(bytes[i], ' ');
  ck_assert_uint_eq(bytes[127], '\n');
  ck_assert_mem_eq(bytes + 128, data, sizeof data);
  ck_assert_int_eq(fixture_count(&f), 1);
  fixture_destroy(&f);
}
END_TEST

START_TEST(save_and_load_every_rank) {
  const int64_t shape[8] = {1, 2, 1, 2, 1, 1, 1, 1};
  const int64_t longest[8] = {INT64_C(1) << 60, 0, 1, 1, 1, 1, 1, 1};
  const float data[4] = {1, -0.0f, NAN, 4};
  kiln__tensor t;
  kiln__tensor_error error;
  fixture f;
  fixture_create(&f);
  for (int rank = 0; rank <= 8; rank++) {
    fixture_path(&f, "o.npy");
    ck_assert_int_eq(kiln__tensor_save(f.path, data, rank, shape, &error), KILN_OK);
    ck_assert_int_eq(kiln__tensor_load(f.path, &t, &error), KILN_OK);
    ck_assert_int_eq(t.rank, rank);
    ck_assert_int_eq(memcmp(t.shape, shape, (size_t)rank * sizeof shape[0]), 0);
    ck_assert_mem_eq(t.data, data, t.bytes);
    kiln__tensor_destroy(&t);
  }
  ck_assert_int_eq(kiln__tensor_save(f.path, data, 8, longest, &error), KILN_OK);
  ck_assert_int_eq(kiln__tensor_load(f.path, &t, &error), KILN_OK);
  ck_assert_int_eq(kiln__tensor_count(&t), 0);
  kiln__tensor_destroy(&t);
  fixture_destroy(&f);
}
END_TEST

START_TEST(save_refusals) {
  const float data[1] = {1};
  const int64_t shape[1] = {1}, negative[1] = {-1};
  kiln__tensor_error error;
  fixture f;
  fixture_create(&f);
  ck_assert_int_eq(kiln__tensor_save(f.folder, data, 1, shape, &error), KILN_IO_FAILED);
  ck_assert_ptr_nonnull(strstr(error.text, "not a regular file"));
  ck_assert_int_eq(kiln__tensor_save("/dev/null", data, 1, shape, &error), KILN_IO_FAILED);
  fixture_path(&f, "none/o.npy");
  ck_assert_int_eq(kiln__tensor_save(f.path, data, 1, shape, &error), KILN_IO_FAILED);
  ck_assert_ptr_nonnull(strstr(error.text, "No such file or directory"));
  fixture_path(&f, "o.npy");
  ck_assert_int_eq(kiln__tensor_save(f.path, data, 1, negative, &error), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln__tensor_save(f.path, data, 9, shape, &error), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(fixture_count(&f), 0);
  fixture_destroy(&f);
}
END_TEST

/* The disk is full half-way: the old file stays as it was, and no temporary file is left. */
START_TEST(failed_save_keeps_the_old_file) {
  const struct rlimit limit = {.rlim_cur = 130, .rlim_max = RLIM_INFINITY};
  const float data[2] = {1, 2};
  const int64_t shape[1] = {2};
  char bytes[16];
  kiln__tensor_error error;
  fixture f;
  fixture_create(&f);
  fixture_write(&f, "o.npy", "old", 3);
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  ck_assert_int_eq(kiln__tensor_save(f.path, data, 1, shape, &error), KILN_IO_FAILED);
  ck_assert_ptr_nonnull(strstr(error.text, "cannot be written (File too large)"));
  ck_assert_uint_eq(fixture_read(f.path, bytes, sizeof bytes), 3);
  ck_assert_mem_eq(bytes, "old", 3);
  ck_assert_int_eq(fixture_count(&f), 1);
  fixture_destroy(&f);
}
END_TEST

START_TEST(save_replaces_and_obeys_the_umask) {
  const float data[1] = {7};
  struct stat info;
  kiln__tensor_error error;
  fixture f;
  fixture_create(&f);
  fixture_write(&f, "o.npy", "old", 3);
  umask(027);
  ck_assert_int_eq(kiln__tensor_save(f.path, data, 0, NULL, &error), KILN_OK);
  ck_assert_int_eq(stat(f.path, &info), 0);
  ck_assert_int_eq(info.st_mode & 0777, 0640);
  ck_assert_int_eq(info.st_size, 128 + 4);
  fixture_destroy(&f);
}
END_TEST

Suite *suite_npy(void) {
  Suite *suite = suite_create("npy");
  TCase *cases = tcase_create("read");
  tcase_set_timeout(cases, 60);
  tcase_add_test(cases, three_dtypes_in_three_versions);
  tcase_add_test(cases, legal_headers);
  tcase_add_loop_test(cases, bad_header, 0, sizeof bad_headers / sizeof bad_headers[0]);
  tcase_add_test(cases, bad_magic_version_and_length);
  tcase_add_test(cases, truncated_at_every_length);
  tcase_add_test(cases, each_byte_changed);
  suite_add_tcase(suite, cases);
  cases = tcase_create("write");
  tcase_add_test(cases, save_writes_what_numpy_writes);
  tcase_add_test(cases, save_and_load_every_rank);
  tcase_add_test(cases, save_refusals);
  tcase_add_test(cases, failed_save_keeps_the_old_file);
  tcase_add_test(cases, save_replaces_and_obeys_the_umask);
  suite_add_tcase(suite, cases);
  return suite;
}
