/* Small packs for tests: binaries whose image is an ELF header and a fill, packs of them, and packs
 * that are wrong in one place.
 *
 * Called by test_pack.c, test_packs.c and test_alloc.c. Every function fails the running test when
 * something goes wrong that is not asked for. */
#ifndef KILN_TESTS_PACKING_H
#define KILN_TESTS_PACKING_H

#include "runtime/objects.h"
#include "runtime/pack.h"

#define PACKING_IMAGE 4100 /* bytes of an image: one more page than it looks like */

/* A kernel of fake_record with another arch, head_dim and block_m. kiln_binary_destroy ends it. */
kiln_binary *packing_binary(const char *arch, int head_dim, int block_m);
/* What it was compiled from. kiln_source_destroy ends it. */
kiln_source *packing_source(int head_dim, int block_m);
/* A pack of `count` kernels for sm_90a, head_dim 64, 72, ..., without and with their sources. */
kiln_pack *packing_pack(kiln_context *ctx, int count);
kiln_pack *packing_pack_with_sources(kiln_context *ctx, int count);
/* Its bytes, malloc'd, to be changed. */
unsigned char *packing_copy(const kiln_pack *pack, size_t *size);
void packing_reroot(unsigned char *bytes, size_t size); /* the root hash of what is there now */
/* A file like that of `bytes` with another manifest; its root is right. malloc'd. */
unsigned char *packing_with_manifest(const unsigned char *bytes, size_t size, const char *manifest,
                                     size_t *new_size);
json_t *packing_manifest(const unsigned char *bytes); /* of a right pack */

#endif
