/* One call, forward or backward: a plan per spec and bucket of sizes, kept in the context. Looking
 * one up takes a shared lock; only what is seen for the first time is added under an exclusive one,
 * after its plan was made outside of it. Buckets for which the same tile was chosen share a plan.
 *
 * Invariant: only the first call of a spec compiles, unless plans are to be measured; other buckets
 * take what is loaded, in a pack or in the cache. kiln_prewarm compiles for all of them. */
#include <stdlib.h>
#include <string.h>

#include "runtime/bucket.h"
#include "runtime/objects.h"

typedef struct plan_key {
  kiln_attn_spec spec; /* as the caller gave it */
  int seqlen_q, seqlen_k, heads, gqa;
} plan_key;

typedef struct kiln__plan_row {
  struct kiln__plan_row *next;
  plan_key key;
  kiln_plan *plan;
  int owns_plan; /* of the rows that share one, the one that destroys it */
} kiln__plan_row;

static kiln_status make_key(kiln_context *ctx, const kiln_attn_spec *spec,
                            const kiln_attn_args *given, plan_key *key) {
  kiln_tile unused;
  kiln_attn_args args;
  kiln_status status = kiln__take_spec(ctx, spec, NULL, &key->spec, &unused);
  if (status == KILN_OK) status = kiln__take_args(ctx, given, &args);
  if (status == KILN_OK) status = kiln__check_sizes(ctx, &args);
  if (status != KILN_OK) return status;
  key->seqlen_q = kiln__bucket_of((uint64_t)args.seqlen_q);
  key->seqlen_k = kiln__bucket_of((uint64_t)args.seqlen_k);
  key->heads = kiln__bucket_of((uint64_t)args.batch * (uint64_t)args.num_heads);
  key->gqa = args.num_heads / args.num_heads_k;
  return KILN_OK;
}

static kiln_plan *find(const kiln_context *ctx, const plan_key *key) {
  for (const kiln__plan_row *row = ctx->plans; row; row = row->next)
    if (row->key.seqlen_q == key->seqlen_q && row->key.seqlen_k == key->seqlen_k &&
        row->key.heads == key->heads && row->key.gqa == key->gqa &&
        kiln__same_spec(&row->key.spec, &key->spec))
      return row->plan;
  return NULL;
}

/* Another bucket's plan for the spec: with this tile (zeros: the default), or any where it is NULL.
 */
static kiln_plan *find_like(const kiln_context *ctx, const plan_key *key,
                            const kiln__chosen_tile *c) {
  for (const kiln__plan_row *row = ctx->plans; row; row = row->next) {
    if (!kiln__same_spec(&row->key.spec, &key->spec)) continue;
    if (!c || (c->step == KILN_STEP_DEFAULT && row->plan->step == KILN_STEP_DEFAULT))
      return row->plan;
    if (kiln__tile_matches(&row->plan->tile, &c->tile)) return row->plan;
  }
  return NULL;
}

static kiln_plan *look(kiln_context *ctx, const plan_key *key, const kiln__chosen_tile *c,
                       int exact) {
  pthread_rwlock_rdlock(&ctx->plan_lock);
  kiln_plan *plan = exact ? find(ctx, key) : find_like(ctx, key, c);
  pthread_rwlock_unlock(&ctx->plan_lock);
  return plan;
}

/* Keeps the row, or destroys it where another thread was faster; gives the plan that is kept. */
static kiln_plan *keep(kiln_context *ctx, kiln__plan_row *row) {
  pthread_rwlock_wrlock(&ctx->plan_lock);
  kiln_plan *kept = find(ctx, &row->key);
  if (!kept) {
    row->next = ctx->plans;
    ctx->plans = row;
  }
  pthread_rwlock_unlock(&ctx->plan_lock);
  if (!kept) return row->plan;
  if (row->owns_plan) kiln_plan_destroy(row->plan);
  free(row);
  return kept;
}

/* The bucket's choice may be a kernel that another bucket loaded. */
static kiln_status share(kiln_context *ctx, const plan_key *key, const kiln_attn_args *args,
                         kiln_plan **plan) {
  const kiln_tile none = KILN_TILE_INIT;
  kiln_attn_spec spec = key->spec;
  kiln__chosen_tile chosen;
  *plan = NULL;
  kiln_status status = kiln__ladder_choose(ctx, &key->spec, &none, args, NULL, &chosen);
  if (status != KILN_OK) return status;
  /* A record may have chosen the default tile: its kernel is the default's. */
  if (ctx->services.generator && !chosen.tile.block_m)
    status = kiln__context_resolve(ctx, &spec, &chosen.tile);
  if (status == KILN_OK) *plan = look(ctx, key, &chosen, 0);
  kiln__chosen_free(&chosen);
  return status;
}

/* at_hand: where the spec has a plan already, nothing is compiled for another bucket; what is not
 * at hand then leaves the bucket with the plan that is there. */
static kiln_status add(kiln_context *ctx, const plan_key *key, const kiln_attn_args *args,
                       int at_hand, struct CUstream_st *stream, kiln_plan **plan) {
  const kiln_plan_options options = KILN_PLAN_OPTIONS_INIT;
  kiln__plan_row *row = calloc(1, sizeof *row);
  if (!row) return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a plan");
  row->key = *key;
  kiln_plan *other = look(ctx, key, NULL, 0);
  at_hand = at_hand && other && ctx->ladder.mode != KILN__TUNE_MEASURE;
  kiln_status status = other ? share(ctx, key, args, &row->plan) : KILN_OK;
  row->owns_plan = !row->plan;
  if (status == KILN_OK && row->owns_plan)
    status = kiln__plan_create(ctx, &key->spec, NULL, args, &options, at_hand, stream, &row->plan);
  if (status == KILN_MISSING_KERNEL && other) {
    row->owns_plan = 0;
    row->plan = other;
    status = KILN_OK;
  }
  if (status == KILN_OK && !row->owns_plan) kiln__run_record_add(ctx, &row->plan->spec, args);
  if (status == KILN_OK)
    *plan = keep(ctx, row);
  else
    free(row);
  return status;
}

/* A capture allows neither choosing nor loading; kernels take any sizes. */
static kiln_status find_captured(kiln_context *ctx, const plan_key *key, struct CUstream_st *stream,
                                 kiln_plan **plan) {
  int capturing = 0;
  kiln_status status = kiln__is_capturing(ctx, stream, &capturing);
  if (status == KILN_OK && capturing) *plan = look(ctx, key, NULL, 0);
  return status;
}

static kiln_status call(kiln_context *ctx, const plan_key *key, const kiln_attn_args *args,
                        struct CUstream_st *stream) {
  kiln_status status = KILN_OK;
  kiln_plan *plan = look(ctx, key, NULL, 1);
  if (!plan) status = find_captured(ctx, key, stream, &plan);
  if (status == KILN_OK && !plan) status = add(ctx, key, args, 1, stream, &plan);
  return status == KILN_OK ? kiln_plan_run(plan, args, stream) : status;
}

kiln_status kiln_attn_forward(kiln_context *ctx, const kiln_attn_spec *spec,
                              const kiln_attn_args *args, struct CUstream_st *stream) {
  plan_key key;
  kiln_status status = kiln__context_need_device(ctx);
  if (status == KILN_OK) status = make_key(ctx, spec, args, &key);
  if (status != KILN_OK) return status;
  if (key.spec.pass == KILN_PASS_FORWARD) return call(ctx, &key, args, stream);
  return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                            "spec.pass is %d and kiln_attn_forward runs the forward pass, %d: call "
                            "kiln_attn_backward for the gradients",
                            (int)key.spec.pass, KILN_PASS_FORWARD);
}

kiln_status kiln_attn_backward(kiln_context *ctx, const kiln_attn_spec *spec,
                               const kiln_attn_args *args, struct CUstream_st *stream) {
  plan_key key;
  kiln_status status = kiln__context_need_device(ctx);
  if (status == KILN_OK) status = make_key(ctx, spec, args, &key);
  if (status != KILN_OK) return status;
  key.spec.pass = KILN_PASS_BACKWARD;
  return call(ctx, &key, args, stream);
}

static kiln_status warm(kiln_context *ctx, const kiln_attn_spec *spec,
                        const kiln_attn_args *shape) {
  plan_key key;
  kiln_plan *plan;
  kiln_status status = make_key(ctx, spec, shape, &key);
  if (status != KILN_OK || look(ctx, &key, NULL, 1)) return status;
  return add(ctx, &key, shape, 0, NULL, &plan);
}

/* Elements lie as far apart as the caller's header has them, which may be an older one. */
static const void *element(const void *first, int32_t index) {
  size_t size;
  memcpy(&size, first, sizeof size);
  return (const char *)first + (size_t)index * size;
}

kiln_status kiln_prewarm(kiln_context *ctx, const kiln_attn_spec *specs,
                         const kiln_attn_args *shapes, int32_t count) {
  char first[4096] = "";
  int32_t failed = 0;
  kiln_status result = kiln__context_need_device(ctx);
  if (result != KILN_OK) return result;
  if (count < 0)
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT, "count is %d: it must not be negative",
                              (int)count);
  if (count > 0 && (!specs || !shapes)) return kiln__context_null(ctx);
  for (int32_t i = 0; i < count; i++) {
    const kiln_status status = warm(ctx, element(specs, i), element(shapes, i));
    if (status == KILN_OK) continue;
    if (failed++ == 0) {
      result = status;
      snprintf(first, sizeof first, "%s", kiln_last_error(ctx));
    }
  }
  if (failed == 0) return KILN_OK;
  return kiln__context_fail(ctx, result, "%d of %d plans could not be made, the first because: %s",
                            (int)failed, (int)count, first);
}

void kiln__call_close(kiln_context *ctx) {
  while (ctx->plans) {
    kiln__plan_row *row = ctx->plans;
    ctx->plans = row->next;
    if (row->owns_plan) kiln_plan_destroy(row->plan);
    free(row);
  }
}
