/* Files that the program writes, whole or not at all, and small ones that it reads.
 *
 * Invariant: a written file appears under its name complete, by a rename within its own directory;
 * an older one stays until then, and a failure leaves nothing behind.
 *
 * Called by generate, compile and pack. */
#ifndef KILN_CLI_FILE_H
#define KILN_CLI_FILE_H

#include <kiln/kiln.h>

#include <stddef.h>

/* Refusals are printed: IO_FAILED. */
kiln_status kiln__file_write(const char *path, const void *bytes, size_t length);

/* The whole file, at most `limit` bytes, malloc'd and terminated. Refusals are printed: IO_FAILED,
 * INVALID_ARGUMENT for one that is larger. */
kiln_status kiln__file_read(const char *path, size_t limit, char **bytes, size_t *length);

/* Creates the directory where it is missing; its parent must exist. */
kiln_status kiln__directory_make(const char *path);

#endif
