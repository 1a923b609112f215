/* Publishing into the cache: a private directory is filled, synced and renamed. cache.h says what
 * is kept. */
#include "runtime/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/digest.h"

static void step(kiln__cache *cache, int number) {
  if (cache->on_step) cache->on_step(number);
}

static json_t *file_row(const void *bytes, size_t size) {
  char digest[KILN__ID_SIZE];
  kiln__digest_bytes(bytes, size, digest);
  return json_pack("{s:I, s:s}", "bytes", (json_int_t)size, "blake2b", digest);
}

/* The text of meta.json; NULL without memory. */
static char *meta_text(const json_t *identity, const kiln__cache_item *item) {
  char digest[KILN__ID_SIZE];
  json_t *files = json_object();
  json_object_set_new(files, "image.bin", file_row(item->image, item->image_size));
  json_object_set_new(files, "record.json", file_row(item->record, strlen(item->record)));
  if (item->ptx) json_object_set_new(files, "kernel.ptx", file_row(item->ptx, item->ptx_length));
  json_t *meta = json_pack("{s:O, s:o}", "identity", identity, "files", files);
  char *rest = meta ? json_dumps(meta, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
  char *text = NULL;
  if (rest) {
    kiln__digest_bytes(rest, strlen(rest), digest);
    json_object_set_new(meta, "blake2b", json_string(digest));
    text = json_dumps(meta, JSON_COMPACT | JSON_SORT_KEYS);
  }
  free(rest);
  json_decref(meta);
  return text;
}

static int write_files(kiln__cache *cache, int dir, const kiln__cache_item *item,
                       const char *meta) {
  step(cache, 1);
  if (kiln__cache_write_file(dir, "image.bin", item->image, item->image_size) != 0) return -1;
  step(cache, 2);
  if (item->ptx && kiln__cache_write_file(dir, "kernel.ptx", item->ptx, item->ptx_length) != 0)
    return -1;
  step(cache, 3);
  if (kiln__cache_write_file(dir, "record.json", item->record, strlen(item->record)) != 0)
    return -1;
  step(cache, 4);
  if (kiln__cache_write_file(dir, "meta.json", meta, strlen(meta)) != 0) return -1;
  step(cache, 5);
  return fsync(dir);
}

/* 0, or -1 and errno. A kernel that is already there is left as it is. */
static int publish(kiln__cache *cache, int kernels, const char *id, const kiln__cache_item *item,
                   const char *meta) {
  char name[64];
  kiln__cache_private_name("new", name);
  step(cache, 0);
  if (mkdirat(kernels, name, 0700) != 0) return -1;
  int dir = openat(kernels, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  int failed = dir < 0 || write_files(cache, dir, item, meta) != 0;
  step(cache, 6);
  if (!failed) failed = renameat(kernels, name, kernels, id) != 0;
  int code = errno;
  if (dir >= 0) close(dir);
  if (failed) kiln__cache_remove_dir(kernels, name);
  if (!failed) fsync(kernels);
  step(cache, 7);
  errno = code;
  return failed && code != EEXIST && code != ENOTEMPTY ? -1 : 0;
}

void kiln__cache_store(kiln__cache *cache, const char *id, const json_t *identity,
                       const kiln__cache_item *item) {
  kiln__cache_removed removed;
  int64_t bytes = (int64_t)(item->image_size + item->ptx_length + strlen(item->record));
  if (!cache->dir || cache->read_only || bytes > cache->limit) return;
  int kernels = kiln__cache_kernels_fd(cache, 1);
  if (kernels < 0) return;
  char *meta = meta_text(identity, item);
  if (meta && publish(cache, kernels, id, item, meta) != 0)
    kiln__cache_warn(cache,
                     "the kernel cache %s could not be written (%s): kernels are compiled again",
                     cache->dir, strerror(errno));
  free(meta);
  close(kernels);
  kiln__cache_gc(cache, cache->limit, KILN__CACHE_LEFTOVER_AGE, id, &removed);
}
