/* See fields.h. */
#include "generator/fields.h"

#include <lua5.4/lauxlib.h>
#include <string.h>

#include <kiln/kiln.h>

#define MEMBER(type, name, kind) \
  { #name, offsetof(type, name), sizeof(((type *)0)->name), kind }

const kiln__field kiln__spec_fields[] = {
    MEMBER(kiln_attn_spec, arch, KILN__FIELD_TEXT),
    MEMBER(kiln_attn_spec, pass, KILN__FIELD_INT),
    MEMBER(kiln_attn_spec, algorithm, KILN__FIELD_INT),
    MEMBER(kiln_attn_spec, dtype, KILN__FIELD_INT),
    MEMBER(kiln_attn_spec, head_dim, KILN__FIELD_INT),
    MEMBER(kiln_attn_spec, head_dim_v, KILN__FIELD_INT),
    MEMBER(kiln_attn_spec, mask, KILN__FIELD_INT),
    MEMBER(kiln_attn_spec, deterministic, KILN__FIELD_INT),
    {NULL, 0, 0, KILN__FIELD_INT},
};

const kiln__field kiln__tile_fields[] = {
    MEMBER(kiln_tile, block_m, KILN__FIELD_INT),
    MEMBER(kiln_tile, block_n, KILN__FIELD_INT),
    MEMBER(kiln_tile, num_stages, KILN__FIELD_INT),
    MEMBER(kiln_tile, num_warps, KILN__FIELD_INT),
    {NULL, 0, 0, KILN__FIELD_INT},
};

void kiln__fields_push(lua_State *L, const kiln__field *fields, const void *members) {
  lua_newtable(L);
  for (const kiln__field *field = fields; field->name; field++) {
    const char *at = (const char *)members + field->offset;
    if (field->kind == KILN__FIELD_TEXT) {
      lua_pushlstring(L, at, strnlen(at, field->size));
    } else {
      int32_t number;
      memcpy(&number, at, sizeof number);
      lua_pushinteger(L, number);
    }
    lua_setfield(L, -2, field->name);
  }
}

void kiln__field_store(lua_State *L, int index, const kiln__field *field, void *members) {
  char *at = (char *)members + field->offset;
  if (field->kind == KILN__FIELD_TEXT) {
    size_t length;
    const char *text = luaL_checklstring(L, index, &length);
    if (length >= field->size) luaL_error(L, "%s '%s' is too long", field->name, text);
    memset(at, 0, field->size);
    memcpy(at, text, length);
    return;
  }
  int32_t number = (int32_t)luaL_checkinteger(L, index);
  memcpy(at, &number, sizeof number);
}

void kiln__fields_read(lua_State *L, int index, const kiln__field *fields, void *members) {
  for (const kiln__field *field = fields; field->name; field++) {
    lua_getfield(L, index, field->name);
    kiln__field_store(L, lua_gettop(L), field, members);
    lua_pop(L, 1);
  }
}

int kiln__fields_same(const kiln__field *fields, const void *a, const void *b) {
  for (; fields->name; fields++) {
    const char *x = (const char *)a + fields->offset, *y = (const char *)b + fields->offset;
    const int is_text = fields->kind == KILN__FIELD_TEXT;
    if ((is_text ? strncmp(x, y, fields->size) : memcmp(x, y, fields->size)) != 0) return 0;
  }
  return 1;
}

const kiln__field *kiln__field_find(const kiln__field *fields, const char *name) {
  for (; fields->name; fields++)
    if (!strcmp(fields->name, name)) return fields;
  return NULL;
}
