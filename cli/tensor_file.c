/* Checked reading of a tensor's file; tensor_file.h states the invariant. */
#include "tensor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The path is cut, never the reason. */
kiln_status kiln__tensor_refuse(kiln__tensor_error *error, kiln_status status, const char *path,
                                const char *format, ...) {
  int used = snprintf(error->text, sizeof error->text, "%.400s: ", path);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text + used, sizeof error->text - (size_t)used, format, arguments);
  va_end(arguments);
  for (char *c = error->text; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
  return status;
}

/* O_NONBLOCK: opening a FIFO that nobody writes would otherwise wait for ever. */
kiln_status kiln__tensor_file_open(const char *path, kiln__tensor_error *error,
                                   kiln__tensor_file *file) {
  *file = (kiln__tensor_file){.path = path, .fd = -1, .error = error};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return kiln__tensor_refuse(error, KILN_IO_FAILED, path, "cannot be opened (%s)",
                               strerror(errno));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return kiln__tensor_refuse(error, KILN_IO_FAILED, path,
                               "is not a regular file; give a .npy or a safetensors file");
  }
  file->fd = fd;
  file->size = info.st_size;
  return KILN_OK;
}

void kiln__tensor_file_close(kiln__tensor_file *file) {
  if (file->fd >= 0) close(file->fd);
  file->fd = -1;
}

kiln_status kiln__tensor_file_read(const kiln__tensor_file *file, int64_t offset, size_t bytes,
                                   void *buffer) {
  char *to = buffer;
  while (bytes > 0) {
    ssize_t got = pread(file->fd, to, bytes, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return kiln__tensor_refuse(file->error, KILN_IO_FAILED, file->path, "cannot be read (%s)",
                                 strerror(errno));
    if (got == 0)
      return kiln__tensor_refuse(file->error, KILN_IO_FAILED, file->path,
                                 "became shorter while it was read");
    to += got;
    offset += got;
    bytes -= (size_t)got;
  }
  return KILN_OK;
}

bool kiln__tensor_size(kiln__tensor_dtype dtype, int rank, const int64_t *shape, int64_t *bytes) {
  int64_t product = (int64_t)kiln__tensor_dtype_size(dtype);
  bool empty = false;
  *bytes = 0;
  for (int i = 0; i < rank; i++) {
    if (shape[i] < 0) return false;
    if (shape[i] == 0)
      empty = true;
    else if (__builtin_mul_overflow(product, shape[i], &product))
      return false;
  }
  *bytes = empty ? 0 : product;
  return true;
}

kiln_status kiln__tensor_file_fill(const kiln__tensor_file *file, int64_t offset, int64_t bytes,
                                   kiln__tensor *tensor) {
  tensor->bytes = (size_t)bytes;
  tensor->data = malloc(bytes > 0 ? tensor->bytes : 1);
  if (!tensor->data)
    return kiln__tensor_refuse(file->error, KILN_OUT_OF_MEMORY, file->path,
                               "needs %lld bytes of memory, which are not there", (long long)bytes);
  return kiln__tensor_file_read(file, offset, tensor->bytes, tensor->data);
}
