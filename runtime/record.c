/* Reading launch records: see record.h. Every field is looked at once, here; a sentence names the
 * first one that is missing or outside its range. */
#include "runtime/record.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_FORMAT 1
#define RECORD_LIMIT  ((size_t)1 << 20) /* bytes */

typedef struct reader {
  kiln__text *error; /* keeps the first sentence */
  int failed;
} reader;

static int complain(reader *r, const char *key, const char *what) {
  if (!r->failed) kiln__text_printf(r->error, "the launch record's \"%s\" %s", key, what);
  r->failed = 1;
  return 0;
}

static int64_t get_int(reader *r, const json_t *object, const char *key, int64_t least,
                       int64_t most) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_integer(value)) return complain(r, key, "is missing or no whole number");
  if (json_integer_value(value) < least || json_integer_value(value) > most)
    return complain(r, key, "is out of its range");
  return json_integer_value(value);
}

static void get_string(reader *r, const json_t *object, const char *key, char *out, size_t size) {
  const char *value = json_string_value(json_object_get(object, key));
  if (value && value[0] && strlen(value) < size)
    memcpy(out, value, strlen(value) + 1);
  else
    complain(r, key, "is missing or no short text");
}

/* The position of the text in a list that ends with NULL. */
static int get_choice(reader *r, const json_t *object, const char *key,
                      const char *const *choices) {
  const char *value = json_string_value(json_object_get(object, key));
  for (int i = 0; value && choices[i]; i++)
    if (strcmp(value, choices[i]) == 0) return i;
  return complain(r, key, "is missing or no name that this version knows");
}

/* A list of at most `most` elements; a missing one is empty unless `least` is 1. */
static size_t get_count(reader *r, const json_t *object, const char *key, size_t least,
                        size_t most) {
  const json_t *value = json_object_get(object, key);
  if (value && !json_is_array(value)) complain(r, key, "is no list");
  size_t count = json_array_size(value);
  if (count < least || count > most) complain(r, key, "has too few or too many elements");
  return r->failed ? 0 : count;
}

/* ORDER: kiln__size_field */
static const char *const size_names[] = {"batch",     "seqlen_q",    "seqlen_k",
                                         "num_heads", "num_heads_k", NULL};
/* ORDER: kiln__tensor, then KILN__PARAM_ARGS */
static const char *const param_names[] = {"map:q",  "map:k",  "map:v",  "map:o", "map:do",
                                          "map:dq", "map:dk", "map:dv", "args",  NULL};
static const char *const tensor_names[] = {"q", "k", "v", "o", "do", "dq", "dk", "dv", NULL};
/* ORDER: the enums of the public header */
const char *const kiln__pass_words[] = {"forward", "backward", NULL};
const char *const kiln__algorithm_words[] = {"flash", "standard", NULL};
const char *const kiln__dtype_words[] = {"fp16", "bf16", NULL};
const char *const kiln__mask_words[] = {"none", "causal", NULL};

static int get_factors(reader *r, const json_t *object, const char *key, size_t most,
                       kiln__factor *out) {
  size_t count = get_count(r, object, key, 0, most);
  for (size_t i = 0; i < count; i++) {
    const json_t *pair = json_array_get(json_object_get(object, key), i);
    const char *name = json_string_value(json_array_get(pair, 0));
    json_int_t divisor = json_integer_value(json_array_get(pair, 1));
    int field = -1;
    for (int j = 0; name && size_names[j]; j++)
      if (strcmp(name, size_names[j]) == 0) field = j;
    if (field < 0 || divisor < 1 || divisor > INT32_MAX)
      return complain(r, key, "holds no pair of a size and a divisor");
    out[i] = (kiln__factor){(kiln__size_field)field, (int32_t)divisor};
  }
  return (int)count;
}

static void read_spec(reader *r, const json_t *object, kiln_attn_spec *spec) {
  *spec = (kiln_attn_spec)KILN_ATTN_SPEC_INIT;
  if (!json_is_object(object)) complain(r, "spec", "is missing");
  get_string(r, object, "arch", spec->arch, sizeof spec->arch);
  spec->pass = (kiln_pass)get_choice(r, object, "pass", kiln__pass_words);
  spec->algorithm = (kiln_algorithm)get_choice(r, object, "algorithm", kiln__algorithm_words);
  spec->dtype = (kiln_dtype)get_choice(r, object, "dtype", kiln__dtype_words);
  spec->mask = (kiln_mask)get_choice(r, object, "mask", kiln__mask_words);
  spec->head_dim = (int32_t)get_int(r, object, "head_dim", 1, 1024);
  spec->head_dim_v = (int32_t)get_int(r, object, "head_dim_v", 1, 1024);
  if (json_object_get(object, "deterministic")) /* else 0 */
    spec->deterministic = (int32_t)get_int(r, object, "deterministic", 0, 1);
}

static void read_tile(reader *r, const json_t *object, kiln_tile *tile) {
  *tile = (kiln_tile)KILN_TILE_INIT;
  if (!json_is_object(object)) complain(r, "tile", "is missing");
  tile->block_m = (int32_t)get_int(r, object, "block_m", 1, 65536);
  tile->block_n = (int32_t)get_int(r, object, "block_n", 1, 65536);
  tile->num_stages = (int32_t)get_int(r, object, "num_stages", 1, 64);
  tile->num_warps = (int32_t)get_int(r, object, "num_warps", 1, 32);
}

static void read_map(reader *r, const json_t *object, kiln__map_shape *map) {
  if (!object || r->failed) return;
  map->present = 1;
  map->box_rows = (int32_t)get_int(r, object, "box_rows", 1, 256);
  map->box_cols = (int32_t)get_int(r, object, "box_cols", 1, 256);
  map->swizzle = (int32_t)get_int(r, object, "swizzle", 0, 128);
  int swizzle = map->swizzle;
  if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
    complain(r, "swizzle", "is none of 0, 32, 64, 128");
}

static void read_workspace(reader *r, const json_t *object, kiln__workspace_item *item) {
  item->bytes = get_int(r, object, "bytes", 1, INT64_MAX);
  item->num_dims = get_factors(r, object, "dims", KILN__MAX_DIMS, item->dims);
  item->zero = json_is_true(json_object_get(object, "zero"));
}

static void read_params(reader *r, const json_t *object, kiln__entry *entry) {
  size_t count = get_count(r, object, "params", 1, KILN__MAX_PARAMS);
  for (size_t i = 0; i < count; i++) {
    const char *name = json_string_value(json_array_get(json_object_get(object, "params"), i));
    entry->params[i] = -1;
    for (int j = 0; name && param_names[j]; j++)
      if (strcmp(name, param_names[j]) == 0) entry->params[i] = j;
    if (entry->params[i] < 0) complain(r, "params", "holds a name that this version does not know");
  }
  entry->num_params = (int32_t)count;
}

static void read_entry(reader *r, const json_t *object, kiln__entry *entry) {
  get_string(r, object, "name", entry->name, sizeof entry->name);
  entry->shape.threads = (int32_t)get_int(r, object, "threads", 1, 1024);
  entry->shape.cluster = (int32_t)get_int(r, object, "cluster", 1, 16);
  entry->shape.shared_bytes = get_int(r, object, "shared_bytes", 0, 1 << 20);
  entry->persistent = (int32_t)get_int(r, object, "persistent", 0, 64);
  entry->num_grid = get_factors(r, object, "grid", KILN__MAX_GRID, entry->grid);
  read_params(r, object, entry);
}

/* The layout and what it has room for follow from the pass. */
static void check_layout(reader *r, const kiln__record *record) {
  const int backward = record->spec.pass == KILN_PASS_BACKWARD;
  const char *layout = backward ? "backward.1" : "forward.1";
  if (strcmp(record->layout, layout) != 0 && !r->failed) {
    kiln__text_printf(r->error,
                      "the launch record's \"layout\" is not \"%s\", that of its pass: it was made "
                      "by another version of Kiln",
                      layout);
    r->failed = 1;
  }
  for (int i = KILN__NUM_FORWARD; i < KILN__NUM_TENSORS && !backward; i++)
    if (record->maps[i].present) complain(r, "maps", "describes a gradient in a forward pass");
  if (backward && record->num_workspace > KILN__BACKWARD_WORKSPACE)
    complain(r, "workspace", "has more items than its layout has offsets for");
}

/* What no single field shows: an entry may only take a map that the record describes. */
static void check_whole(reader *r, const kiln__record *record) {
  for (int e = 0; e < record->num_entries; e++)
    for (int p = 0; p < record->entries[e].num_params; p++) {
      int param = record->entries[e].params[p];
      if (param >= 0 && param < KILN__NUM_TENSORS && !record->maps[param].present)
        complain(r, "params", "names a map that \"maps\" does not describe");
    }
  if (record->align & (record->align - 1)) complain(r, "align", "is no power of two");
  check_layout(r, record);
}

static void read_record(reader *r, const json_t *root, kiln__record *record) {
  if (get_int(r, root, "format", 0, INT32_MAX) != RECORD_FORMAT && !r->failed)
    complain(r, "format", "is not 1: it was made by another version of Kiln");
  get_string(r, root, "family", record->family, sizeof record->family);
  get_string(r, root, "layout", record->layout, sizeof record->layout);
  record->align = (int32_t)get_int(r, root, "align", 1, 256);
  read_spec(r, json_object_get(root, "spec"), &record->spec);
  read_tile(r, json_object_get(root, "tile"), &record->tile);
  for (int i = 0; i < KILN__NUM_TENSORS; i++)
    read_map(r, json_object_get(json_object_get(root, "maps"), tensor_names[i]), &record->maps[i]);
  size_t items = get_count(r, root, "workspace", 0, KILN__MAX_WORKSPACE);
  for (size_t i = 0; i < items; i++)
    read_workspace(r, json_array_get(json_object_get(root, "workspace"), i), &record->workspace[i]);
  record->num_workspace = (int32_t)items;
  size_t entries = get_count(r, root, "entries", 1, KILN__MAX_ENTRIES);
  for (size_t i = 0; i < entries; i++)
    read_entry(r, json_array_get(json_object_get(root, "entries"), i), &record->entries[i]);
  record->num_entries = (int32_t)entries;
  check_whole(r, record);
}

kiln_status kiln__record_read(const json_t *json, kiln__text *error, kiln__record *record) {
  reader r = {error, 0};
  memset(record, 0, sizeof *record);
  read_record(&r, json, record);
  return r.failed ? KILN_CORRUPT : KILN_OK;
}

kiln_status kiln__record_parse(const char *json, size_t length, kiln__text *error,
                               kiln__record *record) {
  json_error_t where;
  memset(record, 0, sizeof *record);
  json_t *root =
      length <= RECORD_LIMIT ? json_loadb(json, length, JSON_REJECT_DUPLICATES, &where) : NULL;
  if (!root) {
    kiln__text_string(error, "the launch record is no JSON object of at most 1 MiB");
    return KILN_CORRUPT;
  }
  kiln_status status = kiln__record_read(root, error, record);
  json_decref(root);
  return status;
}

/* ---- completing ---- */

static void complete_entry(json_t *entry, const kiln__compiled *compiled) {
  const char *name = json_string_value(json_object_get(entry, "name"));
  for (int i = 0; name && i < compiled->num_entries; i++) {
    const kiln__entry_resources *found = &compiled->entries[i];
    if (strcmp(found->name, name) != 0) continue;
    json_object_set_new(entry, "registers", json_integer(found->registers));
    json_object_set_new(entry, "spill_bytes", json_integer(found->spill_bytes));
    json_object_set_new(entry, "static_bytes", json_integer(found->static_bytes));
    return;
  }
}

/* The notes, one a line, as a list. */
static json_t *notes_list(const char *notes) {
  json_t *list = json_array();
  for (const char *line = notes; line && line[0];) {
    size_t length = strcspn(line, "\n");
    if (length) json_array_append_new(list, json_stringn_nocheck(line, length));
    line += length + (line[length] == '\n');
  }
  return list;
}

kiln_status kiln__record_complete(const char *json, const kiln__compiled *compiled,
                                  kiln__text *error, char **completed) {
  json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
  json_t *entry;
  size_t index;
  *completed = NULL;
  json_array_foreach(json_object_get(root, "entries"), index, entry)
      complete_entry(entry, compiled);
  json_object_set_new(root, "notes", notes_list(compiled->notes));
  if (root) *completed = json_dumps(root, JSON_COMPACT);
  json_decref(root);
  if (*completed) return KILN_OK;
  kiln__text_string(error, "no memory is left for a launch record");
  return KILN_OUT_OF_MEMORY;
}

static void read_entry_resources(const json_t *entry, kiln__compiled *out) {
  const char *name = json_string_value(json_object_get(entry, "name"));
  kiln__entry_resources *to = &out->entries[out->num_entries];
  if (!name || strlen(name) >= sizeof to->name || out->num_entries == KILN__MAX_ENTRIES) return;
  out->num_entries++;
  memcpy(to->name, name, strlen(name) + 1);
  to->registers = (int32_t)json_integer_value(json_object_get(entry, "registers"));
  to->spill_bytes = (int32_t)json_integer_value(json_object_get(entry, "spill_bytes"));
  to->static_bytes = json_integer_value(json_object_get(entry, "static_bytes"));
}

void kiln__record_resources(const char *json, kiln__compiled *out) {
  json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
  const json_t *row;
  size_t index;
  kiln__text notes;
  memset(out, 0, sizeof *out);
  json_array_foreach(json_object_get(root, "entries"), index, row) read_entry_resources(row, out);
  kiln__text_init(&notes, RECORD_LIMIT);
  json_array_foreach(json_object_get(root, "notes"), index, row) {
    const char *note = json_string_value(row);
    if (note) kiln__text_printf(&notes, "%s%s", notes.length ? "\n" : "", note);
  }
  if (notes.length) out->notes = kiln__text_take(&notes);
  kiln__text_free(&notes);
  json_decref(root);
}
