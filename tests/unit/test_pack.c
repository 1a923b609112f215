/* The format of a pack: what is written is read, and nothing else is. */
#include "suites.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "packing.h"

/* A pack of two kernels and a copy of its bytes. */
typedef struct bench {
  fake f;
  kiln_context *ctx;
  kiln_pack *pack;
  unsigned char *bytes;
  size_t size;
} bench;

static void bench_open_with(bench *b, int sources) {
  b->ctx = fake_context(&b->f, "");
  b->pack = sources ? packing_pack_with_sources(b->ctx, 2) : packing_pack(b->ctx, 2);
  b->bytes = packing_copy(b->pack, &b->size);
}

static void bench_open(bench *b) { bench_open_with(b, 0); }

static void bench_close(bench *b) {
  free(b->bytes);
  kiln_pack_destroy(b->pack);
  fake_context_destroy(b->ctx);
}

static kiln_status open_bytes(bench *b, const unsigned char *bytes, size_t size) {
  kiln_pack *pack = (kiln_pack *)b;
  kiln_status status = kiln_pack_open_memory(b->ctx, bytes, size, NULL, &pack);
  ck_assert_int_eq(pack != NULL, status == KILN_OK);
  kiln_pack_destroy(pack);
  return status;
}

static void expect_damage(bench *b, const unsigned char *bytes, size_t size, const char *word) {
  ck_assert_int_eq(open_bytes(b, bytes, size), KILN_CORRUPT);
  ck_assert_msg(strstr(kiln_last_error(b->ctx), word) != NULL, "%s is not in: %s", word,
                kiln_last_error(b->ctx));
}

/* ---- what is written ---- */

START_TEST(a_pack_is_read_as_it_was_written) {
  bench b;
  kiln_pack_info info = {.size = sizeof info};
  kiln_pack_kernel kernel = {.size = sizeof kernel};
  bench_open(&b);
  kiln_pack_get_info(b.pack, &info);
  ck_assert_int_eq(info.num_kernels, 2);
  ck_assert_int_eq(info.bytes, (int64_t)b.size);
  ck_assert_str_eq(info.kiln, KILN_VERSION);
  ck_assert_str_eq(info.path, "");
  ck_assert_ptr_null(info.public_key);
  ck_assert_uint_eq(strlen(info.root), 64);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(kiln_pack_get_kernel(b.pack, i, &kernel), KILN_OK);
    ck_assert_str_eq(kernel.spec.arch, "sm_90a");
    ck_assert_int_eq(kernel.is_default, 1);
    ck_assert_uint_eq(kernel.image_bytes, PACKING_IMAGE);
    ck_assert_uint_eq(((const unsigned char *)kernel.image -
                       (const unsigned char *)kiln_pack_bytes(b.pack, NULL)) %
                          4096,
                      0);
    kiln_binary *binary = packing_binary("sm_90a", kernel.spec.head_dim, 128);
    ck_assert_mem_eq(kernel.image, binary->item.image, PACKING_IMAGE);
    ck_assert_str_eq(kernel.kernel_id, binary->kernel_id);
    ck_assert_ptr_nonnull(strstr(kernel.identity, "fake 1.0"));
    kiln_binary_destroy(binary);
  }
  ck_assert_int_eq(kiln_pack_get_kernel(b.pack, 2, &kernel), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_pack_get_kernel(b.pack, -1, &kernel), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_pack_verify(b.ctx, b.pack, NULL), KILN_OK);
  ck_assert_int_eq(open_bytes(&b, b.bytes, b.size), KILN_OK);
  bench_close(&b);
}
END_TEST

/* Three tiles of one spec and one of another, in an order and its reverse, one of them twice. */
START_TEST(the_order_of_adding_does_not_matter) {
  static const int order[2][5] = {{64, 128, 192, 0, 64}, {0, 192, 64, 64, 128}};
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_pack *packs[2];
  size_t size[2];
  for (int p = 0; p < 2; p++) {
    kiln_pack_writer *writer;
    ck_assert_int_eq(kiln_pack_writer_create(ctx, &writer), KILN_OK);
    for (int i = 0; i < 5; i++) {
      const int block_m = order[p][i];
      kiln_binary *binary = packing_binary("sm_80", block_m ? 64 : 256, block_m ? block_m : 128);
      unsigned flags = block_m == 128 ? KILN_PACK_DEFAULT : 0;
      ck_assert_int_eq(kiln_pack_writer_add(writer, binary, flags), KILN_OK);
      kiln_binary_destroy(binary);
    }
    ck_assert_int_eq(kiln_pack_writer_finish(writer, &packs[p]), KILN_OK);
    kiln_pack_writer_destroy(writer);
  }
  const void *first = kiln_pack_bytes(packs[0], &size[0]);
  const void *second = kiln_pack_bytes(packs[1], &size[1]);
  ck_assert_uint_eq(size[0], size[1]);
  ck_assert_mem_eq(first, second, size[0]);
  kiln_pack_kernel kernel = {.size = sizeof kernel};
  int defaults = 0;
  for (int i = 0; kiln_pack_get_kernel(packs[0], i, &kernel) == KILN_OK; i++) {
    defaults += kernel.is_default;
    if (kernel.is_default) ck_assert_int_eq(kernel.tile.block_m, 128);
    ck_assert_int_lt(i, 4);
  }
  ck_assert_int_eq(defaults, 2); /* one is marked, the other the only one of its spec */
  kiln_pack_destroy(packs[0]);
  kiln_pack_destroy(packs[1]);
  fake_context_destroy(ctx);
}
END_TEST

START_TEST(what_a_writer_refuses) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_pack_writer *writer;
  kiln_pack *pack;
  kiln_binary *binary = packing_binary("sm_80", 64, 64), *other = packing_binary("sm_80", 64, 128);
  ck_assert_int_eq(kiln_pack_writer_create(ctx, &writer), KILN_OK);
  ck_assert_int_eq(kiln_pack_writer_finish(writer, &pack), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_null(pack);
  ck_assert_int_eq(kiln_pack_writer_add(writer, binary, 2), KILN_INVALID_ARGUMENT);
  binary->for_emulator = 1;
  ck_assert_int_eq(kiln_pack_writer_add(writer, binary, 0), KILN_INVALID_ARGUMENT);
  binary->for_emulator = 0;
  ((unsigned char *)binary->item.image)[18] = 62; /* an ELF of the host */
  ck_assert_int_eq(kiln_pack_writer_add(writer, binary, 0), KILN_INVALID_ARGUMENT);
  ((unsigned char *)binary->item.image)[18] = 190;
  ck_assert_int_eq(kiln_pack_writer_add(writer, binary, KILN_PACK_DEFAULT), KILN_OK);
  ck_assert_int_eq(kiln_pack_writer_add(writer, other, KILN_PACK_DEFAULT), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_pack_writer_add(writer, other, 0), KILN_OK);
  kiln_binary_destroy(other);
  kiln_binary_destroy(binary);
  kiln_pack_writer_destroy(writer);
  fake_context_destroy(ctx);
}
END_TEST

/* ---- damage ---- */

/* Without sources and with them. */
START_TEST(every_flipped_byte_is_refused) {
  bench b;
  bench_open_with(&b, _i);
  for (size_t i = 0; i < b.size; i++) {
    const unsigned char flip = (unsigned char)(1u << (i * 5 % 8));
    b.bytes[i] ^= flip;
    kiln_status status = open_bytes(&b, b.bytes, b.size);
    ck_assert_msg(status == KILN_CORRUPT || status == KILN_BAD_SIGNATURE || status == KILN_MISMATCH,
                  "byte %zu: %d", i, (int)status);
    b.bytes[i] ^= flip;
  }
  ck_assert_int_eq(open_bytes(&b, b.bytes, b.size), KILN_OK);
  bench_close(&b);
}
END_TEST

START_TEST(every_other_length_is_refused) {
  bench b;
  bench_open_with(&b, _i);
  for (size_t size = 0; size < b.size; size += size < 5000 || size + 3 > b.size ? 1 : 17)
    expect_damage(&b, b.bytes, size, "damaged");
  unsigned char *longer = calloc(1, b.size + 4096);
  memcpy(longer, b.bytes, b.size);
  expect_damage(&b, longer, b.size + 1, "not as long");
  expect_damage(&b, longer, b.size + 4096, "not as long");
  free(longer);
  bench_close(&b);
}
END_TEST

/* Whoever plants these can compute the root hash too. Numbers of 4 or 8 bytes in the header. */
#define ROW(i) (KILN__PACK_AT_TABLE + (i)*KILN__PACK_TABLE_ROW)
static const struct {
  size_t at;
  int width;
  uint64_t value;
  const char *word;
} header_faults[] = {
    {KILN__PACK_AT_COUNT, 4, 0, "table of sections"},
    {KILN__PACK_AT_COUNT, 4, 3, "table of sections"},
    {KILN__PACK_AT_COUNT, 4, UINT32_MAX, "table of sections"},
    {ROW(0), 4, 2, "table of sections"},
    {ROW(1), 4, 1, "table of sections"},
    {ROW(0) + 4, 4, 1, "table of sections"},
    {ROW(0) + 8, 8, 0, "not where they belong"},
    {ROW(0) + 8, 8, 8192, "not where they belong"},
    {ROW(0) + 8, 8, UINT64_MAX, "table of sections"},
    {ROW(0) + 8, 8, UINT64_MAX - 4095, "table of sections"},
    {ROW(0) + 16, 8, 0, "table of sections"},
    {ROW(0) + 16, 8, 1, "padding"},
    {ROW(0) + 16, 8, 5000, "not where they belong"}, /* into the images */
    {ROW(0) + 16, 8, UINT64_MAX, "table of sections"},
    {ROW(0) + 16, 8, UINT64_MAX - 4096, "table of sections"},
    {ROW(1) + 8, 8, 4096, "not where they belong"}, /* both in one place */
    {ROW(1) + 8, 8, 8193, "table of sections"},
    {ROW(1) + 8, 8, UINT64_C(1) << 63, "table of sections"},
    {ROW(1) + 16, 8, 0, "table of sections"},
    {ROW(1) + 16, 8, 64, "not where they belong"},
    {ROW(1) + 16, 8, UINT64_MAX, "table of sections"},
    {KILN__PACK_AT_BYTES + 8, 8, 1, "padding"},
    {ROW(2), 4, 1, "padding"},
    {4095, 1, 1, "padding"},
    {8191, 1, 1, "padding"},
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

START_TEST(another_format_is_named) {
  bench b;
  bench_open(&b);
  b.bytes[KILN__PACK_AT_VERSION] = 2;
  packing_reroot(b.bytes, b.size);
  ck_assert_int_eq(open_bytes(&b, b.bytes, b.size), KILN_MISMATCH);
  ck_assert_ptr_nonnull(
      strstr(kiln_last_error(b.ctx), "format 2 and this version of Kiln reads 1"));
  bench_close(&b);
}
END_TEST

static json_t *first(json_t *manifest) {
  return json_array_get(json_object_get(manifest, "kernels"), 0);
}
static json_t *second(json_t *manifest) {
  return json_array_get(json_object_get(manifest, "kernels"), 1);
}
static void set(json_t *object, const char *name, json_t *value) {
  json_object_set_new(object, name, value);
}
static json_t *image_of(json_t *row) { return json_object_get(row, "image"); }

static void other_format(json_t *m) { set(m, "format", json_integer(2)); }
static void no_version(json_t *m) { json_object_del(m, "kiln"); }
static void no_kernel(json_t *m) { set(m, "kernels", json_array()); }
static void not_a_list(json_t *m) { set(m, "kernels", json_object()); }
static void no_object(json_t *m) {
  json_array_set_new(json_object_get(m, "kernels"), 0, json_null());
}
static void one_kernel(json_t *m) { json_array_remove(json_object_get(m, "kernels"), 1); }
static void twice(json_t *m) { json_array_set(json_object_get(m, "kernels"), 1, first(m)); }
static void no_record(json_t *m) { json_object_del(first(m), "record"); }
static void bad_record(json_t *m) {
  set(json_object_get(first(m), "record"), "align", json_integer(3));
}
static void no_default(json_t *m) { json_object_del(first(m), "default"); }
static void no_identity(json_t *m) { json_object_del(first(m), "identity"); }
static void other_identity(json_t *m) {
  set(json_object_get(first(m), "identity"), "compiler", json_string("another"));
}
static void other_arch(json_t *m) { /* C3: the record says sm_86, the identity sm_90a */
  set(json_object_get(json_object_get(first(m), "record"), "spec"), "arch", json_string("sm_86"));
}
static void short_digest(json_t *m) { set(image_of(first(m)), "sha256", json_string("ab")); }
static void no_offset(json_t *m) { json_object_del(image_of(first(m)), "offset"); }
static void real_offset(json_t *m) { set(image_of(first(m)), "offset", json_real(0)); }
static void wrong_offset(json_t *m) { set(image_of(first(m)), "offset", json_integer(4096)); }
static void negative_offset(json_t *m) { set(image_of(first(m)), "offset", json_integer(-4096)); }
static void same_place(json_t *m) { set(image_of(second(m)), "offset", json_integer(0)); }
static void no_bytes(json_t *m) { set(image_of(first(m)), "bytes", json_integer(0)); }
static void few_bytes(json_t *m) { set(image_of(first(m)), "bytes", json_integer(63)); }
static void negative_bytes(json_t *m) { set(image_of(first(m)), "bytes", json_integer(-1)); }
static void huge_bytes(json_t *m) { set(image_of(first(m)), "bytes", json_integer(INT64_MAX)); }
static void past_the_end(json_t *m) {
  set(image_of(second(m)), "bytes", json_integer(PACKING_IMAGE + 1));
}
static void before_the_end(json_t *m) {
  set(image_of(second(m)), "bytes", json_integer(PACKING_IMAGE - 1));
}
static void less_of_the_first(json_t *m) {
  set(image_of(first(m)), "bytes", json_integer(PACKING_IMAGE - 1));
}

static const struct {
  void (*plant)(json_t *manifest);
  const char *word;
} manifest_faults[] = {
    {other_format, "lacks a member"},
    {no_version, "lacks a member"},
    {no_kernel, "holds no kernel"},
    {not_a_list, "lacks a member"},
    {no_object, "\"format\""},
    {one_kernel, "follows its last image"},
    {twice, "not where it belongs"},
    {no_record, "\"format\""},
    {bad_record, "\"align\""},
    {no_default, "default"},
    {no_identity, "identity"},
    {other_identity, "not that of its identity"},
    {other_arch, "another arch"},
    {short_digest, "lacks a member"},
    {no_offset, "lacks a member"},
    {real_offset, "lacks a member"},
    {wrong_offset, "where it belongs"},
    {negative_offset, "where it belongs"},
    {same_place, "where it belongs"},
    {no_bytes, "where it belongs"},
    {few_bytes, "no cubin"},
    {negative_bytes, "where it belongs"},
    {huge_bytes, "where it belongs"},
    {past_the_end, "where it belongs"},
    {before_the_end, "padding"},
    {less_of_the_first, "padding"},
};

static void expect_manifest(bench *b, const char *text, const char *word) {
  size_t size;
  unsigned char *made = packing_with_manifest(b->bytes, b->size, text, &size);
  expect_damage(b, made, size, word);
  free(made);
}

START_TEST(a_wrong_manifest_with_a_right_root) {
  bench b;
  bench_open(&b);
  json_t *manifest = packing_manifest(b.bytes);
  manifest_faults[_i].plant(manifest);
  char *text = json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS);
  expect_manifest(&b, text, manifest_faults[_i].word);
  free(text);
  json_decref(manifest);
  bench_close(&b);
}
END_TEST

START_TEST(a_manifest_has_one_spelling) {
  bench b;
  bench_open(&b);
  json_t *manifest = packing_manifest(b.bytes);
  char *spaced = json_dumps(manifest, JSON_SORT_KEYS);
  expect_manifest(&b, spaced, "canonical");
  expect_manifest(&b, "{\"a\":1,\"a\":1}", "no JSON");
  expect_manifest(&b, "[]", "lacks a member");
  expect_manifest(&b, "{", "no JSON");
  char *deep = malloc(9001);
  memset(deep, '[', 9000);
  deep[9000] = '\0';
  expect_manifest(&b, deep, "no JSON");
  free(deep);
  free(spaced);
  /* The two kernels the other way round, images too: right but for the order. */
  json_t *kernels = json_object_get(manifest, "kernels");
  json_t *a = first(manifest), *c = second(manifest);
  json_incref(a);
  json_incref(c);
  json_array_set_new(kernels, 0, c);
  json_array_set_new(kernels, 1, a);
  set(image_of(c), "offset", json_integer(0));
  set(image_of(a), "offset", json_integer(8192));
  char *text = json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS);
  expect_manifest(&b, text, "not in order");
  free(text);
  json_decref(manifest);
  bench_close(&b);
}
END_TEST

/* The root is right and the image is not what the manifest says: a careless or hostile builder. */
START_TEST(verify_looks_at_every_image) {
  bench b;
  kiln_pack *pack;
  bench_open(&b);
  b.bytes[b.size - 1] ^= 1;
  packing_reroot(b.bytes, b.size);
  ck_assert_int_eq(kiln_pack_open_memory(b.ctx, b.bytes, b.size, NULL, &pack), KILN_OK);
  ck_assert_int_eq(kiln_pack_verify(b.ctx, pack, NULL), KILN_CORRUPT);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(b.ctx), "digest"));
  kiln_pack_destroy(pack);
  bench_close(&b);
}
END_TEST

/* 20,000 packs with up to four random bytes changed and a right root: whatever is accepted has
 * kernels that can be looked at to the last byte. */
START_TEST(random_damage_with_a_right_root) {
  bench b;
  uint32_t state = 12345;
  int accepted = 0;
  bench_open_with(&b, _i);
  unsigned char *made = malloc(b.size);
  for (int round = 0; round < 20000; round++) {
    memcpy(made, b.bytes, b.size);
    for (uint32_t n = 0; n <= (uint32_t)round % 4; n++) {
      state = state * 1664525u + 1013904223u;
      size_t at = state >> 8;
      at = round % 2 ? at % KILN__PACK_ALIGN + KILN__PACK_ALIGN : at % b.size;
      state = state * 1664525u + 1013904223u;
      made[at] = (unsigned char)(state >> 16);
    }
    packing_reroot(made, b.size);
    kiln_pack *pack;
    kiln_pack_kernel kernel = {.size = sizeof kernel};
    if (kiln_pack_open_memory(b.ctx, made, b.size, NULL, &pack) != KILN_OK) continue;
    accepted++;
    kiln_pack_verify(b.ctx, pack, NULL);
    for (int i = 0; kiln_pack_get_kernel(pack, i, &kernel) == KILN_OK; i++)
      ck_assert_uint_eq(kernel.image_bytes, PACKING_IMAGE);
    kiln_pack_destroy(pack);
  }
  ck_assert_int_gt(accepted, 100); /* changes of an image's bytes */
  ck_assert_int_lt(accepted, 10000);
  free(made);
  bench_close(&b);
}
END_TEST

/* ---- signatures ---- */

static kiln_pack *sign(bench *b, int fill, unsigned char public_key[32]) {
  unsigned char seed[32], secret[64];
  kiln_pack *pack;
  memset(seed, fill, sizeof seed);
  crypto_sign_seed_keypair(public_key, secret, seed);
  ck_assert_int_eq(kiln_pack_sign(b->ctx, b->pack, seed, 32, &pack), KILN_OK);
  return pack;
}

START_TEST(signed_packs) {
  bench b;
  unsigned char mine[32], other[32], secret[64], seed[32];
  kiln_pack *pack, *again, *opened;
  kiln_pack_info info = {.size = sizeof info}, plain = {.size = sizeof plain};
  bench_open(&b);
  pack = sign(&b, 7, mine);
  kiln_pack_destroy(sign(&b, 8, other));
  kiln_pack_get_info(pack, &info);
  kiln_pack_get_info(b.pack, &plain);
  ck_assert_str_eq(info.root, plain.root);
  ck_assert_uint_eq(strlen(info.public_key), 64);
  size_t size;
  const void *bytes = kiln_pack_bytes(pack, &size);
  ck_assert_int_eq(kiln_pack_open_memory(b.ctx, bytes, size, mine, &opened), KILN_OK);
  kiln_pack_destroy(opened);
  ck_assert_int_eq(kiln_pack_open_memory(b.ctx, bytes, size, other, &opened), KILN_BAD_SIGNATURE);
  ck_assert_ptr_null(opened);
  ck_assert_int_eq(kiln_pack_verify(b.ctx, pack, mine), KILN_OK);
  ck_assert_int_eq(kiln_pack_verify(b.ctx, pack, other), KILN_BAD_SIGNATURE);
  ck_assert_int_eq(kiln_pack_verify(b.ctx, b.pack, mine), KILN_BAD_SIGNATURE);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(b.ctx), "is not signed"));
  /* The 64-byte form gives the same; halves that do not belong together and other sizes do not. */
  memset(seed, 7, sizeof seed);
  crypto_sign_seed_keypair(mine, secret, seed);
  ck_assert_int_eq(kiln_pack_sign(b.ctx, pack, secret, 64, &again), KILN_OK);
  ck_assert_mem_eq(kiln_pack_bytes(again, NULL), bytes, size);
  kiln_pack_destroy(again);
  secret[40] ^= 1;
  ck_assert_int_eq(kiln_pack_sign(b.ctx, pack, secret, 64, &again), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_pack_sign(b.ctx, pack, seed, 31, &again), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_null(again);
  kiln_pack_destroy(pack);
  bench_close(&b);
}
END_TEST

START_TEST(every_byte_of_a_signature_counts) {
  bench b;
  unsigned char mine[32];
  size_t size;
  bench_open(&b);
  kiln_pack *pack = sign(&b, 7, mine);
  unsigned char *bytes = packing_copy(pack, &size);
  for (size_t i = KILN__PACK_AT_KEY; i < KILN__PACK_AT_TABLE; i++) {
    for (int bit = 0; bit < 8; bit += 7) {
      bytes[i] ^= (unsigned char)(1 << bit);
      ck_assert_int_eq(open_bytes(&b, bytes, size), KILN_BAD_SIGNATURE);
      bytes[i] ^= (unsigned char)(1 << bit);
    }
  }
  bytes[size - 1] ^= 1; /* another content under the old signature */
  packing_reroot(bytes, size);
  ck_assert_int_eq(open_bytes(&b, bytes, size), KILN_BAD_SIGNATURE);
  free(bytes);
  kiln_pack_destroy(pack);
  bench_close(&b);
}
END_TEST

Suite *suite_pack(void) {
  Suite *suite = suite_create("pack");
  TCase *tests = tcase_create("pack");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, a_pack_is_read_as_it_was_written);
  tcase_add_test(tests, the_order_of_adding_does_not_matter);
  tcase_add_test(tests, what_a_writer_refuses);
  tcase_add_loop_test(tests, every_flipped_byte_is_refused, 0, 2);
  tcase_add_loop_test(tests, every_other_length_is_refused, 0, 2);
  tcase_add_loop_test(tests, a_wrong_header_with_a_right_root, 0,
                      sizeof header_faults / sizeof header_faults[0]);
  tcase_add_test(tests, another_format_is_named);
  tcase_add_loop_test(tests, a_wrong_manifest_with_a_right_root, 0,
                      sizeof manifest_faults / sizeof manifest_faults[0]);
  tcase_add_test(tests, a_manifest_has_one_spelling);
  tcase_add_test(tests, verify_looks_at_every_image);
  tcase_add_loop_test(tests, random_damage_with_a_right_root, 0, 2);
  tcase_add_test(tests, signed_packs);
  tcase_add_test(tests, every_byte_of_a_signature_counts);
  suite_add_tcase(suite, tests);
  return suite;
}
