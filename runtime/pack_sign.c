/* Who made a pack: Ed25519 over the 32 bytes of its root hash. The key and the signature lie in the
 * header, outside of the root, so signing changes no other byte. */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/objects.h"
#include "runtime/pack.h"

kiln_status kiln__pack_check_signer(kiln_context *ctx, const kiln_pack *pack,
                                    const unsigned char *public_key) {
  const char *path = kiln__pack_name(pack);
  char hex[KILN__ID_SIZE];
  if (!pack->public_key[0])
    return kiln__context_fail(ctx, KILN_BAD_SIGNATURE,
                              "the pack %s is not signed: sign it with `kiln pack sign`", path);
  sodium_bin2hex(hex, sizeof hex, public_key, crypto_sign_PUBLICKEYBYTES);
  if (strcmp(hex, pack->public_key) == 0) return KILN_OK;
  return kiln__context_fail(ctx, KILN_BAD_SIGNATURE,
                            "the pack %s is signed by %s and not by %s: get it from who holds that "
                            "key",
                            path, pack->public_key, hex);
}

kiln_status kiln_pack_verify(kiln_context *ctx, const kiln_pack *pack,
                             const unsigned char *public_key) {
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  if (!pack) return kiln__context_null(ctx);
  for (int64_t i = 0; i < pack->count; i++) {
    const kiln__pack_row *row = &pack->rows[i];
    if (!kiln__pack_digest_is(row->sha256, row->image, row->image_bytes))
      return kiln__context_fail(ctx, KILN_CORRUPT,
                                "the image of kernel %.12s in the pack %s does not have the digest "
                                "that the manifest says: build it anew",
                                row->kernel_id, kiln__pack_name(pack));
    if (row->source && !kiln__pack_is_source(row->source_id, row->source, row->source_bytes))
      return kiln__context_fail(ctx, KILN_CORRUPT,
                                "the source of kernel %.12s in the pack %s does not have the id "
                                "that the manifest says: build it anew",
                                row->kernel_id, kiln__pack_name(pack));
  }
  return public_key ? kiln__pack_check_signer(ctx, pack, public_key) : KILN_OK;
}

/* The public key and the 64-byte form of a secret one. 0, or -1 where the halves do not agree. */
static int take_key(const unsigned char *secret, size_t size,
                    unsigned char public_key[crypto_sign_PUBLICKEYBYTES],
                    unsigned char whole[crypto_sign_SECRETKEYBYTES]) {
  if (size != crypto_sign_SEEDBYTES && size != crypto_sign_SECRETKEYBYTES) return -1;
  if (crypto_sign_seed_keypair(public_key, whole, secret) != 0) return -1;
  return memcmp(whole, secret, size) == 0 ? 0 : -1; /* a secret key begins with its seed */
}

kiln_status kiln_pack_sign(kiln_context *ctx, const kiln_pack *pack,
                           const unsigned char *secret_key, size_t key_bytes, kiln_pack **out) {
  unsigned char public_key[crypto_sign_PUBLICKEYBYTES], whole[crypto_sign_SECRETKEYBYTES];
  if (!pack || !secret_key || !out) return kiln__context_null(ctx);
  *out = NULL;
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  unsigned char *bytes = malloc(pack->size);
  if (!bytes) return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a pack");
  const int good = take_key(secret_key, key_bytes, public_key, whole) == 0;
  if (good) {
    memcpy(bytes, pack->bytes, pack->size);
    memcpy(bytes + KILN__PACK_AT_KEY, public_key, sizeof public_key);
    crypto_sign_detached(bytes + KILN__PACK_AT_SIGNATURE, NULL, bytes + KILN__PACK_AT_ROOT, 32,
                         whole);
  }
  sodium_memzero(whole, sizeof whole);
  if (good) return kiln__pack_adopt(ctx, bytes, pack->size, out);
  free(bytes);
  return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                            "the key is no Ed25519 secret key: it is a seed of 32 bytes, or seed "
                            "and public key, 64 bytes");
}
