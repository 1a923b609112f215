/* Proving kernels right; proof.h states the rule. */
#include "proof.h"

#include "answer.h"
#include "out.h"
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* By their ids in the table: odd lengths and GQA, fewer and more queries than keys (rows that see
 * none, under a causal mask), NaN behind the keys, slices of larger buffers, scores that rise by
 * hundreds and scores of 1e5. */
static const char *const chosen[] = {"F7",  "size-17x300", "size-300x65", "F1c",
                                     "F5c", "F5e",         "F12a",        "F12c"};

enum { CASES = sizeof chosen / sizeof chosen[0], SEED = 7 };

typedef struct proof_case {
  const char *id, *sentence;
  kiln__inputs inputs;
  kiln__answer wanted; /* empty for a backward pass */
} proof_case;

struct kiln__proof {
  int count;
  proof_case cases[CASES];
};

/* ---- the reference ---- */

static const kiln__problem *find(const char *id) {
  for (int i = 0; i < kiln__num_problems; i++)
    if (strcmp(kiln__problems[i].id, id) == 0) return &kiln__problems[i];
  return NULL;
}

static kiln_status create_case(const kiln__problem *problem, const kiln_attn_spec *spec,
                               proof_case *c) {
  c->id = problem->id;
  c->sentence = problem->sentence;
  kiln_status status = kiln__inputs_create(problem, spec, SEED, &c->inputs);
  if (status != KILN_OK || c->inputs.backward) return status;
  return kiln__answer_create(&c->inputs, &c->wanted);
}

kiln_status kiln__proof_create(const kiln_attn_spec *spec, bool on_gpu, kiln__proof **proof) {
  kiln__proof *made = calloc(1, sizeof *made);
  kiln_status status = made ? KILN_OK : KILN_OUT_OF_MEMORY;
  *proof = NULL;
  for (int i = 0; i < CASES && status == KILN_OK; i++) {
    const kiln__problem *whole = find(chosen[i]);
    if (!whole || !kiln__problem_fits(whole, spec, on_gpu)) continue;
    const kiln__problem problem = on_gpu ? *whole : kiln__problem_shrink(whole);
    status = create_case(&problem, spec, &made->cases[made->count++]);
  }
  if (status == KILN_OK) {
    *proof = made;
    return KILN_OK;
  }
  kiln__proof_destroy(made);
  return kiln__fail(status, "no memory is left for the reference");
}

void kiln__proof_destroy(kiln__proof *proof) {
  if (!proof) return;
  for (int i = 0; i < proof->count; i++) {
    kiln__inputs_destroy(&proof->cases[i].inputs);
    kiln__answer_destroy(&proof->cases[i].wanted);
  }
  free(proof);
}

/* ---- one kernel ---- */

/* An output within its tolerance; the figure is that of the worse one. */
static bool is_near(const proof_case *c, const kiln__output *output, double *error, double *limit) {
  const kiln__inputs *in = &c->inputs;
  const int64_t rows = (int64_t)in->q.batch * in->q.rows * in->q.heads;
  const int64_t count = rows * in->v.dim;
  float *found = calloc((size_t)count + 1, sizeof *found);
  *error = NAN;
  *limit = kiln__tolerance_o((kiln__tensor_dtype)in->dtype, in->k.rows);
  if (!found) return false;
  for (int64_t i = 0; i < count; i++) found[i] = kiln__decode(in->dtype, output->o[i]);
  *error = kiln__error_rel_rms(found, c->wanted.o, count);
  free(found);
  if (!(*error <= *limit)) return false;
  if (kiln__lse_passes(output->lse, c->wanted.lse, rows)) return true;
  *error = kiln__error_lse(output->lse, c->wanted.lse, rows);
  *limit = kiln__tolerance_lse(0);
  return false;
}

static void blame(kiln__verdict *verdict, const proof_case *c, const char *what) {
  verdict->right = false;
  snprintf(verdict->why, sizeof verdict->why, "%s (%s): %.300s", c->id, c->sentence, what);
}

/* The same of gradients, whose reference is made anew: it takes less than compiling a kernel. */
static bool are_near(const proof_case *c, const kiln__output *output, double *error,
                     double *limit) {
  kiln__figures figures = {0};
  *error = *limit = NAN;
  if (kiln__compare(&c->inputs, output, KILN__COMPARE_ALL, &figures) != KILN_OK) return false;
  *error = figures.rel_rms_error;
  *limit = figures.tolerance;
  return figures.o_passes;
}

static void judge(const proof_case *c, const kiln__trial *trial, kiln__verdict *verdict) {
  double error = 0, limit = 0;
  char text[128];
  if (trial->launch != KILN_OK || !trial->sound) {
    verdict->faulted = trial->launch == KILN_DRIVER_FAILED;
    blame(verdict, c, trial->sentence);
  } else if (!(c->inputs.backward ? are_near : is_near)(c, &trial->output, &error, &limit)) {
    snprintf(text, sizeof text, "error %.3g, tolerance %.3g", error, limit);
    blame(verdict, c, text);
  }
}

kiln_status kiln__proof_try(const kiln__proof *proof, kiln_context *ctx, kiln_plan *plan,
                            kiln__verdict *verdict) {
  *verdict = (kiln__verdict){.right = true};
  for (int i = 0; i < proof->count && verdict->right; i++) {
    kiln__trial trial;
    kiln_status status =
        kiln__trial_run(ctx, plan, &proof->cases[i].inputs, KILN__TRIAL_TWICE, &trial);
    if (status == KILN_DRIVER_FAILED) {
      verdict->faulted = true;
      blame(verdict, &proof->cases[i], kiln_last_error(ctx));
      return KILN_OK;
    }
    if (status != KILN_OK) return status;
    judge(&proof->cases[i], &trial, verdict);
    kiln__trial_destroy(&trial);
  }
  return KILN_OK;
}
