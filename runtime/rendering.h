/* Renderings remembered: a note of the cache says to which source id and launch record a spec and a
 * tile were rendered, so that the plan of a cached kernel renders nothing. Used by generate.c. */
#ifndef KILN_RUNTIME_RENDERING_H
#define KILN_RUNTIME_RENDERING_H

#include "runtime/objects.h"

/* Both take a source whose spec and tile are resolved. `stamp`: of the generator's files.
 * recall: 1, and the source has its id and its record but no text; or 0. */
int kiln__rendering_recall(kiln_context *ctx, const char *stamp, kiln_source *source);
void kiln__rendering_remember(kiln_context *ctx, const char *stamp, const kiln_source *source);

#endif
