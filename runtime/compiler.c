/* Opening a compiler, and remembering it: see compiler.h. The note is one small file of the cache
 * directory, for the compiler that was used last: {"key", "version", "options"}. The key names the
 * file that would be opened, its state on disk and the options that it would be given. */
#include "runtime/compiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_NAME   "nvrtc.json"
#define KEY_LIMIT   8192
#define MAX_OPTIONS 16

struct kiln__compiler_note {
  json_t *json; /* owns the strings; NULL = nothing is remembered */
  const char *version;
  const char *options[MAX_OPTIONS];
  int num_options;
};

const kiln__compiler_ops *kiln__compiler_ops_of(const kiln_context *ctx) {
  return ctx->device_id == KILN_DEVICE_EMU ? ctx->services.emulator_compiler : ctx->services.nvrtc;
}

/* ---- the note ---- */

static void note_free(struct kiln__compiler_note *note) {
  if (!note) return;
  json_decref(note->json);
  free(note);
}

/* 0, or -1 where the object is no note of `key`. */
static int note_read(struct kiln__compiler_note *note, const char *key) {
  const char *noted = json_string_value(json_object_get(note->json, "key"));
  const json_t *options = json_object_get(note->json, "options");
  size_t count = json_array_size(options);
  note->version = json_string_value(json_object_get(note->json, "version"));
  if (!noted || strcmp(noted, key) != 0 || !note->version || count > MAX_OPTIONS) return -1;
  if (strlen(note->version) >= sizeof((kiln__compiler_identity *)0)->version) return -1;
  for (size_t i = 0; i < count; i++)
    if (!(note->options[i] = json_string_value(json_array_get(options, i)))) return -1;
  note->num_options = (int)count;
  return 0;
}

/* The key of the opened compiler, or, without one, of the one that would be opened. 1, or 0. */
static int locate(kiln_context *ctx, void *compiler, kiln__text *key) {
  const kiln__compiler_ops *ops = kiln__compiler_ops_of(ctx);
  return ctx->cache.dir && ops && ops->locate &&
         ops->locate(&ctx->env, ctx->no_line_info, compiler, key) && !key->truncated;
}

/* Under the compiler's lock. Whatever is wrong with a note, it is as if there were none. */
static struct kiln__compiler_note *load_note(kiln_context *ctx) {
  kiln__text key;
  struct kiln__compiler_note *note = calloc(1, sizeof *note);
  if (!note) return NULL;
  kiln__text_init(&key, KEY_LIMIT);
  char *text = locate(ctx, NULL, &key) ? kiln__cache_read_note(&ctx->cache, NOTE_NAME) : NULL;
  if (text) note->json = json_loads(text, 0, NULL);
  if (note->json && note_read(note, kiln__text_get(&key)) != 0) {
    json_decref(note->json);
    note->json = NULL;
  }
  free(text);
  kiln__text_free(&key);
  return note;
}

static int note_says(const struct kiln__compiler_note *note, const kiln__compiler_identity *is) {
  if (!note || !note->json || strcmp(note->version, is->version) != 0) return 0;
  if (note->num_options != is->num_options) return 0;
  for (int i = 0; i < is->num_options; i++)
    if (strcmp(note->options[i], is->options[i]) != 0) return 0;
  return 1;
}

/* Only where the opened compiler is the one that would be looked at next time. */
static void remember(kiln_context *ctx, const kiln__compiler_identity *identity) {
  kiln__text opened, next;
  kiln__text_init(&opened, KEY_LIMIT);
  kiln__text_init(&next, KEY_LIMIT);
  if (locate(ctx, ctx->compiler, &opened) && locate(ctx, NULL, &next) &&
      strcmp(kiln__text_get(&opened), kiln__text_get(&next)) == 0) {
    json_t *options = json_array();
    for (int i = 0; i < identity->num_options; i++)
      json_array_append_new(options, json_string(identity->options[i]));
    json_t *json = json_pack("{s:s, s:s, s:o}", "key", kiln__text_get(&opened), "version",
                             identity->version, "options", options);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    if (text) kiln__cache_write_note(&ctx->cache, NOTE_NAME, text);
    free(text);
    json_decref(json);
  }
  kiln__text_free(&next);
  kiln__text_free(&opened);
}

/* ---- the compiler ---- */

int kiln__compiler_recall(kiln_context *ctx, kiln__compiler_identity *identity) {
  pthread_mutex_lock(&ctx->compiler_lock);
  if (!ctx->compiler && !ctx->compiler_note) ctx->compiler_note = load_note(ctx);
  const struct kiln__compiler_note *note = ctx->compiler ? NULL : ctx->compiler_note;
  pthread_mutex_unlock(&ctx->compiler_lock);
  if (!note || !note->json) return 0;
  snprintf(identity->version, sizeof identity->version, "%s", note->version);
  identity->options = note->options;
  identity->num_options = note->num_options;
  return 1;
}

kiln_status kiln__compiler_identify(kiln_context *ctx, const char *arch,
                                    kiln__compiler_identity *identity, kiln__text *error) {
  const kiln__compiler_ops *ops = kiln__compiler_ops_of(ctx);
  if (!ops) {
    kiln__text_string(error, "this library holds no compiler: link libkiln in place of libkiln_rt");
    return KILN_NO_COMPILER;
  }
  pthread_mutex_lock(&ctx->compiler_lock);
  const int opens = !ctx->compiler;
  kiln_status status =
      opens ? ops->open(&ctx->env, ctx->no_line_info, error, &ctx->compiler) : KILN_OK;
  if (status == KILN_OK) status = ops->identify(ctx->compiler, arch, identity, error);
  if (status == KILN_OK && opens && !note_says(ctx->compiler_note, identity))
    remember(ctx, identity);
  pthread_mutex_unlock(&ctx->compiler_lock);
  return status;
}

void kiln__compiler_close(kiln_context *ctx) {
  if (ctx->compiler) kiln__compiler_ops_of(ctx)->close(ctx->compiler);
  note_free(ctx->compiler_note);
}
