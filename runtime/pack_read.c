/* Reading a pack: bytes from anywhere to checked rows. Nothing is used before it was checked, and
 * there is one legal place for everything: sections and images follow each other in the order of
 * the format, each at the next multiple of KILN__PACK_ALIGN, with zeros between. So nothing can
 * overlap, hide or lie outside. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/identity.h"
#include "runtime/pack.h"

#define ELF_HEADER       64
#define ELF_MACHINE      18  /* offset of a u16 */
#define ELF_MACHINE_CUDA 190 /* EM_CUDA */

typedef struct section {
  uint64_t offset, bytes;
} section;

typedef struct reader {
  kiln_pack *pack;
  kiln__text *error;
  section manifest, images, sources; /* sources.bytes 0 = there is none */
} reader;

const char *kiln__pack_name(const kiln_pack *pack) {
  return pack->path[0] ? pack->path : "in memory";
}

static kiln_status damaged(const reader *r, const char *what) {
  kiln__text_printf(r->error, "the pack %s is damaged (%s): copy it again, or build it anew",
                    kiln__pack_name(r->pack), what);
  return KILN_CORRUPT;
}

static kiln_status no_memory(const reader *r) {
  kiln__text_string(r->error, "no memory is left to open a pack");
  return KILN_OUT_OF_MEMORY;
}

static uint32_t get_u32(const unsigned char *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t get_u64(const unsigned char *at) {
  return get_u32(at) | (uint64_t)get_u32(at + 4) << 32;
}

uint64_t kiln__pack_align(uint64_t offset) {
  return (offset + KILN__PACK_ALIGN - 1) / KILN__PACK_ALIGN * KILN__PACK_ALIGN;
}

void kiln__pack_root(const unsigned char *bytes, size_t size, unsigned char root[32]) {
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  crypto_hash_sha256_update(&state, bytes, KILN__PACK_AT_ROOT);
  crypto_hash_sha256_update(&state, bytes + KILN__PACK_AT_TABLE, size - KILN__PACK_AT_TABLE);
  crypto_hash_sha256_final(&state, root);
}

int kiln__pack_is_cubin(const unsigned char *image, size_t size) {
  return size >= ELF_HEADER && memcmp(image, "\177ELF", 4) == 0 &&
         image[ELF_MACHINE] == ELF_MACHINE_CUDA && image[ELF_MACHINE + 1] == 0;
}

int kiln__pack_digest_is(const char *sha256, const void *bytes, size_t size) {
  unsigned char digest[crypto_hash_sha256_BYTES];
  char hex[KILN__ID_SIZE];
  crypto_hash_sha256(digest, bytes, size);
  sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
  return strcmp(hex, sha256) == 0;
}

/* The header ends with the first empty line, which the source id covers. */
int kiln__pack_is_source(const char *source_id, const char *text, size_t length) {
  const char *header_end = memmem(text, length, "\n\n", 2);
  if (!header_end) return 0;
  return kiln__pack_digest_is(source_id, header_end + 1, length - (size_t)(header_end + 1 - text));
}

/* ---- header ---- */

static int is_zero(const reader *r, uint64_t from, uint64_t to) {
  return sodium_is_zero(r->pack->bytes + from, (size_t)(to - from));
}

static kiln_status read_start(const reader *r) {
  const unsigned char *bytes = r->pack->bytes;
  if (r->pack->size < KILN__PACK_ALIGN) return damaged(r, "it is shorter than a header");
  if (memcmp(bytes, KILN__PACK_MAGIC, 8) != 0) return damaged(r, "it does not begin as a pack");
  const uint32_t version = get_u32(bytes + KILN__PACK_AT_VERSION);
  if (version != KILN__PACK_VERSION) {
    kiln__text_printf(r->error,
                      "the pack %s is of format %u and this version of Kiln reads %d: "
                      "build it with the same version",
                      kiln__pack_name(r->pack), (unsigned)version, KILN__PACK_VERSION);
    return KILN_MISMATCH;
  }
  if (get_u64(bytes + KILN__PACK_AT_BYTES) != r->pack->size)
    return damaged(r, "it is not as long as it says");
  return KILN_OK;
}

static kiln_status check_root(const reader *r) {
  unsigned char root[32];
  kiln__pack_root(r->pack->bytes, r->pack->size, root);
  if (memcmp(root, r->pack->bytes + KILN__PACK_AT_ROOT, sizeof root) != 0)
    return damaged(r, "its root hash does not agree");
  sodium_bin2hex(r->pack->root, sizeof r->pack->root, root, sizeof root);
  return KILN_OK;
}

/* A signature has to be absent or whole. Whose it is proves nothing by itself, since anybody can
 * sign: kiln__pack_check_signer compares the key with one that the caller trusts. */
static kiln_status check_signature(const reader *r) {
  const unsigned char *bytes = r->pack->bytes;
  const unsigned char *key = bytes + KILN__PACK_AT_KEY;
  if (is_zero(r, KILN__PACK_AT_KEY, KILN__PACK_AT_TABLE)) return KILN_OK;
  if (crypto_sign_verify_detached(bytes + KILN__PACK_AT_SIGNATURE, bytes + KILN__PACK_AT_ROOT, 32,
                                  key) != 0) {
    kiln__text_printf(r->error,
                      "the signature of the pack %s does not belong to its content: get it anew "
                      "from who signed it",
                      kiln__pack_name(r->pack));
    return KILN_BAD_SIGNATURE;
  }
  sodium_bin2hex(r->pack->public_key, sizeof r->pack->public_key, key, 32);
  return KILN_OK;
}

static int read_section(const reader *r, int index, uint32_t kind, section *s) {
  const unsigned char *row =
      r->pack->bytes + KILN__PACK_AT_TABLE + (size_t)index * KILN__PACK_TABLE_ROW;
  s->offset = get_u64(row + 8);
  s->bytes = get_u64(row + 16);
  return get_u32(row) == kind && get_u32(row + 4) == 0 && s->bytes > 0 &&
         s->offset % KILN__PACK_ALIGN == 0 && s->offset < r->pack->size &&
         s->bytes <= r->pack->size - s->offset;
}

static uint64_t end_of(const section *s) { return s->offset + s->bytes; }

/* The last section ends with the file. */
static int sections_follow(const reader *r, int has_sources) {
  const section *last = has_sources ? &r->sources : &r->images;
  return r->manifest.offset == KILN__PACK_ALIGN && r->manifest.bytes <= KILN__PACK_MANIFEST_LIMIT &&
         r->images.offset == kiln__pack_align(end_of(&r->manifest)) &&
         (!has_sources || r->sources.offset == kiln__pack_align(end_of(&r->images))) &&
         last->bytes == r->pack->size - last->offset;
}

static kiln_status read_table(reader *r) {
  const uint32_t count = get_u32(r->pack->bytes + KILN__PACK_AT_COUNT);
  const int has_sources = count == KILN__PACK_SECTIONS + 1;
  const uint64_t end = KILN__PACK_AT_TABLE + (uint64_t)count * KILN__PACK_TABLE_ROW;
  if ((count != KILN__PACK_SECTIONS && !has_sources) ||
      !read_section(r, 0, KILN__PACK_MANIFEST, &r->manifest) ||
      !read_section(r, 1, KILN__PACK_IMAGES, &r->images) ||
      (has_sources && !read_section(r, 2, KILN__PACK_SOURCES, &r->sources)))
    return damaged(r, "its table of sections is not that of this format");
  if (!sections_follow(r, has_sources)) return damaged(r, "its sections are not where they belong");
  if (!is_zero(r, KILN__PACK_AT_BYTES + 8, KILN__PACK_AT_ROOT) ||
      !is_zero(r, end, KILN__PACK_ALIGN) || !is_zero(r, end_of(&r->manifest), r->images.offset) ||
      (has_sources && !is_zero(r, end_of(&r->images), r->sources.offset)))
    return damaged(r, "its padding is not zero");
  return KILN_OK;
}

/* ---- manifest ---- */

static char *canonical(const json_t *value) {
  return json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS);
}

static kiln_status read_manifest(reader *r) {
  const char *text = (const char *)r->pack->bytes + r->manifest.offset;
  const size_t length = (size_t)r->manifest.bytes;
  json_error_t where;
  json_t *manifest = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
  r->pack->manifest = manifest;
  if (!manifest)
    return json_error_code(&where) == json_error_out_of_memory
               ? no_memory(r)
               : damaged(r, "its manifest is no JSON");
  char *again = canonical(manifest);
  if (!again) return no_memory(r);
  const int same = strlen(again) == length && memcmp(again, text, length) == 0;
  free(again);
  if (!same) return damaged(r, "its manifest is not written in the canonical way");
  if (json_integer_value(json_object_get(manifest, "format")) != KILN__PACK_VERSION ||
      !json_is_string(json_object_get(manifest, "kiln")) ||
      !json_is_array(json_object_get(manifest, "kernels")))
    return damaged(r, "its manifest lacks a member");
  return KILN_OK;
}

/* A digest in hex, or NULL. */
static const char *get_digest(const json_t *object, const char *name) {
  const char *text = json_string_value(json_object_get(object, name));
  if (!text || strspn(text, "0123456789abcdef") != 64 || text[64]) return NULL;
  return text;
}

/* The id is that of the identity inside, and the identity that of this record. */
static const char *read_identity(const json_t *object, kiln__pack_row *row) {
  const json_t *identity = json_object_get(object, "identity");
  const char *arch = json_string_value(json_object_get(identity, "arch"));
  const char *layout = json_string_value(json_object_get(identity, "layout"));
  char digest[KILN__ID_SIZE];
  row->kernel_id = get_digest(object, "kernel_id");
  row->source_id = get_digest(identity, "source_id");
  if (!row->kernel_id || !row->source_id || !arch || !layout)
    return "a kernel's identity lacks a member";
  if (kiln__identity_digest(identity, digest) != 0 || strcmp(digest, row->kernel_id) != 0)
    return "a kernel's id is not that of its identity";
  if (strcmp(arch, row->record.spec.arch) != 0 || strcmp(layout, row->record.layout) != 0)
    return "a kernel's record is for another arch or layout than its identity";
  return NULL;
}

/* *at: where the image has to lie, in the section; moved behind it. */
static const char *read_image(const reader *r, const json_t *object, kiln__pack_row *row,
                              uint64_t *at) {
  const json_t *image = json_object_get(object, "image");
  const json_t *offset = json_object_get(image, "offset"), *bytes = json_object_get(image, "bytes");
  row->sha256 = get_digest(image, "sha256");
  if (!row->sha256 || !json_is_integer(offset) || !json_is_integer(bytes))
    return "a kernel's image lacks a member";
  const json_int_t size = json_integer_value(bytes);
  if (size < 1 || (uint64_t)size > KILN__PACK_IMAGE_LIMIT || *at > r->images.bytes ||
      (uint64_t)size > r->images.bytes - *at || json_integer_value(offset) != (json_int_t)*at)
    return "a kernel's image is not where it belongs";
  row->image = r->pack->bytes + r->images.offset + *at;
  row->image_bytes = (size_t)size;
  if (!kiln__pack_is_cubin(row->image, row->image_bytes)) return "an image is no cubin";
  const uint64_t end = *at + (uint64_t)size, next = kiln__pack_align(end);
  const uint64_t stop = next < r->images.bytes ? next : r->images.bytes;
  *at = next;
  return is_zero(r, r->images.offset + end, r->images.offset + stop) ? NULL
                                                                     : "its padding is not zero";
}

/* Sources follow each other without padding. */
static const char *read_source(const reader *r, const json_t *object, kiln__pack_row *row,
                               uint64_t *at) {
  const json_t *source = json_object_get(object, "source");
  const json_t *offset = json_object_get(source, "offset");
  const json_int_t size = json_integer_value(json_object_get(source, "bytes"));
  if (!r->sources.bytes) return source ? "a kernel names a source and the pack holds none" : NULL;
  if (!json_is_integer(offset)) return "a kernel's source lacks a member";
  if (size < 1 || (uint64_t)size > r->sources.bytes - *at ||
      json_integer_value(offset) != (json_int_t)*at)
    return "a kernel's source is not where it belongs";
  row->source = (const char *)r->pack->bytes + r->sources.offset + *at;
  row->source_bytes = (size_t)size;
  *at += (uint64_t)size;
  return memchr(row->source, '\0', row->source_bytes) ? "a source is no text" : NULL;
}

/* Where the next image and the next source have to lie, in their sections. */
typedef struct places {
  uint64_t image, source;
} places;

static kiln_status read_row(const reader *r, const json_t *object, kiln__pack_row *row,
                            places *at) {
  const json_t *choice = json_object_get(object, "default");
  kiln_status status = kiln__record_read(json_object_get(object, "record"), r->error, &row->record);
  if (status != KILN_OK) return status;
  if (!json_is_boolean(choice)) return damaged(r, "a kernel does not say whether it is a default");
  row->is_default = json_is_true(choice);
  const char *why = read_identity(object, row);
  if (!why) why = read_image(r, object, row, &at->image);
  if (!why) why = read_source(r, object, row, &at->source);
  if (why) return damaged(r, why);
  row->record_text = canonical(json_object_get(object, "record"));
  row->identity_text = canonical(json_object_get(object, "identity"));
  if (row->record_text && row->identity_text) return KILN_OK;
  return no_memory(r);
}

static int in_order(const kiln__pack_row *first, const kiln__pack_row *second) {
  const int order = strcmp(first->kernel_id, second->kernel_id);
  return order < 0 || (order == 0 && strcmp(first->record_text, second->record_text) < 0);
}

static kiln_status read_rows(reader *r) {
  const json_t *kernels = json_object_get(r->pack->manifest, "kernels");
  const size_t count = json_array_size(kernels);
  places at = {0, 0};
  if (count < 1 || count > KILN__PACK_KERNEL_LIMIT)
    return damaged(r, "it holds no kernel, or too many");
  r->pack->rows = calloc(count, sizeof *r->pack->rows);
  if (!r->pack->rows) return no_memory(r);
  for (size_t i = 0; i < count; i++) {
    kiln__pack_row *row = &r->pack->rows[r->pack->count++];
    kiln_status status = read_row(r, json_array_get(kernels, i), row, &at);
    if (status != KILN_OK) return status;
    if (i > 0 && !in_order(row - 1, row)) return damaged(r, "its kernels are not in order");
  }
  const kiln__pack_row *last = &r->pack->rows[count - 1];
  if (last->image + last->image_bytes != r->pack->bytes + end_of(&r->images))
    return damaged(r, "something follows its last image");
  return at.source == r->sources.bytes ? KILN_OK : damaged(r, "something follows its last source");
}

kiln_status kiln__pack_parse(kiln_pack *pack, kiln__text *error) {
  reader r = {.pack = pack, .error = error};
  kiln_status status = read_start(&r);
  if (status == KILN_OK) status = check_root(&r);
  if (status == KILN_OK) status = check_signature(&r);
  if (status == KILN_OK) status = read_table(&r);
  if (status == KILN_OK) status = read_manifest(&r);
  return status == KILN_OK ? read_rows(&r) : status;
}
