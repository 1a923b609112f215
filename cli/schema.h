/* The fields of a spec and a tile as the library describes them: the source of every flag that
 * names one, of its legal values and of its help.
 *
 * Invariant: the rows hold what kiln_schema said, in its order; the strings live as long as the
 * schema. A field that is added to the library appears here without a change.
 *
 * Called by args.c (flags), selection.c (values) and explain.c (architecture limits). */
#ifndef KILN_CLI_SCHEMA_H
#define KILN_CLI_SCHEMA_H

#include <jansson.h>
#include <kiln/kiln.h>

#include <stdbool.h>

typedef struct kiln__choice {
  const char *flag, *value; /* "--causal", "causal" */
} kiln__choice;

enum { KILN__CHOICES_MAX = 8 };

typedef struct kiln__field {
  const char *name; /* "head_dim" */
  const char *flag; /* "--head-dim"; where the schema has none, it is made from the name, and may be
                       a choice too: "--deterministic", which then takes no value */
  const char *sentence;
  bool is_tile;
  bool takes_zero;           /* 0 is its default: what it is where nothing is said */
  const char *default_value; /* as text */
  const char **values;       /* every legal value, as text */
  int num_values;
  kiln__choice choices[KILN__CHOICES_MAX]; /* switches that stand for one value each */
  int num_choices;
} kiln__field;

typedef struct kiln__schema {
  json_t *root; /* as the library gave it */
  json_t *made; /* keeps the strings that were made here */
  kiln__field *fields;
  int num_fields;
} kiln__schema;

/* Asks the library through a context without a device. Refusals are printed. */
kiln_status kiln__schema_load(kiln__schema *schema);
kiln_status kiln__schema_parse(const char *json, kiln__schema *schema);
void kiln__schema_destroy(kiln__schema *schema);

/* The field whose flag or choice this is, or NULL; *choice is NULL for the flag itself. */
const kiln__field *kiln__schema_find_flag(const kiln__schema *schema, const char *flag,
                                          const kiln__choice **choice);
const kiln__field *kiln__schema_find(const kiln__schema *schema, const char *name);

/* The description of one architecture, or NULL. */
const json_t *kiln__schema_arch(const kiln__schema *schema, const char *name);

#endif
