/* Making the data of a problem; inputs.h states where it lies. */
#include "inputs.h"

#include "number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float kiln__decode(kiln_dtype dtype, uint16_t code) {
  return dtype == KILN_DTYPE_FP16 ? kiln__fp16_decode(code) : kiln__bf16_decode(code);
}

uint16_t kiln__encode(kiln_dtype dtype, double value) {
  return dtype == KILN_DTYPE_FP16 ? kiln__fp16_encode(value) : kiln__bf16_encode(value);
}

/* ---- random numbers: the same on every machine for one seed ---- */

typedef struct random_state {
  uint64_t state;
  double spare; /* the second normal number of a pair */
  bool has_spare;
} random_state;

/* splitmix64 */
static uint64_t random_bits(random_state *r) {
  uint64_t x = r->state += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

static double random_unit(random_state *r) {
  return ((double)(random_bits(r) >> 11) + 0.5) * 0x1p-53;
}

/* Box and Muller's pair. */
static double random_normal(random_state *r) {
  if (r->has_spare) {
    r->has_spare = false;
    return r->spare;
  }
  double radius = sqrt(-2 * log(random_unit(r))),
         angle = 2 * 3.14159265358979323846 * random_unit(r);
  r->spare = radius * sin(angle);
  r->has_spare = true;
  return radius * cos(angle);
}

void kiln__inputs_normal(kiln_dtype dtype, uint64_t seed, uint16_t *codes, int64_t count) {
  random_state random = {.state = seed};
  for (int64_t i = 0; i < count; i++) codes[i] = kiln__encode(dtype, random_normal(&random));
}

/* ---- where the tensors lie ---- */

kiln__operand kiln__operand_packed(int buffer, int32_t batch, int32_t rows, int32_t heads,
                                   int32_t dim) {
  return (kiln__operand){
      .buffer = buffer,
      .batch = batch,
      .rows = rows,
      .heads = heads,
      .dim = dim,
      .stride = {.batch = (int64_t)rows * heads * dim, .row = (int64_t)heads * dim, .head = dim}};
}

int64_t kiln__operand_extent(const kiln__operand *x) {
  if (x->batch == 0 || x->rows == 0 || x->heads == 0) return 0;
  return kiln__operand_at(x, x->batch - 1, x->rows - 1, x->heads - 1) + x->dim;
}

/* Slice `which` of (batch, rows, slices, heads, dim). */
static void place_slice(kiln__operand *x, int buffer, int slices, int which) {
  int64_t width = (int64_t)x->heads * x->dim;
  x->buffer = buffer;
  x->offset = which * width;
  x->stride.row = slices * width;
  x->stride.batch = x->rows * x->stride.row;
}

static void place_heads_first(kiln__operand *x) {
  x->stride.row = x->dim;
  x->stride.head = (int64_t)x->rows * x->dim;
}

static void place_one_head(kiln__operand *x) {
  x->stride.head = 0;
  x->stride.row = x->dim;
  x->stride.batch = (int64_t)x->rows * x->dim;
}

static void place_second_row(kiln__operand *x) {
  x->stride.row *= 2;
  x->stride.batch *= 2;
}

/* The operands have the rows of their buffers here, tails included. Gradients lie as what they are
 * the gradients of, but for strides of 0, each in a buffer of its own. */
static void place(kiln__layout layout, kiln__inputs *in) {
  kiln__operand *q = &in->q, *k = &in->k, *v = &in->v, *o = &in->o;
  kiln__operand *dout = &in->dout, *dq = &in->dq, *dk = &in->dk, *dv = &in->dv;
  switch (layout) {
  case KILN__PACKED: break;
  case KILN__QKV_SLICES:
    place_slice(q, 0, 3, 0), place_slice(k, 0, 3, 1), place_slice(v, 0, 3, 2);
    place_slice(dq, 0, 3, 0), place_slice(dk, 0, 3, 1), place_slice(dv, 0, 3, 2);
    break;
  case KILN__KV_SLICES:
    place_slice(k, 1, 2, 0), place_slice(v, 1, 2, 1);
    place_slice(dk, 0, 2, 0), place_slice(dv, 0, 2, 1);
    break;
  case KILN__SECOND_ROW_K: place_second_row(k), place_second_row(dk); break;
  case KILN__SECOND_ROW_V: place_second_row(v), place_second_row(dv); break;
  case KILN__HEADS_FIRST:
    place_heads_first(q), place_heads_first(k), place_heads_first(v), place_heads_first(o);
    place_heads_first(dout);
    place_heads_first(dq), place_heads_first(dk), place_heads_first(dv);
    break;
  case KILN__ONE_HEAD: place_one_head(k), place_one_head(v); break;
  case KILN__ONE_BATCH: k->stride.batch = v->stride.batch = 0; break;
  case KILN__O_SLICE:
    place_slice(o, 0, 2, 1), place_slice(dout, 3, 2, 0), place_slice(dq, 0, 2, 1);
    break;
  case KILN__K_PLUS_2: k->offset = 1; break;
  case KILN__K_PLUS_8: k->offset = 4; break;
  case KILN__K_ROW_PLUS_4:
    k->stride.row += 4;
    k->stride.batch = k->rows * k->stride.row;
    break;
  }
}

static kiln_status allocate(kiln__inputs *in) {
  const kiln__operand *operands[] = {&in->q, &in->k, &in->v, &in->dout};
  const int count = in->backward ? 4 : 3;
  for (int i = 0; i < count; i++) {
    int64_t extent = kiln__operand_extent(operands[i]);
    int64_t *length = &in->lengths[operands[i]->buffer];
    if (extent > *length) *length = extent;
  }
  for (int i = 0; i < count; i++) {
    int b = operands[i]->buffer;
    if (in->buffers[b]) continue;
    in->buffers[b] = malloc((size_t)in->lengths[b] * sizeof(uint16_t) + 1);
    if (!in->buffers[b]) {
      kiln__inputs_destroy(in);
      return KILN_OUT_OF_MEMORY;
    }
  }
  return KILN_OK;
}

/* ---- what the tensors hold ---- */

typedef struct recipe {
  const kiln__problem *problem;
  const kiln_attn_spec *spec;
  double scale; /* that the kernel will use */
  double large; /* a value whose sums stay far below the dtype's largest */
  random_state random;
} recipe;

typedef enum tensor_name { Q, K, V, DOUT } tensor_name;

/* The score is scale * 1024 * (column 0 of k): one product, known to the last bit, and small enough
 * in k for fp16. */
static double score_value(tensor_name t, double score, int col, const recipe *r) {
  if (col > 0 || t == V) return 0;
  return t == Q ? 1024 : score / (1024 * r->scale);
}

/* Pairs of rows share their sign: where two neighbours' scores round to one, their mean is not
 * 0. */
static double large_v(int32_t row, int32_t col, const recipe *r) {
  return (row / 2 + col) % 2 ? -r->large : r->large;
}

static double ramp_value(tensor_name t, int32_t row, int32_t col, const recipe *r) {
  bool rises = r->problem->data == KILN__SCORES_RISE;
  if (t == V) return large_v(row, col, r);
  int32_t step = rises ? row : r->problem->seqlen_k - 1 - row;
  return score_value(t, 300.0 * step, col, r);
}

/* Biases of opposite signs put the scores around -sqrt(head_dim) / 4: a row of zeros that gets past
 * a missing mask would outweigh them. */
static double normal_value(tensor_name t, recipe *r) {
  double bias = t == Q ? 0.5 : t == K ? -0.5 : 0;
  return random_normal(&r->random) + bias;
}

static double outlier_value(int32_t col, recipe *r) {
  int32_t every = r->spec->head_dim / 8;
  return random_normal(&r->random) * (col % every == 0 && col / every < 8 ? 50 : 1);
}

/* Weights 2^-21 of the largest carry the whole output: they must not be lost beside it. */
static double peak_value(tensor_name t, int32_t row, int32_t col, recipe *r) {
  bool peak = row == r->problem->seqlen_k - 5;
  if (t == V) return peak ? 0 : 1000 + 100 * random_normal(&r->random);
  return score_value(t, peak ? 14.7 : 0, col, r);
}

static double signed_value(tensor_name t, int32_t col, double size, recipe *r) {
  double number = random_normal(&r->random);
  if (t == V) return number;
  return score_value(t, size * number, col, r);
}

static double value_at(tensor_name t, int32_t row, int32_t col, recipe *r) {
  if (t == DOUT) return random_normal(&r->random);
  switch (r->problem->data) {
  case KILN__NORMAL: return normal_value(t, r);
  case KILN__OUTLIERS: return outlier_value(col, r);
  case KILN__ALL_SAME: return 133120;
  case KILN__HOT_KEY:
    if (t == V) return random_normal(&r->random);
    return t == K && row == r->problem->seqlen_k * 3 / 5 ? 1331200 : 133120;
  case KILN__ZERO_SCORES: return t == V ? 4 : 0;
  case KILN__EVEN_SCORES: return t == V ? random_normal(&r->random) : 24;
  case KILN__SCORES_RISE:
  case KILN__SCORES_FALL: return ramp_value(t, row, col, r);
  case KILN__SCORES_1E5: return signed_value(t, col, 1e5, r);
  case KILN__SCORES_1E11: return signed_value(t, col, 1e11, r);
  case KILN__V_LARGE: return t == V ? random_normal(&r->random) * r->large : normal_value(t, r);
  case KILN__ONE_PEAK: return peak_value(t, row, col, r);
  case KILN__V_NEAR_MAXIMUM:
    if (t != V) return normal_value(t, r);
    return r->spec->dtype == KILN_DTYPE_FP16 ? 57000 : 3e38;
  case KILN__NAN_QUERY: return t == Q && row == 1 && col == 0 ? NAN : normal_value(t, r);
  }
  return 0;
}

/* Rows past seqlen_k belong to the gaps: the operand's rows are cut before this. */
static void fill(tensor_name t, const kiln__operand *x, uint16_t *buffer, recipe *r) {
  for (int64_t b = 0; b < x->batch; b++)
    for (int32_t row = 0; row < x->rows; row++)
      for (int64_t h = 0; h < x->heads; h++) {
        uint16_t *at = buffer + kiln__operand_at(x, b, row, h);
        for (int32_t col = 0; col < x->dim; col++)
          at[col] = kiln__encode(r->spec->dtype, value_at(t, row, col, r));
      }
}

static void fill_gaps(kiln__inputs *in, double filler) {
  uint16_t code = kiln__encode(in->dtype, filler);
  for (int b = 0; b < KILN__BUFFERS; b++)
    for (int64_t i = 0; i < in->lengths[b]; i++) in->buffers[b][i] = code;
}

void kiln__inputs_add_gradients(bool deterministic, int32_t rows_k, kiln__inputs *in) {
  const kiln__operand *q = &in->q, *k = &in->k, *v = &in->v;
  in->backward = in->wants_lse = true;
  in->deterministic = deterministic;
  in->dout = kiln__operand_packed(3, q->batch, q->rows, q->heads, v->dim);
  in->dq = kiln__operand_packed(0, q->batch, q->rows, q->heads, q->dim);
  in->dk = kiln__operand_packed(0, k->batch, rows_k, k->heads, k->dim);
  in->dv = kiln__operand_packed(0, v->batch, rows_k, v->heads, v->dim);
}

kiln_status kiln__inputs_create(const kiln__problem *p, const kiln_attn_spec *spec, uint64_t seed,
                                kiln__inputs *in) {
  *in = (kiln__inputs){.dtype = spec->dtype,
                       .mask = spec->mask,
                       .softmax_scale =
                           p->flags & KILN__SCALE_GIVEN ? p->softmax_scale : KILN_SCALE_DEFAULT,
                       .wants_lse = !(p->flags & KILN__NO_LSE)};
  int32_t rows_k = p->seqlen_k + p->tail;
  in->q = kiln__operand_packed(0, p->batch, p->seqlen_q, p->num_heads, spec->head_dim);
  in->k = kiln__operand_packed(1, p->batch, rows_k, p->num_heads_k, spec->head_dim);
  in->v = kiln__operand_packed(2, p->batch, rows_k, p->num_heads_k, spec->head_dim_v);
  in->o = kiln__operand_packed(0, p->batch, p->seqlen_q, p->num_heads, spec->head_dim_v);
  if (spec->pass == KILN_PASS_BACKWARD)
    kiln__inputs_add_gradients(spec->deterministic != 0, p->seqlen_k, in);
  place(p->layout, in);
  kiln_status status = allocate(in);
  if (status != KILN_OK) return status;
  in->k.rows = in->v.rows = p->seqlen_k;
  fill_gaps(in, p->flags & KILN__INFINITE ? INFINITY : NAN);
  recipe r = {.problem = p, .spec = spec, .random = {.state = seed}};
  r.scale = in->softmax_scale < 0 ? 1 / sqrt(spec->head_dim) : in->softmax_scale;
  r.large = spec->dtype == KILN_DTYPE_FP16 ? 1e4 : 1e34;
  fill(Q, &in->q, in->buffers[in->q.buffer], &r);
  fill(K, &in->k, in->buffers[in->k.buffer], &r);
  fill(V, &in->v, in->buffers[in->v.buffer], &r);
  if (in->backward) fill(DOUT, &in->dout, in->buffers[in->dout.buffer], &r);
  return KILN_OK;
}

/* ---- packing ---- */

static void copy_packed(const kiln__operand *from, const uint16_t *source, const kiln__operand *to,
                        uint16_t *target) {
  for (int64_t b = 0; b < from->batch; b++)
    for (int64_t row = 0; row < from->rows; row++)
      for (int64_t h = 0; h < from->heads; h++)
        memcpy(target + kiln__operand_at(to, b, row, h), source + kiln__operand_at(from, b, row, h),
               (size_t)from->dim * sizeof(uint16_t));
}

static kiln__operand packed_like(const kiln__operand *x, int buffer) {
  return kiln__operand_packed(buffer, x->batch, x->rows, x->heads, x->dim);
}

kiln_status kiln__inputs_pack(const kiln__inputs *from, kiln__inputs *to) {
  *to = *from;
  memset(to->buffers, 0, sizeof to->buffers);
  memset(to->lengths, 0, sizeof to->lengths);
  to->q = packed_like(&from->q, 0);
  to->k = packed_like(&from->k, 1);
  to->v = packed_like(&from->v, 2);
  to->o = packed_like(&from->o, 0);
  if (from->backward) kiln__inputs_add_gradients(from->deterministic, from->k.rows, to);
  kiln_status status = allocate(to);
  if (status != KILN_OK) return status;
  copy_packed(&from->q, from->buffers[from->q.buffer], &to->q, to->buffers[0]);
  copy_packed(&from->k, from->buffers[from->k.buffer], &to->k, to->buffers[1]);
  copy_packed(&from->v, from->buffers[from->v.buffer], &to->v, to->buffers[2]);
  if (from->backward)
    copy_packed(&from->dout, from->buffers[from->dout.buffer], &to->dout, to->buffers[3]);
  return KILN_OK;
}

void kiln__inputs_destroy(kiln__inputs *inputs) {
  for (int b = 0; b < KILN__BUFFERS; b++) free(inputs->buffers[b]);
  *inputs = (kiln__inputs){0};
}

void kiln__inputs_args(const kiln__inputs *in, kiln_attn_args *args) {
  args->batch = in->q.batch;
  args->seqlen_q = in->q.rows;
  args->seqlen_k = in->k.rows;
  args->num_heads = in->q.heads;
  args->num_heads_k = in->k.heads;
  args->q_stride = in->q.stride;
  args->k_stride = in->k.stride;
  args->v_stride = in->v.stride;
  args->o_stride = in->o.stride;
  args->softmax_scale = in->softmax_scale;
  args->do_stride = in->dout.stride;
  args->dq_stride = in->dq.stride;
  args->dk_stride = in->dk.stride;
  args->dv_stride = in->dv.stride;
}
