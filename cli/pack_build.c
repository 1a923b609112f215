/* kiln pack build: compiles the kernels that pack_select.c chose and writes them as one file.
 *
 * Invariant: the file appears whole, by a rename, and only where every kernel was compiled and the
 * size limit holds; its bytes depend on the kernels alone. What was compiled is in the cache, so
 * an interrupted build goes on where it was. */
#include "pack.h"

#include "file.h"
#include "out.h"
#include "pool.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_NAME "kiln.pack"

enum { PAGE = 4096, ENTRY_BYTES = 1400 }; /* of an entry of the manifest, about */

/* What a kernel takes that was never compiled: about the mean of head dims 64, 128 and 256, in
 * seconds of one core, NVRTC 13.0 (docs/performance.md). */
static const struct {
  const char *arch, *algorithm;
  double bytes, line_info, seconds; /* line_info: what --line-info adds, bytes */
} estimates[] = {
    {"sm_90a", "flash", 83e3, 266e3, 1.4},
    {"", "flash", 55e3, 194e3, 0.5},
    {"", "standard", 68e3, 162e3, 0.4},
};

typedef struct build {
  kiln_status status;
  char *error; /* of a failure; NULL = none */
  kiln_binary *binary;
  kiln_source *source; /* where it is packed */
  size_t source_bytes;
  bool is_default;
} build;

typedef struct session {
  kiln_context *ctx;
  const kiln__args *args;
  kiln__selection selection;
  build *builds;
  kiln_pack_writer *writer;
  int64_t limit; /* bytes; 0 = none */
  double bytes, seconds, largest;
  int64_t largest_at; /* the variant */
  int64_t at_hand, compiled;
  bool with_sources;
} session;

/* "5M": decimal, as sizes are printed. */
static kiln_status read_limit(const kiln__args *args, int64_t *limit) {
  const char *text = kiln__args_get(args, "--max-size");
  char *end = NULL;
  if (!text) return KILN_OK;
  double number = strtod(text, &end);
  double unit = *end == 'K' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : 1;
  if (end == text || (unit > 1 ? end[1] : *end) || !(number * unit >= 1) || number * unit > 1e15)
    return kiln__fail(KILN_INVALID_ARGUMENT,
                      "--max-size '%s' is no size such as 500000, 800K, 5M or 2G", text);
  *limit = (int64_t)(number * unit);
  return KILN_OK;
}

/* ---- sizes ---- */

static void count_bytes(session *s, int64_t index, double image_bytes, size_t source_bytes) {
  double pages = (image_bytes + PAGE - 1) / PAGE;
  s->bytes += (double)(int64_t)pages * PAGE + ENTRY_BYTES;
  if (s->with_sources) s->bytes += (double)source_bytes;
  if (image_bytes <= s->largest) return;
  s->largest = image_bytes;
  s->largest_at = index;
}

static kiln_status check_limit(const session *s, double bytes) {
  if (!s->limit || bytes <= (double)s->limit) return KILN_OK;
  const kiln__variant *largest = &s->selection.variants[s->largest_at];
  return kiln__fail(KILN_INVALID_ARGUMENT,
                    "the pack would be larger than --max-size %s: %.2f MB already; the largest "
                    "kernel is %s with %.0f KB; choose fewer kernels or a larger size",
                    kiln__args_get(s->args, "--max-size"), bytes / 1e6,
                    kiln__variant_describe(&largest->spec).text, s->largest / 1e3);
}

/* ---- one kernel ---- */

/* Whether the tile is the one that Kiln chooses for this spec. */
static bool is_default_tile(kiln_context *ctx, const kiln__variant *variant) {
  kiln_attn_spec spec = variant->spec;
  kiln_tile tile = KILN_TILE_INIT;
  if (kiln_attn_spec_resolve(ctx, &spec, &tile) != KILN_OK) return false;
  return memcmp(&tile, &variant->tile, sizeof tile) == 0;
}

static void build_one(void *user, int64_t index) {
  session *s = user;
  const kiln__variant *variant = &s->selection.variants[index];
  build *b = &s->builds[index];
  kiln_source *source = NULL;
  b->is_default = is_default_tile(s->ctx, variant);
  b->status = kiln_source_generate(s->ctx, &variant->spec, &variant->tile, 0, &source);
  if (b->status == KILN_OK) b->status = kiln_binary_compile(s->ctx, source, &b->binary);
  if (b->status != KILN_OK) b->error = strdup(kiln_last_error(s->ctx));
  if (source) kiln_source_text(source, &b->source_bytes);
  if (s->with_sources)
    b->source = source;
  else
    kiln_source_destroy(source);
}

static void build_destroy(build *b) {
  kiln_binary_destroy(b->binary);
  kiln_source_destroy(b->source);
  free(b->error);
  *b = (build){0};
}

static kiln_status add_one(session *s, int64_t index) {
  const build *b = &s->builds[index];
  const kiln__variant *variant = &s->selection.variants[index];
  kiln_binary_info info = {.size = sizeof info};
  size_t image_bytes = 0;
  if (b->status != KILN_OK)
    return kiln__fail(b->status, "%s: %s", kiln__variant_describe(&variant->spec).text,
                      b->error && b->error[0] ? b->error : kiln_status_text(b->status));
  kiln_binary_get_info(b->binary, &info);
  kiln_binary_image(b->binary, &image_bytes);
  s->compiled += !info.from_cache;
  count_bytes(s, index, (double)image_bytes, b->source_bytes);
  const unsigned mark = b->is_default ? KILN_PACK_DEFAULT : 0;
  kiln_status status = s->with_sources
                           ? kiln_pack_writer_add_source(s->writer, b->binary, b->source, mark)
                           : kiln_pack_writer_add(s->writer, b->binary, mark);
  return status == KILN_OK ? check_limit(s, s->bytes) : kiln__fail_context(s->ctx, status);
}

/* Every kernel that does not compile is named; a pack that grows too large ends it at once. */
static kiln_status build_all(session *s) {
  kiln__progress progress;
  kiln_status first = KILN_OK;
  const int64_t count = s->selection.count;
  s->builds = calloc((size_t)count, sizeof *s->builds);
  kiln__pool *pool = s->builds ? kiln__pool_create(count, build_one, s) : NULL;
  int64_t taken = 0, begun = 0;
  bool too_large = false;
  if (!pool) {
    free(s->builds);
    return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for %lld kernels", (long long)count);
  }
  kiln__progress_start(&progress, "compiling", count);
  while (taken < count && !too_large) {
    build *b = &s->builds[taken];
    kiln__pool_wait(pool, taken);
    kiln__progress_clear(&progress);
    kiln_status status = add_one(s, taken++);
    if (first == KILN_OK) first = status;
    too_large = status != KILN_OK && b->status == KILN_OK;
    build_destroy(b);
    kiln__progress_step(&progress);
  }
  kiln__progress_clear(&progress);
  kiln__pool_destroy(pool, &begun);
  for (int64_t i = taken; i < begun; i++) build_destroy(&s->builds[i]);
  free(s->builds);
  return first;
}

/* ---- the file ---- */

static kiln_status report(const session *s, const char *path, const kiln_pack *pack) {
  kiln_pack_info info = {.size = sizeof info};
  kiln_pack_get_info(pack, &info);
  if (kiln__args_has(s->args, "--json"))
    return kiln__print_json(json_pack("{s:s, s:I, s:I, s:s, s:I}", "path", path, "kernels",
                                      (json_int_t)info.num_kernels, "bytes", (json_int_t)info.bytes,
                                      "root", info.root, "compiled", (json_int_t)s->compiled));
  printf("%s: %lld kernels, %lld compiled now, %.2f MB, root %.12s\n", path,
         (long long)info.num_kernels, (long long)s->compiled, (double)info.bytes / 1e6, info.root);
  return KILN_OK;
}

static kiln_status write_pack(session *s) {
  const char *path = kiln__args_get(s->args, "-o");
  kiln_pack *pack = NULL;
  size_t size = 0;
  if (!path) path = DEFAULT_NAME;
  kiln_status status = kiln_pack_writer_create(s->ctx, &s->writer);
  if (status != KILN_OK) return kiln__fail_context(s->ctx, status);
  status = build_all(s);
  if (status == KILN_OK) {
    status = kiln_pack_writer_finish(s->writer, &pack);
    if (status != KILN_OK) kiln__fail_context(s->ctx, status);
  }
  kiln_pack_writer_destroy(s->writer);
  if (status == KILN_OK) {
    const void *bytes = kiln_pack_bytes(pack, &size);
    status = check_limit(s, (double)size);
    if (status == KILN_OK) status = kiln__file_write(path, bytes, size);
  }
  if (status == KILN_OK) status = report(s, path, pack);
  kiln_pack_destroy(pack);
  return status;
}

/* ---- without compiling ---- */

/* Whether the cache holds the kernel, and its exact size; compiling is off in this context. */
static bool weigh_cached(session *s, int64_t index, size_t *source_bytes) {
  const kiln__variant *variant = &s->selection.variants[index];
  kiln_source *source = NULL;
  kiln_binary *binary = NULL;
  size_t bytes = 0;
  kiln_status status = kiln_source_generate(s->ctx, &variant->spec, &variant->tile, 0, &source);
  if (status == KILN_OK) {
    kiln_source_text(source, source_bytes);
    status = kiln_binary_compile(s->ctx, source, &binary);
  }
  if (status == KILN_OK) {
    kiln_binary_image(binary, &bytes);
    count_bytes(s, index, (double)bytes, *source_bytes);
    s->at_hand++;
  }
  kiln_binary_destroy(binary);
  kiln_source_destroy(source);
  return status == KILN_OK;
}

static void estimate_one(session *s, int64_t index, size_t source_bytes) {
  const kiln_attn_spec *spec = &s->selection.variants[index].spec;
  const char *algorithm = kiln__algorithm_name(spec->algorithm);
  for (size_t i = 0; i < sizeof estimates / sizeof estimates[0]; i++) {
    if (estimates[i].arch[0] && strcmp(estimates[i].arch, spec->arch) != 0) continue;
    if (strcmp(estimates[i].algorithm, algorithm) != 0) continue;
    const double line_info = kiln__args_has(s->args, "--line-info") ? estimates[i].line_info : 0;
    count_bytes(s, index, estimates[i].bytes + line_info, source_bytes);
    s->seconds += estimates[i].seconds;
    return;
  }
}

static kiln_status dry_run(session *s) {
  kiln__progress progress;
  const int64_t count = s->selection.count;
  kiln__progress_start(&progress, "looking", count);
  for (int64_t i = 0; i < count; i++) {
    size_t source_bytes = 0;
    if (!weigh_cached(s, i, &source_bytes)) estimate_one(s, i, source_bytes);
    kiln__progress_step(&progress);
  }
  kiln__progress_clear(&progress);
  const int threads = kiln__pool_threads(count);
  const double seconds = s->seconds / threads;
  if (kiln__args_has(s->args, "--json")) {
    kiln_status status = kiln__print_json(
        json_pack("{s:I, s:I, s:I, s:f, s:i}", "kernels", (json_int_t)count, "at_hand",
                  (json_int_t)s->at_hand, "estimated_bytes", (json_int_t)s->bytes, "estimated_s",
                  seconds, "threads", threads));
    return status == KILN_OK ? check_limit(s, s->bytes) : status;
  }
  printf("%lld kernels, %lld of them in the cache; about %.1f MB, and %.0f s with %d thread%s\n",
         (long long)count, (long long)s->at_hand, s->bytes / 1e6, seconds, threads,
         threads == 1 ? "" : "s");
  return check_limit(s, s->bytes);
}

/* ---- the command ---- */

kiln_status kiln__pack_build(kiln_context *ctx, const kiln__args *args) {
  session s = {.ctx = ctx, .args = args, .with_sources = kiln__args_has(args, "--sources")};
  kiln_status status = read_limit(args, &s.limit);
  if (status != KILN_OK) return status;
  status = kiln__pack_select(ctx, args, &s.selection);
  s.bytes = PAGE;
  if (status == KILN_OK) status = kiln__args_has(args, "--dry-run") ? dry_run(&s) : write_pack(&s);
  kiln__selection_destroy(&s.selection);
  return status;
}
