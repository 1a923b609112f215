/* See choices.h. */
#include "autotune/choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/journal.h"
#include "autotune/space.h"

/* ---- reading ---- */

typedef struct reader {
  kiln__choices *choices;
  const char *place;
} reader;

static kiln_status take(void *user, int64_t number, kiln__line *line, const char *why) {
  const reader *r = user;
  kiln__choices *c = r->choices;
  (void)why;
  if (!line) {
    c->damaged++;
    return KILN_OK;
  }
  if (line->kind != KILN__LINE_CHOICE || !kiln__spec_same(&line->problem.spec, &c->spec))
    return KILN_OK;
  if (c->count == c->room) {
    const int room = c->room ? 2 * c->room : 64;
    kiln__choice *grown = realloc(c->rows, (size_t)room * sizeof *grown);
    if (!grown) return KILN_OUT_OF_MEMORY;
    c->rows = grown;
    c->room = room;
  }
  c->rows[c->count++] = (kiln__choice){*line, r->place, number};
  *line = (kiln__line){0}; /* its candidates are the choice's now */
  return KILN_OK;
}

/* The name that rows of a file point to; NULL without memory. */
static const char *add_place(kiln__choices *c, const char *name) {
  char **grown = realloc(c->places, ((size_t)c->num_places + 1) * sizeof *grown);
  if (!grown) return NULL;
  c->places = grown;
  grown[c->num_places] = strdup(name);
  return grown[c->num_places] ? grown[c->num_places++] : NULL;
}

/* What stands in every line of a spec, so that the lines of others need no parsing. */
typedef struct words {
  const char *list[5];
} words;

static words words_of(const kiln_attn_spec *spec) {
  return (words){
      {"choice", spec->arch, kiln__line_dtype(spec->dtype), kiln__line_mask(spec->mask), NULL}};
}

void kiln__choices_init(kiln__choices *c, const kiln_attn_spec *spec) {
  *c = (kiln__choices){.spec = *spec};
}

kiln_status kiln__choices_add_file(kiln__choices *c, const char *path, char *warning,
                                   size_t warning_size) {
  char error[4096] = "";
  const int damaged = c->damaged;
  const reader r = {c, add_place(c, path)};
  if (!r.place) return KILN_OUT_OF_MEMORY;
  const words w = words_of(&c->spec);
  kiln_status status =
      kiln__journal_read_words(path, w.list, take, (void *)&r, error, sizeof error);
  if (status == KILN_OUT_OF_MEMORY) return status;
  if (status != KILN_OK)
    snprintf(warning, warning_size, "%s", error);
  else if (c->damaged > damaged)
    snprintf(warning, warning_size,
             "%s: %d lines are damaged and left out; kiln records check lists them", path,
             c->damaged - damaged);
  return KILN_OK;
}

kiln_status kiln__choices_add_shipped(kiln__choices *c, const char *bytes, size_t length) {
  const reader r = {c, "shipped"};
  const words w = words_of(&c->spec);
  return kiln__journal_read_memory(bytes, length, w.list, take, (void *)&r);
}

void kiln__choices_free(kiln__choices *c) {
  for (int i = 0; i < c->count; i++) kiln__line_free(&c->rows[i].line);
  for (int i = 0; i < c->num_places; i++) free(c->places[i]);
  free(c->rows);
  free(c->places);
  *c = (kiln__choices){0};
}

/* ---- here ---- */

/* Driver and NVRTC are left unknown: asking for them opens files, and they only make a record
 * doubtful. */
static void describe_device(const kiln_device_info *device, kiln__environment *e) {
  *e = (kiln__environment){0};
  snprintf(e->compute_capability, sizeof e->compute_capability, "%d.%d", (int)device->compute_major,
           (int)device->compute_minor);
  snprintf(e->name, sizeof e->name, "%s", device->name);
  e->num_sms = device->num_sms;
  e->shared_bytes_block = device->shared_bytes_block;
  e->l2_bytes = device->l2_bytes;
  snprintf(e->kiln, sizeof e->kiln, "%s", kiln_version());
  snprintf(e->timing, sizeof e->timing, "%s", KILN__TIMING);
}

/* ---- the ladder ---- */

static const char *const step_names[] = {"explicit",    "exact",   "near_shape",
                                         "near_device", "default", "model"};
_Static_assert(KILN_STEP_MODEL + 1 == sizeof step_names / sizeof *step_names,
               "every step has a name");

typedef struct candidate_row {
  const kiln__choice *choice;
  kiln_plan_step step; /* that it would hold at; DEFAULT = at none */
  int distance;        /* of its shape: the sum over buckets */
  char hard[256], soft[256];
} candidate_row;

typedef struct search {
  const kiln__choices *choices;
  kiln__environment here;
  kiln__problem problem;
  candidate_row best[KILN_STEP_NEAR_DEVICE + 1]; /* by step */
  candidate_row refused[2];                      /* the last of this bucket, and near it */
} search;

/* The sum of the distances in buckets; -1 where one is further than its neighbour, or the heads are
 * grouped otherwise. */
static int distance_of(const kiln__problem *a, const kiln__problem *b) {
  const int steps[] = {abs(a->seqlen_q_log2 - b->seqlen_q_log2),
                       abs(a->seqlen_k_log2 - b->seqlen_k_log2),
                       abs(a->heads_log2 - b->heads_log2)};
  if (a->gqa != b->gqa || steps[0] > 1 || steps[1] > 1 || steps[2] > 1) return -1;
  return steps[0] + steps[1] + steps[2];
}

/* Whether what differs makes it no more than another device of the same kind. */
static int is_near_device(const kiln__environment *there, const kiln__environment *here) {
  char hard[256], soft[256];
  kiln__environment moved = *there;
  moved.num_sms = here->num_sms;
  moved.l2_bytes = here->l2_bytes;
  moved.shared_bytes_block = here->shared_bytes_block;
  kiln__environment_compare(&moved, here, hard, soft, sizeof hard);
  return !hard[0];
}

static void judge(search *s, const kiln__choice *choice) {
  candidate_row row = {.choice = choice, .step = KILN_STEP_DEFAULT};
  row.distance = distance_of(&choice->line.problem, &s->problem);
  if (row.distance < 0) return;
  const kiln__environment *there = &choice->line.environment;
  kiln__environment_compare(there, &s->here, row.hard, row.soft, sizeof row.hard);
  if (!row.hard[0])
    row.step = row.distance == 0 ? KILN_STEP_EXACT : KILN_STEP_NEAR_SHAPE;
  else if (is_near_device(there, &s->here))
    row.step = KILN_STEP_NEAR_DEVICE;
  if (row.step == KILN_STEP_DEFAULT) {
    s->refused[row.distance > 0] = row;
    return;
  }
  candidate_row *best = &s->best[row.step];
  if (!best->choice || row.distance <= best->distance) *best = row;
}

static void judge_all(search *s, const kiln__place *place) {
  if (s->choices->count == 0) return;
  if (place->source_id(place->user, s->here.source_id) != 0) strcpy(s->here.source_id, "none");
  for (int i = 0; i < s->choices->count; i++) judge(s, &s->choices->rows[i]);
}

/* ---- in words ---- */

static const kiln__candidate *timed(const kiln__line *line, const kiln_tile *tile) {
  for (int i = 0; i < line->num_candidates; i++)
    if (kiln__tile_compare(&line->candidates[i].tile, tile) == 0) return &line->candidates[i];
  return NULL;
}

static double median_us(const kiln__line *line, const kiln_tile *tile) {
  const kiln__candidate *c = timed(line, tile);
  return c ? (double)c->median_ns / 1e3 : 0;
}

/* Why nothing holds at a step: what would have come nearest. */
static json_t *refusal(const search *s, kiln_plan_step step) {
  const candidate_row *other = &s->refused[step == KILN_STEP_NEAR_SHAPE];
  if (s->choices->count == 0) return json_string("there is no tuning of this kernel");
  if (step == KILN_STEP_NEAR_DEVICE)
    return json_string("there is no tuning of these sizes on another device of this kind");
  if (other->choice)
    return json_sprintf("%s:%lld is of another environment: %s", other->choice->place,
                        (long long)other->choice->number, other->hard);
  return json_string(step == KILN_STEP_EXACT ? "there is no tuning of these sizes"
                                             : "there is no tuning within one bucket of them");
}

static char *sentence(const candidate_row *row, kiln_plan_step step) {
  char *text = NULL;
  const kiln__line *line = row ? &row->choice->line : NULL;
  int length;
  if (!row)
    length = asprintf(&text, "no tuning record applies");
  else
    length = asprintf(
        &text, "%s: tuned on %s%s, %.4g us against %.4g us of the default (%s:%lld)%s%s",
        step_names[step], line->environment.name,
        step == KILN_STEP_EXACT        ? ""
        : step == KILN_STEP_NEAR_SHAPE ? " for sizes near these"
                                       : ", a device of this kind",
        median_us(line, &line->tile), median_us(line, &line->standard), row->choice->place,
        (long long)row->choice->number, row->soft[0] ? "; doubtful, other " : "", row->soft);
  return length < 0 ? NULL : text;
}

static json_t *candidates_json(const kiln__line *line) {
  json_t *list = json_array();
  for (int i = 0; i < line->num_candidates; i++) {
    const kiln__candidate *c = &line->candidates[i];
    const char *outcome = kiln__outcome_name(c->outcome);
    json_t *row = json_pack("{s:o, s:s}", "tile", kiln__line_tile(&c->tile), "outcome", outcome);
    if (c->outcome == KILN__OUTCOME_TIMED)
      json_object_set_new(row, "time_us", json_real((double)c->median_ns / 1e3));
    json_array_append_new(list, row);
  }
  return list;
}

static json_t *record_json(const candidate_row *row) {
  const kiln__line *line = &row->choice->line;
  json_t *object = json_pack("{s:s, s:I, s:s, s:s, s:f, s:o, s:f, s:o}", "file", row->choice->place,
                             "line", (json_int_t)row->choice->number, "gpu", line->environment.name,
                             "strategy", line->strategy, "time_us", median_us(line, &line->tile),
                             "default_tile", kiln__line_tile(&line->standard), "default_us",
                             median_us(line, &line->standard), "candidates", candidates_json(line));
  if (row->hard[0]) json_object_set_new(object, "differs", json_string(row->hard));
  if (row->soft[0]) json_object_set_new(object, "differs_slightly", json_string(row->soft));
  return object;
}

static json_t *step_json(const search *s, kiln_plan_step step, int taken) {
  json_t *object = json_pack("{s:s, s:b}", "step", step_names[step], "taken", taken);
  if (!taken) json_object_set_new(object, "why", refusal(s, step));
  return object;
}

static char *ladder_text(const search *s, kiln_plan_step step) {
  const kiln__problem *p = &s->problem;
  json_t *steps = json_array();
  json_t *root = json_pack("{s:{s:i, s:i, s:i, s:i}, s:o}", "problem", "seqlen_q_log2",
                           (int)p->seqlen_q_log2, "seqlen_k_log2", (int)p->seqlen_k_log2,
                           "heads_log2", (int)p->heads_log2, "gqa", (int)p->gqa, "steps", steps);
  for (int i = KILN_STEP_EXACT; i <= KILN_STEP_NEAR_DEVICE && i <= (int)step; i++)
    json_array_append_new(steps, step_json(s, (kiln_plan_step)i, i == (int)step));
  if (step == KILN_STEP_DEFAULT)
    json_array_append_new(steps, json_pack("{s:s, s:b}", "step", step_names[step], "taken", 1));
  else if (s->best[step].choice)
    json_object_set_new(root, "record", record_json(&s->best[step]));
  char *text = json_dumps(root, JSON_COMPACT);
  json_decref(root);
  return text;
}

kiln_status kiln__choices_find(const kiln__choices *choices, const kiln__place *place,
                               kiln__chosen *found) {
  search *s = calloc(1, sizeof *s);
  *found = (kiln__chosen){.step = KILN_STEP_DEFAULT, .tile = KILN_TILE_INIT};
  if (!s) return KILN_OUT_OF_MEMORY;
  s->choices = choices;
  s->problem = kiln__problem_of(&choices->spec, place->shape);
  describe_device(place->device, &s->here);
  judge_all(s, place);
  for (int i = KILN_STEP_EXACT; i <= KILN_STEP_NEAR_DEVICE; i++) {
    if (!s->best[i].choice) continue;
    found->step = (kiln_plan_step)i;
    found->tile = s->best[i].choice->line.tile;
    break;
  }
  const int holds = found->step != KILN_STEP_DEFAULT;
  found->why = sentence(holds ? &s->best[found->step] : NULL, found->step);
  found->ladder = ladder_text(s, found->step);
  free(s);
  if (found->why && found->ladder) return KILN_OK;
  free(found->why);
  free(found->ladder);
  *found = (kiln__chosen){0};
  return KILN_OUT_OF_MEMORY;
}
