/* Attention by its definition, in fp64 on the host, and how far a result may be from it.
 *
 * Invariant: no code, table or constant is shared with the kernels, so that an error of theirs
 * cannot hide here. A key that a row does not see is never read, whatever it holds; NaN and
 * infinity that a row does see reach it by plain arithmetic.
 *
 * Called by run --check and by verify. */
#ifndef KILN_CLI_REFERENCE_H
#define KILN_CLI_REFERENCE_H

#include "tensor.h"

#include <stdbool.h>

typedef struct kiln__reference {
  int64_t batch, seqlen_q, seqlen_k;
  int64_t num_heads, num_heads_k; /* the first is a whole multiple of the second */
  int64_t head_dim, head_dim_v;
  double softmax_scale;
  bool causal; /* bottom-right aligned: row i sees key j when j <= i + seqlen_k - seqlen_q */
  const double *q, *k, *v;
  kiln_stride q_stride, k_stride, v_stride;
} kiln__reference;

/* Strides of a dense (batch, seqlen, num_heads, head_dim) tensor. */
kiln_stride kiln__stride_dense(int64_t seqlen, int64_t num_heads, int64_t head_dim);

/* o: dense (batch, seqlen_q, num_heads, head_dim_v). lse: (batch, num_heads, seqlen_q), natural
 * logarithm. A row that sees no key gets 0 and -inf. A row whose every score is -inf though it does
 * see keys gets NaN: it is 0/0. Runs on up to 16 threads with the same bits for any number of them.
 * INVALID_ARGUMENT: a negative size or heads that do not divide. */
kiln_status kiln__reference_forward(const kiln__reference *problem, double *o, double *lse);

/* The gradients of sum(dout * o), where dout is dense (batch, seqlen_q, num_heads, head_dim_v): all
 * dense in the shapes of q, k and v; what a row does not see adds nothing, whatever it holds. The
 * terms of dq and dk may cancel, down to 0 where a row sees one key, and a kernel's rounding does
 * not: dq_terms and dk_terms are the norms that the whole tensors would have if |dP| and |delta|
 * added up and the keys' terms were independent. */
typedef struct kiln__gradients {
  double *dq, *dk, *dv;
  double dq_terms, dk_terms;
} kiln__gradients;

/* OUT_OF_MEMORY and INVALID_ARGUMENT as kiln__reference_forward; the same bits for any number of
 * threads. */
kiln_status kiln__reference_backward(const kiln__reference *problem, const double *dout,
                                     kiln__gradients *gradients);

/* For reference_backward.c: the keys that a row sees, a product of two rows, what a problem must be
 * to have an answer, and how many threads so many independent parts are worth. */
enum { KILN__REFERENCE_THREADS = 16 };
int64_t kiln__reference_seen(const kiln__reference *problem, int64_t row);
double kiln__reference_dot(const double *a, const double *b, int64_t count);
bool kiln__reference_is_legal(const kiln__reference *problem);
int64_t kiln__reference_threads(int64_t parts);

/* Figures of one output against its reference. Any NaN or infinity on either side makes the figure
 * NaN, which is below no tolerance; over no elements it is 0. */
double kiln__error_max_abs(const float *result, const double *reference, int64_t count);

/* ||result - reference|| / ||reference||; a zero reference allows only a zero result. */
double kiln__error_rel_rms(const float *result, const double *reference, int64_t count);

/* As kiln__error_max_abs, but a -inf on both sides is equal, and on one side only is inf. */
double kiln__error_lse(const float *result, const double *reference, int64_t count);

/* The largest relative RMS error of o that is accepted for inputs of `dtype`. NaN, so that nothing
 * passes, for a dtype that has no rule. */
double kiln__tolerance_o(kiln__tensor_dtype dtype, int64_t seqlen_k);

/* The same of dq, dk and dv. */
double kiln__tolerance_gradient(kiln__tensor_dtype dtype, int64_t seqlen_q, int64_t seqlen_k);

/* The largest error accepted beside an LSE of this value. */
double kiln__tolerance_lse(double lse);

/* Whether every row's LSE is within its own tolerance. */
bool kiln__lse_passes(const float *result, const double *reference, int64_t count);

#endif
