/* Files that the program writes: whole or not at all.
 *
 * Invariant: a file appears under its name complete, by a rename within its own directory; an older
 * one stays until then, and a failure leaves nothing behind.
 *
 * Called by generate and compile. */
#ifndef KILN_CLI_FILE_H
#define KILN_CLI_FILE_H

#include <kiln/kiln.h>

#include <stddef.h>

/* Refusals are printed: IO_FAILED. */
kiln_status kiln__file_write(const char *path, const void *bytes, size_t length);

/* Creates the directory where it is missing; its parent must exist. */
kiln_status kiln__directory_make(const char *path);

#endif
