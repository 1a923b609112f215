/* See sandbox.h. The module table lies in the registry under MODULES; the sandbox itself is found
 * through Lua's extra space, so that no state is shared between two of them. */
#include "generator/sandbox.h"

#include <lua5.4/lauxlib.h>
#include <lua5.4/lualib.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "generator/embedded.h"
#include "generator/files.h"

#define MODULES "kiln.modules"
#define STEP    10000 /* instructions between two looks at the limit */
#define CHARGE  64    /* bytes asked for that count as one instruction */

static kiln__sandbox *sandbox_of(lua_State *L) { return *(kiln__sandbox **)lua_getextraspace(L); }

/* ---- limits ---- */

static void count(lua_State *L, lua_Debug *at);

/* Work inside one instruction is bounded by what it asks for: a long string costs more than a short
 * one. Lua relies on shrinking: a block that cannot be moved to a smaller place stays there. */
static void *allocate(void *user, void *block, size_t old_size, size_t size) {
  kiln__sandbox *s = user;
  size_t held = block ? old_size : 0; /* without a block, old_size is a type */
  s->instructions -= (long)(size / CHARGE);
  if (s->instructions <= 0 && s->lua) lua_sethook(s->lua, count, LUA_MASKCOUNT, 1);
  if (size > held && size - held > s->memory - s->used) {
    s->over_limit = 1;
    return NULL;
  }
  void *moved = s->allocator.resize(s->allocator.user, block, size);
  if (size && !moved) {
    s->over_limit = 0;
    return size <= held ? block : NULL;
  }
  s->used = s->used - held + size;
  return moved;
}

/* Once the limit is reached every further instruction raises, so that no pcall hides the error. */
static void count(lua_State *L, lua_Debug *at) {
  kiln__sandbox *s = sandbox_of(L);
  s->instructions -= STEP;
  if (s->instructions > 0) return;
  lua_sethook(L, count, LUA_MASKCOUNT, 1);
  lua_getinfo(L, "Sl", at);
  lua_pushfstring(L, "%s:%d: stopped after %d million instructions: is there an endless loop?",
                  at->short_src, at->currentline, KILN__SANDBOX_INSTRUCTIONS / 1000000);
  lua_error(L);
}

/* ---- what Lua sees of C ---- */

static void load_text(lua_State *L, const char *text, size_t length, const char *chunk) {
  if (luaL_loadbufferx(L, text, length, chunk, "t")) lua_error(L);
}

void kiln__sandbox_require(lua_State *L, const char *name) {
  lua_getfield(L, LUA_REGISTRYINDEX, MODULES);
  if (lua_getfield(L, -1, name) == LUA_TNIL) {
    lua_pop(L, 1);
    kiln__file_push(L, sandbox_of(L)->template_dir, lua_pushfstring(L, "lua/%s.lua", name));
    if (lua_isnil(L, -1)) luaL_error(L, "there is no module '%s'", name);
    size_t length;
    const char *text = lua_tolstring(L, -1, &length);
    load_text(L, text, length, lua_pushfstring(L, "@lua/%s.lua", name));
    lua_call(L, 0, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, -6, name); /* modules, path, text, chunk name, module, module */
    lua_replace(L, -4);
    lua_pop(L, 2);
  }
  lua_remove(L, -2);
}

static int require_module(lua_State *L) {
  kiln__sandbox_require(L, luaL_checkstring(L, 1));
  return 1;
}

static int host_template(lua_State *L) {
  const char *name = luaL_checkstring(L, 1);
  kiln__file_push(L, sandbox_of(L)->template_dir, lua_pushfstring(L, "templates/%s", name));
  return 1;
}

/* load(text, chunk, environment): a function, or nil and a message. Never bytecode. */
static int host_load(lua_State *L) {
  size_t length;
  const char *text = luaL_checklstring(L, 1, &length);
  if (luaL_loadbufferx(L, text, length, luaL_checkstring(L, 2), "t")) {
    lua_pushnil(L);
    lua_insert(L, -2);
    return 2;
  }
  lua_pushvalue(L, 3);
  lua_setupvalue(L, -2, 1);
  return 1;
}

static int host_sha256(lua_State *L) {
  size_t length;
  const char *text = luaL_checklstring(L, 1, &length);
  unsigned char digest[crypto_hash_sha256_BYTES];
  char hex[2 * sizeof digest + 1];
  crypto_hash_sha256(digest, (const unsigned char *)text, length);
  lua_pushstring(L, sodium_bin2hex(hex, sizeof hex, digest, sizeof digest));
  return 1;
}

static const luaL_Reg host_functions[] = {
    {"template", host_template},
    {"load", host_load},
    {"sha256", host_sha256},
    {NULL, NULL},
};

static const luaL_Reg libraries[] = {
    {LUA_GNAME, luaopen_base},       {LUA_STRLIBNAME, luaopen_string},
    {LUA_TABLIBNAME, luaopen_table}, {LUA_MATHLIBNAME, luaopen_math},
    {LUA_UTF8LIBNAME, luaopen_utf8}, {NULL, NULL},
};

static int open_libraries(lua_State *L) {
  for (const luaL_Reg *library = libraries; library->func; library++)
    luaL_requiref(L, library->name, library->func, 1);
  lua_newtable(L);
  luaL_newlib(L, host_functions);
  lua_pushstring(L, KILN_VERSION);
  lua_setfield(L, -2, "version");
  lua_setfield(L, -2, "host");
  lua_setfield(L, LUA_REGISTRYINDEX, MODULES);
  lua_pushcfunction(L, require_module);
  lua_setglobal(L, "require");
  kiln__file_push(L, NULL, "lua/base.lua");
  size_t length;
  const char *text = luaL_checklstring(L, -1, &length);
  load_text(L, text, length, "@lua/base.lua");
  lua_call(L, 0, 0);
  return 0;
}

/* ---- calls ---- */

static int is_template(const char *text) { return !strncmp(text, "templates/", 10); }

/* An error of a helper gets the template line that called it. */
static int describe_error(lua_State *L) {
  if (lua_type(L, 1) != LUA_TSTRING) {
    lua_pushfstring(L, "a %s was raised as an error", luaL_typename(L, 1));
    lua_replace(L, 1);
  }
  const char *message = lua_tostring(L, 1);
  if (is_template(message)) return 1;
  lua_Debug at;
  for (int level = 0; lua_getstack(L, level, &at); level++) {
    lua_getinfo(L, "Sl", &at);
    if (at.source[0] != '@' || !is_template(at.source + 1)) continue;
    lua_pushfstring(L, "%s (called at %s:%d)", message, at.source + 1, at.currentline);
    return 1;
  }
  lua_settop(L, 1);
  return 1;
}

static void write_line(char *error, size_t error_size, const char *message) {
  if (!error_size) return;
  snprintf(error, error_size, "%s", message);
  for (; *error; error++)
    if (*error == '\n') *error = ' ';
}

static kiln_status report(kiln__sandbox *s, int status, char *error, size_t error_size) {
  if (status == LUA_ERRMEM && !s->over_limit) {
    write_line(error, error_size, "the generator ran out of host memory");
    return KILN_OUT_OF_MEMORY;
  }
  if (status == LUA_ERRMEM) {
    char sentence[80];
    snprintf(sentence, sizeof sentence, "stopped: the Lua code needs more than %d MiB",
             (int)(s->memory >> 20));
    write_line(error, error_size, sentence);
  } else {
    const char *message = lua_tostring(s->lua, -1);
    write_line(error, error_size, message ? message : "a template raised an error without a text");
  }
  return KILN_TEMPLATE_FAILED;
}

kiln_status kiln__sandbox_call(kiln__sandbox *s, lua_CFunction body, void *request, char *error,
                               size_t error_size) {
  s->instructions = KILN__SANDBOX_INSTRUCTIONS;
  lua_sethook(s->lua, count, LUA_MASKCOUNT, STEP);
  lua_pushcfunction(s->lua, describe_error);
  lua_pushcfunction(s->lua, body);
  lua_pushlightuserdata(s->lua, request);
  int status = lua_pcall(s->lua, 1, 0, -3);
  kiln_status result = status ? report(s, status, error, error_size) : KILN_OK;
  lua_settop(s->lua, 0);
  return result;
}

static int copy_directory(kiln__sandbox *s, const char *template_dir) {
  if (!template_dir || !*template_dir) return 1;
  size_t size = strlen(template_dir) + 1;
  s->template_dir = s->allocator.resize(s->allocator.user, NULL, size);
  if (s->template_dir) memcpy(s->template_dir, template_dir, size);
  return s->template_dir != NULL;
}

kiln_status kiln__sandbox_open(kiln__sandbox *s, const kiln__allocator *allocator,
                               const char *template_dir, char *error, size_t error_size) {
  *s = (kiln__sandbox){.allocator = *allocator, .memory = KILN__SANDBOX_MEMORY};
  kiln_status status = KILN_OUT_OF_MEMORY;
  if (copy_directory(s, template_dir)) s->lua = lua_newstate(allocate, s);
  if (s->lua) {
    *(kiln__sandbox **)lua_getextraspace(s->lua) = s;
    status = kiln__sandbox_call(s, open_libraries, NULL, error, error_size);
  } else {
    write_line(error, error_size, "the generator ran out of host memory");
  }
  if (status) kiln__sandbox_close(s);
  return status;
}

void kiln__sandbox_close(kiln__sandbox *s) {
  if (s->lua) lua_close(s->lua);
  s->allocator.resize(s->allocator.user, s->template_dir, 0);
  s->lua = NULL;
  s->template_dir = NULL;
}
