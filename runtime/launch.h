/* From a launch record and the caller's arguments to launches on a device.
 *  The launch path (kiln__launch_check, kiln__launch_workspace, kiln__launch_run) allocates
 * nothing, takes no lock and touches no file; whatever it needs lies on the stack. Called by
 * kernel.c and plan.c. */
#ifndef KILN_RUNTIME_LAUNCH_H
#define KILN_RUNTIME_LAUNCH_H

#include "runtime/device.h"
#include "runtime/record.h"

/* Parameter layout "forward.1", passed by value to every forward entry; the kernel's copy is in
 * templates/common/args.tmpl.cu. Pointers are device addresses, strides are in elements. */
typedef struct kiln__forward_args {
  const void *q, *k, *v;
  void *o;
  float *lse;
  void *workspace;
  kiln_stride q_stride, k_stride, v_stride, o_stride;
  int64_t tiles; /* work items of the entry's grid */
  int32_t batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  int32_t group;    /* num_heads / num_heads_k */
  int32_t m_blocks; /* ceil(seqlen_q / block_m) */
  int32_t shift;    /* ceil(log2(seqlen_k)), 0 for seqlen_k <= 1 */
  float softmax_scale;
  float scale_log2; /* softmax_scale * log2(e); the smallest positive float for a scale of 0 */
} kiln__forward_args;

/* Parameter layout "backward.1", by value to every backward entry; the kernel's copy is in
 * templates/common/backward_args.tmpl.cu. */
typedef struct kiln__backward_args {
  const void *q, *k, *v, *o, *dout;
  const float *lse;
  void *dq, *dk, *dv;
  void *workspace;
  int64_t workspace_at[KILN__BACKWARD_WORKSPACE]; /* where the record's items begin, bytes */
  kiln_stride q_stride, k_stride, v_stride, o_stride, do_stride, dq_stride, dk_stride, dv_stride;
  int64_t tiles; /* work items of the entry's grid */
  int32_t batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  int32_t group;    /* num_heads / num_heads_k */
  int32_t m_blocks; /* ceil(seqlen_q / block_m) */
  int32_t n_blocks; /* ceil(seqlen_k / block_n) */
  float softmax_scale;
  float scale_log2; /* softmax_scale * log2(e), but 2^-100 at least */
} kiln__backward_args;

/* A loaded kernel: what a launch needs and nothing else. Read-only once it is made. */
typedef struct kiln__loaded {
  const kiln__device_ops *ops;
  void *device;
  int32_t num_sms;
  const kiln__record *record;
  void *entries[KILN__MAX_ENTRIES]; /* of the device, in the record's order */
} kiln__loaded;

/* Refuses arguments that the kernel cannot run with. With `sizes_only`, addresses are not looked
 * at. */
kiln_status kiln__launch_check(const kiln__record *record, const kiln_attn_args *args,
                               int sizes_only, kiln__text *error);
/* Bytes of workspace; INVALID_ARGUMENT when they do not fit in a size_t. */
kiln_status kiln__launch_workspace(const kiln__record *record, const kiln_attn_args *args,
                                   kiln__text *error, size_t *bytes);
/* Checks, then enqueues all entries on the stream. After a refusal nothing was launched. */
kiln_status kiln__launch_run(const kiln__loaded *loaded, const kiln_attn_args *args,
                             struct CUstream_st *stream, kiln__text *error);
/* The same with a timeline in place of a stream; on the emulator. UNSUPPORTED where a launch has
 * several entries. */
kiln_status kiln__launch_trace(const kiln__loaded *loaded, const kiln_attn_args *args,
                               const kiln__trace *trace, kiln__text *error);

#endif
