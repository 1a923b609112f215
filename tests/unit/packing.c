/* Small packs, right and wrong: see packing.h. */
#include "packing.h"

#include <check.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "runtime/identity.h"

static unsigned char *make_image(int fill) {
  unsigned char *image = malloc(PACKING_IMAGE);
  ck_assert_ptr_nonnull(image);
  memset(image, fill, PACKING_IMAGE);
  memcpy(image, "\177ELF", 4);
  image[18] = 190; /* EM_CUDA */
  image[19] = 0;
  return image;
}

static char *make_record(const char *arch, int head_dim, int block_m) {
  json_t *record = json_loads(fake_record, 0, NULL);
  json_t *spec = json_object_get(record, "spec"), *tile = json_object_get(record, "tile");
  json_object_set_new(spec, "arch", json_string(arch));
  json_object_set_new(spec, "head_dim", json_integer(head_dim));
  json_object_set_new(spec, "head_dim_v", json_integer(head_dim));
  json_object_set_new(tile, "block_m", json_integer(block_m));
  char *text = json_dumps(record, JSON_COMPACT);
  json_decref(record);
  ck_assert_ptr_nonnull(text);
  return text;
}

kiln_source *packing_source(int head_dim, int block_m) {
  char text[128];
  unsigned char digest[crypto_hash_sha256_BYTES];
  kiln_source *source = calloc(1, sizeof *source);
  ck_assert_ptr_nonnull(source);
  snprintf(text, sizeof text, "// head_dim %d\n\nvoid kernel_%d_%d(void);\n", head_dim, head_dim,
           block_m);
  source->generated.text = strdup(text);
  source->generated.length = strlen(text);
  const char *body = strstr(text, "\n\n") + 1;
  crypto_hash_sha256(digest, (const unsigned char *)body, strlen(body));
  sodium_bin2hex(source->generated.source_id, KILN__ID_SIZE, digest, sizeof digest);
  return source;
}

kiln_binary *packing_binary(const char *arch, int head_dim, int block_m) {
  static const char *const options[] = {"--fake"};
  const kiln__compiler_identity compiler = {"fake 1.0", options, 1};
  kiln_source *source = packing_source(head_dim, block_m);
  kiln_binary *binary = calloc(1, sizeof *binary);
  ck_assert_ptr_nonnull(binary);
  binary->identity = kiln__identity_make(source->generated.source_id, arch, "forward.1", &compiler);
  kiln_source_destroy(source);
  ck_assert_int_eq(kiln__identity_digest(binary->identity, binary->kernel_id), 0);
  binary->item.image = make_image(head_dim + block_m);
  binary->item.image_size = PACKING_IMAGE;
  binary->item.record = make_record(arch, head_dim, block_m);
  fake_parse_record(binary->item.record, &binary->record);
  return binary;
}

static kiln_pack *make_pack(kiln_context *ctx, int count, int with_sources) {
  kiln_pack_writer *writer;
  kiln_pack *pack;
  ck_assert_int_eq(kiln_pack_writer_create(ctx, &writer), KILN_OK);
  for (int i = 0; i < count; i++) {
    kiln_binary *binary = packing_binary("sm_90a", 64 + 8 * i, 128);
    kiln_source *source = packing_source(64 + 8 * i, 128);
    kiln_status status =
        with_sources ? kiln_pack_writer_add_source(writer, binary, source, KILN_PACK_DEFAULT)
                     : kiln_pack_writer_add(writer, binary, KILN_PACK_DEFAULT);
    ck_assert_int_eq(status, KILN_OK);
    kiln_source_destroy(source);
    kiln_binary_destroy(binary);
  }
  kiln_status status = kiln_pack_writer_finish(writer, &pack);
  ck_assert_msg(status == KILN_OK, "%s", kiln_last_error(ctx));
  kiln_pack_writer_destroy(writer);
  return pack;
}

kiln_pack *packing_pack(kiln_context *ctx, int count) { return make_pack(ctx, count, 0); }

kiln_pack *packing_pack_with_sources(kiln_context *ctx, int count) {
  return make_pack(ctx, count, 1);
}

unsigned char *packing_copy(const kiln_pack *pack, size_t *size) {
  const void *bytes = kiln_pack_bytes(pack, size);
  unsigned char *copy = malloc(*size);
  ck_assert_ptr_nonnull(copy);
  memcpy(copy, bytes, *size);
  return copy;
}

void packing_reroot(unsigned char *bytes, size_t size) {
  kiln__pack_root(bytes, size, bytes + KILN__PACK_AT_ROOT);
}

static uint64_t get_u64(const unsigned char *at) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; i--) value = value << 8 | at[i];
  return value;
}

static void put_u64(unsigned char *at, uint64_t value) {
  for (int i = 0; i < 8; i++) at[i] = (unsigned char)(value >> (8 * i));
}

#define ROW(i) (KILN__PACK_AT_TABLE + (i)*KILN__PACK_TABLE_ROW)

json_t *packing_manifest(const unsigned char *bytes) {
  json_t *manifest = json_loadb((const char *)bytes + KILN__PACK_ALIGN,
                                (size_t)get_u64(bytes + ROW(0) + 16), 0, NULL);
  ck_assert_ptr_nonnull(manifest);
  return manifest;
}

unsigned char *packing_with_manifest(const unsigned char *bytes, size_t size, const char *manifest,
                                     size_t *new_size) {
  const size_t old_images = (size_t)get_u64(bytes + ROW(1) + 8);
  const size_t length = strlen(manifest);
  const size_t images = (size_t)kiln__pack_align(KILN__PACK_ALIGN + length);
  *new_size = images + size - old_images;
  unsigned char *made = calloc(1, *new_size);
  ck_assert_ptr_nonnull(made);
  memcpy(made, bytes, KILN__PACK_ALIGN);
  memcpy(made + KILN__PACK_ALIGN, manifest, length);
  memcpy(made + images, bytes + old_images, size - old_images);
  put_u64(made + KILN__PACK_AT_BYTES, *new_size);
  put_u64(made + ROW(0) + 16, length);
  put_u64(made + ROW(1) + 8, images);
  if (bytes[KILN__PACK_AT_COUNT] > KILN__PACK_SECTIONS)
    put_u64(made + ROW(2) + 8, get_u64(bytes + ROW(2) + 8) - old_images + images);
  packing_reroot(made, *new_size);
  return made;
}
