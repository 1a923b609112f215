/* Files carried inside libkiln: the generator's Lua, the templates, the emulator's headers.
 * The table is sorted by name (bytewise), and each file's bytes are followed by a NUL that
 * `length` does not count. Written at build time by tools/embed.c; read by the generator, which
 * hands the emulator its headers through the table of services. */
#ifndef KILN_GENERATOR_EMBEDDED_H
#define KILN_GENERATOR_EMBEDDED_H

#include <stddef.h>

typedef struct kiln__embedded_file {
  const char *name; /* "lua/engine.lua", "templates/forward/ampere.tmpl.cu" */
  const unsigned char *bytes;
  size_t length; /* bytes */
} kiln__embedded_file;

extern const kiln__embedded_file kiln__embedded_files[]; /* ends with a row of zeros */
extern const size_t kiln__embedded_count;                /* rows before that one */

#endif
