/* A pack: one read-only file of compiled kernels, their launch records and nothing that runs on the
 * host. docs/pack.md describes the format byte by byte.
 *
 * Invariant: a kiln_pack that exists has passed kiln__pack_parse, so every offset, size, record and
 * identity in it lies in its range and the root hash is right. The bytes may still be mapped from a
 * file that somebody writes to, so an image is copied and its digest checked before the driver sees
 * it (packs.c). Called by pack.c, pack_write.c, pack_sign.c and packs.c. */
#ifndef KILN_RUNTIME_PACK_H
#define KILN_RUNTIME_PACK_H

#include <stdatomic.h>
#include <stdint.h>

#include <jansson.h>

#include "runtime/record.h"

/* ---- the format ---- */

#define KILN__PACK_MAGIC    "KILNPACK"
#define KILN__PACK_VERSION  1
#define KILN__PACK_ALIGN    4096 /* of sections and images, and the bytes of the header */
#define KILN__PACK_MANIFEST 1    /* kinds of sections */
#define KILN__PACK_IMAGES   2
#define KILN__PACK_SOURCES  3
#define KILN__PACK_SECTIONS 2 /* one more where the pack holds sources */

/* Offsets in the header. Numbers are little-endian. */
#define KILN__PACK_AT_VERSION   8  /* u32 */
#define KILN__PACK_AT_COUNT     12 /* u32, of sections */
#define KILN__PACK_AT_BYTES     16 /* u64, of the file */
#define KILN__PACK_AT_ROOT      32 /* 32 bytes; the hash leaves out these and the next two fields */
#define KILN__PACK_AT_KEY       64 /* 32 bytes: who signed; zero = nobody */
#define KILN__PACK_AT_SIGNATURE 96 /* 64 bytes */
#define KILN__PACK_AT_TABLE     160
#define KILN__PACK_TABLE_ROW    24 /* u32 kind, u32 zero, u64 offset, u64 bytes */

#define KILN__PACK_MANIFEST_LIMIT ((uint64_t)256 << 20) /* bytes */
#define KILN__PACK_IMAGE_LIMIT    ((uint64_t)256 << 20)
#define KILN__PACK_FILE_LIMIT     ((uint64_t)1 << 36)
#define KILN__PACK_KERNEL_LIMIT   65536

uint64_t kiln__pack_align(uint64_t offset); /* the next multiple of KILN__PACK_ALIGN */
void kiln__pack_root(const unsigned char *bytes, size_t size, unsigned char root[32]);
/* Whether the image is machine code for a GPU: text would be compiled by the driver. */
int kiln__pack_is_cubin(const unsigned char *image, size_t size);

/* ---- an open pack ---- */

typedef struct kiln__pack_row {
  kiln__record record;
  const char *kernel_id, *source_id, *sha256; /* of the manifest */
  char *record_text, *identity_text;          /* canonical JSON */
  const unsigned char *image;
  size_t image_bytes;
  const char *source; /* text, not terminated; NULL = the pack holds none */
  size_t source_bytes;
  int is_default;
} kiln__pack_row;

struct kiln_pack {
  atomic_int references;
  const unsigned char *bytes;
  size_t size;
  void *owned; /* the bytes, where they are freed with the pack */
  int mapped;  /* the bytes, where they are unmapped with it */
  char *path;  /* "" = memory */
  json_t *manifest;
  kiln__pack_row *rows; /* by kernel id, then record */
  int64_t count;
  char root[65], public_key[65]; /* hex; public_key "" = not signed */
};

/* Fills manifest, rows, root and key of a pack whose bytes are set. After a failure what was filled
 * is still freed by kiln_pack_destroy. */
kiln_status kiln__pack_parse(kiln_pack *pack, kiln__text *error);
/* A pack over bytes that it owns. */
kiln_status kiln__pack_adopt(kiln_context *ctx, unsigned char *bytes, size_t size,
                             kiln_pack **pack);
/* BAD_SIGNATURE unless the owner of the key signed it. */
kiln_status kiln__pack_check_signer(kiln_context *ctx, const kiln_pack *pack,
                                    const unsigned char *public_key);
const char *kiln__pack_name(const kiln_pack *pack); /* for a sentence: its path */
kiln_pack *kiln__pack_hold(kiln_pack *pack);        /* one more reference */
/* Compares a digest in hex with that of bytes. */
int kiln__pack_digest_is(const char *sha256, const void *bytes, size_t size);
/* Whether the text below a source's header is that of this source id. */
int kiln__pack_is_source(const char *source_id, const char *text, size_t length);

#endif
