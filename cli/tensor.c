/* Host tensors: dtypes, memory, conversion, and which reader a command-line word asks for.
 *
 * Files hold little-endian numbers and are read straight into memory, so the host must be
 * little-endian too; every host of a CUDA GPU that Kiln knows is. */
#include "tensor.h"

#include "number.h"
#include "tensor_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensor files are read in place");

static const struct {
  const char *name;
  size_t size;
} dtypes[] = {
    [KILN__TENSOR_FP16] = {"fp16", 2}, [KILN__TENSOR_BF16] = {"bf16", 2},
    [KILN__TENSOR_E4M3] = {"e4m3", 1}, [KILN__TENSOR_FP32] = {"fp32", 4},
    [KILN__TENSOR_FP64] = {"fp64", 8},
};

size_t kiln__tensor_dtype_size(kiln__tensor_dtype dtype) { return dtypes[dtype].size; }
const char *kiln__tensor_dtype_name(kiln__tensor_dtype dtype) { return dtypes[dtype].name; }

int64_t kiln__tensor_count(const kiln__tensor *tensor) {
  return (int64_t)(tensor->bytes / dtypes[tensor->dtype].size);
}

kiln_status kiln__tensor_create(kiln__tensor_dtype dtype, int rank, const int64_t *shape,
                                kiln__tensor *tensor) {
  int64_t bytes = 0;
  *tensor = (kiln__tensor){0};
  if (rank < 0 || rank > KILN__TENSOR_MAX_RANK || !kiln__tensor_size(dtype, rank, shape, &bytes))
    return KILN_INVALID_ARGUMENT;
  void *data = calloc(1, bytes > 0 ? (size_t)bytes : 1);
  if (!data) return KILN_OUT_OF_MEMORY;
  *tensor = (kiln__tensor){.dtype = dtype, .rank = rank, .data = data, .bytes = (size_t)bytes};
  for (int i = 0; i < rank; i++) tensor->shape[i] = shape[i];
  return KILN_OK;
}

void kiln__tensor_destroy(kiln__tensor *tensor) {
  free(tensor->data);
  *tensor = (kiln__tensor){0};
}

static kiln_status load_npy(const char *path, kiln__tensor *tensor, kiln__tensor_error *error) {
  kiln__tensor_file file;
  kiln_status status = kiln__tensor_file_open(path, error, &file);
  if (status == KILN_OK && !kiln__npy_recognize(&file))
    status = kiln__tensor_refuse(error, KILN_CORRUPT, path,
                                 "is not a .npy file (its first bytes are not \\x93NUMPY); a "
                                 "tensor of a safetensors file is given as FILE:NAME");
  else if (status == KILN_OK)
    status = kiln__npy_load(&file, tensor);
  kiln__tensor_file_close(&file);
  return status;
}

static kiln_status load_safetensors(const char *source, size_t path_length, kiln__tensor *tensor,
                                    kiln__tensor_error *error) {
  char *path = strndup(source, path_length);
  if (!path) return kiln__tensor_refuse(error, KILN_OUT_OF_MEMORY, source, "no memory is left");
  kiln__tensor_file file;
  kiln_status status = kiln__tensor_file_open(path, error, &file);
  if (status == KILN_OK) status = kiln__safetensors_load(&file, source + path_length + 1, tensor);
  kiln__tensor_file_close(&file);
  free(path);
  return status;
}

/* Length of the first prefix before a colon that is a file, or 0. */
static size_t find_split(const char *source) {
  char *copy = strdup(source);
  size_t length = 0;
  struct stat info;
  for (char *colon = copy ? strchr(copy, ':') : NULL; colon && !length;
       colon = strchr(colon + 1, ':')) {
    *colon = '\0';
    if (stat(copy, &info) == 0 && S_ISREG(info.st_mode)) length = (size_t)(colon - copy);
    *colon = ':';
  }
  free(copy);
  return length;
}

kiln_status kiln__tensor_load(const char *source, kiln__tensor *tensor, kiln__tensor_error *error) {
  struct stat info;
  *tensor = (kiln__tensor){0};
  error->text[0] = '\0';
  size_t split = stat(source, &info) == 0 ? 0 : find_split(source);
  kiln_status status =
      split ? load_safetensors(source, split, tensor, error) : load_npy(source, tensor, error);
  if (status != KILN_OK) kiln__tensor_destroy(tensor);
  return status;
}

static double element_get(const kiln__tensor *tensor, int64_t i) {
  switch (tensor->dtype) {
  case KILN__TENSOR_FP16: return kiln__fp16_decode(((const uint16_t *)tensor->data)[i]);
  case KILN__TENSOR_BF16: return kiln__bf16_decode(((const uint16_t *)tensor->data)[i]);
  case KILN__TENSOR_E4M3: return kiln__e4m3_decode(((const uint8_t *)tensor->data)[i]);
  case KILN__TENSOR_FP32: return ((const float *)tensor->data)[i];
  case KILN__TENSOR_FP64: break;
  }
  return ((const double *)tensor->data)[i];
}

static void element_set(kiln__tensor *tensor, int64_t i, double value) {
  switch (tensor->dtype) {
  case KILN__TENSOR_FP16: ((uint16_t *)tensor->data)[i] = kiln__fp16_encode(value); return;
  case KILN__TENSOR_BF16: ((uint16_t *)tensor->data)[i] = kiln__bf16_encode(value); return;
  case KILN__TENSOR_E4M3: ((uint8_t *)tensor->data)[i] = kiln__e4m3_encode(value); return;
  case KILN__TENSOR_FP32: ((float *)tensor->data)[i] = (float)value; return;
  case KILN__TENSOR_FP64: ((double *)tensor->data)[i] = value; return;
  }
}

kiln_status kiln__tensor_convert(const kiln__tensor *from, kiln__tensor_dtype dtype,
                                 kiln__tensor *tensor) {
  kiln_status status = kiln__tensor_create(dtype, from->rank, from->shape, tensor);
  if (status != KILN_OK) return status;
  int64_t count = kiln__tensor_count(from);
  for (int64_t i = 0; i < count; i++) element_set(tensor, i, element_get(from, i));
  return KILN_OK;
}
