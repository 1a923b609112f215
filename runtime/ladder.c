/* See ladder.h. */
#include "runtime/ladder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/objects.h"
#include "runtime/pack.h"

enum { PATH_SIZE = 4096, SENTENCE_SIZE = 4096, MOST_FILES = 64 };
#define DEADLINE_SECONDS 30.0

static kiln_status no_memory(kiln_context *ctx) {
  return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left to choose a tile");
}

void kiln__chosen_free(kiln__chosen_tile *chosen) {
  free(chosen->why);
  free(chosen->ladder);
  chosen->why = chosen->ladder = NULL;
}

/* ---- records ---- */

typedef struct kiln__known_spec {
  struct kiln__known_spec *next;
  kiln_attn_spec spec; /* resolved */
  void *choices;       /* of the tuner */
} kiln__known_spec;

void kiln__ladder_configure(kiln__ladder *ladder, const kiln__env *env, const kiln__log *log) {
  const char *mode = kiln__env_get(env, KILN__ENV_KILN_TUNE);
  ladder->mode = KILN__TUNE_CACHED;
  if (!mode || strcmp(mode, "cached") == 0) return;
  if (strcmp(mode, "off") == 0)
    ladder->mode = KILN__TUNE_OFF;
  else if (strcmp(mode, "measure") == 0)
    ladder->mode = KILN__TUNE_MEASURE;
  else
    kiln__log_print(log, KILN_LOG_WARNING,
                    "KILN_TUNE is \"%s\", which is taken as cached: set it to off, cached or "
                    "measure",
                    mode);
}

const char *kiln__ladder_own_records(const kiln_context *ctx, char *path, size_t size) {
  const char *named = kiln__env_get(&ctx->env, KILN__ENV_KILN_RECORDS);
  if (!named && !ctx->cache.dir) return NULL;
  const int length = named ? snprintf(path, size, "%.*s", (int)strcspn(named, ":"), named)
                           : snprintf(path, size, "%s/tuning.jsonl", ctx->cache.dir);
  return length > 0 && (size_t)length < size ? path : NULL;
}

/* The files that are read, the user's own last: so it goes before the others. `text` holds them. */
static int list_files(const kiln_context *ctx, char *text, size_t size,
                      const char *files[MOST_FILES]) {
  const char *listed[MOST_FILES];
  const char *named = kiln__env_get(&ctx->env, KILN__ENV_KILN_RECORDS);
  int count = 0;
  if (!named) {
    files[0] = kiln__ladder_own_records(ctx, text, size);
    return files[0] != NULL;
  }
  snprintf(text, size, "%s", named);
  char *rest = text;
  for (char *file; count < MOST_FILES && (file = strsep(&rest, ":"));)
    if (*file) listed[count++] = file;
  for (int i = 0; i < count; i++) files[i] = listed[count - 1 - i];
  return count;
}

/* Under the lock. *choices: of the tuner, of a resolved spec. */
static kiln_status read_choices(kiln_context *ctx, const kiln_attn_spec *spec,
                                const void **choices) {
  char text[PATH_SIZE], warning[SENTENCE_SIZE];
  const char *files[MOST_FILES];
  for (kiln__known_spec *k = ctx->ladder.known; k; k = k->next) {
    *choices = k->choices;
    if (kiln__same_spec(&k->spec, spec)) return KILN_OK;
  }
  kiln__known_spec *made = calloc(1, sizeof *made);
  if (!made) return no_memory(ctx);
  made->spec = *spec;
  const int count = list_files(ctx, text, sizeof text, files);
  if (ctx->services.tuner->read_choices(spec, files, count, &made->choices, warning,
                                        sizeof warning) != KILN_OK) {
    free(made);
    return no_memory(ctx);
  }
  if (warning[0]) kiln__log_print(&ctx->log, KILN_LOG_WARNING, "%s", warning);
  made->next = ctx->ladder.known;
  ctx->ladder.known = made;
  *choices = made->choices;
  return KILN_OK;
}

void kiln__ladder_forget(kiln_context *ctx) {
  pthread_mutex_lock(&ctx->ladder.lock);
  while (ctx->ladder.known) {
    kiln__known_spec *first = ctx->ladder.known;
    ctx->ladder.known = first->next;
    ctx->services.tuner->free_choices(first->choices);
    free(first);
  }
  pthread_mutex_unlock(&ctx->ladder.lock);
}

void kiln__ladder_close(kiln_context *ctx) {
  kiln__ladder_forget(ctx);
  pthread_mutex_destroy(&ctx->ladder.lock);
  pthread_mutex_destroy(&ctx->ladder.measure_lock);
}

/* ---- one choice ---- */

typedef struct wish {
  kiln_context *ctx;
  kiln_attn_spec spec; /* resolved */
  const kiln_attn_args *shape;
  kiln_plan_options options;
} wish;

static int tell_source_id(void *user, char id[KILN__ID_SIZE]) {
  const wish *w = user;
  kiln_source *source = NULL;
  if (kiln__source_recall(w->ctx, &w->spec, NULL, &source) != KILN_OK) return -1;
  memcpy(id, source->generated.source_id, KILN__ID_SIZE);
  kiln_source_destroy(source);
  return 0;
}

/* A record is data: its tile may be none that the generator knows. */
static void refuse_illegal(wish *w, kiln__chosen_tile *c) {
  kiln_attn_spec spec = w->spec;
  kiln_tile tile = c->tile;
  char *why = NULL;
  if (c->step == KILN_STEP_DEFAULT || kiln__context_resolve(w->ctx, &spec, &tile) == KILN_OK)
    return;
  if (asprintf(&why, "the tile of its tuning record is refused (%s)", kiln_last_error(w->ctx)) < 0)
    return;
  free(c->why);
  c->why = why;
  c->step = KILN_STEP_DEFAULT;
  c->tile = (kiln_tile)KILN_TILE_INIT;
}

static kiln_status find(wish *w, kiln__chosen_tile *c) {
  kiln_context *ctx = w->ctx;
  pthread_mutex_lock(&ctx->ladder.lock);
  const void *choices = NULL;
  kiln_status status = read_choices(ctx, &w->spec, &choices);
  if (status == KILN_OK &&
      ctx->services.tuner->choose(choices, w->shape, &ctx->info, tell_source_id, w, c) != KILN_OK)
    status = no_memory(ctx);
  pthread_mutex_unlock(&ctx->ladder.lock);
  if (status == KILN_OK) refuse_illegal(w, c);
  return status;
}

static kiln_status say(kiln_context *ctx, kiln__chosen_tile *c, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static kiln_status say(kiln_context *ctx, kiln__chosen_tile *c, const char *format, ...) {
  va_list arguments;
  char *why = NULL;
  va_start(arguments, format);
  const int length = vasprintf(&why, format, arguments);
  va_end(arguments);
  if (length < 0) return no_memory(ctx);
  free(c->why);
  c->why = why;
  return KILN_OK;
}

/* ---- measuring ---- */

static kiln_status tune(wish *w, const char *records, kiln_tune_result *result, char *error,
                        size_t error_size) {
  kiln_tune_options options = KILN_TUNE_OPTIONS_INIT;
  options.budget_s = w->options.deadline_s > 0 ? w->options.deadline_s : DEADLINE_SECONDS;
  options.records = records;
  *result = (kiln_tune_result){.size = sizeof *result};
  return kiln__tuner_run(w->ctx, &w->spec, w->shape, &options, result, NULL, error, error_size);
}

/* A tuning that could not be kept is taken as it is. */
static kiln_status take_result(wish *w, const kiln_tune_result *r, kiln__chosen_tile *c) {
  kiln__chosen_free(c);
  kiln__ladder_forget(w->ctx);
  kiln_status status = find(w, c);
  if (status != KILN_OK || c->step == KILN_STEP_EXACT) return status;
  c->step = KILN_STEP_EXACT;
  c->tile = r->tile;
  return say(w->ctx, c, "exact: measured now, %.4g us against %.4g us of the default; not kept",
             r->time_us, r->default_us);
}

/* Under measure_lock. A failure costs no plan: the ladder goes on. */
static kiln_status measure(wish *w, kiln__chosen_tile *c) {
  kiln_context *ctx = w->ctx;
  char path[PATH_SIZE], error[SENTENCE_SIZE] = "";
  kiln_tune_result result;
  kiln_status status = find(w, c);
  if (status != KILN_OK || c->step == KILN_STEP_EXACT) return status;
  if (ctx->ladder.cannot_measure)
    return say(ctx, c, "%s, and nothing can be measured here", c->why);
  status = tune(w, kiln__ladder_own_records(ctx, path, sizeof path), &result, error, sizeof error);
  if (status == KILN_OK) return take_result(w, &result, c);
  ctx->ladder.cannot_measure = status == KILN_UNSUPPORTED || status == KILN_NO_DEVICE;
  kiln__log_print(&ctx->log, KILN_LOG_WARNING, "tuning failed, so plans go on without it: %s",
                  error);
  return say(ctx, c, "%s, and measuring failed (%s)", c->why, error);
}

static kiln_status find_or_measure(wish *w, kiln__chosen_tile *c) {
  const kiln_plan_mode mode = w->options.mode;
  const int measures = mode == KILN_PLAN_MEASURE || (mode == KILN_PLAN_AS_CONFIGURED &&
                                                     w->ctx->ladder.mode == KILN__TUNE_MEASURE);
  kiln_status status = find(w, c);
  if (status != KILN_OK || !measures || c->step == KILN_STEP_EXACT) return status;
  kiln__chosen_tile found = *c; /* given up: another thread may be measuring the same */
  c->why = c->ladder = NULL;
  kiln__chosen_free(&found);
  pthread_mutex_lock(&w->ctx->ladder.measure_lock);
  status = measure(w, c);
  pthread_mutex_unlock(&w->ctx->ladder.measure_lock);
  return status;
}

/* Needs nothing of what the context keeps for tunings, so that it waits for none. */
static kiln_status estimate(wish *w, kiln__chosen_tile *c) {
  char error[SENTENCE_SIZE] = "";
  kiln_tune_options options = KILN_TUNE_OPTIONS_INIT;
  kiln_tune_result result = {.size = sizeof result};
  options.strategy = "estimate";
  kiln_status status = w->ctx->services.tuner->tune(NULL, w->ctx, &w->spec, w->shape, &options,
                                                    &result, NULL, error, sizeof error);
  if (status != KILN_OK) return kiln__context_fail(w->ctx, status, "%s", error);
  c->step = KILN_STEP_MODEL;
  c->tile = result.tile;
  return say(w->ctx, c, "model: the cost model predicts %.4g us", result.predicted_us);
}

/* ---- the whole ---- */

static kiln_status explicit(kiln_context *ctx, const kiln_tile *given, kiln__chosen_tile *c) {
  const struct {
    const char *name;
    int32_t value;
  } fields[] = {{"block_m", given->block_m},
                {"block_n", given->block_n},
                {"num_stages", given->num_stages},
                {"num_warps", given->num_warps}};
  kiln_status status = say(ctx, c, "explicit: the caller chose");
  const char *separator = "";
  for (size_t i = 0; i < sizeof fields / sizeof fields[0] && status == KILN_OK; i++) {
    if (!fields[i].value) continue;
    status = say(ctx, c, "%s%s %s = %d", c->why, separator, fields[i].name, (int)fields[i].value);
    separator = ",";
  }
  c->step = KILN_STEP_EXPLICIT;
  c->tile = *given;
  return status;
}

static int is_given(const kiln_tile *tile) {
  return tile->block_m || tile->block_n || tile->num_stages || tile->num_warps;
}

/* What a ladder needs to be climbed; else the reason why it is not. */
static const char *obstacle(const kiln_context *ctx, const kiln_attn_args *shape) {
  if (!ctx->services.tuner || !ctx->services.generator) return "this library reads no records";
  if (ctx->device_id < 0) return "the emulator has no times";
  if (ctx->ladder.mode == KILN__TUNE_OFF) return "KILN_TUNE is off";
  if (!shape) return "the plan was made without sizes";
  return NULL;
}

static kiln_status climb(kiln_context *ctx, const kiln_attn_spec *spec, const kiln_attn_args *given,
                         const kiln_plan_options *options, kiln__chosen_tile *c) {
  kiln_attn_args shape;
  wish w = {ctx, *spec, &shape, *options};
  kiln_tile none = KILN_TILE_INIT;
  kiln_status status = kiln__take_args(ctx, given, &shape);
  if (status == KILN_OK && kiln__check_sizes(ctx, &shape) != KILN_OK)
    return say(ctx, c, "the sizes are no problem's"); /* the launch record says what is wrong */
  if (status == KILN_OK) status = kiln__context_resolve(ctx, &w.spec, &none);
  if (status != KILN_OK) return status;
  return options->mode == KILN_PLAN_ESTIMATE ? estimate(&w, c) : find_or_measure(&w, c);
}

/* The first condition that failed, out of the ladder's own text. */
static kiln_status refuse(kiln_context *ctx, const kiln__chosen_tile *c) {
  json_t *ladder = c->ladder ? json_loads(c->ladder, 0, NULL) : NULL;
  const json_t *first = json_array_get(json_object_get(ladder, "steps"), 0);
  const char *reason = json_string_value(json_object_get(first, "why"));
  kiln_status status = kiln__context_fail(ctx, KILN_UNSUPPORTED,
                                          "no step of the ladder that the plan's options allow "
                                          "holds: %s; tune this problem (kiln tune), "
                                          "or allow a lower step",
                                          reason ? reason : c->why);
  json_decref(ladder);
  return status;
}

kiln_status kiln__ladder_choose(kiln_context *ctx, const kiln_attn_spec *spec,
                                const kiln_tile *given, const kiln_attn_args *shape,
                                const kiln_plan_options *options, kiln__chosen_tile *chosen) {
  const kiln_plan_options usual = KILN_PLAN_OPTIONS_INIT;
  if (!options) options = &usual;
  *chosen = (kiln__chosen_tile){.step = KILN_STEP_DEFAULT, .tile = KILN_TILE_INIT};
  if (is_given(given)) return explicit(ctx, given, chosen);
  const char *reason = obstacle(ctx, shape);
  kiln_status status =
      reason ? say(ctx, chosen, "%s", reason) : climb(ctx, spec, shape, options, chosen);
  if (status == KILN_OK && chosen->step > options->lowest_step) status = refuse(ctx, chosen);
  if (status != KILN_OK) kiln__chosen_free(chosen);
  return status;
}
