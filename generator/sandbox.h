/* The Lua state that templates and families run in. It reaches no file but the embedded ones and
 * those of one template directory, no clock and no process; its memory and the instructions of one
 * call are limited, and no error leaves it except as a status and one line. One state, one thread
 * at a time. Used by generator.c, manifest.c and their tests. */
#ifndef KILN_GENERATOR_SANDBOX_H
#define KILN_GENERATOR_SANDBOX_H

#include <lua5.4/lua.h>

#include "generator/generator.h"

#define KILN__SANDBOX_MEMORY       ((size_t)64 << 20) /* bytes of one state                      */
#define KILN__SANDBOX_INSTRUCTIONS 10000000           /* of one call; a render takes about 100000 */
#define KILN__SANDBOX_FILE         ((size_t)1 << 20) /* bytes of a file of the template directory */

typedef struct kiln__sandbox {
  lua_State *lua;
  kiln__allocator allocator;
  char *template_dir; /* NULL = the embedded files alone */
  size_t memory;      /* bytes that Lua may hold; KILN__SANDBOX_MEMORY unless set after open */
  size_t used;        /* bytes that Lua holds */
  int over_limit;     /* the last failed allocation was refused by the limit */
  long instructions;  /* left in this call */
} kiln__sandbox;

/* Opens the state and its libraries. On failure nothing is left to close. */
kiln_status kiln__sandbox_open(kiln__sandbox *s, const kiln__allocator *allocator,
                               const char *template_dir, char *error, size_t error_size);
void kiln__sandbox_close(kiln__sandbox *s);

/* Runs body(lua) with `request` as its only argument, a light userdata. A Lua error becomes
 * TEMPLATE_FAILED, or OUT_OF_MEMORY, and its line is written to `error`. */
kiln_status kiln__sandbox_call(kiln__sandbox *s, lua_CFunction body, void *request, char *error,
                               size_t error_size);

/* Pushes the module `name`, loading it at its first use. Raises. */
void kiln__sandbox_require(lua_State *L, const char *name);

#endif
