/* Which kernels `kiln pack build` makes: those of the flags, of a manifest, or of what a run asked
 * for.
 *
 * Invariant: as selection.h says; no kernel twice, and never none. */
#include "pack.h"

#include "file.h"
#include "out.h"
#include "problem_file.h"

#include <stdlib.h>
#include <string.h>

enum { MANIFEST_MAX = 1 << 20 }; /* bytes */

typedef struct taking {
  kiln_context *ctx;
  kiln__selection *selection;
} taking;

/* ---- from what a run asked for ---- */

/* One kernel for all the problems that it serves. */
static kiln_status take_problem(void *user, const kiln_attn_spec *spec,
                                const kiln_attn_args *shape) {
  taking *t = user;
  kiln__variant variant = {*spec, KILN_TILE_INIT};
  (void)shape; /* the tile does not depend on it until there are tuning records to ask */
  kiln_status status = kiln_attn_spec_resolve(t->ctx, &variant.spec, &variant.tile);
  if (status != KILN_OK) return kiln__fail_context(t->ctx, status);
  const kiln__variant_text stem = kiln__variant_stem(&variant.spec, &variant.tile);
  for (int64_t i = 0; i < t->selection->count; i++) {
    const kiln__variant *had = &t->selection->variants[i];
    if (strcmp(kiln__variant_stem(&had->spec, &had->tile).text, stem.text) == 0) return KILN_OK;
  }
  return kiln__selection_add(t->selection, &variant);
}

static kiln_status select_from(kiln_context *ctx, const char *path, kiln__selection *selection) {
  const kiln_attn_args defaults = KILN_ATTN_ARGS_INIT;
  taking t = {ctx, selection};
  kiln_status status = kiln__problem_file_read(ctx, path, &defaults, take_problem, &t);
  if (status != KILN_OK || selection->count > 0) return status;
  return kiln__fail(KILN_INVALID_ARGUMENT, "%s holds no problem", path);
}

/* ---- from a manifest ---- */

/* The library gives every kernel with all its fields. */
static kiln_status take_kernel(kiln_context *ctx, const kiln__schema *schema, const json_t *object,
                               kiln__selection *selection) {
  kiln__variant variant = {KILN_ATTN_SPEC_INIT, KILN_TILE_INIT};
  for (int i = 0; i < schema->num_fields; i++) {
    const kiln__field *field = &schema->fields[i];
    const json_t *value = json_object_get(object, field->name);
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    const char *text = json_is_string(value) ? json_string_value(value) : number;
    kiln_status status = field->is_tile ? kiln_tile_set(ctx, &variant.tile, field->name, text)
                                        : kiln_attn_spec_set(ctx, &variant.spec, field->name, text);
    if (status != KILN_OK) return kiln__fail_context(ctx, status);
  }
  return kiln__selection_add(selection, &variant);
}

static kiln_status select_manifest(kiln_context *ctx, const kiln__args *args, const char *path,
                                   kiln__selection *selection) {
  char *text = NULL;
  const char *json = NULL;
  size_t length = 0;
  kiln_status status = kiln__file_read(path, MANIFEST_MAX, &text, &length);
  if (status != KILN_OK) return status;
  status = kiln_manifest_read(ctx, path, text, length, &json);
  free(text);
  if (status != KILN_OK) return kiln__fail_context(ctx, status);
  json_t *kernels = json_loads(json, 0, NULL);
  if (!kernels) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for %s", path);
  for (size_t i = 0; status == KILN_OK && i < json_array_size(kernels); i++)
    status = take_kernel(ctx, args->schema, json_array_get(kernels, i), selection);
  json_decref(kernels);
  return status;
}

/* ---- one of them ---- */

/* A file says which kernels, all by itself. */
static kiln_status refuse_fields(const kiln__args *args, const char *flag, const char *path) {
  const char *other = strcmp(flag, "--from") == 0 ? "--manifest" : "--from";
  const char *second = kiln__args_has(args, other) ? other : NULL;
  for (int i = 0; !second && i < args->schema->num_fields; i++)
    if (kiln__args_has(args, args->schema->fields[i].flag)) second = args->schema->fields[i].flag;
  if (!second) return KILN_OK;
  return kiln__fail(KILN_INVALID_ARGUMENT, "%s takes the kernels from %s; leave %s out, or %s",
                    flag, path, second, flag);
}

kiln_status kiln__pack_select(kiln_context *ctx, const kiln__args *args,
                              kiln__selection *selection) {
  const char *from = kiln__args_get(args, "--from"), *path = kiln__args_get(args, "--manifest");
  *selection = (kiln__selection){0};
  if (!from && !path)
    return kiln__selection_create(ctx, KILN_DEVICE_NONE, args, KILN__OPEN_IS_ALL, selection);
  kiln_status status = refuse_fields(args, from ? "--from" : "--manifest", from ? from : path);
  if (status == KILN_OK)
    status = from ? select_from(ctx, from, selection) : select_manifest(ctx, args, path, selection);
  if (status != KILN_OK) kiln__selection_destroy(selection);
  return status;
}
