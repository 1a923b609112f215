/* Printing; out.h states what goes where. */
#include "out.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SENTENCE_SIZE = 8192, COLUMNS_MAX = 24, CELL_SIZE = 160 };

/* ---- refusals ---- */

/* File names and arguments may hold escape codes; a compiler's message keeps its lines and tabs. */
static void print_sentence(const char *text) {
  size_t length = strlen(text);
  while (length > 0 && text[length - 1] == '\n') length--;
  fputs("kiln: ", stderr);
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    bool printable = (c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t';
    fputc(printable ? c : '?', stderr);
  }
  fputc('\n', stderr);
}

kiln_status kiln__fail(kiln_status status, const char *format, ...) {
  char text[SENTENCE_SIZE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  print_sentence(text);
  return status;
}

kiln_status kiln__fail_context(kiln_context *ctx, kiln_status status) {
  const char *text = kiln_last_error(ctx);
  print_sentence(text && text[0] ? text : kiln_status_text(status));
  return status;
}

void kiln__note(const char *format, ...) {
  char text[SENTENCE_SIZE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  print_sentence(text);
}

/* ---- JSON ---- */

kiln_status kiln__print_json(json_t *object) {
  char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
  json_decref(object);
  if (!text) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left to print a result");
  puts(text);
  free(text);
  return KILN_OK;
}

json_t *kiln__json_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

json_t *kiln__json_parse(const char *text, const char *what) {
  json_error_t error;
  json_t *value = json_loads(text, 0, &error);
  if (!value || !json_is_object(value)) {
    json_decref(value);
    kiln__fail(KILN_INTERNAL, "%s is not a JSON object (%s)", what, error.text);
    return NULL;
  }
  return value;
}

/* ---- JSON for people ---- */

/* The text of a scalar; an object inside a table's cell stays compact JSON. */
static void scalar_text(const json_t *value, char *cell) {
  char *dump = NULL;
  cell[0] = '\0';
  if (!value || json_is_null(value)) return;
  if (json_is_string(value)) {
    snprintf(cell, CELL_SIZE, "%s", json_string_value(value));
  } else if (json_is_boolean(value)) {
    snprintf(cell, CELL_SIZE, "%s", json_is_true(value) ? "yes" : "no");
  } else {
    dump = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    snprintf(cell, CELL_SIZE, "%s", dump ? dump : "");
    free(dump);
  }
}

typedef struct table {
  const char *names[COLUMNS_MAX];
  int widths[COLUMNS_MAX];
  int count;
} table;

static int find_column(const table *t, const char *name) {
  int c = 0;
  while (c < t->count && strcmp(t->names[c], name) != 0) c++;
  return c;
}

/* What other rows lack stands behind what it follows in its own. Lists have no column: --json shows
 * them. */
static void add_columns(json_t *row, table *t) {
  const char *key;
  json_t *value;
  int next = 0;
  json_object_foreach(row, key, value) {
    const int found = find_column(t, key);
    if (found == t->count) {
      if (t->count == COLUMNS_MAX || json_is_array(value)) continue;
      memmove(&t->names[next + 1], &t->names[next], (size_t)(t->count++ - next) * sizeof *t->names);
      t->names[next++] = key;
    } else {
      next = found + 1;
    }
  }
}

static void measure_table(const json_t *rows, table *t) {
  char cell[CELL_SIZE];
  for (size_t r = 0; r < json_array_size(rows); r++) add_columns(json_array_get(rows, r), t);
  for (int c = 0; c < t->count; c++) {
    t->widths[c] = (int)strlen(t->names[c]);
    for (size_t r = 0; r < json_array_size(rows); r++) {
      scalar_text(json_object_get(json_array_get(rows, r), t->names[c]), cell);
      int width = (int)strlen(cell);
      if (width > t->widths[c]) t->widths[c] = width;
    }
  }
}

static void print_cell(const table *t, int column, const char *text) {
  bool last = column + 1 == t->count;
  printf("%-*s%s", last ? 0 : t->widths[column], text, last ? "\n" : "  ");
}

static void print_table(const json_t *rows, int indent) {
  table t = {.count = 0};
  char cell[CELL_SIZE];
  measure_table(rows, &t);
  printf("%*s", indent, "");
  for (int c = 0; c < t.count; c++) print_cell(&t, c, t.names[c]);
  for (size_t r = 0; r < json_array_size(rows); r++) {
    printf("%*s", indent, "");
    for (int c = 0; c < t.count; c++) {
      scalar_text(json_object_get(json_array_get(rows, r), t.names[c]), cell);
      print_cell(&t, c, cell);
    }
  }
}

static bool is_table(const json_t *value) {
  return json_array_size(value) > 0 && json_is_object(json_array_get(value, 0));
}

static void print_member(const char *name, const json_t *value, int indent);

static void print_members(const json_t *object, int indent) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) print_member(key, value, indent);
}

static void print_member(const char *name, const json_t *value, int indent) {
  char cell[CELL_SIZE];
  if (json_is_object(value) || is_table(value)) {
    printf("%*s%s:\n", indent, "", name);
    if (json_is_object(value))
      print_members(value, indent + 2);
    else
      print_table(value, indent + 2);
    return;
  }
  if (json_is_string(value)) { /* whole: a sentence may be longer than a cell */
    printf("%*s%s: %s\n", indent, "", name, json_string_value(value));
    return;
  }
  if (json_array_size(value) > 0) {
    printf("%*s%s:\n", indent, "", name);
    for (size_t i = 0; i < json_array_size(value); i++) {
      scalar_text(json_array_get(value, i), cell);
      printf("%*s%s\n", indent + 2, "", cell);
    }
    return;
  }
  scalar_text(value, cell);
  printf("%*s%s: %s\n", indent, "", name, json_is_array(value) ? "none" : cell);
}

void kiln__print_text(const json_t *value) { print_members(value, 0); }

/* ---- progress ---- */

double kiln__seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void kiln__progress_start(kiln__progress *progress, const char *what, int64_t total) {
  double now = kiln__seconds();
  *progress = (kiln__progress){
      .what = what, .total = total, .started = now, .drawn = now, .shown = isatty(STDERR_FILENO)};
}

void kiln__progress_step(kiln__progress *progress) {
  double now = kiln__seconds();
  progress->done++;
  if (!progress->shown || now - progress->drawn < 0.1) return;
  progress->drawn = now;
  double left = (now - progress->started) / (double)progress->done *
                (double)(progress->total - progress->done);
  fprintf(stderr, "\r%s %lld of %lld, about %.0f s left    ", progress->what,
          (long long)progress->done, (long long)progress->total, left);
  fflush(stderr);
}

void kiln__progress_clear(const kiln__progress *progress) {
  if (!progress->shown || progress->drawn <= progress->started) return;
  fprintf(stderr, "\r%60s\r", "");
  fflush(stderr);
}
