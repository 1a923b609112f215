/* Plans: the choice of a kernel for a spec and a shape, made once and run often. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/missing.h"
#include "runtime/objects.h"

typedef struct plan_choice {
  kiln__chosen_tile chosen;
  kiln_plan_step lowest; /* that may be taken */
} plan_choice;

void kiln_attn_args_pack(kiln_attn_args *args, const kiln_attn_spec *spec) {
  int64_t dim = spec->head_dim;
  int64_t dim_v = spec->head_dim_v ? spec->head_dim_v : dim;
  int64_t row_q = args->num_heads, row_k = args->num_heads_k; /* heads of a row */
  args->q_stride = (kiln_stride){args->seqlen_q * row_q * dim, row_q * dim, dim};
  args->k_stride = (kiln_stride){args->seqlen_k * row_k * dim, row_k * dim, dim};
  args->v_stride = (kiln_stride){args->seqlen_k * row_k * dim_v, row_k * dim_v, dim_v};
  args->o_stride = (kiln_stride){args->seqlen_q * row_q * dim_v, row_q * dim_v, dim_v};
  if (args->size < sizeof *args) return;
  args->do_stride = args->o_stride;
  args->dq_stride = args->q_stride;
  args->dk_stride = args->k_stride;
  args->dv_stride = args->v_stride;
}

kiln_status kiln__is_capturing(kiln_context *ctx, struct CUstream_st *stream, int *capturing) {
  char sentence[1024];
  kiln__text error;
  *capturing = 0;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  kiln_status status = ctx->ops->is_capturing(ctx->device, stream, capturing, &error);
  return status == KILN_OK ? status : kiln__context_fail_text(ctx, status, &error);
}

/* Loading and compiling allocate, which a capture forbids. */
static kiln_status refuse_capture(kiln_context *ctx, struct CUstream_st *stream) {
  int capturing = 0;
  kiln_status status = kiln__is_capturing(ctx, stream, &capturing);
  if (status != KILN_OK || !capturing) return status;
  return kiln__context_fail(
      ctx, KILN_CAPTURE_ACTIVE,
      "a stream capture is active and this kernel is not loaded yet: create its plan "
      "before the capture begins");
}

/* The shape is looked at before anything is compiled or loaded. */
static kiln_status check_shape(kiln_context *ctx, const kiln__record *record,
                               const kiln_attn_args *shape, size_t *workspace) {
  char sentence[1024];
  kiln__text error;
  kiln_attn_args args;
  *workspace = 0;
  if (!shape) return KILN_OK;
  kiln_status status = kiln__take_pass_args(ctx, record->spec.pass, shape, &args);
  if (status != KILN_OK) return status;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  status = kiln__launch_check(record, &args, 1, &error);
  if (status == KILN_OK) status = kiln__launch_workspace(record, &args, &error, workspace);
  return status == KILN_OK ? status : kiln__context_fail_text(ctx, status, &error);
}

static kiln_status check_source_shape(kiln_context *ctx, const kiln_source *source,
                                      const kiln_attn_args *shape, size_t *workspace) {
  char sentence[1024];
  kiln__text error;
  kiln__record record;
  const char *text = source->generated.record;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  kiln_status status = kiln__record_parse(text, strlen(text), &error, &record);
  if (status != KILN_OK) return kiln__context_fail_text(ctx, status, &error);
  return check_shape(ctx, &record, shape, workspace);
}

/* The ladder's sentence, and where the kernel lies. */
static char *explain(const kiln_plan *plan, const char *why, int passed_over) {
  const char *pack = plan->pack && !plan->pack[0] ? "in memory" : plan->pack;
  kiln__text text;
  kiln__text_init(&text, 2048 + 2 * PATH_MAX);
  if (pack) kiln__text_printf(&text, "pack %s: ", pack);
  if (passed_over && pack)
    kiln__text_printf(&text, "its default tile for this spec, as it does not hold that of %s", why);
  else if (passed_over)
    kiln__text_printf(&text,
                      "default of %s, as nothing is compiled now and no kernel is at hand of %s",
                      plan->spec.arch, why);
  else if (plan->step == KILN_STEP_EXPLICIT)
    kiln__text_printf(&text, "%s; what is left is the default of %s", why,
                      pack ? "the pack" : plan->spec.arch);
  else if (plan->step != KILN_STEP_DEFAULT)
    kiln__text_string(&text, why);
  else if (pack)
    kiln__text_string(&text, "its default tile for this spec");
  else
    kiln__text_printf(&text, "arch default: %s, so this is the default tile of %s", why,
                      plan->spec.arch);
  return kiln__text_take(&text);
}

/* Loads the kernel; the plan takes what it needs of the binary. */
static kiln_status take_binary(kiln_context *ctx, const kiln_binary *binary, kiln_plan *plan) {
  const char *source_id = json_string_value(json_object_get(binary->identity, "source_id"));
  kiln_status status = kiln_kernel_load(ctx, binary, &plan->kernel);
  if (status != KILN_OK) return status;
  plan->from_cache = binary->from_cache;
  memcpy(plan->kernel_id, binary->kernel_id, sizeof plan->kernel_id);
  snprintf(plan->source_id, sizeof plan->source_id, "%s", source_id);
  plan->record = strdup(binary->item.record);
  if (plan->record) return KILN_OK;
  return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a plan");
}

static kiln_status build(kiln_context *ctx, kiln_source *source, unsigned flags, kiln_plan *plan) {
  kiln_binary *binary = NULL;
  kiln_status status = kiln__binary_make(ctx, source, flags, &binary);
  if (status == KILN_OK && !binary) { /* the rendering was remembered, its kernel is gone */
    status = kiln__source_render(ctx, 0, source);
    if (status == KILN_OK) status = kiln__binary_make(ctx, source, flags, &binary);
  }
  if (status == KILN_OK) status = take_binary(ctx, binary, plan);
  kiln_binary_destroy(binary);
  return status;
}

/* Whether the default tile may stand in for the chosen one. */
static int may_pass_over(const plan_choice *choice) {
  const kiln_plan_step step = choice->chosen.step;
  return step != KILN_STEP_EXPLICIT && step != KILN_STEP_DEFAULT &&
         choice->lowest >= KILN_STEP_DEFAULT;
}

/* A pack is there so that nothing is compiled: where it has a spec, but not the tile that the
 * ladder chose, its default tile is taken and the plan says so. */
static kiln_status find_packed(kiln_context *ctx, const kiln_attn_spec *spec,
                               const plan_choice *choice, kiln_binary **binary, kiln_pack **pack) {
  const kiln_tile any = KILN_TILE_INIT;
  kiln_status status = kiln__packs_find(ctx, spec, &choice->chosen.tile, binary, pack);
  if (status != KILN_OK || *binary || !may_pass_over(choice)) return status;
  return kiln__packs_find(ctx, spec, &any, binary, pack);
}

/* From the packs of the context; plan->kernel stays NULL where none has the kernel. */
static kiln_status create_from_pack(kiln_context *ctx, const kiln_attn_spec *spec,
                                    const plan_choice *choice, const kiln_attn_args *shape,
                                    kiln_plan *plan) {
  kiln_binary *binary = NULL;
  kiln_pack *pack = NULL;
  kiln_pack_info info = {.size = sizeof info};
  kiln_status status = find_packed(ctx, spec, choice, &binary, &pack);
  if (status != KILN_OK || !binary) return status;
  kiln_pack_get_info(pack, &info);
  status = check_shape(ctx, &binary->record, shape, &plan->workspace_bytes);
  if (status == KILN_OK) status = take_binary(ctx, binary, plan);
  plan->spec = binary->record.spec;
  plan->tile = binary->record.tile;
  plan->pack = strdup(info.path);
  if (status == KILN_OK && !plan->pack)
    status = kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a plan");
  kiln_binary_destroy(binary);
  kiln_pack_destroy(pack);
  return status;
}

/* From the cache or the compiler. */
static kiln_status create_from_source(kiln_context *ctx, const kiln_attn_spec *spec,
                                      const kiln_tile *tile, const kiln_attn_args *shape,
                                      unsigned flags, kiln_plan *plan) {
  kiln_source *source = NULL;
  kiln_status status = kiln__source_recall(ctx, spec, tile, &source);
  if (status == KILN_OK) status = kiln__check_arch(ctx, source->spec.arch);
  if (status == KILN_OK) status = check_source_shape(ctx, source, shape, &plan->workspace_bytes);
  if (status == KILN_OK) status = build(ctx, source, flags, plan);
  if (status == KILN_OK) {
    plan->spec = source->spec;
    plan->tile = source->tile;
  }
  kiln_source_destroy(source);
  return status;
}

/* libkiln_rt has nothing to render with, and no schema that would say what is legal. */
static kiln_status refuse_missing(kiln_context *ctx, kiln_attn_spec *spec, const kiln_tile *tile) {
  char sentence[1024];
  kiln__text error;
  if (!kiln__spec_has_words(spec))
    return kiln__context_fail(
        ctx, KILN_INVALID_ARGUMENT,
        "spec.pass %d, algorithm %d, dtype %d, mask %d or deterministic %d is "
        "no number of this version's: start from KILN_ATTN_SPEC_INIT",
        (int)spec->pass, (int)spec->algorithm, (int)spec->dtype, (int)spec->mask,
        (int)spec->deterministic);
  if (!spec->arch[0]) snprintf(spec->arch, sizeof spec->arch, "%s", ctx->info.arch);
  if (!spec->head_dim_v) spec->head_dim_v = spec->head_dim;
  kiln_status status = kiln__check_arch(ctx, spec->arch);
  if (status != KILN_OK) return status;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  kiln__missing_kernel(&error, spec, tile, KILN__MISSING_NO_COMPILER);
  return kiln__context_fail_text(ctx, KILN_MISSING_KERNEL, &error);
}

static kiln_status describe(kiln_context *ctx, plan_choice *choice, kiln_plan *plan) {
  kiln__chosen_tile *c = &choice->chosen;
  const int passed_over =
      c->step != KILN_STEP_EXPLICIT && !kiln__tile_matches(&plan->tile, &c->tile);
  plan->step = passed_over ? KILN_STEP_DEFAULT : c->step;
  plan->why = explain(plan, c->why, passed_over);
  plan->ladder = c->ladder ? c->ladder : strdup("{}");
  c->ladder = NULL;
  if (plan->why && plan->ladder) return KILN_OK;
  return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a plan");
}

/* Where the chosen tile's kernel is not at hand and nothing is compiled, the default's may be; who
 * asks for what is at hand has something to fall back on. */
static kiln_status create_chosen(kiln_context *ctx, const kiln_attn_spec *spec,
                                 const plan_choice *choice, const kiln_attn_args *shape,
                                 unsigned flags, kiln_plan *plan) {
  const kiln_tile any = KILN_TILE_INIT;
  kiln_status status = create_from_source(ctx, spec, &choice->chosen.tile, shape, flags, plan);
  if (status != KILN_MISSING_KERNEL || (flags & KILN__AT_HAND) || !may_pass_over(choice))
    return status;
  return create_from_source(ctx, spec, &any, shape, flags, plan);
}

static kiln_status create(kiln_context *ctx, const kiln_attn_spec *given_spec,
                          const kiln_tile *given_tile, const kiln_attn_args *shape,
                          const kiln_plan_options *options, int at_hand, kiln_plan *plan) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_tile tile = KILN_TILE_INIT;
  plan_choice choice = {.lowest = options->lowest_step};
  kiln_status status = kiln__take_spec(ctx, given_spec, given_tile, &spec, &tile);
  if (status == KILN_OK)
    status = kiln__ladder_choose(ctx, &spec, &tile, shape, options, &choice.chosen);
  if (status == KILN_OK) status = create_from_pack(ctx, &spec, &choice, shape, plan);
  if (status == KILN_OK && !plan->kernel)
    status = ctx->services.generator
                 ? create_chosen(ctx, &spec, &choice, shape, at_hand ? KILN__AT_HAND : 0, plan)
                 : refuse_missing(ctx, &spec, &tile);
  if (status == KILN_OK) status = describe(ctx, &choice, plan);
  kiln__chosen_free(&choice.chosen);
  return status;
}

kiln_status kiln__plan_create(kiln_context *ctx, const kiln_attn_spec *spec, const kiln_tile *tile,
                              const kiln_attn_args *shape, const kiln_plan_options *options,
                              int at_hand, struct CUstream_st *stream, kiln_plan **plan) {
  *plan = NULL;
  kiln_status status = kiln__context_need_device(ctx);
  if (status == KILN_OK) status = refuse_capture(ctx, stream);
  if (status != KILN_OK) return status;
  kiln_plan *made = calloc(1, sizeof *made);
  if (!made) return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a plan");
  made->ctx = ctx;
  status = create(ctx, spec, tile, shape, options, at_hand, made);
  if (status == KILN_OK) {
    kiln__run_record_add(ctx, &made->spec, shape);
    *plan = made;
  } else {
    kiln_plan_destroy(made);
  }
  return status;
}

kiln_status kiln_plan_create_with(kiln_context *ctx, const kiln_attn_spec *spec,
                                  const kiln_tile *tile, const kiln_attn_args *shape,
                                  const kiln_plan_options *given, kiln_plan **plan) {
  kiln_plan_options options = KILN_PLAN_OPTIONS_INIT;
  if (!plan) return kiln__context_null(ctx);
  *plan = NULL;
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  if (given && kiln__copy_sized(&options, sizeof options, given, sizeof options) != 0)
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                              "options.size is not sizeof(kiln_plan_options): start from "
                              "KILN_PLAN_OPTIONS_INIT");
  return kiln__plan_create(ctx, spec, tile, shape, &options, 0, NULL, plan);
}

kiln_status kiln_plan_create(kiln_context *ctx, const kiln_attn_spec *spec, const kiln_tile *tile,
                             const kiln_attn_args *shape, kiln_plan **plan) {
  return kiln_plan_create_with(ctx, spec, tile, shape, NULL, plan);
}

kiln_status kiln_plan_load(kiln_context *ctx, const kiln_binary *binary, kiln_plan **plan) {
  if (!plan) return kiln__context_null(ctx);
  *plan = NULL;
  kiln_status status = kiln__context_need_device(ctx);
  if (status != KILN_OK) return status;
  if (!binary) return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT, "binary is NULL");
  kiln_plan *made = calloc(1, sizeof *made);
  if (!made) return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a plan");
  made->ctx = ctx;
  made->spec = binary->record.spec;
  made->tile = binary->record.tile;
  status = take_binary(ctx, binary, made);
  if (status == KILN_OK && !(made->why = strdup("explicit: the caller's binary")))
    status = kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a plan");
  if (status == KILN_OK)
    *plan = made;
  else
    kiln_plan_destroy(made);
  return status;
}

void kiln_plan_get_info(const kiln_plan *plan, kiln_plan_info *info) {
  const kiln_plan_info whole = {
      .size = sizeof whole,
      .spec = plan->spec,
      .tile = plan->tile,
      .kernel_id = plan->kernel_id,
      .source_id = plan->source_id,
      .record = plan->record,
      .why = plan->why,
      .workspace_bytes = plan->workspace_bytes,
      .from_cache = plan->from_cache,
      .pack = plan->pack,
      .step = plan->step,
      .ladder = plan->ladder,
  };
  kiln__info_copy(info, &whole, sizeof whole);
}

kiln_status kiln_plan_workspace(const kiln_plan *plan, const kiln_attn_args *args, size_t *bytes) {
  return plan ? kiln_kernel_workspace(plan->kernel, args, bytes) : KILN_INVALID_ARGUMENT;
}

kiln_status kiln_plan_run(kiln_plan *plan, const kiln_attn_args *args, struct CUstream_st *stream) {
  return plan ? kiln_kernel_launch(plan->kernel, args, stream) : KILN_INVALID_ARGUMENT;
}

void kiln_plan_destroy(kiln_plan *plan) {
  if (!plan) return;
  kiln_kernel_destroy(plan->kernel);
  free(plan->record);
  free(plan->why);
  free(plan->ladder);
  free(plan->pack);
  free(plan);
}

/* `turns` rounds over the sets. */
static kiln_status run_turns(kiln_plan *plan, const kiln_attn_args *const *sets, int num_sets,
                             int turns) {
  kiln_status status = KILN_OK;
  for (int t = 0; t < turns && status == KILN_OK; t++)
    for (int i = 0; i < num_sets && status == KILN_OK; i++)
      status = kiln_plan_run(plan, sets[i], NULL);
  return status;
}

/* The same between two events; *time_us is one launch's share. */
static kiln_status time_turns(kiln_plan *plan, const kiln_attn_args *const *sets, int num_sets,
                              int turns, double *time_us) {
  char sentence[1024];
  kiln__text error;
  void *timer = NULL;
  double total;
  kiln_context *ctx = plan->ctx;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  kiln_status status = ctx->ops->timer_start(ctx->device, &error, &timer);
  if (status != KILN_OK) return kiln__context_fail_text(ctx, status, &error);
  kiln_status ran = run_turns(plan, sets, num_sets, turns);
  status = ctx->ops->timer_stop(ctx->device, timer, &error, &total);
  if (ran != KILN_OK) return ran;
  if (status != KILN_OK) return kiln__context_fail_text(ctx, status, &error);
  *time_us = total / turns / num_sets;
  return KILN_OK;
}

kiln_status kiln_plan_time(kiln_plan *plan, const kiln_attn_args *args, int warmup, int count,
                           double *time_us) {
  if (!plan || !time_us) return kiln__context_null(plan ? plan->ctx : NULL);
  *time_us = 0;
  if (warmup < 0 || count < 1)
    return kiln__context_fail(plan->ctx, KILN_INVALID_ARGUMENT,
                              "warmup is %d and count %d: they must be at least 0 and 1", warmup,
                              count);
  kiln_status status = run_turns(plan, &args, 1, warmup);
  return status == KILN_OK ? time_turns(plan, &args, 1, count, time_us) : status;
}

kiln_status kiln_plan_sample(kiln_plan *plan, const kiln_attn_args *const *sets, int num_sets,
                             int turns, double *time_us) {
  if (!plan || !sets || !time_us) return kiln__context_null(plan ? plan->ctx : NULL);
  *time_us = 0;
  kiln_context *ctx = plan->ctx;
  if (num_sets < 1 || turns < 1)
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                              "num_sets is %d and turns %d: both must be at least 1", num_sets,
                              turns);
  if (ctx->device_id == KILN_DEVICE_EMU)
    return kiln__context_fail(ctx, KILN_UNSUPPORTED,
                              "the emulator has no time to measure: create the context with the "
                              "number of a GPU");
  return time_turns(plan, sets, num_sets, turns, time_us);
}

#define TRACE_LIMIT (256u << 20) /* bytes of text */

kiln_status kiln_plan_trace(kiln_plan *plan, const kiln_attn_args *given, int64_t block,
                            const char **json) {
  char sentence[16384]; /* the emulator's reports have many lines */
  kiln__text error, text;
  kiln_attn_args args;
  if (!plan || !json) return kiln__context_null(plan ? plan->ctx : NULL);
  *json = NULL;
  kiln_context *ctx = plan->ctx;
  kiln_status status = kiln__context_enter(ctx);
  if (status == KILN_OK) status = kiln__take_args(ctx, given, &args);
  if (status != KILN_OK) return status;
  if (ctx->device_id != KILN_DEVICE_EMU)
    return kiln__context_fail(ctx, KILN_UNSUPPORTED,
                              "a trace follows the emulator: create the context with "
                              "KILN_DEVICE_EMU");
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  kiln__text_init(&text, TRACE_LIMIT);
  const kiln__trace trace = {block, &text};
  status = kiln__launch_trace(&plan->kernel->loaded, &args, &trace, &error);
  if (status == KILN_OK && text.length && !text.truncated)
    return kiln__give_json(ctx, kiln__text_take(&text), json);
  const char *why = text.truncated ? "the timeline does not fit in memory: choose a smaller shape"
                                   : "there is nothing to trace: batch, num_heads or seqlen_q is 0";
  kiln__text_free(&text);
  if (status != KILN_OK) return kiln__context_fail_text(ctx, status, &error);
  return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT, "%s", why);
}
