/* Reading and matching rows of peers; peers.h states what matches. */
#include "peers.h"

#include "out.h"
#include "rate.h"
#include "selection.h"

#include <stdbool.h>
#include <string.h>

static kiln_status add_engine(kiln__peers *p, const char *path, const char *name) {
  for (int i = 0; i < p->num_engines; i++)
    if (strcmp(p->engines[i], name) == 0) return KILN_OK;
  if (p->num_engines == KILN__ENGINES_MAX)
    return kiln__fail(KILN_INVALID_ARGUMENT,
                      "%s has more than %d engines, which no chart can tell apart; leave some out",
                      path, KILN__ENGINES_MAX);
  p->engines[p->num_engines++] = name;
  return KILN_OK;
}

static kiln_status find_engines(kiln__peers *p, const char *path) {
  kiln_status status = KILN_OK;
  size_t i;
  const json_t *row;
  const char *name;
  json_t *value;
  json_array_foreach(json_object_get(p->root, "rows"), i, row) {
    json_object_foreach(json_object_get(row, "tflops"), name, value) {
      if (status == KILN_OK) status = add_engine(p, path, name);
    }
  }
  if (status != KILN_OK || p->num_engines > 0) return status;
  return kiln__fail(KILN_INVALID_ARGUMENT,
                    "%s has no rows with tflops; give a file that bench/peers.py --out wrote",
                    path);
}

kiln_status kiln__peers_read(const char *path, kiln__peers *peers) {
  json_error_t error;
  *peers = (kiln__peers){.root = json_load_file(path, JSON_REJECT_DUPLICATES, &error)};
  if (!peers->root)
    return kiln__fail(KILN_IO_FAILED, "%s cannot be read as JSON (%s)", path, error.text);
  kiln_status status = find_engines(peers, path);
  if (status != KILN_OK) kiln__peers_destroy(peers);
  return status;
}

void kiln__peers_destroy(kiln__peers *peers) {
  json_decref(peers->root);
  *peers = (kiln__peers){0};
}

static bool is_word(const json_t *row, const char *name, const char *wanted) {
  const char *text = json_string_value(json_object_get(row, name));
  return text && strcmp(text, wanted) == 0;
}

static bool is_number(const json_t *row, const char *name, int32_t wanted) {
  const json_t *value = json_object_get(row, name);
  return json_is_integer(value) && json_integer_value(value) == wanted;
}

static bool matches(const json_t *row, const kiln_attn_spec *spec, const kiln_attn_args *shape) {
  const bool names_pass = json_object_get(row, "pass") || spec->pass != KILN_PASS_FORWARD;
  return (!names_pass || is_word(row, "pass", kiln__pass_name(spec->pass))) &&
         is_word(row, "mask", kiln__mask_name(spec->mask)) &&
         is_word(row, "dtype", kiln__dtype_name(spec->dtype)) &&
         is_number(row, "head_dim", spec->head_dim) &&
         is_number(row, "head_dim_v", spec->head_dim_v) &&
         is_number(row, "seqlen", shape->seqlen_q) && is_number(row, "seqlen", shape->seqlen_k) &&
         is_number(row, "batch", shape->batch) && is_number(row, "heads", shape->num_heads) &&
         is_number(row, "heads_k", shape->num_heads_k);
}

double kiln__peers_tflops(const kiln__peers *peers, int engine, const kiln_attn_spec *spec,
                          const kiln_attn_args *shape) {
  size_t i;
  const json_t *row;
  const char *name = peers->engines[engine];
  json_array_foreach(json_object_get(peers->root, "rows"), i, row) {
    const json_t *rate = json_object_get(json_object_get(row, "tflops"), name);
    if (!rate || !matches(row, spec, shape)) continue;
    const double ms = json_number_value(json_object_get(json_object_get(row, "ms"), name));
    const double tflops =
        ms > 0 ? kiln__rate_flops(spec, shape) / ms * 1e-9 : json_number_value(rate);
    if (tflops > 0 && tflops < 1e6) return tflops;
  }
  return 0;
}

const char *kiln__peers_environment(const kiln__peers *peers, const char *name) {
  const char *text =
      json_string_value(json_object_get(json_object_get(peers->root, "environment"), name));
  return text ? text : "";
}
