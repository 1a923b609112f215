/* The tensors of one problem on the host: buffers of 16-bit codes and where q, k, v, dout and the
 * results lie in them.
 *
 * Invariant: every element of q, k, v and dout lies inside its buffer; what lies in the gaps is the
 * filler, which no kernel may let through. Results have no buffers here: their operands say how
 * they will lie on the device.
 *
 * Called by verify (made data), run (loaded data), trial.c (to the device) and compare.c
 * (reference). */
#ifndef KILN_CLI_INPUTS_H
#define KILN_CLI_INPUTS_H

#include "problems.h"

#include <kiln/kiln.h>

typedef struct kiln__operand {
  int buffer;     /* of q, k, v, dout */
  int64_t offset; /* of its first element, elements */
  int32_t batch, rows, heads, dim;
  kiln_stride stride; /* elements */
} kiln__operand;

enum { KILN__BUFFERS = 4 };

typedef struct kiln__inputs {
  kiln_dtype dtype; /* FP16 or BF16 */
  kiln_mask mask;
  float softmax_scale; /* KILN_SCALE_DEFAULT, or as given */
  bool wants_lse;
  kiln__operand q, k, v, o;
  bool backward; /* the gradients are the results; what follows is there for them alone */
  bool deterministic;
  kiln__operand dout, dq, dk, dv;
  uint16_t *buffers[KILN__BUFFERS]; /* NULL = not used */
  int64_t lengths[KILN__BUFFERS];   /* elements */
} kiln__inputs;

/* OUT_OF_MEMORY leaves nothing allocated. */
kiln_status kiln__inputs_create(const kiln__problem *problem, const kiln_attn_spec *spec,
                                uint64_t seed, kiln__inputs *inputs);

/* Makes the problem a backward pass: wants lse, and gets packed gradients; dk and dv have rows_k
 * rows. dout's buffer is the last one, and the caller's to fill. */
void kiln__inputs_add_gradients(bool deterministic, int32_t rows_k, kiln__inputs *inputs);

/* The same elements as packed tensors with no gaps. */
kiln_status kiln__inputs_pack(const kiln__inputs *from, kiln__inputs *to);
void kiln__inputs_destroy(kiln__inputs *inputs);

/* A packed operand. */
kiln__operand kiln__operand_packed(int buffer, int32_t batch, int32_t rows, int32_t heads,
                                   int32_t dim);

/* Elements from the buffer's start to the end of the operand's last row; 0 for an empty one. */
int64_t kiln__operand_extent(const kiln__operand *operand);

static inline int64_t kiln__operand_at(const kiln__operand *x, int64_t batch, int64_t row,
                                       int64_t head) {
  return x->offset + batch * x->stride.batch + row * x->stride.row + head * x->stride.head;
}

/* Sizes, strides and scale; the addresses are left alone. */
void kiln__inputs_args(const kiln__inputs *inputs, kiln_attn_args *args);

/* Codes of normal numbers, mean 0 and deviation 1: the same on every machine for one seed. */
void kiln__inputs_normal(kiln_dtype dtype, uint64_t seed, uint16_t *codes, int64_t count);

float kiln__decode(kiln_dtype dtype, uint16_t code);
uint16_t kiln__encode(kiln_dtype dtype, double value);

#endif
