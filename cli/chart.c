/* Drawing charts; chart.h states what holds of them. */
#include "chart.h"

#include "html.h"

#include <math.h>

enum { LEFT = 56, RIGHT = 14, TOP = 12, BOTTOM = 40 };

const char kiln__chart_style[] =
    ".chart{width:100%;height:auto;overflow:visible}.chart .frame{fill:none;stroke:var(--line)}\n"
    ".chart .x{text-anchor:middle}.chart .y{text-anchor:end}.chart .name{fill:var(--soft)}\n"
    ".l{fill:none;stroke-width:1.8;stroke-linejoin:round}.dash{stroke-width:1.4;"
    "stroke-dasharray:5 3}.chart .roof{stroke:var(--soft)}\n"
    ".chart .note{fill:var(--soft);text-anchor:middle}\n"
    ".m{stroke:var(--page);stroke-width:1;cursor:default}.m:hover{stroke:var(--ink);"
    "stroke-width:2}\n"
    ".c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}"
    ".c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}\n"
    ".l{stroke:var(--c)}.m{fill:var(--c)}.ring{fill:var(--page);stroke:var(--c);"
    "stroke-width:1.8}\n";

/* ---- axes ---- */

/* 1, 2 or 5 times a power of ten, not below `wanted`. */
static double round_up(double wanted) {
  const double power = pow(10, floor(log10(wanted)));
  for (int i = 0; i < 3; i++) {
    const double step = power * (i == 0 ? 1 : i == 1 ? 2 : 5);
    if (step >= wanted * (1 - 1e-9)) return step;
  }
  return power * 10;
}

kiln__axis kiln__axis_linear(const char *name, double least, double most) {
  kiln__axis axis = {.name = name};
  if (!(most > least)) most = least + (least > 0 ? least * 0.1 : 1);
  const double step = round_up((most - least) / 6);
  const double first = floor(least / step + 1e-9), last = ceil(most / step - 1e-9);
  axis.least = first * step;
  axis.most = last * step;
  for (int i = 0; first + i <= last && axis.num_ticks < KILN__TICKS_MAX; i++)
    axis.ticks[axis.num_ticks++] = (first + i) * step;
  return axis;
}

/* Ticks at every 1, 2 and 5 within; from three decades on at every 1 alone. */
kiln__axis kiln__axis_log(const char *name, double least, double most) {
  static const double steps[] = {1, 2, 5};
  kiln__axis axis = {.name = name, .least = least, .most = most, .is_log = true};
  const int count = most / least >= 1000 ? 1 : 3;
  for (int i = (int)floor(log10(least)); pow(10, i) <= most; i++)
    for (int k = 0; k < count && axis.num_ticks < KILN__TICKS_MAX; k++) {
      const double tick = steps[k] * pow(10, i);
      if (tick >= least && tick <= most) axis.ticks[axis.num_ticks++] = tick;
    }
  return axis;
}

kiln__axis kiln__axis_sizes(const char *name, const double *values, int count) {
  kiln__axis axis = {.name = name, .is_log = true, .is_size = true};
  for (int i = 0; i < count && axis.num_ticks < KILN__TICKS_MAX; i++)
    axis.ticks[axis.num_ticks++] = values[i];
  axis.least = values[0] / 1.15;
  axis.most = values[count - 1] * 1.15;
  return axis;
}

double kiln__axis_share(const kiln__axis *axis, double value) {
  if (!axis->is_log) return (value - axis->least) / (axis->most - axis->least);
  return log(value / axis->least) / log(axis->most / axis->least);
}

void kiln__axis_label(const kiln__axis *axis, double tick, char *text, size_t size) {
  const bool is_round = axis->is_size && tick >= 1024 && fmod(tick, 1024) == 0;
  snprintf(text, size, is_round ? "%gk" : "%.10g", is_round ? tick / 1024 : tick);
}

/* ---- the drawing ---- */

static double place_x(const kiln__chart *c, double x) {
  return LEFT + kiln__axis_share(&c->x, x) * (c->width - LEFT - RIGHT);
}

static double place_y(const kiln__chart *c, double y) {
  return c->height - BOTTOM - kiln__axis_share(&c->y, y) * (c->height - TOP - BOTTOM);
}

static void write_ticks(const kiln__chart *c) {
  char text[32];
  for (int i = 0; i < c->x.num_ticks; i++) {
    const double x = place_x(c, c->x.ticks[i]);
    kiln__axis_label(&c->x, c->x.ticks[i], text, sizeof text);
    fprintf(c->to,
            "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
            "<text class=\"tick x\" x=\"%.1f\" y=\"%d\">%s</text>\n",
            x, x, TOP, c->height - BOTTOM, x, c->height - BOTTOM + 15, text);
  }
  for (int i = 0; i < c->y.num_ticks; i++) {
    const double y = place_y(c, c->y.ticks[i]);
    kiln__axis_label(&c->y, c->y.ticks[i], text, sizeof text);
    fprintf(c->to,
            "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
            "<text class=\"tick y\" x=\"%d\" y=\"%.1f\">%s</text>\n",
            LEFT, c->width - RIGHT, y, y, LEFT - 6, y + 4, text);
  }
}

void kiln__chart_begin(const kiln__chart *c, const char *label) {
  fprintf(c->to, "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", c->width,
          c->height);
  kiln__html_text(c->to, label);
  fputs("\">\n", c->to);
  write_ticks(c);
  fprintf(c->to, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT,
          TOP, c->width - LEFT - RIGHT, c->height - TOP - BOTTOM);
  fprintf(c->to, "<text class=\"name x\" x=\"%d\" y=\"%d\">", (LEFT + c->width - RIGHT) / 2,
          c->height - 6);
  kiln__html_text(c->to, c->x.name);
  const int middle = (TOP + c->height - BOTTOM) / 2;
  fprintf(c->to, "</text><text class=\"name x\" transform=\"translate(11 %d) rotate(-90)\">",
          middle);
  kiln__html_text(c->to, c->y.name);
  fputs("</text>\n", c->to);
}

void kiln__chart_line(const kiln__chart *c, const char *class, const double *xs, const double *ys,
                      int count) {
  fprintf(c->to, "<polyline class=\"l %s\" points=\"", class);
  for (int i = 0; i < count; i++)
    fprintf(c->to, "%s%.1f,%.1f", i ? " " : "", place_x(c, xs[i]), place_y(c, ys[i]));
  fputs("\"/>\n", c->to);
}

void kiln__chart_mark(const kiln__chart *c, const char *class, kiln__mark mark, double x, double y,
                      const char *title) {
  const double at_x = place_x(c, x), at_y = place_y(c, y);
  switch (mark) {
  case KILN__MARK_DOT:
  case KILN__MARK_RING:
    fprintf(c->to, "<circle class=\"m %s%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.8\">", class,
            mark == KILN__MARK_RING ? " ring" : "", at_x, at_y);
    break;
  case KILN__MARK_SQUARE:
  case KILN__MARK_DIAMOND:
    fprintf(c->to, "<path class=\"m %s\" d=\"M%.1f %.1f%s\">", class, at_x, at_y,
            mark == KILN__MARK_SQUARE ? "m-4.5-4.5h9v9h-9z" : "m0-6.5l6.5 6.5l-6.5 6.5l-6.5-6.5z");
    break;
  }
  fputs("<title>", c->to);
  kiln__html_text(c->to, title);
  fprintf(c->to, "</title></%s>\n",
          mark == KILN__MARK_DOT || mark == KILN__MARK_RING ? "circle" : "path");
}

void kiln__chart_note(const kiln__chart *c, double x0, double y0, double x1, double y1,
                      const char *text) {
  const double from_x = place_x(c, x0), from_y = place_y(c, y0);
  const double dx = place_x(c, x1) - from_x, dy = place_y(c, y1) - from_y;
  fprintf(c->to, "<text class=\"note\" transform=\"translate(%.1f %.1f) rotate(%.1f)\" dy=\"-5\">",
          from_x + dx / 2, from_y + dy / 2, atan2(dy, dx) * 180 / 3.14159265358979);
  kiln__html_text(c->to, text);
  fputs("</text>\n", c->to);
}

void kiln__chart_end(const kiln__chart *c) { fputs("</svg>\n", c->to); }
