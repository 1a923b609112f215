/* From flags to resolved variants; selection.h states what is kept. */
#include "selection.h"

#include "out.h"

#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 32, LIST_MAX = 4096, VARIANTS_MAX = 1 << 20 };

/* The values that one field takes, in turn. */
typedef struct axis {
  const kiln__field *field;
  const char **values; /* NULL = the field is left alone */
  int count;
  bool given;
  char *copy;         /* of a comma list, cut into values */
  const char **owned; /* the array, where it is not the schema's */
} axis;

typedef struct expansion {
  kiln_context *ctx;
  const kiln__args *args;
  axis axes[FIELDS_MAX];
  int num_axes;
  kiln__selection *selection;
  bool open; /* some field stands for all its values */
} expansion;

/* ---- axes ---- */

static kiln_status split_list(const char *text, axis *a) {
  int commas = 0;
  for (const char *c = text; *c; c++) commas += *c == ',';
  if (commas >= LIST_MAX)
    return kiln__fail(KILN_INVALID_ARGUMENT, "%s lists more than %d values", a->field->flag,
                      LIST_MAX);
  a->copy = strdup(text);
  a->owned = calloc((size_t)commas + 1, sizeof *a->owned);
  if (!a->copy || !a->owned) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left");
  char *rest = a->copy;
  for (int i = 0; i <= commas; i++) a->owned[i] = strsep(&rest, ",");
  a->values = a->owned;
  a->count = commas + 1;
  return KILN_OK;
}

/* "sm_90a" and 9.0 match: the digits before a letter are ten times the major and the minor. */
static bool device_runs(const kiln_device_info *info, const char *arch) {
  if (strncmp(arch, "sm_", 3) != 0) return false;
  return strtol(arch + 3, NULL, 10) == 10L * info->compute_major + info->compute_minor;
}

static kiln_status all_archs(kiln_context *ctx, int device, axis *a) {
  kiln_device_info info = {.size = sizeof info};
  a->owned = calloc((size_t)a->field->num_values, sizeof *a->owned);
  if (!a->owned) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left");
  if (device >= 0) {
    kiln_status status = kiln_context_device(ctx, &info);
    if (status != KILN_OK) return kiln__fail_context(ctx, status);
  }
  for (int i = 0; i < a->field->num_values; i++)
    if (device < 0 || device_runs(&info, a->field->values[i]))
      a->owned[a->count++] = a->field->values[i];
  a->values = a->owned;
  if (a->count > 0) return KILN_OK;
  return kiln__fail(KILN_UNSUPPORTED, "no kernel runs on this device, which is an %s", info.arch);
}

/* A head_dim_v that is not given is head_dim, a tile that is not given is Kiln's choice: the pairs
 * and tiles that make sense are those of explicit lists. A pass that is not given is the forward
 * one: who wants no gradients is not made to pay for them. */
static kiln_status fill_axis(kiln_context *ctx, int device, const kiln__args *args,
                             kiln__open_field open, axis *a) {
  const char *given = kiln__args_get(args, a->field->flag);
  bool is_arch = strcmp(a->field->name, "arch") == 0;
  a->given = given != NULL;
  if (given) return split_list(given, a);
  if (open == KILN__OPEN_IS_ALL && is_arch) return all_archs(ctx, device, a);
  if (open == KILN__OPEN_IS_GRID && strcmp(a->field->name, "head_dim") == 0)
    return split_list("64,128,256", a);
  if (strcmp(a->field->name, "pass") == 0) return KILN_OK;
  if (open == KILN__OPEN_IS_GRID && (is_arch || strcmp(a->field->name, "algorithm") == 0))
    return KILN_OK;
  if (open != KILN__OPEN_IS_DEFAULT && !a->field->takes_zero) {
    a->values = a->field->values;
    a->count = a->field->num_values;
  }
  return KILN_OK;
}

/* ---- variants ---- */

kiln_status kiln__selection_add(kiln__selection *s, const kiln__variant *variant) {
  if (s->count == VARIANTS_MAX)
    return kiln__fail(KILN_INVALID_ARGUMENT,
                      "the selection holds more than %d variants; give shorter lists",
                      VARIANTS_MAX);
  if (s->count == s->room) {
    int64_t room = s->room ? 2 * s->room : 64;
    kiln__variant *grown = realloc(s->variants, (size_t)room * sizeof *grown);
    if (!grown) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left");
    s->variants = grown;
    s->room = room;
  }
  s->variants[s->count++] = *variant;
  return KILN_OK;
}

static kiln_status set_field(const expansion *x, const axis *a, const char *value,
                             kiln__variant *variant) {
  return a->field->is_tile ? kiln_tile_set(x->ctx, &variant->tile, a->field->name, value)
                           : kiln_attn_spec_set(x->ctx, &variant->spec, a->field->name, value);
}

/* `at` holds one position of every axis. */
static kiln_status make_variant(expansion *x, const int *at) {
  kiln__variant variant = {KILN_ATTN_SPEC_INIT, KILN_TILE_INIT};
  for (int i = 0; i < x->num_axes; i++) {
    const axis *a = &x->axes[i];
    if (!a->values) continue;
    kiln_status status = set_field(x, a, a->values[at[i]], &variant);
    if (status != KILN_OK) return kiln__fail_context(x->ctx, status);
  }
  kiln_status status = kiln_attn_spec_resolve(x->ctx, &variant.spec, &variant.tile);
  if (status == KILN_OK) return kiln__selection_add(x->selection, &variant);
  bool refusal = status == KILN_UNSUPPORTED || status == KILN_INVALID_ARGUMENT;
  if (!x->open || !refusal) return kiln__fail_context(x->ctx, status);
  if (x->selection->left_out++ == 0) {
    x->selection->refused = status;
    snprintf(x->selection->reason, sizeof x->selection->reason, "%s", kiln_last_error(x->ctx));
  }
  return KILN_OK;
}

/* Every combination of the axes, the last one turning fastest. */
static kiln_status expand(expansion *x) {
  int at[FIELDS_MAX] = {0};
  for (;;) {
    kiln_status status = make_variant(x, at);
    if (status != KILN_OK) return status;
    int i = x->num_axes - 1;
    while (i >= 0 && ++at[i] >= x->axes[i].count) at[i--] = 0;
    if (i < 0) return KILN_OK;
  }
}

static axis *find_axis(expansion *x, const char *name) {
  for (int i = 0; i < x->num_axes; i++)
    if (strcmp(x->axes[i].field->name, name) == 0) return &x->axes[i];
  return NULL;
}

/* All values of one head dim with itself; of two different ones, the pairs that models use and the
 * two extremes. */
static kiln_status expand_pairs(expansion *x) {
  static const char *pairs[][2] = {
      {"192", "128"}, {"64", "256"}, {"256", "64"}, {"8", "256"}, {"128", "8"}};
  axis *dim = find_axis(x, "head_dim"), *dim_v = find_axis(x, "head_dim_v");
  if (!dim || !dim_v || dim->given || dim_v->given) return KILN_OK;
  kiln_status status = KILN_OK;
  for (size_t i = 0; status == KILN_OK && i < sizeof pairs / sizeof pairs[0]; i++) {
    dim->values = &pairs[i][0];
    dim_v->values = &pairs[i][1];
    dim->count = dim_v->count = 1;
    status = expand(x);
  }
  return status;
}

static void free_axes(expansion *x) {
  for (int i = 0; i < x->num_axes; i++) {
    free(x->axes[i].copy);
    free(x->axes[i].owned);
  }
}

kiln_status kiln__selection_create(kiln_context *ctx, int device, const kiln__args *args,
                                   kiln__open_field open, kiln__selection *selection) {
  expansion x = {.ctx = ctx, .args = args, .selection = selection};
  kiln_status status = KILN_OK;
  *selection = (kiln__selection){0};
  if (args->schema->num_fields > FIELDS_MAX)
    return kiln__fail(KILN_INTERNAL, "the schema has more than %d fields", FIELDS_MAX);
  for (int i = 0; status == KILN_OK && i < args->schema->num_fields; i++) {
    axis *a = &x.axes[x.num_axes++];
    a->field = &args->schema->fields[i];
    status = fill_axis(ctx, device, args, open, a);
    x.open |= open != KILN__OPEN_IS_DEFAULT && !a->given && !a->field->is_tile;
  }
  if (status == KILN_OK) status = expand(&x);
  if (status == KILN_OK && open == KILN__OPEN_IS_ALL) status = expand_pairs(&x);
  if (status == KILN_OK && selection->count == 0)
    status = kiln__fail(selection->refused, "%s", selection->reason);
  free_axes(&x);
  if (status != KILN_OK) kiln__selection_destroy(selection);
  return status;
}

void kiln__selection_destroy(kiln__selection *selection) {
  free(selection->variants);
  *selection = (kiln__selection){0};
}

/* ---- words ---- */

const char *kiln__dtype_name(kiln_dtype dtype) {
  static const char *const names[] = {"fp16", "bf16", "e4m3", "fp32"};
  return (unsigned)dtype < 4 ? names[dtype] : "unknown";
}

const char *kiln__mask_name(kiln_mask mask) { return mask == KILN_MASK_CAUSAL ? "causal" : "none"; }

const char *kiln__algorithm_name(kiln_algorithm algorithm) {
  return algorithm == KILN_ALGORITHM_STANDARD ? "standard" : "flash";
}

const char *kiln__pass_name(kiln_pass pass) {
  return pass == KILN_PASS_BACKWARD ? "backward" : "forward";
}

kiln__variant_text kiln__variant_describe(const kiln_attn_spec *spec) {
  kiln__variant_text text;
  char dim_v[16] = "";
  if (spec->head_dim_v != spec->head_dim)
    snprintf(dim_v, sizeof dim_v, "/%d", (int)spec->head_dim_v);
  snprintf(text.text, sizeof text.text, "%s %s %d%s %s%s%s%s", spec->arch,
           kiln__dtype_name(spec->dtype), (int)spec->head_dim, dim_v, kiln__mask_name(spec->mask),
           spec->pass == KILN_PASS_BACKWARD ? " backward" : "",
           spec->deterministic ? " deterministic" : "",
           spec->algorithm == KILN_ALGORITHM_STANDARD ? " standard" : "");
  return text;
}

kiln__variant_text kiln__variant_stem(const kiln_attn_spec *spec, const kiln_tile *tile) {
  kiln__variant_text stem;
  snprintf(stem.text, sizeof stem.text, "%s%s%s-%s-%s-%d-%d-%s-m%dn%ds%dw%d",
           kiln__algorithm_name(spec->algorithm),
           spec->pass == KILN_PASS_BACKWARD ? "-backward" : "",
           spec->deterministic ? "-deterministic" : "", spec->arch, kiln__dtype_name(spec->dtype),
           (int)spec->head_dim, (int)spec->head_dim_v, kiln__mask_name(spec->mask),
           (int)tile->block_m, (int)tile->block_n, (int)tile->num_stages, (int)tile->num_warps);
  return stem;
}

void kiln__variant_json(json_t *object, const kiln_attn_spec *spec, const kiln_tile *tile) {
  json_object_set_new(object, "arch", json_string(spec->arch));
  json_object_set_new(object, "pass", json_string(kiln__pass_name(spec->pass)));
  if (spec->pass == KILN_PASS_BACKWARD)
    json_object_set_new(object, "deterministic", json_integer(spec->deterministic));
  json_object_set_new(object, "algorithm", json_string(kiln__algorithm_name(spec->algorithm)));
  json_object_set_new(object, "dtype", json_string(kiln__dtype_name(spec->dtype)));
  json_object_set_new(object, "head_dim", json_integer(spec->head_dim));
  json_object_set_new(object, "head_dim_v", json_integer(spec->head_dim_v));
  json_object_set_new(object, "mask", json_string(kiln__mask_name(spec->mask)));
  json_object_set_new(object, "tile",
                      json_pack("{s:i, s:i, s:i, s:i}", "block_m", (int)tile->block_m, "block_n",
                                (int)tile->block_n, "num_stages", (int)tile->num_stages,
                                "num_warps", (int)tile->num_warps));
}
