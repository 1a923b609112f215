/* A pack in memory, opened, verified and looked at. Its root hash, digests and ids would stop a
 * fuzzer at the door, so the first byte of an input says what is made right before it is opened:
 *
 *   anything     nothing: the rest is the pack
 *   's'          the length and the root hash
 *   'm' FLAGS    the rest is the manifest alone: the pack around it is made, with images and, by
 *                the bits of FLAGS, the kernels' ids (1), the images' places and digests (2), the
 *                order of the kernels (4), the sources (8) */
#include "fuzz.h"

#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/identity.h"
#include "runtime/pack.h"

enum { IDS = 1, IMAGES = 2, ORDER = 4, SOURCES = 8, IMAGE_BYTES = 100, KERNELS_MAX = 8 };

static const char source[] = "// x\n\nint x;\n"; /* of every kernel */
enum { SOURCE_BYTES = sizeof source - 1 };

static void put_u64(unsigned char *at, uint64_t value) {
  for (int i = 0; i < 8; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static void seal(unsigned char *bytes, size_t size) {
  put_u64(bytes + KILN__PACK_AT_BYTES, size);
  kiln__pack_root(bytes, size, bytes + KILN__PACK_AT_ROOT);
}

/* ---- a pack around a manifest ---- */

static void make_image(unsigned char image[IMAGE_BYTES]) {
  memset(image, 0, IMAGE_BYTES);
  memcpy(image, "\177ELF", 4);
  image[18] = 190; /* EM_CUDA */
}

static void repair_kernel(json_t *kernel, size_t index, unsigned flags) {
  char id[65], hex[65];
  unsigned char image[IMAGE_BYTES], digest[32];
  const json_t *identity = json_object_get(kernel, "identity");
  if ((flags & IDS) && json_is_object(identity) && kiln__identity_digest(identity, id) == 0)
    json_object_set_new(kernel, "kernel_id", json_string(id));
  if ((flags & SOURCES) && json_is_object(kernel))
    json_object_set_new(
        kernel, "source",
        json_pack("{s:i, s:i}", "offset", (int)(index * SOURCE_BYTES), "bytes", (int)SOURCE_BYTES));
  if (!(flags & IMAGES) || !json_is_object(kernel)) return;
  make_image(image);
  crypto_hash_sha256(digest, image, sizeof image);
  sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
  json_object_set_new(kernel, "image",
                      json_pack("{s:i, s:i, s:s}", "offset", (int)(index * KILN__PACK_ALIGN),
                                "bytes", (int)IMAGE_BYTES, "sha256", hex));
}

static const char *id_of(const json_t *kernels, size_t index) {
  const char *id = json_string_value(json_object_get(json_array_get(kernels, index), "kernel_id"));
  return id ? id : "";
}

static json_t *sorted(json_t *kernels) {
  json_t *list = json_array();
  for (size_t i = 0; i < json_array_size(kernels); i++) {
    size_t at = json_array_size(list);
    while (at > 0 && strcmp(id_of(list, at - 1), id_of(kernels, i)) > 0) at--;
    json_array_insert(list, at, json_array_get(kernels, i));
  }
  return list;
}

static void repair(json_t *manifest, unsigned flags) {
  json_t *kernels = json_object_get(manifest, "kernels");
  if (!json_is_array(kernels)) return;
  for (size_t i = 0; i < json_array_size(kernels); i++)
    repair_kernel(json_array_get(kernels, i), i, flags & IDS);
  if (flags & ORDER) json_object_set_new(manifest, "kernels", sorted(kernels));
  kernels = json_object_get(manifest, "kernels");
  for (size_t i = 0; i < json_array_size(kernels); i++)
    repair_kernel(json_array_get(kernels, i), i, flags & (IMAGES | SOURCES));
}

static void put_row(unsigned char *bytes, int index, unsigned char kind, size_t offset,
                    size_t size) {
  unsigned char *row = bytes + KILN__PACK_AT_TABLE + index * KILN__PACK_TABLE_ROW;
  row[0] = kind;
  put_u64(row + 8, offset);
  put_u64(row + 16, size);
}

/* A sealed pack with this manifest and an image for each kernel, and a source. */
static unsigned char *assemble(const char *text, size_t count, int has_sources, size_t *size) {
  const size_t length = strlen(text);
  const size_t images = (size_t)kiln__pack_align(KILN__PACK_ALIGN + length);
  const size_t images_bytes = (count - 1) * KILN__PACK_ALIGN + IMAGE_BYTES;
  const size_t sources = (size_t)kiln__pack_align(images + images_bytes);
  *size = has_sources ? sources + count * SOURCE_BYTES : images + images_bytes;
  unsigned char *bytes = calloc(1, *size);
  memcpy(bytes, KILN__PACK_MAGIC, 8);
  bytes[KILN__PACK_AT_VERSION] = KILN__PACK_VERSION;
  bytes[KILN__PACK_AT_COUNT] = (unsigned char)(KILN__PACK_SECTIONS + has_sources);
  put_row(bytes, 0, KILN__PACK_MANIFEST, KILN__PACK_ALIGN, length);
  put_row(bytes, 1, KILN__PACK_IMAGES, images, images_bytes);
  if (has_sources) put_row(bytes, 2, KILN__PACK_SOURCES, sources, count * SOURCE_BYTES);
  memcpy(bytes + KILN__PACK_ALIGN, text, length);
  for (size_t i = 0; i < count; i++) {
    make_image(bytes + images + i * KILN__PACK_ALIGN);
    if (has_sources) memcpy(bytes + sources + i * SOURCE_BYTES, source, SOURCE_BYTES);
  }
  seal(bytes, *size);
  return bytes;
}

static unsigned char *around_manifest(const char *text, size_t length, unsigned flags,
                                      size_t *size) {
  unsigned char *bytes = NULL;
  json_t *manifest = json_loadb(text, length, 0, NULL);
  repair(manifest, flags);
  size_t count = json_array_size(json_object_get(manifest, "kernels"));
  if (count < 1) count = 1;
  if (manifest && count <= KERNELS_MAX) {
    char *again = json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS);
    const json_t *first = json_array_get(json_object_get(manifest, "kernels"), 0);
    if (again) bytes = assemble(again, count, json_object_get(first, "source") != NULL, size);
    free(again);
  }
  json_decref(manifest);
  return bytes;
}

/* ---- opening ---- */

#define TERMINATED(text) demand(strnlen(text, sizeof(text)) < sizeof(text))

/* What lies inside one allocation no sanitizer looks at. */
static void check_record(const kiln__record *record) {
  TERMINATED(record->family);
  TERMINATED(record->layout);
  TERMINATED(record->spec.arch);
  demand(record->num_entries >= 0 && record->num_entries <= KILN__MAX_ENTRIES);
  demand(record->num_workspace >= 0 && record->num_workspace <= KILN__MAX_WORKSPACE);
  for (int i = 0; i < record->num_entries; i++) {
    TERMINATED(record->entries[i].name);
    demand(record->entries[i].num_grid >= 0 && record->entries[i].num_grid <= KILN__MAX_GRID);
    demand(record->entries[i].num_params >= 0 && record->entries[i].num_params <= KILN__MAX_PARAMS);
  }
}

static void look_at(const unsigned char *bytes, size_t size) {
  kiln_context *ctx = fuzz_context();
  kiln_pack *pack = NULL;
  kiln_pack_info info = {.size = sizeof info};
  kiln_pack_kernel kernel = {.size = sizeof kernel};
  volatile unsigned sum = 0;
  if (kiln_pack_open_memory(ctx, bytes, size, NULL, &pack) != KILN_OK) {
    demand(pack == NULL && kiln_last_error(ctx)[0] != '\0');
    return;
  }
  kiln_pack_verify(ctx, pack, NULL);
  kiln_pack_get_info(pack, &info);
  demand(info.num_kernels > 0);
  for (int64_t i = 0; kiln_pack_get_kernel(pack, i, &kernel) == KILN_OK; i++) {
    demand(strlen(kernel.kernel_id) == 64 && strlen(kernel.source_id) == 64);
    check_record(&pack->rows[i].record);
    demand(strlen(kernel.record) > 0 && strlen(kernel.identity) > 0);
    for (size_t b = 0; b < kernel.image_bytes; b++) sum += ((const unsigned char *)kernel.image)[b];
  }
  kiln_pack_destroy(pack);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  unsigned char *bytes = NULL;
  size_t length = size;
  if (size >= 2 && data[0] == 'm') {
    bytes = around_manifest((const char *)data + 2, size - 2, data[1], &length);
  } else if (size > KILN__PACK_ALIGN && data[0] == 's') {
    length = size - 1;
    bytes = fuzz_copy(data + 1, length);
    seal(bytes, length);
  } else {
    bytes = fuzz_copy(data, size);
  }
  if (bytes) look_at(bytes, length);
  free(bytes);
  return 0;
}
