/* What the program prints: facts on stdout, refusals and progress on stderr.
 *
 * Invariant: stdout carries only what was asked for, so that a pipe never sees a notice; with
 * --json it carries one object a line. Nothing here writes a colour or an escape code, except that
 * progress redraws its own line, and only on a terminal. Text that came from outside is made
 * printable.
 *
 * Called by every verb. */
#ifndef KILN_CLI_OUT_H
#define KILN_CLI_OUT_H

#include <jansson.h>
#include <kiln/kiln.h>

#include <stdbool.h>
#include <stdint.h>

/* Prints "kiln: SENTENCE" on stderr and returns `status`, so that a refusal is one statement. */
__attribute__((format(printf, 2, 3))) kiln_status kiln__fail(kiln_status status, const char *format,
                                                             ...);

/* The same with the context's last error, or the status's own text where there is none. */
kiln_status kiln__fail_context(kiln_context *ctx, kiln_status status);

/* A notice that changes no result: "kiln: SENTENCE" on stderr. */
__attribute__((format(printf, 1, 2))) void kiln__note(const char *format, ...);

/* ---- facts ---- */

/* One object on a line of stdout; takes the reference, accepts NULL as "no memory". */
kiln_status kiln__print_json(json_t *object);

/* A JSON value for people: scalars as "name: value", lists of objects as tables, the rest
 * indented. */
void kiln__print_text(const json_t *value);

json_t *kiln__json_number(double value); /* null where JSON has no number for it */

/* The members of `text`, an object, or NULL after a refusal that names `what`. */
json_t *kiln__json_parse(const char *text, const char *what);

/* ---- progress ---- */

typedef struct kiln__progress {
  const char *what; /* "compiling" */
  int64_t done, total;
  double started, drawn; /* seconds */
  bool shown;            /* stderr is a terminal */
} kiln__progress;

void kiln__progress_start(kiln__progress *progress, const char *what, int64_t total);
void kiln__progress_step(
    kiln__progress *progress); /* one more is done: redraws at most 10 a second */
void kiln__progress_clear(const kiln__progress *progress); /* before something else is printed */

double kiln__seconds(void); /* of a clock that only runs forward */

#endif
