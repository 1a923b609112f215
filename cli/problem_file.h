/* A file of problems: JSON Lines, a spec and sizes each, by the names of the flags, as KILN_RECORD
 * writes it.
 *
 * Invariant: every problem that is handed on is resolved; a line that is none is refused with the
 * file's name and its number.
 *
 * Called by tune and pack. */
#ifndef KILN_CLI_PROBLEM_FILE_H
#define KILN_CLI_PROBLEM_FILE_H

#include "args.h"

typedef kiln_status kiln__take_problem(void *user, const kiln_attn_spec *spec,
                                       const kiln_attn_args *shape);

/* Hands the problems on in their order, up to the first failure. defaults: of sizes that a line
 * leaves out. Refusals are printed. */
kiln_status kiln__problem_file_read(kiln_context *ctx, const char *path,
                                    const kiln_attn_args *defaults, kiln__take_problem *take,
                                    void *user);

#endif
