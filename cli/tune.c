/* kiln tune: chooses the tile of every kernel of a selection, or of a file of problems.
 *
 * Invariant: what is printed of a problem is what kiln_tune said; a problem that fails ends the
 * verb, with all that was measured before it kept in the records. */
#include "device.h"
#include "out.h"
#include "problem_file.h"
#include "report.h"
#include "selection.h"
#include "shape.h"
#include "verbs.h"

#include <stdlib.h>
#include <string.h>

static const kiln__flag flags[] = {
    {"--problems", "FILE", "problems in place of a selection, one JSON object a line"},
    {"--strategy", "NAME", "estimate, hillclimb (default) or exhaustive"},
    {"--budget", "TIME", "of each problem: 60s, 5m; default: no limit"},
    {"--records", "FILE", "journal that is read first and appended to"},
    {"--simulate", "JOURNAL", "replay the times of a journal; no GPU is needed"},
    KILN__REPORT_FLAG,
    {"--json", NULL, "one object a problem"},
    {0},
};

enum { TOKENS = 16384, HIDDEN = 2048 }; /* of the usual problems */

typedef struct session {
  const kiln__args *args;
  kiln_context *ctx;
  int device;
  kiln_tune_options options;
  kiln_attn_args shape;
  bool headed; /* the heading of the table is printed */
  kiln__report report;
  kiln__progress progress;
} session;

/* ---- options ---- */

static kiln_status read_budget(const char *text, double *seconds) {
  static const struct {
    const char *name;
    double seconds;
  } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}};
  char *end = NULL;
  if (!text) return KILN_OK;
  const double number = strtod(text, &end);
  for (size_t i = 0; end != text && i < sizeof units / sizeof units[0]; i++) {
    *seconds = number * units[i].seconds;
    if (strcmp(end, units[i].name) == 0 && *seconds > 0 && *seconds < 1e9) return KILN_OK;
  }
  return kiln__fail(KILN_INVALID_ARGUMENT,
                    "--budget '%s' is no time; give a number and s, m or h, such as 60s", text);
}

static kiln_status read_options(session *s) {
  s->options = (kiln_tune_options)KILN_TUNE_OPTIONS_INIT;
  s->options.strategy = kiln__args_get(s->args, "--strategy");
  s->options.records = kiln__args_get(s->args, "--records");
  s->options.simulate = kiln__args_get(s->args, "--simulate");
  for (int i = 0; i < s->args->schema->num_fields; i++) {
    const kiln__field *field = &s->args->schema->fields[i];
    if (field->is_tile && kiln__args_get(s->args, field->flag))
      return kiln__fail(KILN_INVALID_ARGUMENT, "tune chooses the tile; leave %s out", field->flag);
  }
  return read_budget(kiln__args_get(s->args, "--budget"), &s->options.budget_s);
}

/* A replay asks no device; anything else measures. */
static kiln_status open_device(session *s) {
  const bool replays = s->options.simulate != NULL;
  kiln_status status = kiln__device_open(
      s->args, replays ? KILN__DEVICE_TO_ASK : KILN__DEVICE_TO_RUN, &s->device, &s->ctx);
  if (status != KILN_OK || replays || s->device >= 0) return status;
  return kiln__fail(KILN_NO_DEVICE,
                    "tune measures on a GPU and there is none; give --simulate JOURNAL to replay "
                    "the times of another");
}

/* ---- facts ---- */

static json_t *tile_json(const kiln_tile *tile) {
  return json_pack("{s:i, s:i, s:i, s:i}", "block_m", (int)tile->block_m, "block_n",
                   (int)tile->block_n, "num_stages", (int)tile->num_stages, "num_warps",
                   (int)tile->num_warps);
}

static kiln_status print_json(const session *s, const kiln_attn_spec *spec,
                              const kiln_attn_args *shape, const kiln_tune_result *r) {
  json_t *object = json_object();
  kiln__variant_json(object, spec, &r->tile);
  json_object_set_new(object, "default_tile", tile_json(&r->default_tile));
  json_object_set_new(object, "shape", kiln__shape_json(shape));
  json_object_set_new(object, "strategy",
                      json_string(s->options.strategy ? s->options.strategy : "hillclimb"));
  json_object_set_new(object, "time_us", kiln__json_number(r->time_us));
  json_object_set_new(object, "default_us", kiln__json_number(r->default_us));
  json_object_set_new(object, "predicted_us", kiln__json_number(r->predicted_us));
  const struct {
    const char *name;
    int64_t value;
  } counts[] = {{"legal", r->legal},
                {"known", r->known},
                {"failed", r->failed},
                {"measured", r->measured},
                {"samples", r->samples}};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
    json_object_set_new(object, counts[i].name, json_integer(counts[i].value));
  json_object_set_new(object, "complete", json_boolean(r->complete));
  json_object_set_new(object, "from_records", json_boolean(r->from_records));
  json_object_set_new(object, "simulated", json_boolean(s->options.simulate != NULL));
  return kiln__print_json(object);
}

static void print_heading(session *s) {
  if (s->headed) return;
  s->headed = true;
  if (s->options.simulate) printf("times are those of %s, replayed\n", s->options.simulate);
  printf("%-28s %6s %8s %8s %5s %-15s %10s %10s %7s %s\n", "kernel", "batch", "seqlen_q",
         "seqlen_k", "heads", "tile", "us", "default us", "gain", "tiles known");
}

static void print_row(session *s, const kiln_attn_spec *spec, const kiln_attn_args *shape,
                      const kiln_tune_result *r) {
  char tile[64], gain[32] = "";
  print_heading(s);
  snprintf(tile, sizeof tile, "%dx%d s%d w%d", (int)r->tile.block_m, (int)r->tile.block_n,
           (int)r->tile.num_stages, (int)r->tile.num_warps);
  if (r->time_us > 0) snprintf(gain, sizeof gain, "%.3f", r->default_us / r->time_us);
  printf("%-28s %6d %8d %8d %5d %-15s %10.2f %10.2f %7s %4d of %-4d %s\n",
         kiln__variant_describe(spec).text, (int)shape->batch, (int)shape->seqlen_q,
         (int)shape->seqlen_k, (int)shape->num_heads, tile, r->time_us, r->default_us, gain,
         (int)r->known, (int)r->legal,
         !r->complete      ? "the budget ended it"
         : r->from_records ? "from the records"
                           : "");
}

static void draw_progress(void *user, int32_t known, int32_t most) {
  kiln__progress *progress = user;
  progress->total = most > known ? most : known;
  progress->done = known - 1;
  kiln__progress_step(progress);
}

static kiln_status tune(session *s, const kiln_attn_spec *spec, const kiln_attn_args *shape) {
  kiln_tune_result result = {.size = sizeof result};
  kiln__progress_start(&s->progress, "tuning: tile", 0);
  s->options.progress = draw_progress;
  s->options.progress_user = &s->progress;
  kiln_status status = kiln_tune(s->ctx, spec, shape, &s->options, &result);
  kiln__progress_clear(&s->progress);
  if (status != KILN_OK) return kiln__fail_context(s->ctx, status);
  status = kiln__report_add_tuned(&s->report, spec, shape, &result);
  if (status != KILN_OK) return status;
  if (kiln__args_has(s->args, "--json")) return print_json(s, spec, shape, &result);
  print_row(s, spec, shape, &result);
  return KILN_OK;
}

/* ---- problems ---- */

/* Buckets that lie two apart, so that every length from 128 to 32,768 is within one of them. */
static const int32_t usual_seqlens[] = {256, 1024, 4096, 16384};

static kiln_status tune_usual(session *s, const kiln_attn_spec *spec) {
  kiln_status status = KILN_OK;
  for (size_t i = 0; i < sizeof usual_seqlens / sizeof *usual_seqlens && status == KILN_OK; i++) {
    kiln_attn_args shape = KILN_ATTN_ARGS_INIT;
    shape.seqlen_q = shape.seqlen_k = usual_seqlens[i];
    shape.batch = TOKENS / usual_seqlens[i];
    shape.num_heads = shape.num_heads_k = spec->head_dim < HIDDEN ? HIDDEN / spec->head_dim : 1;
    status = tune(s, spec, &shape);
  }
  return status;
}

static bool has_sizes(const kiln__args *args) {
  static const char *const flags_of_size[] = {"--batch", "--seqlen-q", "--seqlen-k", "--num-heads",
                                              "--num-heads-k"};
  for (int i = 0; i < 5; i++)
    if (kiln__args_has(args, flags_of_size[i])) return true;
  return false;
}

static kiln_status tune_selection(session *s) {
  kiln__selection selection;
  const bool usual = !has_sizes(s->args) && !s->options.simulate;
  kiln_status status =
      kiln__selection_create(s->ctx, s->device, s->args, KILN__OPEN_IS_GRID, &selection);
  for (int64_t i = 0; status == KILN_OK && i < selection.count; i++) {
    const kiln_attn_spec *spec = &selection.variants[i].spec;
    status = usual ? tune_usual(s, spec) : tune(s, spec, &s->shape);
  }
  kiln__selection_destroy(&selection);
  return status;
}

static kiln_status tune_one(void *user, const kiln_attn_spec *spec, const kiln_attn_args *shape) {
  return tune(user, spec, shape);
}

static kiln_status tune_file(session *s, const char *path) {
  return kiln__problem_file_read(s->ctx, path, &s->shape, tune_one, s);
}

static kiln_status run(const kiln__args *args) {
  session s = {.args = args};
  const char *problems = kiln__args_get(args, "--problems");
  kiln_status status = read_options(&s);
  if (status == KILN_OK) status = kiln__shape_read(args, &s.shape);
  if (status == KILN_OK) status = kiln__report_create(args, &s.report);
  if (status == KILN_OK) status = open_device(&s);
  s.report.ctx = s.ctx;
  if (status == KILN_OK) status = problems ? tune_file(&s, problems) : tune_selection(&s);
  if (status == KILN_OK) status = kiln__report_finish(&s.report);
  kiln__report_destroy(&s.report);
  kiln_context_destroy(s.ctx);
  return status;
}

const kiln__verb kiln__verb_tune = {
    .name = "tune",
    .usage = "SELECTION|--problems FILE [--strategy NAME] [--budget 60s] [--records FILE] "
             "[--simulate JOURNAL] [--report FILE.html]",
    .sentence = "Chooses tiles by measuring, or by replaying what was measured; without sizes at "
                "four lengths: 256, 1024, 4096, 16384.",
    .flags = flags,
    .groups = KILN__TAKES_SELECTION | KILN__TAKES_SHAPE | KILN__TAKES_TARGET | KILN__OPEN_TO_GRID,
    .run = run,
};
