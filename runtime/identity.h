/* The identity of a compiled kernel: everything that can change its bytes, and nothing else. The
 * kernel id is the SHA-256 over the fields in a fixed order, each behind its length, so that no two
 * different lists of fields give the same bytes: docs/identities.md. Used by binary.c and the
 * cache. */
#ifndef KILN_RUNTIME_IDENTITY_H
#define KILN_RUNTIME_IDENTITY_H

#include <jansson.h>

#include "runtime/services.h"

/* NULL without memory. */
json_t *kiln__identity_make(const char *source_id, const char *arch, const char *layout,
                            const kiln__compiler_identity *compiler);
/* 0, or -1 when a field is missing or has another type (the fields may come from a damaged file).
 * */
int kiln__identity_digest(const json_t *identity, char id[KILN__ID_SIZE]);
/* The first field in which two identities differ; NULL when they are the same. */
const char *kiln__identity_difference(const json_t *a, const json_t *b);

#endif
