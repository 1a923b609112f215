/* SHA-256 as hex, over libsodium. Used for identities, the cache and its files. */
#ifndef KILN_RUNTIME_DIGEST_H
#define KILN_RUNTIME_DIGEST_H

#include <stddef.h>

#include "runtime/services.h"

void kiln__digest_bytes(const void *bytes, size_t size, char hex[KILN__ID_SIZE]);

#endif
