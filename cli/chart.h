/* Charts as inline SVG: axes with round ticks, lines, marks with hover titles.
 *
 * Invariant: the same numbers give the same bytes; a chart scales to the width it is given; every
 * text in it is escaped here. Classes are names of the style sheet and come from the program.
 *
 * Called by the report's files. */
#ifndef KILN_CLI_CHART_H
#define KILN_CLI_CHART_H

#include <stdbool.h>
#include <stdio.h>

enum { KILN__TICKS_MAX = 32 };

typedef struct kiln__axis {
  const char *name;
  double least, most; /* on a logarithmic axis > 0 */
  bool is_log;
  bool is_size; /* ticks are written as 512, 1k, 2k */
  double ticks[KILN__TICKS_MAX];
  int num_ticks;
} kiln__axis;

/* Both ends are ticks. */
kiln__axis kiln__axis_linear(const char *name, double least, double most);
/* 0 < least < most. */
kiln__axis kiln__axis_log(const char *name, double least, double most);
/* Logarithmic, with ticks at these values alone, of which there is one at least; sorted. */
kiln__axis kiln__axis_sizes(const char *name, const double *values, int count);

typedef struct kiln__chart {
  FILE *to;
  int width, height; /* of the drawing, letters 11 high */
  kiln__axis x, y;
} kiln__chart;

typedef enum kiln__mark {
  KILN__MARK_DOT,
  KILN__MARK_RING,
  KILN__MARK_SQUARE,
  KILN__MARK_DIAMOND
} kiln__mark;

extern const char kiln__chart_style[];

/* label: what the chart shows, for who does not see it. */
void kiln__chart_begin(const kiln__chart *chart, const char *label);
void kiln__chart_line(const kiln__chart *chart, const char *class, const double *xs,
                      const double *ys, int count);
void kiln__chart_mark(const kiln__chart *chart, const char *class, kiln__mark mark, double x,
                      double y, const char *title);
/* Along the line from (x0, y0) to (x1, y1), above it, near its middle. */
void kiln__chart_note(const kiln__chart *chart, double x0, double y0, double x1, double y1,
                      const char *text);
void kiln__chart_end(const kiln__chart *chart);

/* 0 at the axis' least, 1 at its most. */
double kiln__axis_share(const kiln__axis *axis, double value);
void kiln__axis_label(const kiln__axis *axis, double tick, char *text, size_t size);

#endif
