/* A selection: the kernels that the flags of the command line ask for.
 *
 * Invariant: every variant is resolved (its arch, head dims and tile are filled) and one that a
 * kernel can be generated for. What was asked for by name is never left out in silence: a selection
 * whose every field was given is refused where any of its variants is; a variant is only left out
 * where some field was open and its legal values do not go together.
 *
 * Called by generate, compile, explain, verify, trace, bench and pack. */
#ifndef KILN_CLI_SELECTION_H
#define KILN_CLI_SELECTION_H

#include "args.h"

typedef struct kiln__variant {
  kiln_attn_spec spec;
  kiln_tile tile;
} kiln__variant;

typedef struct kiln__selection {
  kiln__variant *variants;
  int64_t count, room;
  int64_t left_out; /* combinations of open fields that no kernel serves; the first one's reason: */
  kiln_status refused;
  char reason[1024];
} kiln__selection;

/* What a field that was not given stands for. The pass is always forward then, deterministic 0. */
typedef enum kiln__open_field {
  KILN__OPEN_IS_DEFAULT, /* its default                                     */
  KILN__OPEN_IS_ALL,     /* every legal value; of arch, those the device runs */
  KILN__OPEN_IS_GRID     /* every legal value; but head_dim is 64, 128 and 256, the arch the
                            device's best, the algorithm flash */
} kiln__open_field;

/* device: what ctx was created for. Refusals are printed. */
kiln_status kiln__selection_create(kiln_context *ctx, int device, const kiln__args *args,
                                   kiln__open_field open, kiln__selection *selection);
/* One resolved variant more; the selection may be {0}. */
kiln_status kiln__selection_add(kiln__selection *selection, const kiln__variant *variant);
void kiln__selection_destroy(kiln__selection *selection);

/* The words of the contract: "fp16", "causal", "flash". */
const char *kiln__dtype_name(kiln_dtype dtype);
const char *kiln__mask_name(kiln_mask mask);
const char *kiln__algorithm_name(kiln_algorithm algorithm);
const char *kiln__pass_name(kiln_pass pass);

/* "sm_90a bf16 128 causal", with the head_dim_v where it differs, and the pass and the algorithm
 * where they are not forward and flash. */
typedef struct kiln__variant_text {
  char text[96];
} kiln__variant_text;

kiln__variant_text kiln__variant_describe(const kiln_attn_spec *spec);

/* Without blanks, tile and all, for the name of a file. */
kiln__variant_text kiln__variant_stem(const kiln_attn_spec *spec, const kiln_tile *tile);

/* Adds arch, pass, algorithm, dtype, head_dim, head_dim_v, mask and tile to an object, and
 * deterministic for a backward pass. */
void kiln__variant_json(json_t *object, const kiln_attn_spec *spec, const kiln_tile *tile);

#endif
