/* One call: a plan per spec, kept in the context. Looking one up takes a shared lock; only a spec
 * seen for the first time is added under an exclusive one, after its plan was made outside of it.
 * */
#include <stdlib.h>
#include <string.h>

#include "runtime/objects.h"

typedef struct kiln__plan_row {
  struct kiln__plan_row *next;
  kiln_attn_spec key; /* as the caller gave it */
  kiln_plan *plan;
} kiln__plan_row;

static int same_spec(const kiln_attn_spec *a, const kiln_attn_spec *b) {
  return strcmp(a->arch, b->arch) == 0 && a->pass == b->pass && a->algorithm == b->algorithm &&
         a->dtype == b->dtype && a->head_dim == b->head_dim && a->head_dim_v == b->head_dim_v &&
         a->mask == b->mask;
}

static kiln_plan *find(const kiln_context *ctx, const kiln_attn_spec *key) {
  for (const kiln__plan_row *row = ctx->plans; row; row = row->next)
    if (same_spec(&row->key, key)) return row->plan;
  return NULL;
}

/* Keeps the plan, or destroys it where another thread was faster; gives the plan that is kept. */
static kiln_plan *keep(kiln_context *ctx, kiln__plan_row *row) {
  pthread_rwlock_wrlock(&ctx->plan_lock);
  kiln_plan *kept = find(ctx, &row->key);
  if (!kept) {
    row->next = ctx->plans;
    ctx->plans = row;
  }
  pthread_rwlock_unlock(&ctx->plan_lock);
  if (!kept) return row->plan;
  kiln_plan_destroy(row->plan);
  free(row);
  return kept;
}

static kiln_status add(kiln_context *ctx, const kiln_attn_spec *key, const kiln_attn_args *args,
                       struct CUstream_st *stream, kiln_plan **plan) {
  kiln__plan_row *row = calloc(1, sizeof *row);
  if (!row) return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a plan");
  row->key = *key;
  kiln_status status = kiln__plan_create(ctx, key, NULL, args, stream, &row->plan);
  if (status == KILN_OK)
    *plan = keep(ctx, row);
  else
    free(row);
  return status;
}

kiln_status kiln_attn_forward(kiln_context *ctx, const kiln_attn_spec *spec,
                              const kiln_attn_args *args, struct CUstream_st *stream) {
  kiln_attn_spec key;
  kiln_tile unused;
  kiln_status status = kiln__context_need_device(ctx);
  if (status == KILN_OK) status = kiln__take_spec(ctx, spec, NULL, &key, &unused);
  if (status != KILN_OK) return status;
  pthread_rwlock_rdlock(&ctx->plan_lock);
  kiln_plan *plan = find(ctx, &key);
  pthread_rwlock_unlock(&ctx->plan_lock);
  if (!plan) status = add(ctx, &key, args, stream, &plan);
  return status == KILN_OK ? kiln_plan_run(plan, args, stream) : status;
}

void kiln__forward_close(kiln_context *ctx) {
  while (ctx->plans) {
    kiln__plan_row *row = ctx->plans;
    ctx->plans = row->next;
    kiln_plan_destroy(row->plan);
    free(row);
  }
}
