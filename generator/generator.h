/* The generator: spec and tile in, text and launch record out. It knows no GPU, no clock and no
 * file but its templates. One generator holds one Lua state, so that only its first call pays for
 * loading the modules; it is not thread-safe, its caller holds a lock. Used by
 * generator/services.c.
 *
 * On failure the error buffer holds one sentence and results are unchanged or empty. */
#ifndef KILN_GENERATOR_GENERATOR_H
#define KILN_GENERATOR_GENERATOR_H

#include <kiln/kiln.h>

/* Where all memory comes from: realloc's meaning, but size 0 frees and gives NULL. What is handed
 * to the caller is released with free(), so a resize of one's own must stand on malloc. */
typedef struct kiln__allocator {
  void *(*resize)(void *user, void *block, size_t size);
  void *user;
} kiln__allocator;

extern const kiln__allocator kiln__malloc_allocator;

typedef struct kiln__generator kiln__generator;

/* malloc'd strings that belong to the caller. */
typedef struct kiln__rendered {
  char *text;
  size_t length;
  char source_id[65];
  char *record; /* launch record, JSON */
} kiln__rendered;

/* template_dir: NULL or "" = the embedded files; else files in its lua/ and templates/ come before
 * the embedded ones. */
kiln_status kiln__generator_create(const char *template_dir, char *error, size_t error_size,
                                   kiln__generator **g);
kiln_status kiln__generator_create_with(const kiln__allocator *allocator, const char *template_dir,
                                        char *error, size_t error_size, kiln__generator **g);
void kiln__generator_destroy(kiln__generator *g);

/* Fills head_dim_v and the tile's zeros, or refuses. tile may be NULL. */
kiln_status kiln__generator_resolve(kiln__generator *g, kiln_attn_spec *spec, kiln_tile *tile,
                                    char *error, size_t error_size);
/* flags: KILN_GENERATE_PLAIN. The spec and tile need not be resolved. */
kiln_status kiln__generator_render(kiln__generator *g, const kiln_attn_spec *spec,
                                   const kiln_tile *tile, unsigned flags, int for_emulator,
                                   kiln__rendered *out, char *error, size_t error_size);
void kiln__rendered_free(kiln__rendered *rendered);

/* The digest of the embedded files, 64 hex digits; 0 where a directory takes precedence. */
int kiln__generator_stamp(kiln__generator *g, char stamp[65]);

/* *json: malloc'd, belongs to the caller. */
kiln_status kiln__generator_schema(kiln__generator *g, char **json, char *error, size_t error_size);
/* group: "spec" or "tile"; members: a kiln_attn_spec or a kiln_tile. */
kiln_status kiln__generator_set(kiln__generator *g, const char *group, void *members,
                                const char *field, const char *text, char *error,
                                size_t error_size);

/* Every legal tile of a spec. *tiles: malloc'd, belongs to the caller. */
kiln_status kiln__generator_tiles(kiln__generator *g, const kiln_attn_spec *spec, kiln_tile **tiles,
                                  int32_t *count, char *error, size_t error_size);
/* The cost model. num_sms 0 = those of a usual device of the arch. */
kiln_status kiln__generator_predict(kiln__generator *g, const kiln_attn_spec *spec,
                                    const kiln_tile *tile, const kiln_attn_args *shape,
                                    int32_t num_sms, kiln_prediction *prediction, char *error,
                                    size_t error_size);

/* manifest.c: every kernel that a manifest names (docs/pack.md), resolved, each once, in the order
 * of its rows, as a JSON array. name: what errors call the manifest. *json: malloc'd, belongs to
 * the caller. Errors: INVALID_ARGUMENT for all that the manifest does wrong, UNSUPPORTED. */
kiln_status kiln__manifest_read(kiln__generator *g, const char *template_dir, const char *name,
                                const char *text, size_t length, char **json, char *error,
                                size_t error_size);

#endif
