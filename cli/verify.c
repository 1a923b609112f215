/* kiln verify: sets every kernel of a selection the problems of problems.c and compares with fp64.
 *
 * Invariant: a case passes only where the launch did what was expected, every element was written
 * and nothing else, a second run gave the same bits, the inputs are as they were, and the figures
 * are within the tolerances; strided tensors and tails also have to give the bits of packed ones.
 * Kernels compile in the background while earlier ones are verified. */
#include "compare.h"
#include "device.h"
#include "out.h"
#include "pool.h"
#include "prepared.h"
#include "selection.h"
#include "trial.h"
#include "verbs.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const kiln__flag flags[] = {
    {"--quick", NULL, "a few problems a kernel"},
    {"--case", "ID", "this problem alone"},
    {"--seed", "N", "of the random data; default 1"},
    {"--json", NULL, "one object a case, then one with the counts"},
    {0},
};

enum {
  FEW_KERNELS = 8,  /* so many are set every problem; more share them out */
  SHARE_CASES = 12, /* problems a kernel when they are shared out */
  SHARE_QUICK = 4
};

static const double budget =
    2e9; /* multiplications of the reference: about a second on two cores */

typedef struct session {
  const kiln__args *args;
  kiln_context *ctx;
  int device;
  int64_t seed;
  kiln__selection selection;
  kiln__prepared *plans;
  /* KILN__TRIAL_ALONE with --quick on the emulator: the forward kernel would have to be compiled
   * and run too, and is verified on its own. */
  unsigned alone;
  kiln__progress progress;
  int64_t passed, failed;
  double worst; /* rel_rms_error over its tolerance, of the kernel at hand */
  bool device_lost;
} session;

typedef struct verdict {
  bool ok, measured;
  kiln__figures figures;
  char sentence[1024];
} verdict;

/* ---- which problems ---- */

static bool wants(const session *s, const kiln__problem *p, const kiln_attn_spec *spec) {
  const char *id = kiln__args_get(s->args, "--case");
  if (id && strcmp(id, p->id) != 0) return false;
  if (kiln__args_has(s->args, "--quick") && !(p->flags & KILN__QUICK)) return false;
  return kiln__problem_fits(p, spec, s->device >= 0);
}

/* Odd, so that every problem meets every value of the axes of two. */
static int choose_share(const session *s, const kiln_attn_spec *spec) {
  int count = 0;
  if (s->selection.count <= FEW_KERNELS || kiln__args_has(s->args, "--case")) return 1;
  for (int i = 0; i < kiln__num_problems; i++) count += wants(s, &kiln__problems[i], spec);
  int share = count / (kiln__args_has(s->args, "--quick") ? SHARE_QUICK : SHARE_CASES);
  return share < 1 ? 1 : share | 1;
}

/* Calls `visit` for every problem of one kernel; returns how many there are. */
static int64_t each_problem(session *s, int64_t index,
                            void (*visit)(session *, int64_t, const kiln__problem *)) {
  const kiln_attn_spec *spec = &s->selection.variants[index].spec;
  int share = choose_share(s, spec);
  int64_t count = 0, position = 0;
  for (int i = 0; i < kiln__num_problems; i++) {
    const kiln__problem *p = &kiln__problems[i];
    if (!wants(s, p, spec)) continue;
    bool always = p->flags & KILN__EVERY || p->head_dim != 0;
    if (!always && (position++ + index) % share != 0) continue;
    count++;
    if (visit && !s->device_lost) visit(s, index, p);
  }
  return count;
}

/* ---- one case ---- */

__attribute__((format(printf, 2, 3))) static void reject(verdict *v, const char *format, ...) {
  va_list arguments;
  v->ok = false;
  va_start(arguments, format);
  vsnprintf(v->sentence, sizeof v->sentence, format, arguments);
  va_end(arguments);
}

static void judge_gradients(verdict *v) {
  const kiln__figures *f = &v->figures;
  for (int g = 0; g < 3 && v->ok; g++)
    if (!(f->gradients[g].rel_rms_error <= f->tolerance))
      reject(v, "rel_rms_error %.3g of %s is above its tolerance %.2g",
             f->gradients[g].rel_rms_error, kiln__gradient_names[g], f->tolerance);
}

static void judge_figures(const kiln__problem *p, bool backward, verdict *v) {
  const kiln__figures *f = &v->figures;
  if (backward)
    judge_gradients(v);
  else if (!f->o_passes)
    reject(v, "rel_rms_error %.3g is above its tolerance %.2g", f->rel_rms_error, f->tolerance);
  else if (!f->lse_passes)
    reject(v, "lse_max_abs_error %.3g is outside the tolerance of lse", f->lse_max_abs_error);
  else if (p->flags & KILN__EXACT && !f->exact_passes)
    reject(v, "o is not the exact result, rounded once");
}

/* Whether the launch ended as the problem wants it to; false also where nothing is left to
 * compare. */
static bool judge_launch(const kiln__problem *p, const kiln__trial *t, verdict *v) {
  if (!t->sound) {
    reject(v, "%s", t->sentence);
  } else if (p->flags & KILN__REFUSED) {
    if (t->launch != KILN_INVALID_ARGUMENT)
      reject(v, "the arguments were not refused as INVALID_ARGUMENT but ended as %s",
             kiln_status_name(t->launch));
  } else if (t->launch == KILN_MISALIGNED && p->flags & KILN__MAY_REFUSE) {
    snprintf(v->sentence, sizeof v->sentence, "refused: %.900s", t->sentence);
  } else if (t->launch != KILN_OK) {
    reject(v, "%s: %.900s", kiln_status_name(t->launch), t->sentence);
  } else {
    return v->ok;
  }
  return false;
}

/* dq has no order of its sums, so that the figures are all that tells. */
static kiln_status judge_unordered(const kiln__inputs *packed, const kiln__trial *twin,
                                   verdict *v) {
  kiln__figures figures;
  kiln_status status = kiln__compare(packed, &twin->output, budget, &figures);
  if (status != KILN_OK) return kiln__fail(status, "no memory is left for the fp64 reference");
  if (!figures.o_passes)
    reject(v, "packed tensors of the same elements gave rel_rms_error %.3g, tolerance %.2g",
           figures.rel_rms_error, figures.tolerance);
  return KILN_OK;
}

/* The same elements in packed tensors without a tail: same kernel, same sums, same bits. */
static kiln_status judge_twin(session *s, kiln_plan *plan, const kiln__inputs *in,
                              const kiln__trial *trial, verdict *v) {
  kiln__inputs packed;
  kiln__trial twin;
  kiln_status status = kiln__inputs_pack(in, &packed);
  if (status != KILN_OK) return kiln__fail(status, "no memory is left for packed tensors");
  status = kiln__trial_run(s->ctx, plan, &packed, s->alone, &twin);
  if (status == KILN_OK) {
    if (twin.launch != KILN_OK)
      reject(v, "packed tensors were refused: %.900s", twin.sentence);
    else if (!kiln__output_equal(in, &trial->output, &twin.output))
      reject(v, "packed tensors of the same elements gave other bits");
    else if (in->backward && !in->deterministic)
      status = judge_unordered(&packed, &twin, v);
    kiln__trial_destroy(&twin);
  }
  kiln__inputs_destroy(&packed);
  return status;
}

static kiln_status judge(session *s, kiln_plan *plan, const kiln__problem *p,
                         const kiln__inputs *in, const kiln__trial *trial, verdict *v) {
  if (!judge_launch(p, trial, v)) return KILN_OK;
  kiln_status status = kiln__compare(in, &trial->output, budget, &v->figures);
  if (status != KILN_OK) return kiln__fail(status, "no memory is left for the fp64 reference");
  v->measured = true;
  judge_figures(p, in->backward, v);
  if (v->ok && (p->layout != KILN__PACKED || p->tail > 0)) return judge_twin(s, plan, in, trial, v);
  return KILN_OK;
}

/* FNV-1a over the kernel's and the problem's names: other data for every case, the same every
 * time. */
static uint64_t seed_of(const session *s, const kiln_attn_spec *spec, const char *id) {
  kiln__variant_text name = kiln__variant_describe(spec);
  uint64_t hash = UINT64_C(14695981039346656037) ^ (uint64_t)s->seed;
  for (const char *c = name.text; *c; c++)
    hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
  for (const char *c = id; *c; c++) hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
  return hash;
}

/* A failure of the machine (no memory for it) fails the case: it was not shown to be right. A GPU
 * answers nothing after a fault; the emulator stops the one launch and goes on. */
static void try_case(session *s, int64_t index, const kiln__problem *p, verdict *v) {
  const kiln_attn_spec *spec = &s->selection.variants[index].spec;
  kiln_plan *plan = s->plans[index].plan;
  kiln__problem sized = s->device >= 0 ? *p : kiln__problem_shrink(p);
  kiln__inputs in;
  kiln__trial trial;
  *v = (verdict){.ok = true};
  kiln_status status = kiln__inputs_create(&sized, spec, seed_of(s, spec, p->id), &in);
  if (status != KILN_OK) {
    reject(v, "no memory is left for the inputs");
    return;
  }
  status = kiln__trial_run(s->ctx, plan, &in, KILN__TRIAL_TWICE | s->alone, &trial);
  if (status == KILN_OK) {
    s->device_lost = trial.launch == KILN_DRIVER_FAILED && s->device >= 0;
    status = judge(s, plan, &sized, &in, &trial, v);
    kiln__trial_destroy(&trial);
  }
  if (status != KILN_OK) reject(v, "not run: %s", kiln_status_text(status));
  if (status == KILN_DRIVER_FAILED && s->device >= 0) s->device_lost = true;
  kiln__inputs_destroy(&in);
}

/* ---- facts ---- */

static void count(session *s, const verdict *v) {
  double part = v->measured ? v->figures.rel_rms_error / v->figures.tolerance : 0;
  if (part > s->worst) s->worst = part;
  s->passed += v->ok;
  s->failed += !v->ok;
}

static void print_json(const char *id, const kiln__variant *variant, const char *kernel_id,
                       const verdict *v) {
  const kiln__figures *f = &v->figures;
  json_t *object = json_object();
  json_object_set_new(object, "case", json_string(id));
  json_object_set_new(object, "kernel_id", kernel_id ? json_string(kernel_id) : json_null());
  if (variant) kiln__variant_json(object, &variant->spec, &variant->tile);
  if (v->measured) {
    json_object_set_new(object, "max_abs_error", kiln__json_number(f->max_abs_error));
    json_object_set_new(object, "rel_rms_error", kiln__json_number(f->rel_rms_error));
    if (variant && variant->spec.pass == KILN_PASS_BACKWARD)
      kiln__figures_json(object, f);
    else
      json_object_set_new(object, "lse_max_abs_error", kiln__json_number(f->lse_max_abs_error));
    json_object_set_new(object, "tolerance", kiln__json_number(f->tolerance));
    json_object_set_new(object, "checked_rows", json_integer(f->checked_rows));
    json_object_set_new(object, "rows", json_integer(f->rows));
  }
  json_object_set_new(object, "ok", json_boolean(v->ok));
  json_object_set_new(object, "sentence", json_string(v->sentence));
  kiln__print_json(object);
}

/* Text shows failures and a line a kernel; --json shows every case. */
static void print_case(session *s, const char *id, const char *what, const kiln__variant *variant,
                       const char *kernel_id, const verdict *v) {
  count(s, v);
  kiln__progress_clear(&s->progress);
  if (kiln__args_has(s->args, "--json"))
    print_json(id, variant, kernel_id, v);
  else if (!v->ok)
    printf("%s %s (%s): FAILED, %s\n", variant ? kiln__variant_describe(&variant->spec).text : "-",
           id, what, v->sentence);
  fflush(stdout);
}

static void run_case(session *s, int64_t index, const kiln__problem *p) {
  kiln_plan_info info = {.size = sizeof info};
  verdict v;
  kiln_plan_get_info(s->plans[index].plan, &info);
  try_case(s, index, p, &v);
  if (v.sentence[0] == '\0') snprintf(v.sentence, sizeof v.sentence, "%s", p->sentence);
  print_case(s, p->id, p->sentence, &s->selection.variants[index], info.kernel_id, &v);
  kiln__progress_step(&s->progress);
}

/* ---- refusals of specs: no kernel, no launch ---- */

static void verify_refusals(session *s) {
  static const char *const rows[][3] = {
      {"59", "64", "head_dim 59 is refused with the nearest values"},
      {"0", "8", "head_dim 0 is refused with the nearest value"},
      {"264", "256", "head_dim 264 is refused with the nearest value"},
  };
  for (int i = 0; i < 3; i++) {
    kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
    verdict v = {.ok = true};
    kiln_status status = kiln_attn_spec_set(s->ctx, &spec, "head_dim", rows[i][0]);
    const char *error = kiln_last_error(s->ctx);
    snprintf(v.sentence, sizeof v.sentence, "%s", rows[i][2]);
    if (status != KILN_INVALID_ARGUMENT || !strstr(error, rows[i][1]))
      reject(&v, "head_dim %s ended as %s: '%s'; %s was to be named", rows[i][0],
             kiln_status_name(status), error, rows[i][1]);
    print_case(s, "F7-refused", rows[i][2], NULL, NULL, &v);
  }
}

/* ---- the whole ---- */

static void prepare(void *user, int64_t index) {
  session *s = user;
  kiln__prepare(s->ctx, &s->selection.variants[index], &s->plans[index]);
}

static void verify_kernel(session *s, int64_t index) {
  kiln__prepared *p = &s->plans[index];
  const kiln__variant *variant = &s->selection.variants[index];
  int64_t failed = s->failed, passed = s->passed;
  s->worst = 0;
  if (p->status != KILN_OK) {
    verdict v = {.ok = false};
    reject(&v, "%.1000s", p->error && p->error[0] ? p->error : kiln_status_text(p->status));
    print_case(s, "compile", "the kernel compiles and loads", variant, NULL, &v);
    return;
  }
  int64_t cases = each_problem(s, index, run_case);
  if (cases == 0 || kiln__args_has(s->args, "--json")) return;
  kiln__progress_clear(&s->progress);
  printf("%s: %lld passed, %lld failed, rel_rms_error up to %.2f of its tolerance\n",
         kiln__variant_describe(&variant->spec).text, (long long)(s->passed - passed),
         (long long)(s->failed - failed), s->worst);
  fflush(stdout);
}

static kiln_status verify_kernels(session *s) {
  int64_t kernels = s->selection.count, cases = 0, begun = 0;
  s->plans = calloc((size_t)kernels, sizeof *s->plans);
  for (int64_t i = 0; i < kernels; i++) cases += each_problem(s, i, NULL);
  kiln__pool *pool = s->plans ? kiln__pool_create(kernels, prepare, s) : NULL;
  if (!pool) {
    free(s->plans);
    return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for %lld kernels", (long long)kernels);
  }
  kiln__progress_start(&s->progress, "verifying", cases);
  for (int64_t i = 0; i < kernels && !s->device_lost; i++) {
    kiln__pool_wait(pool, i);
    verify_kernel(s, i);
    kiln__prepared_destroy(&s->plans[i]);
  }
  kiln__progress_clear(&s->progress);
  kiln__pool_destroy(pool, &begun);
  for (int64_t i = 0; i < begun; i++) kiln__prepared_destroy(&s->plans[i]);
  free(s->plans);
  return KILN_OK;
}

static kiln_status summarize(const session *s) {
  if (kiln__args_has(s->args, "--json")) {
    kiln__print_json(
        json_pack("{s:I, s:I}", "passed", (json_int_t)s->passed, "failed", (json_int_t)s->failed));
    fprintf(stderr, "%lld passed, %lld failed\n", (long long)s->passed, (long long)s->failed);
  } else {
    printf("%lld passed, %lld failed\n", (long long)s->passed, (long long)s->failed);
  }
  if (s->device_lost)
    return kiln__fail(KILN_DRIVER_FAILED, "the device answers nothing any more after a failed "
                                          "launch; the remaining cases were not run");
  if (s->passed + s->failed == 0)
    return kiln__fail(KILN_INVALID_ARGUMENT, "no problem fits this selection; name another with "
                                             "--case or leave it out");
  return s->failed == 0 ? KILN_OK : KILN_CHECK_FAILED;
}

static kiln_status check_case(const kiln__args *args) {
  const char *id = kiln__args_get(args, "--case");
  const char *names[128];
  int count_names = 0;
  for (; count_names < kiln__num_problems && count_names < 128; count_names++) {
    names[count_names] = kiln__problems[count_names].id;
    if (id && strcmp(id, names[count_names]) == 0) return KILN_OK;
  }
  if (!id) return KILN_OK;
  const char *near = kiln__nearest(id, names, count_names);
  return kiln__fail(KILN_INVALID_ARGUMENT, "there is no case %s; %s%s", id,
                    near ? "the nearest is " : "docs/numerics.md lists them", near ? near : "");
}

static kiln_status run(const kiln__args *args) {
  session s = {.args = args, .seed = 1};
  kiln_status status = check_case(args);
  if (status == KILN_OK) status = kiln__args_integer(args, "--seed", 0, INT64_MAX, &s.seed);
  if (status == KILN_OK) status = kiln__device_open(args, KILN__DEVICE_TO_RUN, &s.device, &s.ctx);
  if (status == KILN_OK && s.device == KILN_DEVICE_NONE)
    status = kiln__fail(KILN_NO_DEVICE, "verify runs kernels; give --device emu or cuda:N");
  if (status == KILN_OK)
    status = kiln__selection_create(s.ctx, s.device, args, KILN__OPEN_IS_ALL, &s.selection);
  if (status != KILN_OK) goto done;
  if (s.selection.left_out > 0)
    kiln__note("combinations left out: %lld, the first because %s", (long long)s.selection.left_out,
               s.selection.reason);
  if (s.device < 0 && kiln__args_has(args, "--quick")) s.alone = KILN__TRIAL_ALONE;
  if (!kiln__args_has(args, "--case")) verify_refusals(&s);
  status = verify_kernels(&s);
  if (status == KILN_OK) status = summarize(&s);
  kiln__selection_destroy(&s.selection);
done:
  kiln_context_destroy(s.ctx);
  return status;
}

const kiln__verb kiln__verb_verify = {
    .name = "verify",
    .usage = "SELECTION [--device emu|cuda:N] [--quick]",
    .sentence = "Proves kernels right on difficult problems.",
    .flags = flags,
    .groups = KILN__TAKES_SELECTION | KILN__TAKES_DEVICE | KILN__TAKES_EMULATOR | KILN__OPEN_TO_ALL,
    .run = run,
};
