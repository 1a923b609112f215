/* kiln bench: times every kernel of a selection on a grid of shapes.
 *
 * Invariant: a figure is of a GPU, by the rules of race.h and stage.h; kernels that compute the
 * same (they differ in arch, algorithm or tile) are timed side by side. All are compiled before the
 * first is timed, so that compiling disturbs no figure. */
#include "device.h"
#include "out.h"
#include "pool.h"
#include "prepared.h"
#include "race.h"
#include "report.h"
#include "selection.h"
#include "verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const kiln__flag flags[] = {
    {"--seqlen-q", "LIST", "queries of each sequence; default 512,1024,2048,4096,8192,16384"},
    {"--seqlen-k", "N", "keys of each; default: as many as queries"},
    {"--batch", "N", "sequences; default: 16384 / seqlen_q"},
    {"--num-heads", "N", "query heads; default: 2048 / head_dim"},
    {"--num-heads-k", "N", "key heads; default: as many as query heads"},
    {"--samples", "N", "of each row; default 25"},
    {"--device", "DEVICE", "cuda:N; default: the first GPU"},
    KILN__REPORT_FLAG,
    {"--peers", "FILE", "on the page: what others took, a file that bench/peers.py wrote"},
    {"--json", NULL, "one object a row"},
    {0},
};

enum { TOKENS = 16384, HIDDEN = 2048, SEQLENS_MAX = 64, SAMPLES = 25, SAMPLES_MAX = 100000 };

typedef struct session {
  const kiln__args *args;
  kiln_context *ctx;
  int device;
  kiln_device_info info;
  int64_t seqlens[SEQLENS_MAX];
  int num_seqlens;
  int64_t samples;
  int64_t seqlen_k, batch, num_heads, num_heads_k; /* 0 = of the grid */
  kiln__selection selection;
  kiln__prepared *plans;
  kiln__entrant *entrants; /* room for all variants */
  int64_t *members;        /* the entrants' variants */
  kiln__progress progress;
  kiln__report report;
} session;

/* ---- shapes ---- */

static kiln_status read_seqlens(session *s) {
  const char *text = kiln__args_get(s->args, "--seqlen-q");
  const char *at = text ? text : "512,1024,2048,4096,8192,16384";
  for (;;) {
    char *end = NULL;
    errno = 0;
    long long number = strtoll(at, &end, 0);
    if (end == at || (*end && *end != ',') || errno || number < 1 || number > INT32_MAX)
      return kiln__fail(KILN_INVALID_ARGUMENT,
                        "--seqlen-q '%s' is not a list of whole numbers from 1 to %d", text,
                        INT32_MAX);
    if (s->num_seqlens == SEQLENS_MAX)
      return kiln__fail(KILN_INVALID_ARGUMENT, "--seqlen-q lists more than %d values", SEQLENS_MAX);
    s->seqlens[s->num_seqlens++] = number;
    if (!*end) return KILN_OK;
    at = end + 1;
  }
}

static kiln_status read_sizes(session *s) {
  const struct {
    const char *flag;
    int64_t *value;
  } sizes[] = {{"--seqlen-k", &s->seqlen_k},
               {"--batch", &s->batch},
               {"--num-heads", &s->num_heads},
               {"--num-heads-k", &s->num_heads_k}};
  kiln_status status = read_seqlens(s);
  for (int i = 0; i < 4 && status == KILN_OK; i++)
    status = kiln__args_integer(s->args, sizes[i].flag, 1, INT32_MAX, sizes[i].value);
  s->samples = SAMPLES;
  if (status != KILN_OK) return status;
  return kiln__args_integer(s->args, "--samples", 1, SAMPLES_MAX, &s->samples);
}

static int32_t at_least_1(int64_t value) { return value < 1 ? 1 : (int32_t)value; }

static kiln_status make_shape(const session *s, const kiln_attn_spec *spec, int64_t seqlen,
                              kiln_attn_args *shape) {
  *shape = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  shape->batch = at_least_1(s->batch ? s->batch : TOKENS / seqlen);
  shape->seqlen_q = (int32_t)seqlen;
  shape->seqlen_k = (int32_t)(s->seqlen_k ? s->seqlen_k : seqlen);
  shape->num_heads = at_least_1(s->num_heads ? s->num_heads : HIDDEN / spec->head_dim);
  shape->num_heads_k = s->num_heads_k ? (int32_t)s->num_heads_k : shape->num_heads;
  if (shape->num_heads % shape->num_heads_k == 0) return KILN_OK;
  return kiln__fail(KILN_INVALID_ARGUMENT,
                    "num_heads %d is not a whole multiple of --num-heads-k %d; give --num-heads",
                    (int)shape->num_heads, (int)shape->num_heads_k);
}

static kiln_status check_shapes(const session *s) {
  kiln_status status = KILN_OK;
  kiln_attn_args shape;
  for (int64_t i = 0; i < s->selection.count && status == KILN_OK; i++)
    status = make_shape(s, &s->selection.variants[i].spec, s->seqlens[0], &shape);
  return status;
}

/* ---- facts ---- */

static double tflops(const kiln__race *race, double time_us) {
  return kiln__rate_flops(race->spec, &race->shape) / time_us * 1e-6;
}

static kiln_status print_json(const session *s, const kiln__race *race, int index) {
  const kiln__entrant *e = &race->entrants[index];
  const kiln__spread *spread = &e->spread;
  const kiln_attn_args *shape = &race->shape;
  kiln_plan_info info = {.size = sizeof info};
  json_t *object = json_object();
  kiln_plan_get_info(e->plan, &info);
  json_object_set_new(object, "device", json_string(s->info.name));
  json_object_set_new(object, "kernel_id", json_string(info.kernel_id));
  kiln__variant_json(object, &info.spec, &info.tile);
  json_object_set_new(object, "batch", json_integer(shape->batch));
  json_object_set_new(object, "seqlen_q", json_integer(shape->seqlen_q));
  json_object_set_new(object, "seqlen_k", json_integer(shape->seqlen_k));
  json_object_set_new(object, "num_heads", json_integer(shape->num_heads));
  json_object_set_new(object, "num_heads_k", json_integer(shape->num_heads_k));
  json_object_set_new(object, "samples", json_integer(race->num_samples));
  json_object_set_new(object, "launches", json_integer((json_int_t)e->turns * race->num_sets));
  json_object_set_new(object, "time_us", kiln__json_number(spread->median));
  json_object_set_new(object, "time_us_min", kiln__json_number(spread->least));
  json_object_set_new(object, "time_us_max", kiln__json_number(spread->most));
  json_object_set_new(object, "time_us_mad", kiln__json_number(spread->mad));
  json_object_set_new(object, "tflops", kiln__json_number(tflops(race, spread->median)));
  return kiln__print_json(object);
}

static void print_heading(const session *s) {
  printf("%s; times of a launch, the median of %lld samples between the least and the most\n",
         s->info.name, (long long)s->samples);
  printf("%-30s %-14s %6s %8s %8s %5s %5s %8s %10s %10s %10s\n", "kernel", "tile", "batch",
         "seqlen_q", "seqlen_k", "heads", "of k", "TFLOP/s", "min ms", "median ms", "max ms");
}

static void print_row(const kiln__race *race, int index) {
  const kiln__spread *spread = &race->entrants[index].spread;
  const kiln_attn_args *shape = &race->shape;
  char tile[64];
  kiln_plan_info info = {.size = sizeof info};
  kiln_plan_get_info(race->entrants[index].plan, &info);
  snprintf(tile, sizeof tile, "%dx%d s%d w%d", (int)info.tile.block_m, (int)info.tile.block_n,
           (int)info.tile.num_stages, (int)info.tile.num_warps);
  printf("%-30s %-14s %6d %8d %8d %5d %5d %8.1f %10.4f %10.4f %10.4f\n",
         kiln__variant_describe(&info.spec).text, tile, (int)shape->batch, (int)shape->seqlen_q,
         (int)shape->seqlen_k, (int)shape->num_heads, (int)shape->num_heads_k,
         tflops(race, spread->median), spread->least * 1e-3, spread->median * 1e-3,
         spread->most * 1e-3);
}

static kiln_status add_to_report(session *s, const kiln__race *race, int index) {
  kiln_plan_info info = {.size = sizeof info};
  kiln_plan_get_info(race->entrants[index].plan, &info);
  return kiln__report_add_timing(&s->report, &info.spec, &info.tile, &race->shape,
                                 &race->entrants[index].spread, 0);
}

static kiln_status print_race(session *s, const kiln__race *race) {
  kiln_status status = KILN_OK;
  kiln__progress_clear(&s->progress);
  for (int i = 0; i < race->num_entrants && status == KILN_OK; i++) {
    status = add_to_report(s, race, i);
    if (status != KILN_OK) break;
    if (kiln__args_has(s->args, "--json"))
      status = print_json(s, race, i);
    else
      print_row(race, i);
    kiln__progress_step(&s->progress);
  }
  fflush(stdout);
  return status;
}

/* ---- races ---- */

/* What stays when arch, algorithm and tile change: the answer, but for rounding. */
static bool computes_same(const kiln_attn_spec *a, const kiln_attn_spec *b) {
  return a->pass == b->pass && a->dtype == b->dtype && a->head_dim == b->head_dim &&
         a->head_dim_v == b->head_dim_v && a->mask == b->mask;
}

/* The variants that compute what variant `first` does; 0 where an earlier one led them already. */
static int gather(session *s, int64_t first) {
  const kiln__variant *variants = s->selection.variants;
  int count = 0;
  for (int64_t i = 0; i < s->selection.count; i++) {
    if (!computes_same(&variants[i].spec, &variants[first].spec)) continue;
    if (i < first) return 0;
    s->members[count++] = i;
  }
  return count;
}

static kiln_status run_race(session *s, int count, int64_t seqlen) {
  kiln__race race = {.ctx = s->ctx,
                     .spec = &s->selection.variants[s->members[0]].spec,
                     .num_samples = (int)s->samples,
                     .entrants = s->entrants,
                     .num_entrants = count};
  for (int i = 0; i < count; i++)
    s->entrants[i] = (kiln__entrant){.plan = s->plans[s->members[i]].plan};
  kiln_status status = make_shape(s, race.spec, seqlen, &race.shape);
  if (status == KILN_OK) status = kiln__race_run(&race);
  return status == KILN_OK ? print_race(s, &race) : status;
}

static kiln_status run_races(session *s) {
  kiln_status status = KILN_OK;
  if (!kiln__args_has(s->args, "--json")) print_heading(s);
  kiln__progress_start(&s->progress, "timing", s->selection.count * s->num_seqlens);
  for (int64_t i = 0; i < s->selection.count && status == KILN_OK; i++) {
    int count = gather(s, i);
    for (int l = 0; count > 0 && l < s->num_seqlens && status == KILN_OK; l++)
      status = run_race(s, count, s->seqlens[l]);
  }
  kiln__progress_clear(&s->progress);
  return status;
}

/* ---- kernels ---- */

static void prepare(void *user, int64_t index) {
  session *s = user;
  kiln__prepare(s->ctx, &s->selection.variants[index], &s->plans[index]);
}

static kiln_status judge(const session *s, int64_t index) {
  const kiln__prepared *p = &s->plans[index];
  if (p->status == KILN_OK) return KILN_OK;
  return kiln__fail(p->status, "%s: %s",
                    kiln__variant_describe(&s->selection.variants[index].spec).text,
                    p->error && p->error[0] ? p->error : kiln_status_text(p->status));
}

static kiln_status compile_all(session *s) {
  kiln_status status = KILN_OK;
  kiln__pool *pool = kiln__pool_create(s->selection.count, prepare, s);
  if (!pool) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left to compile");
  kiln__progress_start(&s->progress, "compiling", s->selection.count);
  for (int64_t i = 0; i < s->selection.count && status == KILN_OK; i++) {
    kiln__pool_wait(pool, i);
    kiln__progress_step(&s->progress);
    if (s->plans[i].status != KILN_OK) kiln__progress_clear(&s->progress);
    status = judge(s, i);
  }
  kiln__progress_clear(&s->progress);
  kiln__pool_destroy(pool, NULL);
  return status;
}

static kiln_status time_selection(session *s) {
  size_t count = (size_t)s->selection.count;
  s->plans = calloc(count, sizeof *s->plans);
  s->entrants = calloc(count, sizeof *s->entrants);
  s->members = calloc(count, sizeof *s->members);
  kiln_status status = KILN_OK;
  if (!s->plans || !s->entrants || !s->members)
    status = kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for %zu kernels", count);
  if (status == KILN_OK) status = compile_all(s);
  if (status == KILN_OK) status = run_races(s);
  for (size_t i = 0; s->plans && i < count; i++) kiln__prepared_destroy(&s->plans[i]);
  free(s->plans);
  free(s->entrants);
  free(s->members);
  return status;
}

/* ---- the whole ---- */

static kiln_status check_device(session *s) {
  if (s->device == KILN_DEVICE_NONE)
    return kiln__fail(KILN_NO_DEVICE, "bench times kernels on a GPU; give --device cuda:N");
  if (s->device == KILN_DEVICE_EMU)
    return kiln__fail(KILN_UNSUPPORTED,
                      "the emulator has no time to measure; bench needs a GPU: --device cuda:N");
  s->info.size = sizeof s->info;
  kiln_status status = kiln_context_device(s->ctx, &s->info);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(s->ctx, status);
}

static kiln_status run(const kiln__args *args) {
  session s = {.args = args};
  kiln_status status = read_sizes(&s);
  if (status == KILN_OK) status = kiln__report_create(args, &s.report);
  if (status == KILN_OK) status = kiln__device_open(args, KILN__DEVICE_TO_RUN, &s.device, &s.ctx);
  s.report.ctx = s.ctx;
  if (status == KILN_OK) status = check_device(&s);
  if (status == KILN_OK)
    status = kiln__selection_create(s.ctx, s.device, args, KILN__OPEN_IS_GRID, &s.selection);
  if (status == KILN_OK && s.selection.left_out > 0)
    kiln__note("combinations left out: %lld, the first because %s", (long long)s.selection.left_out,
               s.selection.reason);
  if (status == KILN_OK) status = check_shapes(&s);
  if (status == KILN_OK) status = time_selection(&s);
  if (status == KILN_OK) status = kiln__report_finish(&s.report);
  kiln__report_destroy(&s.report);
  kiln__selection_destroy(&s.selection);
  kiln_context_destroy(s.ctx);
  return status;
}

const kiln__verb kiln__verb_bench = {
    .name = "bench",
    .usage = "SELECTION [--seqlen-q LIST] [--seqlen-k N] [--batch N] [--num-heads N] "
             "[--report FILE.html]",
    .sentence = "Times kernels on a GPU, by default a grid of head dims, masks and lengths.",
    .flags = flags,
    .groups = KILN__TAKES_SELECTION | KILN__OPEN_TO_GRID,
    .run = run,
};
