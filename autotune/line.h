/* Lines of tuning records as structs and as JSON: where something was measured (environment), what
 * (problem), and what came of it. docs/tuning.md describes the format.
 *
 * Invariant: a record is data. Whatever stands in a line, parsing it either fills every field
 * within its range or refuses with a sentence; the bytes that a struct gives are always the same.
 * Used by journal.c, records.c and tune.c. */
#ifndef KILN_AUTOTUNE_LINE_H
#define KILN_AUTOTUNE_LINE_H

#include <jansson.h>
#include <kiln/kiln.h>

#include "autotune/measure.h"

#define KILN__LINE_LIMIT (1 << 20)                           /* bytes of a line */
#define KILN__TIMING     "median of 200 us samples, L2 cold" /* the timing policy's name */

typedef struct kiln__environment {
  char compute_capability[16]; /* "9.0" */
  int32_t num_sms;
  int64_t shared_bytes_block, l2_bytes;
  char source_id[72]; /* of the kernel that the spec's default tile gives */
  char kiln[32];      /* version */
  char timing[64];
  char name[128]; /* of the GPU: a hint */
  char driver[32], nvrtc[32];
  int32_t power_limit_w; /* 0 = not known */
} kiln__environment;

/* Buckets are round(log2 x), 0 for x <= 1. */
typedef struct kiln__problem {
  kiln_attn_spec spec; /* resolved */
  int32_t seqlen_q_log2, seqlen_k_log2, heads_log2;
  int32_t gqa; /* query heads of a key head */
} kiln__problem;

typedef enum kiln__line_kind {
  KILN__LINE_CANDIDATE, /* one tile, written as soon as it is known: what resuming reads */
  KILN__LINE_CHOICE     /* a finished tuning with all its candidates */
} kiln__line_kind;

typedef struct kiln__line {
  kiln__line_kind kind;
  kiln__environment environment;
  kiln__problem problem;
  kiln_attn_args shape; /* that was measured: its sizes */
  kiln__candidate *candidates;
  int num_candidates;       /* 1 of a candidate line */
  kiln_tile tile, standard; /* of a choice: the chosen one, the default */
  char strategy[32];        /* of a choice */
} kiln__line;

kiln__problem kiln__problem_of(const kiln_attn_spec *spec, const kiln_attn_args *shape);
int kiln__problem_same(const kiln__problem *a, const kiln__problem *b);
int kiln__spec_same(const kiln_attn_spec *a, const kiln_attn_spec *b);

/* Compares what was measured there with here. Appends the names of the fields that differ to the
 * two lists (terminated, cut where they are too long). A hard one makes times meaningless here; a
 * soft one makes them doubtful. "" and 0 here mean not known, and differ from nothing. */
void kiln__environment_compare(const kiln__environment *there, const kiln__environment *here,
                               char *hard, char *soft, size_t size);

/* One line, without its newline. 0, or -1 and a sentence that names the member. */
int kiln__line_parse(const char *bytes, size_t length, kiln__line *line, char *why,
                     size_t why_size);
void kiln__line_free(kiln__line *line);

/* malloc'd, canonical, without a newline; NULL without memory. */
char *kiln__line_text(const kiln__line *line);

/* The same for what a record is about: its kind, environment and problem, and the tile of a
 * candidate. Of records with one key the last holds. */
char *kiln__line_key(const kiln__line *line);

const char *kiln__outcome_name(kiln__outcome outcome);

/* Objects by the names that a line has for them. */
json_t *kiln__line_spec(const kiln_attn_spec *spec);
json_t *kiln__line_shape(const kiln_attn_args *shape);
json_t *kiln__line_tile(const kiln_tile *tile);
/* Words by which lines name what a resolved spec has. */
const char *kiln__line_dtype(kiln_dtype dtype);
const char *kiln__line_mask(kiln_mask mask);

#endif
