/* Writing files by rename, reading small ones; file.h states the promise. */
#include "file.h"

#include "out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_all(int fd, const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t written = write(fd, bytes, length);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return -1;
    bytes += written;
    length -= (size_t)written;
  }
  return 0;
}

/* mkstemp's 0600 is opened to what the user's mask allows, as for any file that a program
 * writes. */
static void set_mode(int fd) {
  mode_t mask = umask(0);
  umask(mask);
  fchmod(fd, 0666 & ~mask);
}

static kiln_status refuse(const char *path, const char *flag) {
  return kiln__fail(KILN_IO_FAILED, "%s cannot be written (%s); choose another place with %s", path,
                    strerror(errno), flag);
}

/* Opens a file beside the one that is meant; *draft is its name, malloc'd, NULL without memory. */
static int open_draft(const char *path, char **draft) {
  const size_t size = strlen(path) + 16;
  *draft = malloc(size);
  if (!*draft) return -1;
  snprintf(*draft, size, "%s.XXXXXX", path);
  return mkstemp(*draft);
}

/* The rename would put a file in the place of a device or a FIFO. */
static kiln_status refuse_special(const char *path, const char *flag) {
  struct stat info;
  if (stat(path, &info) != 0 || S_ISREG(info.st_mode)) return KILN_OK;
  return kiln__fail(KILN_IO_FAILED, "%s cannot be written (%s); choose another place with %s", path,
                    S_ISDIR(info.st_mode) ? strerror(EISDIR) : "Not a regular file", flag);
}

kiln_status kiln__file_check(const char *path, const char *flag) {
  char *draft = NULL;
  kiln_status status = refuse_special(path, flag);
  if (status != KILN_OK) return status;
  const int fd = open_draft(path, &draft);
  if (fd < 0) status = refuse(path, flag);
  if (fd >= 0) {
    close(fd);
    unlink(draft);
  }
  free(draft);
  return status;
}

kiln_status kiln__file_write(const char *path, const void *bytes, size_t length) {
  return kiln__file_write_named(path, "-o", bytes, length);
}

kiln_status kiln__file_write_named(const char *path, const char *flag, const void *bytes,
                                   size_t length) {
  char *draft = NULL;
  kiln_status status = refuse_special(path, flag);
  if (status != KILN_OK) return status;
  const int fd = open_draft(path, &draft);
  if (fd < 0) goto fail_open;
  set_mode(fd);
  int failed = write_all(fd, bytes, length);
  if (close(fd) != 0 || failed || rename(draft, path) != 0) goto fail_write;
  free(draft);
  return KILN_OK;

fail_write:;
  int cause = errno;
  unlink(draft);
  errno = cause;
fail_open:
  free(draft);
  return refuse(path, flag);
}

kiln_status kiln__file_read(const char *path, size_t limit, char **bytes, size_t *length) {
  *bytes = NULL;
  FILE *file = fopen(path, "rb");
  char *text = file ? malloc(limit + 1) : NULL;
  if (!file) goto fail_open;
  if (!text) {
    fclose(file);
    return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left");
  }
  *length = fread(text, 1, limit, file);
  const int more = *length == limit && fgetc(file) != EOF, failed = ferror(file);
  const int cause = errno;
  fclose(file);
  text[*length] = '\0';
  if (!failed && !more) {
    *bytes = text;
    return KILN_OK;
  }
  free(text);
  errno = cause;
  if (more && !failed)
    return kiln__fail(KILN_INVALID_ARGUMENT, "%s is larger than %zu bytes", path, limit);

fail_open:
  return kiln__fail(KILN_IO_FAILED, "%s cannot be read (%s)", path, strerror(errno));
}

kiln_status kiln__directory_make(const char *path) {
  struct stat info;
  if (mkdir(path, 0777) == 0 ||
      (errno == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)))
    return KILN_OK;
  return kiln__fail(KILN_IO_FAILED, "directory %s cannot be made (%s); choose another with -o",
                    path, strerror(errno));
}
