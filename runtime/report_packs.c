/* The packs of KILN_PACK_PATH, each looked at whole, for the report on a machine. */
#include <stdlib.h>
#include <string.h>

#include "runtime/objects.h"
#include "runtime/pack.h"
#include "runtime/report.h"

static int compare_archs(const void *a, const void *b) { return strcmp(a, b); }

/* Every arch once, as --arch takes them: "sm_80,sm_90a"; NULL without memory. *runnable: how many
 * kernels this device runs; without a GPU that is not known. */
static char *list_archs(kiln_context *ctx, const kiln_pack *pack, int64_t *runnable) {
  kiln_pack_kernel kernel = {.size = sizeof kernel};
  kiln__text text;
  char(*archs)[sizeof kernel.spec.arch] = calloc((size_t)pack->count, sizeof *archs);
  if (!archs) return NULL;
  for (int64_t i = 0; kiln_pack_get_kernel(pack, i, &kernel) == KILN_OK; i++) {
    memcpy(archs[i], kernel.spec.arch, sizeof archs[i]);
    if (ctx->device_id >= 0) *runnable += kiln__check_arch(ctx, kernel.spec.arch) == KILN_OK;
  }
  qsort(archs, (size_t)pack->count, sizeof *archs, compare_archs);
  kiln__text_init(&text, 4096);
  for (int64_t i = 0; i < pack->count; i++)
    if (i == 0 || strcmp(archs[i], archs[i - 1]) != 0)
      kiln__text_printf(&text, "%s%s", i ? "," : "", archs[i]);
  free(archs);
  return kiln__text_take(&text);
}

/* A pack for other devices does no harm and no good. */
static json_t *check_device(const kiln_context *ctx, int64_t runnable) {
  if (ctx->device_id < 0 || runnable > 0) return json_null();
  if (!ctx->info.arch[0]) return json_string("no kernel is made for this device");
  return json_sprintf("none of its kernels runs on this device: build it with --arch %s",
                      ctx->info.arch);
}

static json_t *report_pack(kiln_context *ctx, const char *path) {
  kiln_pack *pack = NULL;
  kiln_pack_info info = {.size = sizeof info};
  int64_t runnable = 0;
  kiln_status status = kiln_pack_open_file(ctx, path, NULL, &pack);
  if (status == KILN_OK) status = kiln_pack_verify(ctx, pack, NULL);
  json_t *problem = status == KILN_OK ? NULL : json_string(kiln_last_error(ctx));
  char *archs = pack ? list_archs(ctx, pack, &runnable) : NULL;
  if (pack) kiln_pack_get_info(pack, &info);
  if (!problem) problem = check_device(ctx, runnable);
  json_t *row =
      json_pack("{s:s, s:b, s:I, s:I, s:s?, s:b, s:s?, s:s?, s:o}", "path", path, "readable",
                pack != NULL, "kernels", (json_int_t)info.num_kernels, "bytes",
                (json_int_t)info.bytes, "archs", archs, "sources", info.has_sources, "kiln",
                info.kiln, "signed_by", info.public_key, "problem", problem);
  free(archs);
  kiln_pack_destroy(pack);
  return row;
}

json_t *kiln__report_packs(kiln_context *ctx) {
  json_t *list = json_array();
  const char *at = kiln__env_get(&ctx->env, KILN__ENV_KILN_PACK_PATH);
  while (at && *at) {
    const char *end = strchrnul(at, ':');
    char *path = end > at ? strndup(at, (size_t)(end - at)) : NULL;
    if (path) json_array_append_new(list, report_pack(ctx, path));
    free(path);
    at = *end ? end + 1 : end;
  }
  return list;
}
