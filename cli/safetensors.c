/* One tensor of a .safetensors file.
 *
 * A file is a header length (8 bytes, little-endian), a JSON object of that length that maps each
 * name to {dtype, shape, data_offsets}, then the bytes. jansson parses the header and refuses
 * duplicate keys; every number in it is checked against the file before it is used.
 *
 * Called by tensor.c. */
#include "tensor_file.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  LENGTH_BYTES = 8,
  HEADER_LIMIT = 100 * 1000 * 1000 /* the limit of the format's own reader */
};

static const struct {
  const char *name;
  kiln__tensor_dtype dtype;
} dtypes[] = {
    {"F16", KILN__TENSOR_FP16},
    {"BF16", KILN__TENSOR_BF16},
    {"F32", KILN__TENSOR_FP32},
    {"F8_E4M3", KILN__TENSOR_E4M3},
};

static kiln_status refuse_corrupt(const kiln__tensor_file *file, const char *reason) {
  return kiln__tensor_refuse(file->error, KILN_CORRUPT, file->path, "%s", reason);
}

static kiln_status header_length(const kiln__tensor_file *file, int64_t *length) {
  unsigned char lead[LENGTH_BYTES];
  if (file->size < LENGTH_BYTES)
    return refuse_corrupt(file, "is too short to be a safetensors file");
  kiln_status status = kiln__tensor_file_read(file, 0, sizeof lead, lead);
  if (status != KILN_OK) return status;
  uint64_t claimed = 0;
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) claimed = claimed << 8 | lead[i];
  if (claimed > HEADER_LIMIT || (int64_t)claimed > file->size - LENGTH_BYTES)
    return kiln__tensor_refuse(file->error, KILN_CORRUPT, file->path,
                               "claims a safetensors header of %" PRIu64 " bytes, more than the "
                               "file holds or the %d allowed",
                               claimed, HEADER_LIMIT);
  *length = (int64_t)claimed;
  return KILN_OK;
}

static kiln_status parse_header(const kiln__tensor_file *file, int64_t length, json_t **header) {
  char *text = malloc((size_t)length + 1);
  if (!text)
    return kiln__tensor_refuse(file->error, KILN_OUT_OF_MEMORY, file->path, "no memory is left");
  kiln_status status = kiln__tensor_file_read(file, LENGTH_BYTES, (size_t)length, text);
  if (status == KILN_OK) {
    json_error_t error;
    *header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!*header)
      status = kiln__tensor_refuse(file->error, KILN_CORRUPT, file->path,
                                   "has a safetensors header that is not JSON (%s)", error.text);
    else if (text[0] != '{')
      status = refuse_corrupt(file, "has a safetensors header that does not begin with '{'");
  }
  free(text);
  return status;
}

/* Names what the file does hold, as far as one line can. */
static kiln_status refuse_name(const kiln__tensor_file *file, const char *name, json_t *header) {
  char list[256] = "";
  size_t used = 0, count = 0;
  bool full = false;
  const char *key;
  json_t *value;
  json_object_foreach(header, key, value) {
    if (strcmp(key, "__metadata__") == 0) continue;
    bool fits = used + strlen(key) + sizeof ", , ..." <= sizeof list;
    if (!full)
      used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", count ? ", " : "",
                               fits ? key : "...");
    full = full || !fits;
    count++;
  }
  return kiln__tensor_refuse(file->error, KILN_INVALID_ARGUMENT, file->path,
                             "has no tensor named '%.200s'; it holds %zu: %s", name, count, list);
}

static kiln_status read_dtype(const kiln__tensor_file *file, const char *name, json_t *entry,
                              kiln__tensor *tensor) {
  const char *dtype = json_string_value(json_object_get(entry, "dtype"));
  for (size_t i = 0; dtype && i < sizeof dtypes / sizeof dtypes[0]; i++)
    if (strcmp(dtype, dtypes[i].name) == 0) {
      tensor->dtype = dtypes[i].dtype;
      return KILN_OK;
    }
  return kiln__tensor_refuse(file->error, dtype ? KILN_UNSUPPORTED : KILN_CORRUPT, file->path,
                             "has dtype '%.40s' for tensor '%.200s'; F16, BF16, F32 and F8_E4M3 "
                             "are read",
                             dtype ? dtype : "(none)", name);
}

static bool read_sizes(json_t *array, size_t limit, int64_t *sizes, size_t *count) {
  *count = json_array_size(array);
  if (!json_is_array(array) || *count > limit) return false;
  for (size_t i = 0; i < *count; i++) {
    json_t *size = json_array_get(array, i);
    sizes[i] = json_integer_value(size);
    if (!json_is_integer(size) || sizes[i] < 0) return false;
  }
  return true;
}

/* Fills dtype, rank and shape, and says where in the file the tensor's bytes lie. */
static kiln_status read_entry(const kiln__tensor_file *file, const char *name, json_t *entry,
                              int64_t data_start, kiln__tensor *tensor, int64_t range[2]) {
  size_t rank = 0, ends = 0;
  int64_t bytes = 0;
  kiln_status status = read_dtype(file, name, entry, tensor);
  if (status != KILN_OK) return status;
  bool shaped =
      read_sizes(json_object_get(entry, "shape"), KILN__TENSOR_MAX_RANK, tensor->shape, &rank);
  tensor->rank = (int)rank;
  if (!shaped || !kiln__tensor_size(tensor->dtype, tensor->rank, tensor->shape, &bytes))
    return kiln__tensor_refuse(file->error, KILN_CORRUPT, file->path,
                               "has a shape for tensor '%.200s' that is not at most 8 sizes whose "
                               "product fits in 63 bits",
                               name);
  if (!read_sizes(json_object_get(entry, "data_offsets"), 2, range, &ends) || ends != 2 ||
      range[0] > range[1] || range[1] > file->size - data_start)
    return kiln__tensor_refuse(file->error, KILN_CORRUPT, file->path,
                               "has data_offsets for tensor '%.200s' that do not lie inside the "
                               "file; copy or save it again",
                               name);
  if (range[1] - range[0] != bytes)
    return kiln__tensor_refuse(file->error, KILN_CORRUPT, file->path,
                               "gives tensor '%.200s' %" PRId64 " bytes where its shape and dtype "
                               "need %" PRId64,
                               name, range[1] - range[0], bytes);
  return KILN_OK;
}

kiln_status kiln__safetensors_load(const kiln__tensor_file *file, const char *name,
                                   kiln__tensor *tensor) {
  int64_t length = 0, range[2] = {0, 0};
  json_t *header = NULL;
  kiln_status status = header_length(file, &length);
  if (status == KILN_OK) status = parse_header(file, length, &header);
  if (status == KILN_OK) {
    json_t *entry = json_object_get(header, name);
    if (!json_is_object(entry) || strcmp(name, "__metadata__") == 0)
      status = refuse_name(file, name, header);
    else
      status = read_entry(file, name, entry, LENGTH_BYTES + length, tensor, range);
  }
  if (status == KILN_OK)
    status =
        kiln__tensor_file_fill(file, LENGTH_BYTES + length + range[0], range[1] - range[0], tensor);
  json_decref(header);
  return status;
}
