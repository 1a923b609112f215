/* kiln run: attention of tensors from files, or its gradients, on a GPU or on the emulator, and the
 * error.
 *
 * Sizes come from the tensors; everything else is a flag or a default. What is written to --o and
 * --lse is what the kernel wrote, widened to f32: nothing is corrected on the way. */
#include "compare.h"
#include "device.h"
#include "out.h"
#include "rate.h"
#include "selection.h"
#include "tensor.h"
#include "trial.h"
#include "verbs.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const kiln__flag flags[] = {
    {"--q", "FILE",
     "queries (batch, seqlen_q, num_heads, head_dim): .npy, or FILE.safetensors:NAME"},
    {"--k", "FILE", "keys (batch, seqlen_k, num_heads_k, head_dim)"},
    {"--v", "FILE", "values (batch, seqlen_k, num_heads_k, head_dim_v)"},
    {"--o", "FILE", "write the result here, f32 .npy (batch, seqlen_q, num_heads, head_dim_v)"},
    {"--lse", "FILE", "write the log-sum-exp here, f32 .npy (batch, num_heads, seqlen_q)"},
    {"--do", "FILE",
     "gradient of o (batch, seqlen_q, num_heads, head_dim_v): makes it the backward pass"},
    {"--dq", "FILE", "write the gradient of q here, f32 .npy in the shape of q"},
    {"--dk", "FILE", "write the gradient of k here"},
    {"--dv", "FILE", "write the gradient of v here"},
    {"--softmax-scale", "X", "multiplies q.k; default 1 / sqrt(head_dim)"},
    {"--seqlen-k", "N", "use only the first N keys of each sequence"},
    {"--check", NULL, "compare with the fp64 reference; CHECK_FAILED outside the tolerance"},
    {"--json", NULL, "one object"},
    {0},
};

enum { Q, K, V, DOUT, TENSORS };

static const char *const tensor_flags[] = {"--q", "--k", "--v", "--do"};

typedef struct session {
  const kiln__args *args;
  kiln_context *ctx;
  int device;
  kiln__tensor tensors[TENSORS];
  int num_tensors; /* without --do, the first three */
  kiln__variant variant;
  kiln__inputs inputs;
  kiln_plan *plan;
  kiln_plan_info info;
  kiln__trial trial;
  kiln__figures figures;
} session;

/* --do makes it a backward pass, and the flags that go with one need it. */
static kiln_status check_flags(session *s) {
  static const char *const needing[] = {"--dq", "--dk", "--dv", "--deterministic"};
  const char *deterministic = kiln__args_get(s->args, "--deterministic");
  const char *pass = kiln__args_get(s->args, "--pass");
  const bool backward = kiln__args_has(s->args, "--do");
  s->num_tensors = backward ? TENSORS : DOUT;
  if (pass && strcmp(pass, backward ? "forward" : "backward") == 0)
    return kiln__fail(KILN_INVALID_ARGUMENT, "--pass %s does not go %s --do", pass,
                      backward ? "with" : "without");
  const int count = deterministic && strcmp(deterministic, "0") != 0 ? 4 : 3;
  for (int i = 0; i < count && !backward; i++)
    if (kiln__args_has(s->args, needing[i]))
      return kiln__fail(KILN_INVALID_ARGUMENT, "%s needs --do, the gradient of o", needing[i]);
  return KILN_OK;
}

/* One result would take the place of another, or of what was read. */
static kiln_status check_files(const session *s) {
  static const char *const files[] = {"--o", "--lse", "--dq", "--dk", "--dv",
                                      "--q", "--k",   "--v",  "--do"};
  enum { RESULTS = 5, FILES = sizeof files / sizeof files[0] };
  for (int i = 0; i < RESULTS; i++) {
    const char *path = kiln__args_get(s->args, files[i]);
    for (int j = i + 1; path && j < FILES; j++) {
      const char *other = kiln__args_get(s->args, files[j]);
      if (other && strcmp(path, other) == 0)
        return kiln__fail(KILN_INVALID_ARGUMENT,
                          "%s and %s are the same file, %s; write the result to one of its own",
                          files[i], files[j], path);
    }
  }
  return KILN_OK;
}

/* ---- tensors ---- */

static kiln_status load(session *s) {
  kiln__tensor_error error;
  for (int t = Q; t < s->num_tensors; t++) {
    const char *path = kiln__args_get(s->args, tensor_flags[t]);
    if (!path)
      return kiln__fail(KILN_INVALID_ARGUMENT,
                        "run needs --q, --k and --v; give %s a .npy file or FILE.safetensors:NAME",
                        tensor_flags[t]);
    kiln_status status = kiln__tensor_load(path, &s->tensors[t], &error);
    if (status != KILN_OK) return kiln__fail(status, "%s", error.text);
  }
  return KILN_OK;
}

static kiln_status check_ranks(const session *s) {
  for (int t = Q; t < s->num_tensors; t++) {
    const kiln__tensor *x = &s->tensors[t];
    if (x->rank != 4)
      return kiln__fail(KILN_INVALID_ARGUMENT,
                        "%s has %d dimensions; it must have 4: batch, seqlen, num_heads, head_dim",
                        tensor_flags[t], x->rank);
    for (int d = 0; d < 4; d++)
      if (x->shape[d] > INT_MAX)
        return kiln__fail(KILN_INVALID_ARGUMENT, "%s has a dimension of %lld; %d is the most",
                          tensor_flags[t], (long long)x->shape[d], INT_MAX);
  }
  return KILN_OK;
}

static kiln_status check_equal(const session *s, int a, int b, int dim, const char *name) {
  long long left = s->tensors[a].shape[dim], right = s->tensors[b].shape[dim];
  if (left == right) return KILN_OK;
  return kiln__fail(KILN_INVALID_ARGUMENT, "%s is %lld in %s and %lld in %s; it must be the same",
                    name, left, tensor_flags[a], right, tensor_flags[b]);
}

static kiln_status check_shapes(const session *s) {
  static const struct {
    int a, b, dim;
    const char *name;
  } equal[] = {{Q, K, 0, "batch"},       {K, V, 0, "batch"},        {K, V, 1, "seqlen_k"},
               {K, V, 2, "num_heads_k"}, {Q, K, 3, "head_dim"},     {Q, DOUT, 0, "batch"},
               {Q, DOUT, 1, "seqlen_q"}, {Q, DOUT, 2, "num_heads"}, {V, DOUT, 3, "head_dim_v"}};
  kiln_status status = check_ranks(s);
  for (size_t i = 0; status == KILN_OK && i < sizeof equal / sizeof equal[0]; i++)
    if (equal[i].b < s->num_tensors)
      status = check_equal(s, equal[i].a, equal[i].b, equal[i].dim, equal[i].name);
  return status;
}

static bool is_narrow(kiln__tensor_dtype dtype) {
  return dtype != KILN__TENSOR_FP32 && dtype != KILN__TENSOR_FP64;
}

/* The tensors' own dtype where it is one that kernels take, else bf16. */
static kiln_status choose_dtype(session *s) {
  kiln__tensor_dtype dtype = s->tensors[Q].dtype;
  if (kiln__args_has(s->args, "--dtype")) return KILN_OK;
  for (int t = K; t < s->num_tensors && t < TENSORS; t++)
    if (s->tensors[t].dtype != dtype)
      return kiln__fail(KILN_INVALID_ARGUMENT,
                        "--q is %s and %s is %s; say with --dtype which to use",
                        kiln__tensor_dtype_name(dtype), tensor_flags[t],
                        kiln__tensor_dtype_name(s->tensors[t].dtype));
  if (!is_narrow(dtype)) return KILN_OK;
  kiln_status status =
      kiln_attn_spec_set(s->ctx, &s->variant.spec, "dtype", kiln__tensor_dtype_name(dtype));
  return status == KILN_OK ? KILN_OK : kiln__fail_context(s->ctx, status);
}

/* ---- spec ---- */

static kiln_status set_size(session *s, const char *field, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  kiln_status status = kiln_attn_spec_set(s->ctx, &s->variant.spec, field, text);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(s->ctx, status);
}

static kiln_status read_fields(session *s) {
  const kiln__schema *schema = s->args->schema;
  for (int i = 0; i < schema->num_fields; i++) {
    const kiln__field *field = &schema->fields[i];
    const char *value = kiln__args_get(s->args, field->flag);
    if (!value) continue;
    kiln_status status = field->is_tile
                             ? kiln_tile_set(s->ctx, &s->variant.tile, field->name, value)
                             : kiln_attn_spec_set(s->ctx, &s->variant.spec, field->name, value);
    if (status != KILN_OK) return kiln__fail_context(s->ctx, status);
  }
  return KILN_OK;
}

static kiln_status make_spec(session *s) {
  s->variant = (kiln__variant){KILN_ATTN_SPEC_INIT, KILN_TILE_INIT};
  if (s->num_tensors == TENSORS) s->variant.spec.pass = KILN_PASS_BACKWARD;
  kiln_status status = choose_dtype(s);
  if (status == KILN_OK) status = read_fields(s);
  if (status == KILN_OK) status = set_size(s, "head_dim", s->tensors[Q].shape[3]);
  /* 0 would be read as "the same as head_dim" */
  if (status == KILN_OK && s->tensors[V].shape[3] == 0)
    return kiln__fail(KILN_INVALID_ARGUMENT, "head_dim_v of --v is 0; it must be 8 at least");
  return status == KILN_OK ? set_size(s, "head_dim_v", s->tensors[V].shape[3]) : status;
}

/* ---- inputs ---- */

/* Rounds the tensors to the spec's dtype and takes them over. */
static kiln_status convert(session *s) {
  for (int t = Q; t < s->num_tensors; t++) {
    kiln__tensor narrow = {0};
    kiln_status status =
        kiln__tensor_convert(&s->tensors[t], (kiln__tensor_dtype)s->variant.spec.dtype, &narrow);
    if (status != KILN_OK) return kiln__fail(status, "no memory is left for %s", tensor_flags[t]);
    s->inputs.buffers[t] = narrow.data;
    s->inputs.lengths[t] = kiln__tensor_count(&narrow);
    kiln__tensor_destroy(&s->tensors[t]);
  }
  return KILN_OK;
}

static kiln__operand operand_of(int t, const kiln__tensor *x) {
  return kiln__operand_packed(t, (int32_t)x->shape[0], (int32_t)x->shape[1], (int32_t)x->shape[2],
                              (int32_t)x->shape[3]);
}

static kiln_status read_scale(session *s) {
  double scale = -1;
  kiln_status status = kiln__args_real(s->args, "--softmax-scale", &scale);
  s->inputs.softmax_scale = KILN_SCALE_DEFAULT;
  if (status != KILN_OK || !kiln__args_has(s->args, "--softmax-scale")) return status;
  if (scale < 0)
    return kiln__fail(KILN_INVALID_ARGUMENT, "--softmax-scale %g is negative; give 0 or more",
                      scale);
  s->inputs.softmax_scale = (float)scale;
  return KILN_OK;
}

static kiln_status make_inputs(session *s) {
  kiln__inputs *in = &s->inputs;
  int64_t rows = s->tensors[K].shape[1];
  kiln_status status = kiln__args_integer(s->args, "--seqlen-k", 0, rows, &rows);
  if (status == KILN_OK) status = read_scale(s);
  if (status != KILN_OK) return status;
  in->dtype = s->variant.spec.dtype;
  in->mask = s->variant.spec.mask;
  in->wants_lse = kiln__args_has(s->args, "--lse") || kiln__args_has(s->args, "--check");
  in->q = operand_of(Q, &s->tensors[Q]);
  in->k = operand_of(K, &s->tensors[K]);
  in->v = operand_of(V, &s->tensors[V]);
  in->o = kiln__operand_packed(0, in->q.batch, in->q.rows, in->q.heads, in->v.dim);
  in->k.rows = in->v.rows = (int32_t)rows;
  if (s->num_tensors == TENSORS)
    kiln__inputs_add_gradients(s->variant.spec.deterministic != 0, (int32_t)rows, in);
  return convert(s);
}

/* ---- the run ---- */

static kiln_status make_plan(session *s) {
  kiln_attn_args shape = KILN_ATTN_ARGS_INIT;
  kiln__inputs_args(&s->inputs, &shape);
  kiln_status status =
      kiln_plan_create(s->ctx, &s->variant.spec, &s->variant.tile, &shape, &s->plan);
  if (status != KILN_OK) return kiln__fail_context(s->ctx, status);
  s->info.size = sizeof s->info;
  kiln_plan_get_info(s->plan, &s->info);
  return KILN_OK;
}

static kiln_status execute(session *s) {
  unsigned wanted = s->device >= 0 ? KILN__TRIAL_TIME : 0; /* the emulator's time says nothing */
  kiln_status status = kiln__trial_run(s->ctx, s->plan, &s->inputs, wanted, &s->trial);
  if (status != KILN_OK) return status;
  if (s->trial.launch != KILN_OK) return kiln__fail(s->trial.launch, "%s", s->trial.sentence);
  return KILN_OK;
}

static kiln_status save_codes(const session *s, const char *flag, const kiln__operand *x,
                              const uint16_t *codes) {
  const char *path = kiln__args_get(s->args, flag);
  int64_t shape[] = {x->batch, x->rows, x->heads, x->dim};
  if (!path) return KILN_OK;
  int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
  kiln__tensor_error error;
  float *wide = malloc((size_t)count * sizeof *wide + 1);
  if (!wide) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for %s", path);
  for (int64_t i = 0; i < count; i++) wide[i] = kiln__decode(s->inputs.dtype, codes[i]);
  kiln_status status = kiln__tensor_save(path, wide, 4, shape, &error);
  free(wide);
  return status == KILN_OK ? KILN_OK : kiln__fail(status, "%s", error.text);
}

static kiln_status save_lse(const session *s) {
  const char *path = kiln__args_get(s->args, "--lse");
  const kiln__operand *q = &s->inputs.q;
  if (!path) return KILN_OK;
  int64_t shape[] = {q->batch, q->heads, q->rows};
  kiln__tensor_error error;
  kiln_status status = kiln__tensor_save(path, s->trial.output.lse, 3, shape, &error);
  return status == KILN_OK ? KILN_OK : kiln__fail(status, "%s", error.text);
}

static kiln_status save(const session *s) {
  const kiln__inputs *in = &s->inputs;
  const kiln__output *out = &s->trial.output;
  kiln_status status = save_codes(s, "--o", &in->o, out->o);
  if (status == KILN_OK) status = save_lse(s);
  if (status == KILN_OK) status = save_codes(s, "--dq", &in->dq, out->dq);
  if (status == KILN_OK) status = save_codes(s, "--dk", &in->dk, out->dk);
  return status == KILN_OK ? save_codes(s, "--dv", &in->dv, out->dv) : status;
}

/* ---- facts ---- */

static double tflops(const session *s) {
  kiln_attn_args shape = KILN_ATTN_ARGS_INIT;
  kiln__inputs_args(&s->inputs, &shape);
  return s->trial.time_us > 0 ? kiln__rate_flops(&s->info.spec, &shape) / s->trial.time_us * 1e-6
                              : 0;
}

static bool passes(const session *s) {
  return s->trial.sound && s->figures.o_passes && s->figures.lse_passes;
}

static void add_sizes(json_t *object, const kiln__inputs *in) {
  json_object_set_new(object, "batch", json_integer(in->q.batch));
  json_object_set_new(object, "seqlen_q", json_integer(in->q.rows));
  json_object_set_new(object, "seqlen_k", json_integer(in->k.rows));
  json_object_set_new(object, "num_heads", json_integer(in->q.heads));
  json_object_set_new(object, "num_heads_k", json_integer(in->k.heads));
}

static kiln_status print_json(const session *s) {
  const kiln__figures *f = &s->figures;
  json_t *object = json_object();
  json_object_set_new(object, "kernel_id", json_string(s->info.kernel_id));
  json_object_set_new(object, "source_id", json_string(s->info.source_id));
  kiln__variant_json(object, &s->info.spec, &s->info.tile);
  add_sizes(object, &s->inputs);
  json_object_set_new(object, "why", json_string(s->info.why));
  if (kiln__args_has(s->args, "--check")) {
    json_object_set_new(object, "max_abs_error", kiln__json_number(f->max_abs_error));
    json_object_set_new(object, "rel_rms_error", kiln__json_number(f->rel_rms_error));
    if (s->inputs.backward)
      kiln__figures_json(object, f);
    else
      json_object_set_new(object, "lse_max_abs_error", kiln__json_number(f->lse_max_abs_error));
    json_object_set_new(object, "tolerance", kiln__json_number(f->tolerance));
    json_object_set_new(object, "ok", json_boolean(passes(s)));
  }
  if (s->trial.time_us > 0) {
    json_object_set_new(object, "time_us", kiln__json_number(s->trial.time_us));
    json_object_set_new(object, "tflops", kiln__json_number(tflops(s)));
  }
  return kiln__print_json(object);
}

static void print_figures(const session *s) {
  const kiln__figures *f = &s->figures;
  if (!s->inputs.backward) {
    printf("max_abs_error %.4g, rel_rms_error %.4g (tolerance %.2g), lse_max_abs_error %.4g "
           "(tolerance 1e-3 + 1e-5 |lse|)\n",
           f->max_abs_error, f->rel_rms_error, f->tolerance, f->lse_max_abs_error);
    return;
  }
  for (int g = 0; g < 3; g++)
    printf("%s: max_abs_error %.4g, rel_rms_error %.4g (tolerance %.2g)\n", kiln__gradient_names[g],
           f->gradients[g].max_abs_error, f->gradients[g].rel_rms_error, f->tolerance);
}

static kiln_status print_text(const session *s) {
  const kiln__inputs *in = &s->inputs;
  printf("%s  kernel %.12s  batch %d, seqlen_q %d, seqlen_k %d, num_heads %d, num_heads_k %d\n",
         kiln__variant_describe(&s->info.spec).text, s->info.kernel_id, (int)in->q.batch,
         (int)in->q.rows, (int)in->k.rows, (int)in->q.heads, (int)in->k.heads);
  if (s->trial.time_us > 0) printf("time_us %.4g, tflops %.4g\n", s->trial.time_us, tflops(s));
  if (kiln__args_has(s->args, "--check")) print_figures(s);
  return KILN_OK;
}

static kiln_status report(session *s) {
  bool check = kiln__args_has(s->args, "--check");
  if (check) {
    kiln_status status =
        kiln__compare(&s->inputs, &s->trial.output, KILN__COMPARE_ALL, &s->figures);
    if (status != KILN_OK) return kiln__fail(status, "no memory is left for the fp64 reference");
  }
  kiln_status status = kiln__args_has(s->args, "--json") ? print_json(s) : print_text(s);
  if (status != KILN_OK) return status;
  if (!s->trial.sound) return kiln__fail(KILN_CHECK_FAILED, "%s", s->trial.sentence);
  if (!check || passes(s)) return KILN_OK;
  return kiln__fail(KILN_CHECK_FAILED, "%s is outside its tolerance; look at the figures above",
                    s->inputs.backward    ? "a gradient"
                    : s->figures.o_passes ? "lse"
                                          : "o");
}

static void destroy(session *s) {
  kiln__trial_destroy(&s->trial);
  kiln_plan_destroy(s->plan);
  kiln__inputs_destroy(&s->inputs);
  for (int t = Q; t < TENSORS; t++) kiln__tensor_destroy(&s->tensors[t]);
  kiln_context_destroy(s->ctx);
}

static kiln_status run(const kiln__args *args) {
  session s = {.args = args};
  kiln_status status = check_flags(&s);
  if (status == KILN_OK) status = check_files(&s);
  if (status == KILN_OK) status = load(&s);
  if (status == KILN_OK) status = check_shapes(&s);
  if (status == KILN_OK) status = kiln__device_open(args, KILN__DEVICE_TO_RUN, &s.device, &s.ctx);
  if (status == KILN_OK) status = make_spec(&s);
  if (status == KILN_OK) status = make_inputs(&s);
  if (status == KILN_OK && s.device == KILN_DEVICE_NONE)
    status = kiln__fail(KILN_NO_DEVICE, "run launches a kernel; give --device emu or cuda:N");
  if (status == KILN_OK) status = make_plan(&s);
  if (status == KILN_OK) status = execute(&s);
  if (status == KILN_OK) status = save(&s);
  if (status == KILN_OK) status = report(&s);
  destroy(&s);
  return status;
}

const kiln__verb kiln__verb_run = {
    .name = "run",
    .usage = "--q Q --k K --v V [--o O] [--lse L] [--do DO --dq DQ --dk DK --dv DV] [--check]",
    .sentence = "Runs attention on tensors from files, or its gradients with --do.",
    .flags = flags,
    .groups = KILN__TAKES_CHOICE | KILN__TAKES_DEVICE | KILN__TAKES_EMULATOR,
    .run = run,
};
