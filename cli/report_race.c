/* The parts of a report that show how tuning chose: gains, the race of each problem's candidates,
 * and what the cost model had said of them. */
#include "report.h"

#include "chart.h"
#include "html.h"
#include "selection.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_ROWS = 24, TITLE_SIZE = 512 };

const char kiln__race_style[] =
    ".race{min-width:900px}.race td{padding-top:1px;padding-bottom:1px}.race td.t{width:46%;"
    "padding-right:26px}.race th.t{padding-right:26px}.race "
    "svg{width:100%;min-width:240px;overflow:visible}\n"
    ".race .axis text{font-size:10px;text-anchor:middle}\n"
    ".race .tie{fill:var(--c2);opacity:.14}.race .q{fill:var(--c);opacity:.45}.race .d{"
    "fill:var(--c)}\n"
    ".race .chosen td{font-weight:650}\n"
    ".tag{font-size:10.5px;font-weight:650;border-radius:3px;padding:0 5px;margin-left:6px;"
    "color:var(--page)}.tag.c2{background:var(--c2)}.tag.c1{background:var(--c1)}\n"
    ".tied{color:var(--c2)}details{margin:4px 0}summary{cursor:pointer;color:var(--soft);"
    "font-size:12.5px}\n"
    ".model{display:grid;grid-template-columns:minmax(0,430px) minmax(0,1fr);gap:8px 30px;"
    "align-items:center;margin:14px 0}.model>div{max-width:470px}@media(max-width:760px){.model{"
    "grid-template-columns:1fr}}\n";

/* One tile of the space, out of the record. */
typedef struct candidate {
  const json_t *object;
  kiln_tile tile;
  const char *outcome;
  double median, mad, lower, upper; /* us */
  double predicted;                 /* us */
  int order;                        /* of the model: 1 is its best */
  bool is_timed, is_tied;
} candidate;

typedef struct race {
  const kiln__report *report;
  const kiln__tuned *tuned;
  candidate *all; /* those that were timed first, by time */
  int count, num_timed, num_failed;
  double limit;    /* us: who lies below has tied with the fastest */
  kiln__axis axis; /* us */
  FILE *to;
} race;

/* ---- reading ---- */

static int64_t whole(const json_t *object, const char *name) {
  return json_integer_value(json_object_get(object, name));
}

static kiln_tile read_tile(const json_t *object) {
  const json_t *t = json_object_get(object, "tile");
  kiln_tile tile = KILN_TILE_INIT;
  tile.block_m = (int32_t)whole(t, "block_m");
  tile.block_n = (int32_t)whole(t, "block_n");
  tile.num_stages = (int32_t)whole(t, "num_stages");
  tile.num_warps = (int32_t)whole(t, "num_warps");
  return tile;
}

static bool same_tile(const kiln_tile *a, const kiln_tile *b) {
  return a->block_m == b->block_m && a->block_n == b->block_n && a->num_stages == b->num_stages &&
         a->num_warps == b->num_warps;
}

static bool is_chosen(const race *r, const candidate *c) {
  return same_tile(&c->tile, &r->tuned->result.tile);
}

static bool is_default(const race *r, const candidate *c) {
  return same_tile(&c->tile, &r->tuned->result.default_tile);
}

static candidate read_candidate(const json_t *object) {
  const char *outcome = json_string_value(json_object_get(object, "outcome"));
  candidate c = {.object = object, .tile = read_tile(object), .outcome = outcome ? outcome : ""};
  c.is_timed = strcmp(c.outcome, "timed") == 0;
  c.median = (double)whole(object, "median_ns") / 1e3;
  c.mad = (double)whole(object, "mad_ns") / 1e3;
  c.lower = (double)whole(object, "lower_ns") / 1e3;
  c.upper = (double)whole(object, "upper_ns") / 1e3;
  c.predicted = json_number_value(json_object_get(object, "predicted_us"));
  return c;
}

/* By time; those without one behind, in the record's order. */
static int compare_times(const void *x, const void *y) {
  const candidate *a = x, *b = y;
  if (a->is_timed != b->is_timed) return a->is_timed ? -1 : 1;
  if (a->is_timed && a->median != b->median) return a->median < b->median ? -1 : 1;
  return a->order - b->order;
}

/* The tie rule of docs/tuning.md: who has fewer samples than the default dropped out before the
 * last race and leads nobody. */
static void find_ties(race *r) {
  int64_t samples = 0;
  const candidate *leader = NULL;
  for (int i = 0; i < r->num_timed; i++)
    if (is_default(r, &r->all[i])) samples = whole(r->all[i].object, "samples");
  for (int i = 0; i < r->num_timed && !leader; i++)
    if (whole(r->all[i].object, "samples") >= samples) leader = &r->all[i];
  if (!leader) return;
  r->limit = leader->median + fmax(0.01 * leader->median, 2 * leader->mad);
  for (int i = 0; i < r->num_timed; i++) r->all[i].is_tied = r->all[i].median <= r->limit;
}

/* Logarithmic where a few slow tiles would press the others into a corner. */
static kiln__axis axis_of_times(const char *name, double least, double most) {
  if (least > 0 && most > 2.5 * least) return kiln__axis_log(name, least / 1.05, most * 1.05);
  return kiln__axis_linear(name, least, most);
}

/* Of some rows, which are one table: the slow tiles do not press those of the fast together. */
static void find_axis(race *r, int from, int to) {
  double least = r->all[from].lower, most = from == 0 ? r->limit : 0;
  for (int i = from; i < to; i++) {
    least = fmin(least, r->all[i].lower);
    most = fmax(most, r->all[i].upper);
  }
  r->axis = axis_of_times("", least, most);
}

static bool read_race(const kiln__report *report, const kiln__tuned *tuned, race *r) {
  const json_t *list = json_object_get(tuned->record, "candidates"), *object;
  size_t i;
  *r = (race){.report = report, .tuned = tuned, .to = report->to};
  r->all = calloc(json_array_size(list) + 1, sizeof *r->all);
  if (!r->all) return false;
  json_array_foreach(list, i, object) r->all[r->count++] = read_candidate(object);
  for (int k = 0; k < r->count; k++) {
    r->all[k].order = 1;
    for (int o = 0; o < r->count; o++)
      r->all[k].order += r->all[o].predicted < r->all[k].predicted ||
                         (o < k && r->all[o].predicted == r->all[k].predicted);
    r->num_timed += r->all[k].is_timed;
    r->num_failed += !r->all[k].is_timed && strcmp(r->all[k].outcome, "unknown") != 0;
  }
  if (r->count) qsort(r->all, (size_t)r->count, sizeof *r->all, compare_times);
  find_ties(r);
  return true;
}

/* ---- gains ---- */

static void write_gain(const kiln__report *r, int index) {
  const kiln__tuned *t = &r->tuned[index];
  const kiln_tune_result *x = &t->result;
  char time[96] = "<td class=\"n\">&#8211;</td><td class=\"n\">&#8211;</td><td class=\"n\">"
                  "&#8211;</td>";
  if (x->time_us > 0)
    snprintf(time, sizeof time,
             "<td class=\"n\">%.2f</td><td class=\"n\">%.2f</td><td class=\"n\"><b>%.3f&#215;</b>"
             "</td>",
             x->default_us, x->time_us, x->default_us / x->time_us);
  fprintf(r->to,
          "<tr><td><a href=\"#p%d\">%s</a></td><td>%s</td><td>%s</td><td>%s</td>%s"
          "<td class=\"n\">%d of %d</td><td class=\"n\">%d</td><td>%s</td></tr>\n",
          index + 1, kiln__variant_describe(&t->spec).text, kiln__shape_describe(&t->shape).text,
          kiln__tile_describe(&x->default_tile).text, kiln__tile_describe(&x->tile).text, time,
          (int)x->known, (int)x->legal, (int)x->failed,
          !x->complete      ? "the budget ended it"
          : x->from_records ? "from the records"
                            : "");
}

void kiln__report_write_gains(const kiln__report *r) {
  if (r->num_tuned == 0) return;
  fputs("<h2>Problems</h2>\n<div class=\"wide\"><table><tr><th>kernel</th><th>shape</th>"
        "<th>default tile</th><th>chosen tile</th><th class=\"n\">default &#181;s</th>"
        "<th class=\"n\">chosen &#181;s</th><th class=\"n\">gain</th><th class=\"n\">tiles known"
        "</th><th class=\"n\">failed</th><th></th></tr>\n",
        r->to);
  for (int i = 0; i < r->num_tuned; i++) write_gain(r, i);
  fputs("</table></div>\n", r->to);
}

/* ---- the race ---- */

static double percent(const race *r, double us) { return 100 * kiln__axis_share(&r->axis, us); }

static void write_axis(const race *r) {
  char text[32];
  fputs("<svg class=\"axis\" height=\"14\">", r->to);
  for (int i = 0; i < r->axis.num_ticks; i++) {
    kiln__axis_label(&r->axis, r->axis.ticks[i], text, sizeof text);
    fprintf(r->to, "<text class=\"tick\" x=\"%.2f%%\" y=\"10\">%s</text>",
            percent(r, r->axis.ticks[i]), text);
  }
  fputs("</svg>", r->to);
}

static void begin_race(const race *r) {
  fputs("<div class=\"wide\"><table class=\"race\">\n<tr><th class=\"n\">#</th><th>tile</th>"
        "<th class=\"t\">",
        r->to);
  write_axis(r);
  fputs("</th><th class=\"n\">median &#181;s</th><th class=\"n\">MAD</th><th class=\"n\">"
        "to best</th><th class=\"n\">samples</th><th class=\"n\">registers</th><th class=\"n\">"
        "spills</th><th class=\"n\">shared KiB</th><th class=\"n\" title=\"place in the cost "
        "model's order\">model's #</th></tr>\n",
        r->to);
}

/* The tie's band, the quartiles, the median. */
static void write_track(const race *r, const candidate *c) {
  const double lower = percent(r, c->lower), upper = percent(r, c->upper);
  fprintf(r->to, "<svg height=\"18\"><title>%s: median %.2f us, quartiles %.2f and %.2f</title>",
          kiln__tile_describe(&c->tile).text, c->median, c->lower, c->upper);
  const double best = r->all[0].median;
  if (best >= r->axis.least)
    fprintf(r->to, "<rect class=\"tie\" x=\"%.2f%%\" width=\"%.2f%%\" height=\"18\"/>",
            percent(r, best), percent(r, r->limit) - percent(r, best));
  for (int i = 0; i < r->axis.num_ticks; i++)
    fprintf(r->to, "<line class=\"grid\" x1=\"%.2f%%\" x2=\"%.2f%%\" y2=\"18\"/>",
            percent(r, r->axis.ticks[i]), percent(r, r->axis.ticks[i]));
  const char *colour = is_chosen(r, c) ? "c2" : is_default(r, c) ? "c1" : "c0";
  fprintf(r->to,
          "<rect class=\"q %s\" x=\"%.2f%%\" width=\"%.2f%%\" y=\"5\" height=\"8\" rx=\"2\"/>"
          "<circle class=\"d %s\" cx=\"%.2f%%\" cy=\"9\" r=\"3.6\"/></svg>",
          colour, lower, fmax(upper - lower, 0.2), colour, percent(r, c->median));
}

static void write_tags(const race *r, const candidate *c) {
  if (is_chosen(r, c)) fputs("<span class=\"tag c2\">chosen</span>", r->to);
  if (is_default(r, c)) fputs("<span class=\"tag c1\">default</span>", r->to);
}

static void write_row(const race *r, int index) {
  const candidate *c = &r->all[index];
  fprintf(r->to, "<tr%s><td class=\"n\">%d</td><td>%s", is_chosen(r, c) ? " class=\"chosen\"" : "",
          index + 1, kiln__tile_describe(&c->tile).text);
  write_tags(r, c);
  fputs("</td><td class=\"t\">", r->to);
  write_track(r, c);
  fprintf(r->to, "</td><td class=\"n\">%.2f</td><td class=\"n\">%.1f %%</td>", c->median,
          100 * c->mad / fmax(c->median, 1e-9));
  if (index == 0)
    fputs("<td class=\"n tied\">best</td>", r->to);
  else
    fprintf(r->to, "<td class=\"n%s\">+%.1f %%%s</td>", c->is_tied ? " tied" : "",
            100 * (c->median / fmax(r->all[0].median, 1e-9) - 1), c->is_tied ? " tie" : "");
  fprintf(r->to,
          "<td class=\"n\">%lld</td><td class=\"n\">%lld</td><td class=\"n%s\">%lld</td>"
          "<td class=\"n\">%.1f</td><td class=\"n\">%d</td></tr>\n",
          (long long)whole(c->object, "samples"), (long long)whole(c->object, "registers"),
          whole(c->object, "spill_bytes") ? " worse" : "",
          (long long)whole(c->object, "spill_bytes"),
          (double)whole(c->object, "shared_bytes") / 1024, c->order);
}

static void write_rows(race *r, int from, int to) {
  find_axis(r, from, to);
  begin_race(r);
  for (int i = from; i < to; i++) write_row(r, i);
  fputs("</table></div>\n", r->to);
}

static void write_race(race *r) {
  if (r->num_timed == 0) {
    fputs("<p class=\"soft\">No tile was timed: the choice is the model's.</p>\n", r->to);
    return;
  }
  const int open = r->num_timed > OPEN_ROWS + 6 ? OPEN_ROWS : r->num_timed;
  write_rows(r, 0, open);
  if (open < r->num_timed) {
    fprintf(r->to, "<details><summary>%d slower ones</summary>\n", r->num_timed - open);
    write_rows(r, open, r->num_timed);
    fputs("</details>\n", r->to);
  }
  fprintf(r->to,
          "<p class=\"soft\">Bars are quartiles, dots medians, in &#181;s of a launch. Who lies in "
          "the green band, up to %.2f &#181;s, has tied with the best%s.</p>\n",
          r->limit,
          is_chosen(r, &r->all[0]) ? ""
                                   : "; of those the default stays, else fewer spills, less shared "
                                     "memory, the smaller tile decide");
}

static void write_failures(const race *r) {
  if (r->num_failed == 0) return;
  fprintf(r->to,
          "<h3>%d without a time</h3>\n<div class=\"wide\"><table class=\"failures\"><tr>"
          "<th>tile</th><th>outcome</th><th>why</th></tr>\n",
          r->num_failed);
  for (int i = r->num_timed; i < r->count; i++) {
    const candidate *c = &r->all[i];
    if (strcmp(c->outcome, "unknown") == 0) continue;
    fprintf(r->to, "<tr><td>%s", kiln__tile_describe(&c->tile).text);
    write_tags(r, c);
    fputs("</td><td>", r->to);
    kiln__html_text(r->to, c->outcome);
    fputs("</td><td>", r->to);
    kiln__html_text(r->to, json_string_value(json_object_get(c->object, "reason")));
    fputs("</td></tr>\n", r->to);
  }
  fputs("</table></div>\n", r->to);
}

/* ---- predicted against measured ---- */

/* Place among the timed ones, from 1; those that are equal share the mean of their places. */
static double place_of(const race *r, int index, bool predicted) {
  const double own = predicted ? r->all[index].predicted : r->all[index].median;
  double place = 0.5;
  for (int i = 0; i < r->num_timed; i++) {
    const double other = predicted ? r->all[i].predicted : r->all[i].median;
    place += other < own ? 1 : other == own ? 0.5 : 0;
  }
  return place;
}

/* Spearman's coefficient over the timed ones; NaN where one side is all equal. */
static double rank_correlation(const race *r) {
  const double mean = (r->num_timed + 1) / 2.0;
  double both = 0, predicted = 0, measured = 0;
  for (int i = 0; i < r->num_timed; i++) {
    const double p = place_of(r, i, true) - mean, m = place_of(r, i, false) - mean;
    both += p * m;
    predicted += p * p;
    measured += m * m;
  }
  return both / sqrt(predicted * measured);
}

static const char *ordinal_end(int number) {
  if (number % 100 >= 11 && number % 100 <= 13) return "th";
  return number % 10 == 1 ? "st" : number % 10 == 2 ? "nd" : number % 10 == 3 ? "rd" : "th";
}

static void write_verdict(const race *r) {
  const double correlation = rank_correlation(r);
  const candidate *best = &r->all[0];
  double worst = 1;
  for (int i = 0; i < r->num_timed; i++) {
    const double ratio = r->all[i].predicted / fmax(r->all[i].median, 1e-9);
    worst = fmax(worst, fmax(ratio, 1 / fmax(ratio, 1e-9)));
  }
  fprintf(r->to,
          "<div><p><b>The measured best is %d%s of %d in the model's order.</b></p>\n"
          "<p class=\"soft\">Predicted %.2f &#181;s, measured %.2f &#181;s. ",
          best->order, ordinal_end(best->order), r->count, best->predicted, best->median);
  if (isfinite(correlation)) fprintf(r->to, "Rank correlation %.2f over ", correlation);
  fprintf(r->to,
          "%d timed tile%s; the model is within %.2f&#215; of all. On the dashed line it is "
          "right.</p>\n",
          r->num_timed, r->num_timed == 1 ? "" : "s", worst);
  fputs("<div class=\"legend\">", r->to);
  fputs("<span><svg width=\"12\" height=\"12\"><path class=\"m c2\" d=\"M6 0l6 6l-6 6l-6-6z\"/>"
        "</svg>chosen</span><span><svg width=\"12\" height=\"12\"><path class=\"m c1\" "
        "d=\"M1.5 1.5h9v9h-9z\"/></svg>default</span><span><svg width=\"12\" height=\"12\">"
        "<circle class=\"m c0\" cx=\"6\" cy=\"6\" r=\"4\"/></svg>others</span></div></div>\n",
        r->to);
}

static void draw_points(const race *r, const kiln__chart *chart) {
  char title[TITLE_SIZE];
  for (int i = r->num_timed - 1; i >= 0; i--) {
    const candidate *c = &r->all[i];
    const bool chosen = is_chosen(r, c), fallback = is_default(r, c);
    snprintf(
        title, sizeof title, "%s%s%s\npredicted %.2f us (%d of %d)\nmeasured %.2f us (%d of %d)",
        kiln__tile_describe(&c->tile).text, chosen ? ", chosen" : "", fallback ? ", default" : "",
        c->predicted, c->order, r->count, c->median, i + 1, r->num_timed);
    kiln__chart_mark(chart,
                     chosen     ? "c2"
                     : fallback ? "c1"
                                : "c0",
                     chosen     ? KILN__MARK_DIAMOND
                     : fallback ? KILN__MARK_SQUARE
                                : KILN__MARK_DOT,
                     c->predicted, c->median, title);
  }
}

static void write_model(const race *r) {
  double least = INFINITY, most = 0;
  if (r->num_timed == 0) return;
  for (int i = 0; i < r->num_timed; i++) {
    least = fmin(least, fmin(r->all[i].predicted, r->all[i].median));
    most = fmax(most, fmax(r->all[i].predicted, r->all[i].median));
  }
  const kiln__chart chart = {.to = r->to,
                             .width = 430,
                             .height = 330,
                             .x = axis_of_times("predicted \xc2\xb5s", least, most),
                             .y = axis_of_times("measured \xc2\xb5s", least, most)};
  const double ends[] = {chart.x.least, chart.x.most};
  fputs("<div class=\"model\"><div>\n", r->to);
  kiln__chart_begin(&chart, "predicted against measured times");
  kiln__chart_line(&chart, "roof dash", ends, ends, 2);
  draw_points(r, &chart);
  kiln__chart_end(&chart);
  fputs("</div>\n", r->to);
  write_verdict(r);
  fputs("</div>\n", r->to);
}

/* ---- problems ---- */

static void write_problem(const race *r, int number) {
  const kiln__tuned *t = r->tuned;
  const kiln_tune_result *x = &t->result;
  const json_t *environment = json_object_get(t->record, "environment");
  const char *strategy = json_string_value(json_object_get(t->record, "strategy"));
  fprintf(r->to, "<h2 id=\"p%d\">%s</h2>\n<p class=\"soft\">%s", number,
          kiln__variant_describe(&t->spec).text, kiln__shape_describe(&t->shape).text);
  const char *words[] = {strategy, json_string_value(json_object_get(environment, "name"))};
  for (int i = 0; i < 2; i++) {
    if (!words[i] || !words[i][0]) continue;
    fputs(" &#183; ", r->to);
    kiln__html_text(r->to, words[i]);
  }
  fprintf(r->to, " &#183; %d of %d legal tiles have an outcome, %d measured now</p>\n",
          (int)x->known, (int)x->legal, (int)x->measured);
}

void kiln__report_write_races(const kiln__report *report) {
  for (int i = 0; i < report->num_tuned; i++) {
    race r;
    if (!read_race(report, &report->tuned[i], &r)) {
      fputs("<p class=\"note\">No memory was left for this problem.</p>\n", report->to);
      continue;
    }
    write_problem(&r, i + 1);
    write_race(&r);
    write_failures(&r);
    write_model(&r);
    free(r.all);
  }
}
