/* BLAKE2b of 32 bytes as hex: see digest.h. */
#include "runtime/digest.h"

#include <sodium.h>

void kiln__digest_bytes(const void *bytes, size_t size, char hex[KILN__ID_SIZE]) {
  unsigned char digest[crypto_generichash_BYTES];
  crypto_generichash(digest, sizeof digest, bytes, size, NULL, 0);
  sodium_bin2hex(hex, KILN__ID_SIZE, digest, sizeof digest);
}
