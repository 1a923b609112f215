/* The launch record in C: everything a launch needs, read from JSON that may come from a damaged or
 * hostile file. After kiln__record_parse every field lies in its range, so nothing checks it again.
 * The JSON form is described in docs/record.md. Used by binary.c, kernel.c, launch.c and
 * pack_read.c. */
#ifndef KILN_RUNTIME_RECORD_H
#define KILN_RUNTIME_RECORD_H

#include <jansson.h>
#include <kiln/kiln.h>

#include "runtime/services.h"
#include "runtime/text.h"

#define KILN__MAX_GRID           4 /* factors of a grid */
#define KILN__MAX_DIMS           4 /* factors of a workspace item */
#define KILN__MAX_PARAMS         9 /* of an entry: a map of every tensor, and the args */
#define KILN__MAX_WORKSPACE      8
#define KILN__BACKWARD_WORKSPACE 4 /* items that layout backward.1 has offsets for */

/* A size that is known at launch. */
typedef enum kiln__size_field {
  KILN__SIZE_BATCH,
  KILN__SIZE_SEQLEN_Q,
  KILN__SIZE_SEQLEN_K,
  KILN__SIZE_NUM_HEADS,
  KILN__SIZE_NUM_HEADS_K
} kiln__size_field;

typedef struct kiln__factor { /* ceil(field / divisor) */
  kiln__size_field field;
  int32_t divisor; /* >= 1 */
} kiln__factor;

typedef enum kiln__tensor {
  KILN__Q,
  KILN__K,
  KILN__V,
  KILN__O,
  KILN__NUM_FORWARD, /* of a forward pass; the others are of a backward pass alone */
  KILN__DO = KILN__NUM_FORWARD,
  KILN__DQ,
  KILN__DK,
  KILN__DV,
  KILN__NUM_TENSORS
} kiln__tensor;

#define KILN__PARAM_ARGS KILN__NUM_TENSORS /* a parameter is a tensor's map, or the args */

typedef struct kiln__map_shape {
  int32_t present;
  int32_t box_rows, box_cols; /* elements: of seqlen, of the dim */
  int32_t swizzle;            /* bytes: 0, 32, 64, 128 */
} kiln__map_shape;

typedef struct kiln__workspace_item {
  int64_t bytes; /* times the product of dims */
  kiln__factor dims[KILN__MAX_DIMS];
  int32_t num_dims;
  int32_t zero; /* cleared on the stream before the first entry */
} kiln__workspace_item;

typedef struct kiln__entry {
  char name[128];
  kiln__entry_shape shape;
  int32_t persistent; /* blocks per SM; 0 = one block per tile */
  kiln__factor grid[KILN__MAX_GRID];
  int32_t num_grid;
  int32_t params[KILN__MAX_PARAMS]; /* kiln__tensor or KILN__PARAM_ARGS */
  int32_t num_params;
} kiln__entry;

typedef struct kiln__record {
  char family[32];
  char layout[32]; /* "forward.1" or "backward.1", as the spec's pass */
  int32_t align;   /* bytes that addresses and strides must be a multiple of */
  kiln_attn_spec spec;
  kiln_tile tile;
  kiln__map_shape maps[KILN__NUM_TENSORS];
  kiln__workspace_item workspace[KILN__MAX_WORKSPACE];
  int32_t num_workspace;
  kiln__entry entries[KILN__MAX_ENTRIES];
  int32_t num_entries;
} kiln__record;

/* The words of a record, in the order of the public enums, ended by NULL. */
extern const char *const kiln__pass_words[],
    *const kiln__algorithm_words[], *const kiln__dtype_words[], *const kiln__mask_words[];

/* CORRUPT and one sentence when the text is no record of this version. */
kiln_status kiln__record_parse(const char *json, size_t length, kiln__text *error,
                               kiln__record *record);
/* The same of a record that is part of a larger JSON text. */
kiln_status kiln__record_read(const json_t *json, kiln__text *error, kiln__record *record);
/* The record's JSON with `registers`, `spill_bytes` and `static_bytes` in every entry and `notes`.
 * malloc'd. */
kiln_status kiln__record_complete(const char *json, const kiln__compiled *compiled,
                                  kiln__text *error, char **completed);
/* Reads back what kiln__record_complete wrote: entries, num_entries and notes of `out`, nothing
 * else of it. */
void kiln__record_resources(const char *json, kiln__compiled *out);

#endif
