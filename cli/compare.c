/* Comparing with the reference, one (batch, head, range of rows) after the other; compare.h states
 * the rule. Each is handed to the reference as a dense problem of one sequence and one head. */
#include "compare.h"

#include "reference.h"

#include <math.h>
#include <stdlib.h>

enum {
  SPAN_ROWS = 64,   /* of a head that is too large to be compared whole */
  UNIT_COST = 50000 /* multiplications that starting one unit's threads is worth */
};

/* What was compared so far, row after row. */
typedef struct comparison {
  const kiln__inputs *in;
  const kiln__output *out;
  double *q, *k, *v; /* one unit's, dense */
  double *o_wanted, *lse_wanted;
  float *o_found, *lse_found;
  int64_t rows; /* compared */
  int64_t unit_rows;
  bool exact;
} comparison;

static void decode(const kiln__inputs *in, const kiln__operand *x, int64_t batch, int64_t head,
                   int64_t first, int64_t rows, double *to) {
  const uint16_t *buffer = in->buffers[x->buffer];
  for (int64_t row = 0; row < rows; row++) {
    const uint16_t *from = buffer + kiln__operand_at(x, batch, first + row, head);
    for (int32_t col = 0; col < x->dim; col++) *to++ = kiln__decode(in->dtype, from[col]);
  }
}

/* Rows first .. first+rows of one head see the keys before `keys` at most: with that many keys the
 * reference's own bottom-right alignment is theirs. */
static kiln_status refer(comparison *c, int64_t batch, int64_t head, int64_t first, int64_t rows) {
  const kiln__inputs *in = c->in;
  bool causal = in->mask == KILN_MASK_CAUSAL;
  int64_t head_k = head / (in->q.heads / in->k.heads);
  int64_t keys = causal ? in->k.rows - in->q.rows + first + rows : in->k.rows;
  if (keys < 0) keys = 0;
  decode(in, &in->q, batch, head, first, rows, c->q);
  decode(in, &in->k, batch, head_k, 0, keys, c->k);
  decode(in, &in->v, batch, head_k, 0, keys, c->v);
  kiln__reference problem = {
      .batch = 1,
      .seqlen_q = rows,
      .seqlen_k = keys,
      .num_heads = 1,
      .num_heads_k = 1,
      .head_dim = in->q.dim,
      .head_dim_v = in->v.dim,
      .softmax_scale = in->softmax_scale < 0 ? 1 / sqrt(in->q.dim) : (double)in->softmax_scale,
      .causal = causal,
      .q = c->q,
      .k = c->k,
      .v = c->v,
      .q_stride = kiln__stride_dense(rows, 1, in->q.dim),
      .k_stride = kiln__stride_dense(keys, 1, in->q.dim),
      .v_stride = kiln__stride_dense(keys, 1, in->v.dim),
  };
  return kiln__reference_forward(&problem, c->o_wanted + c->rows * in->v.dim,
                                 c->lse_wanted + c->rows);
}

/* A NaN that is wanted and found is right: both become 0, which every figure passes over. */
static void settle_nan(double *wanted, float *found) {
  if (!isnan(*wanted) || !isnan(*found)) return;
  *wanted = 0;
  *found = 0;
}

static void gather(comparison *c, int64_t batch, int64_t head, int64_t first, int64_t rows) {
  const kiln__inputs *in = c->in;
  int64_t dim = in->v.dim;
  for (int64_t row = first; row < first + rows; row++, c->rows++) {
    const uint16_t *codes = c->out->o + ((batch * in->q.rows + row) * in->q.heads + head) * dim;
    double *wanted = c->o_wanted + c->rows * dim;
    float *found = c->o_found + c->rows * dim;
    for (int64_t col = 0; col < dim; col++) {
      found[col] = kiln__decode(in->dtype, codes[col]);
      settle_nan(&wanted[col], &found[col]);
      float once = kiln__decode(in->dtype, kiln__encode(in->dtype, wanted[col]));
      if (found[col] != once) c->exact = false;
    }
    if (!c->out->lse) continue;
    c->lse_found[c->rows] = c->out->lse[(batch * in->q.heads + head) * in->q.rows + row];
    settle_nan(&c->lse_wanted[c->rows], &c->lse_found[c->rows]);
  }
}

static kiln_status compare(comparison *c, int64_t batch, int64_t head, int64_t first,
                           int64_t rows) {
  kiln_status status = refer(c, batch, head, first, rows);
  if (status == KILN_OK) gather(c, batch, head, first, rows);
  return status;
}

/* ---- which rows ---- */

typedef struct sample {
  int64_t heads_total; /* batch * num_heads */
  int64_t heads;       /* compared, spread evenly */
  int64_t spans;       /* of each: 1 = the whole head */
  int64_t span_rows;
} sample;

static sample choose(const kiln__inputs *in, double budget) {
  int64_t rows = in->q.rows;
  double row_cost = (double)in->k.rows * (in->q.dim + in->v.dim) + in->q.dim + in->v.dim;
  sample s = {.heads_total = (int64_t)in->q.batch * in->q.heads, .spans = 1, .span_rows = rows};
  s.heads = s.heads_total;
  if (rows == 0) s.heads = 0;
  if (budget == KILN__COMPARE_ALL ||
      (row_cost * (double)rows + UNIT_COST) * (double)s.heads <= budget)
    return s;
  if (rows > 4 * SPAN_ROWS) {
    s.spans = 3;
    s.span_rows = SPAN_ROWS;
  }
  double heads = budget / (row_cost * (double)(s.spans * s.span_rows) + UNIT_COST);
  if (heads < (double)s.heads) s.heads = heads < 2 ? 2 : (int64_t)heads;
  if (s.heads > s.heads_total) s.heads = s.heads_total;
  return s;
}

/* Item i of n places spread over 0 .. total-1, both ends among them. */
static int64_t spread(int64_t i, int64_t n, int64_t total) {
  return n > 1 ? (int64_t)((double)i * (double)(total - 1) / (double)(n - 1)) : 0;
}

static kiln_status compare_sample(comparison *c, const sample *s) {
  int64_t num_heads = c->in->q.heads;
  for (int64_t i = 0; i < s->heads; i++) {
    int64_t head = spread(i, s->heads, s->heads_total);
    for (int64_t j = 0; j < s->spans; j++) {
      int64_t first = spread(j, s->spans, c->in->q.rows - s->span_rows + 1);
      kiln_status status = compare(c, head / num_heads, head % num_heads, first, s->span_rows);
      if (status != KILN_OK) return status;
    }
  }
  return KILN_OK;
}

/* ---- the whole ---- */

static void *array(int64_t count, size_t size) { return calloc((size_t)count + 1, size); }

static kiln_status allocate(comparison *c, const sample *s) {
  const kiln__inputs *in = c->in;
  int64_t rows = s->heads * s->spans * s->span_rows;
  c->q = array(s->span_rows * in->q.dim, sizeof *c->q);
  c->k = array((int64_t)in->k.rows * in->q.dim, sizeof *c->k);
  c->v = array((int64_t)in->k.rows * in->v.dim, sizeof *c->v);
  c->o_wanted = array(rows * in->v.dim, sizeof *c->o_wanted);
  c->o_found = array(rows * in->v.dim, sizeof *c->o_found);
  c->lse_wanted = array(rows, sizeof *c->lse_wanted);
  c->lse_found = array(rows, sizeof *c->lse_found);
  bool good = c->q && c->k && c->v && c->o_wanted && c->o_found && c->lse_wanted && c->lse_found;
  return good ? KILN_OK : KILN_OUT_OF_MEMORY;
}

static void release(comparison *c) {
  free(c->q), free(c->k), free(c->v);
  free(c->o_wanted), free(c->o_found);
  free(c->lse_wanted), free(c->lse_found);
}

static void measure(const comparison *c, kiln__figures *f) {
  int64_t elements = c->rows * c->in->v.dim;
  f->max_abs_error = kiln__error_max_abs(c->o_found, c->o_wanted, elements);
  f->rel_rms_error = kiln__error_rel_rms(c->o_found, c->o_wanted, elements);
  f->tolerance = kiln__tolerance_o((kiln__tensor_dtype)c->in->dtype, c->in->k.rows);
  f->o_passes = f->rel_rms_error <= f->tolerance;
  f->exact_passes = c->exact;
  f->lse_passes = true;
  f->checked_rows = c->rows;
  f->rows = (int64_t)c->in->q.batch * c->in->q.heads * c->in->q.rows;
  if (!c->out->lse) return;
  f->lse_max_abs_error = kiln__error_lse(c->lse_found, c->lse_wanted, c->rows);
  f->lse_passes = kiln__lse_passes(c->lse_found, c->lse_wanted, c->rows);
}

kiln_status kiln__compare(const kiln__inputs *inputs, const kiln__output *output, double budget,
                          kiln__figures *figures) {
  if (inputs->backward) return kiln__compare_backward(inputs, output, budget, figures);
  comparison c = {.in = inputs, .out = output, .exact = true};
  sample s = choose(inputs, budget);
  *figures = (kiln__figures){0};
  kiln_status status = allocate(&c, &s);
  if (status == KILN_OK) status = compare_sample(&c, &s);
  if (status == KILN_OK) measure(&c, figures);
  release(&c);
  return status;
}
