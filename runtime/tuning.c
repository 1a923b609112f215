/* Tuning and its records: the public functions over the autotuner's table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/objects.h"

#define PATH_SIZE     4096
#define SENTENCE_SIZE 4096

static kiln_status refuse_empty(kiln_context *ctx) {
  return kiln__context_fail(ctx, KILN_UNSUPPORTED,
                            "this library holds no tuner: link libkiln in place of libkiln_rt");
}

/* On a new machine a tuning may be the first that wants the cache's directory: where the user's own
 * records lie, if not elsewhere. */
static void make_place(kiln_context *ctx, const char *records) {
  const char *place = ctx->cache.dir;
  if (!place || !records || strncmp(records, place, strlen(place)) != 0) return;
  const int dir = kiln__cache_open_dir(&ctx->cache, ".", 1);
  if (dir >= 0) close(dir);
}

/* What the context keeps is made at the first tuning. */
kiln_status kiln__tuner_run(kiln_context *ctx, const kiln_attn_spec *spec,
                            const kiln_attn_args *shape, const kiln_tune_options *options,
                            kiln_tune_result *result, char **record, char *error,
                            size_t error_size) {
  const kiln__tuner_ops *ops = ctx->services.tuner;
  const char *cache_dir = ctx->cache.dir ? ctx->cache.dir : "";
  kiln_status status = KILN_OUT_OF_MEMORY;
  make_place(ctx, options->records);
  pthread_mutex_lock(&ctx->tuner_lock);
  if (!ctx->tuner)
    ctx->tuner = ops->open(ctx->device_id, ctx->template_dir, cache_dir, ctx->compile_off);
  if (ctx->tuner)
    status = ops->tune(ctx->tuner, ctx, spec, shape, options, result, record, error, error_size);
  else
    snprintf(error, error_size, "no memory is left to tune");
  pthread_mutex_unlock(&ctx->tuner_lock);
  return status;
}

kiln_status kiln_tune(kiln_context *ctx, const kiln_attn_spec *given_spec,
                      const kiln_attn_args *given_shape, const kiln_tune_options *given,
                      kiln_tune_result *result) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_tile none;
  kiln_attn_args shape;
  kiln_tune_options options = KILN_TUNE_OPTIONS_INIT;
  kiln_tune_result whole = {.size = sizeof whole};
  char path[PATH_SIZE], error[SENTENCE_SIZE] = "", *record = NULL;
  if (!result || !given_shape) return kiln__context_null(ctx);
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  if (!ctx->services.tuner) return refuse_empty(ctx);
  const size_t oldest = offsetof(kiln_tune_options, progress);
  if (given && kiln__copy_sized(&options, sizeof options, given, oldest) != 0)
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                              "options.size is not sizeof(kiln_tune_options): start from "
                              "KILN_TUNE_OPTIONS_INIT");
  status = kiln__take_spec(ctx, given_spec, NULL, &spec, &none);
  if (status == KILN_OK) status = kiln__take_args(ctx, given_shape, &shape);
  if (status == KILN_OK) status = kiln__check_sizes(ctx, &shape);
  if (status == KILN_OK) status = kiln__context_resolve(ctx, &spec, &none);
  if (status != KILN_OK) return status;
  if (!options.records && !options.simulate)
    options.records = kiln__ladder_own_records(ctx, path, sizeof path);
  status = kiln__tuner_run(ctx, &spec, &shape, &options, &whole, &record, error, sizeof error);
  kiln__ladder_forget(ctx);
  if (status != KILN_OK) return kiln__context_fail(ctx, status, "%s", error);
  status = kiln__give_json(ctx, record, &whole.record);
  if (status != KILN_OK) return status;
  kiln__info_copy(result, &whole, sizeof whole);
  return KILN_OK;
}

kiln_status kiln_records_command(kiln_context *ctx, const char *verb, const char *const *files,
                                 int32_t num_files, const char *out, const char **json) {
  char path[PATH_SIZE], error[SENTENCE_SIZE] = "";
  char *text = NULL;
  if (!verb || !json || num_files < 0 || (num_files > 0 && !files)) return kiln__context_null(ctx);
  *json = NULL;
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  if (!ctx->services.tuner) return refuse_empty(ctx);
  status = ctx->services.tuner->records(ctx, verb, files, num_files,
                                        kiln__ladder_own_records(ctx, path, sizeof path), out,
                                        &text, error, sizeof error);
  kiln__ladder_forget(ctx);
  if (status == KILN_INVALID_ARGUMENT || status == KILN_OUT_OF_MEMORY) {
    free(text);
    return kiln__context_fail(ctx, status, "%s", error);
  }
  const kiln_status given = kiln__give_json(ctx, text, json);
  if (status == KILN_OK) return given;
  return kiln__context_fail(ctx, status, "%s", error);
}
