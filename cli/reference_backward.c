/* The fp64 reference gradients; reference.h states what they mean.
 *
 * Each row is done by the formulas as they stand: its weights p, then dP = dO Vᵀ, then delta = the
 * mean of dP under p, then dS = p (dP - delta). A key head, with all rows of its query heads,
 * belongs to one thread, so that no sum is shared and the number of threads changes no bit. */
#include "reference.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct share {
  const kiln__reference *problem;
  const double *dout;
  const kiln__gradients *to;
  double *p, *dp;              /* seqlen_k each, this share's own */
  int64_t first, step;         /* key heads first, first + step, ... of all batches */
  double *dq_terms, *dk_terms; /* squares, one a key head: summed in order afterwards */
} share;

/* One row of one query head, with where its gradients go. */
typedef struct row {
  const double *q, *dout, *k, *v;
  double *dq, *dk, *dv;
  double q_square;
  int64_t seen, dim, dim_v;
  int64_t k_step, v_step, dk_step, dv_step; /* from key to key */
} row;

/* The weights of a row, which sum to 1. */
static void weigh(const row *r, double scale, double *p) {
  double maximum = -INFINITY, sum = 0;
  for (int64_t j = 0; j < r->seen; j++) {
    p[j] = scale * kiln__reference_dot(r->q, r->k + j * r->k_step, r->dim);
    if (p[j] > maximum) maximum = p[j];
  }
  for (int64_t j = 0; j < r->seen; j++) sum += p[j] = exp(p[j] - maximum);
  for (int64_t j = 0; j < r->seen; j++) p[j] /= sum;
}

/* Adds one key's part to all three gradients; size: what dS would be without cancelling. */
static void add_key(const row *r, int64_t j, double p, double ds, double size, double *dq_terms,
                    double *dk_terms) {
  const double *k = r->k + j * r->k_step;
  double *dk = r->dk + j * r->dk_step, *dv = r->dv + j * r->dv_step;
  for (int64_t d = 0; d < r->dim; d++) {
    r->dq[d] += ds * k[d];
    dk[d] += ds * r->q[d];
  }
  for (int64_t d = 0; d < r->dim_v; d++) dv[d] += p * r->dout[d];
  *dq_terms += size * size * kiln__reference_dot(k, k, r->dim);
  *dk_terms += size * size * r->q_square;
}

static void differentiate(const share *s, const row *r, int64_t index) {
  const double scale = s->problem->softmax_scale;
  double delta = 0;
  weigh(r, scale, s->p);
  for (int64_t j = 0; j < r->seen; j++) {
    s->dp[j] = kiln__reference_dot(r->dout, r->v + j * r->v_step, r->dim_v);
    delta += s->p[j] * s->dp[j];
  }
  for (int64_t j = 0; j < r->seen; j++)
    add_key(r, j, s->p[j], scale * s->p[j] * (s->dp[j] - delta),
            scale * s->p[j] * (fabs(s->dp[j]) + fabs(delta)), &s->dq_terms[index],
            &s->dk_terms[index]);
}

static void do_row(const share *s, int64_t batch, int64_t head, int64_t i, int64_t index) {
  const kiln__reference *p = s->problem;
  const int64_t head_k = head / (p->num_heads / p->num_heads_k), heads_k = p->num_heads_k;
  const int64_t query = (batch * p->seqlen_q + i) * p->num_heads + head;
  const int64_t key = batch * p->seqlen_k * heads_k + head_k;
  row r = {
      .q = p->q + batch * p->q_stride.batch + i * p->q_stride.row + head * p->q_stride.head,
      .dout = s->dout + query * p->head_dim_v,
      .k = p->k + batch * p->k_stride.batch + head_k * p->k_stride.head,
      .v = p->v + batch * p->v_stride.batch + head_k * p->v_stride.head,
      .dq = s->to->dq + query * p->head_dim,
      .dk = s->to->dk + key * p->head_dim,
      .dv = s->to->dv + key * p->head_dim_v,
      .seen = kiln__reference_seen(p, i),
      .dim = p->head_dim,
      .dim_v = p->head_dim_v,
      .k_step = p->k_stride.row,
      .v_step = p->v_stride.row,
      .dk_step = heads_k * p->head_dim,
      .dv_step = heads_k * p->head_dim_v,
  };
  r.q_square = kiln__reference_dot(r.q, r.q, r.dim);
  differentiate(s, &r, index);
}

static void *do_share(void *argument) {
  const share *s = argument;
  const kiln__reference *p = s->problem;
  const int64_t group = p->num_heads / p->num_heads_k;
  for (int64_t index = s->first; index < p->batch * p->num_heads_k; index += s->step)
    for (int64_t h = 0; h < group; h++)
      for (int64_t i = 0; i < p->seqlen_q; i++)
        do_row(s, index / p->num_heads_k, index % p->num_heads_k * group + h, i, index);
  return NULL;
}

/* A thread that cannot be started has its share done here instead. */
static void run_shares(share *shares, int64_t count) {
  pthread_t threads[KILN__REFERENCE_THREADS];
  bool started[KILN__REFERENCE_THREADS] = {false};
  for (int64_t t = 1; t < count; t++)
    started[t] = pthread_create(&threads[t], NULL, do_share, &shares[t]) == 0;
  for (int64_t t = 0; t < count; t++)
    if (!started[t]) do_share(&shares[t]);
  for (int64_t t = 0; t < count; t++)
    if (started[t]) pthread_join(threads[t], NULL);
}

static void clear(const kiln__reference *p, const kiln__gradients *g) {
  const size_t rows_q = (size_t)(p->batch * p->seqlen_q * p->num_heads);
  const size_t rows_k = (size_t)(p->batch * p->seqlen_k * p->num_heads_k);
  memset(g->dq, 0, rows_q * (size_t)p->head_dim * sizeof *g->dq);
  memset(g->dk, 0, rows_k * (size_t)p->head_dim * sizeof *g->dk);
  memset(g->dv, 0, rows_k * (size_t)p->head_dim_v * sizeof *g->dv);
}

kiln_status kiln__reference_backward(const kiln__reference *problem, const double *dout,
                                     kiln__gradients *gradients) {
  share shares[KILN__REFERENCE_THREADS];
  if (!kiln__reference_is_legal(problem)) return KILN_INVALID_ARGUMENT;
  const int64_t heads = problem->batch * problem->num_heads_k,
                count = kiln__reference_threads(heads);
  const int64_t keys = problem->seqlen_k;
  double *rows = calloc((size_t)(2 * count * keys + 2 * heads + 1), sizeof *rows);
  if (!rows) return KILN_OUT_OF_MEMORY;
  double *dq_terms = rows + 2 * count * keys, *dk_terms = dq_terms + heads;
  clear(problem, gradients);
  for (int64_t t = 0; t < count; t++) {
    double *own = rows + 2 * t * keys;
    shares[t] = (share){problem, dout, gradients, own, own + keys, t, count, dq_terms, dk_terms};
  }
  run_shares(shares, count);
  gradients->dq_terms = gradients->dk_terms = 0;
  for (int64_t i = 0; i < heads; i++) {
    gradients->dq_terms += dq_terms[i];
    gradients->dk_terms += dk_terms[i];
  }
  gradients->dq_terms = sqrt(gradients->dq_terms);
  gradients->dk_terms = sqrt(gradients->dk_terms);
  free(rows);
  return KILN_OK;
}
