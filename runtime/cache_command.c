/* The cache's verbs: ls, verify, gc, clear, why. Each gives one JSON object. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/context.h"
#include "runtime/identity.h"

typedef struct listing {
  int kernels; /* directory; -1 = there is none yet */
  kiln__cache_kernel *list;
  size_t count;
} listing;

static kiln_status open_listing(kiln_context *ctx, listing *l) {
  int64_t leftovers = 0;
  memset(l, 0, sizeof *l);
  l->kernels = -1;
  if (!ctx->cache.dir)
    return kiln__context_fail(ctx, KILN_IO_FAILED, "there is no kernel cache: %s",
                              ctx->cache.reason ? ctx->cache.reason
                                                : "the context was told to use none");
  l->kernels = kiln__cache_kernels_fd(&ctx->cache, 0);
  if (l->kernels < 0 && errno == ENOENT) return KILN_OK;
  if (l->kernels >= 0 &&
      kiln__cache_list(l->kernels, KILN__CACHE_LEFTOVER_AGE, &l->list, &l->count, &leftovers) == 0)
    return KILN_OK;
  return kiln__context_fail(ctx, KILN_IO_FAILED, "the kernel cache %s cannot be read: %s",
                            ctx->cache.dir, strerror(errno));
}

static void close_listing(listing *l) {
  if (l->kernels >= 0) close(l->kernels);
  free(l->list);
}

static json_t *command_ls(kiln_context *ctx, const listing *l) {
  json_t *rows = json_array();
  json_int_t total = 0;
  for (size_t i = 0; i < l->count; i++) {
    json_t *meta = NULL;
    const char *why = kiln__cache_check(l->kernels, l->list[i].id, 1, NULL, &meta);
    json_t *row = json_pack("{s:s, s:I, s:I, s:s?}", "kernel_id", l->list[i].id, "bytes",
                            (json_int_t)l->list[i].bytes, "used",
                            (json_int_t)(l->list[i].used / 1000000000), "damage", why);
    if (!why) json_object_update_missing(row, json_object_get(meta, "identity"));
    json_array_append_new(rows, row);
    json_decref(meta);
    total += l->list[i].bytes;
  }
  return json_pack("{s:s, s:I, s:I, s:o}", "dir", ctx->cache.dir, "limit_bytes",
                   (json_int_t)ctx->cache.limit, "bytes", total, "kernels", rows);
}

static json_t *command_verify(kiln_context *ctx, const listing *l) {
  json_t *bad = json_array();
  kiln__cache_item item;
  for (size_t i = 0; i < l->count; i++) {
    const char *why = kiln__cache_check(l->kernels, l->list[i].id, 1, NULL, NULL);
    if (!why) continue;
    json_array_append_new(bad, json_pack("{s:s, s:s}", "kernel_id", l->list[i].id, "damage", why));
    if (kiln__cache_load(&ctx->cache, l->list[i].id, 1, &item)) kiln__cache_item_free(&item);
  }
  return json_pack("{s:I, s:o}", "checked", (json_int_t)l->count, "set_aside", bad);
}

static json_t *remove_down_to(kiln_context *ctx, int64_t limit, int64_t max_age) {
  kiln__cache_removed removed;
  if (kiln__cache_gc(&ctx->cache, limit, max_age, NULL, &removed) != 0) return NULL;
  return json_pack("{s:I, s:I, s:I}", "removed_kernels", (json_int_t)removed.kernels,
                   "removed_bytes", (json_int_t)removed.bytes, "removed_leftovers",
                   (json_int_t)removed.leftovers);
}

static json_t *command_gc(kiln_context *ctx, const listing *l) {
  (void)l;
  return remove_down_to(ctx, ctx->cache.limit, KILN__CACHE_LEFTOVER_AGE);
}

static json_t *command_clear(kiln_context *ctx, const listing *l) {
  (void)l;
  kiln__cache_clear_notes(&ctx->cache);
  return remove_down_to(ctx, -1, 0);
}

static const struct {
  const char *verb;
  json_t *(*run)(kiln_context *ctx, const listing *l);
} commands[] = {
    {"ls", command_ls}, {"verify", command_verify}, {"gc", command_gc}, {"clear", command_clear}};

/* Gives the object out as text. */
static kiln_status give(kiln_context *ctx, json_t *object, const char **json) {
  char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
  json_decref(object);
  return kiln__give_json(ctx, text, json);
}

kiln_status kiln_cache_command(kiln_context *ctx, const char *verb, const char **json) {
  listing l;
  if (!json) return kiln__context_null(ctx);
  *json = NULL;
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  for (size_t i = 0; verb && i < sizeof commands / sizeof commands[0]; i++) {
    if (strcmp(verb, commands[i].verb) != 0) continue;
    status = open_listing(ctx, &l);
    if (status == KILN_OK) status = give(ctx, commands[i].run(ctx, &l), json);
    close_listing(&l);
    return status;
  }
  return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                            "the cache's verb is \"%s\": it must be ls, verify, gc or clear",
                            verb ? verb : "");
}

/* The cached kernel whose id begins with `prefix`. */
static kiln_status find_kernel(kiln_context *ctx, const listing *l, const char *prefix,
                               json_t **meta) {
  const char *id = NULL;
  size_t matches = 0;
  for (size_t i = 0; i < l->count; i++) {
    if (strncmp(l->list[i].id, prefix, strlen(prefix)) != 0) continue;
    id = l->list[i].id;
    matches++;
  }
  if (matches != 1)
    return kiln__context_fail(
        ctx, KILN_INVALID_ARGUMENT,
        "%zu cached kernels have an id that begins with \"%s\": give more of it, or "
        "list them with `kiln cache ls`",
        matches, prefix);
  const char *why = kiln__cache_check(l->kernels, id, 1, NULL, meta);
  if (!why) return KILN_OK;
  return kiln__context_fail(ctx, KILN_CORRUPT, "the cached kernel %s is damaged: %s", id, why);
}

kiln_status kiln_cache_why(kiln_context *ctx, const char *id_a, const char *id_b,
                           const char **json) {
  json_t *a = NULL, *b = NULL;
  listing l;
  if (!json || !id_a || !id_b) return kiln__context_null(ctx);
  *json = NULL;
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  status = open_listing(ctx, &l);
  if (status == KILN_OK) status = find_kernel(ctx, &l, id_a, &a);
  if (status == KILN_OK) status = find_kernel(ctx, &l, id_b, &b);
  if (status == KILN_OK) {
    const json_t *of_a = json_object_get(a, "identity"), *of_b = json_object_get(b, "identity");
    const char *field = kiln__identity_difference(of_a, of_b);
    json_t *object = json_pack("{s:s?, s:O?, s:O?}", "differs", field, "a",
                               field ? json_object_get(of_a, field) : NULL, "b",
                               field ? json_object_get(of_b, field) : NULL);
    status = give(ctx, object, json);
  }
  json_decref(a);
  json_decref(b);
  close_listing(&l);
  return status;
}
