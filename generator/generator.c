/* See generator.h. Each call builds a request, runs a body inside the sandbox, which calls one
 * function of generator/lua/api.lua, and hands out what the body stored in the request. */
#include "generator/generator.h"

#include <lua5.4/lauxlib.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generator/embedded.h"
#include "generator/fields.h"
#include "generator/files.h"
#include "generator/sandbox.h"

struct kiln__generator {
  kiln__sandbox sandbox; /* stays where it is: Lua keeps its address */
  char stamp[65];        /* "" until it is asked for */
};

typedef struct request {
  kiln__generator *generator;
  const char *group, *field, *text; /* set */
  void *members;                    /* set */
  const kiln_attn_spec *spec;
  const kiln_tile *tile;
  unsigned flags;
  int for_emulator;
  kiln_attn_spec resolved_spec;
  kiln_tile resolved_tile;
  kiln__rendered rendered;
  char *json;
  kiln_tile *tiles; /* list */
  int32_t num_tiles;
  const kiln_attn_args *shape; /* predict */
  int32_t num_sms;
  kiln_prediction prediction;
  kiln_status status; /* of a refusal */
  char *error;
  size_t error_size;
} request;

/* ---- memory ---- */

static const char no_memory[] = "the generator ran out of host memory";

static void *resize_by_malloc(void *user, void *block, size_t size) {
  (void)user;
  if (size) return realloc(block, size);
  free(block);
  return NULL;
}

const kiln__allocator kiln__malloc_allocator = {resize_by_malloc, NULL};

static void *resize(kiln__generator *g, void *block, size_t size) {
  return g->sandbox.allocator.resize(g->sandbox.allocator.user, block, size);
}

static void refuse(request *r, kiln_status status, const char *sentence) {
  r->status = status;
  if (r->error_size) snprintf(r->error, r->error_size, "%s", sentence);
}

/* A copy of the string at `index` that outlives Lua. Without memory NULL, and the request fails. */
static char *copy_string(lua_State *L, request *r, int index, size_t *length) {
  const char *text = luaL_checklstring(L, index, length);
  char *copy = resize(r->generator, NULL, *length + 1);
  if (copy) return memcpy(copy, text, *length + 1);
  refuse(r, KILN_OUT_OF_MEMORY, no_memory);
  return NULL;
}

void kiln__rendered_free(kiln__rendered *rendered) {
  free(rendered->text);
  free(rendered->record);
  *rendered = (kiln__rendered){0};
}

/* ---- the stamp ---- */

/* Over the version, and every name and file with its length: what a rendering depends on besides
 * the spec and the tile. */
static void make_stamp(char hex[65]) {
  crypto_generichash_state state;
  unsigned char digest[32];
  crypto_generichash_init(&state, NULL, 0, sizeof digest);
  crypto_generichash_update(&state, (const unsigned char *)KILN_VERSION, sizeof KILN_VERSION);
  for (size_t i = 0; i < kiln__embedded_count; i++) {
    const kiln__embedded_file *file = &kiln__embedded_files[i];
    const unsigned long long length = file->length;
    crypto_generichash_update(&state, (const unsigned char *)file->name, strlen(file->name) + 1);
    crypto_generichash_update(&state, (const unsigned char *)&length, sizeof length);
    crypto_generichash_update(&state, file->bytes, file->length);
  }
  crypto_generichash_final(&state, digest, sizeof digest);
  sodium_bin2hex(hex, 65, digest, sizeof digest);
}

int kiln__generator_stamp(kiln__generator *g, char stamp[65]) {
  if (g->sandbox.template_dir) return 0;
  if (!g->stamp[0]) make_stamp(g->stamp);
  memcpy(stamp, g->stamp, sizeof g->stamp);
  return 1;
}

/* ---- calls ---- */

static void push_api(lua_State *L, const char *function) {
  kiln__sandbox_require(L, "api");
  lua_getfield(L, -1, function);
  lua_remove(L, -2);
}

/* Looks at the three results on top: a refusal is nil, a sentence, a kind. */
static int refused(lua_State *L, request *r) {
  if (!lua_isnil(L, -3)) return 0;
  const char *sentence = luaL_checkstring(L, -2);
  const char *kind = luaL_checkstring(L, -1);
  refuse(r, !strcmp(kind, "unsupported") ? KILN_UNSUPPORTED : KILN_INVALID_ARGUMENT, sentence);
  return 1;
}

static kiln_status run(lua_CFunction body, request *r) {
  kiln_status status = kiln__sandbox_call(&r->generator->sandbox, body, r, r->error, r->error_size);
  return status ? status : r->status;
}

static void push_kernel(lua_State *L, const request *r) {
  kiln__fields_push(L, kiln__spec_fields, r->spec);
  kiln__fields_push(L, kiln__tile_fields, r->tile);
}

static int resolve_body(lua_State *L) {
  request *r = lua_touserdata(L, 1);
  push_api(L, "resolve");
  push_kernel(L, r);
  lua_call(L, 2, 3);
  if (refused(L, r)) return 0;
  kiln__fields_read(L, lua_gettop(L) - 2, kiln__spec_fields, &r->resolved_spec);
  kiln__fields_read(L, lua_gettop(L) - 1, kiln__tile_fields, &r->resolved_tile);
  return 0;
}

static int render_body(lua_State *L) {
  request *r = lua_touserdata(L, 1);
  push_api(L, "render");
  push_kernel(L, r);
  lua_pushboolean(L, (r->flags & KILN_GENERATE_PLAIN) != 0);
  lua_pushboolean(L, r->for_emulator);
  lua_pushboolean(L, (r->flags & KILN_GENERATE_LAUNCHER) != 0);
  lua_call(L, 5, 3);
  if (refused(L, r)) return 0;
  int first = lua_gettop(L) - 2;
  size_t record_length;
  snprintf(r->rendered.source_id, sizeof r->rendered.source_id, "%s",
           luaL_checkstring(L, first + 1));
  r->rendered.text = copy_string(L, r, first, &r->rendered.length);
  r->rendered.record = copy_string(L, r, first + 2, &record_length);
  return 0;
}

static int schema_body(lua_State *L) {
  request *r = lua_touserdata(L, 1);
  push_api(L, "schema");
  lua_call(L, 0, 1);
  size_t length;
  r->json = copy_string(L, r, lua_gettop(L), &length);
  return 0;
}

static int set_body(lua_State *L) {
  request *r = lua_touserdata(L, 1);
  push_api(L, "set");
  lua_pushstring(L, r->group);
  lua_pushstring(L, r->field);
  lua_pushstring(L, r->text);
  lua_call(L, 3, 3);
  if (refused(L, r)) return 0;
  const kiln__field *fields = !strcmp(r->group, "spec") ? kiln__spec_fields : kiln__tile_fields;
  const kiln__field *field = kiln__field_find(fields, r->field);
  if (!field) return luaL_error(L, "the C side has no field '%s'", r->field);
  kiln__field_store(L, lua_gettop(L) - 2, field, r->members);
  return 0;
}

static int tiles_body(lua_State *L) {
  request *r = lua_touserdata(L, 1);
  push_api(L, "tiles");
  kiln__fields_push(L, kiln__spec_fields, r->spec);
  lua_call(L, 1, 3);
  if (refused(L, r)) return 0;
  const int list = lua_gettop(L) - 2;
  const lua_Integer count = luaL_len(L, list);
  r->tiles = resize(r->generator, NULL, (size_t)(count + 1) * sizeof *r->tiles);
  if (!r->tiles) {
    refuse(r, KILN_OUT_OF_MEMORY, no_memory);
    return 0;
  }
  for (lua_Integer i = 0; i < count; i++) {
    r->tiles[i] = (kiln_tile)KILN_TILE_INIT;
    lua_rawgeti(L, list, i + 1);
    kiln__fields_read(L, lua_gettop(L), kiln__tile_fields, &r->tiles[i]);
    lua_pop(L, 1);
  }
  r->num_tiles = (int32_t)count;
  return 0;
}

static void push_sizes(lua_State *L, const kiln_attn_args *shape) {
  const struct {
    const char *name;
    int32_t value;
  } sizes[] = {{"batch", shape->batch},
               {"seqlen_q", shape->seqlen_q},
               {"seqlen_k", shape->seqlen_k},
               {"num_heads", shape->num_heads},
               {"num_heads_k", shape->num_heads_k}};
  lua_newtable(L);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    lua_pushinteger(L, sizes[i].value);
    lua_setfield(L, -2, sizes[i].name);
  }
}

/* The parts by the names that tiles.lua gives them. */
static void read_prediction(lua_State *L, int index, kiln_prediction *p) {
  const struct {
    const char *name;
    double *value;
  } parts[] = {
      {"time", &p->time_us},        {"tensor", &p->tensor_us},   {"softmax", &p->softmax_us},
      {"shared", &p->shared_us},    {"l2", &p->l2_us},           {"memory", &p->memory_us},
      {"tile", &p->tile_us},        {"masked", &p->masked_us},   {"tail", &p->tail_us},
      {"launch", &p->launch_us},    {"bytes", &p->memory_bytes}, {"gbs", &p->memory_gbs},
      {"tflops", &p->tensor_tflops}};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    lua_getfield(L, index, parts[i].name);
    *parts[i].value = luaL_checknumber(L, -1);
    lua_pop(L, 1);
  }
  lua_getfield(L, index, "resident");
  p->resident = (int32_t)luaL_checkinteger(L, -1);
  lua_pop(L, 1);
}

static int predict_body(lua_State *L) {
  request *r = lua_touserdata(L, 1);
  push_api(L, "predict");
  push_kernel(L, r);
  push_sizes(L, r->shape);
  lua_pushinteger(L, r->num_sms);
  lua_call(L, 4, 3);
  if (!refused(L, r)) read_prediction(L, lua_gettop(L) - 2, &r->prediction);
  return 0;
}

/* ---- the room's functions ---- */

static int load_api(lua_State *L) {
  kiln__sandbox_require(L, "api");
  return 0;
}

kiln_status kiln__generator_create_with(const kiln__allocator *allocator, const char *template_dir,
                                        char *error, size_t error_size, kiln__generator **g) {
  *g = NULL;
  if (template_dir && !kiln__file_is_directory(template_dir)) {
    if (error_size)
      snprintf(error, error_size,
               "%s is no directory: correct template_dir, or KILN_TEMPLATE_DIR, or leave it out",
               template_dir);
    return KILN_TEMPLATE_FAILED;
  }
  kiln__generator *made = allocator->resize(allocator->user, NULL, sizeof *made);
  if (!made) {
    if (error_size) snprintf(error, error_size, "%s", no_memory);
    return KILN_OUT_OF_MEMORY;
  }
  made->stamp[0] = '\0';
  kiln_status status =
      kiln__sandbox_open(&made->sandbox, allocator, template_dir, error, error_size);
  if (status) goto fail_made;
  status = kiln__sandbox_call(&made->sandbox, load_api, NULL, error, error_size);
  if (status) goto fail_sandbox;
  *g = made;
  return KILN_OK;

fail_sandbox:
  kiln__sandbox_close(&made->sandbox);
fail_made:
  allocator->resize(allocator->user, made, 0);
  return status;
}

kiln_status kiln__generator_create(const char *template_dir, char *error, size_t error_size,
                                   kiln__generator **g) {
  return kiln__generator_create_with(&kiln__malloc_allocator, template_dir, error, error_size, g);
}

void kiln__generator_destroy(kiln__generator *g) {
  if (!g) return;
  kiln__allocator allocator = g->sandbox.allocator;
  kiln__sandbox_close(&g->sandbox);
  allocator.resize(allocator.user, g, 0);
}

kiln_status kiln__generator_resolve(kiln__generator *g, kiln_attn_spec *spec, kiln_tile *tile,
                                    char *error, size_t error_size) {
  const kiln_tile none = KILN_TILE_INIT;
  request r = {.generator = g,
               .spec = spec,
               .tile = tile ? tile : &none,
               .error = error,
               .error_size = error_size};
  r.resolved_spec = *r.spec;
  r.resolved_tile = *r.tile;
  kiln_status status = run(resolve_body, &r);
  if (status) return status;
  *spec = r.resolved_spec;
  if (tile) *tile = r.resolved_tile;
  return KILN_OK;
}

kiln_status kiln__generator_render(kiln__generator *g, const kiln_attn_spec *spec,
                                   const kiln_tile *tile, unsigned flags, int for_emulator,
                                   kiln__rendered *out, char *error, size_t error_size) {
  const kiln_tile none = KILN_TILE_INIT;
  request r = {.generator = g,
               .spec = spec,
               .tile = tile ? tile : &none,
               .flags = flags,
               .for_emulator = for_emulator,
               .error = error,
               .error_size = error_size};
  kiln_status status = run(render_body, &r);
  *out = (kiln__rendered){0};
  if (!status) {
    *out = r.rendered;
    return KILN_OK;
  }
  resize(g, r.rendered.text, 0);
  resize(g, r.rendered.record, 0);
  return status;
}

kiln_status kiln__generator_schema(kiln__generator *g, char **json, char *error,
                                   size_t error_size) {
  request r = {.generator = g, .error = error, .error_size = error_size};
  kiln_status status = run(schema_body, &r);
  *json = r.json;
  return status;
}

kiln_status kiln__generator_set(kiln__generator *g, const char *group, void *members,
                                const char *field, const char *text, char *error,
                                size_t error_size) {
  request r = {.generator = g,
               .group = group,
               .members = members,
               .field = field,
               .text = text,
               .error = error,
               .error_size = error_size};
  return run(set_body, &r);
}

kiln_status kiln__generator_tiles(kiln__generator *g, const kiln_attn_spec *spec, kiln_tile **tiles,
                                  int32_t *count, char *error, size_t error_size) {
  request r = {.generator = g, .spec = spec, .error = error, .error_size = error_size};
  kiln_status status = run(tiles_body, &r);
  *tiles = NULL;
  *count = 0;
  if (status) {
    resize(g, r.tiles, 0);
    return status;
  }
  *tiles = r.tiles;
  *count = r.num_tiles;
  return KILN_OK;
}

kiln_status kiln__generator_predict(kiln__generator *g, const kiln_attn_spec *spec,
                                    const kiln_tile *tile, const kiln_attn_args *shape,
                                    int32_t num_sms, kiln_prediction *prediction, char *error,
                                    size_t error_size) {
  request r = {.generator = g,
               .spec = spec,
               .tile = tile,
               .shape = shape,
               .num_sms = num_sms,
               .error = error,
               .error_size = error_size};
  kiln_status status = run(predict_body, &r);
  *prediction = r.prediction;
  return status;
}
