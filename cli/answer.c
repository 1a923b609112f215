/* o and lse by the fp64 reference; answer.h states the layout. */
#include "answer.h"

#include "reference.h"

#include <math.h>
#include <stdlib.h>

static double *decode(const kiln__inputs *in, int buffer) {
  double *values = calloc((size_t)in->lengths[buffer] + 1, sizeof *values);
  for (int64_t i = 0; values && i < in->lengths[buffer]; i++)
    values[i] = kiln__decode(in->dtype, in->buffers[buffer][i]);
  return values;
}

/* `in` is packed: buffers 0, 1 and 2 are q, k and v. */
static kiln_status refer(const kiln__inputs *in, kiln__answer *answer) {
  double *q = decode(in, 0), *k = decode(in, 1), *v = decode(in, 2);
  kiln_status status = KILN_OUT_OF_MEMORY;
  const kiln__reference reference = {
      .batch = in->q.batch,
      .seqlen_q = in->q.rows,
      .seqlen_k = in->k.rows,
      .num_heads = in->q.heads,
      .num_heads_k = in->k.heads,
      .head_dim = in->q.dim,
      .head_dim_v = in->v.dim,
      .softmax_scale = in->softmax_scale < 0 ? 1 / sqrt(in->q.dim) : (double)in->softmax_scale,
      .causal = in->mask == KILN_MASK_CAUSAL,
      .q = q,
      .k = k,
      .v = v,
      .q_stride = in->q.stride,
      .k_stride = in->k.stride,
      .v_stride = in->v.stride,
  };
  if (q && k && v) status = kiln__reference_forward(&reference, answer->o, answer->lse);
  free(q), free(k), free(v);
  return status;
}

kiln_status kiln__answer_create(const kiln__inputs *inputs, kiln__answer *answer) {
  const size_t rows = (size_t)inputs->q.batch * (size_t)inputs->q.rows * (size_t)inputs->q.heads;
  kiln__inputs packed;
  *answer = (kiln__answer){0};
  kiln_status status = kiln__inputs_pack(inputs, &packed);
  if (status != KILN_OK) return status;
  answer->o = calloc(rows * (size_t)inputs->v.dim + 1, sizeof *answer->o);
  answer->lse = calloc(rows + 1, sizeof *answer->lse);
  status = answer->o && answer->lse ? refer(&packed, answer) : KILN_OUT_OF_MEMORY;
  kiln__inputs_destroy(&packed);
  if (status != KILN_OK) kiln__answer_destroy(answer);
  return status;
}

void kiln__answer_destroy(kiln__answer *answer) {
  free(answer->o);
  free(answer->lse);
  *answer = (kiln__answer){0};
}
