/* The commands of kiln pack, shared by pack.c, pack_build.c and pack_select.c.
 *
 * Invariant: a pack that a command opens has been checked whole before anything of it is printed or
 * written. */
#ifndef KILN_CLI_PACK_H
#define KILN_CLI_PACK_H

#include "args.h"
#include "selection.h"

enum { KILN__KEY_MAX = 64 };

/* pack_build.c */
kiln_status kiln__pack_build(kiln_context *ctx, const kiln__args *args);

/* pack_select.c: the kernels that the command line asks for. Refusals are printed. */
kiln_status kiln__pack_select(kiln_context *ctx, const kiln__args *args,
                              kiln__selection *selection);

/* pack_key.c: a key from a file of 32 or 64 raw bytes, or of as many in hex. Refusals are
 * printed. */
kiln_status kiln__key_read(const char *path, unsigned char key[KILN__KEY_MAX], size_t *size);
/* 64 hex digits, or a file of 32 bytes. */
kiln_status kiln__public_key_read(const char *text, unsigned char key[32]);

#endif
