/* Manifests of packs (docs/pack.md): Lua text in, resolved kernels out.
 *
 * A manifest runs in a sandbox of its own, which ends with it: whatever it does, the generator
 * renders as before. Its kernels are resolved by the generator, each with a budget of its own. */
#include <lua5.4/lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/fields.h"
#include "generator/generator.h"
#include "generator/sandbox.h"

#define MEMORY ((size_t)8 << 20) /* bytes of a manifest's Lua state */

typedef struct kernel {
  kiln_attn_spec spec;
  kiln_tile tile;
  int row, open; /* open: some field stands for all its values, so that a combination may be none */
} kernel;

typedef struct reading {
  kiln__generator *generator;
  const char *name, *text;
  size_t length;
  kernel *kernels;
  size_t count, at; /* at: the one to be described */
  char *json;
  size_t json_length, json_room;
  kiln_status status; /* of a refusal */
  char sentence[2048];
} reading;

/* ---- inside the sandbox ---- */

static void push(lua_State *L, const char *function) {
  kiln__sandbox_require(L, "manifest");
  lua_getfield(L, -1, function);
}

static int no_memory(reading *r) {
  r->status = KILN_OUT_OF_MEMORY;
  snprintf(r->sentence, sizeof r->sentence, "no memory is left for a manifest");
  return 0;
}

static void take_kernel(lua_State *L, kernel *k) {
  const int at = lua_gettop(L);
  *k = (kernel){.spec = KILN_ATTN_SPEC_INIT, .tile = KILN_TILE_INIT};
  lua_getfield(L, at, "spec");
  kiln__fields_read(L, at + 1, kiln__spec_fields, &k->spec);
  lua_getfield(L, at, "tile");
  kiln__fields_read(L, at + 2, kiln__tile_fields, &k->tile);
  lua_getfield(L, at, "row");
  k->row = (int)luaL_checkinteger(L, -1);
  lua_getfield(L, at, "open");
  k->open = lua_toboolean(L, -1);
  lua_settop(L, at - 1);
}

static int read_body(lua_State *L) {
  reading *r = lua_touserdata(L, 1);
  push(L, "read");
  lua_pushlstring(L, r->text, r->length);
  lua_pushstring(L, r->name);
  lua_call(L, 2, 3);
  const int list = lua_gettop(L) - 2;
  if (lua_isnil(L, list)) {
    const int unsupported = strcmp(luaL_checkstring(L, list + 2), "unsupported") == 0;
    r->status = unsupported ? KILN_UNSUPPORTED : KILN_INVALID_ARGUMENT;
    snprintf(r->sentence, sizeof r->sentence, "%s", luaL_checkstring(L, list + 1));
    return 0;
  }
  const lua_Integer count = luaL_len(L, list);
  r->kernels = calloc((size_t)count, sizeof *r->kernels);
  if (!r->kernels) return no_memory(r);
  for (lua_Integer i = 0; i < count; i++) {
    lua_rawgeti(L, list, i + 1);
    take_kernel(L, &r->kernels[i]);
  }
  r->count = (size_t)count;
  return 0;
}

/* 0 without memory. */
static int append(reading *r, const char *text, size_t length) {
  if (r->json_room - r->json_length <= length) {
    const size_t room = 2 * r->json_room + length + 4096;
    char *grown = realloc(r->json, room);
    if (!grown) return no_memory(r);
    r->json = grown;
    r->json_room = room;
  }
  memcpy(r->json + r->json_length, text, length);
  r->json_length += length;
  r->json[r->json_length] = '\0';
  return 1;
}

static int describe_body(lua_State *L) {
  reading *r = lua_touserdata(L, 1);
  size_t length;
  push(L, "describe");
  kiln__fields_push(L, kiln__spec_fields, &r->kernels[r->at].spec);
  kiln__fields_push(L, kiln__tile_fields, &r->kernels[r->at].tile);
  lua_call(L, 2, 1);
  const char *text = luaL_checklstring(L, -1, &length);
  if (append(r, r->at ? "," : "[", 1)) append(r, text, length);
  return 0;
}

/* ---- outside ---- */

static int is_among(const reading *r, size_t count, const kernel *k) {
  for (size_t i = 0; i < count; i++)
    if (kiln__fields_same(kiln__spec_fields, &r->kernels[i].spec, &k->spec) &&
        kiln__fields_same(kiln__tile_fields, &r->kernels[i].tile, &k->tile))
      return 1;
  return 0;
}

/* Resolves the kernels of one row, from *at to the next row, and moves those that are new to
 * r->kernels[*kept]. A combination may be refused where the row left a field open; a row that
 * selects nothing is refused with the first reason. */
static kiln_status resolve_row(reading *r, size_t *at, size_t *kept) {
  const int row = r->kernels[*at].row;
  char error[1024], reason[1024] = "";
  kiln_status first = KILN_OK;
  int served = 0;
  for (; *at < r->count && r->kernels[*at].row == row; ++*at) {
    kernel k = r->kernels[*at];
    kiln_status status =
        kiln__generator_resolve(r->generator, &k.spec, &k.tile, error, sizeof error);
    const int passes = k.open && (status == KILN_UNSUPPORTED || status == KILN_INVALID_ARGUMENT);
    if (status == KILN_OK) {
      served = 1;
      if (!is_among(r, *kept, &k)) r->kernels[(*kept)++] = k;
    } else if (first == KILN_OK || !passes) {
      first = status;
      memcpy(reason, error, sizeof reason);
    }
    if (status != KILN_OK && !passes) {
      served = 0;
      break;
    }
  }
  if (served) return KILN_OK;
  snprintf(r->sentence, sizeof r->sentence, "row %d: %s", row, reason);
  return first;
}

static kiln_status resolve_all(reading *r) {
  size_t kept = 0;
  for (size_t at = 0; at < r->count;) {
    kiln_status status = resolve_row(r, &at, &kept);
    if (status != KILN_OK) return status;
  }
  r->count = kept;
  return KILN_OK;
}

/* Lua's errors begin with the manifest's name and line, the rest gets the name here. */
static kiln_status report(const reading *r, kiln_status status, const char *sentence, char *error,
                          size_t error_size) {
  const size_t length = strlen(r->name);
  if (status == KILN_TEMPLATE_FAILED) status = KILN_INVALID_ARGUMENT;
  if (!error_size) return status;
  if (strncmp(sentence, r->name, length) == 0 && sentence[length] == ':')
    snprintf(error, error_size, "%s", sentence);
  else
    snprintf(error, error_size, "%s: %s", r->name, sentence);
  return status;
}

static kiln_status describe_all(kiln__sandbox *s, reading *r, char *error, size_t error_size) {
  kiln_status status = KILN_OK;
  for (r->at = 0; status == KILN_OK && r->at < r->count; r->at++) {
    status = kiln__sandbox_call(s, describe_body, r, error, error_size);
    if (status == KILN_OK) status = r->status;
  }
  if (status == KILN_OK && !append(r, "]", 1)) status = r->status;
  return status;
}

kiln_status kiln__manifest_read(kiln__generator *g, const char *template_dir, const char *name,
                                const char *text, size_t length, char **json, char *error,
                                size_t error_size) {
  reading r = {.generator = g, .name = name, .text = text, .length = length};
  char *line = r.sentence;
  kiln__sandbox s;
  *json = NULL;
  kiln_status status =
      kiln__sandbox_open(&s, &kiln__malloc_allocator, template_dir, error, error_size);
  if (status != KILN_OK) return status;
  s.memory = MEMORY;
  status = kiln__sandbox_call(&s, read_body, &r, line, sizeof r.sentence);
  if (status == KILN_OK) status = r.status;
  if (status == KILN_OK) status = resolve_all(&r);
  if (status == KILN_OK) status = describe_all(&s, &r, line, sizeof r.sentence);
  kiln__sandbox_close(&s);
  free(r.kernels);
  if (status == KILN_OK) {
    *json = r.json;
    return KILN_OK;
  }
  free(r.json);
  return report(&r, status, line, error, error_size);
}
