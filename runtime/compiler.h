/* The compiler of a context: opened only when something has to be compiled.
 *
 * Invariant: a kernel is compiled and stored under the identity that the opened compiler gives
 * itself. What the cache directory remembers of it only spares its opening where the kernel is
 * cached: loading NVRTC and asking for its build takes longer than all the rest of a warm start.
 * Called by binary.c and context.c. */
#ifndef KILN_RUNTIME_COMPILER_H
#define KILN_RUNTIME_COMPILER_H

#include "runtime/context.h"

/* 1 and the identity that was remembered for the compiler that would be opened; else 0. Its strings
 * live as long as the context. */
int kiln__compiler_recall(kiln_context *ctx, kiln__compiler_identity *identity);
/* Opens the compiler where it is not, and remembers what it says of itself. */
kiln_status kiln__compiler_identify(kiln_context *ctx, const char *arch,
                                    kiln__compiler_identity *identity, kiln__text *error);
const kiln__compiler_ops *kiln__compiler_ops_of(const kiln_context *ctx); /* NULL = none */

#endif
