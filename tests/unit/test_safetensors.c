/* .safetensors files: four dtypes, and every way in which a header can lie about its file. */
#include "fixture.h"
#include "suites.h"
#include "tensor.h"

#include <stdio.h>
#include <string.h>

typedef struct image {
  unsigned char bytes[1024];
  size_t count;
} image;

/* Data: bytes 0, 1, 2, ... */
static image make_image(const char *header, size_t data_bytes) {
  image file = {.count = 8 + strlen(header) + data_bytes};
  uint64_t length = strlen(header);
  ck_assert_uint_le(file.count, sizeof file.bytes);
  memcpy(file.bytes, &length, 8);
  memcpy(file.bytes + 8, header, length);
  for (size_t i = 0; i < data_bytes; i++) file.bytes[8 + length + i] = (unsigned char)i;
  return file;
}

static kiln_status load(fixture *f, const image *file, const char *name, kiln__tensor *t,
                        kiln__tensor_error *error) {
  char source[400];
  fixture_write(f, "t.safetensors", file->bytes, file->count);
  snprintf(source, sizeof source, "%s:%s", f->path, name);
  return kiln__tensor_load(source, t, error);
}

static void refuse(fixture *f, const image *file, const char *name, kiln_status status,
                   const char *reason) {
  kiln__tensor t;
  kiln__tensor_error error;
  ck_assert_int_eq(load(f, file, name, &t, &error), status);
  ck_assert_msg(strstr(error.text, reason) != NULL, "'%s' lacks '%s'", error.text, reason);
  ck_assert_int_eq(strncmp(error.text, f->path, strlen(f->path)), 0);
  ck_assert_ptr_null(t.data);
  ck_assert_int_eq(t.rank, 0);
}

#define ENTRY(name, dtype, shape, offsets) \
  "\"" name "\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* Padded with blanks, and with metadata, as real writers do. */
static const char good[] =
    "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("h", "\"F16\"", "[1,2,3]", "[0,12]") "," ENTRY(
        "b", "\"BF16\"", "[2]",
        "[12,16]") "," ENTRY("f", "\"F32\"", "[]",
                             "[16,20]") "," ENTRY("e", "\"F8_E4M3\"", "[5]",
                                                  "[20,25]") "," ENTRY("z", "\"F32\"", "[2,0,4]",
                                                                       "[25,25]") "}   ";

START_TEST(four_dtypes) {
  static const struct {
    const char *name;
    kiln__tensor_dtype dtype;
    int rank;
    size_t bytes;
    unsigned char first; /* of the data */
  } rows[] = {{"h", KILN__TENSOR_FP16, 3, 12, 0},
              {"b", KILN__TENSOR_BF16, 1, 4, 12},
              {"f", KILN__TENSOR_FP32, 0, 4, 16},
              {"e", KILN__TENSOR_E4M3, 1, 5, 20},
              {"z", KILN__TENSOR_FP32, 3, 0, 25}};
  fixture f;
  fixture_create(&f);
  image file = make_image(good, 25);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    kiln__tensor t;
    kiln__tensor_error error;
    ck_assert_msg(load(&f, &file, rows[i].name, &t, &error) == KILN_OK, "%s", error.text);
    ck_assert_int_eq(t.dtype, rows[i].dtype);
    ck_assert_int_eq(t.rank, rows[i].rank);
    ck_assert_uint_eq(t.bytes, rows[i].bytes);
    for (size_t j = 0; j < t.bytes; j++)
      ck_assert_uint_eq(((unsigned char *)t.data)[j], rows[i].first + j);
    kiln__tensor_destroy(&t);
  }
  fixture_destroy(&f);
}
END_TEST

START_TEST(unknown_names) {
  fixture f;
  fixture_create(&f);
  image file = make_image(good, 25);
  refuse(&f, &file, "x", KILN_INVALID_ARGUMENT, "no tensor named 'x'; it holds 5: h, b, f, e, z");
  refuse(&f, &file, "", KILN_INVALID_ARGUMENT, "no tensor named ''");
  refuse(&f, &file, "__metadata__", KILN_INVALID_ARGUMENT, "it holds 5");
  file = make_image("{}", 0);
  refuse(&f, &file, "x", KILN_INVALID_ARGUMENT, "it holds 0");
  fixture_destroy(&f);
}
END_TEST

/* Names that do not fit one line are cut to "..."; their number stays right. */
START_TEST(many_names) {
  char header[1000] = "{";
  for (int i = 0; i < 14; i++)
    snprintf(header + strlen(header), sizeof header - strlen(header),
             "%s\"a-tensor-with-a-long-name-%d\":{}", i ? "," : "", i);
  strcat(header, "}");
  kiln__tensor t;
  kiln__tensor_error error;
  fixture f;
  fixture_create(&f);
  image file = make_image(header, 0);
  ck_assert_int_eq(load(&f, &file, "x", &t, &error), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error.text, "it holds 14: a-tensor-with-a-long-name-"));
  ck_assert_ptr_eq(strstr(error.text, ", ..."), error.text + strlen(error.text) - 5);
  fixture_destroy(&f);
}
END_TEST

#define F32 "\"F32\""

static const struct {
  const char *header;
  kiln_status status;
  const char *reason;
} bad_headers[] = {
    {"", KILN_CORRUPT, "not JSON"},
    {"{", KILN_CORRUPT, "not JSON"},
    {"[]", KILN_CORRUPT, "does not begin with '{'"},
    {" {}", KILN_CORRUPT, "does not begin with '{'"},
    {"{} x", KILN_CORRUPT, "not JSON"},
    {"{\"q\":3}", KILN_INVALID_ARGUMENT, "no tensor named 'q'"},
    {"{" ENTRY("q", F32, "[2]", "[0,8]") "," ENTRY("q", F32, "[2]", "[0,8]") "}", KILN_CORRUPT,
     "duplicate"},
    {"{\"q\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
     KILN_CORRUPT, "duplicate"},
    {"{" ENTRY("q", "\"F64\"", "[1]", "[0,8]") "}", KILN_UNSUPPORTED, "dtype 'F64'"},
    {"{" ENTRY("q", "\"I32\"", "[2]", "[0,8]") "}", KILN_UNSUPPORTED, "dtype 'I32'"},
    {"{" ENTRY("q", "\"\\u001b[31m\"", "[2]", "[0,8]") "}", KILN_UNSUPPORTED, "dtype '?[31m'"},
    {"{" ENTRY("q", "7", "[2]", "[0,8]") "}", KILN_CORRUPT, "dtype '(none)'"},
    {"{\"q\":{}}", KILN_CORRUPT, "dtype '(none)'"},
    {"{\"q\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", KILN_CORRUPT, "has a shape"},
    {"{\"q\":{\"dtype\":\"F32\",\"shape\":[2]}}", KILN_CORRUPT, "has data_offsets"},
    {"{" ENTRY("q", F32, "2", "[0,8]") "}", KILN_CORRUPT, "has a shape"},
    {"{" ENTRY("q", F32, "[2.0]", "[0,8]") "}", KILN_CORRUPT, "has a shape"},
    {"{" ENTRY("q", F32, "[\"2\"]", "[0,8]") "}", KILN_CORRUPT, "has a shape"},
    {"{" ENTRY("q", F32, "[-2]", "[0,8]") "}", KILN_CORRUPT, "has a shape"},
    {"{" ENTRY("q", F32, "[-1,-2]", "[0,8]") "}", KILN_CORRUPT, "has a shape"},
    {"{" ENTRY("q", F32, "[1,1,1,1,1,1,1,1,2]", "[0,8]") "}", KILN_CORRUPT, "has a shape"},
    {"{" ENTRY("q", F32, "[4294967296,4294967296]", "[0,8]") "}", KILN_CORRUPT, "has a shape"},
    {"{" ENTRY("q", F32, "[0,4294967296,4294967296]", "[0,0]") "}", KILN_CORRUPT, "has a shape"},
    {"{" ENTRY("q", F32, "[9223372036854775808]", "[0,8]") "}", KILN_CORRUPT, "not JSON"},
    {"{" ENTRY("q", F32, "[2]", "[0,9]") "}", KILN_CORRUPT, "inside the file"},
    {"{" ENTRY("q", F32, "[2]", "[1,9]") "}", KILN_CORRUPT, "inside the file"},
    {"{" ENTRY("q", F32, "[2]", "[8,0]") "}", KILN_CORRUPT, "inside the file"},
    {"{" ENTRY("q", F32, "[2]", "[-8,0]") "}", KILN_CORRUPT, "inside the file"},
    {"{" ENTRY("q", F32, "[2]", "[0]") "}", KILN_CORRUPT, "inside the file"},
    {"{" ENTRY("q", F32, "[2]", "[0,8,8]") "}", KILN_CORRUPT, "inside the file"},
    {"{" ENTRY("q", F32, "[2]", "{}") "}", KILN_CORRUPT, "inside the file"},
    {"{" ENTRY("q", F32, "[2]", "[9223372036854775800,9223372036854775807]") "}", KILN_CORRUPT,
     "inside the file"},
    {"{" ENTRY("q", F32, "[2]", "[0,7]") "}", KILN_CORRUPT, "7 bytes where"},
    {"{" ENTRY("q", F32, "[1]", "[0,8]") "}", KILN_CORRUPT, "need 4"},
    {"{" ENTRY("q", F32, "[1099511627776]", "[0,8]") "}", KILN_CORRUPT, "need 4398046511104"},
};

START_TEST(bad_header) {
  fixture f;
  fixture_create(&f);
  image file = make_image(bad_headers[_i].header, 8);
  refuse(&f, &file, "q", bad_headers[_i].status, bad_headers[_i].reason);
  fixture_destroy(&f);
}
END_TEST

START_TEST(header_length_lies) {
  static const uint64_t lies[] = {UINT64_MAX,          UINT64_C(1) << 63, INT64_MAX,
                                  UINT64_C(1) << 40,   100000001,         100000000,
                                  sizeof good - 1 + 26};
  fixture f;
  fixture_create(&f);
  image file = make_image(good, 25);
  for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
    memcpy(file.bytes, &lies[i], 8);
    refuse(&f, &file, "h", KILN_CORRUPT, "claims a safetensors header");
  }
  fixture_destroy(&f);
}
END_TEST

/* The last tensor reaches the end of the file, so that no prefix holds it. */
START_TEST(truncated_at_every_length) {
  fixture f;
  fixture_create(&f);
  image whole = make_image(good, 25), file = whole;
  for (file.count = 0; file.count < whole.count; file.count++)
    refuse(&f, &file, "e", KILN_CORRUPT, "");
  fixture_destroy(&f);
}
END_TEST

/* Whatever one byte becomes, the tensor is refused or lies inside the file. */
START_TEST(each_byte_changed) {
  static const unsigned char values[] = {0, ' ', '"', ',', '-', '0', '9', '[', ']', '{', '}', 255};
  fixture f;
  fixture_create(&f);
  image whole = make_image(good, 25);
  for (size_t at = 0; at < whole.count - 25; at++)
    for (size_t i = 0; i < sizeof values; i++) {
      kiln__tensor t;
      kiln__tensor_error error;
      image file = whole;
      file.bytes[at] = values[i];
      if (load(&f, &file, "h", &t, &error) == KILN_OK)
        ck_assert_uint_le(t.bytes, 25);
      else
        ck_assert(t.data == NULL && error.text[0] != '\0');
      kiln__tensor_destroy(&t);
    }
  fixture_destroy(&f);
}
END_TEST

/* A file of another program's making: see tests/data/README.md. */
START_TEST(file_of_the_official_writer) {
  static const char path[] = KILN_TEST_SOURCE_DIR "/tests/data/minilm.safetensors";
  char source[sizeof path + 16];
  kiln__tensor t;
  kiln__tensor_error error;
  snprintf(source, sizeof source, "%s:layer5.v", path);
  ck_assert_msg(kiln__tensor_load(source, &t, &error) == KILN_OK, "%s", error.text);
  ck_assert_int_eq(t.dtype, KILN__TENSOR_FP16);
  ck_assert_int_eq(t.rank, 4);
  ck_assert(t.shape[0] == 1 && t.shape[1] == 81 && t.shape[2] == 12 && t.shape[3] == 32);
  kiln__tensor_destroy(&t);
}
END_TEST

Suite *suite_safetensors(void) {
  Suite *suite = suite_create("safetensors");
  TCase *cases = tcase_create("read");
  tcase_set_timeout(cases, 60);
  tcase_add_test(cases, four_dtypes);
  tcase_add_test(cases, unknown_names);
  tcase_add_test(cases, many_names);
  tcase_add_loop_test(cases, bad_header, 0, sizeof bad_headers / sizeof bad_headers[0]);
  tcase_add_test(cases, header_length_lies);
  tcase_add_test(cases, truncated_at_every_length);
  tcase_add_test(cases, each_byte_changed);
  tcase_add_test(cases, file_of_the_official_writer);
  suite_add_tcase(suite, cases);
  return suite;
}
