/* Reading the library's schema; schema.h states what is kept. */
#include "schema.h"

#include "out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A string that lives as long as the schema; NULL without memory. */
static const char *keep(kiln__schema *schema, const char *text) {
  json_t *string = json_string(text);
  if (!string || json_array_append_new(schema->made, string) != 0) return NULL;
  return json_string_value(string);
}

static const char *keep_integer(kiln__schema *schema, json_int_t value) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  return keep(schema, text);
}

static const char *flag_of_name(kiln__schema *schema, const char *name) {
  char flag[64];
  snprintf(flag, sizeof flag, "--%s", name);
  for (char *c = flag; *c; c++)
    if (*c == '_') *c = '-';
  return keep(schema, flag);
}

static bool read_words(const json_t *values, kiln__field *field) {
  for (size_t i = 0; i < json_array_size(values); i++) {
    field->values[field->num_values] = json_string_value(json_array_get(values, i));
    if (!field->values[field->num_values++]) return false;
  }
  return true;
}

static bool read_range(kiln__schema *schema, const json_t *row, kiln__field *field) {
  json_int_t least = json_integer_value(json_object_get(row, "min"));
  json_int_t most = json_integer_value(json_object_get(row, "max"));
  json_int_t step = json_integer_value(json_object_get(row, "multiple"));
  for (json_int_t value = least; value <= most; value += step) {
    field->values[field->num_values] = keep_integer(schema, value);
    if (!field->values[field->num_values++]) return false;
  }
  return true;
}

/* Room for every value: listed ones, or those of a range. 0 for a row that makes no sense. */
static size_t count_values(const json_t *row) {
  const json_t *values = json_object_get(row, "values");
  if (values) return json_array_size(values);
  json_int_t least = json_integer_value(json_object_get(row, "min"));
  json_int_t most = json_integer_value(json_object_get(row, "max"));
  json_int_t step = json_integer_value(json_object_get(row, "multiple"));
  if (step < 1 || least < 0 || most < least || (most - least) / step > 65536) return 0;
  return (size_t)((most - least) / step + 1);
}

static bool read_values(kiln__schema *schema, const json_t *row, kiln__field *field) {
  const json_t *values = json_object_get(row, "values");
  size_t count = count_values(row);
  field->values = count ? calloc(count, sizeof *field->values) : NULL;
  if (!field->values) return false;
  return values ? read_words(values, field) : read_range(schema, row, field);
}

static bool read_choices(const json_t *row, kiln__field *field) {
  const json_t *flags = json_object_get(row, "flags");
  size_t count = json_array_size(flags);
  if (count > KILN__CHOICES_MAX) return false;
  for (size_t i = 0; i < count; i++) {
    const json_t *choice = json_array_get(flags, i);
    kiln__choice *to = &field->choices[field->num_choices++];
    to->flag = json_string_value(json_object_get(choice, "flag"));
    to->value = json_string_value(json_object_get(choice, "value"));
    if (!to->flag || !to->value) return false;
  }
  return true;
}

static bool read_field(kiln__schema *schema, const json_t *row, kiln__field *field) {
  const char *group = json_string_value(json_object_get(row, "group"));
  const json_t *preset = json_object_get(row, "default");
  field->name = json_string_value(json_object_get(row, "name"));
  field->sentence = json_string_value(json_object_get(row, "sentence"));
  if (!group || !field->name || !field->sentence || !preset) return false;
  field->is_tile = strcmp(group, "tile") == 0;
  field->takes_zero = json_is_integer(preset) && json_integer_value(preset) == 0;
  field->default_value = json_is_string(preset) ? json_string_value(preset)
                                                : keep_integer(schema, json_integer_value(preset));
  field->flag = json_string_value(json_object_get(row, "flag"));
  if (!field->flag) field->flag = flag_of_name(schema, field->name);
  return field->flag && field->default_value && read_choices(row, field) &&
         read_values(schema, row, field);
}

kiln_status kiln__schema_parse(const char *json, kiln__schema *schema) {
  *schema = (kiln__schema){0};
  schema->root = kiln__json_parse(json, "the library's schema");
  if (!schema->root) return KILN_INTERNAL;
  const json_t *rows = json_object_get(schema->root, "fields");
  size_t count = json_array_size(rows);
  schema->made = json_array();
  schema->fields = count ? calloc(count, sizeof *schema->fields) : NULL;
  bool good = schema->made && schema->fields;
  for (size_t i = 0; good && i < count; i++) {
    good = read_field(schema, json_array_get(rows, i), &schema->fields[i]);
    schema->num_fields++;
  }
  if (good) return KILN_OK;
  kiln__schema_destroy(schema);
  return kiln__fail(KILN_INTERNAL, "the library's schema cannot be read; install the program and "
                                   "the library from one build");
}

static void stay_silent(void *user, kiln_log_level level, const char *sentence) {
  (void)user, (void)level, (void)sentence;
}

/* The verb's own context warns about the machine; this one would only say it twice. */
kiln_status kiln__schema_load(kiln__schema *schema) {
  char error[1024] = "";
  const char *json = NULL;
  kiln_context *ctx = NULL;
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  options.cache_dir = "";
  options.log = stay_silent;
  options.error = error;
  options.error_size = sizeof error;
  *schema = (kiln__schema){0};
  kiln_status status = kiln_context_create(KILN_DEVICE_NONE, &options, &ctx);
  if (status != KILN_OK)
    return kiln__fail(status, "%s", error[0] ? error : kiln_status_text(status));
  status = kiln_schema(ctx, &json);
  if (status != KILN_OK)
    kiln__fail_context(ctx, status);
  else
    status = kiln__schema_parse(json, schema);
  kiln_context_destroy(ctx);
  return status;
}

void kiln__schema_destroy(kiln__schema *schema) {
  for (int i = 0; schema->fields && i < schema->num_fields; i++) free(schema->fields[i].values);
  free(schema->fields);
  json_decref(schema->made);
  json_decref(schema->root);
  *schema = (kiln__schema){0};
}

/* ---- looking up ---- */

const kiln__field *kiln__schema_find(const kiln__schema *schema, const char *name) {
  for (int i = 0; i < schema->num_fields; i++)
    if (strcmp(schema->fields[i].name, name) == 0) return &schema->fields[i];
  return NULL;
}

const kiln__field *kiln__schema_find_flag(const kiln__schema *schema, const char *flag,
                                          const kiln__choice **choice) {
  *choice = NULL;
  for (int i = 0; i < schema->num_fields; i++) {
    const kiln__field *field = &schema->fields[i];
    for (int c = 0; c < field->num_choices; c++) {
      if (strcmp(field->choices[c].flag, flag) != 0) continue;
      *choice = &field->choices[c];
      return field;
    }
    if (strcmp(field->flag, flag) == 0) return field;
  }
  return NULL;
}

const json_t *kiln__schema_arch(const kiln__schema *schema, const char *name) {
  const json_t *rows = json_object_get(schema->root, "archs");
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    const char *own = json_string_value(json_object_get(row, "name"));
    if (own && strcmp(own, name) == 0) return row;
  }
  return NULL;
}
