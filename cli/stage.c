/* Placing and filling tensors for timing; stage.h states what they hold. */
#include "stage.h"

#include "inputs.h"
#include "out.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Random codes are made once and repeated: making them for gigabytes would take minutes. A prime
 * number of them, so that no two rows begin at the same place for long. */
enum { POOL = 1048573, SEED = 1, ALIGN = 256, L2_TIMES = 3, MOST_SETS = 4096 };

enum { Q, K, V, O, LSE, FORWARD, DOUT = FORWARD, DQ, DK, DV, TENSORS };

/* Bytes of each tensor of a set, rounded up; in doubles, because sizes may be anything. */
typedef struct layout {
  double bytes[TENSORS]; /* gradients: 0 in a forward pass */
  double set;
} layout;

static double round_up(double bytes) { return ALIGN * ceil(bytes / ALIGN); }

static layout lay_out(const kiln_attn_spec *spec, const kiln_attn_args *shape) {
  double rows_q = (double)shape->batch * shape->seqlen_q * shape->num_heads;
  double rows_k = (double)shape->batch * shape->seqlen_k * shape->num_heads_k;
  double row = spec->head_dim * (double)sizeof(uint16_t);
  double row_v = spec->head_dim_v * (double)sizeof(uint16_t);
  layout l = {.bytes = {[Q] = rows_q * row,
                        [K] = rows_k * row,
                        [V] = rows_k * row_v,
                        [O] = rows_q * row_v,
                        [LSE] = rows_q * (double)sizeof(float),
                        [DOUT] = rows_q * row_v,
                        [DQ] = rows_q * row,
                        [DK] = rows_k * row,
                        [DV] = rows_k * row_v}};
  for (int t = 0; t < TENSORS; t++) {
    bool used = t < FORWARD || spec->pass == KILN_PASS_BACKWARD;
    l.bytes[t] = used ? round_up(l.bytes[t]) : 0;
    l.set += l.bytes[t];
  }
  return l;
}

static kiln_status count_sets(kiln__stage *stage, const layout *l, size_t workspace_bytes) {
  kiln_device_info info = {.size = sizeof info};
  kiln_status status = kiln_context_device(stage->ctx, &info);
  if (status != KILN_OK) return kiln__fail_context(stage->ctx, status);
  double needed = l->set + (double)workspace_bytes;
  if (needed > (double)info.memory_bytes)
    return kiln__fail(KILN_OUT_OF_MEMORY,
                      "the tensors and the workspace of this shape take %.3g GB and the device has "
                      "%.3g GB; choose a smaller --batch, --seqlen-q or --num-heads",
                      needed * 1e-9, (double)info.memory_bytes * 1e-9);
  double sets = L2_TIMES * (double)info.l2_bytes / l->set;
  stage->num_sets = sets >= MOST_SETS ? MOST_SETS : (int)sets + 1;
  return KILN_OK;
}

/* As many sets as there is room for, halving their number down to `least`. */
static kiln_status allocate_sets(kiln__stage *stage, const layout *l, int least) {
  kiln_status status = KILN_OUT_OF_MEMORY;
  for (;;) {
    size_t bytes = (size_t)l->set * (size_t)stage->num_sets;
    status = kiln_memory_alloc(stage->ctx, bytes, &stage->memory);
    if (status != KILN_OUT_OF_MEMORY || stage->num_sets <= least) break;
    stage->num_sets = stage->num_sets / 2 < least ? least : stage->num_sets / 2;
  }
  if (status == KILN_OUT_OF_MEMORY)
    return kiln__fail(status,
                      "the device has no %.3g GB left for the tensors of this shape; choose a "
                      "smaller one, or free its memory",
                      l->set * stage->num_sets * 1e-9);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(stage->ctx, status);
}

static kiln_status allocate(kiln__stage *stage, const layout *l, size_t workspace_bytes,
                            int least_sets) {
  size_t count = (size_t)stage->num_sets;
  stage->args = calloc(count, sizeof *stage->args);
  stage->sets = calloc(count, sizeof(void *));
  if (!stage->args || !stage->sets) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left");
  kiln_status status = KILN_OK;
  if (workspace_bytes > 0)
    status = kiln_memory_alloc(stage->ctx, workspace_bytes, &stage->workspace);
  if (status != KILN_OK) return kiln__fail_context(stage->ctx, status);
  return allocate_sets(stage, l, least_sets);
}

/* The outputs between the inputs are filled along with them. */
static kiln_status fill(const kiln__stage *stage, const kiln_attn_spec *spec, size_t bytes) {
  uint16_t *codes = malloc(POOL * sizeof *codes);
  kiln_status status = KILN_OK;
  if (!codes) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for random numbers");
  kiln__inputs_normal(spec->dtype, SEED, codes, POOL);
  for (size_t at = 0; at < bytes && status == KILN_OK; at += POOL * sizeof *codes) {
    size_t part = bytes - at < POOL * sizeof *codes ? bytes - at : POOL * sizeof *codes;
    status = kiln_memory_upload(stage->ctx, (char *)stage->memory + at, codes, part);
  }
  free(codes);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(stage->ctx, status);
}

static void place(kiln__stage *stage, const layout *l, const kiln_attn_spec *spec,
                  const kiln_attn_args *shape, size_t workspace_bytes) {
  char *at = stage->memory;
  for (int i = 0; i < stage->num_sets; i++) {
    char *tensors[TENSORS];
    kiln_attn_args *args = &stage->args[i];
    for (int t = 0; t < TENSORS; t++) {
      tensors[t] = at;
      at += (size_t)l->bytes[t];
    }
    *args = *shape;
    kiln_attn_args_pack(args, spec);
    args->q = tensors[Q];
    args->k = tensors[K];
    args->v = tensors[V];
    args->o = tensors[O];
    args->lse = (float *)(void *)tensors[LSE];
    args->dout = tensors[DOUT];
    args->dq = tensors[DQ];
    args->dk = tensors[DK];
    args->dv = tensors[DV];
    args->workspace = stage->workspace;
    args->workspace_bytes = workspace_bytes;
    stage->sets[i] = args;
  }
}

/* A backward pass reads what the forward pass gave: lse of other numbers would make other weights.
 */
static kiln_status run_forward(const kiln__stage *stage, const kiln_attn_spec *spec) {
  kiln_attn_spec forward = *spec;
  kiln_status status = KILN_OK;
  forward.pass = KILN_PASS_FORWARD;
  forward.deterministic = 0;
  forward.algorithm = KILN_ALGORITHM_FLASH;
  for (int i = 0; i < stage->num_sets && status == KILN_OK; i++)
    status = kiln_attn_forward(stage->ctx, &forward, stage->sets[i], NULL);
  if (status == KILN_OK) status = kiln_context_synchronize(stage->ctx);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(stage->ctx, status);
}

kiln_status kiln__stage_create(kiln_context *ctx, const kiln_attn_spec *spec,
                               const kiln_attn_args *shape, size_t workspace_bytes, int least_sets,
                               kiln__stage *stage) {
  layout l = lay_out(spec, shape);
  *stage = (kiln__stage){.ctx = ctx};
  kiln_status status = count_sets(stage, &l, workspace_bytes);
  if (least_sets == 0) least_sets = stage->num_sets;
  if (status == KILN_OK) status = allocate(stage, &l, workspace_bytes, least_sets);
  if (status == KILN_OK) status = fill(stage, spec, (size_t)l.set * (size_t)stage->num_sets);
  if (status == KILN_OK) place(stage, &l, spec, shape, workspace_bytes);
  if (status == KILN_OK && spec->pass == KILN_PASS_BACKWARD) status = run_forward(stage, spec);
  return status;
}

void kiln__stage_destroy(kiln__stage *stage) {
  if (stage->workspace) kiln_memory_free(stage->ctx, stage->workspace);
  if (stage->memory) kiln_memory_free(stage->ctx, stage->memory);
  free(stage->sets);
  free(stage->args);
  *stage = (kiln__stage){0};
}
