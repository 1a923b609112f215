/* Looking for a kernel in the packs of a context: see packs.h. */
#include "runtime/packs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/objects.h"
#include "runtime/pack.h"

#define PATH_SEPARATOR ':'

/* Takes the reference. 0, or -1 without memory. */
static int append(kiln__pack_list *list, kiln_pack *pack) {
  kiln__pack_place *grown = realloc(list->places, (list->count + 1) * sizeof *grown);
  if (!grown) return -1;
  list->places = grown;
  list->places[list->count++].pack = pack;
  return 0;
}

static void clear(kiln__pack_list *list) {
  for (size_t i = 0; i < list->count; i++) kiln_pack_destroy(list->places[i].pack);
  free(list->places);
  *list = (kiln__pack_list){0};
}

void kiln__packs_close(kiln__packs *packs) {
  clear(&packs->added);
  clear(&packs->of_path);
}

kiln_status kiln_context_add_pack(kiln_context *ctx, kiln_pack *pack) {
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  if (!pack) return kiln__context_null(ctx);
  pthread_mutex_lock(&ctx->packs.lock);
  const int failed = append(&ctx->packs.added, kiln__pack_hold(pack)) != 0;
  pthread_mutex_unlock(&ctx->packs.lock);
  if (!failed) return KILN_OK;
  kiln_pack_destroy(pack);
  return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left to add a pack");
}

/* ---- KILN_PACK_PATH ---- */

static kiln_status open_one(kiln_context *ctx, const char *from, size_t length) {
  kiln_pack *pack = NULL;
  char *path = strndup(from, length);
  kiln_status status = path ? kiln_pack_open_file(ctx, path, NULL, &pack)
                            : kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left");
  free(path);
  if (status != KILN_OK) return status;
  if (append(&ctx->packs.of_path, pack) == 0) return KILN_OK;
  kiln_pack_destroy(pack);
  return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left to open a pack");
}

/* Under the lock. An empty name between colons names nothing. */
static kiln_status open_path(kiln_context *ctx) {
  const char *at = kiln__env_get(&ctx->env, KILN__ENV_KILN_PACK_PATH);
  if (ctx->packs.path_opened || !at) return KILN_OK;
  kiln_status status = KILN_OK;
  while (status == KILN_OK && *at) {
    const char *end = strchrnul(at, PATH_SEPARATOR);
    if (end > at) status = open_one(ctx, at, (size_t)(end - at));
    at = *end ? end + 1 : end;
  }
  if (status == KILN_OK)
    ctx->packs.path_opened = 1;
  else
    clear(&ctx->packs.of_path);
  return status;
}

/* ---- looking ---- */

/* The default tile goes before every other that matches. */
static const kiln__pack_row *find_row(const kiln_pack *pack, const kiln_attn_spec *spec,
                                      const kiln_tile *tile) {
  const kiln__pack_row *found = NULL;
  for (int64_t i = 0; i < pack->count; i++) {
    const kiln__pack_row *row = &pack->rows[i];
    if (!kiln__same_spec(&row->record.spec, spec) || !kiln__tile_matches(&row->record.tile, tile))
      continue;
    if (row->is_default) return row;
    if (!found) found = row;
  }
  return found;
}

static const kiln__pack_row *find_in(const kiln__pack_list *list, const kiln_attn_spec *spec,
                                     const kiln_tile *tile, kiln_pack **pack) {
  for (size_t i = 0; i < list->count; i++) {
    const kiln__pack_row *row = find_row(list->places[i].pack, spec, tile);
    if (!row) continue;
    *pack = kiln__pack_hold(list->places[i].pack);
    return row;
  }
  return NULL;
}

/* The image is copied before its digest is checked: the file below a mapping may be written to. */
static kiln_status make_binary(kiln_context *ctx, const kiln_pack *pack, const kiln__pack_row *row,
                               kiln_binary **out) {
  kiln__compiled compiled;
  kiln_binary *binary = calloc(1, sizeof *binary);
  void *image = malloc(row->image_bytes);
  if (!binary || !image) goto no_memory;
  memcpy(image, row->image, row->image_bytes);
  if (!kiln__pack_digest_is(row->sha256, image, row->image_bytes)) {
    free(image);
    free(binary);
    return kiln__context_fail(ctx, KILN_CORRUPT,
                              "the image of kernel %.12s in the pack %s does not have the digest "
                              "that the manifest says: build it anew",
                              row->kernel_id, kiln__pack_name(pack));
  }
  binary->item.image = image;
  binary->item.image_size = row->image_bytes;
  image = NULL;
  memcpy(binary->kernel_id, row->kernel_id, sizeof binary->kernel_id);
  binary->record = row->record;
  binary->item.record = strdup(row->record_text);
  binary->identity = json_loads(row->identity_text, 0, NULL);
  if (!binary->item.record || !binary->identity) goto no_memory;
  kiln__record_resources(row->record_text, &compiled);
  if (kiln__binary_take_resources(binary, &compiled) != KILN_OK) goto no_memory;
  *out = binary;
  return KILN_OK;
no_memory:
  free(image);
  kiln_binary_destroy(binary);
  return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a kernel");
}

kiln_status kiln__packs_find(kiln_context *ctx, const kiln_attn_spec *given, const kiln_tile *tile,
                             kiln_binary **binary, kiln_pack **pack) {
  kiln_attn_spec spec = *given;
  const kiln__pack_row *row = NULL;
  *binary = NULL;
  *pack = NULL;
  if (ctx->device_id == KILN_DEVICE_EMU) return KILN_OK; /* packs hold nothing that runs there */
  if (!spec.arch[0]) snprintf(spec.arch, sizeof spec.arch, "%s", ctx->info.arch);
  if (!spec.head_dim_v) spec.head_dim_v = spec.head_dim;
  if (spec.pass == KILN_PASS_FORWARD) spec.deterministic = 0; /* every one is */
  pthread_mutex_lock(&ctx->packs.lock);
  kiln_status status = open_path(ctx);
  if (status == KILN_OK) row = find_in(&ctx->packs.added, &spec, tile, pack);
  if (status == KILN_OK && !row) row = find_in(&ctx->packs.of_path, &spec, tile, pack);
  pthread_mutex_unlock(&ctx->packs.lock);
  if (!row) return status;
  status = make_binary(ctx, *pack, row, binary);
  if (status == KILN_OK) return KILN_OK;
  kiln_pack_destroy(*pack);
  *pack = NULL;
  return status;
}
