/* From a record and arguments to launches: see launch.h. */
#include "runtime/launch.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "runtime/launch_internal.h"

#define WORKSPACE_ALIGN 256
#define GRID_X_LIMIT    INT64_C(2147483647)
#define GRID_Y_LIMIT    INT64_C(65535)
#define LOG2_E          1.44269504088896340736f

static int64_t size_of(const kiln_attn_args *args, kiln__size_field field) {
  switch (field) {
  case KILN__SIZE_BATCH: return args->batch;
  case KILN__SIZE_SEQLEN_Q: return args->seqlen_q;
  case KILN__SIZE_SEQLEN_K: return args->seqlen_k;
  case KILN__SIZE_NUM_HEADS: return args->num_heads;
  case KILN__SIZE_NUM_HEADS_K: return args->num_heads_k;
  }
  return 0;
}

/* first * product of ceil(field / divisor); -1 when it does not fit in 63 bits. A size of 0 makes
 * it 0 whatever the others are. */
static int64_t product(int64_t first, const kiln__factor *factors, int count,
                       const kiln_attn_args *args) {
  int64_t total = first;
  for (int i = 0; i < count; i++)
    if (size_of(args, factors[i].field) == 0) return 0;
  for (int i = 0; i < count; i++) {
    int64_t divisor = factors[i].divisor;
    int64_t factor = (size_of(args, factors[i].field) + divisor - 1) / divisor;
    if (total > INT64_MAX / factor) return -1;
    total *= factor;
  }
  return total;
}

/* ---- workspace ---- */

/* Bytes of one item, rounded up; -1 when they do not fit. */
static int64_t item_bytes(const kiln__workspace_item *item, const kiln_attn_args *args) {
  int64_t bytes = product(item->bytes, item->dims, item->num_dims, args);
  if (bytes < 0 || bytes > INT64_MAX - WORKSPACE_ALIGN) return -1;
  return (bytes + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN;
}

kiln_status kiln__launch_workspace(const kiln__record *record, const kiln_attn_args *args,
                                   kiln__text *error, size_t *bytes) {
  int64_t total = 0;
  *bytes = 0;
  for (int i = 0; i < record->num_workspace; i++) {
    int64_t item = item_bytes(&record->workspace[i], args);
    if (item < 0 || total > INT64_MAX - item) {
      kiln__text_string(error, "the workspace for these sizes exceeds the address space");
      return KILN_INVALID_ARGUMENT;
    }
    total += item;
  }
  *bytes = (size_t)total;
  return KILN_OK;
}

static kiln_status check_workspace(const kiln__record *record, const kiln_attn_args *args,
                                   kiln__text *error) {
  size_t needed;
  kiln_status status = kiln__launch_workspace(record, args, error, &needed);
  if (status != KILN_OK || needed == 0) return status;
  if (!args->workspace || args->workspace_bytes < needed) {
    kiln__text_printf(error, "the workspace has %zu bytes: this kernel needs %zu for these sizes",
                      args->workspace ? args->workspace_bytes : 0, needed);
    return KILN_WORKSPACE_TOO_SMALL;
  }
  if ((uintptr_t)args->workspace % WORKSPACE_ALIGN == 0) return KILN_OK;
  kiln__text_printf(error, "the workspace's address is not aligned to %d bytes", WORKSPACE_ALIGN);
  return KILN_MISALIGNED;
}

static kiln_status clear_workspace(const kiln__loaded *loaded, const kiln_attn_args *args,
                                   struct CUstream_st *stream, kiln__text *error) {
  char *address = args->workspace;
  for (int i = 0; i < loaded->record->num_workspace; i++) {
    const kiln__workspace_item *item = &loaded->record->workspace[i];
    int64_t bytes = item_bytes(item, args);
    kiln_status status = KILN_OK;
    if (item->zero && bytes > 0)
      status = loaded->ops->clear(loaded->device, address, (size_t)bytes, stream, error);
    if (status != KILN_OK) return status;
    address += bytes;
  }
  return KILN_OK;
}

/* ---- parameters ---- */

static int32_t ceil_log2(int32_t value) {
  int32_t bits = 0;
  while (bits < 31 && (INT64_C(1) << bits) < value) bits++;
  return bits;
}

static float scale_of(const kiln__record *record, const kiln_attn_args *args) {
  if (args->softmax_scale != KILN_SCALE_DEFAULT) return args->softmax_scale;
  return (float)(1.0 / sqrt((double)record->spec.head_dim));
}

static int32_t count_blocks(int32_t seqlen, int32_t block) {
  return (int32_t)(((int64_t)seqlen + block - 1) / block);
}

void kiln__launch_args(const kiln__record *record, const kiln_attn_args *args,
                       kiln__forward_args *out) {
  const float scale = scale_of(record, args);
  memset(out, 0, sizeof *out);
  out->q = args->q;
  out->k = args->k;
  out->v = args->v;
  out->o = args->o;
  out->lse = args->lse;
  out->workspace = args->workspace;
  out->q_stride = args->q_stride;
  out->k_stride = args->k_stride;
  out->v_stride = args->v_stride;
  out->o_stride = args->o_stride;
  out->batch = args->batch;
  out->seqlen_q = args->seqlen_q;
  out->seqlen_k = args->seqlen_k;
  out->num_heads = args->num_heads;
  out->num_heads_k = args->num_heads_k;
  out->group = args->num_heads / args->num_heads_k;
  out->m_blocks = count_blocks(args->seqlen_q, record->tile.block_m);
  out->shift = ceil_log2(args->seqlen_k);
  out->softmax_scale = scale;
  /* Positive and finite, so that a score of -inf times it is -inf and 0 times it is 0. */
  out->scale_log2 = fminf(fmaxf(scale * LOG2_E, FLT_TRUE_MIN), FLT_MAX);
}

/* Overflow was refused by the workspace's check. */
static void place_workspace(const kiln__record *record, const kiln_attn_args *args,
                            int64_t at[KILN__BACKWARD_WORKSPACE]) {
  int64_t offset = 0;
  for (int i = 0; i < record->num_workspace && i < KILN__BACKWARD_WORKSPACE; i++) {
    at[i] = offset;
    offset += item_bytes(&record->workspace[i], args);
  }
}

void kiln__launch_backward_args(const kiln__record *record, const kiln_attn_args *args,
                                kiln__backward_args *out) {
  const float scale = scale_of(record, args);
  memset(out, 0, sizeof *out);
  out->q = args->q;
  out->k = args->k;
  out->v = args->v;
  out->o = args->o;
  out->dout = args->dout;
  out->lse = args->lse;
  out->dq = args->dq;
  out->dk = args->dk;
  out->dv = args->dv;
  out->workspace = args->workspace;
  place_workspace(record, args, out->workspace_at);
  out->q_stride = args->q_stride;
  out->k_stride = args->k_stride;
  out->v_stride = args->v_stride;
  out->o_stride = args->o_stride;
  out->do_stride = args->do_stride;
  out->dq_stride = args->dq_stride;
  out->dk_stride = args->dk_stride;
  out->dv_stride = args->dv_stride;
  out->batch = args->batch;
  out->seqlen_q = args->seqlen_q;
  out->seqlen_k = args->seqlen_k;
  out->num_heads = args->num_heads;
  out->num_heads_k = args->num_heads_k;
  out->group = args->num_heads / args->num_heads_k;
  out->m_blocks = count_blocks(args->seqlen_q, record->tile.block_m);
  out->n_blocks = count_blocks(args->seqlen_k, record->tile.block_n);
  out->softmax_scale = scale;
  /* Not so small that its reciprocal is no normal number. */
  out->scale_log2 = fminf(fmaxf(scale * LOG2_E, 0x1p-100f), FLT_MAX);
}

/* A tensor map needs legal numbers also where they mean nothing: an axis of one element takes the
 * stride of a row, and an empty tensor, which no kernel reads, becomes one row at an address that
 * is readable. */
void kiln__launch_map(const kiln__map_shape *shape, const kiln__view *view, const void *readable,
                      kiln_dtype dtype, kiln__tensor_map *map) {
  int empty = kiln__view_is_empty(view);
  const int64_t extents[3] = {view->extents[1], view->extents[2], view->extents[0]};
  const int64_t strides[3] = {view->stride.row, view->stride.head, view->stride.batch};
  memset(map, 0, sizeof *map);
  map->address = empty ? readable : view->address;
  map->rank = 4;
  map->dtype = dtype;
  map->swizzle = shape->swizzle;
  map->dims[0] = (uint64_t)view->dim;
  for (int i = 0; i < 3; i++) {
    int single = empty || extents[i] == 1;
    map->dims[i + 1] = single ? 1 : (uint64_t)extents[i];
    map->strides[i] = (uint64_t)(single ? (view->dim * KILN__ELEMENT_BYTES + 15) / 16 * 16
                                        : strides[i] * KILN__ELEMENT_BYTES);
  }
  map->box[0] = (uint32_t)shape->box_cols;
  map->box[1] = (uint32_t)shape->box_rows;
  map->box[2] = map->box[3] = 1;
}

/* ---- launching ---- */

/* Blocks of a grid in one or two axes: a cluster of them for a tile. 0, or -1 when there are too
 * many. */
int kiln__grid_choose(int64_t tiles, int32_t persistent, int32_t num_sms, int32_t cluster,
                      uint32_t grid[2]) {
  int64_t clusters = tiles;
  if (persistent > 0) {
    const int64_t resident = (int64_t)num_sms * persistent / cluster;
    if (clusters > resident) clusters = resident > 0 ? resident : 1;
  }
  if (clusters > INT64_MAX / cluster) return -1;
  const int64_t blocks = clusters * cluster;
  int64_t widest = GRID_X_LIMIT / cluster * cluster;
  int64_t x = blocks < widest ? blocks : widest;
  int64_t y = x > 0 ? (blocks - 1) / x + 1 : 0;
  if (y > GRID_Y_LIMIT) return -1;
  grid[0] = (uint32_t)x;
  grid[1] = (uint32_t)y;
  return 0;
}

typedef struct launch_params {
  _Alignas(64) unsigned char maps[KILN__NUM_TENSORS][KILN__TENSOR_MAP_BYTES];
  union {
    kiln__forward_args forward;
    kiln__backward_args backward;
  } args;
  size_t args_bytes;
} launch_params;

_Static_assert(sizeof(launch_params) <= 4096, "all parameters of an entry fit what CUDA takes");

static void fill_args(const kiln__record *record, const kiln_attn_args *args, int64_t tiles,
                      launch_params *params) {
  const int backward = record->spec.pass == KILN_PASS_BACKWARD;
  params->args_bytes = backward ? sizeof params->args.backward : sizeof params->args.forward;
  if (backward) {
    kiln__launch_backward_args(record, args, &params->args.backward);
    params->args.backward.tiles = tiles;
  } else {
    kiln__launch_args(record, args, &params->args.forward);
    params->args.forward.tiles = tiles;
  }
}

static kiln_status encode_maps(const kiln__loaded *loaded, const kiln_attn_args *args,
                               launch_params *params, kiln__text *error) {
  const kiln__record *record = loaded->record;
  kiln__view views[KILN__NUM_TENSORS];
  kiln__tensor_map map;
  const int count = kiln__launch_views(record, args, views);
  /* Of the queries and the keys one at least is not empty. */
  const void *readable = args->seqlen_q > 0 ? args->q : args->k;
  for (int i = 0; i < count; i++) {
    if (!record->maps[i].present) continue;
    kiln__launch_map(&record->maps[i], &views[i], readable, record->spec.dtype, &map);
    kiln_status status =
        loaded->ops->tensor_map_encode(loaded->device, &map, error, params->maps[i]);
    if (status == KILN_OK) continue;
    kiln__text_printf(error, " (of %s)", views[i].name);
    return status;
  }
  return KILN_OK;
}

/* Where the work goes: a stream, or the timeline of a block. */
typedef struct destination {
  struct CUstream_st *stream;
  const kiln__trace *trace;
} destination;

static kiln_status launch_entry(const kiln__loaded *loaded, int index, launch_params *params,
                                const uint32_t grid[2], const destination *to, kiln__text *error) {
  const kiln__entry *entry = &loaded->record->entries[index];
  void *addresses[KILN__MAX_PARAMS];
  size_t sizes[KILN__MAX_PARAMS];
  for (int i = 0; i < entry->num_params; i++) {
    int is_args = entry->params[i] == KILN__PARAM_ARGS;
    addresses[i] = is_args ? (void *)&params->args : params->maps[entry->params[i]];
    sizes[i] = is_args ? params->args_bytes : KILN__TENSOR_MAP_BYTES;
  }
  kiln__launch launch = {.entry = loaded->entries[index],
                         .grid = {grid[0], grid[1]},
                         .shape = entry->shape,
                         .params = addresses,
                         .param_sizes = sizes,
                         .num_params = entry->num_params,
                         .trace = to->trace};
  return loaded->ops->launch(loaded->device, &launch, to->stream, error);
}

/* The grids of all entries, before the first is launched. */
static kiln_status plan_grids(const kiln__loaded *loaded, const kiln_attn_args *args,
                              int64_t tiles[KILN__MAX_ENTRIES], uint32_t grids[][2],
                              kiln__text *error) {
  for (int i = 0; i < loaded->record->num_entries; i++) {
    const kiln__entry *entry = &loaded->record->entries[i];
    tiles[i] = product(1, entry->grid, entry->num_grid, args);
    /* A persistent kernel counts its tiles in 32 bits: 2^32 of them would not fit any memory. */
    int countable = entry->persistent == 0 || tiles[i] < INT64_C(1) << 32;
    if (tiles[i] >= 0 && countable &&
        kiln__grid_choose(tiles[i], entry->persistent, loaded->num_sms, entry->shape.cluster,
                          grids[i]) == 0)
      continue;
    kiln__text_string(error, "batch, num_heads and seqlen_q are too large together: the grid "
                             "would have more blocks than a launch can hold");
    return KILN_INVALID_ARGUMENT;
  }
  return KILN_OK;
}

/* Without queries a forward pass writes nothing; a backward pass writes zeros to dk and dv. */
static int writes_nothing(const kiln__record *record, const kiln_attn_args *args) {
  const int backward = record->spec.pass == KILN_PASS_BACKWARD;
  return args->batch == 0 || (args->seqlen_q == 0 && (!backward || args->seqlen_k == 0));
}

static kiln_status run(const kiln__loaded *loaded, const kiln_attn_args *args,
                       const destination *to, kiln__text *error) {
  launch_params params;
  int64_t tiles[KILN__MAX_ENTRIES];
  uint32_t grids[KILN__MAX_ENTRIES][2];
  const kiln__record *record = loaded->record;
  kiln_status status = kiln__launch_check(record, args, 0, error);
  if (status == KILN_OK) status = check_workspace(record, args, error);
  if (status == KILN_OK) status = plan_grids(loaded, args, tiles, grids, error);
  if (status != KILN_OK || writes_nothing(record, args)) return status;
  status = encode_maps(loaded, args, &params, error);
  if (status == KILN_OK) status = clear_workspace(loaded, args, to->stream, error);
  for (int i = 0; i < record->num_entries && status == KILN_OK; i++) {
    if (tiles[i] == 0) continue;
    fill_args(record, args, tiles[i], &params);
    status = launch_entry(loaded, i, &params, grids[i], to, error);
  }
  return status;
}

kiln_status kiln__launch_run(const kiln__loaded *loaded, const kiln_attn_args *args,
                             struct CUstream_st *stream, kiln__text *error) {
  const destination to = {stream, NULL};
  return run(loaded, args, &to, error);
}

kiln_status kiln__launch_trace(const kiln__loaded *loaded, const kiln_attn_args *args,
                               const kiln__trace *trace, kiln__text *error) {
  const destination to = {NULL, trace};
  if (loaded->record->num_entries == 1) return run(loaded, args, &to, error);
  kiln__text_printf(error,
                    "a trace shows one kernel and this plan launches %d; choose flash and forward",
                    loaded->record->num_entries);
  return KILN_UNSUPPORTED;
}
