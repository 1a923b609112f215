/* What the tensor readers share: a checked file, its errors, and the size of a shape.
 *
 * Invariant: a range is read only after it was checked to lie inside the file, and memory is only
 * asked for in amounts that the file really holds.
 *
 * Private to tensor.c, tensor_file.c, npy.c and safetensors.c. */
#ifndef KILN_CLI_TENSOR_FILE_H
#define KILN_CLI_TENSOR_FILE_H

#include "tensor.h"

#include <stdbool.h>

typedef struct kiln__tensor_file {
  const char *path; /* borrowed */
  int fd;
  int64_t size; /* bytes */
  kiln__tensor_error *error;
} kiln__tensor_file;

/* Writes "PATH: reason" and returns `status`, so that a refusal is one return statement. */
__attribute__((format(printf, 4, 5))) kiln_status kiln__tensor_refuse(kiln__tensor_error *error,
                                                                      kiln_status status,
                                                                      const char *path,
                                                                      const char *format, ...);

/* Regular files only: a directory, FIFO or device is refused without waiting on it. */
kiln_status kiln__tensor_file_open(const char *path, kiln__tensor_error *error,
                                   kiln__tensor_file *file);
void kiln__tensor_file_close(kiln__tensor_file *file);

/* The caller has checked that offset + bytes <= file->size. */
kiln_status kiln__tensor_file_read(const kiln__tensor_file *file, int64_t offset, size_t bytes,
                                   void *buffer);

/* Bytes of a dense tensor. False where a dimension is negative or the product over the dimensions
 * that are not 0 (which bounds every stride) does not fit in int64. */
bool kiln__tensor_size(kiln__tensor_dtype dtype, int rank, const int64_t *shape, int64_t *bytes);

/* Gives `tensor` (dtype, rank, shape set) its memory and fills it from the file. */
kiln_status kiln__tensor_file_fill(const kiln__tensor_file *file, int64_t offset, int64_t bytes,
                                   kiln__tensor *tensor);

bool kiln__npy_recognize(const kiln__tensor_file *file);
kiln_status kiln__npy_load(const kiln__tensor_file *file, kiln__tensor *tensor);
kiln_status kiln__safetensors_load(const kiln__tensor_file *file, const char *name,
                                   kiln__tensor *tensor);

#endif
