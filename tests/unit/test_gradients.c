/* The fp64 reference gradients against finite differences of the reference forward pass, and what
 * no difference shows: rows without a key, sizes of zero, keys that nobody sees; and the figures of
 * results beside them. */
#include "compare.h"
#include "reference.h"
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SPACE = 1024 }; /* doubles a tensor in these tests */

typedef struct bench {
  kiln__reference p;
  double q[SPACE], k[SPACE], v[SPACE], dout[SPACE];
  double o[SPACE], lse[SPACE], dq[SPACE], dk[SPACE], dv[SPACE];
  kiln__gradients g;
} bench;

/* Dense tensors of pseudo-random numbers in [-1, 1); results poisoned. */
static bench *make_bench(const int64_t sizes[7], bool causal) {
  bench *b = malloc(sizeof *b);
  uint64_t state = 88172645463325252u;
  ck_assert_ptr_nonnull(b);
  for (double *x = b->q; x < b->o; x++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    *x = (double)(state >> 11) * 0x1p-52 - 1;
  }
  for (double *x = b->o; x < b->dv + SPACE; x++) *x = NAN;
  b->p = (kiln__reference){.batch = sizes[0],
                           .seqlen_q = sizes[1],
                           .seqlen_k = sizes[2],
                           .num_heads = sizes[3],
                           .num_heads_k = sizes[4],
                           .head_dim = sizes[5],
                           .head_dim_v = sizes[6],
                           .softmax_scale = 0.7,
                           .causal = causal,
                           .q = b->q,
                           .k = b->k,
                           .v = b->v};
  b->p.q_stride = kiln__stride_dense(sizes[1], sizes[3], sizes[5]);
  b->p.k_stride = kiln__stride_dense(sizes[2], sizes[4], sizes[5]);
  b->p.v_stride = kiln__stride_dense(sizes[2], sizes[4], sizes[6]);
  b->g = (kiln__gradients){.dq = b->dq, .dk = b->dk, .dv = b->dv};
  return b;
}

static void run(bench *b) {
  ck_assert_int_eq(kiln__reference_backward(&b->p, b->dout, &b->g), KILN_OK);
}

static int64_t count_q(const bench *b) { return b->p.batch * b->p.seqlen_q * b->p.num_heads; }
static int64_t count_k(const bench *b) { return b->p.batch * b->p.seqlen_k * b->p.num_heads_k; }

/* sum(dout * o) */
static double loss(bench *b) {
  double sum = 0;
  ck_assert_int_eq(kiln__reference_forward(&b->p, b->o, b->lse), KILN_OK);
  for (int64_t i = 0; i < count_q(b) * b->p.head_dim_v; i++) sum += b->dout[i] * b->o[i];
  return sum;
}

static void expect_slope(bench *b, double *x, const double *gradient, int64_t count) {
  const double step = 1e-5;
  for (int64_t i = 0; i < count; i++) {
    const double kept = x[i];
    x[i] = kept + step;
    const double above = loss(b);
    x[i] = kept - step;
    const double below = loss(b);
    x[i] = kept;
    ck_assert_double_eq_tol(gradient[i], (above - below) / (2 * step), 1e-8);
  }
}

static const int64_t shapes[][7] = {
    {2, 7, 5, 6, 2, 9, 11}, {1, 1, 13, 4, 1, 8, 8}, {3, 5, 5, 2, 2, 6, 3}, {1, 3, 9, 21, 7, 7, 1}};

/* Even rows: not causal; odd: causal, the first with rows that see no key. */
START_TEST(agree_with_finite_differences) {
  bench *b = make_bench(shapes[_i / 2], _i % 2 == 1);
  run(b);
  expect_slope(b, b->q, b->dq, count_q(b) * b->p.head_dim);
  expect_slope(b, b->k, b->dk, count_k(b) * b->p.head_dim);
  expect_slope(b, b->v, b->dv, count_k(b) * b->p.head_dim_v);
  ck_assert(isnan(b->dq[count_q(b) * b->p.head_dim])); /* and nothing behind them */
  ck_assert(isnan(b->dk[count_k(b) * b->p.head_dim]));
  ck_assert(isnan(b->dv[count_k(b) * b->p.head_dim_v]));
  free(b);
}
END_TEST

/* Scores 0 and ln 3: weights 1/4 and 3/4, dP 8 and 4, delta 5, dS 3/4 and -3/4. */
START_TEST(two_keys_by_hand) {
  bench *b = make_bench((const int64_t[7]){1, 1, 2, 1, 1, 1, 1}, false);
  b->q[0] = 2, b->k[0] = 0, b->k[1] = log(3), b->v[0] = 8, b->v[1] = 4, b->dout[0] = 1;
  b->p.softmax_scale = 0.5;
  run(b);
  ck_assert_double_eq_tol(b->dv[0], 0.25, 1e-14);
  ck_assert_double_eq_tol(b->dv[1], 0.75, 1e-14);
  ck_assert_double_eq_tol(b->dk[0], 0.75, 1e-14);
  ck_assert_double_eq_tol(b->dk[1], -0.75, 1e-14);
  ck_assert_double_eq_tol(b->dq[0], -0.375 * log(3), 1e-14);
  /* 0.5 p (|dP| + |delta|) is 13/8 and 27/8. */
  ck_assert_double_eq_tol(b->g.dq_terms, 3.375 * log(3), 1e-13);
  ck_assert_double_eq_tol(b->g.dk_terms, 2 * hypot(1.625, 3.375), 1e-13);
  free(b);
}
END_TEST

/* One key takes the whole weight, so moving it moves nothing; the terms that cancel are there. */
START_TEST(one_key) {
  bench *b = make_bench((const int64_t[7]){1, 3, 1, 2, 1, 4, 5}, false);
  run(b);
  for (int i = 0; i < 3 * 2 * 4; i++) ck_assert_double_eq_tol(b->dq[i], 0, 1e-15);
  ck_assert_double_gt(b->g.dq_terms, 0.1);
  ck_assert_double_gt(b->g.dk_terms, 0.1);
  free(b);
}
END_TEST

/* Rows 0 and 1 of 4 see nothing of 2 keys. */
START_TEST(empty_rows_and_hidden_keys) {
  bench *b = make_bench((const int64_t[7]){1, 4, 2, 1, 1, 2, 2}, true);
  b->q[0] = b->q[3] = b->dout[1] = b->k[2] = NAN; /* key 1 is seen by row 3 alone */
  run(b);
  for (int i = 0; i < 4; i++) ck_assert_double_eq(b->dq[i], 0);
  ck_assert(isfinite(b->dq[4]) && isfinite(b->dq[5]));
  ck_assert(isnan(b->dq[6]));
  free(b);
}
END_TEST

START_TEST(zero_sizes) {
  const int64_t zeros[3] = {0, 1, 2};
  int64_t sizes[7] = {2, 3, 3, 2, 1, 2, 2};
  sizes[zeros[_i]] = 0;
  bench *b = make_bench(sizes, true);
  run(b);
  for (int64_t i = 0; i < count_q(b) * 2; i++) ck_assert_double_eq(b->dq[i], 0);
  for (int64_t i = 0; i < count_k(b) * 2; i++)
    ck_assert(b->dk[i] == 0 && b->dv[i] == 0); /* not poison */
  ck_assert(isnan(b->dq[count_q(b) * 2]));
  ck_assert(b->g.dq_terms == 0 && b->g.dk_terms == 0);
  free(b);
}
END_TEST

START_TEST(illegal_heads) {
  bench *b = make_bench((const int64_t[7]){1, 1, 1, 3, 2, 2, 2}, false);
  ck_assert_int_eq(kiln__reference_backward(&b->p, b->dout, &b->g), KILN_INVALID_ARGUMENT);
  free(b);
}
END_TEST

/* ---- figures ---- */

enum { DIM = 8, HEADS = 4, HEADS_K = 2 };

/* A problem, its reference, and results that are the reference rounded once. */
typedef struct results {
  kiln__inputs in;
  kiln__output out;
  kiln__gradients g;
  int64_t elements_q, elements_k;
} results;

static double *decoded(const kiln__inputs *in, int buffer) {
  double *made = calloc((size_t)in->lengths[buffer] + 1, sizeof *made);
  for (int64_t i = 0; i < in->lengths[buffer]; i++)
    made[i] = kiln__decode(in->dtype, in->buffers[buffer][i]);
  return made;
}

/* Codes of `factor` times the numbers. */
static void encode(const double *from, double factor, int64_t count, uint16_t *to) {
  for (int64_t i = 0; i < count; i++) to[i] = kiln__encode(KILN_DTYPE_BF16, from[i] * factor);
}

static void results_create(int32_t seqlen_q, int32_t seqlen_k, results *r) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  const kiln__problem problem = {.batch = 2,
                                 .seqlen_q = seqlen_q,
                                 .seqlen_k = seqlen_k,
                                 .num_heads = HEADS,
                                 .num_heads_k = HEADS_K};
  spec.pass = KILN_PASS_BACKWARD;
  spec.head_dim = spec.head_dim_v = DIM;
  *r = (results){.elements_q = 2 * seqlen_q * HEADS * DIM,
                 .elements_k = 2 * seqlen_k * HEADS_K * DIM};
  ck_assert_int_eq(kiln__inputs_create(&problem, &spec, 5, &r->in), KILN_OK);
  double *q = decoded(&r->in, 0), *k = decoded(&r->in, 1), *v = decoded(&r->in, 2);
  double *dout = decoded(&r->in, 3);
  const kiln__reference p = {.batch = 2,
                             .seqlen_q = seqlen_q,
                             .seqlen_k = seqlen_k,
                             .num_heads = HEADS,
                             .num_heads_k = HEADS_K,
                             .head_dim = DIM,
                             .head_dim_v = DIM,
                             .softmax_scale = 1 / sqrt(DIM),
                             .q = q,
                             .k = k,
                             .v = v,
                             .q_stride = r->in.q.stride,
                             .k_stride = r->in.k.stride,
                             .v_stride = r->in.v.stride};
  r->g.dq = calloc((size_t)r->elements_q, sizeof(double));
  r->g.dk = calloc((size_t)r->elements_k, sizeof(double));
  r->g.dv = calloc((size_t)r->elements_k, sizeof(double));
  ck_assert_int_eq(kiln__reference_backward(&p, dout, &r->g), KILN_OK);
  r->out.dq = calloc((size_t)r->elements_q, sizeof(uint16_t));
  r->out.dk = calloc((size_t)r->elements_k, sizeof(uint16_t));
  r->out.dv = calloc((size_t)r->elements_k, sizeof(uint16_t));
  encode(r->g.dq, 1, r->elements_q, r->out.dq);
  encode(r->g.dk, 1, r->elements_k, r->out.dk);
  encode(r->g.dv, 1, r->elements_k, r->out.dv);
  free(q), free(k), free(v), free(dout);
}

static void results_destroy(results *r) {
  free(r->g.dq), free(r->g.dk), free(r->g.dv);
  free(r->out.dq), free(r->out.dk), free(r->out.dv);
  kiln__inputs_destroy(&r->in);
}

static kiln__figures figures_of(const results *r, double budget) {
  kiln__figures f;
  ck_assert_int_eq(kiln__compare(&r->in, &r->out, budget, &f), KILN_OK);
  return f;
}

/* An error of 2 % shows as that, in the one tensor that has it, although dq's and dk's terms add up
 * to more than the gradients. */
START_TEST(an_error_is_relative_to_the_gradient) {
  results r;
  results_create(40, 50, &r);
  kiln__figures f = figures_of(&r, KILN__COMPARE_ALL);
  ck_assert(f.o_passes);
  ck_assert_int_eq(f.checked_rows, 2 * 40 * HEADS);
  encode(r.g.dq, 1.02, r.elements_q, r.out.dq);
  f = figures_of(&r, KILN__COMPARE_ALL);
  ck_assert_double_eq_tol(f.gradients[0].rel_rms_error, 0.02, 0.0005);
  ck_assert_double_lt(f.gradients[1].rel_rms_error, 0.003);
  ck_assert_double_eq(f.rel_rms_error, f.gradients[0].rel_rms_error);
  ck_assert(!f.o_passes);
  encode(r.g.dq, 1, r.elements_q, r.out.dq);
  encode(r.g.dv, 1.02, r.elements_k, r.out.dv);
  f = figures_of(&r, KILN__COMPARE_ALL);
  ck_assert_double_eq_tol(f.gradients[2].rel_rms_error, 0.02, 0.0005);
  ck_assert(!f.o_passes);
  results_destroy(&r);
}
END_TEST

/* One key: dq is 0, and what a kernel leaves of its terms is judged against them. */
START_TEST(what_cancels_is_judged_by_its_terms) {
  results r;
  results_create(40, 1, &r);
  const double element = r.g.dq_terms / sqrt((double)r.elements_q);
  ck_assert_double_gt(element, 0.1);
  for (int i = 0; i < 2; i++) {
    const double part = i ? 0.01 : 0.002;
    for (int64_t e = 0; e < r.elements_q; e++) r.g.dq[e] = part * element;
    encode(r.g.dq, 1, r.elements_q, r.out.dq);
    const kiln__figures f = figures_of(&r, KILN__COMPARE_ALL);
    ck_assert_double_eq_tol(f.gradients[0].rel_rms_error, part, 0.05 * part);
    ck_assert(f.o_passes == (i == 0));
  }
  results_destroy(&r);
}
END_TEST

START_TEST(a_nan_never_passes_and_corners_are_sampled) {
  results r;
  results_create(40, 50, &r);
  uint16_t *const tensors[3] = {r.out.dq, r.out.dk, r.out.dv};
  for (int t = 0; t < 3; t++)
    for (int end = 0; end < 2; end++) {
      const int64_t last = (t == 0 ? r.elements_q : r.elements_k) - 1;
      uint16_t *element = &tensors[t][end ? last : 0], right = *element;
      *element = 0x7fc0;
      const kiln__figures f = figures_of(&r, 1); /* two of the four key heads */
      ck_assert_int_eq(f.checked_rows, 40 * HEADS);
      ck_assert(!f.o_passes && isnan(f.gradients[t].rel_rms_error));
      *element = right;
    }
  ck_assert(figures_of(&r, 1).o_passes);
  r.out.dq_again = calloc((size_t)r.elements_q, sizeof(uint16_t)); /* the second run gave zeros */
  ck_assert(!figures_of(&r, 1).o_passes);
  free(r.out.dq_again);
  results_destroy(&r);
}
END_TEST

Suite *suite_gradients(void) {
  Suite *suite = suite_create("gradients");
  TCase *cases = tcase_create("gradients");
  tcase_add_loop_test(cases, agree_with_finite_differences, 0, 8);
  tcase_add_test(cases, two_keys_by_hand);
  tcase_add_test(cases, one_key);
  tcase_add_test(cases, empty_rows_and_hidden_keys);
  tcase_add_loop_test(cases, zero_sizes, 0, 3);
  tcase_add_test(cases, illegal_heads);
  tcase_add_test(cases, an_error_is_relative_to_the_gradient);
  tcase_add_test(cases, what_cancels_is_judged_by_its_terms);
  tcase_add_test(cases, a_nan_never_passes_and_corners_are_sampled);
  suite_add_tcase(suite, cases);
  return suite;
}
