/* See files.h. */
#include "generator/files.h"

#include <errno.h>
#include <lua5.4/lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "generator/embedded.h"
#include "generator/sandbox.h"

static int is_plain_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Parts of letters, digits and `_`, with dots and slashes only between two such characters: no
 * absolute name, no "..", no hidden file. */
static int is_plain_name(const char *name) {
  char before = '/';
  for (; *name; before = *name++) {
    int separator = *name == '.' || *name == '/';
    if (!separator && !is_plain_char(*name)) return 0;
    if (separator && !is_plain_char(before)) return 0;
  }
  return is_plain_char(before);
}

static int by_name(const void *name, const void *file) {
  return strcmp(name, ((const kiln__embedded_file *)file)->name);
}

static void push_embedded(lua_State *L, const char *name) {
  const kiln__embedded_file *file = bsearch(name, kiln__embedded_files, kiln__embedded_count,
                                            sizeof *kiln__embedded_files, by_name);
  if (file)
    lua_pushlstring(L, (const char *)file->bytes, file->length);
  else
    lua_pushnil(L);
}

/* The number of bytes read: size when the file still has the length that stat() gave. */
static size_t read_file(const char *path, char *bytes, size_t size) {
  FILE *file = fopen(path, "rb");
  if (!file) return 0;
  size_t count = fread(bytes, 1, size, file);
  fclose(file);
  return count;
}

/* Returns 0, with nothing pushed, when the directory has no such file. Nothing raises while the
 * file is open, so that it is always closed. */
static int push_from_directory(lua_State *L, const char *template_dir, const char *name) {
  const char *path = lua_pushfstring(L, "%s/%s", template_dir, name);
  struct stat info;
  if (stat(path, &info)) {
    if (errno != ENOENT && errno != ENOTDIR) luaL_error(L, "%s: %s", name, strerror(errno));
    lua_pop(L, 1);
    return 0;
  }
  if (!S_ISREG(info.st_mode)) luaL_error(L, "%s is not a plain file", name);
  size_t size = (size_t)info.st_size;
  if (size > KILN__SANDBOX_FILE)
    luaL_error(L, "%s is larger than %d bytes", name, (int)KILN__SANDBOX_FILE);
  char *bytes = lua_newuserdatauv(L, size + 1, 0);
  if (read_file(path, bytes, size) != size) luaL_error(L, "%s cannot be read", name);
  lua_pushlstring(L, bytes, size);
  lua_replace(L, -3); /* the path */
  lua_pop(L, 1);
  return 1;
}

int kiln__file_is_directory(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

void kiln__file_push(lua_State *L, const char *template_dir, const char *name) {
  if (!is_plain_name(name)) luaL_error(L, "'%s' is not the name of a module or a template", name);
  if (template_dir && push_from_directory(L, template_dir, name)) return;
  push_embedded(L, name);
}
