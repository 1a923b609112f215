/* The parts of a report that show how fast kernels are: charts by length, the table, rooflines. */
#include "report.h"

#include "chart.h"
#include "html.h"
#include "selection.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLOURS = 8, LENGTHS_MAX = 128, WIDTH = 400, HEIGHT = 250, TITLE_SIZE = 512 };

const char kiln__rates_style[] = ".charts .soft{font-size:12px}\n";

static const char *const colours[COLOURS] = {"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"};

/* ---- which timings belong together ---- */

static bool computes_same(const kiln_attn_spec *a, const kiln_attn_spec *b) {
  return a->pass == b->pass && a->dtype == b->dtype && a->head_dim == b->head_dim &&
         a->head_dim_v == b->head_dim_v && a->mask == b->mask;
}

static bool is_family(const kiln_attn_spec *a, const kiln_attn_spec *b) {
  return strcmp(a->arch, b->arch) == 0 && a->algorithm == b->algorithm &&
         a->deterministic == b->deterministic;
}

static bool same_roofline(const kiln__timing *a, const kiln__timing *b) {
  return is_family(&a->spec, &b->spec) && a->spec.dtype == b->spec.dtype;
}

static bool same_tile(const kiln_tile *a, const kiln_tile *b) {
  return a->block_m == b->block_m && a->block_n == b->block_n && a->num_stages == b->num_stages &&
         a->num_warps == b->num_warps;
}

static bool same_sizes(const kiln_attn_args *a, const kiln_attn_args *b) {
  return a->batch == b->batch && a->seqlen_q == b->seqlen_q && a->seqlen_k == b->seqlen_k &&
         a->num_heads == b->num_heads && a->num_heads_k == b->num_heads_k;
}

/* One line of a chart. Tuning gives each length a tile of its own: then tiles make no lines. */
static bool same_line(const kiln__report *r, const kiln__timing *a, const kiln__timing *b) {
  return computes_same(&a->spec, &b->spec) && is_family(&a->spec, &b->spec) &&
         (r->num_tuned > 0 || same_tile(&a->tile, &b->tile));
}

/* Whether a chart by length has more than one: of a tuning a single point tells nothing. */
static bool has_lengths(const kiln__report *r, int index) {
  const kiln__timing *t = &r->timings[index];
  for (int i = 0; i < r->num_timings; i++)
    if (computes_same(&r->timings[i].spec, &t->spec) &&
        r->timings[i].shape.seqlen_q != t->shape.seqlen_q)
      return true;
  return r->num_tuned == 0;
}

/* No timing before it computes the same. */
static bool leads_group(const kiln__report *r, int index) {
  for (int i = 0; i < index; i++)
    if (computes_same(&r->timings[i].spec, &r->timings[index].spec)) return false;
  return true;
}

static bool leads_line(const kiln__report *r, int index) {
  for (int i = 0; i < index; i++)
    if (same_line(r, &r->timings[i], &r->timings[index])) return false;
  return true;
}

static bool leads_roofline(const kiln__report *r, int index) {
  for (int i = 0; i < index; i++)
    if (same_roofline(&r->timings[i], &r->timings[index])) return false;
  return true;
}

/* ---- what a timing is called ---- */

/* "bf16, head_dim 192 (v 128), causal", and the pass where it is backward */
static void group_name(const kiln_attn_spec *spec, char *text, size_t size) {
  char columns[32] = "";
  if (spec->head_dim_v != spec->head_dim)
    snprintf(columns, sizeof columns, " (v %d)", (int)spec->head_dim_v);
  snprintf(text, size, "%s, head_dim %d%s, %s%s", kiln__dtype_name(spec->dtype),
           (int)spec->head_dim, columns,
           spec->mask == KILN_MASK_NONE ? "no mask" : kiln__mask_name(spec->mask),
           spec->pass == KILN_PASS_BACKWARD ? ", backward" : "");
}

static void family_name(const kiln_attn_spec *spec, char *text, size_t size) {
  const bool is_flash = spec->algorithm == KILN_ALGORITHM_FLASH;
  snprintf(text, size, "%s%s%s%s", spec->arch, is_flash ? "" : " ",
           is_flash ? "" : kiln__algorithm_name(spec->algorithm),
           spec->deterministic ? " deterministic" : "");
}

/* The family, with the tile where another line of the chart has the same one. */
static void line_name(const kiln__report *r, int index, char *text, size_t size) {
  const kiln__timing *t = &r->timings[index];
  bool is_alone = true;
  for (int i = 0; i < r->num_timings; i++)
    if (computes_same(&r->timings[i].spec, &t->spec) && is_family(&r->timings[i].spec, &t->spec) &&
        !same_line(r, &r->timings[i], t))
      is_alone = false;
  family_name(&t->spec, text, size);
  const size_t length = strlen(text);
  if (!is_alone) snprintf(text + length, size - length, " %s", kiln__tile_describe(&t->tile).text);
}

/* FLOP per byte of device memory. */
static double intensity_of(const kiln__timing *t) {
  return t->tflops * 1e6 * t->spread.median / t->model.memory_bytes;
}

/* TFLOP/s that no kernel of its intensity passes, by the nominal figures. */
static double roof_of(const kiln__timing *t) {
  return fmin(t->model.tensor_tflops, intensity_of(t) * t->model.memory_gbs * 1e-3);
}

static void timing_title(const kiln__timing *t, char *text, size_t size) {
  snprintf(text, size,
           "%s, %s\n%s\n%.1f TFLOP/s, %.0f %% of the nominal roof\n%.2f us, MAD %.1f %%",
           kiln__variant_describe(&t->spec).text, kiln__tile_describe(&t->tile).text,
           kiln__shape_describe(&t->shape).text, t->tflops, 100 * t->tflops / roof_of(t),
           t->spread.median, 100 * t->spread.mad / t->spread.median);
}

static void write_key(const kiln__report *r, const char *colour, bool is_dashed, const char *name) {
  fprintf(r->to,
          "<span><svg width=\"22\" height=\"10\"><line class=\"l %s%s\" x1=\"0\" x2=\"22\" "
          "y1=\"5\" y2=\"5\"/></svg>",
          colour, is_dashed ? " dash" : "");
  kiln__html_text(r->to, name);
  fputs("</span>\n", r->to);
}

/* ---- TFLOP/s by length ---- */

static int compare_numbers(const void *x, const void *y) {
  const double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

/* The lengths of all timings, sorted, each once: all charts have one axis. */
static int find_lengths(const kiln__report *r, double lengths[LENGTHS_MAX]) {
  int count = 0;
  for (int i = 0; i < r->num_timings && count < LENGTHS_MAX; i++) {
    int n = 0;
    while (n < count && lengths[n] != r->timings[i].shape.seqlen_q) n++;
    if (n == count) lengths[count++] = r->timings[i].shape.seqlen_q;
  }
  qsort(lengths, (size_t)count, sizeof *lengths, compare_numbers);
  return count;
}

static double find_most(const kiln__report *r) {
  double most = 0;
  for (int i = 0; i < r->num_timings; i++) {
    const kiln__timing *t = &r->timings[i];
    most = fmax(most, t->tflops);
    for (int e = 0; e < r->peers.num_engines; e++)
      most = fmax(most, kiln__peers_tflops(&r->peers, e, &t->spec, &t->shape));
  }
  return most;
}

/* Of one line: the points by length. ys: by timing, 0 = no point. */
static void draw_line(const kiln__chart *chart, const kiln__report *r, const char *class,
                      const double *ys, const double *lengths, int num_lengths) {
  double at_x[LENGTHS_MAX], at_y[LENGTHS_MAX];
  int count = 0;
  for (int l = 0; l < num_lengths; l++)
    for (int i = 0; i < r->num_timings && count < LENGTHS_MAX; i++) {
      if (!(ys[i] > 0) || r->timings[i].shape.seqlen_q != lengths[l]) continue;
      at_x[count] = lengths[l];
      at_y[count++] = ys[i];
    }
  if (count > 1) kiln__chart_line(chart, class, at_x, at_y, count);
}

static void draw_kernel(const kiln__chart *chart, const kiln__report *r, int first,
                        const char *colour, double *ys, const double *lengths, int num_lengths) {
  char title[TITLE_SIZE];
  for (int i = 0; i < r->num_timings; i++)
    ys[i] = same_line(r, &r->timings[i], &r->timings[first]) ? r->timings[i].tflops : 0;
  draw_line(chart, r, colour, ys, lengths, num_lengths);
  for (int i = 0; i < r->num_timings; i++) {
    if (!(ys[i] > 0)) continue;
    timing_title(&r->timings[i], title, sizeof title);
    kiln__chart_mark(chart, colour, KILN__MARK_DOT, r->timings[i].shape.seqlen_q, ys[i], title);
  }
}

/* The engine's points lie where a timing of the group has the same sizes, each once. */
static bool find_peer(const kiln__report *r, int first, int engine, double *ys) {
  bool found = false;
  for (int i = 0; i < r->num_timings; i++) {
    const kiln__timing *t = &r->timings[i];
    ys[i] = 0;
    if (!computes_same(&t->spec, &r->timings[first].spec)) continue;
    ys[i] = kiln__peers_tflops(&r->peers, engine, &t->spec, &t->shape);
    for (int k = 0; k < i; k++)
      if (ys[k] > 0 && same_sizes(&r->timings[k].shape, &t->shape)) ys[i] = 0;
    found = found || ys[i] > 0;
  }
  return found;
}

static void draw_peer(const kiln__chart *chart, const kiln__report *r, int engine,
                      const char *colour, const double *ys, const double *lengths,
                      int num_lengths) {
  char title[TITLE_SIZE], class[16];
  snprintf(class, sizeof class, "%s dash", colour);
  draw_line(chart, r, class, ys, lengths, num_lengths);
  for (int i = 0; i < r->num_timings; i++) {
    if (!(ys[i] > 0)) continue;
    snprintf(title, sizeof title, "%s\n%s\n%.1f TFLOP/s", r->peers.engines[engine],
             kiln__shape_describe(&r->timings[i].shape).text, ys[i]);
    kiln__chart_mark(chart, colour, KILN__MARK_RING, r->timings[i].shape.seqlen_q, ys[i], title);
  }
}

/* Engines take the colours from the last one back, so that each keeps its own in every chart. */
static const char *engine_colour(int engine) { return colours[COLOURS - 1 - engine]; }

static void write_keys(const kiln__report *r, int first, double *ys) {
  char name[160];
  int line = 0;
  fputs("<div class=\"legend\">", r->to);
  for (int i = 0; i < r->num_timings; i++) {
    if (!computes_same(&r->timings[i].spec, &r->timings[first].spec) || !leads_line(r, i)) continue;
    line_name(r, i, name, sizeof name);
    write_key(r, colours[line++ % COLOURS], false, name);
  }
  for (int e = 0; e < r->peers.num_engines; e++)
    if (find_peer(r, first, e, ys)) write_key(r, engine_colour(e), true, r->peers.engines[e]);
  fputs("</div>\n", r->to);
}

static void write_group(const kiln__report *r, int first, const kiln__axis *y, double *ys,
                        const double *lengths, int num_lengths) {
  const kiln__chart chart = {.to = r->to,
                             .width = WIDTH,
                             .height = HEIGHT,
                             .x = kiln__axis_sizes("seqlen_q", lengths, num_lengths),
                             .y = *y};
  char name[96];
  int line = 0;
  group_name(&r->timings[first].spec, name, sizeof name);
  fprintf(r->to, "<div><h3>%s</h3>\n", name);
  write_keys(r, first, ys);
  kiln__chart_begin(&chart, name);
  for (int e = 0; e < r->peers.num_engines; e++)
    if (find_peer(r, first, e, ys))
      draw_peer(&chart, r, e, engine_colour(e), ys, lengths, num_lengths);
  for (int i = 0; i < r->num_timings; i++)
    if (computes_same(&r->timings[i].spec, &r->timings[first].spec) && leads_line(r, i))
      draw_kernel(&chart, r, i, colours[line++ % COLOURS], ys, lengths, num_lengths);
  kiln__chart_end(&chart);
  fputs("</div>\n", r->to);
}

void kiln__report_write_lengths(const kiln__report *r) {
  double lengths[LENGTHS_MAX];
  const int num_lengths = find_lengths(r, lengths);
  const kiln__axis y = kiln__axis_linear("TFLOP/s", 0, find_most(r));
  double *ys = calloc((size_t)r->num_timings + 1, sizeof *ys);
  bool is_open = false;
  for (int i = 0; ys && i < r->num_timings; i++) {
    if (!leads_group(r, i) || !has_lengths(r, i)) continue;
    if (!is_open) fputs("<h2>TFLOP/s by length</h2>\n<div class=\"charts\">\n", r->to);
    is_open = true;
    write_group(r, i, &y, ys, lengths, num_lengths);
  }
  if (is_open) fputs("</div>\n", r->to);
  free(ys);
}

/* ---- the table ---- */

double kiln__report_ratio(const kiln__report *r, int engine, int *count) {
  double sum = 0;
  *count = 0;
  for (int i = 0; i < r->num_timings; i++) {
    const kiln__timing *t = &r->timings[i];
    const double peer = kiln__peers_tflops(&r->peers, engine, &t->spec, &t->shape);
    bool is_fastest = peer > 0;
    for (int k = 0; k < r->num_timings && is_fastest; k++) {
      const kiln__timing *other = &r->timings[k];
      if (k == i || !computes_same(&other->spec, &t->spec) || !same_sizes(&other->shape, &t->shape))
        continue;
      is_fastest = other->tflops < t->tflops || (other->tflops == t->tflops && i < k);
    }
    if (!is_fastest) continue;
    sum += log(t->tflops / peer);
    ++*count;
  }
  return *count ? exp(sum / *count) : 0;
}

static void write_columns(const kiln__report *r) {
  fprintf(r->to,
          "<tr><th>kernel</th><th>tile</th><th class=\"n\">batch</th><th class=\"n\">queries</th>"
          "<th class=\"n\">keys</th><th class=\"n\">heads</th><th class=\"n\">TFLOP/s</th>"
          "<th class=\"n\" title=\"of the nominal roof at its intensity\">of roof</th>"
          "<th class=\"n\">median &#181;s</th><th class=\"n\">MAD</th><th class=\"n\">%s</th>",
          r->num_tuned ? "quartiles" : "least&#8211;most");
  for (int e = 0; e < r->peers.num_engines; e++) {
    fputs("<th class=\"n\" title=\"TFLOP/s, and this kernel's ratio to it\">", r->to);
    kiln__html_text(r->to, r->peers.engines[e]);
    fputs("</th>", r->to);
  }
  fputs("</tr>\n", r->to);
}

static void write_ratio(const kiln__report *r, const kiln__timing *t, int engine) {
  const double peer = kiln__peers_tflops(&r->peers, engine, &t->spec, &t->shape);
  if (!(peer > 0)) {
    fputs("<td class=\"n soft\">&#8211;</td>", r->to);
    return;
  }
  const double ratio = t->tflops / peer;
  const char *class = ratio >= 1.005 ? "better" : ratio < 0.995 ? "worse" : "soft";
  fprintf(r->to, "<td class=\"n\">%.0f <b class=\"%s\">%.2f&#215;</b></td>", peer, class, ratio);
}

static void write_timing(const kiln__report *r, const kiln__timing *t) {
  char name[96], heads[64];
  family_name(&t->spec, name, sizeof name);
  snprintf(heads, sizeof heads, "%d", (int)t->shape.num_heads);
  if (t->shape.num_heads_k != t->shape.num_heads)
    snprintf(heads, sizeof heads, "%d on %d", (int)t->shape.num_heads, (int)t->shape.num_heads_k);
  fprintf(r->to,
          "<tr><td>%s</td><td>%s</td><td class=\"n\">%d</td><td class=\"n\">%d</td>"
          "<td class=\"n\">%d</td><td class=\"n\">%s</td><td class=\"n\"><b>%.1f</b></td>"
          "<td class=\"n\">%.0f %%</td><td class=\"n\">%.2f</td><td class=\"n\">%.1f %%</td>"
          "<td class=\"n\">%.2f&#8211;%.2f</td>",
          name, kiln__tile_describe(&t->tile).text, (int)t->shape.batch, (int)t->shape.seqlen_q,
          (int)t->shape.seqlen_k, heads, t->tflops, 100 * t->tflops / roof_of(t), t->spread.median,
          100 * t->spread.mad / t->spread.median, t->spread.least, t->spread.most);
  for (int e = 0; e < r->peers.num_engines; e++) write_ratio(r, t, e);
  fputs("</tr>\n", r->to);
}

void kiln__report_write_timings(const kiln__report *r) {
  char name[96];
  if (r->num_timings == 0) return;
  fprintf(r->to, "<h2>%s</h2>\n<div class=\"wide\"><table class=\"timings\">\n",
          r->num_tuned ? "The chosen tiles in figures" : "All figures");
  write_columns(r);
  for (int g = 0; g < r->num_timings; g++) {
    if (!leads_group(r, g)) continue;
    group_name(&r->timings[g].spec, name, sizeof name);
    fprintf(r->to, "<tr class=\"group\"><th colspan=\"%d\">%s</th></tr>\n",
            11 + r->peers.num_engines, name);
    for (int i = g; i < r->num_timings; i++)
      if (computes_same(&r->timings[i].spec, &r->timings[g].spec)) write_timing(r, &r->timings[i]);
  }
  fputs("</table></div>\n", r->to);
}

/* ---- rooflines ---- */

/* Colours by head_dim and head_dim_v, the same in every chart. */
static int head_dim_index(const kiln__report *r, const kiln_attn_spec *spec) {
  int index = 0;
  for (int i = 0; i < r->num_timings; i++) {
    const kiln_attn_spec *seen = &r->timings[i].spec;
    if (seen->head_dim == spec->head_dim && seen->head_dim_v == spec->head_dim_v) return index;
    bool is_first = true;
    for (int k = 0; k < i; k++)
      if (r->timings[k].spec.head_dim == seen->head_dim &&
          r->timings[k].spec.head_dim_v == seen->head_dim_v)
        is_first = false;
    index += is_first;
  }
  return index;
}

static void write_roof_keys(const kiln__report *r, int first) {
  int written = 0;
  fputs("<div class=\"legend\">", r->to);
  for (int i = first; i < r->num_timings; i++) {
    const kiln__timing *t = &r->timings[i];
    const int index = head_dim_index(r, &t->spec);
    if (!same_roofline(t, &r->timings[first]) || index >= 31 || written >> index & 1) continue;
    written |= 1 << index;
    char columns[32] = "";
    if (t->spec.head_dim_v != t->spec.head_dim)
      snprintf(columns, sizeof columns, " (v %d)", (int)t->spec.head_dim_v);
    fprintf(r->to,
            "<span><svg width=\"10\" height=\"10\"><circle class=\"m %s\" cx=\"5\" cy=\"5\" "
            "r=\"4\"/></svg>head_dim %d%s</span>\n",
            colours[index % COLOURS], (int)t->spec.head_dim, columns);
  }
  fputs("<span class=\"soft\">filled: no mask, ring: causal</span></div>\n", r->to);
}

static kiln__chart roof_chart(const kiln__report *r, int first) {
  const kiln__timing *t = &r->timings[first];
  const double ridge = t->model.tensor_tflops * 1e3 / t->model.memory_gbs;
  double least_x = ridge / 4, most_x = ridge * 4, least_y = t->model.tensor_tflops / 8;
  double most_y = t->model.tensor_tflops * 1.35;
  for (int i = first; i < r->num_timings; i++) {
    if (!same_roofline(&r->timings[i], t)) continue;
    least_x = fmin(least_x, intensity_of(&r->timings[i]) / 1.2);
    most_x = fmax(most_x, intensity_of(&r->timings[i]) * 1.2);
    least_y = fmin(least_y, r->timings[i].tflops / 1.2);
    most_y = fmax(most_y, r->timings[i].tflops * 1.2); /* the roof is nominal */
  }
  return (kiln__chart){.to = r->to,
                       .width = WIDTH,
                       .height = HEIGHT,
                       .x = kiln__axis_log("FLOP per byte of device memory", least_x, most_x),
                       .y = kiln__axis_log("TFLOP/s", least_y, most_y)};
}

/* The slope begins where it enters the chart: at its left or at its bottom. */
static void draw_roof(const kiln__chart *chart, const kiln_prediction *model) {
  char text[96];
  const double slope = model->memory_gbs * 1e-3, peak = model->tensor_tflops;
  const double begin = fmax(chart->x.least, chart->y.least / slope), ridge = peak / slope;
  const double xs[] = {begin, ridge, chart->x.most}, ys[] = {begin * slope, peak, peak};
  kiln__chart_line(chart, "roof", xs, ys, 3);
  snprintf(text, sizeof text, "%.0f GB/s", model->memory_gbs);
  kiln__chart_note(chart, begin, begin * slope, ridge, peak, text);
  snprintf(text, sizeof text, "%.0f TFLOP/s", peak);
  kiln__chart_note(chart, ridge, peak, chart->x.most, peak, text);
}

static void write_roofline(const kiln__report *r, int first) {
  const kiln__timing *t = &r->timings[first];
  const kiln__chart chart = roof_chart(r, first);
  char name[96], title[TITLE_SIZE];
  family_name(&t->spec, name, sizeof name);
  fprintf(r->to, "<div><h3>%s, %s</h3>\n", name, kiln__dtype_name(t->spec.dtype));
  write_roof_keys(r, first);
  kiln__chart_begin(&chart, name);
  draw_roof(&chart, &t->model);
  for (int i = first; i < r->num_timings; i++) {
    const kiln__timing *point = &r->timings[i];
    if (!same_roofline(point, t)) continue;
    timing_title(point, title, sizeof title);
    const size_t length = strlen(title);
    snprintf(title + length, sizeof title - length, "\n%.0f FLOP per byte", intensity_of(point));
    kiln__chart_mark(&chart, colours[head_dim_index(r, &point->spec) % COLOURS],
                     point->spec.mask == KILN_MASK_NONE ? KILN__MARK_DOT : KILN__MARK_RING,
                     intensity_of(point), point->tflops, title);
  }
  kiln__chart_end(&chart);
  fputs("</div>\n", r->to);
}

void kiln__report_write_rooflines(const kiln__report *r) {
  if (r->num_timings == 0) return;
  fputs("<h2>Rooflines</h2>\n<p class=\"soft\">Arithmetic that the mask leaves, per byte of device "
        "memory when every tensor moves once. Roofs are the cost model's nominal figures: the "
        "bandwidth of the memory, and the peak of the instruction that the family multiplies "
        "with.</p>\n<div class=\"charts\">\n",
        r->to);
  for (int i = 0; i < r->num_timings; i++)
    if (leads_roofline(r, i)) write_roofline(r, i);
  fputs("</div>\n", r->to);
}
