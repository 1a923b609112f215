/* Host tensors of the command line: what --q, --k, --v name, and what --o and --lse write.
 *
 * Invariant: a loaded tensor owns exactly `bytes` = product(shape) * size(dtype) bytes, dense, last
 * dimension fastest, and no stride of it overflows 64 bits even where a dimension is 0. A file is
 * never believed: sizes are checked against the file's own before anything is allocated or read.
 * A refusal is one sentence that names the file and the reason; the tensor is then zeroed.
 *
 * Called by the verbs run and verify. */
#ifndef KILN_CLI_TENSOR_H
#define KILN_CLI_TENSOR_H

#include "kiln/kiln.h"

#include <stddef.h>
#include <stdint.h>

enum { KILN__TENSOR_MAX_RANK = 8 };

/* The public dtypes under their own numbers, and fp64, which only files and references hold. */
typedef enum kiln__tensor_dtype {
  KILN__TENSOR_FP16 = KILN_DTYPE_FP16,
  KILN__TENSOR_BF16 = KILN_DTYPE_BF16,
  KILN__TENSOR_E4M3 = KILN_DTYPE_E4M3,
  KILN__TENSOR_FP32 = KILN_DTYPE_FP32,
  KILN__TENSOR_FP64
} kiln__tensor_dtype;

typedef struct kiln__tensor {
  kiln__tensor_dtype dtype;
  int rank;
  int64_t shape[KILN__TENSOR_MAX_RANK];
  void *data; /* aligned for any dtype; not NULL even where bytes is 0 */
  size_t bytes;
} kiln__tensor;

typedef struct kiln__tensor_error {
  char text[1024]; /* printable: control characters out of a file become '?' */
} kiln__tensor_error;

size_t kiln__tensor_dtype_size(kiln__tensor_dtype dtype);      /* bytes an element */
const char *kiln__tensor_dtype_name(kiln__tensor_dtype dtype); /* "fp16", "bf16", "e4m3", ... */

int64_t kiln__tensor_count(const kiln__tensor *tensor); /* elements */

/* A tensor of zeros. rank is 0 to 8, no dimension is negative, and the size fits in 63 bits;
 * anything else is INVALID_ARGUMENT. */
kiln_status kiln__tensor_create(kiln__tensor_dtype dtype, int rank, const int64_t *shape,
                                kiln__tensor *tensor);
void kiln__tensor_destroy(kiln__tensor *tensor); /* leaves it zeroed; a zeroed one is accepted */

/* `source` is the path of a .npy file, or FILE:NAME for tensor NAME of a safetensors file. A path
 * that exists as a whole is a .npy file; else the first colon after an existing file splits it. */
kiln_status kiln__tensor_load(const char *source, kiln__tensor *tensor, kiln__tensor_error *error);

/* Writes f32 .npy. The file appears whole or not at all; an old one stays until then. */
kiln_status kiln__tensor_save(const char *path, const float *data, int rank, const int64_t *shape,
                              kiln__tensor_error *error);

/* A new tensor of another dtype; each element is rounded once, to nearest even. */
kiln_status kiln__tensor_convert(const kiln__tensor *from, kiln__tensor_dtype dtype,
                                 kiln__tensor *tensor);

#endif
