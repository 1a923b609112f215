/* The fp64 reference against closed forms, a differently built sum, and a real model's outputs; and
 * the error figures that every verdict rests on. */
#include "reference.h"
#include "suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPACE = 4096 }; /* doubles a tensor in these tests */

typedef struct bench {
  kiln__reference p;
  double q[SPACE], k[SPACE], v[SPACE], o[SPACE], lse[SPACE];
} bench;

/* Dense tensors of pseudo-random numbers in [-2, 2); o and lse poisoned. */
static bench *make_bench(const int64_t sizes[7]) {
  bench *b = malloc(sizeof *b);
  uint64_t state = 88172645463325252u;
  ck_assert_ptr_nonnull(b);
  for (double *x = b->q; x < b->o; x++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    *x = (double)(state >> 11) * 0x1p-51 - 2;
  }
  for (double *x = b->o; x < b->lse + SPACE; x++) *x = NAN;
  b->p = (kiln__reference){.batch = sizes[0],
                           .seqlen_q = sizes[1],
                           .seqlen_k = sizes[2],
                           .num_heads = sizes[3],
                           .num_heads_k = sizes[4],
                           .head_dim = sizes[5],
                           .head_dim_v = sizes[6],
                           .softmax_scale = 0.3,
                           .q = b->q,
                           .k = b->k,
                           .v = b->v};
  b->p.q_stride = kiln__stride_dense(sizes[1], sizes[3], sizes[5]);
  b->p.k_stride = kiln__stride_dense(sizes[2], sizes[4], sizes[5]);
  b->p.v_stride = kiln__stride_dense(sizes[2], sizes[4], sizes[6]);
  return b;
}

static void run(bench *b) {
  ck_assert_int_eq(kiln__reference_forward(&b->p, b->o, b->lse), KILN_OK);
}

static void fill(double *x, int64_t count, double value) {
  for (int64_t i = 0; i < count; i++) x[i] = value;
}

/* One element by the textbook formula in long double, without a maximum: scores here are small. */
static void expect_element(const bench *b, int64_t n, int64_t h, int64_t i, int64_t d) {
  const kiln__reference *p = &b->p;
  int64_t hk = h * p->num_heads_k / p->num_heads;
  long double above = 0, below = 0;
  for (int64_t j = 0; j < p->seqlen_k; j++) {
    long double score = 0;
    if (p->causal && j > i + p->seqlen_k - p->seqlen_q) continue;
    for (int64_t c = 0; c < p->head_dim; c++)
      score += (long double)b->q[((n * p->seqlen_q + i) * p->num_heads + h) * p->head_dim + c] *
               b->k[((n * p->seqlen_k + j) * p->num_heads_k + hk) * p->head_dim + c];
    long double weight = expl(score * p->softmax_scale);
    below += weight;
    above += weight * b->v[((n * p->seqlen_k + j) * p->num_heads_k + hk) * p->head_dim_v + d];
  }
  double o = b->o[((n * p->seqlen_q + i) * p->num_heads + h) * p->head_dim_v + d];
  double lse = b->lse[(n * p->num_heads + h) * p->seqlen_q + i];
  ck_assert_double_eq_tol(o, below > 0 ? (double)(above / below) : 0, 1e-13);
  if (below > 0)
    ck_assert_double_eq_tol(lse, (double)logl(below), 1e-13);
  else
    ck_assert(isinf(lse) && lse < 0);
}

static const int64_t shapes[][7] = {
    {2, 7, 5, 6, 2, 9, 11}, {1, 1, 13, 4, 1, 8, 8}, {3, 5, 5, 2, 2, 6, 3}, {1, 3, 9, 21, 7, 7, 1}};

/* Even rows: not causal; odd: causal. head_dim 6, 7, 9 leave a tail to the four partial sums. */
START_TEST(agrees_with_the_formula) {
  bench *b = make_bench(shapes[_i / 2]);
  const kiln__reference *p = &b->p;
  b->p.causal = _i % 2 == 1;
  run(b);
  for (int64_t n = 0; n < p->batch; n++)
    for (int64_t h = 0; h < p->num_heads; h++)
      for (int64_t i = 0; i < p->seqlen_q; i++)
        for (int64_t d = 0; d < p->head_dim_v; d++) expect_element(b, n, h, i, d);
  free(b);
}
END_TEST

START_TEST(equal_scores_give_the_mean) {
  bench *b = make_bench((const int64_t[7]){1, 2, 4, 1, 1, 8, 1});
  const double v[4] = {1, 2, 3, 10};
  b->p.softmax_scale = 0;
  memcpy(b->v, v, sizeof v);
  run(b);
  ck_assert(b->o[0] == 4 && b->o[1] == 4);
  ck_assert_double_eq_tol(b->lse[0], log(4), 1e-15);
  free(b);
}
END_TEST

/* Scores 0 and ln 3: weights 1/4 and 3/4. */
START_TEST(two_keys_by_hand) {
  bench *b = make_bench((const int64_t[7]){1, 1, 2, 1, 1, 1, 1});
  b->q[0] = 2, b->k[0] = 0, b->k[1] = log(3);
  b->v[0] = 8, b->v[1] = 4;
  b->p.softmax_scale = 0.5;
  run(b);
  ck_assert_double_eq_tol(b->o[0], 5, 1e-14);
  ck_assert_double_eq_tol(b->lse[0], log(4), 1e-14);
  free(b);
}
END_TEST

/* 130 rows, 2 keys, as 129 and 128: the first seqlen_q - seqlen_k rows see nothing. */
START_TEST(causal_with_more_queries_than_keys) {
  const int64_t sizes[2][2] = {{130, 2}, {129, 128}};
  bench *b = make_bench((const int64_t[7]){1, sizes[_i][0], sizes[_i][1], 1, 1, 2, 1});
  int64_t empty = sizes[_i][0] - sizes[_i][1];
  b->p.causal = true;
  b->p.softmax_scale = 0;
  for (int64_t j = 0; j < sizes[_i][1]; j++) b->v[j] = (double)j;
  run(b);
  for (int64_t i = 0; i < sizes[_i][0]; i++) {
    int64_t seen = i < empty ? 0 : i - empty + 1;
    ck_assert(b->o[i] == (seen ? (double)(seen - 1) / 2 : 0));
    ck_assert(seen ? fabs(b->lse[i] - log((double)seen)) < 1e-13 : b->lse[i] == -INFINITY);
  }
  free(b);
}
END_TEST

START_TEST(one_key_returns_its_row) {
  bench *b = make_bench((const int64_t[7]){1, 1, 1, 1, 1, 64, 64});
  fill(b->q, 64, 133120), fill(b->k, 64, 133120), fill(b->v, 64, 133120);
  b->v[5] = 1e-300;
  run(b);
  ck_assert_mem_eq(b->o, b->v, 64 * sizeof(double));
  free(b);
}
END_TEST

/* Scores that grow by hundreds along the row, forwards and backwards, with huge values. */
START_TEST(huge_scores_and_values) {
  bench *b = make_bench((const int64_t[7]){1, 1, 40, 1, 1, 1, 1});
  b->q[0] = 1;
  b->p.softmax_scale = 1;
  for (int64_t j = 0; j < 40; j++) {
    b->k[j] = _i ? 500.0 * (double)(40 - j) : 500.0 * (double)j;
    b->v[j] = j % 2 ? 1e34 : -1e34;
  }
  run(b);
  ck_assert(b->o[0] == (_i ? -1e34 : 1e34));
  ck_assert(b->lse[0] == (_i ? 20000 : 19500));
  free(b);
}
END_TEST

/* Hidden keys hold NaN and infinity, and are not read: row i sees keys 0 ... i. */
START_TEST(hidden_keys_are_not_read) {
  bench *b = make_bench((const int64_t[7]){1, 4, 4, 1, 1, 2, 2});
  b->p.causal = true;
  for (int64_t i = 4; i < 8; i++) b->k[i] = i % 2 ? NAN : INFINITY, b->v[i] = NAN;
  run(b);
  for (int64_t i = 0; i < 4; i++) {
    ck_assert(isfinite(b->lse[i]) == (i < 2));
    ck_assert(isnan(b->o[2 * i]) == (i >= 2) && isnan(b->o[2 * i + 1]) == (i >= 2));
  }
  free(b);
}
END_TEST

START_TEST(nan_and_infinity_reach_the_rows_that_see_them) {
  bench *b = make_bench((const int64_t[7]){1, 3, 3, 1, 1, 1, 1});
  b->q[1] = NAN;
  run(b);
  ck_assert(isfinite(b->o[0]) && isnan(b->o[1]) && isnan(b->lse[1]) && isfinite(b->o[2]));
  b->q[1] = 1, b->v[2] = INFINITY;
  run(b);
  ck_assert(b->o[0] == INFINITY && b->o[1] == INFINITY && b->o[2] == INFINITY);
  b->v[2] = 1, b->k[0] = INFINITY, b->q[0] = 1, b->q[1] = -1, b->q[2] = 0;
  run(b);
  ck_assert(isnan(b->o[0]) && isfinite(b->o[1]) && isnan(b->o[2]));
  free(b);
}
END_TEST

/* Strides with gaps of NaN between heads and rows give the bits of dense copies. */
START_TEST(strides) {
  const int64_t sizes[7] = {2, 3, 4, 2, 1, 5, 6};
  bench *dense = make_bench(sizes), *b = make_bench(sizes);
  run(dense);
  b->p.q_stride = (kiln_stride){.batch = 100, .row = 7, .head = 40};
  b->p.k_stride = (kiln_stride){.batch = 6, .row = 20, .head = 999};
  fill(b->q, SPACE, NAN), fill(b->k, SPACE, NAN);
  for (int64_t n = 0; n < 2; n++)
    for (int64_t i = 0; i < 4; i++) {
      memcpy(b->k + n * 6 + i * 20, dense->k + (n * 4 + i) * 5, 5 * sizeof(double));
      for (int64_t h = 0; h < 2 && i < 3; h++)
        memcpy(b->q + n * 100 + i * 7 + h * 40, dense->q + ((n * 3 + i) * 2 + h) * 5,
               5 * sizeof(double));
    }
  run(b);
  ck_assert_mem_eq(b->o, dense->o, 2 * 3 * 2 * 6 * sizeof(double));
  ck_assert_mem_eq(b->lse, dense->lse, 2 * 2 * 3 * sizeof(double));
  b->p.v_stride.batch = b->p.k_stride.batch = b->p.q_stride.batch = 0;
  run(b);
  ck_assert_mem_eq(b->o, b->o + 36, 36 * sizeof(double));
  free(dense);
  free(b);
}
END_TEST

START_TEST(zero_sizes) {
  static const int64_t sizes[][7] = {{0, 2, 2, 2, 1, 4, 4},
                                     {1, 0, 2, 2, 1, 4, 4},
                                     {1, 2, 0, 2, 1, 4, 4},
                                     {1, 2, 2, 0, 1, 4, 4},
                                     {1, 2, 2, 2, 1, 4, 0}};
  bench *b = make_bench(sizes[_i]);
  run(b);
  if (_i == 2)
    for (int64_t i = 0; i < 16; i++) ck_assert(b->o[i] == 0 && (i >= 4 || b->lse[i] == -INFINITY));
  ck_assert(isnan(b->o[_i == 2 ? 16 : 0]));
  free(b);
}
END_TEST

START_TEST(illegal_problems) {
  static const int64_t sizes[][7] = {
      {1, 1, 1, 10, 4, 1, 1}, {1, 1, 1, 1, 0, 1, 1},  {-1, 1, 1, 1, 1, 1, 1},
      {1, -1, 1, 1, 1, 1, 1}, {1, 1, -1, 1, 1, 1, 1}, {1, 1, 1, -1, 1, 1, 1},
      {1, 1, 1, 1, 1, -1, 1}, {1, 1, 1, 1, 1, 1, -1}, {1, 1, 1, 4, -2, 1, 1}};
  bench *b = make_bench(sizes[_i]);
  ck_assert_int_eq(kiln__reference_forward(&b->p, b->o, b->lse), KILN_INVALID_ARGUMENT);
  free(b);
}
END_TEST

static kiln__tensor load_layer(int layer, char what, kiln__tensor_dtype dtype) {
  char source[512];
  kiln__tensor stored, wide;
  kiln__tensor_error error;
  snprintf(source, sizeof source, "%s/tests/data/minilm.safetensors:layer%d.%c",
           KILN_TEST_SOURCE_DIR, layer, what);
  ck_assert_msg(kiln__tensor_load(source, &stored, &error) == KILN_OK, "%s", error.text);
  ck_assert_int_eq(kiln__tensor_convert(&stored, dtype, &wide), KILN_OK);
  kiln__tensor_destroy(&stored);
  return wide;
}

/* What a transformer's own code made of the same q, k, v; figures of tests/data/README.md. */
START_TEST(agrees_with_a_real_model) {
  static const double rel_rms[6] = {2.16e-4, 4.09e-4, 3.84e-4, 2.68e-4, 2.16e-4, 2.01e-4};
  static const double max_abs[6] = {7.34e-4, 1.87e-3, 1.05e-3, 6.39e-4, 6.27e-4, 6.44e-4};
  const int64_t count = 81 * 12 * 32;
  kiln__tensor q = load_layer(_i, 'q', KILN__TENSOR_FP64);
  kiln__tensor k = load_layer(_i, 'k', KILN__TENSOR_FP64);
  kiln__tensor v = load_layer(_i, 'v', KILN__TENSOR_FP64);
  kiln__tensor model = load_layer(_i, 'o', KILN__TENSOR_FP32);
  double *o = malloc((size_t)count * sizeof *o), lse[81 * 12];
  kiln_stride stride = kiln__stride_dense(81, 12, 32);
  kiln__reference p = {1,     81,     81,     12,     12,     32,     32,    1 / sqrt(32),
                       false, q.data, k.data, v.data, stride, stride, stride};
  ck_assert_ptr_nonnull(o);
  ck_assert_int_eq(kiln__tensor_count(&q), count);
  ck_assert_int_eq(kiln__tensor_count(&model), count);
  ck_assert_int_eq(kiln__reference_forward(&p, o, lse), KILN_OK);
  ck_assert_double_eq_tol(kiln__error_rel_rms(model.data, o, count), rel_rms[_i], 6e-7);
  ck_assert_double_eq_tol(kiln__error_max_abs(model.data, o, count), max_abs[_i], 6e-6);
  free(o);
  kiln__tensor_destroy(&model);
  kiln__tensor_destroy(&v);
  kiln__tensor_destroy(&k);
  kiln__tensor_destroy(&q);
}
END_TEST

START_TEST(error_figures) {
  const float result[3] = {1, 2, 2.5f}, zeros[3] = {0, 0, 0};
  const double reference[3] = {1, 2, 2}, zero[3] = {0, 0, 0};
  ck_assert(kiln__error_max_abs(result, reference, 3) == 0.5);
  ck_assert_double_eq_tol(kiln__error_rel_rms(result, reference, 3), 0.5 / 3, 1e-15);
  ck_assert(kiln__error_rel_rms(zeros, zero, 3) == 0);
  ck_assert(kiln__error_rel_rms(result, zero, 3) == INFINITY);
  ck_assert(kiln__error_max_abs(NULL, NULL, 0) == 0 && kiln__error_rel_rms(NULL, NULL, 0) == 0);
  ck_assert(kiln__error_lse(NULL, NULL, 0) == 0);
}
END_TEST

/* One element that is not finite, on either side and in any place, spoils the figure. */
START_TEST(nan_never_passes) {
  const float odd[3] = {NAN, INFINITY, -INFINITY};
  for (int place = 0; place < 3; place++)
    for (int i = 0; i < 3; i++) {
      float result[3] = {1, 2, 3};
      double reference[3] = {1, 2, 3};
      result[place] = odd[i];
      ck_assert(isnan(kiln__error_max_abs(result, reference, 3)));
      ck_assert(isnan(kiln__error_rel_rms(result, reference, 3)));
      reference[place] = (double)odd[i];
      ck_assert(isnan(kiln__error_max_abs(result, reference, 3)));
      ck_assert(isnan(kiln__error_rel_rms(result, reference, 3)));
      result[place] = 1;
      ck_assert(isnan(kiln__error_max_abs(result, reference, 3)));
      ck_assert(isnan(kiln__error_rel_rms(result, reference, 3)));
    }
}
END_TEST

START_TEST(lse_errors) {
  const double reference[3] = {-INFINITY, 4, -INFINITY};
  const float equal[3] = {-INFINITY, 4.25f, -INFINITY};
  const float missing[3] = {-INFINITY, -INFINITY, -INFINITY}, extra[3] = {-INFINITY, 4, 0};
  const float positive[3] = {INFINITY, 4, -INFINITY}, broken[3] = {-INFINITY, 4, NAN};
  const double infinite = INFINITY;
  ck_assert(kiln__error_lse(equal, reference, 3) == 0.25);
  ck_assert(kiln__error_lse(missing, reference, 3) == INFINITY);
  ck_assert(kiln__error_lse(extra, reference, 3) == INFINITY);
  ck_assert(kiln__error_lse(positive, reference, 3) == INFINITY);
  ck_assert(isnan(kiln__error_lse(broken, reference, 3)));
  ck_assert(isnan(kiln__error_lse(positive, &infinite, 1)));
  ck_assert(!kiln__lse_passes(missing, reference, 3) && !kiln__lse_passes(extra, reference, 3));
  ck_assert(!kiln__lse_passes(positive, reference, 3) && !kiln__lse_passes(broken, reference, 3));
  ck_assert(!kiln__lse_passes(equal, reference, 3));
}
END_TEST

START_TEST(tolerances) {
  const double reference[2] = {-INFINITY, -1000};
  const float inside[2] = {-INFINITY, -1000.0109f}, outside[2] = {-INFINITY, -1000.0112f};
  ck_assert(kiln__tolerance_o(KILN__TENSOR_BF16, 64) == 2.8e-3);
  ck_assert(kiln__tolerance_o(KILN__TENSOR_BF16, 63) == 4e-3);
  ck_assert(kiln__tolerance_o(KILN__TENSOR_FP16, 64) == 6e-4);
  ck_assert(kiln__tolerance_o(KILN__TENSOR_FP16, 1) == 6e-4);
  ck_assert(isnan(kiln__tolerance_o(KILN__TENSOR_E4M3, 64)));
  ck_assert_double_eq_tol(kiln__tolerance_lse(-1000), 1.1e-2, 1e-12);
  ck_assert(kiln__tolerance_lse(-INFINITY) == 0);
  ck_assert(kiln__lse_passes(inside, reference, 2));
  ck_assert(!kiln__lse_passes(outside, reference, 2));
  ck_assert(kiln__lse_passes(NULL, NULL, 0));
}
END_TEST

Suite *suite_reference(void) {
  Suite *suite = suite_create("reference");
  TCase *cases = tcase_create("forward");
  tcase_add_loop_test(cases, agrees_with_the_formula, 0, 8);
  tcase_add_test(cases, equal_scores_give_the_mean);
  tcase_add_test(cases, two_keys_by_hand);
  tcase_add_loop_test(cases, causal_with_more_queries_than_keys, 0, 2);
  tcase_add_test(cases, one_key_returns_its_row);
  tcase_add_loop_test(cases, huge_scores_and_values, 0, 2);
  tcase_add_test(cases, hidden_keys_are_not_read);
  tcase_add_test(cases, nan_and_infinity_reach_the_rows_that_see_them);
  tcase_add_test(cases, strides);
  tcase_add_loop_test(cases, zero_sizes, 0, 5);
  tcase_add_loop_test(cases, illegal_problems, 0, 9);
  tcase_add_loop_test(cases, agrees_with_a_real_model, 0, 6);
  suite_add_tcase(suite, cases);
  cases = tcase_create("errors");
  tcase_add_test(cases, error_figures);
  tcase_add_test(cases, nan_never_passes);
  tcase_add_test(cases, lse_errors);
  tcase_add_test(cases, tolerances);
  suite_add_tcase(suite, cases);
  return suite;
}
