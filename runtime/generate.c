/* Specs, tiles and sources: the public functions over the generator's table.
 * The generator is one Lua state: it is made at its first use and called under a lock. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/objects.h"
#include "runtime/rendering.h"

#define ARCH_WITHOUT_DEVICE "sm_90a"
#define OLDEST_SPEC         offsetof(kiln_attn_spec, deterministic)

typedef struct generator_call { /* one call: the lock, the message */
  kiln_context *ctx;
  const kiln__generator_ops *ops;
  char error[4096];
} generator_call;

static kiln_status call_begin(kiln_context *ctx, generator_call *call) {
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  call->ctx = ctx;
  call->ops = ctx->services.generator;
  call->error[0] = '\0';
  if (!call->ops)
    return kiln__context_fail(
        ctx, KILN_UNSUPPORTED,
        "this library holds no generator: link libkiln in place of libkiln_rt");
  pthread_mutex_lock(&ctx->generator_lock);
  if (ctx->generator) return KILN_OK;
  status = call->ops->create(ctx->template_dir, call->error, sizeof call->error, &ctx->generator);
  if (status == KILN_OK) return KILN_OK;
  pthread_mutex_unlock(&ctx->generator_lock);
  return kiln__context_fail(ctx, status, "%s",
                            call->error[0] ? call->error : kiln_status_text(status));
}

static kiln_status call_end(generator_call *call, kiln_status status) {
  pthread_mutex_unlock(&call->ctx->generator_lock);
  if (status == KILN_OK) return KILN_OK;
  return kiln__context_fail(call->ctx, status, "%s",
                            call->error[0] ? call->error : kiln_status_text(status));
}

void kiln__generate_close(kiln_context *ctx) {
  if (ctx->generator) ctx->services.generator->destroy(ctx->generator);
  free(ctx->schema);
}

int kiln__context_templates(kiln_context *ctx, char stamp[KILN__ID_SIZE]) {
  generator_call call;
  if (!ctx->services.generator || !ctx->services.generator->stamp) return 0;
  if (call_begin(ctx, &call) != KILN_OK) return 0;
  const int stamped = call.ops->stamp(ctx->generator, stamp);
  call_end(&call, KILN_OK);
  return stamped;
}

/* Into the caller's spec as far as its size goes. What an older header has no field for must be at
 * its default. */
static kiln_status give_spec(kiln_context *ctx, const kiln_attn_spec *whole, kiln_attn_spec *spec) {
  if (spec->size < sizeof *spec && whole->deterministic)
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                              "spec.size has no room for deterministic: compile with the header of "
                              "this version");
  kiln__info_copy(spec, whole, sizeof *whole);
  return KILN_OK;
}

kiln_status kiln_attn_spec_set(kiln_context *ctx, kiln_attn_spec *spec, const char *field,
                               const char *text) {
  generator_call call;
  kiln_attn_spec whole;
  kiln_tile none;
  kiln_status status = kiln__context_enter(ctx);
  if (status == KILN_OK && (!field || !text)) status = kiln__context_null(ctx);
  if (status == KILN_OK) status = kiln__take_spec(ctx, spec, NULL, &whole, &none);
  if (status == KILN_OK) status = call_begin(ctx, &call);
  if (status != KILN_OK) return status;
  status = call.ops->set_spec(ctx->generator, &whole, field, text, call.error, sizeof call.error);
  status = call_end(&call, status);
  return status == KILN_OK ? give_spec(ctx, &whole, spec) : status;
}

kiln_status kiln_tile_set(kiln_context *ctx, kiln_tile *tile, const char *field, const char *text) {
  generator_call call;
  if (!tile || !field || !text || tile->size != sizeof *tile) return kiln__context_null(ctx);
  kiln_status status = call_begin(ctx, &call);
  if (status != KILN_OK) return status;
  status = call.ops->set_tile(ctx->generator, tile, field, text, call.error, sizeof call.error);
  return call_end(&call, status);
}

kiln_status kiln_schema(kiln_context *ctx, const char **json) {
  generator_call call;
  if (!json) return kiln__context_null(ctx);
  *json = NULL;
  kiln_status status = call_begin(ctx, &call);
  if (status != KILN_OK) return status;
  if (!ctx->schema)
    status = call.ops->schema(ctx->generator, &ctx->schema, call.error, sizeof call.error);
  if (status == KILN_OK) *json = ctx->schema;
  return call_end(&call, status);
}

/* The device's arch where the caller gave none. */
static void take_arch(const kiln_context *ctx, kiln_attn_spec *spec) {
  if (spec->arch[0]) return;
  snprintf(spec->arch, sizeof spec->arch, "%s",
           ctx->info.arch[0] ? ctx->info.arch : ARCH_WITHOUT_DEVICE);
}

kiln_status kiln__context_resolve(kiln_context *ctx, kiln_attn_spec *spec, kiln_tile *tile) {
  generator_call call;
  kiln_status status = call_begin(ctx, &call);
  if (status != KILN_OK) return status;
  take_arch(ctx, spec);
  status = call.ops->resolve(ctx->generator, spec, tile, call.error, sizeof call.error);
  return call_end(&call, status);
}

int kiln__same_spec(const kiln_attn_spec *a, const kiln_attn_spec *b) {
  return strcmp(a->arch, b->arch) == 0 && a->pass == b->pass && a->algorithm == b->algorithm &&
         a->dtype == b->dtype && a->head_dim == b->head_dim && a->head_dim_v == b->head_dim_v &&
         a->mask == b->mask && a->deterministic == b->deterministic;
}

int kiln__tile_matches(const kiln_tile *tile, const kiln_tile *wanted) {
  return (!wanted->block_m || wanted->block_m == tile->block_m) &&
         (!wanted->block_n || wanted->block_n == tile->block_n) &&
         (!wanted->num_stages || wanted->num_stages == tile->num_stages) &&
         (!wanted->num_warps || wanted->num_warps == tile->num_warps);
}

/* Takes what the caller filled: a spec whose arch is terminated, and a tile or none. */
kiln_status kiln__take_spec(kiln_context *ctx, const kiln_attn_spec *from_spec,
                            const kiln_tile *from_tile, kiln_attn_spec *spec, kiln_tile *tile) {
  *spec = (kiln_attn_spec)KILN_ATTN_SPEC_INIT;
  if (!from_spec || kiln__copy_sized(spec, sizeof *spec, from_spec, OLDEST_SPEC) != 0)
    return kiln__context_fail(
        ctx, KILN_INVALID_ARGUMENT,
        "spec.size is not sizeof(kiln_attn_spec): start from KILN_ATTN_SPEC_INIT");
  if (!memchr(spec->arch, '\0', sizeof spec->arch))
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT, "spec.arch is not terminated");
  *tile = (kiln_tile)KILN_TILE_INIT;
  if (from_tile && kiln__copy_sized(tile, sizeof *tile, from_tile, sizeof *tile) != 0)
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                              "tile.size is not sizeof(kiln_tile): start from KILN_TILE_INIT");
  return KILN_OK;
}

kiln_status kiln_attn_spec_resolve(kiln_context *ctx, kiln_attn_spec *spec, kiln_tile *tile) {
  kiln_attn_spec new_spec = KILN_ATTN_SPEC_INIT;
  kiln_tile new_tile = KILN_TILE_INIT;
  kiln_status status = kiln__context_enter(ctx);
  if (status == KILN_OK) status = kiln__take_spec(ctx, spec, tile, &new_spec, &new_tile);
  if (status == KILN_OK) status = kiln__context_resolve(ctx, &new_spec, tile ? &new_tile : NULL);
  if (status != KILN_OK) return status;
  status = give_spec(ctx, &new_spec, spec);
  if (status == KILN_OK && tile) *tile = new_tile;
  return status;
}

/* ---- tiles ---- */

kiln_status kiln_tile_list(kiln_context *ctx, const kiln_attn_spec *given, kiln_tile *tiles,
                           int32_t room, int32_t *count) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_tile none, *all = NULL;
  generator_call call;
  if (!count || room < 0 || (room > 0 && !tiles)) return kiln__context_null(ctx);
  *count = 0;
  kiln_status status = kiln__context_enter(ctx);
  if (status == KILN_OK) status = kiln__take_spec(ctx, given, NULL, &spec, &none);
  if (status == KILN_OK) status = call_begin(ctx, &call);
  if (status != KILN_OK) return status;
  take_arch(ctx, &spec);
  int32_t found = 0;
  status = call.ops->list_tiles(ctx->generator, &spec, &all, &found, call.error, sizeof call.error);
  if (status == KILN_OK) *count = found;
  for (int32_t i = 0; i < found && i < room; i++) tiles[i] = all[i];
  free(all);
  return call_end(&call, status);
}

kiln_status kiln__check_sizes(kiln_context *ctx, const kiln_attn_args *shape) {
  const int negative = shape->batch < 0 || shape->seqlen_q < 0 || shape->seqlen_k < 0;
  if (!negative && shape->num_heads > 0 && shape->num_heads_k > 0 &&
      shape->num_heads % shape->num_heads_k == 0)
    return KILN_OK;
  return kiln__context_fail(
      ctx, KILN_INVALID_ARGUMENT,
      "the shape has a negative size, or num_heads %d is not a whole multiple "
      "of num_heads_k %d",
      (int)shape->num_heads, (int)shape->num_heads_k);
}

kiln_status kiln_tile_predict(kiln_context *ctx, const kiln_attn_spec *given_spec,
                              const kiln_tile *given_tile, const kiln_attn_args *given_shape,
                              int32_t num_sms, kiln_prediction *prediction) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_prediction whole = {.size = sizeof whole};
  kiln_tile tile;
  kiln_attn_args shape;
  generator_call call;
  if (!given_shape || !prediction || num_sms < 0) return kiln__context_null(ctx);
  kiln_status status = kiln__context_enter(ctx);
  if (status == KILN_OK) status = kiln__take_spec(ctx, given_spec, given_tile, &spec, &tile);
  if (status == KILN_OK) status = kiln__take_args(ctx, given_shape, &shape);
  if (status == KILN_OK) status = kiln__check_sizes(ctx, &shape);
  if (status == KILN_OK) status = call_begin(ctx, &call);
  if (status != KILN_OK) return status;
  take_arch(ctx, &spec);
  if (num_sms == 0 && ctx->device_id >= 0) num_sms = ctx->info.num_sms;
  status = call.ops->predict(ctx->generator, &spec, &tile, &shape, num_sms, &whole, call.error,
                             sizeof call.error);
  if (status == KILN_OK) kiln__info_copy(prediction, &whole, sizeof whole);
  return call_end(&call, status);
}

/* ---- manifests ---- */

kiln_status kiln_manifest_read(kiln_context *ctx, const char *name, const char *text, size_t length,
                               const char **json) {
  generator_call call;
  char *kernels = NULL;
  if (!name || !text || !json) return kiln__context_null(ctx);
  *json = NULL;
  kiln_status status = call_begin(ctx, &call);
  if (status != KILN_OK) return status;
  status = call.ops->read_manifest(ctx->generator, ctx->template_dir, name, text, length, &kernels,
                                   call.error, sizeof call.error);
  status = call_end(&call, status);
  return status == KILN_OK ? kiln__give_json(ctx, kernels, json) : status;
}

/* ---- sources ---- */

/* A source without text, id and record. */
static kiln_status resolve_source(kiln_context *ctx, const kiln_attn_spec *spec,
                                  const kiln_tile *tile, kiln_source **out) {
  kiln_source *source = calloc(1, sizeof *source);
  if (!source) {
    kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a source");
    return KILN_OUT_OF_MEMORY;
  }
  source->for_emulator = ctx->device_id == KILN_DEVICE_EMU;
  kiln_status status = kiln__take_spec(ctx, spec, tile, &source->spec, &source->tile);
  if (status == KILN_OK) status = kiln__context_resolve(ctx, &source->spec, &source->tile);
  if (status == KILN_OK)
    *out = source;
  else
    kiln_source_destroy(source);
  return status;
}

/* Under the generator's lock. */
static kiln_status render(generator_call *call, unsigned flags, kiln_source *source) {
  free(source->generated.record);
  source->generated.record = NULL;
  return call->ops->render(call->ctx->generator, &source->spec, &source->tile, flags,
                           source->for_emulator, &source->generated, call->error,
                           sizeof call->error);
}

kiln_status kiln__source_render(kiln_context *ctx, unsigned flags, kiln_source *source) {
  generator_call call;
  if (source->generated.text) return KILN_OK;
  kiln_status status = call_begin(ctx, &call);
  return status == KILN_OK ? call_end(&call, render(&call, flags, source)) : status;
}

kiln_status kiln_source_generate(kiln_context *ctx, const kiln_attn_spec *spec,
                                 const kiln_tile *tile, unsigned flags, kiln_source **out) {
  kiln_source *source = NULL;
  if (!out) return kiln__context_null(ctx);
  *out = NULL;
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  if (flags > KILN_GENERATE_LAUNCHER || flags == (KILN_GENERATE_PLAIN | KILN_GENERATE_LAUNCHER))
    return kiln__context_fail(
        ctx, KILN_INVALID_ARGUMENT,
        "flags is 0x%x: KILN_GENERATE_PLAIN or KILN_GENERATE_LAUNCHER is legal", flags);
  if (flags == KILN_GENERATE_LAUNCHER && ctx->device_id == KILN_DEVICE_EMU)
    return kiln__context_fail(ctx, KILN_UNSUPPORTED,
                              "a launcher calls the CUDA driver: use a context of another device");
  status = resolve_source(ctx, spec, tile, &source);
  if (status == KILN_OK) source->is_launcher = flags == KILN_GENERATE_LAUNCHER;
  if (status == KILN_OK) status = kiln__source_render(ctx, flags, source);
  if (status == KILN_OK)
    *out = source;
  else
    kiln_source_destroy(source);
  return status;
}

/* Under the generator's lock. */
static kiln_status recall_or_render(generator_call *call, kiln_source *source) {
  char stamp[KILN__ID_SIZE];
  kiln_context *ctx = call->ctx;
  const int stamped = call->ops->stamp && call->ops->stamp(ctx->generator, stamp);
  if (stamped && kiln__rendering_recall(ctx, stamp, source)) return KILN_OK;
  kiln_status status = render(call, 0, source);
  if (status == KILN_OK && stamped) kiln__rendering_remember(ctx, stamp, source);
  return status;
}

kiln_status kiln__source_recall(kiln_context *ctx, const kiln_attn_spec *spec,
                                const kiln_tile *tile, kiln_source **out) {
  generator_call call;
  kiln_source *source = NULL;
  kiln_status status = resolve_source(ctx, spec, tile, &source);
  if (status == KILN_OK) status = call_begin(ctx, &call);
  if (status == KILN_OK) status = call_end(&call, recall_or_render(&call, source));
  if (status == KILN_OK)
    *out = source;
  else
    kiln_source_destroy(source);
  return status;
}

const char *kiln_source_text(const kiln_source *source, size_t *length) {
  if (length) *length = source->generated.length;
  return source->generated.text;
}

const char *kiln_source_id(const kiln_source *source) { return source->generated.source_id; }
const char *kiln_source_record(const kiln_source *source) { return source->generated.record; }

void kiln_source_destroy(kiln_source *source) {
  if (!source) return;
  free(source->generated.text);
  free(source->generated.record);
  free(source);
}
