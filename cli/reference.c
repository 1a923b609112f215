/* The fp64 reference forward pass and the error figures; reference.h states what they mean.
 *
 * Each row is done in two plain passes, scores first, then the weighted sum: no tiles, no running
 * maximum, nothing to get wrong. Rows are dealt to the threads in turn, which balances a causal
 * mask, and no row depends on another, so the number of threads changes no bit. */
#include "reference.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct share {
  const kiln__reference *problem;
  double *o, *lse, *scores; /* scores: seqlen_k, this share's own */
  int64_t first, step;      /* rows first, first + step, ... of all batches and heads */
} share;

kiln_stride kiln__stride_dense(int64_t seqlen, int64_t num_heads, int64_t head_dim) {
  return (kiln_stride){
      .batch = seqlen * num_heads * head_dim, .row = num_heads * head_dim, .head = head_dim};
}

int64_t kiln__reference_seen(const kiln__reference *p, int64_t row) {
  int64_t seen = p->causal ? row + p->seqlen_k - p->seqlen_q + 1 : p->seqlen_k;
  return seen < 0 ? 0 : seen < p->seqlen_k ? seen : p->seqlen_k;
}

/* Four partial sums: one would make each addition wait for the last (four times slower). */
double kiln__reference_dot(const double *a, const double *b, int64_t count) {
  double sum[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (int j = 0; j < 4; j++) sum[j] += a[i + j] * b[i + j];
  for (; i < count; i++) sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void attend(const share *s, int64_t batch, int64_t head, int64_t row) {
  const kiln__reference *p = s->problem;
  int64_t head_k = head / (p->num_heads / p->num_heads_k);
  const double *q =
      p->q + batch * p->q_stride.batch + row * p->q_stride.row + head * p->q_stride.head;
  const double *k = p->k + batch * p->k_stride.batch + head_k * p->k_stride.head;
  const double *v = p->v + batch * p->v_stride.batch + head_k * p->v_stride.head;
  double *o = s->o + ((batch * p->seqlen_q + row) * p->num_heads + head) * p->head_dim_v;
  double maximum = -INFINITY, sum = 0;
  int64_t seen = kiln__reference_seen(p, row);

  for (int64_t j = 0; j < seen; j++) {
    s->scores[j] = p->softmax_scale * kiln__reference_dot(q, k + j * p->k_stride.row, p->head_dim);
    if (s->scores[j] > maximum) maximum = s->scores[j];
  }
  for (int64_t d = 0; d < p->head_dim_v; d++) o[d] = 0;
  for (int64_t j = 0; j < seen; j++) {
    double weight = exp(s->scores[j] - maximum);
    sum += weight;
    for (int64_t d = 0; d < p->head_dim_v; d++) o[d] += weight * v[j * p->v_stride.row + d];
  }
  for (int64_t d = 0; seen > 0 && d < p->head_dim_v; d++) o[d] /= sum;
  s->lse[(batch * p->num_heads + head) * p->seqlen_q + row] =
      seen > 0 ? maximum + log(sum) : -INFINITY;
}

static void *attend_share(void *argument) {
  const share *s = argument;
  const kiln__reference *p = s->problem;
  int64_t rows = p->batch * p->num_heads * p->seqlen_q;
  for (int64_t i = s->first; i < rows; i += s->step)
    attend(s, i / p->seqlen_q / p->num_heads, i / p->seqlen_q % p->num_heads, i % p->seqlen_q);
  return NULL;
}

int64_t kiln__reference_threads(int64_t parts) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int64_t threads = cores < 1                         ? 1
                    : cores < KILN__REFERENCE_THREADS ? cores
                                                      : KILN__REFERENCE_THREADS;
  return parts < 1 ? 1 : parts < threads ? parts : threads;
}

bool kiln__reference_is_legal(const kiln__reference *p) {
  return p->batch >= 0 && p->seqlen_q >= 0 && p->seqlen_k >= 0 && p->num_heads >= 0 &&
         p->num_heads_k > 0 && p->num_heads % p->num_heads_k == 0 && p->head_dim >= 0 &&
         p->head_dim_v >= 0;
}

/* A thread that cannot be started has its share done here instead. */
kiln_status kiln__reference_forward(const kiln__reference *problem, double *o, double *lse) {
  pthread_t threads[KILN__REFERENCE_THREADS];
  bool started[KILN__REFERENCE_THREADS] = {false};
  share shares[KILN__REFERENCE_THREADS];
  if (!kiln__reference_is_legal(problem)) return KILN_INVALID_ARGUMENT;
  int64_t count = kiln__reference_threads(problem->batch * problem->num_heads * problem->seqlen_q);
  double *scores = calloc((size_t)(count * (problem->seqlen_k + 1)), sizeof *scores);
  if (!scores) return KILN_OUT_OF_MEMORY;
  for (int64_t t = 0; t < count; t++) {
    shares[t] = (share){problem, o, lse, scores + t * problem->seqlen_k, t, count};
    started[t] = t > 0 && pthread_create(&threads[t], NULL, attend_share, &shares[t]) == 0;
  }
  for (int64_t t = 0; t < count; t++)
    if (!started[t]) attend_share(&shares[t]);
  for (int64_t t = 0; t < count; t++)
    if (started[t]) pthread_join(threads[t], NULL);
  free(scores);
  return KILN_OK;
}

/* ---- errors ---- */

double kiln__error_max_abs(const float *result, const double *reference, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) {
    double error = fabs((double)result[i] - reference[i]);
    if (!isfinite(error)) return NAN;
    largest = error > largest ? error : largest;
  }
  return largest;
}

double kiln__error_rel_rms(const float *result, const double *reference, int64_t count) {
  double error = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    double difference = (double)result[i] - reference[i];
    if (!isfinite(difference)) return NAN;
    error += difference * difference;
    norm += reference[i] * reference[i];
  }
  return error == 0 ? 0 : sqrt(error) / sqrt(norm);
}

static double lse_difference(float result, double reference) {
  bool both_empty = isinf(result) && result < 0 && isinf(reference) && reference < 0;
  return both_empty ? 0 : fabs((double)result - reference);
}

double kiln__error_lse(const float *result, const double *reference, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) {
    double error = lse_difference(result[i], reference[i]);
    if (isnan(error)) return NAN;
    largest = error > largest ? error : largest;
  }
  return largest;
}

/* ---- tolerances: docs/numerics.md says where the numbers come from ---- */

double kiln__tolerance_o(kiln__tensor_dtype dtype, int64_t seqlen_k) {
  if (dtype == KILN__TENSOR_BF16) return seqlen_k >= 64 ? 2.8e-3 : 4e-3;
  return dtype == KILN__TENSOR_FP16 ? 6e-4 : NAN;
}

double kiln__tolerance_gradient(kiln__tensor_dtype dtype, int64_t seqlen_q, int64_t seqlen_k) {
  const int few = seqlen_q < 64 || seqlen_k < 64; /* errors do not average out */
  if (dtype == KILN__TENSOR_BF16) return few ? 6e-3 : 4e-3;
  return dtype == KILN__TENSOR_FP16 ? (few ? 8e-4 : 6e-4) : NAN;
}

/* An empty row's LSE has to match exactly, so that its tolerance is 0 and not infinite. */
double kiln__tolerance_lse(double lse) { return isinf(lse) ? 0 : 1e-3 + 1e-5 * fabs(lse); }

bool kiln__lse_passes(const float *result, const double *reference, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    if (!(lse_difference(result[i], reference[i]) <= kiln__tolerance_lse(reference[i])))
      return false;
  return true;
}
