/* See line.h. Every struct is a table of rows, from which writing, reading and comparing follow.
 */
#include "autotune/line.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, MOST_CANDIDATES = 4096, DEEPEST = 8 };

/* ---- rows ---- */

typedef enum row_kind { ROW_TEXT, ROW_INT32, ROW_INT64, ROW_ENUM } row_kind;

typedef struct row {
  const char *name;
  size_t offset, size;
  row_kind kind;
  int is_soft;              /* of environments */
  int64_t least, most;      /* of numbers */
  const char *const *names; /* of enums, ended by NULL */
  int is_late;              /* 0 where a line has no such member, and not written then */
} row;

#define FIELD(type, member) offsetof(type, member), sizeof(((type *)0)->member)
#define ENV(member, kind, soft) \
  { #member, FIELD(kiln__environment, member), kind, soft, 0, INT64_MAX, NULL, 0 }

static const row environment_rows[] = {
    ENV(compute_capability, ROW_TEXT, 0),
    ENV(num_sms, ROW_INT32, 0),
    ENV(shared_bytes_block, ROW_INT64, 0),
    ENV(l2_bytes, ROW_INT64, 0),
    ENV(source_id, ROW_TEXT, 0),
    ENV(timing, ROW_TEXT, 0),
    ENV(kiln, ROW_TEXT, 1),
    ENV(name, ROW_TEXT, 1),
    ENV(driver, ROW_TEXT, 1),
    ENV(nvrtc, ROW_TEXT, 1),
    ENV(power_limit_w, ROW_INT32, 1),
    {0},
};

static const char *const pass_names[] = {"forward", "backward", NULL};
static const char *const algorithm_names[] = {"flash", "standard", NULL};
static const char *const dtype_names[] = {"fp16", "bf16", "e4m3", NULL};
static const char *const mask_names[] = {"none", "causal", NULL};

#define SPEC(member, kind, names) \
  { #member, FIELD(kiln_attn_spec, member), kind, 0, 1, 65536, names, 0 }
static const row spec_rows[] = {
    SPEC(arch, ROW_TEXT, NULL),
    SPEC(pass, ROW_ENUM, pass_names),
    SPEC(algorithm, ROW_ENUM, algorithm_names),
    SPEC(dtype, ROW_ENUM, dtype_names),
    SPEC(head_dim, ROW_INT32, NULL),
    SPEC(head_dim_v, ROW_INT32, NULL),
    SPEC(mask, ROW_ENUM, mask_names),
    {"deterministic", FIELD(kiln_attn_spec, deterministic), ROW_INT32, 0, 0, 1, NULL, 1},
    {0},
};

#define NUMBER(type, member, least, most) \
  { #member, FIELD(type, member), ROW_INT32, 0, least, most, NULL, 0 }
static const row problem_rows[] = {
    NUMBER(kiln__problem, seqlen_q_log2, 0, 63),
    NUMBER(kiln__problem, seqlen_k_log2, 0, 63),
    NUMBER(kiln__problem, heads_log2, 0, 63),
    NUMBER(kiln__problem, gqa, 1, INT32_MAX),
    {0},
};
static const row shape_rows[] = {
    NUMBER(kiln_attn_args, batch, 0, INT32_MAX),
    NUMBER(kiln_attn_args, seqlen_q, 0, INT32_MAX),
    NUMBER(kiln_attn_args, seqlen_k, 0, INT32_MAX),
    NUMBER(kiln_attn_args, num_heads, 1, INT32_MAX),
    NUMBER(kiln_attn_args, num_heads_k, 1, INT32_MAX),
    {0},
};
static const row tile_rows[] = {
    NUMBER(kiln_tile, block_m, 1, 65536),
    NUMBER(kiln_tile, block_n, 1, 65536),
    NUMBER(kiln_tile, num_stages, 1, 65536),
    NUMBER(kiln_tile, num_warps, 1, 65536),
    {0},
};

static const char *const outcome_names[] = {
    "unknown", "timed", "compile_failed", "wrong_result", "hang", "noisy", NULL};
_Static_assert(sizeof outcome_names / sizeof *outcome_names == KILN__OUTCOME_COUNT + 1,
               "every outcome has a name");

#define MEASURED(member, kind) \
  { #member, FIELD(kiln__candidate, member), kind, 0, 0, INT64_MAX / 1000, NULL, 0 }
static const row candidate_rows[] = {
    {"outcome", FIELD(kiln__candidate, outcome), ROW_ENUM, 0, 0, 0, outcome_names, 0},
    MEASURED(median_ns, ROW_INT64),
    MEASURED(mad_ns, ROW_INT64),
    MEASURED(lower_ns, ROW_INT64),
    MEASURED(upper_ns, ROW_INT64),
    MEASURED(samples, ROW_INT32),
    MEASURED(registers, ROW_INT32),
    MEASURED(spill_bytes, ROW_INT32),
    MEASURED(shared_bytes, ROW_INT64),
    MEASURED(reason, ROW_TEXT),
    {0},
};

const char *kiln__outcome_name(kiln__outcome outcome) { return outcome_names[outcome]; }

static int64_t number_at(const row *r, const void *members) {
  const char *at = (const char *)members + r->offset;
  int64_t wide = 0;
  int32_t narrow = 0;
  if (r->kind == ROW_INT64) {
    memcpy(&wide, at, sizeof wide);
    return wide;
  }
  memcpy(&narrow, at, sizeof narrow);
  return narrow;
}

static void store_number(const row *r, void *members, int64_t value) {
  char *at = (char *)members + r->offset;
  const int32_t narrow = (int32_t)value;
  if (r->kind == ROW_INT64)
    memcpy(at, &value, sizeof value);
  else
    memcpy(at, &narrow, sizeof narrow);
}

/* ---- writing ---- */

static json_t *write_rows(const row *rows, const void *members) {
  json_t *object = json_object();
  for (const row *r = rows; r->name; r++) {
    json_t *value = NULL;
    if (r->is_late && number_at(r, members) == 0) continue;
    if (r->kind == ROW_TEXT)
      value = json_string((const char *)members + r->offset);
    else if (r->kind == ROW_ENUM)
      value = json_string(r->names[number_at(r, members)]);
    else
      value = json_integer(number_at(r, members));
    json_object_set_new(object, r->name, value);
  }
  return object;
}

json_t *kiln__line_spec(const kiln_attn_spec *spec) { return write_rows(spec_rows, spec); }
json_t *kiln__line_shape(const kiln_attn_args *shape) { return write_rows(shape_rows, shape); }
const char *kiln__line_dtype(kiln_dtype dtype) { return dtype_names[dtype]; }
const char *kiln__line_mask(kiln_mask mask) { return mask_names[mask]; }
json_t *kiln__line_tile(const kiln_tile *tile) { return write_rows(tile_rows, tile); }

static json_t *write_candidate(const kiln__candidate *c) {
  json_t *object = write_rows(candidate_rows, c);
  json_object_set_new(object, "tile", write_rows(tile_rows, &c->tile));
  return object;
}

static json_t *write_problem(const kiln__problem *problem) {
  json_t *object = write_rows(problem_rows, problem), *spec = write_rows(spec_rows, &problem->spec);
  json_object_update(object, spec);
  json_decref(spec);
  return object;
}

static json_t *write_key(const kiln__line *line) {
  json_t *root = json_object();
  const char *kind = line->kind == KILN__LINE_CHOICE ? "choice" : "candidate";
  json_object_set_new(root, "format", json_integer(FORMAT));
  json_object_set_new(root, "kind", json_string(kind));
  json_object_set_new(root, "environment", write_rows(environment_rows, &line->environment));
  json_object_set_new(root, "problem", write_problem(&line->problem));
  return root;
}

/* Canonical: one value always gives the same bytes. */
static char *dump(json_t *root) {
  char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
  json_decref(root);
  return text;
}

char *kiln__line_key(const kiln__line *line) {
  json_t *root = write_key(line);
  if (line->kind == KILN__LINE_CANDIDATE)
    json_object_set_new(root, "tile", write_rows(tile_rows, &line->candidates[0].tile));
  return dump(root);
}

char *kiln__line_text(const kiln__line *line) {
  const int is_choice = line->kind == KILN__LINE_CHOICE;
  json_t *root = write_key(line), *list = json_array();
  json_object_set_new(root, "shape", write_rows(shape_rows, &line->shape));
  for (int i = 0; i < line->num_candidates; i++)
    json_array_append_new(list, write_candidate(&line->candidates[i]));
  json_object_set_new(root, "candidates", list);
  if (is_choice) {
    json_object_set_new(root, "strategy", json_string(line->strategy));
    json_object_set_new(root, "tile", write_rows(tile_rows, &line->tile));
    json_object_set_new(root, "default", write_rows(tile_rows, &line->standard));
  }
  return dump(root);
}

/* ---- reading ---- */

typedef struct reader {
  char *why;
  size_t size;
} reader;

static int refuse(const reader *r, const char *name, const char *what) {
  snprintf(r->why, r->size, "%s %s", name, what);
  return -1;
}

static int read_text(const reader *in, const row *r, const json_t *value, void *members) {
  const char *text = json_string_value(value);
  if (!text) return refuse(in, r->name, "is no text");
  const size_t length = json_string_length(value);
  if (length >= r->size) return refuse(in, r->name, "is too long");
  if (strlen(text) != length) return refuse(in, r->name, "holds a zero");
  memset((char *)members + r->offset, 0, r->size);
  memcpy((char *)members + r->offset, text, length);
  return 0;
}

static int read_enum(const reader *in, const row *r, const json_t *value, void *members) {
  const char *text = json_string_value(value);
  if (!text) return refuse(in, r->name, "is no text");
  for (int i = 0; r->names[i]; i++) {
    if (strcmp(r->names[i], text) != 0) continue;
    store_number(r, members, i);
    return 0;
  }
  return refuse(in, r->name, "is no known word");
}

static int read_number(const reader *in, const row *r, const json_t *value, void *members) {
  if (!json_is_integer(value)) return refuse(in, r->name, "is no whole number");
  const json_int_t number = json_integer_value(value);
  const int64_t most = r->kind == ROW_INT32 && r->most > INT32_MAX ? INT32_MAX : r->most;
  if (number < r->least || number > most) return refuse(in, r->name, "is out of its range");
  store_number(r, members, number);
  return 0;
}

static int read_rows(const reader *in, const row *rows, const json_t *object, void *members) {
  for (const row *r = rows; r->name; r++) {
    const json_t *value = json_object_get(object, r->name);
    int bad = 0;
    if (!value && r->is_late) {
      store_number(r, members, 0);
      continue;
    }
    if (!value) return refuse(in, r->name, "is missing");
    if (r->kind == ROW_TEXT)
      bad = read_text(in, r, value, members);
    else if (r->kind == ROW_ENUM)
      bad = read_enum(in, r, value, members);
    else
      bad = read_number(in, r, value, members);
    if (bad) return bad;
  }
  return 0;
}

static int read_member(const reader *in, const json_t *root, const char *name, const row *rows,
                       void *members) {
  const json_t *object = json_object_get(root, name);
  if (!json_is_object(object)) return refuse(in, name, "is no object");
  return read_rows(in, rows, object, members);
}

static int read_candidates(const reader *in, const json_t *root, kiln__line *line) {
  const json_t *list = json_object_get(root, "candidates");
  const size_t count = json_array_size(list);
  if (!json_is_array(list) || count < 1 || count > MOST_CANDIDATES)
    return refuse(in, "candidates", "is no list of 1 to 4096 objects");
  if (line->kind == KILN__LINE_CANDIDATE && count != 1)
    return refuse(in, "candidates", "holds more than the one of its line");
  line->candidates = calloc(count, sizeof *line->candidates);
  if (!line->candidates) return refuse(in, "candidates", "finds no memory");
  line->num_candidates = (int)count;
  for (size_t i = 0; i < count; i++) {
    kiln__candidate *c = &line->candidates[i];
    const json_t *object = json_array_get(list, i);
    c->tile = (kiln_tile)KILN_TILE_INIT;
    if (!json_is_object(object)) return refuse(in, "candidates", "holds what is no object");
    if (read_rows(in, candidate_rows, object, c)) return -1;
    if (read_member(in, object, "tile", tile_rows, &c->tile)) return -1;
    if (c->outcome == KILN__OUTCOME_UNKNOWN) return refuse(in, "outcome", "is unknown");
    if (c->outcome == KILN__OUTCOME_TIMED && (c->median_ns < 1 || c->samples < 1))
      return refuse(in, "median_ns", "is missing from what was timed");
  }
  return 0;
}

/* A chosen tile is one of the candidates, and was timed. */
static int was_timed(const kiln__line *line, const kiln_tile *tile) {
  for (int i = 0; i < line->num_candidates; i++) {
    const kiln__candidate *c = &line->candidates[i];
    const kiln_tile *t = &c->tile;
    if (c->outcome == KILN__OUTCOME_TIMED && t->block_m == tile->block_m &&
        t->block_n == tile->block_n && t->num_stages == tile->num_stages &&
        t->num_warps == tile->num_warps)
      return 1;
  }
  return 0;
}

static int read_choice(const reader *in, const json_t *root, kiln__line *line) {
  static const row strategy_row = {"strategy", FIELD(kiln__line, strategy), ROW_TEXT, 0, 0, 0, NULL,
                                   0};
  line->tile = line->standard = (kiln_tile)KILN_TILE_INIT;
  if (read_member(in, root, "tile", tile_rows, &line->tile)) return -1;
  if (read_member(in, root, "default", tile_rows, &line->standard)) return -1;
  const json_t *strategy = json_object_get(root, "strategy");
  if (!strategy) return refuse(in, "strategy", "is missing");
  if (read_text(in, &strategy_row, strategy, line)) return -1;
  if (was_timed(line, &line->tile)) return 0;
  return refuse(in, "tile", "is none of the timed candidates");
}

static int read_line(const reader *in, const json_t *root, kiln__line *line) {
  const char *kind = json_string_value(json_object_get(root, "kind"));
  if (json_integer_value(json_object_get(root, "format")) != FORMAT)
    return refuse(in, "format", "is not 1");
  if (!kind || (strcmp(kind, "choice") != 0 && strcmp(kind, "candidate") != 0))
    return refuse(in, "kind", "is neither choice nor candidate");
  line->kind = strcmp(kind, "choice") == 0 ? KILN__LINE_CHOICE : KILN__LINE_CANDIDATE;
  line->problem.spec = (kiln_attn_spec)KILN_ATTN_SPEC_INIT;
  line->shape = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  if (read_member(in, root, "environment", environment_rows, &line->environment)) return -1;
  if (read_member(in, root, "problem", problem_rows, &line->problem)) return -1;
  if (read_member(in, root, "problem", spec_rows, &line->problem.spec)) return -1;
  if (read_member(in, root, "shape", shape_rows, &line->shape)) return -1;
  if (line->shape.num_heads_k < 1 || line->shape.num_heads % line->shape.num_heads_k != 0)
    return refuse(in, "num_heads", "is no whole multiple of num_heads_k");
  const kiln__problem own = kiln__problem_of(&line->problem.spec, &line->shape);
  if (!kiln__problem_same(&own, &line->problem))
    return refuse(in, "problem", "is not that of its shape");
  if (read_candidates(in, root, line)) return -1;
  return line->kind == KILN__LINE_CHOICE ? read_choice(in, root, line) : 0;
}

/* Brackets outside of strings, so that no parser recurses into thousands of them. */
static int is_shallow(const char *bytes, size_t length) {
  int depth = 0, quoted = 0;
  for (size_t i = 0; i < length; i++) {
    if (quoted && bytes[i] == '\\')
      i++;
    else if (bytes[i] == '"')
      quoted = !quoted;
    else if (!quoted && (bytes[i] == '{' || bytes[i] == '['))
      depth++;
    else if (!quoted && (bytes[i] == '}' || bytes[i] == ']'))
      depth--;
    if (depth > DEEPEST) return 0;
  }
  return 1;
}

int kiln__line_parse(const char *bytes, size_t length, kiln__line *line, char *why,
                     size_t why_size) {
  const reader in = {why, why_size};
  *line = (kiln__line){0};
  if (length > KILN__LINE_LIMIT) return refuse(&in, "the line", "is longer than 1 MiB");
  if (!is_shallow(bytes, length)) return refuse(&in, "the line", "is nested too deeply");
  json_t *root = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, NULL);
  int bad = json_is_object(root) ? read_line(&in, root, line)
                                 : refuse(&in, "the line", "is no JSON object");
  json_decref(root);
  if (bad) kiln__line_free(line);
  return bad;
}

void kiln__line_free(kiln__line *line) {
  free(line->candidates);
  *line = (kiln__line){0};
}

/* ---- problems and environments ---- */

static int32_t bucket_of(double x) { return x <= 1 ? 0 : (int32_t)round(log2(x)); }

kiln__problem kiln__problem_of(const kiln_attn_spec *spec, const kiln_attn_args *shape) {
  return (kiln__problem){
      .spec = *spec,
      .seqlen_q_log2 = bucket_of(shape->seqlen_q),
      .seqlen_k_log2 = bucket_of(shape->seqlen_k),
      .heads_log2 = bucket_of((double)shape->batch * shape->num_heads),
      .gqa = shape->num_heads / shape->num_heads_k,
  };
}

static int same_rows(const row *r, const void *a, const void *b) {
  if (r->kind != ROW_TEXT) return number_at(r, a) == number_at(r, b);
  return strcmp((const char *)a + r->offset, (const char *)b + r->offset) == 0;
}

int kiln__spec_same(const kiln_attn_spec *a, const kiln_attn_spec *b) {
  for (const row *r = spec_rows; r->name; r++)
    if (!same_rows(r, a, b)) return 0;
  return 1;
}

int kiln__problem_same(const kiln__problem *a, const kiln__problem *b) {
  for (const row *r = problem_rows; r->name; r++)
    if (!same_rows(r, a, b)) return 0;
  return kiln__spec_same(&a->spec, &b->spec);
}

static int is_known(const row *r, const void *members) {
  if (r->kind != ROW_TEXT) return number_at(r, members) != 0;
  return ((const char *)members)[r->offset] != '\0';
}

static void add_word(char *list, size_t size, const char *word) {
  const size_t length = strlen(list);
  if (length + 1 < size) snprintf(list + length, size - length, "%s%s", length ? ", " : "", word);
}

void kiln__environment_compare(const kiln__environment *there, const kiln__environment *here,
                               char *hard, char *soft, size_t size) {
  hard[0] = soft[0] = '\0';
  for (const row *r = environment_rows; r->name; r++) {
    if (!is_known(r, here) || same_rows(r, there, here)) continue;
    add_word(r->is_soft ? soft : hard, size, r->name);
  }
}
