/* Files that the program writes, whole or not at all, and small ones that it reads.
 *
 * Invariant: a written file appears under its name complete, by a rename within its own directory;
 * an older one stays until then, and a failure leaves nothing behind.
 *
 * Called by the verbs that write files, and by pack. */
#ifndef KILN_CLI_FILE_H
#define KILN_CLI_FILE_H

#include <kiln/kiln.h>

#include <stddef.h>

/* Refusals are printed: IO_FAILED. */
kiln_status kiln__file_write(const char *path, const void *bytes, size_t length);

/* The same where another flag than -o names the place. */
kiln_status kiln__file_write_named(const char *path, const char *flag, const void *bytes,
                                   size_t length);

/* Whether a file could be written there, told before the work that would fill it. The flag is the
 * one that names the place. Refusals are printed: IO_FAILED. */
kiln_status kiln__file_check(const char *path, const char *flag);

/* The whole file, at most `limit` bytes, malloc'd and terminated. Refusals are printed: IO_FAILED,
 * INVALID_ARGUMENT for one that is larger. */
kiln_status kiln__file_read(const char *path, size_t limit, char **bytes, size_t *length);

/* Creates the directory where it is missing; its parent must exist. */
kiln_status kiln__directory_make(const char *path);

#endif
