/* Running a plan on host data; trial.h states what is watched. */
#include "trial.h"

#include "answer.h"
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

/* ORDER: results_of. The gradients, from DQ on, are the results of a backward pass, which reads the
 * o and lse that the forward pass of the same problem left there. */
enum { O, DQ, DK, DV, RESULTS };

static const char *const result_names[RESULTS] = {"o", "dq", "dk", "dv"};

typedef struct session {
  kiln_context *ctx;
  kiln_plan *plan;
  const kiln__inputs *in;
  kiln__trial *trial;
  block inputs[KILN__BUFFERS];
  block results[RESULTS], lse; /* with a guard at each end */
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

static int first_result(const session *s) { return s->in->backward ? DQ : O; }
static int end_result(const session *s) { return s->in->backward ? RESULTS : DQ; }

static const kiln__operand *operand_of(const session *s, int result) {
  const kiln__operand *const operands[RESULTS] = {&s->in->o, &s->in->dq, &s->in->dk, &s->in->dv};
  return operands[result];
}

static kiln_status create_results(session *s) {
  const size_t lse_bytes = (size_t)count_lse(s->in) * sizeof(float);
  kiln_status status = KILN_OK;
  for (int r = O; r < end_result(s) && status == KILN_OK; r++) {
    const size_t bytes = (size_t)kiln__operand_extent(operand_of(s, r)) * sizeof(uint16_t);
    status = block_create(s->ctx, bytes + 2 * GUARD, &s->results[r]);
  }
  if (status == KILN_OK && s->in->wants_lse)
    status = block_create(s->ctx, lse_bytes + 2 * GUARD, &s->lse);
  return status;
}

static const uint16_t *input_at(const session *s, const kiln__operand *x) {
  return (const uint16_t *)s->inputs[x->buffer].device + x->offset;
}

static uint16_t *result_at(const session *s, int result) {
  char *begin = (char *)s->results[result].device + GUARD;
  return (uint16_t *)(void *)begin + operand_of(s, result)->offset;
}

static kiln_status fill_args(session *s) {
  kiln_attn_args *args = &s->args;
  *args = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  kiln__inputs_args(s->in, args);
  args->q = input_at(s, &s->in->q);
  args->k = input_at(s, &s->in->k);
  args->v = input_at(s, &s->in->v);
  args->o = result_at(s, O);
  args->lse = s->in->wants_lse ? (float *)((char *)s->lse.device + GUARD) : NULL;
  if (s->in->backward) {
    args->dout = input_at(s, &s->in->dout);
    args->dq = result_at(s, DQ);
    args->dk = result_at(s, DK);
    args->dv = result_at(s, DV);
  }
  kiln_status status = kiln_plan_workspace(s->plan, args, &args->workspace_bytes);
  if (status != KILN_OK || args->workspace_bytes == 0) return status;
  status = kiln_memory_alloc(s->ctx, args->workspace_bytes, &s->workspace);
  args->workspace = s->workspace;
  return status;
}

/* ---- launching ---- */

static kiln_status poison_block(session *s, const block *b) {
  fill_poison(b->host, b->bytes);
  return upload(s->ctx, b, b->host);
}

/* What the pass writes, and `first` onward of the others. */
static kiln_status poison(session *s, int first) {
  kiln_status status = KILN_OK;
  for (int r = first; r < end_result(s) && status == KILN_OK; r++)
    status = poison_block(s, &s->results[r]);
  if (status == KILN_OK && first == O && s->in->wants_lse) status = poison_block(s, &s->lse);
  return status;
}

static void take_outcome(session *s, kiln_status status) {
  kiln__trial *t = s->trial;
  t->launch = status;
  if (status == KILN_OK) t->launch = kiln_context_synchronize(s->ctx);
  if (t->launch == KILN_OK) return;
  const char *text = kiln_last_error(s->ctx);
  snprintf(t->sentence, sizeof t->sentence, "%s",
           text && text[0] ? text : kiln_status_text(t->launch));
}

/* The launch's own outcome goes to the trial: a refusal may be what the caller waits for. */
static void launch(session *s) { take_outcome(s, kiln_plan_run(s->plan, &s->args, NULL)); }

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

static void blame_tensor(kiln__trial *t, const char *before, const char *name, const char *after) {
  char sentence[128];
  snprintf(sentence, sizeof sentence, "%s%s%s", before, name, after);
  blame(t, sentence);
}

/* Takes the elements out of the host copy; false where one of them was not written. */
static bool take_elements(const kiln__operand *x, uint16_t *from, uint16_t *to) {
  bool complete = true;
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
  return complete;
}

/* Without its elements a block must be poison from end to end. */
static kiln_status collect_result(session *s, int result, uint16_t **packed) {
  const kiln__operand *x = operand_of(s, result);
  const block *b = &s->results[result];
  const size_t count = (size_t)x->batch * (size_t)x->rows * (size_t)x->heads * (size_t)x->dim;
  kiln_status status = download(s->ctx, b);
  if (status != KILN_OK) return status;
  *packed = malloc(count * sizeof **packed + 1);
  if (!*packed) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for the result");
  if (!take_elements(x, (uint16_t *)(void *)(b->host + GUARD), *packed))
    blame_tensor(s->trial, "elements of ", result_names[result], " were not written");
  if (!is_poison(b)) blame_tensor(s->trial, "memory around ", result_names[result], " was written");
  return KILN_OK;
}

static kiln_status collect_lse(session *s, float **packed) {
  int64_t count = count_lse(s->in);
  unsigned char *from = s->lse.host + GUARD;
  uint32_t bits = 0;
  bool complete = true;
  kiln_status status = download(s->ctx, &s->lse);
  if (status != KILN_OK) return status;
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

/* o and lse, of a forward pass or of the one before a backward pass. */
static kiln_status collect_forward(session *s, kiln__output *output) {
  kiln_status status = collect_result(s, O, &output->o);
  if (status == KILN_OK && s->in->wants_lse) status = collect_lse(s, &output->lse);
  return status;
}

static kiln_status collect(session *s, kiln__output *output) {
  if (!s->in->backward) return collect_forward(s, output);
  kiln_status status = collect_result(s, DQ, &output->dq);
  if (status == KILN_OK) status = collect_result(s, DK, &output->dk);
  return status == KILN_OK ? collect_result(s, DV, &output->dv) : status;
}

/* ---- before and after a backward pass ---- */

/* What the forward kernel of the problem gives, with which the gradients are made. A refusal says
 * nothing yet: the backward kernel is asked too. */
static kiln_status run_forward(session *s) {
  kiln_plan_info info = {.size = sizeof info};
  kiln_plan_get_info(s->plan, &info);
  info.spec.pass = KILN_PASS_FORWARD;
  info.spec.deterministic = 0;
  kiln_status status = kiln_attn_forward(s->ctx, &info.spec, &s->args, NULL);
  if (status == KILN_INVALID_ARGUMENT || status == KILN_MISALIGNED) return KILN_OK;
  take_outcome(s, status);
  return s->trial->launch == KILN_OK ? collect_forward(s, &s->trial->output) : KILN_OK;
}

/* The host's copies hold poison: the elements go in between. */
static void put_answer(session *s, const kiln__answer *answer) {
  const kiln__operand *x = &s->in->o;
  uint16_t *to = (uint16_t *)(void *)(s->results[O].host + GUARD);
  float *lse = (float *)(void *)(s->lse.host + GUARD);
  const double *from = answer->o;
  for (int64_t b = 0; b < x->batch; b++)
    for (int64_t row = 0; row < x->rows; row++)
      for (int64_t h = 0; h < x->heads; h++)
        for (int32_t col = 0; col < x->dim; col++)
          to[kiln__operand_at(x, b, row, h) + col] = kiln__encode(s->in->dtype, *from++);
  for (int64_t i = 0; i < count_lse(s->in); i++) lse[i] = (float)answer->lse[i];
}

/* The same by the reference. Heads that do not divide are for the backward kernel to refuse. */
static kiln_status refer_forward(session *s) {
  kiln__answer answer;
  kiln_status status = kiln__answer_create(s->in, &answer);
  if (status == KILN_INVALID_ARGUMENT) return KILN_OK;
  if (status != KILN_OK) return kiln__fail(status, "no memory is left for the fp64 reference");
  put_answer(s, &answer);
  kiln__answer_destroy(&answer);
  status = upload(s->ctx, &s->results[O], s->results[O].host);
  if (status == KILN_OK) status = upload(s->ctx, &s->lse, s->lse.host);
  return status == KILN_OK ? collect_forward(s, &s->trial->output) : status;
}

/* o and lse are inputs of a backward pass. */
static kiln_status check_forward(session *s) {
  kiln__output after = {0};
  const kiln__output *before = &s->trial->output;
  kiln_status status = collect_forward(s, &after);
  if (status == KILN_OK && !kiln__output_same_forward(s->in, before, &after))
    blame(s->trial, "o or lse was written by the backward pass");
  kiln__output_destroy(&after);
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
  return s->in->backward ? check_forward(s) : KILN_OK;
}

static kiln_status run_again(session *s) {
  kiln__output second = {0};
  kiln_status status = poison(s, first_result(s));
  if (status != KILN_OK) return status;
  launch(s);
  if (s->trial->launch != KILN_OK) return KILN_OK;
  status = collect(s, &second);
  if (status == KILN_OK && !kiln__output_equal(s->in, &s->trial->output, &second))
    blame(s->trial, "a second run gave other bits");
  s->trial->output.dq_again = second.dq;
  second.dq = NULL;
  kiln__output_destroy(&second);
  return status == KILN_OK ? check_inputs(s) : status;
}

/* After a refusal nothing may have been launched. */
static kiln_status check_untouched(session *s) {
  const bool alone = !s->in->backward;
  kiln_status status = alone && s->in->wants_lse ? download(s->ctx, &s->lse) : KILN_OK;
  bool touched = status == KILN_OK && alone && !is_poison(&s->lse);
  for (int r = first_result(s); r < end_result(s) && status == KILN_OK; r++) {
    status = download(s->ctx, &s->results[r]);
    touched = touched || (status == KILN_OK && !is_poison(&s->results[r]));
  }
  if (touched)
    blame(s->trial, alone ? "the arguments were refused and o or lse was written"
                          : "the arguments were refused and a gradient was written");
  return status;
}

static kiln_status measure(session *s) {
  kiln_status status = kiln_plan_time(s->plan, &s->args, 1, 5, &s->trial->time_us);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(s->ctx, status);
}

static kiln_status run(session *s, unsigned flags) {
  kiln__trial *t = s->trial;
  kiln_status status = create_inputs(s);
  if (status == KILN_OK) status = create_results(s);
  if (status == KILN_OK) status = poison(s, O);
  if (status != KILN_OK) return status;
  t->launch = fill_args(s);
  if (t->launch == KILN_OUT_OF_MEMORY) return kiln__fail_context(s->ctx, t->launch);
  if (t->launch != KILN_OK) {
    snprintf(t->sentence, sizeof t->sentence, "%s", kiln_last_error(s->ctx));
    return check_untouched(s);
  }
  if (s->in->backward) status = flags & KILN__TRIAL_ALONE ? refer_forward(s) : run_forward(s);
  if (status != KILN_OK || t->launch != KILN_OK) return status;
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
  for (int r = O; r < RESULTS; r++) block_destroy(ctx, &s.results[r]);
  for (int i = 0; i < KILN__BUFFERS; i++) block_destroy(ctx, &s.inputs[i]);
  if (status != KILN_OK) kiln__trial_destroy(trial);
  return status;
}

void kiln__trial_destroy(kiln__trial *trial) {
  kiln__output_destroy(&trial->output);
  *trial = (kiln__trial){0};
}

void kiln__output_destroy(kiln__output *output) {
  free(output->o);
  free(output->lse);
  free(output->dq);
  free(output->dk);
  free(output->dv);
  free(output->dq_again);
  *output = (kiln__output){0};
}

static bool same_codes(const kiln__operand *x, const uint16_t *a, const uint16_t *b) {
  const size_t count = (size_t)x->batch * (size_t)x->rows * (size_t)x->heads * (size_t)x->dim;
  return memcmp(a, b, count * sizeof *a) == 0;
}

bool kiln__output_same_forward(const kiln__inputs *in, const kiln__output *a,
                               const kiln__output *b) {
  if (!same_codes(&in->o, a->o, b->o)) return false;
  return !a->lse || !b->lse || memcmp(a->lse, b->lse, (size_t)count_lse(in) * sizeof *a->lse) == 0;
}

bool kiln__output_equal(const kiln__inputs *in, const kiln__output *a, const kiln__output *b) {
  if (!in->backward) return kiln__output_same_forward(in, a, b);
  return same_codes(&in->dk, a->dk, b->dk) && same_codes(&in->dv, a->dv, b->dv) &&
         (!in->deterministic || same_codes(&in->dq, a->dq, b->dq));
}
