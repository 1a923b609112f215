/* The files that a sandbox may read: `lua/NAME.lua` and `templates/….tmpl.cu`, from the template
 * directory when there is one and it holds the file, else from those inside the library. A name is
 * made of plain parts, so that none leads out of the directory. Used by sandbox.c and
 * generator.c. */
#ifndef KILN_GENERATOR_FILES_H
#define KILN_GENERATOR_FILES_H

#include <lua5.4/lua.h>

/* Pushes the bytes of a file as a string, or nil when there is none of this name. Raises for a file
 * that cannot be read or is larger than KILN__SANDBOX_FILE. template_dir may be NULL. */
void kiln__file_push(lua_State *L, const char *template_dir, const char *name);
int kiln__file_is_directory(const char *path);

#endif
