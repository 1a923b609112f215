/* Packs: compiled kernels in one read-only file (docs/pack.md). The conventions are those of
 * kiln.h, which includes this file. */
#ifndef KILN_PACK_H
#define KILN_PACK_H

#include <kiln/kiln.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kiln_pack kiln_pack; /* read-only: any thread and context may use it */

typedef struct kiln_pack_info {
  size_t size;
  const char *path;       /* "" for a pack in memory */
  const char *kiln;       /* version of Kiln that built it */
  const char *root;       /* SHA-256 of its content, hex: the same before and after signing */
  const char *public_key; /* of the key that signed it, hex; NULL = it is not signed */
  int64_t bytes;
  int64_t num_kernels;
  int32_t has_sources;
} kiln_pack_info;

typedef struct kiln_pack_kernel {
  size_t size;
  kiln_attn_spec spec;
  kiln_tile tile;
  int32_t is_default; /* what a plan takes that leaves the tile to Kiln */
  const char *kernel_id;
  const char *source_id;
  const char *identity; /* what the kernel id is the digest of, JSON: docs/identities.md */
  const char *record;   /* launch record with resources and notes, JSON */
  const char *sha256;   /* of the image */
  const void *image;    /* cubin */
  size_t image_bytes;
  const char *source; /* its text, not terminated; NULL where the pack holds no sources */
  size_t source_bytes;
} kiln_pack_kernel;

/* Opens and checks a pack: every size and offset, every byte of padding, the root hash, and, where
 * it is signed, the signature. public_key: 32 bytes that must be the signer's, or NULL = any or no
 * signer. The file is mapped: replace it by a rename, never in place. Errors: IO_FAILED; CORRUPT;
 * MISMATCH for a format of another version; BAD_SIGNATURE. */
KILN_API kiln_status kiln_pack_open_file(kiln_context *ctx, const char *path,
                                         const unsigned char *public_key, kiln_pack **pack);
/* The same for bytes that the caller keeps, unchanged, until the pack and every context that it was
 * added to are destroyed: what `kiln pack embed` compiles into a program. */
KILN_API kiln_status kiln_pack_open_memory(kiln_context *ctx, const void *bytes, size_t size,
                                           const unsigned char *public_key, kiln_pack **pack);

/* What it gives lives as long as the pack. Kernels are numbered from 0, by kernel id; for an index
 * outside of them INVALID_ARGUMENT. */
KILN_API void kiln_pack_get_info(const kiln_pack *pack, kiln_pack_info *info);
KILN_API kiln_status kiln_pack_get_kernel(const kiln_pack *pack, int64_t index,
                                          kiln_pack_kernel *kernel);
KILN_API const void *kiln_pack_bytes(const kiln_pack *pack, size_t *size);

/* Checks the digest of every image and the id of every source too, and, where public_key is not
 * NULL, that its owner signed the pack. Errors: CORRUPT, BAD_SIGNATURE. */
KILN_API kiln_status kiln_pack_verify(kiln_context *ctx, const kiln_pack *pack,
                                      const unsigned char *public_key);

/* The context looks into the pack for every plan made from now on, after those added before. It
 * keeps the pack; the caller's handle may be destroyed. Errors: OUT_OF_MEMORY. */
KILN_API kiln_status kiln_context_add_pack(kiln_context *ctx, kiln_pack *pack);
KILN_API void kiln_pack_destroy(kiln_pack *pack);

/* Building a pack: kernels are added, by one thread at a time, and finish gives the pack. The same
 * kernels give the same bytes, in whatever order they were added. */
typedef struct kiln_pack_writer kiln_pack_writer;

#define KILN_PACK_DEFAULT 1u /* this kernel's tile is the default of its spec */

KILN_API kiln_status kiln_pack_writer_create(kiln_context *ctx, kiln_pack_writer **writer);
/* The binary is copied. Where no tile of a spec is marked as its default, the smallest is. Errors:
 * INVALID_ARGUMENT for a kernel of the emulator, which is code of the host, and for a spec's second
 * default. */
KILN_API kiln_status kiln_pack_writer_add(kiln_pack_writer *writer, const kiln_binary *binary,
                                          unsigned flags);
/* The same, and the text that the binary was compiled from is kept beside it: for reading, nothing
 * that runs needs it. INVALID_ARGUMENT for the source of another kernel. */
KILN_API kiln_status kiln_pack_writer_add_source(kiln_pack_writer *writer,
                                                 const kiln_binary *binary,
                                                 const kiln_source *source, unsigned flags);
/* Errors: INVALID_ARGUMENT for no kernel, and where some have a source and some have none. */
KILN_API kiln_status kiln_pack_writer_finish(kiln_pack_writer *writer, kiln_pack **pack);
KILN_API void kiln_pack_writer_destroy(kiln_pack_writer *writer);

/* Evaluates a pack's manifest, Lua text (docs/pack.md), in the generator's sandbox, and gives every
 * kernel that it names: a JSON array of objects, each with all fields of a spec and a tile by name,
 * resolved, none twice, at most 4096. name: what errors call the manifest. *json belongs to the
 * context until the next call. Errors, with the line, or the row and the field: INVALID_ARGUMENT,
 * UNSUPPORTED. */
KILN_API kiln_status kiln_manifest_read(kiln_context *ctx, const char *name, const char *text,
                                        size_t length, const char **json);

/* The same pack signed with an Ed25519 key: its seed of 32 bytes, or seed and public key, 64.
 * Errors: INVALID_ARGUMENT for another size or halves that do not belong together. */
KILN_API kiln_status kiln_pack_sign(kiln_context *ctx, const kiln_pack *pack,
                                    const unsigned char *secret_key, size_t key_bytes,
                                    kiln_pack **signed_pack);

#ifdef __cplusplus
}
#endif
#endif
