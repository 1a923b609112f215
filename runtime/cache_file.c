/* The cache's files, one at a time. Files may have been replaced by anything (a directory, a FIFO,
 * a link), so every open refuses links, never blocks, and looks at what it got. */
#include "runtime/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int kiln__cache_is_private(const struct stat *status) {
  uid_t user = geteuid();
  return (status->st_uid == user || status->st_uid == 0) &&
         (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Whole reads and writes: a short one is continued, an interrupted one repeated. 0, or -1. */
static int read_all(int fd, char *to, size_t size) {
  size_t done = 0;
  while (done < size) {
    ssize_t got = read(fd, to + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return -1;
    done += (size_t)got;
  }
  return 0;
}

static int write_all(int fd, const char *from, size_t size) {
  size_t done = 0;
  while (done < size) {
    ssize_t put = write(fd, from + done, size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return -1;
    done += (size_t)put;
  }
  return 0;
}

/* The bytes are followed by a NUL that *size does not count. */
void *kiln__cache_read_file(int dir_fd, const char *name, size_t limit, size_t *size,
                            const char **why) {
  struct stat status;
  char *bytes = NULL;
  *size = 0;
  *why = "cannot be opened";
  int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return NULL;
  *why = "is no plain file";
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) goto done;
  *why = "can be written by other users";
  if (!kiln__cache_is_private(&status)) goto done;
  *why = "is too large";
  if (status.st_size < 0 || (uint64_t)status.st_size > limit) goto done;
  *why = "cannot be read";
  bytes = malloc((size_t)status.st_size + 1);
  if (!bytes) goto done;
  if (read_all(fd, bytes, (size_t)status.st_size) != 0) {
    free(bytes);
    bytes = NULL;
    goto done;
  }
  *size = (size_t)status.st_size;
  bytes[*size] = '\0';
done:
  close(fd);
  return bytes;
}

int kiln__cache_write_file(int dir_fd, const char *name, const void *bytes, size_t size) {
  int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  int failed = write_all(fd, bytes, size) != 0 || fsync(fd) != 0;
  int code = errno;
  if (close(fd) != 0 && !failed) {
    failed = 1;
    code = errno;
  }
  errno = code;
  return failed ? -1 : 0;
}

void kiln__cache_private_name(const char *prefix, char name[64]) {
  snprintf(name, 64, ".%s-%ld-%08x%08x", prefix, (long)getpid(), randombytes_random(),
           randombytes_random());
}
