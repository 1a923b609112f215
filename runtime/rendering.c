/* See rendering.h. {"key", "source_id", "record", "blake2b"}: the key is the digest of all that a
 * rendering depends on, the last the digest of what the note says. A note that does not agree with
 * both is none. */
#include "runtime/rendering.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "runtime/digest.h"

#define KEY_LIMIT 1024

/* A field that is added to either has to be written into the key. */
_Static_assert(sizeof(kiln_attn_spec) == 56 && sizeof(kiln_tile) == 24, "fields of the key");

/* The digest of a text, which is freed. 0, or -1 where the text is not whole. */
static int digest_text(kiln__text *text, char hex[KILN__ID_SIZE]) {
  const int whole = !text->truncated;
  if (whole) kiln__digest_bytes(kiln__text_get(text), text->length, hex);
  kiln__text_free(text);
  return whole ? 0 : -1;
}

/* 0, or -1 without memory. */
static int make_key(const char *stamp, const kiln_source *source, char key[KILN__ID_SIZE]) {
  const kiln_attn_spec *s = &source->spec;
  const kiln_tile *t = &source->tile;
  kiln__text text;
  kiln__text_init(&text, KEY_LIMIT);
  kiln__text_printf(&text, "rendering 2\n%s\n%d %s %d %d %d %d %d %d %d %d %d %d %d", stamp,
                    source->for_emulator, s->arch, (int)s->pass, (int)s->algorithm, (int)s->dtype,
                    (int)s->head_dim, (int)s->head_dim_v, (int)s->mask, (int)s->deterministic,
                    (int)t->block_m, (int)t->block_n, (int)t->num_stages, (int)t->num_warps);
  return digest_text(&text, key);
}

static void name_of(const char *key, char name[64]) {
  snprintf(name, 64, "rendering-%.40s.json", key);
}

static int digest_of(const char *source_id, const char *record, char hex[KILN__ID_SIZE]) {
  kiln__text text;
  kiln__text_init(&text, strlen(source_id) + strlen(record) + 2);
  kiln__text_printf(&text, "%s\n%s", source_id, record);
  return digest_text(&text, hex);
}

static const char *string_of(const json_t *note, const char *name) {
  const char *text = json_string_value(json_object_get(note, name));
  return text ? text : "";
}

static int take(const json_t *note, const char *key, kiln_source *source) {
  char hex[KILN__ID_SIZE];
  const char *id = string_of(note, "source_id"), *record = string_of(note, "record");
  if (strcmp(string_of(note, "key"), key) != 0 || strlen(id) != KILN__ID_SIZE - 1) return 0;
  if (digest_of(id, record, hex) != 0 || strcmp(string_of(note, "blake2b"), hex) != 0) return 0;
  source->generated.record = strdup(record);
  if (!source->generated.record) return 0;
  memcpy(source->generated.source_id, id, KILN__ID_SIZE);
  return 1;
}

int kiln__rendering_recall(kiln_context *ctx, const char *stamp, kiln_source *source) {
  char key[KILN__ID_SIZE], name[64];
  if (!ctx->cache.dir || make_key(stamp, source, key) != 0) return 0;
  name_of(key, name);
  char *text = kiln__cache_read_note(&ctx->cache, name);
  json_t *note = text ? json_loads(text, 0, NULL) : NULL;
  const int found = note && take(note, key, source);
  json_decref(note);
  free(text);
  return found;
}

void kiln__rendering_remember(kiln_context *ctx, const char *stamp, const kiln_source *source) {
  char key[KILN__ID_SIZE], hex[KILN__ID_SIZE], name[64];
  const char *id = source->generated.source_id, *record = source->generated.record;
  if (!ctx->cache.dir || make_key(stamp, source, key) != 0 || digest_of(id, record, hex) != 0)
    return;
  name_of(key, name);
  json_t *note = json_pack("{s:s, s:s, s:s, s:s}", "key", key, "source_id", id, "record", record,
                           "blake2b", hex);
  char *text = note ? json_dumps(note, JSON_INDENT(1)) : NULL;
  if (text) kiln__cache_write_note(&ctx->cache, name, text);
  free(text);
  json_decref(note);
}
