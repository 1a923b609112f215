/* What `kiln records` does with files of tuning records: show, check, export, import, merge. The
 * answer is one JSON object.
 *
 * Invariant: no record is taken or left out in silence: every line that is not used is listed with
 * its reason, and the counts say what became of all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/journal.h"
#include "autotune/tune.h"

typedef struct entry {
  char *key, *text;
  kiln_tile tile; /* of a choice */
  kiln__line_kind kind;
  int is_new; /* it is not in the user's own file */
} entry;

typedef struct command {
  const char *file; /* that is being read */
  int compares;     /* lines are judged against the environment */
  int choices_only;
  kiln_context *ctx;
  kiln_attn_spec spec; /* whose source id the environment holds; size 0 = none yet */
  kiln__environment environment;
  entry *entries; /* of one key the last */
  json_t *index;  /* of a key: where its entry is */
  int count, room;
  int reads_own; /* the file is the user's own */
  json_t *lines; /* a verdict each */
  json_t *conflicts;
  int used, refused, damaged, replaced;
} command;

/* ---- entries ---- */

static void free_entries(command *c) {
  for (int i = 0; i < c->count; i++) {
    free(c->entries[i].key);
    free(c->entries[i].text);
  }
  free(c->entries);
}

/* Two tunings of one problem that chose differently: the later one holds, and both are listed. */
static void note_conflict(command *c, const entry *old, const entry *new) {
  if (old->kind != KILN__LINE_CHOICE || kiln__tile_compare(&old->tile, &new->tile) == 0) return;
  json_t *key = json_loads(old->key, 0, NULL);
  json_t *problem = json_incref(json_object_get(key, "problem"));
  json_array_append_new(c->conflicts, json_pack("{s:o, s:o, s:o}", "problem", problem, "left_out",
                                                kiln__line_tile(&old->tile), "taken",
                                                kiln__line_tile(&new->tile)));
  json_decref(key);
}

static kiln_status add_entry(command *c, entry *new) {
  const json_t *at = json_object_get(c->index, new->key);
  if (at) {
    entry *old = &c->entries[json_integer_value(at)];
    const int same = strcmp(old->text, new->text) == 0;
    note_conflict(c, old, new);
    c->replaced += !same;
    if (same) new->is_new = old->is_new;
    free(old->key);
    free(old->text);
    *old = *new;
    return KILN_OK;
  }
  if (c->count == c->room) {
    const int room = c->room ? 2 * c->room : 64;
    entry *grown = realloc(c->entries, (size_t)room * sizeof *grown);
    if (!grown) return KILN_OUT_OF_MEMORY;
    c->entries = grown;
    c->room = room;
  }
  if (json_object_set_new(c->index, new->key, json_integer(c->count)) != 0)
    return KILN_OUT_OF_MEMORY;
  c->entries[c->count++] = *new;
  return KILN_OK;
}

static kiln_status take_entry(command *c, const kiln__line *line) {
  entry new = {kiln__line_key(line), kiln__line_text(line), line->tile, line->kind, !c->reads_own};
  kiln_status status = new.key &&new.text ? add_entry(c, &new) : KILN_OUT_OF_MEMORY;
  if (status == KILN_OK) return KILN_OK;
  free(new.key);
  free(new.text);
  return status;
}

static int compare_entries(const void *a, const void *b) {
  return strcmp(((const entry *)a)->text, ((const entry *)b)->text);
}

/* The texts in their order; the array is malloc'd, the texts stay with the entries. */
static char **sorted_texts(command *c) {
  char **texts = calloc((size_t)c->count + 1, sizeof *texts);
  if (!texts) return NULL;
  if (c->count) qsort(c->entries, (size_t)c->count, sizeof *c->entries, compare_entries);
  for (int i = 0; i < c->count; i++) texts[i] = c->entries[i].text;
  return texts;
}

/* ---- verdicts ---- */

static const kiln__candidate *find_candidate(const kiln__line *line, const kiln_tile *tile) {
  for (int i = 0; i < line->num_candidates; i++)
    if (kiln__tile_compare(&line->candidates[i].tile, tile) == 0) return &line->candidates[i];
  return NULL;
}

static json_t *time_json(const kiln__candidate *c) {
  if (!c || c->outcome != KILN__OUTCOME_TIMED) return json_null();
  return json_real((double)c->median_ns / 1e3);
}

/* What a line says, in short. */
static void describe(const kiln__line *line, json_t *row) {
  const kiln__problem *p = &line->problem;
  const int is_choice = line->kind == KILN__LINE_CHOICE;
  const kiln_tile *tile = is_choice ? &line->tile : &line->candidates[0].tile;
  const kiln__candidate *timed = find_candidate(line, tile);
  json_object_set_new(row, "kind", json_string(is_choice ? "choice" : "candidate"));
  json_object_set_new(row, "gpu", json_string(line->environment.name));
  json_object_set_new(row, "arch", json_string(p->spec.arch));
  if (p->spec.pass == KILN_PASS_BACKWARD) {
    json_object_set_new(row, "pass", json_string("backward"));
    json_object_set_new(row, "deterministic", json_integer(p->spec.deterministic));
  }
  json_object_set_new(row, "dtype", json_string(kiln__line_dtype(p->spec.dtype)));
  json_object_set_new(row, "head_dim", json_integer(p->spec.head_dim));
  json_object_set_new(row, "head_dim_v", json_integer(p->spec.head_dim_v));
  json_object_set_new(row, "mask", json_string(kiln__line_mask(p->spec.mask)));
  json_object_set_new(row, "seqlen_q_log2", json_integer(p->seqlen_q_log2));
  json_object_set_new(row, "seqlen_k_log2", json_integer(p->seqlen_k_log2));
  json_object_set_new(row, "heads_log2", json_integer(p->heads_log2));
  json_object_set_new(row, "tile",
                      json_sprintf("%dx%d s%d w%d", (int)tile->block_m, (int)tile->block_n,
                                   (int)tile->num_stages, (int)tile->num_warps));
  json_object_set_new(row, "outcome", json_string(kiln__outcome_name(timed->outcome)));
  json_object_set_new(row, "time_us", time_json(timed));
  if (!is_choice) return;
  json_object_set_new(row, "default_us", time_json(find_candidate(line, &line->standard)));
  json_object_set_new(row, "strategy", json_string(line->strategy));
  json_object_set_new(row, "candidates", json_integer(line->num_candidates));
}

/* The source id that records of a spec are compared with; files hold many of one spec in a row. */
static void take_source(command *c, const kiln_attn_spec *spec) {
  if (c->spec.size && kiln__spec_same(&c->spec, spec)) return;
  kiln__environment_take_source(c->ctx, spec, &c->environment);
  c->spec = *spec;
}

/* Whether the line may be used, and its verdict: ok, or doubtful and refused with the names of
 * those fields of its environment that differ from here. */
static int judge(command *c, const kiln__line *line, json_t *row) {
  char hard[512] = "", soft[512] = "";
  if (c->compares) {
    take_source(c, &line->problem.spec);
    kiln__environment_compare(&line->environment, &c->environment, hard, soft, sizeof hard);
  }
  const char *verdict = hard[0] ? "refused" : soft[0] ? "doubtful" : "ok";
  json_object_set_new(row, "verdict", json_string(verdict));
  if (hard[0]) json_object_set_new(row, "differs", json_string(hard));
  if (soft[0]) json_object_set_new(row, "differs_slightly", json_string(soft));
  return !hard[0];
}

static kiln_status visit(void *user, int64_t number, kiln__line *line, const char *why) {
  command *c = user;
  json_t *row = json_pack("{s:s, s:I}", "file", c->file, "line", (json_int_t)number);
  json_array_append_new(c->lines, row);
  if (!line) {
    c->damaged++;
    json_object_set_new(row, "verdict", json_string("damaged"));
    json_object_set_new(row, "why", json_string(why));
    return KILN_OK;
  }
  const int usable = judge(c, line, row);
  describe(line, row);
  if (!usable) {
    c->refused++;
    return KILN_OK;
  }
  if (c->choices_only && line->kind != KILN__LINE_CHOICE) return KILN_OK;
  c->used++;
  return take_entry(c, line);
}

static kiln_status read_file(command *c, const char *path, int may_be_missing, char *error,
                             size_t error_size) {
  c->file = path;
  snprintf(error, error_size, "no memory is left to read %s", path);
  return kiln__journal_read(path, may_be_missing, visit, c, error, error_size);
}

/* ---- the verbs ---- */

static kiln_status show(command *c, const char *const *files, char *error, size_t error_size) {
  return read_file(c, files[0], 0, error, error_size);
}

static kiln_status check(command *c, const char *const *files, char *error, size_t error_size) {
  c->compares = 1;
  kiln_status status = read_file(c, files[0], 0, error, error_size);
  if (status != KILN_OK || (!c->refused && !c->damaged && c->used)) return status;
  snprintf(error, error_size,
           "%s: %d of its records can be used, %d are of another environment, "
           "%d are damaged",
           files[0], c->used, c->refused, c->damaged);
  return c->damaged || !c->used ? KILN_CHECK_FAILED : KILN_MISMATCH;
}

static kiln_status write_entries(command *c, const char *path, char *error, size_t error_size) {
  char **texts = sorted_texts(c);
  if (!texts) return KILN_OUT_OF_MEMORY;
  kiln_status status = kiln__journal_replace(path, texts, c->count, error, error_size);
  free(texts);
  return status;
}

static kiln_status export(command *c, const char *own, const char *out, json_t *answer, char *error,
                          size_t error_size) {
  c->choices_only = 1;
  kiln_status status = read_file(c, own, 0, error, error_size);
  if (status != KILN_OK) return status;
  if (c->count == 0) {
    snprintf(error, error_size, "%s holds no finished tuning; run kiln tune first", own);
    return KILN_INVALID_ARGUMENT;
  }
  if (out) return write_entries(c, out, error, error_size);
  char **texts = sorted_texts(c);
  json_t *list = json_array();
  for (int i = 0; texts && i < c->count; i++) json_array_append_new(list, json_string(texts[i]));
  json_object_set_new(answer, "records", list);
  free(texts);
  return texts ? KILN_OK : KILN_OUT_OF_MEMORY;
}

static kiln_status append_new(const command *c, const char *own, char *error, size_t error_size) {
  kiln_status status = KILN_OK;
  for (int i = 0; i < c->count && status == KILN_OK; i++)
    if (c->entries[i].is_new)
      status = kiln__journal_append_text(own, c->entries[i].text, error, error_size);
  return status;
}

/* The user's own records first, so that what is imported holds. */
static kiln_status import(command *c, const char *const *files, const char *own, char *error,
                          size_t error_size) {
  c->reads_own = 1;
  kiln_status status = read_file(c, own, 1, error, error_size);
  if (status != KILN_OK) return status;
  c->used = c->damaged = c->replaced = c->reads_own = 0;
  json_array_clear(c->lines);
  json_array_clear(c->conflicts);
  c->compares = 1;
  status = read_file(c, files[0], 0, error, error_size);
  if (status != KILN_OK) return status;
  if (c->used > 0) return append_new(c, own, error, error_size);
  snprintf(error, error_size,
           "%s: nothing was imported; %d records are of another environment, %d are damaged",
           files[0], c->refused, c->damaged);
  return KILN_MISMATCH;
}

static kiln_status merge(command *c, const char *const *files, int32_t num_files, const char *out,
                         char *error, size_t error_size) {
  kiln_status status = KILN_OK;
  for (int32_t i = 0; i < num_files && status == KILN_OK; i++)
    status = read_file(c, files[i], 0, error, error_size);
  return status == KILN_OK ? write_entries(c, out, error, error_size) : status;
}

static kiln_status run(command *c, const char *verb, const char *const *files, int32_t num_files,
                       const char *own, const char *out, json_t *answer, char *error,
                       size_t error_size) {
  if (strcmp(verb, "show") == 0 && num_files == 1) return show(c, files, error, error_size);
  if (strcmp(verb, "check") == 0 && num_files == 1) return check(c, files, error, error_size);
  if (strcmp(verb, "merge") == 0 && num_files > 1 && out)
    return merge(c, files, num_files, out, error, error_size);
  const int is_export = strcmp(verb, "export") == 0 && num_files == 0;
  const int is_import = strcmp(verb, "import") == 0 && num_files == 1;
  if ((is_export || is_import) && !own) {
    snprintf(error, error_size, "there is no file of own records; set KILN_RECORDS to one");
    return KILN_INVALID_ARGUMENT;
  }
  if (is_export) return export(c, own, out, answer, error, error_size);
  if (is_import) return import(c, files, own, error, error_size);
  snprintf(error, error_size,
           "records takes show FILE, check FILE, export, import FILE, or merge A B with an output");
  return KILN_INVALID_ARGUMENT;
}

kiln_status kiln__records_command(kiln_context *ctx, const char *verb, const char *const *files,
                                  int32_t num_files, const char *own, const char *out, char **json,
                                  char *error, size_t error_size) {
  command c = {
      .ctx = ctx, .lines = json_array(), .conflicts = json_array(), .index = json_object()};
  json_t *answer = json_object();
  *json = NULL;
  snprintf(error, error_size, "no memory is left for tuning records");
  kiln_status status = kiln__environment_of(ctx, NULL, &c.environment);
  if (status == KILN_OK)
    status = run(&c, verb, files, num_files, own, out, answer, error, error_size);
  json_object_set_new(answer, "used", json_integer(c.used));
  json_object_set_new(answer, "refused", json_integer(c.refused));
  json_object_set_new(answer, "damaged", json_integer(c.damaged));
  json_object_set_new(answer, "replaced", json_integer(c.replaced));
  json_object_set(answer, "conflicts", c.conflicts);
  json_object_set(answer, "lines", c.lines);
  *json = json_dumps(answer, JSON_COMPACT);
  json_decref(answer);
  json_decref(c.conflicts);
  json_decref(c.lines);
  json_decref(c.index);
  free_entries(&c);
  return status == KILN_OK && !*json ? KILN_OUT_OF_MEMORY : status;
}
