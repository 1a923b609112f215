/* The optional section of a pack: what is written is read, and nothing else is. Flipped bytes and
 * other lengths of such packs are in test_pack.c. */
#include "suites.h"

#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "packing.h"

typedef struct bench {
  fake f;
  kiln_context *ctx;
  kiln_pack *pack; /* two kernels and their sources */
  unsigned char *bytes;
  size_t size;
} bench;

static void bench_open(bench *b) {
  b->ctx = fake_context(&b->f, "");
  b->pack = packing_pack_with_sources(b->ctx, 2);
  b->bytes = packing_copy(b->pack, &b->size);
}

static void bench_close(bench *b) {
  free(b->bytes);
  kiln_pack_destroy(b->pack);
  fake_context_destroy(b->ctx);
}

static void expect_damage(bench *b, const unsigned char *bytes, size_t size, const char *word) {
  kiln_pack *pack = NULL;
  ck_assert_int_eq(kiln_pack_open_memory(b->ctx, bytes, size, NULL, &pack), KILN_CORRUPT);
  ck_assert_ptr_null(pack);
  ck_assert_msg(strstr(kiln_last_error(b->ctx), word) != NULL, "%s is not in: %s", word,
                kiln_last_error(b->ctx));
}

START_TEST(sources_are_read_as_they_were_written) {
  bench b;
  kiln_pack_info info = {.size = sizeof info};
  bench_open(&b);
  kiln_pack_get_info(b.pack, &info);
  ck_assert_int_eq(info.has_sources, 1);
  for (int i = 0; i < 2; i++) {
    kiln_pack_kernel kernel = {.size = sizeof kernel};
    ck_assert_int_eq(kiln_pack_get_kernel(b.pack, i, &kernel), KILN_OK);
    kiln_source *source = packing_source(kernel.spec.head_dim, kernel.tile.block_m);
    ck_assert_str_eq(kernel.source_id, kiln_source_id(source));
    ck_assert_uint_eq(kernel.source_bytes, source->generated.length);
    ck_assert_mem_eq(kernel.source, source->generated.text, kernel.source_bytes);
    kiln_source_destroy(source);
  }
  ck_assert_int_eq(kiln_pack_verify(b.ctx, b.pack, NULL), KILN_OK);
  bench_close(&b);
}
END_TEST

START_TEST(a_pack_without_them_says_so) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_pack *pack = packing_pack(ctx, 2);
  kiln_pack_info info = {.size = sizeof info, .has_sources = 7};
  kiln_pack_kernel kernel = {.size = sizeof kernel, .source = "x", .source_bytes = 1};
  kiln_pack_get_info(pack, &info);
  ck_assert_int_eq(info.has_sources, 0);
  ck_assert_int_eq(kiln_pack_get_kernel(pack, 0, &kernel), KILN_OK);
  ck_assert_ptr_null(kernel.source);
  ck_assert_uint_eq(kernel.source_bytes, 0);
  kiln_pack_destroy(pack);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(what_a_writer_refuses) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_pack_writer *writer;
  kiln_pack *pack;
  kiln_binary *a = packing_binary("sm_80", 64, 64), *b = packing_binary("sm_80", 72, 64);
  kiln_source *of_a = packing_source(64, 64), *launcher = packing_source(64, 64);
  launcher->is_launcher = 1;
  ck_assert_int_eq(kiln_pack_writer_create(ctx, &writer), KILN_OK);
  ck_assert_int_eq(kiln_pack_writer_add_source(writer, b, of_a, 0), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "is not what the binary was compiled from"));
  ck_assert_int_eq(kiln_pack_writer_add_source(writer, a, launcher, 0), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_pack_writer_add_source(writer, a, NULL, 0), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_pack_writer_add_source(writer, a, of_a, 0), KILN_OK);
  of_a->generated.text[of_a->generated.length - 2] = '!'; /* not what its id says */
  ck_assert_int_eq(kiln_pack_writer_add_source(writer, a, of_a, 0), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_pack_writer_add(writer, b, 0), KILN_OK);
  ck_assert_int_eq(kiln_pack_writer_finish(writer, &pack), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "1 of 2 kernels"));
  ck_assert_ptr_null(pack);
  kiln_source_destroy(of_a);
  kiln_source_destroy(launcher);
  kiln_binary_destroy(a);
  kiln_binary_destroy(b);
  kiln_pack_writer_destroy(writer);
  fake_context_destroy(ctx);
}
END_TEST

/* ---- who plants these can compute the root hash too ---- */

#define ROW(i) (KILN__PACK_AT_TABLE + (i)*KILN__PACK_TABLE_ROW)
static const struct {
  size_t at;
  int width;
  uint64_t value;
  const char *word;
} header_faults[] = {
    {KILN__PACK_AT_COUNT, 4, 2, "not where they belong"}, /* the images end with the file then */
    {KILN__PACK_AT_COUNT, 4, 4, "table of sections"},
    {ROW(2), 4, 2, "table of sections"},
    {ROW(2) + 4, 4, 1, "table of sections"},
    {ROW(2) + 8, 8, 0, "not where they belong"},
    {ROW(2) + 8, 8, 4096, "not where they belong"},
    {ROW(2) + 8, 8, UINT64_MAX - 4095, "table of sections"},
    {ROW(2) + 16, 8, 0, "table of sections"},
    {ROW(2) + 16, 8, 1, "not where they belong"},
    {ROW(2) + 16, 8, UINT64_MAX, "table of sections"},
    {ROW(1) + 16, 8, 64, "not where they belong"},
    {ROW(3), 4, 1, "padding"},
};

START_TEST(a_wrong_header_with_a_right_root) {
  bench b;
  bench_open(&b);
  for (int i = 0; i < header_faults[_i].width; i++)
    b.bytes[header_faults[_i].at + (size_t)i] = (unsigned char)(header_faults[_i].value >> 8 * i);
  packing_reroot(b.bytes, b.size);
  expect_damage(&b, b.bytes, b.size, header_faults[_i].word);
  bench_close(&b);
}
END_TEST

static size_t at_sources(const bench *b) {
  kiln_pack_kernel kernel = {.size = sizeof kernel};
  kiln_pack_get_kernel(b->pack, 0, &kernel);
  return (size_t)((const unsigned char *)kernel.source - b->pack->bytes);
}

START_TEST(wrong_bytes_with_a_right_root) {
  bench b;
  kiln_pack *pack;
  bench_open(&b);
  const size_t at = at_sources(&b);
  b.bytes[at - 1] = 1; /* between the images and the sources */
  packing_reroot(b.bytes, b.size);
  expect_damage(&b, b.bytes, b.size, "padding");
  b.bytes[at - 1] = 0;
  b.bytes[at + 5] = 0;
  packing_reroot(b.bytes, b.size);
  expect_damage(&b, b.bytes, b.size, "is no text");
  b.bytes[at + 5] = 'x'; /* in the header's comment: no part of what the id covers */
  packing_reroot(b.bytes, b.size);
  ck_assert_int_eq(kiln_pack_open_memory(b.ctx, b.bytes, b.size, NULL, &pack), KILN_OK);
  ck_assert_int_eq(kiln_pack_verify(b.ctx, pack, NULL), KILN_OK);
  kiln_pack_destroy(pack);
  b.bytes[b.size - 2] = '!';
  packing_reroot(b.bytes, b.size);
  ck_assert_int_eq(kiln_pack_open_memory(b.ctx, b.bytes, b.size, NULL, &pack), KILN_OK);
  ck_assert_int_eq(kiln_pack_verify(b.ctx, pack, NULL), KILN_CORRUPT);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(b.ctx), "the source of kernel"));
  kiln_pack_destroy(pack);
  bench_close(&b);
}
END_TEST

static json_t *source_of(json_t *manifest, int index) {
  json_t *row = json_array_get(json_object_get(manifest, "kernels"), (size_t)index);
  return json_object_get(row, "source");
}
static void set(json_t *m, int index, const char *name, json_int_t value) {
  json_object_set_new(source_of(m, index), name, json_integer(value));
}

static void no_source(json_t *m) {
  json_object_del(json_array_get(json_object_get(m, "kernels"), 1), "source");
}
static void no_offset(json_t *m) { json_object_del(source_of(m, 0), "offset"); }
static void wrong_offset(json_t *m) { set(m, 0, "offset", 1); }
static void negative_offset(json_t *m) { set(m, 0, "offset", -1); }
static void same_place(json_t *m) { set(m, 1, "offset", 0); }
static void no_bytes(json_t *m) { set(m, 0, "bytes", 0); }
static void negative_bytes(json_t *m) { set(m, 0, "bytes", -1); }
static void huge_bytes(json_t *m) { set(m, 0, "bytes", INT64_MAX); }
static void past_the_end(json_t *m) {
  set(m, 1, "bytes", json_integer_value(json_object_get(source_of(m, 1), "bytes")) + 1);
}
static void before_the_end(json_t *m) {
  set(m, 1, "bytes", json_integer_value(json_object_get(source_of(m, 1), "bytes")) - 1);
}

static const struct {
  void (*plant)(json_t *manifest);
  const char *word;
} manifest_faults[] = {
    {no_source, "source lacks a member"},    {no_offset, "source lacks a member"},
    {wrong_offset, "source is not where"},   {negative_offset, "source is not where"},
    {same_place, "source is not where"},     {no_bytes, "source is not where"},
    {negative_bytes, "source is not where"}, {huge_bytes, "source is not where"},
    {past_the_end, "source is not where"},   {before_the_end, "follows its last source"},
};

static void expect_manifest(bench *b, const unsigned char *bytes, size_t size, json_t *manifest,
                            const char *word) {
  size_t made_size;
  char *text = json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS);
  unsigned char *made = packing_with_manifest(bytes, size, text, &made_size);
  expect_damage(b, made, made_size, word);
  free(made);
  free(text);
}

START_TEST(a_wrong_manifest_with_a_right_root) {
  bench b;
  bench_open(&b);
  json_t *manifest = packing_manifest(b.bytes);
  manifest_faults[_i].plant(manifest);
  expect_manifest(&b, b.bytes, b.size, manifest, manifest_faults[_i].word);
  json_decref(manifest);
  bench_close(&b);
}
END_TEST

START_TEST(a_source_without_its_section) {
  bench b;
  size_t size;
  bench_open(&b);
  kiln_pack *plain = packing_pack(b.ctx, 2);
  unsigned char *bytes = packing_copy(plain, &size);
  json_t *manifest = packing_manifest(bytes);
  json_object_set_new(json_array_get(json_object_get(manifest, "kernels"), 0), "source",
                      json_pack("{s:i, s:i}", "offset", 0, "bytes", 8));
  expect_manifest(&b, bytes, size, manifest, "the pack holds none");
  json_decref(manifest);
  free(bytes);
  kiln_pack_destroy(plain);
  bench_close(&b);
}
END_TEST

Suite *suite_pack_sources(void) {
  Suite *suite = suite_create("pack_sources");
  TCase *tests = tcase_create("pack_sources");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, sources_are_read_as_they_were_written);
  tcase_add_test(tests, a_pack_without_them_says_so);
  tcase_add_test(tests, what_a_writer_refuses);
  tcase_add_loop_test(tests, a_wrong_header_with_a_right_root, 0,
                      sizeof header_faults / sizeof header_faults[0]);
  tcase_add_test(tests, wrong_bytes_with_a_right_root);
  tcase_add_loop_test(tests, a_wrong_manifest_with_a_right_root, 0,
                      sizeof manifest_faults / sizeof manifest_faults[0]);
  tcase_add_test(tests, a_source_without_its_section);
  suite_add_tcase(suite, tests);
  return suite;
}
