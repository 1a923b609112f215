/* Running a plan on host data; trial.h states what is watched. */
#include "trial.h"

#include "out.h"

#include <stdlib.h>
#include <string.h>

/* A NaN in fp16, bf16 and, twice, in fp32; and none that arithmetic makes. */
enum { POISON = 0xffa5 };
enum { GUARD = 4096 }; /* bytes */

/* Device memory and the host copy that is compared with it. */
typedef struct block {
  unsigned char *host;
  void *device;
  size_t bytes;
} block;

typedef struct session {
  kiln_context *ctx;
  kiln_plan *plan;
  const kiln__inputs *in;
  kiln__trial *trial;
  block inputs[KILN__BUFFERS];
  block o, lse; /* with a guard at each end */
  void *workspace;
  kiln_attn_args args;
} session;

/* ---- memory ---- */

static kiln_status block_create(kiln_context *ctx, size_t bytes, block *b) {
  b->bytes = bytes;
  b->host = malloc(bytes + 1);
  if (!b->host) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for %zu bytes", bytes);
  kiln_status status = kiln_memory_alloc(ctx, bytes ? bytes : 1, &b->device);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(ctx, status);
}

/* Blocks of results hold whole codes, so that bytes is even. */
static void fill_poison(unsigned char *at, size_t bytes) {
  const uint16_t poison = POISON;
  for (size_t i = 0; i < bytes; i += sizeof poison) memcpy(at + i, &poison, sizeof poison);
}

static void block_destroy(kiln_context *ctx, block *b) {
  if (b->device) kiln_memory_free(ctx, b->device);
  free(b->host);
}

static kiln_status upload(kiln_context *ctx, const block *b, const void *from) {
  kiln_status status = b->bytes ? kiln_memory_upload(ctx, b->device, from, b->bytes) : KILN_OK;
  return status == KILN_OK ? KILN_OK : kiln__fail_context(ctx, status);
}

static kiln_status download(kiln_context *ctx, const block *b) {
  kiln_status status = b->bytes ? kiln_memory_download(ctx, b->host, b->device, b->bytes) : KILN_OK;
  return status == KILN_OK ? KILN_OK : kiln__fail_context(ctx, status);
}

static kiln_status create_inputs(session *s) {
  for (int i = 0; i < KILN__BUFFERS; i++) {
    if (!s->in->buffers[i]) continue;
    size_t bytes = (size_t)s->in->lengths[i] * sizeof(uint16_t);
    kiln_status status = block_create(s->ctx, bytes, &s->inputs[i]);
    if (status == KILN_OK) status = upload(s->ctx, &s->inputs[i], s->in->buffers[i]);
    if (status != KILN_OK) return status;
  }
  return KILN_OK;
}

static int64_t count_lse(const kiln__inputs *in) {
  return (int64_t)in->q.batch * in->q.heads * in->q.rows;
}

static kiln_status create_outputs(session *s) {
  size_t o_bytes = (size_t)kiln__operand_extent(&s->in->o) * sizeof(uint16_t);
  size_t lse_bytes = (size_t)count_lse(s->in) * sizeof(float);
  kiln_status status = block_create(s->ctx, o_bytes + 2 * GUARD, &s->o);
  if (status == KILN_OK && s->in->wants_lse)
    status = block_create(s->ctx, lse_bytes + 2 * GUARD, &s->lse);
  return status;
}

static const uint16_t *address(const session *s, const kiln__operand *x) {
  return (const uint16_t *)s->inputs[x->buffer].device + x->offset;
}

static kiln_status fill_args(session *s) {
  kiln_attn_args *args = &s->args;
  *args = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  kiln__inputs_args(s->in, args);
  args->q = address(s, &s->in->q);
  args->k = address(s, &s->in->k);
  args->v = address(s, &s->in->v);
  args->o = (uint16_t *)((char *)s->o.device + GUARD) + s->in->o.offset;
  args->lse = s->in->wants_lse ? (float *)((char *)s->lse.device + GUARD) : NULL;
  kiln_status status = kiln_plan_workspace(s->plan, args, &args->workspace_bytes);
  if (status != KILN_OK || args->workspace_bytes == 0) return status;
  status = kiln_memory_alloc(s->ctx, args->workspace_bytes, &s->workspace);
  args->workspace = s->workspace;
  return status;
}

/* ---- launching ---- */

static kiln_status poison(session *s) {
  fill_poison(s->o.host, s->o.bytes);
  kiln_status status = upload(s->ctx, &s->o, s->o.host);
  if (status != KILN_OK || !s->in->wants_lse) return status;
  fill_poison(s->lse.host, s->lse.bytes);
  return upload(s->ctx, &s->lse, s->lse.host);
}

/* The launch's own outcome goes to the trial: a refusal may be what the caller waits for. */
static void launch(session *s) {
  kiln__trial *t = s->trial;
  t->launch = kiln_plan_run(s->plan, &s->args, NULL);
  if (t->launch == KILN_OK) t->launch = kiln_context_synchronize(s->ctx);
  if (t->launch == KILN_OK) return;
  const char *text = kiln_last_error(s->ctx);
  snprintf(t->sentence, sizeof t->sentence, "%s",
           text && text[0] ? text : kiln_status_text(t->launch));
}

static kiln_status fetch(session *s) {
  kiln_status status = download(s->ctx, &s->o);
  if (status == KILN_OK && s->in->wants_lse) status = download(s->ctx, &s->lse);
  return status;
}

/* ---- looking at what was written ---- */

static void blame(kiln__trial *t, const char *sentence) {
  if (t->sentence[0] == '\0') snprintf(t->sentence, sizeof t->sentence, "%s", sentence);
  t->sound = false;
}

static bool is_poison(const block *b) {
  const uint16_t *codes = (const uint16_t *)(const void *)b->host;
  for (size_t i = 0; i < b->bytes / sizeof *codes; i++)
    if (codes[i] != POISON) return false;
  return true;
}

/* Takes the elements out of the host copy, which must be poison from end to end afterwards. */
static kiln_status collect_o(session *s, uint16_t **packed) {
  const kiln__operand *x = &s->in->o;
  uint16_t *from = (uint16_t *)(void *)(s->o.host + GUARD);
  bool complete = true;
  *packed = malloc((size_t)count_lse(s->in) * (size_t)x->dim * sizeof **packed + 1);
  if (!*packed) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for the result");
  uint16_t *to = *packed;
  for (int64_t b = 0; b < x->batch; b++)
    for (int64_t row = 0; row < x->rows; row++)
      for (int64_t h = 0; h < x->heads; h++) {
        uint16_t *at = from + kiln__operand_at(x, b, row, h);
        for (int32_t col = 0; col < x->dim; col++) {
          complete = complete && at[col] != POISON;
          *to++ = at[col];
          at[col] = POISON;
        }
      }
  if (!complete) blame(s->trial, "elements of o were not written");
  if (!is_poison(&s->o)) blame(s->trial, "memory around o was written");
  return KILN_OK;
}

static kiln_status collect_lse(session *s, float **packed) {
  int64_t count = count_lse(s->in);
  unsigned char *from = s->lse.host + GUARD;
  uint32_t bits = 0;
  bool complete = true;
  *packed = malloc((size_t)count * sizeof **packed + 1);
  if (!*packed) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for the result");
  memcpy(*packed, from, (size_t)count * sizeof **packed);
  for (int64_t i = 0; i < count; i++) {
    memcpy(&bits, *packed + i, sizeof bits);
    complete = complete && bits != ((uint32_t)POISON << 16 | POISON);
  }
  fill_poison(from, (size_t)count * sizeof **packed);
  if (!complete) blame(s->trial, "elements of lse were not written");
  if (!is_poison(&s->lse)) blame(s->trial, "memory around lse was written");
  return KILN_OK;
}

static kiln_status collect(session *s, kiln__output *output) {
  kiln_status status = fetch(s);
  if (status == KILN_OK) status = collect_o(s, &output->o);
  if (status == KILN_OK && s->in->wants_lse) status = collect_lse(s, &output->lse);
  return status;
}

static kiln_status check_inputs(session *s) {
  for (int i = 0; i < KILN__BUFFERS; i++) {
    if (!s->in->buffers[i]) continue;
    kiln_status status = download(s->ctx, &s->inputs[i]);
    if (status != KILN_OK) return status;
    if (memcmp(s->inputs[i].host, s->in->buffers[i], s->inputs[i].bytes) != 0)
      blame(s->trial, "an input was written");
  }
  return KILN_OK;
}

static kiln_status run_again(session *s) {
  kiln__output second = {0};
  kiln_status status = poison(s);
  if (status != KILN_OK) return status;
  launch(s);
  if (s->trial->launch != KILN_OK) return KILN_OK;
  status = collect(s, &second);
  if (status == KILN_OK && !kiln__output_equal(s->in, &s->trial->output, &second))
    blame(s->trial, "a second run gave other bits");
  free(second.o);
  free(second.lse);
  return status == KILN_OK ? check_inputs(s) : status;
}

/* After a refusal nothing may have been launched. */
static kiln_status check_untouched(session *s) {
  kiln_status status = fetch(s);
  if (status == KILN_OK && (!is_poison(&s->o) || !is_poison(&s->lse)))
    blame(s->trial, "the arguments were refused and o or lse was written");
  return status;
}

static kiln_status measure(session *s) {
  kiln_status status = kiln_plan_time(s->plan, &s->args, 1, 5, &s->trial->time_us);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(s->ctx, status);
}

static kiln_status run(session *s, unsigned flags) {
  kiln__trial *t = s->trial;
  kiln_status status = create_inputs(s);
  if (status == KILN_OK) status = create_outputs(s);
  if (status == KILN_OK) status = poison(s);
  if (status != KILN_OK) return status;
  t->launch = fill_args(s);
  if (t->launch == KILN_OUT_OF_MEMORY) return kiln__fail_context(s->ctx, t->launch);
  if (t->launch != KILN_OK) {
    snprintf(t->sentence, sizeof t->sentence, "%s", kiln_last_error(s->ctx));
    return check_untouched(s);
  }
  launch(s);
  if (t->launch == KILN_DRIVER_FAILED) return KILN_OK; /* the device answers nothing any more */
  if (t->launch != KILN_OK) return check_untouched(s);
  status = collect(s, &t->output);
  if (status == KILN_OK && flags & KILN__TRIAL_TWICE) status = run_again(s);
  if (status == KILN_OK && flags & KILN__TRIAL_TIME) status = measure(s);
  return status;
}

kiln_status kiln__trial_run(kiln_context *ctx, kiln_plan *plan, const kiln__inputs *inputs,
                            unsigned flags, kiln__trial *trial) {
  session s = {.ctx = ctx, .plan = plan, .in = inputs, .trial = trial};
  *trial = (kiln__trial){.sound = true};
  kiln_status status = run(&s, flags);
  if (s.workspace) kiln_memory_free(ctx, s.workspace);
  block_destroy(ctx, &s.lse);
  block_destroy(ctx, &s.o);
  for (int i = 0; i < KILN__BUFFERS; i++) block_destroy(ctx, &s.inputs[i]);
  if (status != KILN_OK) kiln__trial_destroy(trial);
  return status;
}

void kiln__trial_destroy(kiln__trial *trial) {
  free(trial->output.o);
  free(trial->output.lse);
  *trial = (kiln__trial){0};
}

bool kiln__output_equal(const kiln__inputs *in, const kiln__output *a, const kiln__output *b) {
  size_t rows = (size_t)count_lse(in);
  if (memcmp(a->o, b->o, rows * (size_t)in->o.dim * sizeof *a->o) != 0) return false;
  return !a->lse || !b->lse || memcmp(a->lse, b->lse, rows * sizeof *a->lse) == 0;
}
