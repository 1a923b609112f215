/* The tuning environment of a context, from what the library reports about itself. */
#include <stdio.h>
#include <string.h>

#include "autotune/tune.h"

static void take_text(const json_t *object, const char *name, char *out, size_t size) {
  const char *text = json_string_value(json_object_get(object, name));
  snprintf(out, size, "%s", text ? text : "");
}

static int64_t take_number(const json_t *object, const char *name) {
  return json_integer_value(json_object_get(object, name));
}

static void take_device(const json_t *device, kiln__environment *e) {
  take_text(device, "compute_capability", e->compute_capability, sizeof e->compute_capability);
  take_text(device, "name", e->name, sizeof e->name);
  e->num_sms = (int32_t)take_number(device, "num_sms");
  e->shared_bytes_block = take_number(device, "shared_bytes_block");
  e->l2_bytes = take_number(device, "l2_bytes");
}

void kiln__environment_take_source(kiln_context *ctx, const kiln_attn_spec *spec,
                                   kiln__environment *e) {
  kiln_source *source = NULL;
  kiln_status status = kiln_source_generate(ctx, spec, NULL, 0, &source);
  snprintf(e->source_id, sizeof e->source_id, "%s",
           status == KILN_OK ? kiln_source_id(source) : "none");
  kiln_source_destroy(source);
}

kiln_status kiln__environment_of(kiln_context *ctx, const kiln_attn_spec *spec,
                                 kiln__environment *e) {
  const char *json = NULL;
  *e = (kiln__environment){0};
  kiln_status status = kiln_context_report(ctx, &json);
  if (status != KILN_OK) return status;
  json_t *root = json_loads(json, 0, NULL);
  if (!root) return KILN_OUT_OF_MEMORY;
  const json_t *device = json_object_get(root, "device");
  if (json_is_object(device) && take_number(device, "device") >= 0) {
    take_device(device, e);
    take_text(json_object_get(root, "driver"), "version", e->driver, sizeof e->driver);
  }
  take_text(json_object_get(root, "nvrtc"), "version", e->nvrtc, sizeof e->nvrtc);
  take_text(root, "kiln", e->kiln, sizeof e->kiln);
  snprintf(e->timing, sizeof e->timing, "%s", KILN__TIMING);
  json_decref(root);
  if (spec) kiln__environment_take_source(ctx, spec, e);
  return KILN_OK;
}
