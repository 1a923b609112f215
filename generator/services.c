/* The services of the full library: what the runtime calls without naming it. The runtime reads the
 * table once per context; libkiln_rt has runtime/rt/services.c in this file's place. */
#include "runtime/services.h"

#include <stdlib.h>
#include <string.h>

#include "autotune/choices.h"
#include "autotune/tune.h"
#include "generator/embedded.h"
#include "generator/generator.h"

static kiln_status create(const char *template_dir, char *error, size_t error_size,
                          void **generator) {
  kiln__generator *g = NULL;
  kiln_status status = kiln__generator_create(template_dir, error, error_size, &g);
  *generator = g;
  return status;
}

static void destroy(void *generator) { kiln__generator_destroy(generator); }

static kiln_status resolve(void *generator, kiln_attn_spec *spec, kiln_tile *tile, char *error,
                           size_t error_size) {
  return kiln__generator_resolve(generator, spec, tile, error, error_size);
}

static kiln_status render(void *generator, const kiln_attn_spec *spec, const kiln_tile *tile,
                          unsigned flags, int for_emulator, kiln__generated *out, char *error,
                          size_t error_size) {
  kiln__rendered rendered;
  kiln_status status = kiln__generator_render(generator, spec, tile, flags, for_emulator, &rendered,
                                              error, error_size);
  *out = (kiln__generated){
      .text = rendered.text, .length = rendered.length, .record = rendered.record};
  memcpy(out->source_id, rendered.source_id, sizeof out->source_id);
  return status;
}

static int stamp(void *generator, char hex[KILN__ID_SIZE]) {
  return kiln__generator_stamp(generator, hex);
}

static kiln_status schema(void *generator, char **json, char *error, size_t error_size) {
  return kiln__generator_schema(generator, json, error, error_size);
}

static kiln_status set_spec(void *generator, kiln_attn_spec *spec, const char *field,
                            const char *text, char *error, size_t error_size) {
  return kiln__generator_set(generator, "spec", spec, field, text, error, error_size);
}

static kiln_status set_tile(void *generator, kiln_tile *tile, const char *field, const char *text,
                            char *error, size_t error_size) {
  return kiln__generator_set(generator, "tile", tile, field, text, error, error_size);
}

static kiln_status list_tiles(void *generator, const kiln_attn_spec *spec, kiln_tile **tiles,
                              int32_t *count, char *error, size_t error_size) {
  return kiln__generator_tiles(generator, spec, tiles, count, error, error_size);
}

static kiln_status predict(void *generator, const kiln_attn_spec *spec, const kiln_tile *tile,
                           const kiln_attn_args *shape, int32_t num_sms,
                           kiln_prediction *prediction, char *error, size_t error_size) {
  return kiln__generator_predict(generator, spec, tile, shape, num_sms, prediction, error,
                                 error_size);
}

static kiln_status read_manifest(void *generator, const char *template_dir, const char *name,
                                 const char *text, size_t length, char **json, char *error,
                                 size_t error_size) {
  return kiln__manifest_read(generator, template_dir, name, text, length, json, error, error_size);
}

_Static_assert(sizeof((kiln__generated *)0)->source_id == sizeof((kiln__rendered *)0)->source_id,
               "both hold one source id");

static const kiln__generator_ops generator_ops = {
    .create = create,
    .destroy = destroy,
    .resolve = resolve,
    .render = render,
    .stamp = stamp,
    .schema = schema,
    .set_spec = set_spec,
    .set_tile = set_tile,
    .list_tiles = list_tiles,
    .predict = predict,
    .read_manifest = read_manifest,
};

/* ---- tuning ---- */

static kiln_status add_shipped(kiln__choices *choices) {
  static const char prefix[] = "records/";
  kiln_status status = KILN_OK;
  for (size_t i = 0; i < kiln__embedded_count && status == KILN_OK; i++) {
    const kiln__embedded_file *file = &kiln__embedded_files[i];
    if (strncmp(file->name, prefix, strlen(prefix)) == 0)
      status = kiln__choices_add_shipped(choices, (const char *)file->bytes, file->length);
  }
  return status;
}

static void free_choices(void *choices) {
  if (choices) kiln__choices_free(choices);
  free(choices);
}

static kiln_status read_choices(const kiln_attn_spec *spec, const char *const *files, int num_files,
                                void **out, char *warning, size_t warning_size) {
  kiln__choices *choices = calloc(1, sizeof *choices);
  *out = NULL;
  warning[0] = '\0';
  if (!choices) return KILN_OUT_OF_MEMORY;
  kiln__choices_init(choices, spec);
  kiln_status status = add_shipped(choices);
  for (int i = 0; i < num_files && status == KILN_OK; i++)
    status = kiln__choices_add_file(choices, files[i], warning, warning_size);
  if (status == KILN_OK)
    *out = choices;
  else
    free_choices(choices);
  return status;
}

static kiln_status choose(const void *choices, const kiln_attn_args *shape,
                          const kiln_device_info *device,
                          int (*source_id)(void *user, char id[KILN__ID_SIZE]), void *user,
                          kiln__chosen_tile *out) {
  const kiln__place place = {shape, device, source_id, user};
  kiln__chosen found;
  kiln_status status = kiln__choices_find(choices, &place, &found);
  *out = (kiln__chosen_tile){found.step, found.tile, found.why, found.ladder};
  return status;
}

static const kiln__tuner_ops tuner_ops = {
    .open = kiln__tuner_open,
    .close = kiln__tuner_close,
    .tune = kiln__tune,
    .records = kiln__records_command,
    .read_choices = read_choices,
    .free_choices = free_choices,
    .choose = choose,
};

void kiln__services_fill(kiln__services *services) {
  memset(services, 0, sizeof *services);
  services->generator = &generator_ops;
  services->nvrtc = &kiln__nvrtc_ops;
  services->emulator = &kiln__emulator_ops;
  services->emulator_compiler = &kiln__emulator_compiler_ops;
  services->tuner = &tuner_ops;
}
