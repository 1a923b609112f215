/* kiln compile: source, launch record, PTX, binary and launcher of every kernel of a selection.
 *
 * Invariant: kernels are printed and written in the selection's order whatever order they were
 * compiled in; a kernel that does not compile is named, the others are still done, and the exit
 * code is the first failure's. Without -o nothing is written but the cache. */
#include "device.h"
#include "file.h"
#include "out.h"
#include "pool.h"
#include "selection.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

static const kiln__flag flags[] = {
    {"-o", "DIR", "write source, record, PTX, binary and a C launcher of each kernel into DIR"},
    {"--json", NULL, "one object a kernel"},
    {0},
};

typedef struct build {
  kiln_status status;
  char *error; /* of a failure; NULL = none */
  kiln_source *source;
  kiln_binary *binary;
} build;

typedef struct session {
  kiln_context *ctx;
  const kiln__args *args;
  const char *folder; /* NULL = nowhere */
  const char *image;  /* what the binary's file name ends with */
  kiln__selection selection;
  build *builds;
} session;

static void build_one(void *user, int64_t index) {
  session *s = user;
  const kiln__variant *variant = &s->selection.variants[index];
  build *b = &s->builds[index];
  b->status = kiln_source_generate(s->ctx, &variant->spec, &variant->tile, 0, &b->source);
  if (b->status == KILN_OK) b->status = kiln_binary_compile(s->ctx, b->source, &b->binary);
  if (b->status != KILN_OK) b->error = strdup(kiln_last_error(s->ctx));
}

static void build_destroy(build *b) {
  kiln_binary_destroy(b->binary);
  kiln_source_destroy(b->source);
  free(b->error);
  *b = (build){0};
}

/* ---- files ---- */

static kiln_status write_one(const session *s, const char *stem, const char *ending,
                             const void *bytes, size_t length) {
  size_t size = strlen(s->folder) + strlen(stem) + strlen(ending) + 2;
  char *path = malloc(size);
  if (!path) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left");
  snprintf(path, size, "%s/%s%s", s->folder, stem, ending);
  kiln_status status = kiln__file_write(path, bytes, length);
  free(path);
  return status;
}

/* A cubin's alone. */
static kiln_status write_launcher(const session *s, const kiln__variant *variant,
                                  const char *stem) {
  size_t length = 0;
  kiln_source *launcher = NULL;
  kiln_status status = kiln_source_generate(s->ctx, &variant->spec, &variant->tile,
                                            KILN_GENERATE_LAUNCHER, &launcher);
  if (status != KILN_OK) return kiln__fail(status, "%s", kiln_last_error(s->ctx));
  const char *text = kiln_source_text(launcher, &length);
  status = write_one(s, stem, ".launcher.c", text, length);
  kiln_source_destroy(launcher);
  return status;
}

static kiln_status write_files(const session *s, const kiln__variant *variant, const build *b) {
  size_t length = 0;
  kiln_binary_info info = {.size = sizeof info};
  if (!s->folder) return KILN_OK;
  const kiln__variant_text name = kiln__variant_stem(&variant->spec, &variant->tile);
  const char *stem = name.text;
  kiln_binary_get_info(b->binary, &info);
  const char *text = kiln_source_text(b->source, &length);
  kiln_status status = write_one(s, stem, ".cu", text, length);
  if (status == KILN_OK)
    status = write_one(s, stem, ".record.json", info.record, strlen(info.record));
  const char *ptx = kiln_binary_ptx(b->binary, &length);
  if (status == KILN_OK && ptx) status = write_one(s, stem, ".ptx", ptx, length);
  const void *image = kiln_binary_image(b->binary, &length);
  if (status == KILN_OK) status = write_one(s, stem, s->image, image, length);
  if (status == KILN_OK && strcmp(s->image, ".cubin") == 0)
    status = write_launcher(s, variant, stem);
  return status;
}

/* ---- facts ---- */

static json_t *notes_json(const char *notes) {
  json_t *list = json_array();
  while (notes && *notes) {
    size_t length = strcspn(notes, "\n");
    if (length > 0) json_array_append_new(list, json_stringn(notes, length));
    notes += length + (notes[length] == '\n');
  }
  return list;
}

static kiln_status print_build(const session *s, const kiln__variant *variant, const build *b) {
  kiln_binary_info info = {.size = sizeof info};
  kiln_binary_get_info(b->binary, &info);
  if (!kiln__args_has(s->args, "--json")) {
    printf("%s  %.12s  tile %dx%d, %d stages, %d warps; %d registers, %d bytes spilled, %lld bytes "
           "shared; %s\n",
           kiln__variant_describe(&variant->spec).text, info.kernel_id, (int)variant->tile.block_m,
           (int)variant->tile.block_n, (int)variant->tile.num_stages, (int)variant->tile.num_warps,
           (int)info.registers, (int)info.spill_bytes, (long long)info.shared_bytes,
           info.from_cache ? "from the cache" : "compiled");
    if (info.notes && info.notes[0]) printf("  %s\n", info.notes);
    return KILN_OK;
  }
  json_t *object = json_object();
  json_object_set_new(object, "kernel_id", json_string(info.kernel_id));
  json_object_set_new(object, "source_id", json_string(kiln_source_id(b->source)));
  kiln__variant_json(object, &variant->spec, &variant->tile);
  json_object_set_new(object, "registers", json_integer(info.registers));
  json_object_set_new(object, "spill_bytes", json_integer(info.spill_bytes));
  json_object_set_new(object, "shared_bytes", json_integer(info.shared_bytes));
  json_object_set_new(object, "compile_ms", kiln__json_number(info.compile_ms));
  json_object_set_new(object, "from_cache", json_boolean(info.from_cache));
  json_object_set_new(object, "notes", notes_json(info.notes));
  return kiln__print_json(object);
}

static kiln_status report(const session *s, int64_t index) {
  const kiln__variant *variant = &s->selection.variants[index];
  const build *b = &s->builds[index];
  if (b->status != KILN_OK)
    return kiln__fail(b->status, "%s: %s", kiln__variant_describe(&variant->spec).text,
                      b->error && b->error[0] ? b->error : kiln_status_text(b->status));
  kiln_status status = print_build(s, variant, b);
  return status == KILN_OK ? write_files(s, variant, b) : status;
}

static kiln_status compile_all(session *s) {
  kiln__progress progress;
  kiln_status first = KILN_OK;
  int64_t count = s->selection.count;
  s->builds = calloc((size_t)count, sizeof *s->builds);
  kiln__pool *pool = s->builds ? kiln__pool_create(count, build_one, s) : NULL;
  if (!pool) {
    free(s->builds);
    return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for %lld kernels", (long long)count);
  }
  kiln__progress_start(&progress, "compiling", count);
  for (int64_t i = 0; i < count; i++) {
    kiln__pool_wait(pool, i);
    kiln__progress_clear(&progress);
    kiln_status status = report(s, i);
    if (first == KILN_OK) first = status;
    build_destroy(&s->builds[i]);
    kiln__progress_step(&progress);
  }
  kiln__progress_clear(&progress);
  kiln__pool_destroy(pool, NULL);
  free(s->builds);
  return first;
}

static kiln_status run(const kiln__args *args) {
  int device = 0;
  session s = {.args = args, .folder = kiln__args_get(args, "-o")};
  kiln_status status = kiln__device_open(args, KILN__DEVICE_TO_ASK, &device, &s.ctx);
  if (status != KILN_OK) return status;
  s.image = device == KILN_DEVICE_EMU ? ".elf" : ".cubin";
  status = kiln__selection_create(s.ctx, device, args, KILN__OPEN_IS_DEFAULT, &s.selection);
  if (status == KILN_OK && s.folder) status = kiln__directory_make(s.folder);
  if (status == KILN_OK) status = compile_all(&s);
  kiln__selection_destroy(&s.selection);
  kiln_context_destroy(s.ctx);
  return status;
}

const kiln__verb kiln__verb_compile = {
    .name = "compile",
    .usage = "SELECTION [-o DIR]",
    .sentence = "Compiles kernels and says what they take.",
    .flags = flags,
    .groups = KILN__TAKES_SELECTION | KILN__TAKES_TARGET,
    .run = run,
};
