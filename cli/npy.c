/* NumPy's .npy files: reading f2, f4, f8 and writing f4.
 *
 * A file is 6 bytes of magic, 2 of version, a header length (2 bytes in version 1, 4 in 2 and 3), a
 * Python dict literal of that length, then the elements. The header is data, never code: the parser
 * below knows the three keys that the format defines and refuses everything else, and the elements
 * must fill the file to its last byte.
 *
 * Called by tensor.c (reading) and by the verbs through tensor.h (writing). */
#include "tensor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[6] = "\x93NUMPY";

enum { HEADER_LIMIT = 64 * 1024 }; /* NumPy writes about 118 bytes */

/* ---- the header's dict literal ---- */

typedef struct cursor {
  const char *at, *end;
} cursor;

static void skip_blanks(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
    c->at++;
}

static bool accept(cursor *c, const char *token) {
  size_t length = strlen(token);
  skip_blanks(c);
  if ((size_t)(c->end - c->at) < length || memcmp(c->at, token, length) != 0) return false;
  c->at += length;
  return true;
}

/* A quoted string without escapes; names and dtypes need none. */
static bool parse_string(cursor *c, char *text, size_t size) {
  skip_blanks(c);
  if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
  char quote = *c->at++;
  size_t length = 0;
  while (c->at < c->end && *c->at != quote) {
    if (*c->at == '\\' || *c->at == '\0' || length + 1 >= size) return false;
    text[length++] = *c->at++;
  }
  text[length] = '\0';
  return accept(c, quote == '"' ? "\"" : "'");
}

static bool parse_size(cursor *c, int64_t *value) {
  skip_blanks(c);
  if (c->at == c->end || *c->at < '0' || *c->at > '9') return false;
  *value = 0;
  for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
    if (__builtin_mul_overflow(*value, 10, value) ||
        __builtin_add_overflow(*value, *c->at - '0', value))
      return false;
  return true;
}

/* (), (3,) or (3, 4, ...): one number without a comma is not a tuple in Python. */
static bool parse_shape(cursor *c, kiln__tensor *tensor) {
  bool comma = true;
  if (!accept(c, "(")) return false;
  for (tensor->rank = 0; !accept(c, ")"); tensor->rank++) {
    if (!comma || tensor->rank == KILN__TENSOR_MAX_RANK ||
        !parse_size(c, &tensor->shape[tensor->rank]))
      return false;
    comma = accept(c, ",");
  }
  return tensor->rank != 1 || comma;
}

typedef struct npy_header {
  char descr[16];
  bool fortran_order;
  bool has_descr, has_order, has_shape;
} npy_header;

static bool parse_entry(cursor *c, npy_header *header, kiln__tensor *tensor) {
  char key[16];
  if (!parse_string(c, key, sizeof key) || !accept(c, ":")) return false;
  if (strcmp(key, "descr") == 0 && !header->has_descr)
    return header->has_descr = parse_string(c, header->descr, sizeof header->descr);
  if (strcmp(key, "shape") == 0 && !header->has_shape)
    return header->has_shape = parse_shape(c, tensor);
  if (strcmp(key, "fortran_order") != 0 || header->has_order) return false;
  header->fortran_order = accept(c, "True");
  return header->has_order = header->fortran_order || accept(c, "False");
}

static bool parse_header(const char *text, size_t length, npy_header *header,
                         kiln__tensor *tensor) {
  cursor c = {text, text + length};
  bool comma = true;
  if (!accept(&c, "{")) return false;
  while (!accept(&c, "}")) {
    if (!comma || !parse_entry(&c, header, tensor)) return false;
    comma = accept(&c, ",");
  }
  skip_blanks(&c);
  return c.at == c.end && header->has_descr && header->has_order && header->has_shape;
}

/* ---- reading ---- */

bool kiln__npy_recognize(const kiln__tensor_file *file) {
  char first[sizeof magic];
  return file->size >= (int64_t)sizeof first &&
         kiln__tensor_file_read(file, 0, sizeof first, first) == KILN_OK &&
         memcmp(first, magic, sizeof magic) == 0;
}

static kiln_status refuse_corrupt(const kiln__tensor_file *file, const char *reason) {
  return kiln__tensor_refuse(file->error, KILN_CORRUPT, file->path, "%s", reason);
}

/* Where the header's text begins and how long it is. */
static kiln_status locate_header(const kiln__tensor_file *file, int64_t *start, size_t *length) {
  unsigned char lead[12] = {0};
  size_t there = file->size < (int64_t)sizeof lead ? (size_t)file->size : sizeof lead;
  kiln_status status = kiln__tensor_file_read(file, 0, there, lead);
  if (status != KILN_OK) return status;
  int version = lead[6];
  *start = version == 1 ? 10 : 12;
  if (file->size < *start)
    return refuse_corrupt(file, "ends inside the .npy header; copy or save it again");
  if (version < 1 || version > 3 || lead[7] != 0)
    return kiln__tensor_refuse(file->error, KILN_UNSUPPORTED, file->path,
                               "has .npy format version %d.%d; versions 1.0, 2.0 and 3.0 are read",
                               version, lead[7]);
  *length = lead[8] | (size_t)lead[9] << 8;
  if (version > 1) *length |= (size_t)lead[10] << 16 | (size_t)lead[11] << 24;
  if (*length > HEADER_LIMIT)
    return kiln__tensor_refuse(file->error, KILN_CORRUPT, file->path,
                               "claims a .npy header of %zu bytes, more than the %d allowed",
                               *length, HEADER_LIMIT);
  if ((int64_t)*length > file->size - *start)
    return refuse_corrupt(file, "ends inside the .npy header; copy or save it again");
  return KILN_OK;
}

static kiln_status choose_dtype(const kiln__tensor_file *file, const npy_header *header,
                                kiln__tensor *tensor) {
  if (strcmp(header->descr, "<f2") == 0)
    tensor->dtype = KILN__TENSOR_FP16;
  else if (strcmp(header->descr, "<f4") == 0)
    tensor->dtype = KILN__TENSOR_FP32;
  else if (strcmp(header->descr, "<f8") == 0)
    tensor->dtype = KILN__TENSOR_FP64;
  else
    return kiln__tensor_refuse(file->error, KILN_UNSUPPORTED, file->path,
                               "has dtype '%s'; save it as little-endian f2, f4 or f8",
                               header->descr);
  if (header->fortran_order)
    return kiln__tensor_refuse(file->error, KILN_UNSUPPORTED, file->path,
                               "is in Fortran order; save numpy.ascontiguousarray of it");
  return KILN_OK;
}

static kiln_status read_header(const kiln__tensor_file *file, kiln__tensor *tensor,
                               int64_t *data_start) {
  size_t length = 0;
  npy_header header = {0};
  kiln_status status = locate_header(file, data_start, &length);
  if (status != KILN_OK) return status;
  char *text = malloc(length + 1);
  if (!text)
    return kiln__tensor_refuse(file->error, KILN_OUT_OF_MEMORY, file->path, "no memory is left");
  status = kiln__tensor_file_read(file, *data_start, length, text);
  if (status == KILN_OK && !parse_header(text, length, &header, tensor))
    status = refuse_corrupt(file, "has a .npy header that is not a dict of descr, fortran_order "
                                  "and a shape of at most 8 dimensions");
  if (status == KILN_OK) status = choose_dtype(file, &header, tensor);
  free(text);
  *data_start += (int64_t)length;
  return status;
}

kiln_status kiln__npy_load(const kiln__tensor_file *file, kiln__tensor *tensor) {
  int64_t start = 0, bytes = 0;
  kiln_status status = read_header(file, tensor, &start);
  if (status != KILN_OK) return status;
  if (!kiln__tensor_size(tensor->dtype, tensor->rank, tensor->shape, &bytes))
    return refuse_corrupt(file, "has a shape whose size does not fit in 63 bits");
  if (bytes != file->size - start)
    return kiln__tensor_refuse(file->error, KILN_CORRUPT, file->path,
                               "holds %" PRId64 " bytes of data where its shape and dtype need "
                               "%" PRId64 "; copy or save it again",
                               file->size - start, bytes);
  return kiln__tensor_file_fill(file, start, bytes, tensor);
}

/* ---- writing ---- */

/* Magic, version 1.0, length and dict, padded with blanks so that the data begin at a multiple of
 * 64 bytes, as the format asks. At most 8 dimensions of 19 digits: 256 bytes always suffice. */
static size_t format_header(int rank, const int64_t *shape, char header[256 + 1]) {
  int used = 10;
  used += snprintf(header + used, (size_t)(257 - used),
                   "{'descr': '<f4', 'fortran_order': False, 'shape': (");
  for (int i = 0; i < rank; i++)
    used += snprintf(header + used, (size_t)(257 - used), "%" PRId64 "%s", shape[i],
                     rank == 1      ? ","
                     : i + 1 < rank ? ", "
                                    : "");
  used += snprintf(header + used, (size_t)(257 - used), "), }");
  int total = (used + 1 + 63) / 64 * 64;
  memset(header + used, ' ', (size_t)(total - used));
  header[total - 1] = '\n';
  memcpy(header, magic, sizeof magic);
  header[6] = 1;
  header[7] = 0;
  header[8] = (char)((total - 10) & 0xff);
  header[9] = (char)((total - 10) >> 8);
  return (size_t)total;
}

static bool write_all(int fd, const void *buffer, size_t bytes) {
  const char *from = buffer;
  while (bytes > 0) {
    ssize_t done = write(fd, from, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    from += done;
    bytes -= (size_t)done;
  }
  return true;
}

/* A new file beside `path`, so that the rename stays inside one file system. The name is the
 * caller's to free. open rather than mkstemp: the file gets the modes that the umask leaves. */
static int open_beside(const char *path, char **name) {
  size_t size = strlen(path) + 48;
  *name = malloc(size);
  int fd = -1;
  for (int attempt = 0; *name && fd < 0 && attempt < 100; attempt++) {
    snprintf(*name, size, "%s.%ld-%d.tmp", path, (long)getpid(), attempt);
    fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST) break;
  }
  return fd;
}

static kiln_status refuse_write(const char *path, kiln__tensor_error *error) {
  return kiln__tensor_refuse(error, KILN_IO_FAILED, path, "cannot be written (%s)",
                             strerror(errno));
}

kiln_status kiln__tensor_save(const char *path, const float *data, int rank, const int64_t *shape,
                              kiln__tensor_error *error) {
  char header[256 + 1], *name = NULL;
  int64_t bytes = 0;
  struct stat info;
  error->text[0] = '\0';
  if (rank < 0 || rank > KILN__TENSOR_MAX_RANK ||
      !kiln__tensor_size(KILN__TENSOR_FP32, rank, shape, &bytes))
    return kiln__tensor_refuse(error, KILN_INVALID_ARGUMENT, path,
                               "cannot hold a tensor of that shape; at most 8 dimensions and 63 "
                               "bits of size are legal");
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
    return kiln__tensor_refuse(error, KILN_IO_FAILED, path,
                               "exists and is not a regular file; name another output");
  int fd = open_beside(path, &name);
  kiln_status status = KILN_OK;
  if (fd < 0) {
    status = refuse_write(path, error);
    goto done;
  }
  bool written = write_all(fd, header, format_header(rank, shape, header)) &&
                 write_all(fd, data, (size_t)bytes) && fsync(fd) == 0;
  if (!written) status = refuse_write(path, error);
  if (close(fd) != 0 && status == KILN_OK) status = refuse_write(path, error);
  if (status == KILN_OK && rename(name, path) != 0) status = refuse_write(path, error);
  if (status != KILN_OK) unlink(name);
done:
  free(name);
  return status;
}
