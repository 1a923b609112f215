/* Open packs: from a file or from memory, what they hold, and their end. pack.h states what an open
 * pack has passed. */
#include "runtime/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/objects.h"

static kiln_pack *create(const char *path) {
  kiln_pack *pack = calloc(1, sizeof *pack);
  if (!pack) return NULL;
  atomic_init(&pack->references, 1);
  pack->path = strdup(path);
  if (pack->path) return pack;
  free(pack);
  return NULL;
}

kiln_pack *kiln__pack_hold(kiln_pack *pack) {
  atomic_fetch_add(&pack->references, 1);
  return pack;
}

void kiln_pack_destroy(kiln_pack *pack) {
  if (!pack || atomic_fetch_sub(&pack->references, 1) != 1) return;
  for (int64_t i = 0; i < pack->count; i++) {
    free(pack->rows[i].record_text);
    free(pack->rows[i].identity_text);
  }
  free(pack->rows);
  json_decref(pack->manifest);
  if (pack->mapped) munmap((void *)(uintptr_t)pack->bytes, pack->size);
  free(pack->owned);
  free(pack->path);
  free(pack);
}

static kiln_status no_memory(kiln_context *ctx) {
  return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left to open a pack");
}

/* Parses a pack whose bytes are set, and gives it or destroys it. */
static kiln_status finish(kiln_context *ctx, kiln_pack *pack, const unsigned char *public_key,
                          kiln_pack **out) {
  char sentence[1024];
  kiln__text error;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  kiln_status status = kiln__pack_parse(pack, &error);
  if (status != KILN_OK) kiln__context_fail_text(ctx, status, &error);
  if (status == KILN_OK && public_key) status = kiln__pack_check_signer(ctx, pack, public_key);
  if (status == KILN_OK)
    *out = pack;
  else
    kiln_pack_destroy(pack);
  return status;
}

/* 0, or -1 and errno; EINVAL for what is no plain file or has no size of a pack. */
static int map_file(kiln_pack *pack) {
  struct stat info;
  int fd = open(pack->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return -1;
  int code = EINVAL;
  void *bytes = MAP_FAILED;
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
      (uint64_t)info.st_size <= KILN__PACK_FILE_LIMIT) {
    bytes = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    code = errno;
  }
  close(fd);
  errno = code;
  if (bytes == MAP_FAILED) return -1;
  pack->bytes = bytes;
  pack->size = (size_t)info.st_size;
  pack->mapped = 1;
  return 0;
}

kiln_status kiln_pack_open_file(kiln_context *ctx, const char *path,
                                const unsigned char *public_key, kiln_pack **out) {
  if (!path || !out) return kiln__context_null(ctx);
  *out = NULL;
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  kiln_pack *pack = create(path);
  if (!pack) return no_memory(ctx);
  if (map_file(pack) == 0) return finish(ctx, pack, public_key, out);
  const int code = errno;
  kiln_pack_destroy(pack);
  if (code == EINVAL)
    return kiln__context_fail(ctx, KILN_CORRUPT,
                              "%s is empty or no plain file, and so no pack: name what `kiln pack "
                              "build` wrote",
                              path);
  return kiln__context_fail(ctx, KILN_IO_FAILED, "the pack %s cannot be opened: %s", path,
                            strerror(code));
}

kiln_status kiln_pack_open_memory(kiln_context *ctx, const void *bytes, size_t size,
                                  const unsigned char *public_key, kiln_pack **out) {
  if (!bytes || !out) return kiln__context_null(ctx);
  *out = NULL;
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  kiln_pack *pack = create("");
  if (!pack) return no_memory(ctx);
  pack->bytes = bytes;
  pack->size = size;
  return finish(ctx, pack, public_key, out);
}

kiln_status kiln__pack_adopt(kiln_context *ctx, unsigned char *bytes, size_t size,
                             kiln_pack **out) {
  kiln_pack *pack = create("");
  if (!pack) {
    free(bytes);
    return no_memory(ctx);
  }
  pack->bytes = pack->owned = bytes;
  pack->size = size;
  return finish(ctx, pack, NULL, out);
}

/* ---- what is in it ---- */

void kiln_pack_get_info(const kiln_pack *pack, kiln_pack_info *info) {
  const kiln_pack_info whole = {
      .size = sizeof whole,
      .path = pack->path,
      .kiln = json_string_value(json_object_get(pack->manifest, "kiln")),
      .root = pack->root,
      .public_key = pack->public_key[0] ? pack->public_key : NULL,
      .bytes = (int64_t)pack->size,
      .num_kernels = pack->count,
      .has_sources = pack->count > 0 && pack->rows[0].source,
  };
  kiln__info_copy(info, &whole, sizeof whole);
}

kiln_status kiln_pack_get_kernel(const kiln_pack *pack, int64_t index, kiln_pack_kernel *kernel) {
  if (!pack || !kernel || index < 0 || index >= pack->count) return KILN_INVALID_ARGUMENT;
  const kiln__pack_row *row = &pack->rows[index];
  const kiln_pack_kernel whole = {
      .size = sizeof whole,
      .spec = row->record.spec,
      .tile = row->record.tile,
      .is_default = row->is_default,
      .kernel_id = row->kernel_id,
      .source_id = row->source_id,
      .identity = row->identity_text,
      .record = row->record_text,
      .sha256 = row->sha256,
      .image = row->image,
      .image_bytes = row->image_bytes,
      .source = row->source,
      .source_bytes = row->source_bytes,
  };
  kiln__info_copy(kernel, &whole, sizeof whole);
  return KILN_OK;
}

const void *kiln_pack_bytes(const kiln_pack *pack, size_t *size) {
  if (size) *size = pack->size;
  return pack->bytes;
}
