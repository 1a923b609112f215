/* Parameter layout forward.1: strides in elements; lse in natural logarithm, (batch, num_heads,
 * seqlen_q). */
typedef struct {
  i64 batch, row, head;
} Stride;
typedef struct {
  const void *q, *k, *v;
  void *o;
  float *lse;
  void *workspace;
  Stride q_stride, k_stride, v_stride, o_stride;
  i64 tiles; /* m_blocks * num_heads * batch */
  i32 batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  i32 group;           /* query heads per key head */
  i32 m_blocks;        /* ceil(seqlen_q / block_m) */
  i32 shift;           /* ceil(log2(seqlen_k)) */
  float softmax_scale; /* multiplies q.k */
  float scale_log2;    /* softmax_scale * log2(e), > 0 */
} ForwardArgs;
