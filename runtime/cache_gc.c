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

static const char *const file_names[] = {"image.bin", "kernel.ptx", "record.json", "meta.json"};
#define NUM_FILES (sizeof file_names / sizeof file_names[0])

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

static int compare_use(const void *a, const void *b) {
  int64_t x = ((const kiln__cache_kernel *)a)->used, y = ((const kiln__cache_kernel *)b)->used;
  return x < y ? -1 : x > y;
}

/* Private directories begin with a dot; "." and ".." are neither. time() may still be in the second
 * before that of a file which is there already, so the clock itself is asked. */
static int is_leftover(const char *name, const struct stat *status, int64_t max_age) {
  struct timespec now;
  if (name[0] != '.' || strlen(name) <= 4 || clock_gettime(CLOCK_REALTIME, &now) != 0) return 0;
  return now.tv_sec - status->st_mtime >= max_age;
}

static int add_kernel(kiln__cache_kernel **list, size_t *count, int kernels, const char *id,
                      const struct stat *status) {
  if ((*count & (*count - 1)) == 0) { /* full at every power of two */
    kiln__cache_kernel *grown = realloc(*list, (*count ? 2 * *count : 1) * sizeof **list);
    if (!grown) return -1;
    *list = grown;
  }
  kiln__cache_kernel *kernel = &(*list)[(*count)++];
  memcpy(kernel->id, id, sizeof kernel->id);
  kernel->bytes = kernel_bytes(kernels, id);
  kernel->used = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
  return 0;
}

int kiln__cache_list(int kernels_fd, int64_t max_age, kiln__cache_kernel **list, size_t *count,
                     int64_t *leftovers) {
  *list = NULL;
  *count = 0;
  int copy = openat(kernels_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = copy >= 0 ? fdopendir(copy) : NULL;
  if (!stream) {
    if (copy >= 0) close(copy);
    return -1;
  }
  int failed = 0;
  for (struct dirent *row = readdir(stream); row && !failed; row = readdir(stream)) {
    struct stat status;
    if (fstatat(kernels_fd, row->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (is_leftover(row->d_name, &status, max_age)) {
      kiln__cache_remove_dir(kernels_fd, row->d_name);
      *leftovers += 1;
    } else if (kiln__cache_id_valid(row->d_name)) {
      failed = add_kernel(list, count, kernels_fd, row->d_name, &status);
    }
  }
  closedir(stream);
  if (*count) qsort(*list, *count, sizeof **list, compare_use);
  return failed;
}

static int evict(int kernels, const char *id) {
  char name[64];
  kiln__cache_private_name("old", name);
  if (renameat(kernels, id, kernels, name) != 0) return 0;
  kiln__cache_remove_dir(kernels, name);
  return 1;
}

int kiln__cache_gc(kiln__cache *cache, int64_t limit, int64_t max_age, const char *keep,
                   kiln__cache_removed *removed) {
  kiln__cache_kernel *list;
  size_t count;
  int64_t total = 0;
  memset(removed, 0, sizeof *removed);
  int kernels = kiln__cache_kernels_fd(cache, 0);
  if (kernels < 0) return errno == ENOENT ? 0 : -1;
  int failed = kiln__cache_list(kernels, max_age, &list, &count, &removed->leftovers);
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
