/* Keeping the cache below its limit, and removing what a killed writer left behind.
 * A kernel leaves by a rename first, so that a reader sees all of it or nothing under its id. */
#include "runtime/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LEFTOVER_SECONDS 3600 /* a private directory that old belongs to no living writer */

static const char *const file_names[] = {"image.bin", "kernel.ptx", "record.json", "meta.json"};
#define NUM_FILES (sizeof file_names / sizeof file_names[0])

typedef struct cached_kernel {
  char id[65];
  int64_t bytes;
  struct timespec used;
} cached_kernel;

void kiln__cache_remove_dir(int kernels_fd, const char *name) {
  int dir = openat(kernels_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *stream = dir >= 0 ? fdopendir(dir) : NULL;
  if (stream) {
    for (struct dirent *row = readdir(stream); row; row = readdir(stream)) {
      if (strcmp(row->d_name, ".") == 0 || strcmp(row->d_name, "..") == 0) continue;
      if (unlinkat(dir, row->d_name, 0) != 0) unlinkat(dir, row->d_name, AT_REMOVEDIR);
    }
    closedir(stream);
    unlinkat(kernels_fd, name, AT_REMOVEDIR);
  } else {
    if (dir >= 0) close(dir);
    unlinkat(kernels_fd, name, 0);
  }
}

static int64_t kernel_bytes(int kernels, const char *id) {
  int64_t bytes = 0;
  int dir = openat(kernels, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0) return 0;
  for (size_t i = 0; i < NUM_FILES; i++) {
    struct stat status;
    if (fstatat(dir, file_names[i], &status, AT_SYMLINK_NOFOLLOW) == 0) bytes += status.st_size;
  }
  close(dir);
  return bytes;
}

static int is_older(const void *a, const void *b) {
  const struct timespec *x = &((const cached_kernel *)a)->used;
  const struct timespec *y = &((const cached_kernel *)b)->used;
  if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
  return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

/* Lists the kernels, oldest use first, and removes old leftovers on the way. 0, or -1. */
static int list_kernels(int kernels, cached_kernel **list, size_t *count, int64_t *leftovers) {
  size_t capacity = 0;
  *list = NULL;
  *count = 0;
  int copy = openat(kernels, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = copy >= 0 ? fdopendir(copy) : NULL;
  if (!stream) {
    if (copy >= 0) close(copy);
    return -1;
  }
  for (struct dirent *row = readdir(stream); row; row = readdir(stream)) {
    struct stat status;
    if (fstatat(kernels, row->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (row->d_name[0] == '.') {
      if (strlen(row->d_name) < 4 || time(NULL) - status.st_mtime < LEFTOVER_SECONDS) continue;
      kiln__cache_remove_dir(kernels, row->d_name);
      *leftovers += 1;
      continue;
    }
    if (!kiln__cache_id_valid(row->d_name)) continue;
    if (*count == capacity) {
      capacity = capacity ? 2 * capacity : 64;
      cached_kernel *grown = realloc(*list, capacity * sizeof **list);
      if (!grown) break;
      *list = grown;
    }
    cached_kernel *kernel = &(*list)[(*count)++];
    memcpy(kernel->id, row->d_name, sizeof kernel->id);
    kernel->bytes = kernel_bytes(kernels, row->d_name);
    kernel->used = status.st_mtim;
  }
  closedir(stream);
  if (*count) qsort(*list, *count, sizeof **list, is_older);
  return 0;
}

static int evict(int kernels, const char *id) {
  char name[64];
  kiln__cache_private_name("old", name);
  if (renameat(kernels, id, kernels, name) != 0) return 0;
  kiln__cache_remove_dir(kernels, name);
  return 1;
}

int kiln__cache_gc(kiln__cache *cache, int64_t limit, const char *keep,
                   kiln__cache_removed *removed) {
  cached_kernel *list;
  size_t count;
  int64_t total = 0;
  memset(removed, 0, sizeof *removed);
  int kernels = kiln__cache_kernels_fd(cache, 0);
  if (kernels < 0) return errno == ENOENT ? 0 : -1;
  int failed = list_kernels(kernels, &list, &count, &removed->leftovers);
  for (size_t i = 0; i < count; i++) total += list[i].bytes;
  for (size_t i = 0; i < count && total > limit; i++) {
    if ((keep && strcmp(list[i].id, keep) == 0) || !evict(kernels, list[i].id)) continue;
    total -= list[i].bytes;
    removed->kernels++;
    removed->bytes += list[i].bytes;
  }
  free(list);
  close(kernels);
  return failed;
}
