/* Collecting and writing a report; report.h states what holds of it. */
#include "report.h"

#include "chart.h"
#include "file.h"
#include "html.h"
#include "out.h"
#include "selection.h"

#include <stdlib.h>
#include <string.h>

static const char style[] =
    "body{max-width:1440px;margin:0 auto}h2{font-size:17px;margin:34px 0 4px}"
    "h3{font-size:14px;margin:0 0 2px;font-weight:650}\n"
    ".figures{flex-wrap:wrap;gap:14px 34px}.facts{display:flex;flex-wrap:wrap;gap:2px 26px;"
    "margin:6px 0}.facts b{font-weight:600}\n"
    "code{font:12.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
    ".command{display:block;background:var(--band);border:1px solid var(--line);border-radius:5px;"
    "padding:6px 10px;margin:10px 0;overflow-wrap:anywhere}\n"
    ".wide{overflow-x:auto}.wide table{width:100%}th{font-weight:600;color:var(--soft);"
    "vertical-align:bottom;white-space:nowrap}th,td{padding-right:13px}"
    "td{font-variant-numeric:tabular-nums;"
    "white-space:nowrap}\n"
    ".n{text-align:right}th:last-child,td:last-child{padding-right:4px}\n"
    ".group th{color:var(--ink);padding-top:12px;text-align:left}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(300px,100%),1fr));"
    "gap:22px 30px;margin:10px 0}.charts>div{break-inside:avoid;max-width:560px}\n"
    ".legend{gap:2px 16px;margin:2px 0 4px;font-size:12px}.legend svg{display:inline-block;"
    "vertical-align:-1px;margin-right:5px}\n"
    "a{color:var(--c0)}.better{color:var(--c2)}.worse{color:var(--c1)}\n"
    "@media(max-width:760px){body{padding:16px}}\n"
    "@media print{body{padding:0;font-size:12px}.wide{overflow:visible}.charts{"
    "grid-template-columns:1fr 1fr}table{font-size:9.5px}td,th{padding-right:9px}"
    "tr,.figures,.command{break-inside:avoid}h2,h3{break-after:avoid}}\n";

/* Paper shows what is folded on the screen. */
static const char script[] =
    "addEventListener('beforeprint',function(){document.querySelectorAll('details').forEach("
    "function(d){d.open=true})});\n";

/* ---- collecting ---- */

kiln_status kiln__report_create(const kiln__args *args, kiln__report *report) {
  *report = (kiln__report){.args = args, .path = kiln__args_get(args, "--report")};
  const char *peers = kiln__args_get(args, "--peers");
  if (peers && !report->path)
    return kiln__fail(KILN_INVALID_ARGUMENT,
                      "--peers is drawn on a page; give one by --report FILE.html");
  if (!report->path) return KILN_OK;
  report->is_replay = kiln__args_has(args, "--simulate");
  kiln_status status = kiln__file_check(report->path, "--report");
  return status == KILN_OK && peers ? kiln__peers_read(peers, &report->peers) : status;
}

void kiln__report_destroy(kiln__report *report) {
  for (int i = 0; i < report->num_tuned; i++) json_decref(report->tuned[i].record);
  free(report->tuned);
  free(report->timings);
  kiln__peers_destroy(&report->peers);
  *report = (kiln__report){0};
}

/* Room for one more in a list, which is returned; NULL leaves it as it was. */
static void *grow(void *list, int count, int *room, size_t size) {
  if (count < *room) return list;
  const int wanted = *room ? 2 * *room : 32;
  void *grown = realloc(list, (size_t)wanted * size);
  if (grown) *room = wanted;
  return grown;
}

static kiln_status refuse_memory(void) {
  return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for the report");
}

kiln_status kiln__report_add_timing(kiln__report *r, const kiln_attn_spec *spec,
                                    const kiln_tile *tile, const kiln_attn_args *shape,
                                    const kiln__spread *spread, int32_t num_sms) {
  const double flops = kiln__rate_flops(spec, shape);
  if (!r->path || !(flops > 0) || !(spread->median > 0)) return KILN_OK;
  kiln__timing *grown = grow(r->timings, r->num_timings, &r->room_timings, sizeof *grown);
  if (!grown) return refuse_memory();
  r->timings = grown;
  kiln__timing *t = &r->timings[r->num_timings];
  *t = (kiln__timing){.spec = *spec, .tile = *tile, .shape = *shape, .spread = *spread};
  t->model.size = sizeof t->model;
  t->tflops = flops / spread->median * 1e-6;
  kiln_status status = kiln_tile_predict(r->ctx, spec, tile, shape, num_sms, &t->model);
  if (status != KILN_OK) return kiln__fail_context(r->ctx, status);
  r->num_timings++;
  return KILN_OK;
}

static double microseconds(const json_t *candidate, const char *name) {
  return json_number_value(json_object_get(candidate, name)) / 1e3;
}

static bool is_tile(const json_t *candidate, const kiln_tile *tile) {
  const json_t *t = json_object_get(candidate, "tile");
  return json_integer_value(json_object_get(t, "block_m")) == tile->block_m &&
         json_integer_value(json_object_get(t, "block_n")) == tile->block_n &&
         json_integer_value(json_object_get(t, "num_stages")) == tile->num_stages &&
         json_integer_value(json_object_get(t, "num_warps")) == tile->num_warps;
}

/* Of tuned tiles the quartiles stand for the least and the most: no more is kept of them. */
static kiln_status add_chosen(kiln__report *r, const kiln__tuned *tuned) {
  const json_t *environment = json_object_get(tuned->record, "environment");
  const json_int_t num_sms = json_integer_value(json_object_get(environment, "num_sms"));
  size_t i;
  const json_t *c;
  json_array_foreach(json_object_get(tuned->record, "candidates"), i, c) {
    if (!is_tile(c, &tuned->result.tile) || !(tuned->result.time_us > 0)) continue;
    const kiln__spread spread = {microseconds(c, "median_ns"), microseconds(c, "lower_ns"),
                                 microseconds(c, "upper_ns"), microseconds(c, "mad_ns")};
    return kiln__report_add_timing(r, &tuned->spec, &tuned->result.tile, &tuned->shape, &spread,
                                   (int32_t)num_sms);
  }
  return KILN_OK;
}

kiln_status kiln__report_add_tuned(kiln__report *r, const kiln_attn_spec *spec,
                                   const kiln_attn_args *shape, const kiln_tune_result *result) {
  if (!r->path) return KILN_OK;
  kiln__tuned *grown = grow(r->tuned, r->num_tuned, &r->room_tuned, sizeof *grown);
  if (!grown) return refuse_memory();
  r->tuned = grown;
  kiln__tuned *tuned = &r->tuned[r->num_tuned];
  *tuned = (kiln__tuned){.spec = *spec, .shape = *shape, .result = *result};
  tuned->record = kiln__json_parse(result->record, "the record of a tuning");
  if (!tuned->record) return KILN_INTERNAL;
  tuned->result.record = NULL; /* it goes with the context's next call */
  r->num_tuned++;
  return add_chosen(r, tuned);
}

/* ---- names ---- */

kiln__tile_text kiln__tile_describe(const kiln_tile *tile) {
  kiln__tile_text t;
  snprintf(t.text, sizeof t.text, "%dx%d s%d w%d", (int)tile->block_m, (int)tile->block_n,
           (int)tile->num_stages, (int)tile->num_warps);
  return t;
}

kiln__shape_text kiln__shape_describe(const kiln_attn_args *s) {
  kiln__shape_text t;
  char heads_k[32] = "";
  if (s->num_heads_k != s->num_heads)
    snprintf(heads_k, sizeof heads_k, " on %d", (int)s->num_heads_k);
  snprintf(t.text, sizeof t.text, "batch %d, %d queries, %d keys, heads %d%s", (int)s->batch,
           (int)s->seqlen_q, (int)s->seqlen_k, (int)s->num_heads, heads_k);
  return t;
}

/* ---- the heading ---- */

static void write_fact(const kiln__report *r, const char *name, const char *text) {
  if (!text || !text[0]) return;
  fprintf(r->to, "<span><span class=\"soft\">%s</span> <b>", name);
  kiln__html_text(r->to, text);
  fputs("</b></span>\n", r->to);
}

static const char *word(const json_t *object, const char *name) {
  return json_string_value(json_object_get(object, name));
}

/* Of a replay: where the first problem's times were measured; else of this machine. */
static void write_facts(const kiln__report *r) {
  const char *json = NULL;
  json_t *here = kiln_context_report(r->ctx, &json) == KILN_OK ? json_loads(json, 0, NULL) : NULL;
  const json_t *there = NULL;
  if (r->is_replay && r->num_tuned > 0) there = json_object_get(r->tuned[0].record, "environment");
  fputs("<div class=\"facts\">", r->to);
  write_fact(r, "device", word(there ? there : json_object_get(here, "device"), "name"));
  write_fact(r, "driver",
             there ? word(there, "driver") : word(json_object_get(here, "driver"), "version"));
  write_fact(r, "NVRTC",
             there ? word(there, "nvrtc") : word(json_object_get(here, "nvrtc"), "version"));
  write_fact(r, "Kiln", kiln_version());
  if (there) write_fact(r, "measured by Kiln", word(there, "kiln"));
  fputs("</div>\n", r->to);
  json_decref(here);
}

static bool is_plain(const char *text) {
  return text[0] && !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_./:,=+-")];
}

/* What was asked for; where the page lies is no part of it. */
static void write_command(const kiln__report *r) {
  fprintf(r->to, "<code class=\"command\">kiln %s", r->args->verb->name);
  for (int i = 0; i < r->args->num_options; i++) {
    const kiln__option *option = &r->args->options[i];
    if (strcmp(option->name, "--report") == 0) continue;
    fprintf(r->to, " %s", option->name);
    if (!option->value) continue;
    const char *quote = is_plain(option->value) ? "" : "'";
    fprintf(r->to, " %s", quote);
    kiln__html_text(r->to, option->value);
    fputs(quote, r->to);
  }
  fputs("</code>\n", r->to);
}

static void write_peers(const kiln__report *r) {
  const char *gpu = kiln__peers_environment(&r->peers, "gpu");
  if (!r->peers.root) return;
  fputs("<p class=\"note\">Peers were measured in another run", r->to);
  if (gpu[0]) {
    fputs(", on ", r->to);
    kiln__html_text(r->to, gpu);
  }
  fputs(". Power and clocks move figures of different runs by several per cent; compare small "
        "differences within one run of <code>bench/peers.py</code> alone.</p>\n",
        r->to);
}

static void write_ratios(const kiln__report *r) {
  for (int e = 0; e < r->peers.num_engines; e++) {
    int count = 0;
    const double ratio = kiln__report_ratio(r, e, &count);
    if (count == 0) continue;
    fprintf(r->to, "<div><b>%.2f &#215;</b><span>against ", ratio);
    kiln__html_text(r->to, r->peers.engines[e]);
    fprintf(r->to, ", mean of %d shape%s</span></div>", count, count == 1 ? "" : "s");
  }
}

static void write_best(const kiln__report *r) {
  const kiln__timing *best = NULL;
  for (int i = 0; i < r->num_timings; i++)
    if (!best || r->timings[i].tflops > best->tflops) best = &r->timings[i];
  if (!best) return;
  fprintf(r->to,
          "<div><b>%.0f TFLOP/s</b><span>the most: %s, %d queries, %.0f %% of the nominal "
          "peak</span></div>",
          best->tflops, kiln__variant_describe(&best->spec).text, (int)best->shape.seqlen_q,
          100 * best->tflops / best->model.tensor_tflops);
}

static void write_heading(const kiln__report *r) {
  fprintf(r->to, "<h1>%s</h1>\n", r->num_tuned ? "How the tiles were chosen" : "What kernels do");
  write_facts(r);
  write_command(r);
  if (r->is_replay)
    fputs("<p class=\"note\"><b>A replay.</b> Times are those of a journal, with their spread; "
          "nothing was measured on this machine.</p>\n",
          r->to);
  write_peers(r);
  fputs("<div class=\"figures\">", r->to);
  write_best(r);
  write_ratios(r);
  fputs("</div>\n", r->to);
}

/* ---- the page ---- */

static void write_page(kiln__report *r) {
  const char *rules[] = {style, kiln__chart_style, kiln__rates_style, kiln__race_style};
  char title[64];
  snprintf(title, sizeof title, "kiln %s", r->args->verb->name);
  kiln__html_begin(r->to, title);
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) fputs(rules[i], r->to);
  kiln__html_body(r->to);
  write_heading(r);
  kiln__report_write_gains(r);
  kiln__report_write_lengths(r);
  kiln__report_write_races(r);
  kiln__report_write_timings(r);
  kiln__report_write_rooflines(r);
  kiln__html_end(r->to, script);
}

kiln_status kiln__report_finish(kiln__report *r) {
  char *text = NULL;
  size_t length = 0;
  if (!r->path) return KILN_OK;
  r->to = open_memstream(&text, &length);
  if (!r->to) return refuse_memory();
  write_page(r);
  bool failed = ferror(r->to) != 0;
  failed = fclose(r->to) != 0 || failed;
  r->to = NULL;
  kiln_status status =
      failed ? refuse_memory() : kiln__file_write_named(r->path, "--report", text, length);
  free(text);
  return status;
}
