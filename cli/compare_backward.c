/* Comparing gradients with the reference, one key head with all its query heads after the other;
 * compare.h states the rule. */
#include "compare.h"

#include "out.h"
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Terms that add up to more than this times the gradient cancel: then what a kernel's rounding of
 * them leaves is judged against the terms. */
#define CANCELLING 2.0

enum { DQ, DK, DV, GRADIENTS };

const char *const kiln__gradient_names[GRADIENTS] = {"dq", "dk", "dv"};

/* Of one gradient so far: sums of squares. */
typedef struct tally {
  double error, norm, terms;
  double max_abs;
} tally;

typedef struct comparison {
  const kiln__inputs *in;
  const kiln__output *out;
  double *q, *k, *v, *dout; /* of one key head, dense */
  kiln__gradients wanted;
  tally tallies[GRADIENTS];
  int64_t heads; /* key heads compared */
} comparison;

/* ---- one key head ---- */

/* Dense (rows, heads, dim). */
static void decode(const kiln__inputs *in, const kiln__operand *x, int64_t batch, int64_t first,
                   int64_t heads, double *to) {
  const uint16_t *buffer = in->buffers[x->buffer];
  for (int64_t row = 0; row < x->rows; row++)
    for (int64_t h = first; h < first + heads; h++) {
      const uint16_t *from = buffer + kiln__operand_at(x, batch, row, h);
      for (int32_t col = 0; col < x->dim; col++) *to++ = kiln__decode(in->dtype, from[col]);
    }
}

/* A NaN that is wanted and found is right. */
static void add_element(double wanted, double found, tally *t) {
  if (isnan(wanted) && isnan(found)) return;
  const double error = fabs(found - wanted);
  if (error > t->max_abs || isnan(error)) t->max_abs = error;
  t->error += error * error;
  t->norm += wanted * wanted;
}

/* codes: packed (batch, rows, all heads, dim). */
static void tally_up(const kiln__inputs *in, const kiln__operand *x, const uint16_t *codes,
                     int64_t batch, int64_t first, int64_t heads, const double *wanted, tally *t) {
  for (int64_t row = 0; row < x->rows; row++)
    for (int64_t h = first; h < first + heads; h++) {
      const uint16_t *from = codes + ((batch * x->rows + row) * x->heads + h) * x->dim;
      for (int32_t col = 0; col < x->dim; col++)
        add_element(*wanted++, kiln__decode(in->dtype, from[col]), t);
    }
}

static kiln_status refer(comparison *c, int64_t batch, int64_t head_k, int64_t group) {
  const kiln__inputs *in = c->in;
  decode(in, &in->q, batch, head_k * group, group, c->q);
  decode(in, &in->dout, batch, head_k * group, group, c->dout);
  decode(in, &in->k, batch, head_k, 1, c->k);
  decode(in, &in->v, batch, head_k, 1, c->v);
  const kiln__reference problem = {
      .batch = 1,
      .seqlen_q = in->q.rows,
      .seqlen_k = in->k.rows,
      .num_heads = group,
      .num_heads_k = 1,
      .head_dim = in->q.dim,
      .head_dim_v = in->v.dim,
      .softmax_scale = in->softmax_scale < 0 ? 1 / sqrt(in->q.dim) : (double)in->softmax_scale,
      .causal = in->mask == KILN_MASK_CAUSAL,
      .q = c->q,
      .k = c->k,
      .v = c->v,
      .q_stride = kiln__stride_dense(in->q.rows, group, in->q.dim),
      .k_stride = kiln__stride_dense(in->k.rows, 1, in->q.dim),
      .v_stride = kiln__stride_dense(in->k.rows, 1, in->v.dim),
  };
  kiln__gradients wanted = c->wanted; /* its arrays stay this comparison's */
  const kiln_status status = kiln__reference_backward(&problem, c->dout, &wanted);
  c->wanted.dq_terms = wanted.dq_terms;
  c->wanted.dk_terms = wanted.dk_terms;
  return status;
}

static kiln_status compare_head(comparison *c, int64_t batch, int64_t head_k) {
  const kiln__inputs *in = c->in;
  const int64_t group = in->q.heads / in->k.heads;
  tally *t = c->tallies;
  kiln_status status = refer(c, batch, head_k, group);
  if (status != KILN_OK) return status;
  const uint16_t *const dqs[2] = {c->out->dq, c->out->dq_again};
  for (int i = 0; i < 2; i++) { /* a figure over both runs, as if they were one */
    if (!dqs[i]) continue;
    tally_up(in, &in->dq, dqs[i], batch, head_k * group, group, c->wanted.dq, &t[DQ]);
    t[DQ].terms += c->wanted.dq_terms * c->wanted.dq_terms;
  }
  tally_up(in, &in->dk, c->out->dk, batch, head_k, 1, c->wanted.dk, &t[DK]);
  t[DK].terms += c->wanted.dk_terms * c->wanted.dk_terms;
  tally_up(in, &in->dv, c->out->dv, batch, head_k, 1, c->wanted.dv, &t[DV]);
  c->heads++;
  return KILN_OK;
}

/* ---- which key heads ---- */

static int64_t choose(const kiln__inputs *in, double budget) {
  const int64_t total = (int64_t)in->k.batch * in->k.heads;
  const double rows = (double)in->q.rows * in->q.heads / in->k.heads;
  const double cost = rows * in->k.rows * (3.0 * in->q.dim + 2.0 * in->v.dim) + 1;
  if (budget == KILN__COMPARE_ALL || cost * (double)total <= budget) return total;
  const double heads = budget / cost;
  if (heads >= (double)total) return total;
  return heads >= 2 ? (int64_t)heads : total < 2 ? total : 2;
}

/* Both ends among them. */
static kiln_status compare_sample(comparison *c, int64_t count) {
  const int64_t heads_k = c->in->k.heads, total = (int64_t)c->in->k.batch * heads_k;
  kiln_status status = KILN_OK;
  for (int64_t i = 0; i < count && status == KILN_OK; i++) {
    const int64_t at =
        count > 1 ? (int64_t)((double)i * (double)(total - 1) / (double)(count - 1)) : 0;
    status = compare_head(c, at / heads_k, at % heads_k);
  }
  return status;
}

/* ---- the whole ---- */

static void *array(int64_t count) { return calloc((size_t)count + 1, sizeof(double)); }

static kiln_status allocate(comparison *c) {
  const kiln__inputs *in = c->in;
  const int64_t rows_q = (int64_t)in->q.rows * (in->q.heads / in->k.heads), rows_k = in->k.rows;
  c->q = array(rows_q * in->q.dim);
  c->k = array(rows_k * in->q.dim);
  c->v = array(rows_k * in->v.dim);
  c->dout = array(rows_q * in->v.dim);
  c->wanted.dq = array(rows_q * in->q.dim);
  c->wanted.dk = array(rows_k * in->q.dim);
  c->wanted.dv = array(rows_k * in->v.dim);
  const bool good = c->q && c->k && c->v && c->dout && c->wanted.dq && c->wanted.dk && c->wanted.dv;
  return good ? KILN_OK : KILN_OUT_OF_MEMORY;
}

static void release(comparison *c) {
  free(c->q), free(c->k), free(c->v), free(c->dout);
  free(c->wanted.dq), free(c->wanted.dk), free(c->wanted.dv);
}

static kiln__figure figure_of(const tally *t) {
  const double norm = sqrt(t->norm), terms = sqrt(t->terms);
  const double whole = terms > CANCELLING * norm ? terms : norm;
  kiln__figure f = {t->max_abs, t->error == 0 ? 0 : sqrt(t->error) / whole};
  if (!isfinite(t->max_abs)) f.max_abs_error = f.rel_rms_error = NAN;
  return f;
}

static double worse(double a, double b) { return isnan(a) || a > b ? a : b; }

static void measure(const comparison *c, kiln__figures *f) {
  const kiln__inputs *in = c->in;
  const int64_t rows = (int64_t)in->q.rows * (in->q.heads / in->k.heads);
  f->tolerance = kiln__tolerance_gradient((kiln__tensor_dtype)in->dtype, in->q.rows, in->k.rows);
  f->o_passes = f->lse_passes = true;
  for (int g = 0; g < GRADIENTS; g++) {
    f->gradients[g] = figure_of(&c->tallies[g]);
    f->max_abs_error = worse(f->gradients[g].max_abs_error, f->max_abs_error);
    f->rel_rms_error = worse(f->gradients[g].rel_rms_error, f->rel_rms_error);
    f->o_passes = f->o_passes && f->gradients[g].rel_rms_error <= f->tolerance;
  }
  f->checked_rows = c->heads * rows;
  f->rows = (int64_t)in->q.batch * in->q.heads * in->q.rows;
}

void kiln__figures_json(json_t *object, const kiln__figures *figures) {
  char name[64];
  for (int g = 0; g < GRADIENTS; g++) {
    const kiln__figure *f = &figures->gradients[g];
    snprintf(name, sizeof name, "%s_rel_rms_error", kiln__gradient_names[g]);
    json_object_set_new(object, name, kiln__json_number(f->rel_rms_error));
    snprintf(name, sizeof name, "%s_max_abs_error", kiln__gradient_names[g]);
    json_object_set_new(object, name, kiln__json_number(f->max_abs_error));
  }
}

kiln_status kiln__compare_backward(const kiln__inputs *inputs, const kiln__output *output,
                                   double budget, kiln__figures *figures) {
  comparison c = {.in = inputs, .out = output};
  *figures = (kiln__figures){0};
  kiln_status status = allocate(&c);
  if (status == KILN_OK) status = compare_sample(&c, choose(inputs, budget));
  if (status == KILN_OK) measure(&c, figures);
  release(&c);
  return status;
}
