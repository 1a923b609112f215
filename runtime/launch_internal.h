/* Shared by launch.c and launch_check.c: the tensors of a launch, seen alike. */
#ifndef KILN_RUNTIME_LAUNCH_INTERNAL_H
#define KILN_RUNTIME_LAUNCH_INTERNAL_H

#include "runtime/launch.h"

#define KILN__ELEMENT_BYTES 2                  /* of fp16 and bf16 */
#define KILN__STRIDE_LIMIT  (INT64_C(1) << 39) /* elements: a tensor map holds 2^40 bytes */

typedef struct kiln__view {
  const char *name;
  const void *address;
  int64_t extents[3]; /* batch, seqlen, heads */
  kiln_stride stride; /* elements */
  int32_t dim;        /* columns */
} kiln__view;

/* How many there are: four of a forward pass, eight of a backward pass. */
int kiln__launch_views(const kiln__record *record, const kiln_attn_args *args,
                       kiln__view views[KILN__NUM_TENSORS]);
int kiln__view_is_empty(const kiln__view *view);
void kiln__launch_args(const kiln__record *record, const kiln_attn_args *args,
                       kiln__forward_args *out);
void kiln__launch_backward_args(const kiln__record *record, const kiln_attn_args *args,
                                kiln__backward_args *out);
void kiln__launch_map(const kiln__map_shape *shape, const kiln__view *view, const void *readable,
                      kiln_dtype dtype, kiln__tensor_map *map);
int kiln__grid_choose(int64_t tiles, int32_t persistent, int32_t num_sms, int32_t cluster,
                      uint32_t grid[2]);

#endif
