/* What a launch refuses, on the host, with a status and a sentence that names the field, its value
 * and what is legal. Nothing here allocates. What sizes mean: docs/numerics.md. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "runtime/launch_internal.h"

#define SPAN_LIMIT   (INT64_MAX / 8)     /* elements along one axis */
#define SEQLEN_LIMIT (INT32_MAX - 0xfff) /* kernels count rows, rounded up to tiles, in 32 bits */

static kiln_status refuse(kiln__text *error, const char *field, int64_t value, const char *legal) {
  kiln__text_printf(error, "%s is %lld: %s", field, (long long)value, legal);
  return KILN_INVALID_ARGUMENT;
}

static kiln_status check_sizes(const kiln_attn_args *args, kiln__text *error) {
  const char *legal = "it must not be negative";
  if (args->batch < 0) return refuse(error, "batch", args->batch, legal);
  if (args->seqlen_q < 0) return refuse(error, "seqlen_q", args->seqlen_q, legal);
  if (args->seqlen_k < 0) return refuse(error, "seqlen_k", args->seqlen_k, legal);
  legal = "it must be at most 2147479552, because kernels count rows in 32 bits";
  if (args->seqlen_q > SEQLEN_LIMIT) return refuse(error, "seqlen_q", args->seqlen_q, legal);
  if (args->seqlen_k > SEQLEN_LIMIT) return refuse(error, "seqlen_k", args->seqlen_k, legal);
  legal = "it must be at least 1";
  if (args->num_heads < 1) return refuse(error, "num_heads", args->num_heads, legal);
  if (args->num_heads_k < 1) return refuse(error, "num_heads_k", args->num_heads_k, legal);
  if (args->num_heads % args->num_heads_k == 0) return KILN_OK;
  kiln__text_printf(error,
                    "num_heads is %d and num_heads_k is %d: num_heads must be a whole multiple of "
                    "num_heads_k",
                    (int)args->num_heads, (int)args->num_heads_k);
  return KILN_INVALID_ARGUMENT;
}

static kiln_status check_scale(const kiln_attn_args *args, kiln__text *error) {
  float scale = args->softmax_scale;
  if (scale == KILN_SCALE_DEFAULT || (isfinite(scale) && scale >= 0)) return KILN_OK;
  kiln__text_printf(error,
                    "softmax_scale is %g: it must be finite and not negative, or "
                    "KILN_SCALE_DEFAULT (-1) for 1 / sqrt(head_dim)",
                    (double)scale);
  return KILN_INVALID_ARGUMENT;
}

/* ---- tensors ---- */

int kiln__launch_views(const kiln__record *record, const kiln_attn_args *args,
                       kiln__view views[KILN__NUM_TENSORS]) {
  const kiln_attn_spec *spec = &record->spec;
  int64_t q[3] = {args->batch, args->seqlen_q, args->num_heads};
  int64_t k[3] = {args->batch, args->seqlen_k, args->num_heads_k};
  views[KILN__Q] = (kiln__view){"q", args->q, {q[0], q[1], q[2]}, args->q_stride, spec->head_dim};
  views[KILN__K] = (kiln__view){"k", args->k, {k[0], k[1], k[2]}, args->k_stride, spec->head_dim};
  views[KILN__V] = (kiln__view){"v", args->v, {k[0], k[1], k[2]}, args->v_stride, spec->head_dim_v};
  views[KILN__O] = (kiln__view){"o", args->o, {q[0], q[1], q[2]}, args->o_stride, spec->head_dim_v};
  if (spec->pass == KILN_PASS_FORWARD) return KILN__NUM_FORWARD;
  views[KILN__DO] = views[KILN__O];
  views[KILN__DO].name = "do", views[KILN__DO].address = args->dout;
  views[KILN__DO].stride = args->do_stride;
  views[KILN__DQ] = views[KILN__Q];
  views[KILN__DQ].name = "dq", views[KILN__DQ].address = args->dq;
  views[KILN__DQ].stride = args->dq_stride;
  views[KILN__DK] = views[KILN__K];
  views[KILN__DK].name = "dk", views[KILN__DK].address = args->dk;
  views[KILN__DK].stride = args->dk_stride;
  views[KILN__DV] = views[KILN__V];
  views[KILN__DV].name = "dv", views[KILN__DV].address = args->dv;
  views[KILN__DV].stride = args->dv_stride;
  return KILN__NUM_TENSORS;
}

int kiln__view_is_empty(const kiln__view *view) {
  return view->extents[0] == 0 || view->extents[1] == 0 || view->extents[2] == 0;
}

static kiln_status misaligned(kiln__text *error, const kiln__view *view, const char *what,
                              int64_t value, int32_t align) {
  int64_t actual = value & -value;
  kiln__text_printf(error,
                    "%s's %s is aligned to %lld bytes: this kernel needs %d, so copy the tensor "
                    "to aligned memory",
                    view->name, what, (long long)actual, (int)align);
  return KILN_MISALIGNED;
}

/* ORDER: the members of kiln_stride, the extents of a view */
static const char *const axis_names[3] = {"batch stride", "row stride", "head stride"};

/* A stride of an axis of one element is never used, so it may be anything. */
static kiln_status check_strides(const kiln__view *view, int32_t align, kiln__text *error) {
  const int64_t strides[3] = {view->stride.batch, view->stride.row, view->stride.head};
  for (int i = 0; i < 3; i++) {
    if (view->extents[i] <= 1) continue;
    if (strides[i] < 0 || strides[i] >= KILN__STRIDE_LIMIT ||
        strides[i] > SPAN_LIMIT / view->extents[i]) {
      kiln__text_printf(error,
                        "%s's %s is %lld elements: it must not be negative, and the tensor must "
                        "fit in the address space",
                        view->name, axis_names[i], (long long)strides[i]);
      return KILN_INVALID_ARGUMENT;
    }
    if (strides[i] * KILN__ELEMENT_BYTES % align)
      return misaligned(error, view, axis_names[i], strides[i] * KILN__ELEMENT_BYTES, align);
  }
  return KILN_OK;
}

/* Two elements of an output at one address would be a race: from the smallest stride to the
 * largest, each must step over all that lies inside it. */
static kiln_status check_overlap(const kiln__view *view, kiln__text *error) {
  const int64_t strides[3] = {view->stride.batch, view->stride.row, view->stride.head};
  int order[3] = {0, 1, 2};
  for (int i = 1; i < 3; i++)
    for (int j = i; j > 0 && strides[order[j]] < strides[order[j - 1]]; j--) {
      int other = order[j];
      order[j] = order[j - 1];
      order[j - 1] = other;
    }
  int64_t inner =
      view->dim; /* elements; below 3 * 2^31 * 2^39, which the limit check keeps exact */
  for (int i = 0; i < 3; i++) {
    int axis = order[i];
    if (view->extents[axis] <= 1) continue;
    if (strides[axis] < inner) {
      kiln__text_printf(error,
                        "%s's %s is %lld elements: it must be at least %lld, or its elements "
                        "would overlap",
                        view->name, axis_names[axis], (long long)strides[axis], (long long)inner);
      return KILN_INVALID_ARGUMENT;
    }
    inner += strides[axis] * (view->extents[axis] - 1);
  }
  return KILN_OK;
}

static kiln_status check_address(const kiln__view *view, int32_t align, kiln__text *error) {
  if (!view->address) {
    kiln__text_printf(error, "%s is NULL: only an empty tensor has no address", view->name);
    return KILN_INVALID_ARGUMENT;
  }
  if ((uintptr_t)view->address % (uintptr_t)align == 0) return KILN_OK;
  return misaligned(error, view, "address", (int64_t)(uintptr_t)view->address, align);
}

static kiln_status check_lse(const kiln_attn_args *args, int is_input, kiln__text *error) {
  if (is_input && !args->lse) {
    kiln__text_string(error, "lse is NULL: the backward pass reads what the forward pass wrote");
    return KILN_INVALID_ARGUMENT;
  }
  if ((uintptr_t)args->lse % sizeof(float) == 0) return KILN_OK;
  kiln__text_string(error, "lse's address is not aligned to 4 bytes");
  return KILN_MISALIGNED;
}

kiln_status kiln__launch_check(const kiln__record *record, const kiln_attn_args *args,
                               int sizes_only, kiln__text *error) {
  kiln__view views[KILN__NUM_TENSORS];
  kiln_status status = check_sizes(args, error);
  if (status == KILN_OK) status = check_scale(args, error);
  const int count = kiln__launch_views(record, args, views);
  const int backward = count > KILN__NUM_FORWARD;
  for (int i = 0; i < count && status == KILN_OK; i++) {
    const int is_output = backward ? i >= KILN__DQ : i == KILN__O;
    if (kiln__view_is_empty(&views[i])) continue;
    status = check_strides(&views[i], record->align, error);
    if (status == KILN_OK && !sizes_only) status = check_address(&views[i], record->align, error);
    if (status == KILN_OK && is_output) status = check_overlap(&views[i], error);
  }
  if (status == KILN_OK && !sizes_only)
    status = check_lse(args, backward && !kiln__view_is_empty(&views[KILN__Q]), error);
  return status;
}
