/* The fields of kiln_attn_spec and kiln_tile as one table, so that a struct and a Lua table are
 * copied into each other without naming a field anywhere else. The names and their order are those
 * of schema.lua; a test compares them. Used by generator.c. */
#ifndef KILN_GENERATOR_FIELDS_H
#define KILN_GENERATOR_FIELDS_H

#include <lua5.4/lua.h>
#include <stddef.h>

typedef enum kiln__field_kind {
  KILN__FIELD_INT, /* int32_t, or an enum of the same size */
  KILN__FIELD_TEXT /* a terminated char array              */
} kiln__field_kind;

typedef struct kiln__field {
  const char *name;
  size_t offset;
  size_t size; /* bytes */
  kiln__field_kind kind;
} kiln__field;

extern const kiln__field kiln__spec_fields[]; /* both end with a row without a name */
extern const kiln__field kiln__tile_fields[];

/* Pushes a table of all fields. Raises. */
void kiln__fields_push(lua_State *L, const kiln__field *fields, const void *members);
/* Reads all fields from the table at `index`. Raises, and may then have read some. */
void kiln__fields_read(lua_State *L, int index, const kiln__field *fields, void *members);
/* Stores the value at `index` into one field. Raises. */
void kiln__field_store(lua_State *L, int index, const kiln__field *field, void *members);
int kiln__fields_same(const kiln__field *fields, const void *a, const void *b);
/* NULL when there is none of this name. */
const kiln__field *kiln__field_find(const kiln__field *fields, const char *name);

#endif
