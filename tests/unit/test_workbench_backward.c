/* The proof of backward kernels, over a device whose launches compute attention and its gradients
 * on the host: a kernel that is right is timed, one that is wrong in any of the ways below is not.
 */
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inputs.h"
#include "cli/workbench.h"
#include "fake.h"

enum { DIM = 64 }; /* of the fake's record, which is bf16 and without a mask */

/* clang-format off */
#define RECORD(family, layout, pass, entry)                                                      \
  "{\"format\":1,\"kiln\":\"0.1.0\",\"family\":\"" family "\",\"layout\":\"" layout "\","        \
  "\"align\":16,\"spec\":{\"arch\":\"sm_90a\",\"pass\":\"" pass "\",\"algorithm\":\"flash\","    \
  "\"dtype\":\"bf16\",\"head_dim\":64,\"head_dim_v\":64,\"mask\":\"none\"%s},"                   \
  "\"tile\":{\"block_m\":64,\"block_n\":64,\"num_stages\":2,\"num_warps\":4},"                   \
  "\"workspace\":[],\"entries\":[{\"name\":\"" entry "\",\"threads\":128,\"cluster\":1,"         \
  "\"shared_bytes\":0,\"persistent\":0,"                                                         \
  "\"grid\":[[\"seqlen_k\",64],[\"num_heads_k\",1],[\"batch\",1]],\"params\":[\"args\"]}],"      \
  "\"smem\":[]}"
/* clang-format on */

/* What is wrong with the backward kernel. */
typedef enum flaw {
  NONE,
  LAST_QUERY_MISSING, /* adds nothing to dk and dv */
  DQ_SCALED,          /* by half a percent: more than the tolerance, but not by much */
  DV_SCALED,
  DK_OF_ONE_HEAD,  /* not summed over the query heads of a key head */
  DV_ROW_MISSING,  /* the last row is not written */
  DK_BEYOND,       /* one element behind dk is written */
  DV_OTHER_BITS,   /* now and then */
  DQ_OTHER_BITS,   /* the same, by one rounding: right unless it is to be deterministic */
  DQ_SECOND_WRONG, /* every second run is 2 % too large */
  WRITES_LSE
} flaw;

/* The device is the fake alone; what its kernel does wrong is kept beside it. */
typedef struct bench_device {
  fake f; /* first: the context's device */
  flaw flaw;
  int num_forward, num_backward;
} bench_device;

/* ---- tensors ---- */

static double *dense(const void *tensor, const kiln_stride *s, int64_t batch, int64_t rows,
                     int64_t heads) {
  const uint16_t *codes = tensor;
  double *made = calloc((size_t)(batch * rows * heads * DIM) + 1, sizeof *made), *to = made;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t row = 0; row < rows; row++)
      for (int64_t h = 0; h < heads; h++)
        for (int col = 0; col < DIM; col++)
          *to++ =
              kiln__decode(KILN_DTYPE_BF16, codes[b * s->batch + row * s->row + h * s->head + col]);
  return made;
}

static void scatter(const double *from, double factor, void *tensor, const kiln_stride *s,
                    int64_t batch, int64_t rows, int64_t heads, int64_t left_out) {
  uint16_t *codes = tensor;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t row = 0; row < rows; row++)
      for (int64_t h = 0; h < heads; h++)
        for (int col = 0; col < DIM; col++, from++)
          if (row != left_out)
            codes[b * s->batch + row * s->row + h * s->head + col] =
                kiln__encode(KILN_DTYPE_BF16, *from * factor);
}

/* A problem in dense doubles; o, lse and the gradients are sums that begin at 0. */
typedef struct problem {
  int64_t batch, seqlen_q, seqlen_k, heads, heads_k;
  double scale;
  double *q, *k, *v, *dout;
  double *o, *lse, *dq, *dk, *dv;
} problem;

static double *zeros(int64_t rows, int columns) {
  return calloc((size_t)(rows * columns) + 1, sizeof(double));
}

static void allocate(problem *p) {
  const int64_t rows_q = p->batch * p->seqlen_q * p->heads;
  const int64_t rows_k = p->batch * p->seqlen_k * p->heads_k;
  p->o = zeros(rows_q, DIM), p->lse = zeros(rows_q, 1), p->dq = zeros(rows_q, DIM);
  p->dk = zeros(rows_k, DIM), p->dv = zeros(rows_k, DIM);
}

static void release(problem *p) {
  free(p->q), free(p->k), free(p->v), free(p->dout);
  free(p->o), free(p->lse), free(p->dq), free(p->dk), free(p->dv);
}

static double dot(const double *a, const double *b) {
  double sum = 0;
  for (int col = 0; col < DIM; col++) sum += a[col] * b[col];
  return sum;
}

static void add(double factor, const double *from, double *to) {
  for (int col = 0; col < DIM; col++) to[col] += factor * from[col];
}

/* One row by the definition; its gradients too where there is a dout. */
static void compute_row(const problem *p, int64_t b, int64_t row, int64_t h) {
  const int64_t at = ((b * p->seqlen_q + row) * p->heads + h) * DIM;
  const int64_t first = (b * p->seqlen_k * p->heads_k + h / (p->heads / p->heads_k)) * DIM;
  const int64_t step = p->heads_k * DIM;
  double weights[512], dp[512], sum = 0, delta = 0;
  ck_assert_int_le(p->seqlen_k, 512);
  for (int64_t j = 0; j < p->seqlen_k; j++)
    sum += weights[j] = exp(p->scale * dot(p->q + at, p->k + first + j * step));
  for (int64_t j = 0; j < p->seqlen_k; j++) {
    weights[j] /= sum;
    add(weights[j], p->v + first + j * step, p->o + at);
    if (!p->dout) continue;
    dp[j] = dot(p->dout + at, p->v + first + j * step);
    delta += weights[j] * dp[j];
  }
  p->lse[(b * p->heads + h) * p->seqlen_q + row] = log(sum);
  for (int64_t j = 0; p->dout && j < p->seqlen_k; j++) {
    const double ds = p->scale * weights[j] * (dp[j] - delta);
    add(ds, p->k + first + j * step, p->dq + at);
    add(ds, p->q + at, p->dk + first + j * step);
    add(weights[j], p->dout + at, p->dv + first + j * step);
  }
}

static void compute(const problem *p) {
  for (int64_t b = 0; b < p->batch; b++)
    for (int64_t row = 0; row < p->seqlen_q; row++)
      for (int64_t h = 0; h < p->heads; h++) compute_row(p, b, row, h);
}

/* ---- the two kernels ---- */

static void forward(bench_device *d, const kiln__forward_args *a) {
  problem p = {.batch = a->batch,
               .seqlen_q = a->seqlen_q,
               .seqlen_k = a->seqlen_k,
               .heads = a->num_heads,
               .heads_k = a->num_heads_k,
               .scale = (double)a->softmax_scale};
  p.q = dense(a->q, &a->q_stride, p.batch, p.seqlen_q, p.heads);
  p.k = dense(a->k, &a->k_stride, p.batch, p.seqlen_k, p.heads_k);
  p.v = dense(a->v, &a->v_stride, p.batch, p.seqlen_k, p.heads_k);
  allocate(&p);
  compute(&p);
  scatter(p.o, 1, a->o, &a->o_stride, p.batch, p.seqlen_q, p.heads, -1);
  for (int64_t i = 0; i < p.batch * p.heads * p.seqlen_q; i++) a->lse[i] = (float)p.lse[i];
  release(&p);
  d->num_forward++;
}

static void store(const bench_device *d, const kiln__backward_args *a, const problem *p) {
  const bool odd = d->num_backward % 2;
  const double factor = d->flaw == DQ_SCALED ? 1.005 : d->flaw == DQ_SECOND_WRONG && odd ? 1.02 : 1;
  const int64_t missing = d->flaw == DV_ROW_MISSING ? a->seqlen_k - 1 : -1;
  uint16_t *dq = a->dq, *dk = a->dk, *dv = a->dv;
  scatter(p->dq, factor, dq, &a->dq_stride, a->batch, a->seqlen_q, a->num_heads, -1);
  scatter(p->dk, d->flaw == DK_OF_ONE_HEAD ? 1.0 / a->group : 1, dk, &a->dk_stride, a->batch,
          a->seqlen_k, a->num_heads_k, -1);
  scatter(p->dv, d->flaw == DV_SCALED ? 1.005 : 1, dv, &a->dv_stride, a->batch, a->seqlen_k,
          a->num_heads_k, missing);
  if (d->flaw == DV_OTHER_BITS && odd) dv[0] ^= 1;
  if (d->flaw == DQ_OTHER_BITS && odd) dq[0] ^= 1;
  if (d->flaw == DK_BEYOND)
    dk[(a->batch - 1) * a->dk_stride.batch + (a->seqlen_k - 1) * a->dk_stride.row +
       (a->num_heads_k - 1) * a->dk_stride.head + DIM] = 0;
  if (d->flaw == WRITES_LSE) ((float *)(uintptr_t)a->lse)[0] = 0;
}

static void backward(bench_device *d, const kiln__backward_args *a) {
  problem p = {.batch = a->batch,
               .seqlen_q = a->seqlen_q,
               .seqlen_k = a->seqlen_k,
               .heads = a->num_heads,
               .heads_k = a->num_heads_k,
               .scale = (double)a->softmax_scale};
  p.q = dense(a->q, &a->q_stride, p.batch, p.seqlen_q, p.heads);
  p.k = dense(a->k, &a->k_stride, p.batch, p.seqlen_k, p.heads_k);
  p.v = dense(a->v, &a->v_stride, p.batch, p.seqlen_k, p.heads_k);
  p.dout = dense(a->dout, &a->do_stride, p.batch, p.seqlen_q, p.heads);
  allocate(&p);
  for (int64_t i = 0; d->flaw == LAST_QUERY_MISSING && i < p.heads * DIM; i++)
    p.dout[(p.seqlen_q - 1) * p.heads * DIM + i] = 0;
  compute(&p);
  const int64_t rows = d->flaw == WRITES_LSE ? 0 : p.batch * p.heads * p.seqlen_q;
  for (int64_t i = 0; i < rows; i++) /* what the forward pass gave */
    ck_assert_float_eq(a->lse[i], (float)p.lse[i]);
  store(d, a, &p);
  release(&p);
  d->num_backward++;
}

/* Timed launches are of the stage, and need no answer: those have 512 queries and more. */
static kiln_status launch(void *device, const kiln__launch *l, struct CUstream_st *stream,
                          kiln__text *error) {
  bench_device *d = device;
  kiln_status status = fake_device_ops.launch(device, l, stream, error);
  const size_t size = l->param_sizes[l->num_params - 1];
  kiln__forward_args f;
  kiln__backward_args b;
  if (size == sizeof b) {
    memcpy(&b, l->params[l->num_params - 1], sizeof b);
    if (b.seqlen_q < 512) backward(d, &b);
  } else {
    memcpy(&f, l->params[l->num_params - 1], sizeof f);
    if (f.seqlen_q < 512) forward(d, &f);
  }
  return status;
}

static kiln_status synchronize(void *device, kiln__text *error) {
  (void)device, (void)error;
  return KILN_OK;
}

/* ---- the fixture ---- */

static bench_device device;
static kiln__device_ops ops;
static kiln_context *ctx;
static kiln__workbench *bench;
static char forward_record[2048], backward_record[2048];

static void create(int deterministic) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args shape = KILN_ATTN_ARGS_INIT;
  memset(&device, 0, sizeof device);
  ctx = fake_context(&device.f, "");
  snprintf(forward_record, sizeof forward_record,
           RECORD("ampere", "forward.1", "forward", "kiln_forward"), "");
  snprintf(backward_record, sizeof backward_record,
           RECORD("ampere_backward", "backward.1", "backward", "kiln_backward"),
           deterministic ? ",\"deterministic\":1" : "");
  device.f.record = forward_record;
  device.f.backward_record = backward_record;
  ops = fake_device_ops;
  ops.launch = launch;
  ops.synchronize = synchronize;
  ctx->ops = &ops;
  ctx->info.memory_bytes = (int64_t)1 << 30;
  ctx->info.l2_bytes = 1 << 20;
  strcpy(spec.arch, "sm_90a");
  spec.head_dim = spec.head_dim_v = DIM;
  spec.pass = KILN_PASS_BACKWARD;
  spec.deterministic = deterministic;
  shape.batch = 1;
  shape.seqlen_q = shape.seqlen_k = 512;
  shape.num_heads = shape.num_heads_k = 2;
  ck_assert_int_eq(kiln__workbench_create(ctx, &bench), KILN_OK);
  ck_assert_int_eq(kiln__workbench_open(bench, &spec, &shape), KILN_OK);
}

static void destroy(void) {
  kiln__workbench_destroy(bench);
  ck_assert_int_eq(device.f.num_allocs, device.f.num_frees);
  fake_context_destroy(ctx);
}

static kiln__finding prepare(int block_m) {
  kiln__finding found;
  const kiln_tile tile = {sizeof tile, block_m, 64, 2, 4};
  ck_assert_int_eq(kiln__workbench_prepare(bench, &tile, &found), KILN_OK);
  return found;
}

START_TEST(a_right_kernel_is_timed) {
  create(_i);
  const kiln__finding found = prepare(64);
  ck_assert_msg(found.outcome == KILN__FOUND_TIMED, "%s", found.reason);
  ck_assert_int_ge(device.num_backward, 2 * 5);
  ck_assert_int_eq(device.num_forward * 2, device.num_backward); /* one for two runs */
  destroy();
}
END_TEST

static const struct {
  flaw flaw;
  int deterministic;
  const char *why; /* NULL = it is right */
} flaws[] = {
    {LAST_QUERY_MISSING, 0, "tolerance 0.004"},
    {DQ_SCALED, 0, "tolerance 0.004"},
    {DV_SCALED, 0, "tolerance 0.004"},
    {DK_OF_ONE_HEAD, 0, "tolerance 0.004"},
    {DV_ROW_MISSING, 0, "elements of dv were not written"},
    {DK_BEYOND, 0, "memory around dk was written"},
    {DV_OTHER_BITS, 0, "a second run gave other bits"},
    {DQ_OTHER_BITS, 0, NULL},
    {DQ_OTHER_BITS, 1, "a second run gave other bits"},
    {DQ_SECOND_WRONG, 0, "tolerance 0.004"},
    {WRITES_LSE, 0, "o or lse was written by the backward pass"},
};

START_TEST(a_wrong_kernel_is_never_timed) {
  create(flaws[_i].deterministic);
  device.flaw = flaws[_i].flaw;
  const kiln__finding found = prepare(64);
  if (!flaws[_i].why) {
    ck_assert_msg(found.outcome == KILN__FOUND_TIMED, "%s", found.reason);
  } else {
    ck_assert_int_eq(found.outcome, KILN__FOUND_WRONG_RESULT);
    ck_assert_msg(strstr(found.reason, flaws[_i].why) != NULL, "%s: no %s", found.reason,
                  flaws[_i].why);
  }
  destroy();
}
END_TEST

Suite *suite_workbench_backward(void) {
  Suite *suite = suite_create("workbench_backward");
  TCase *tests = tcase_create("workbench-backward");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, a_right_kernel_is_timed, 0, 2);
  tcase_add_loop_test(tests, a_wrong_kernel_is_never_timed, 0,
                      (int)(sizeof flaws / sizeof flaws[0]));
  suite_add_tcase(suite, tests);
  return suite;
}
