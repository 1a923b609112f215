/* The handles behind the public types, on the way from a spec to a launch. Each is read-only once
 * it is made, so any thread may use it. Used by generate.c, binary.c, kernel.c, plan.c and
 * call.c. */
#ifndef KILN_RUNTIME_OBJECTS_H
#define KILN_RUNTIME_OBJECTS_H

#include "runtime/context.h"
#include "runtime/launch.h"
#include "runtime/record.h"

struct kiln_source {
  kiln_attn_spec spec; /* resolved */
  kiln_tile tile;
  int for_emulator;
  int is_launcher; /* its text is a launcher's */
  kiln__generated generated;
};

struct kiln_binary {
  char kernel_id[KILN__ID_SIZE];
  int for_emulator;
  int wants_ptx; /* a binary from the cache without it has none */
  int at_hand;   /* nothing is compiled for it */
  int from_cache;
  double compile_ms;
  json_t *identity;      /* what kernel_id is the digest of */
  kiln__cache_item item; /* image, PTX, completed record */
  kiln__record record;
  char *notes;
  int32_t registers, spill_bytes;
  int64_t shared_bytes;
};

struct kiln_kernel {
  kiln_context *ctx;
  void *module;
  kiln__record record;
  kiln__loaded loaded;
};

struct kiln_plan {
  kiln_context *ctx;
  kiln_kernel *kernel;
  kiln_attn_spec spec;
  kiln_tile tile;
  char kernel_id[KILN__ID_SIZE];
  char source_id[KILN__ID_SIZE];
  char *record;
  kiln_plan_step step;
  char *why, *ladder;
  char *pack; /* where the kernel came from a pack: its path; else NULL */
  size_t workspace_bytes;
  int from_cache;
};

/* generate.c: as kiln_source_generate, but where the cache remembers the rendering, the source has
 * no text; render gives it one, and its id and record anew. */
kiln_status kiln__source_recall(kiln_context *ctx, const kiln_attn_spec *spec,
                                const kiln_tile *tile, kiln_source **source);
kiln_status kiln__source_render(kiln_context *ctx, unsigned flags, kiln_source *source);
/* generate.c: copies a spec and a tile (NULL = zeros) that a caller filled, checking their sizes.
 * */
kiln_status kiln__take_spec(kiln_context *ctx, const kiln_attn_spec *from_spec,
                            const kiln_tile *from_tile, kiln_attn_spec *spec, kiln_tile *tile);
/* generate.c: whether two specs are equal, field by field; whether a tile has every field of the
 * wanted one that is not 0. */
int kiln__same_spec(const kiln_attn_spec *a, const kiln_attn_spec *b);
int kiln__tile_matches(const kiln_tile *tile, const kiln_tile *wanted);
/* generate.c: the sizes of a shape, before any kernel is known. */
kiln_status kiln__check_sizes(kiln_context *ctx, const kiln_attn_args *shape);
/* binary.c: as kiln_binary_compile; without the PTX it comes from the cache faster, and what is to
 * be at hand comes from the cache or is MISSING_KERNEL. A source without text gives NULL where the
 * cache has no kernel for it. */
enum { KILN__WANTS_PTX = 1, KILN__AT_HAND = 2 };
kiln_status kiln__binary_make(kiln_context *ctx, const kiln_source *source, unsigned flags,
                              kiln_binary **out);
/* binary.c: sets registers, spills, shared memory and notes from what the compiler said; takes the
 * notes. OUT_OF_MEMORY. */
kiln_status kiln__binary_take_resources(kiln_binary *binary, kiln__compiled *compiled);
/* plan.c: whether work on the stream is being captured. */
kiln_status kiln__is_capturing(kiln_context *ctx, struct CUstream_st *stream, int *capturing);
/* plan.c: as kiln_plan_create_with; refuses while `stream` is captured. at_hand: nothing is
 * compiled; what no pack and no cache has is MISSING_KERNEL. */
kiln_status kiln__plan_create(kiln_context *ctx, const kiln_attn_spec *spec, const kiln_tile *tile,
                              const kiln_attn_args *shape, const kiln_plan_options *options,
                              int at_hand, struct CUstream_st *stream, kiln_plan **plan);
/* context.c: copies as much of an info struct as the caller's has room for; the caller set its
 * size, which stays. A NULL or a size of 0 takes nothing. */
void kiln__info_copy(void *info, const void *whole, size_t size);
/* tuning.c: the tuner's own tune, with what the context keeps for it; one at a time. */
kiln_status kiln__tuner_run(kiln_context *ctx, const kiln_attn_spec *spec,
                            const kiln_attn_args *shape, const kiln_tune_options *options,
                            kiln_tune_result *result, char **record, char *error,
                            size_t error_size);
/* kernel.c: copies arguments that a caller filled, checking their size. */
kiln_status kiln__take_args(kiln_context *ctx, const kiln_attn_args *from, kiln_attn_args *args);
/* The same for a kernel of this pass: args of an older header have no gradients. */
kiln_status kiln__take_pass_args(kiln_context *ctx, kiln_pass pass, const kiln_attn_args *from,
                                 kiln_attn_args *args);
/* kernel.c: MISMATCH and the arch that would do, unless the context's device runs `arch`. */
kiln_status kiln__check_arch(kiln_context *ctx, const char *arch);

#endif
