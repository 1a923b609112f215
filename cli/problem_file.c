/* See problem_file.h. */
#include "problem_file.h"

#include "device.h"
#include "out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1 << 16 };

typedef struct reader {
  kiln_context *ctx;
  const char *path;
  const kiln_attn_args *defaults;
  kiln__take_problem *take;
  void *user;
} reader;

/* A size by its name; NULL for what is none. */
static int32_t *size_of(kiln_attn_args *shape, const char *name) {
  if (strcmp(name, "batch") == 0) return &shape->batch;
  if (strcmp(name, "seqlen_q") == 0) return &shape->seqlen_q;
  if (strcmp(name, "seqlen_k") == 0) return &shape->seqlen_k;
  if (strcmp(name, "num_heads") == 0) return &shape->num_heads;
  return strcmp(name, "num_heads_k") == 0 ? &shape->num_heads_k : NULL;
}

static kiln_status fail_line(const reader *r, long line, kiln_status status) {
  return kiln__fail(status, "%s:%ld: %s", r->path, line, kiln_last_error(r->ctx));
}

static kiln_status set_member(const reader *r, long line, const char *name, const json_t *value,
                              kiln_attn_spec *spec, kiln_attn_args *shape) {
  int32_t *size = size_of(shape, name);
  const json_int_t integer = json_integer_value(value);
  if (size && json_is_integer(value) && integer >= 0 && integer <= INT32_MAX) {
    *size = (int32_t)integer;
    return KILN_OK;
  }
  if (size) return kiln__fail(KILN_INVALID_ARGUMENT, "%s:%ld: %s is no size", r->path, line, name);
  char *dump = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
  const char *text = json_is_string(value) ? json_string_value(value) : dump ? dump : "";
  kiln_status status = kiln_attn_spec_set(r->ctx, spec, name, text);
  free(dump);
  return status == KILN_OK ? KILN_OK : fail_line(r, line, status);
}

/* One line: the members that are left out have the defaults of the flags of their names. */
static kiln_status take_line(const reader *r, long number, const char *text) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args shape = *r->defaults;
  const char *name;
  json_t *value, *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  kiln_status status = KILN_OK;
  if (!json_is_object(object))
    status =
        kiln__fail(KILN_INVALID_ARGUMENT, "%s:%ld: the line is no JSON object", r->path, number);
  json_object_foreach(object, name, value) {
    if (status == KILN_OK) status = set_member(r, number, name, value, &spec, &shape);
  }
  if (status == KILN_OK && object && !json_object_get(object, "seqlen_k"))
    shape.seqlen_k = shape.seqlen_q;
  if (status == KILN_OK && object && !json_object_get(object, "num_heads_k"))
    shape.num_heads_k = shape.num_heads;
  json_decref(object);
  if (status == KILN_OK) {
    status = kiln_attn_spec_resolve(r->ctx, &spec, NULL);
    if (status != KILN_OK) fail_line(r, number, status);
  }
  return status == KILN_OK ? r->take(r->user, &spec, &shape) : status;
}

kiln_status kiln__problem_file_read(kiln_context *ctx, const char *path,
                                    const kiln_attn_args *defaults, kiln__take_problem *take,
                                    void *user) {
  const reader r = {ctx, path, defaults, take, user};
  kiln_status status = KILN_OK;
  FILE *file = fopen(path, "re");
  char *line = malloc(LINE_MAX_BYTES);
  if (!file) {
    status = kiln__fail(KILN_IO_FAILED, "%s: cannot be opened (%s)", path, strerror(errno));
  } else if (!line) {
    status = kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for %s", path);
  } else {
    for (long n = 1; status == KILN_OK && fgets(line, LINE_MAX_BYTES, file); n++)
      if (line[strspn(line, " \n")]) status = take_line(&r, n, line);
  }
  free(line);
  if (file) fclose(file);
  return status;
}
