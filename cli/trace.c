/* kiln trace: one block of a launch on the emulator, as a page with its timeline.
 *
 * The emulator has no time: what the page shows is a model (docs/trace.md), and says so. The
 * tensors hold normal numbers, so that kernels which look for scores out of range find none; else
 * the timeline does not depend on them.
 *
 * timeline.c makes lanes and bars of the events, page.c the text of the page. */
#include "device.h"
#include "file.h"
#include "inputs.h"
#include "out.h"
#include "page.h"
#include "selection.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

static const kiln__flag flags[] = {
    {"-o", "FILE", "the page; default: trace.html"},
    {"--device", "DEVICE", "emu, which is the default: a trace follows the emulator"},
    {"--block", "N", "which block of the grid; default 0"},
    {"--batch", "N", "sequences; default 1"},
    {"--seqlen-q", "N", "queries of each; default 256"},
    {"--seqlen-k", "N", "keys of each; default 1024"},
    {"--num-heads", "N", "query heads; default 1"},
    {"--num-heads-k", "N", "key heads; default: as many as query heads"},
    {"--json", NULL, "print the events, one object, in place of writing a page"},
    {0},
};

enum { Q, K, V, O, TENSORS };
enum { SEED = 1, ELEMENT_BYTES = 2 };

typedef struct session {
  const kiln__args *args;
  kiln_context *ctx;
  const kiln__variant *variant;
  kiln__problem problem;
  kiln__inputs inputs;
  int64_t block;
  void *tensors[TENSORS];
  kiln_plan *plan;
} session;

/* ---- what is asked for ---- */

static kiln_status read_size(const kiln__args *args, const char *flag, int64_t value,
                             int32_t *size) {
  kiln_status status = kiln__args_integer(args, flag, 1, INT32_MAX, &value);
  *size = (int32_t)value;
  return status;
}

static kiln_status read_shape(session *s) {
  kiln__problem *p = &s->problem;
  *p = (kiln__problem){.id = "trace", .layout = KILN__PACKED, .data = KILN__NORMAL};
  p->flags = KILN__NO_LSE;
  kiln_status status = read_size(s->args, "--batch", 1, &p->batch);
  if (status == KILN_OK) status = read_size(s->args, "--seqlen-q", 256, &p->seqlen_q);
  if (status == KILN_OK) status = read_size(s->args, "--seqlen-k", 1024, &p->seqlen_k);
  if (status == KILN_OK) status = read_size(s->args, "--num-heads", 1, &p->num_heads);
  if (status == KILN_OK)
    status = read_size(s->args, "--num-heads-k", p->num_heads, &p->num_heads_k);
  if (status == KILN_OK) status = kiln__args_integer(s->args, "--block", 0, INT64_MAX, &s->block);
  if (status != KILN_OK || p->num_heads % p->num_heads_k == 0) return status;
  return kiln__fail(KILN_INVALID_ARGUMENT,
                    "--num-heads %d is not a whole multiple of --num-heads-k %d", p->num_heads,
                    p->num_heads_k);
}

/* Before a device is opened: a GPU that is not there must not be the sentence. */
static kiln_status check_device(const kiln__args *args) {
  const char *text = kiln__args_get(args, "--device");
  int device = KILN_DEVICE_EMU;
  kiln_status status = text ? kiln__device_parse(text, &device) : KILN_OK;
  if (status != KILN_OK || device == KILN_DEVICE_EMU) return status;
  return kiln__fail(KILN_UNSUPPORTED,
                    "trace follows the emulator and no device has a timeline to give; "
                    "give --device emu");
}

static kiln_status take_variant(session *s, const kiln__selection *selection) {
  if (selection->count != 1)
    return kiln__fail(KILN_INVALID_ARGUMENT,
                      "trace shows one kernel and the selection holds %lld; give one value a field",
                      (long long)selection->count);
  s->variant = &selection->variants[0];
  if (s->variant->spec.algorithm == KILN_ALGORITHM_FLASH) return KILN_OK;
  return kiln__fail(KILN_UNSUPPORTED,
                    "trace shows one kernel and the %s algorithm has several; give --algorithm "
                    "flash",
                    kiln__algorithm_name(s->variant->spec.algorithm));
}

/* ---- the run ---- */

static kiln_status put(session *s, int tensor, const void *from, int64_t elements) {
  size_t bytes = (size_t)elements * ELEMENT_BYTES;
  kiln_status status = kiln_memory_alloc(s->ctx, bytes, &s->tensors[tensor]);
  if (status == KILN_OK && from)
    status = kiln_memory_upload(s->ctx, s->tensors[tensor], from, bytes);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(s->ctx, status);
}

static kiln_status put_all(session *s) {
  const kiln__inputs *in = &s->inputs;
  const kiln__operand *operands[] = {&in->q, &in->k, &in->v};
  kiln_status status = KILN_OK;
  for (int t = Q; status == KILN_OK && t <= V; t++) {
    int buffer = operands[t]->buffer;
    status = put(s, t, in->buffers[buffer], in->lengths[buffer]);
  }
  return status == KILN_OK ? put(s, O, NULL, kiln__operand_extent(&in->o)) : status;
}

static kiln_status write_page(const session *s, const kiln_attn_args *args, const char *json) {
  const char *path = kiln__args_get(s->args, "-o");
  size_t length = 0;
  char *text = NULL;
  json_t *events = kiln__json_parse(json, "the timeline");
  if (!events) return KILN_INTERNAL;
  if (kiln__args_has(s->args, "--json")) return kiln__print_json(events);
  if (!path) path = "trace.html";
  const kiln__page_facts facts = {s->variant, args};
  kiln_status status = kiln__page_make(&facts, events, &text, &length);
  json_decref(events);
  if (status == KILN_OK) status = kiln__file_write(path, text, length);
  free(text);
  if (status == KILN_OK) printf("%s\n", path);
  return status;
}

static kiln_status trace(session *s) {
  const char *json = NULL;
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  kiln_status status = kiln__inputs_create(&s->problem, &s->variant->spec, SEED, &s->inputs);
  if (status != KILN_OK) return kiln__fail(status, "no memory is left for the tensors");
  kiln__inputs_args(&s->inputs, &args);
  status = kiln_plan_create(s->ctx, &s->variant->spec, &s->variant->tile, &args, &s->plan);
  if (status != KILN_OK) return kiln__fail_context(s->ctx, status);
  status = put_all(s);
  if (status != KILN_OK) return status;
  args.q = s->tensors[Q];
  args.k = s->tensors[K];
  args.v = s->tensors[V];
  args.o = s->tensors[O];
  status = kiln_plan_trace(s->plan, &args, s->block, &json);
  if (status != KILN_OK) return kiln__fail_context(s->ctx, status);
  return write_page(s, &args, json);
}

static void release(session *s) {
  kiln_plan_destroy(s->plan);
  for (int t = 0; t < TENSORS; t++)
    if (s->tensors[t]) kiln_memory_free(s->ctx, s->tensors[t]);
  kiln__inputs_destroy(&s->inputs);
}

static kiln_status run(const kiln__args *args) {
  session s = {.args = args};
  kiln__selection selection;
  kiln_status status = read_shape(&s);
  if (status == KILN_OK) status = check_device(args);
  if (status == KILN_OK) status = kiln__device_open(args, KILN__DEVICE_TO_TRACE, NULL, &s.ctx);
  if (status != KILN_OK) return status;
  status = kiln__selection_create(s.ctx, KILN_DEVICE_EMU, args, KILN__OPEN_IS_DEFAULT, &selection);
  if (status == KILN_OK) status = take_variant(&s, &selection);
  if (status == KILN_OK) status = trace(&s);
  release(&s);
  kiln__selection_destroy(&selection);
  kiln_context_destroy(s.ctx);
  return status;
}

const kiln__verb kiln__verb_trace = {
    .name = "trace",
    .usage = "SELECTION [--seqlen-q N] [--seqlen-k N] [--num-heads N] [--block N] [-o FILE]",
    .sentence = "Draws the timeline of a forward kernel's block on the emulator, by a model clock.",
    .flags = flags,
    .groups = KILN__TAKES_SELECTION,
    .run = run,
};
