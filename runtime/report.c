/* What was found on this machine, as one JSON object: what `kiln doctor` prints. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "runtime/context.h"
#include "runtime/cuda.h"
#include "runtime/report.h"

#define REPORT_LIMIT (1 << 20) /* bytes */

static json_t *report_environment(const kiln__env *env) {
  json_t *list = json_array();
  for (int i = 0; i < KILN__ENV_COUNT; i++)
    json_array_append_new(
        list, json_pack("{s:s, s:s?, s:s}", "name", kiln__env_name_text((kiln__env_name)i), "value",
                        env->values[i], "meaning", kiln__env_sentence((kiln__env_name)i)));
  return list;
}

static json_t *report_unknown(const kiln__env *env) {
  json_t *list = json_array();
  for (const char *name = kiln__text_get(&env->unknown); name[0];) {
    size_t length = strcspn(name, "\n");
    json_array_append_new(list, json_stringn(name, length));
    name += length + (name[length] == '\n');
  }
  return list;
}

static json_t *report_cache(const kiln__cache *cache) {
  struct stat status;
  int exists = cache->dir && stat(cache->dir, &status) == 0;
  json_t *mode = exists ? json_sprintf("%04o", (unsigned)status.st_mode & 07777) : json_null();
  json_t *is_private = exists ? json_boolean(kiln__cache_is_private(&status)) : json_null();
  json_t *writable = exists ? json_boolean(access(cache->dir, W_OK) == 0) : json_null();
  return json_pack("{s:s?, s:s?, s:I, s:b, s:o, s:o, s:o}", "dir", cache->dir, "disabled_because",
                   cache->reason, "limit_bytes", (json_int_t)cache->limit, "exists", exists, "mode",
                   mode, "private", is_private, "writable", writable);
}

static json_t *report_device(const kiln_context *ctx) {
  const kiln_device_info *info = &ctx->info;
  if (!ctx->ops) return json_null();
  return json_pack("{s:i, s:s, s:o, s:s, s:i, s:I, s:I, s:I, s:I}", "device", ctx->device_id,
                   "name", info->name, "compute_capability",
                   json_sprintf("%d.%d", (int)info->compute_major, (int)info->compute_minor),
                   "arch", info->arch, "num_sms", (int)info->num_sms, "shared_bytes_block",
                   (json_int_t)info->shared_bytes_block, "shared_bytes_sm",
                   (json_int_t)info->shared_bytes_sm, "l2_bytes", (json_int_t)info->l2_bytes,
                   "memory_bytes", (json_int_t)info->memory_bytes);
}

/* The object that a room reports as text; null where it has no such room. */
static json_t *parse_object(const kiln__text *text) {
  json_t *object = json_loads(kiln__text_get(text), JSON_DECODE_ANY, NULL);
  return object ? object : json_null();
}

static json_t *report_compiler(const kiln__compiler_ops *ops, const kiln__env *env) {
  kiln__text text;
  kiln__text_init(&text, REPORT_LIMIT);
  if (ops) ops->report(env, &text);
  json_t *object = parse_object(&text);
  kiln__text_free(&text);
  return object;
}

static json_t *report_driver(void) {
  kiln__text text;
  kiln__text_init(&text, REPORT_LIMIT);
  kiln__cuda_report(&text);
  json_t *object = parse_object(&text);
  kiln__text_free(&text);
  return object;
}

kiln_status kiln_context_report(kiln_context *ctx, const char **json) {
  if (!json) return kiln__context_null(ctx);
  *json = NULL;
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  char stamp[KILN__ID_SIZE];
  const char *templates = kiln__context_templates(ctx, stamp) ? stamp : NULL;
  json_t *root = json_pack(
      "{s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:s?, s:s?, s:o, s:o}", "kiln", KILN_VERSION,
      "generator", ctx->services.generator != NULL, "device", report_device(ctx), "driver",
      report_driver(), "nvrtc", report_compiler(ctx->services.nvrtc, &ctx->env), "emulator",
      report_compiler(ctx->services.emulator_compiler, &ctx->env), "cache",
      report_cache(&ctx->cache), "packs", kiln__report_packs(ctx), "template_dir",
      ctx->template_dir, "templates", templates, "environment", report_environment(&ctx->env),
      "unknown_environment", report_unknown(&ctx->env));
  char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
  json_decref(root);
  return kiln__give_json(ctx, text, json);
}
