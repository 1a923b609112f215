/* SHA-256 as hex: see digest.h. */
#include "runtime/digest.h"

#include <sodium.h>

void kiln__digest_bytes(const void *bytes, size_t size, char hex[KILN__ID_SIZE]) {
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(digest, bytes, size);
  sodium_bin2hex(hex, KILN__ID_SIZE, digest, sizeof digest);
}
