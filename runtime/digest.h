/* BLAKE2b of 32 bytes as hex, over libsodium: what tells a damaged file of the cache. It is read at
 * every start, and four times as fast as the SHA-256 that identities are (identity.c). */
#ifndef KILN_RUNTIME_DIGEST_H
#define KILN_RUNTIME_DIGEST_H

#include <stddef.h>

#include "runtime/services.h"

void kiln__digest_bytes(const void *bytes, size_t size, char hex[KILN__ID_SIZE]);

#endif
