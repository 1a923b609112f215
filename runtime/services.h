/* What the full library adds to the runtime: a table of functions that libkiln fills
 * (generator/services.c) and libkiln_rt leaves empty (runtime/rt/services.c). So the runtime never
 * names the generator, NVRTC or the emulator, and production links none of them. Read by
 * runtime/context.c and what stands on it. */
#ifndef KILN_RUNTIME_SERVICES_H
#define KILN_RUNTIME_SERVICES_H

#include <kiln/kiln.h>

#include "runtime/device.h"
#include "runtime/env.h"
#include "runtime/text.h"

#define KILN__ID_SIZE     65 /* SHA-256 in hex, terminated */
#define KILN__MAX_ENTRIES 8

/* What the generator renders. The strings are malloc'd and belong to the caller. */
typedef struct kiln__generated {
  char *text;
  size_t length;
  char source_id[KILN__ID_SIZE];
  char *record; /* launch record, JSON */
} kiln__generated;

/* One generator is not thread-safe: the context calls it under a lock. Messages go to `error`,
 * terminated. */
typedef struct kiln__generator_ops {
  kiln_status (*create)(const char *template_dir, char *error, size_t error_size,
                        void **generator); /* template_dir NULL = the embedded files */
  void (*destroy)(void *generator);
  kiln_status (*resolve)(void *generator, kiln_attn_spec *spec, kiln_tile *tile, char *error,
                         size_t error_size); /* tile may be NULL */
  kiln_status (*render)(void *generator, const kiln_attn_spec *spec, const kiln_tile *tile,
                        unsigned flags, int for_emulator, kiln__generated *out, char *error,
                        size_t error_size); /* spec and tile are resolved */
  /* Tells the files that the generator renders from from any others; 0 where they lie in a
   * directory and may change. NULL = never. */
  int (*stamp)(void *generator, char stamp[KILN__ID_SIZE]);
  kiln_status (*schema)(void *generator, char **json, char *error, size_t error_size);
  kiln_status (*set_spec)(void *generator, kiln_attn_spec *spec, const char *field,
                          const char *text, char *error, size_t error_size);
  kiln_status (*set_tile)(void *generator, kiln_tile *tile, const char *field, const char *text,
                          char *error, size_t error_size);
  /* *tiles: malloc'd, belongs to the caller. */
  kiln_status (*list_tiles)(void *generator, const kiln_attn_spec *spec, kiln_tile **tiles,
                            int32_t *count, char *error, size_t error_size);
  /* num_sms 0 = those of a usual device of the arch. */
  kiln_status (*predict)(void *generator, const kiln_attn_spec *spec, const kiln_tile *tile,
                         const kiln_attn_args *shape, int32_t num_sms, kiln_prediction *prediction,
                         char *error, size_t error_size);
  kiln_status (*read_manifest)(void *generator, const char *template_dir, const char *name,
                               const char *text, size_t length, char **json, char *error,
                               size_t error_size);
} kiln__generator_ops;

/* What a compiler is, as far as it can change the bytes it makes: fields of the kernel id. */
typedef struct kiln__compiler_identity {
  char version[96];           /* "nvrtc 13.0.48", "gcc 12.2.0" */
  const char *const *options; /* in order; they live as long as the compiler */
  int num_options;
} kiln__compiler_identity;

typedef struct kiln__entry_resources {
  char name[128];       /* of the entry */
  int32_t registers;    /* per thread */
  int32_t spill_bytes;  /* stores + loads */
  int64_t static_bytes; /* shared memory besides the dynamic */
} kiln__entry_resources;

/* image, ptx and notes are malloc'd and belong to the caller. */
typedef struct kiln__compiled {
  void *image; /* cubin, or the emulator's ELF */
  size_t image_size;
  char *ptx; /* NULL where there is none */
  size_t ptx_length;
  char *notes; /* the compiler's remarks, one a line; NULL = none */
  kiln__entry_resources entries[KILN__MAX_ENTRIES];
  int num_entries;
} kiln__compiled;

/* A compiler is opened once per context, when a kernel has to be compiled; compile() may then run
 * in many threads at once. no_line_info: as in kiln_context_options; a compiler that knows no line
 * tables takes no notice. */
typedef struct kiln__compiler_ops {
  kiln_status (*open)(const kiln__env *env, int no_line_info, kiln__text *error, void **compiler);
  void (*close)(void *compiler);
  /* Appends what tells the compiler from every other without opening it: its file, the file's state
   * on disk, the options it may be given. compiler NULL = the one that open would look at first. 1,
   * or 0 where only opening tells. NULL = none is worth remembering. */
  int (*locate)(const kiln__env *env, int no_line_info, const void *compiler, kiln__text *key);
  /* Refuses an arch that this compiler cannot make. */
  kiln_status (*identify)(void *compiler, const char *arch, kiln__compiler_identity *identity,
                          kiln__text *error);
  kiln_status (*compile)(void *compiler, const char *text, size_t length, const char *arch,
                         kiln__compiled *out, kiln__text *error);
  /* Appends one JSON object: what was looked for, where, and what was found. */
  void (*report)(const kiln__env *env, kiln__text *json);
} kiln__compiler_ops;

/* What the ladder gives; why (one sentence) and ladder (JSON) are malloc'd. */
typedef struct kiln__chosen_tile {
  kiln_plan_step step;
  kiln_tile tile;
  char *why, *ladder;
} kiln__chosen_tile;

/* The autotuner. spec and shape are checked and resolved; own: the user's records file or NULL.
 * Messages go to `error`, terminated. *json and *record (of tune; record may be NULL) are malloc'd
 * and belong to the caller. */
typedef struct kiln__tuner_ops {
  /* What is kept from one tuning to the next, for a context of these options; jit_off: nothing may
   * be compiled. NULL without memory. One tunes at a time. */
  void *(*open)(int device, const char *template_dir, const char *cache_dir, int jit_off);
  void (*close)(void *tuner); /* also in a child after fork, which owns nothing of it */
  /* tuner NULL: for what measures nothing. */
  kiln_status (*tune)(void *tuner, kiln_context *ctx, const kiln_attn_spec *spec,
                      const kiln_attn_args *shape, const kiln_tune_options *options,
                      kiln_tune_result *result, char **record, char *error, size_t error_size);
  kiln_status (*records)(kiln_context *ctx, const char *verb, const char *const *files,
                         int32_t num_files, const char *own, const char *out, char **json,
                         char *error, size_t error_size);
  /* Reads the finished tunings of a spec: those that are shipped and those of the files, of which a
   * later one goes before an earlier. `warning`: terminated, "" where all is well. OUT_OF_MEMORY.
   */
  kiln_status (*read_choices)(const kiln_attn_spec *spec, const char *const *files, int num_files,
                              void **choices, char *warning, size_t warning_size);
  void (*free_choices)(void *choices);
  /* The first of the ladder's steps EXACT to NEAR_DEVICE that holds; else DEFAULT and a tile of
   * zeros. source_id: kiln__place of autotune/choices.h. OUT_OF_MEMORY. */
  kiln_status (*choose)(const void *choices, const kiln_attn_args *shape,
                        const kiln_device_info *device,
                        int (*source_id)(void *user, char id[KILN__ID_SIZE]), void *user,
                        kiln__chosen_tile *chosen);
} kiln__tuner_ops;

typedef struct kiln__services {
  const kiln__generator_ops *generator;
  const kiln__compiler_ops *nvrtc;
  const kiln__device_ops *emulator;
  const kiln__compiler_ops *emulator_compiler;
  const kiln__tuner_ops *tuner;
} kiln__services;

/* The tables of the two compilers and the emulator, for generator/services.c. */
extern const kiln__compiler_ops kiln__nvrtc_ops;             /* runtime/compile/nvrtc.c    */
extern const kiln__compiler_ops kiln__emulator_compiler_ops; /* runtime/emulator/          */
extern const kiln__device_ops kiln__emulator_ops;            /* runtime/emulator/device.c  */

void kiln__services_fill(kiln__services *services); /* one definition per library */

#endif
