/* Writing a pack: kernels in, bytes out, in the one layout that pack_read.c accepts.
 *
 * Invariant: the bytes depend on the kernels alone and not on the order in which they were added:
 * they are sorted by kernel id, and the manifest is canonical JSON. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/objects.h"
#include "runtime/pack.h"

typedef struct item {
  json_t *row; /* its member of "kernels"; the offset and the default are set by finish */
  char *record_text;
  char kernel_id[KILN__ID_SIZE];
  kiln_attn_spec spec;
  kiln_tile tile;
  int is_default;
  unsigned char *image;
  size_t image_bytes;
  char *source; /* NULL = none */
  size_t source_bytes;
} item;

struct kiln_pack_writer {
  kiln_context *ctx;
  item *items;
  size_t count, room;
};

kiln_status kiln_pack_writer_create(kiln_context *ctx, kiln_pack_writer **out) {
  if (!out) return kiln__context_null(ctx);
  *out = NULL;
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  kiln_pack_writer *writer = calloc(1, sizeof *writer);
  if (!writer) return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a pack");
  writer->ctx = ctx;
  *out = writer;
  return KILN_OK;
}

static void free_item(item *it) {
  json_decref(it->row);
  free(it->record_text);
  free(it->image);
  free(it->source);
}

void kiln_pack_writer_destroy(kiln_pack_writer *writer) {
  if (!writer) return;
  for (size_t i = 0; i < writer->count; i++) free_item(&writer->items[i]);
  free(writer->items);
  free(writer);
}

/* ---- adding ---- */

static int fill_item(const kiln_binary *binary, const kiln_source *source, item *it) {
  unsigned char digest[crypto_hash_sha256_BYTES];
  char hex[KILN__ID_SIZE];
  it->spec = binary->record.spec;
  it->tile = binary->record.tile;
  memcpy(it->kernel_id, binary->kernel_id, sizeof it->kernel_id);
  it->image_bytes = binary->item.image_size;
  it->image = malloc(it->image_bytes);
  json_t *record = json_loads(binary->item.record, JSON_REJECT_DUPLICATES, NULL);
  if (record) it->record_text = json_dumps(record, JSON_COMPACT | JSON_SORT_KEYS);
  crypto_hash_sha256(digest, binary->item.image, it->image_bytes);
  sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
  it->row = json_pack("{s:o, s:o, s:s, s:{s:I, s:s}}", "record", record, "identity",
                      json_deep_copy(binary->identity), "kernel_id", it->kernel_id, "image",
                      "bytes", (json_int_t)it->image_bytes, "sha256", hex);
  if (!it->image || !it->record_text || !it->row) return -1;
  memcpy(it->image, binary->item.image, it->image_bytes);
  if (!source) return 0;
  it->source_bytes = source->generated.length;
  it->source = strdup(source->generated.text);
  json_object_set_new(it->row, "source", json_pack("{s:I}", "bytes", (json_int_t)it->source_bytes));
  return it->source ? 0 : -1;
}

static int same_tile(const kiln_tile *a, const kiln_tile *b) {
  return a->block_m == b->block_m && a->block_n == b->block_n && a->num_stages == b->num_stages &&
         a->num_warps == b->num_warps;
}

/* The same kernel a second time: only its mark counts. NULL = it is new. */
static item *find_item(kiln_pack_writer *writer, const item *like) {
  for (size_t i = 0; i < writer->count; i++)
    if (strcmp(writer->items[i].kernel_id, like->kernel_id) == 0 &&
        strcmp(writer->items[i].record_text, like->record_text) == 0)
      return &writer->items[i];
  return NULL;
}

static int has_other_default(const kiln_pack_writer *writer, const kiln_binary *binary) {
  for (size_t i = 0; i < writer->count; i++) {
    const item *it = &writer->items[i];
    if (it->is_default && kiln__same_spec(&it->spec, &binary->record.spec) &&
        !same_tile(&it->tile, &binary->record.tile))
      return 1;
  }
  return 0;
}

static int make_room(kiln_pack_writer *writer) {
  if (writer->count < writer->room) return 0;
  const size_t room = writer->room ? 2 * writer->room : 16;
  item *grown = realloc(writer->items, room * sizeof *grown);
  if (!grown) return -1;
  writer->items = grown;
  writer->room = room;
  return 0;
}

static kiln_status add(kiln_pack_writer *writer, const kiln_binary *binary,
                       const kiln_source *source, unsigned flags) {
  kiln_context *ctx = writer->ctx;
  if (flags & ~KILN_PACK_DEFAULT)
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                              "flags is 0x%x: only KILN_PACK_DEFAULT is legal", flags);
  if (binary->for_emulator || !kiln__pack_is_cubin(binary->item.image, binary->item.image_size))
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                              "a pack holds cubins alone: compile the kernel for a GPU, with a "
                              "context for KILN_DEVICE_NONE or a CUDA device");
  if ((flags & KILN_PACK_DEFAULT) && has_other_default(writer, binary))
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                              "another tile is already the default of this kernel's spec");
  item fresh = {0};
  if (make_room(writer) != 0 || fill_item(binary, source, &fresh) != 0) {
    free_item(&fresh);
    return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a pack");
  }
  item *kept = find_item(writer, &fresh);
  if (kept) free_item(&fresh);
  if (!kept) {
    kept = &writer->items[writer->count++];
    *kept = fresh;
  }
  if (flags & KILN_PACK_DEFAULT) kept->is_default = 1;
  return KILN_OK;
}

kiln_status kiln_pack_writer_add(kiln_pack_writer *writer, const kiln_binary *binary,
                                 unsigned flags) {
  if (!writer || !binary) return kiln__context_null(writer ? writer->ctx : NULL);
  return add(writer, binary, NULL, flags);
}

kiln_status kiln_pack_writer_add_source(kiln_pack_writer *writer, const kiln_binary *binary,
                                        const kiln_source *source, unsigned flags) {
  if (!writer || !binary || !source) return kiln__context_null(writer ? writer->ctx : NULL);
  const char *id = json_string_value(json_object_get(binary->identity, "source_id"));
  const kiln__generated *own = &source->generated;
  if (!id || source->is_launcher || !own->text || strcmp(id, own->source_id) != 0 ||
      !kiln__pack_is_source(id, own->text, own->length))
    return kiln__context_fail(writer->ctx, KILN_INVALID_ARGUMENT,
                              "the source is not what the binary was compiled from: give the one "
                              "that kiln_binary_compile took");
  return add(writer, binary, source, flags);
}

/* ---- finishing ---- */

static int compare_items(const void *a, const void *b) {
  const item *x = a, *y = b;
  const int order = strcmp(x->kernel_id, y->kernel_id);
  return order ? order : strcmp(x->record_text, y->record_text);
}

static int tile_is_smaller(const kiln_tile *a, const kiln_tile *b) {
  if (a->block_m != b->block_m) return a->block_m < b->block_m;
  if (a->block_n != b->block_n) return a->block_n < b->block_n;
  if (a->num_stages != b->num_stages) return a->num_stages < b->num_stages;
  return a->num_warps < b->num_warps;
}

/* A spec without a marked tile gets its smallest as default. */
static void choose_defaults(kiln_pack_writer *writer) {
  for (size_t i = 0; i < writer->count; i++) {
    item *best = &writer->items[i];
    for (size_t j = 0; j < writer->count; j++) {
      item *other = &writer->items[j];
      if (!kiln__same_spec(&best->spec, &other->spec)) continue;
      if (other->is_default || (!best->is_default && tile_is_smaller(&other->tile, &best->tile)))
        best = other;
    }
    best->is_default = 1;
  }
}

static size_t count_sources(const kiln_pack_writer *writer) {
  size_t count = 0;
  for (size_t i = 0; i < writer->count; i++) count += writer->items[i].source != NULL;
  return count;
}

/* Bytes of the sections. */
typedef struct sizes {
  uint64_t manifest, images, sources;
} sizes;

/* Canonical JSON; also the sizes of the sections. NULL without memory. */
static char *make_manifest(const kiln_pack_writer *writer, sizes *bytes) {
  json_t *kernels = json_array();
  uint64_t at = 0;
  for (size_t i = 0; i < writer->count; i++) {
    const item *it = &writer->items[i];
    json_object_set_new(it->row, "default", json_boolean(it->is_default));
    json_object_set_new(json_object_get(it->row, "image"), "offset", json_integer((json_int_t)at));
    if (it->source)
      json_object_set_new(json_object_get(it->row, "source"), "offset",
                          json_integer((json_int_t)bytes->sources));
    json_array_append(kernels, it->row);
    bytes->images = at + it->image_bytes;
    bytes->sources += it->source_bytes;
    at = kiln__pack_align(bytes->images);
  }
  json_t *manifest = json_pack("{s:i, s:s, s:o}", "format", KILN__PACK_VERSION, "kiln",
                               KILN_VERSION, "kernels", kernels);
  char *text = manifest ? json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
  json_decref(manifest);
  bytes->manifest = text ? strlen(text) : 0;
  return text;
}

static void put_u32(unsigned char *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> (8 * i));
}

static void put_u64(unsigned char *at, uint64_t value) {
  put_u32(at, (uint32_t)value);
  put_u32(at + 4, (uint32_t)(value >> 32));
}

static void put_section(unsigned char *bytes, int index, uint32_t kind, uint64_t offset,
                        uint64_t size) {
  unsigned char *row = bytes + KILN__PACK_AT_TABLE + (size_t)index * KILN__PACK_TABLE_ROW;
  put_u32(row, kind);
  put_u64(row + 8, offset);
  put_u64(row + 16, size);
}

/* The whole file; NULL without memory. */
static unsigned char *lay_out(const kiln_pack_writer *writer, const void *manifest,
                              const sizes *length, size_t *size) {
  const uint64_t images = kiln__pack_align(KILN__PACK_ALIGN + length->manifest);
  const uint64_t sources = kiln__pack_align(images + length->images);
  *size = (size_t)(length->sources ? sources + length->sources : images + length->images);
  unsigned char *bytes = calloc(1, *size);
  if (!bytes) return NULL;
  memcpy(bytes, KILN__PACK_MAGIC, sizeof KILN__PACK_MAGIC); /* the version follows, over the NUL */
  put_u32(bytes + KILN__PACK_AT_VERSION, KILN__PACK_VERSION);
  put_u32(bytes + KILN__PACK_AT_COUNT, KILN__PACK_SECTIONS + (length->sources > 0));
  put_u64(bytes + KILN__PACK_AT_BYTES, *size);
  put_section(bytes, 0, KILN__PACK_MANIFEST, KILN__PACK_ALIGN, length->manifest);
  put_section(bytes, 1, KILN__PACK_IMAGES, images, length->images);
  if (length->sources) put_section(bytes, 2, KILN__PACK_SOURCES, sources, length->sources);
  memcpy(bytes + KILN__PACK_ALIGN, manifest, length->manifest);
  uint64_t at = images, text_at = sources;
  for (size_t i = 0; i < writer->count; i++) {
    memcpy(bytes + at, writer->items[i].image, writer->items[i].image_bytes);
    at = kiln__pack_align(at + writer->items[i].image_bytes);
    if (!writer->items[i].source) continue;
    memcpy(bytes + text_at, writer->items[i].source, writer->items[i].source_bytes);
    text_at += writer->items[i].source_bytes;
  }
  kiln__pack_root(bytes, *size, bytes + KILN__PACK_AT_ROOT);
  return bytes;
}

kiln_status kiln_pack_writer_finish(kiln_pack_writer *writer, kiln_pack **pack) {
  sizes length = {0, 0, 0};
  size_t size = 0;
  if (!writer || !pack) return kiln__context_null(writer ? writer->ctx : NULL);
  *pack = NULL;
  if (writer->count == 0 || writer->count > KILN__PACK_KERNEL_LIMIT)
    return kiln__context_fail(writer->ctx, KILN_INVALID_ARGUMENT,
                              "%zu kernels were added: a pack holds 1 to %d", writer->count,
                              KILN__PACK_KERNEL_LIMIT);
  const size_t num_sources = count_sources(writer);
  if (num_sources != 0 && num_sources != writer->count)
    return kiln__context_fail(writer->ctx, KILN_INVALID_ARGUMENT,
                              "%zu of %zu kernels were added with their source: a pack holds the "
                              "sources of all or of none",
                              num_sources, writer->count);
  qsort(writer->items, writer->count, sizeof *writer->items, compare_items);
  choose_defaults(writer);
  char *manifest = make_manifest(writer, &length);
  unsigned char *bytes = manifest ? lay_out(writer, manifest, &length, &size) : NULL;
  free(manifest);
  if (bytes) return kiln__pack_adopt(writer->ctx, bytes, size, pack);
  return kiln__context_fail(writer->ctx, KILN_OUT_OF_MEMORY, "no memory is left for a pack");
}
