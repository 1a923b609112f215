/* See child.h. Every answer is one JSON object: what was asked for; or status and sentence, where
 * the machine and not the candidate is at fault. */
#include "autotune/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "autotune/line.h"
#include "autotune/process.h"
#include "autotune/space.h"

enum { EXPECTED_LEAST = 8, STARTS = 2 };

struct kiln__child {
  int device, jit_off, prepare_ms, sample_ms;
  char *template_dir, *cache_dir, *program; /* NULL = none given */
  kiln__process process;
  int generation; /* of the process: handles of an older one are void */
  int is_open;    /* the process knows the problem */
  int has_ended;  /* the last question found the process gone, and not silent */
  kiln_attn_spec spec;
  kiln_attn_args shape;
  kiln_tile expected[KILN__EXPECTED_MOST]; /* without those that failed */
  int num_expected;
  kiln_status failure;
  char sentence[1024];
};

typedef struct handle {
  kiln_tile tile;
  int64_t number; /* the process's own */
  int generation;
} handle;

/* ---- creating ---- */

static char *copy(const char *text) { return text ? strdup(text) : NULL; }

kiln__child *kiln__child_create(const kiln__child_options *o) {
  kiln__child *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  c->device = o->device;
  c->jit_off = o->jit_off;
  c->prepare_ms = o->prepare_ms ? o->prepare_ms : KILN__PREPARE_MS;
  c->sample_ms = o->sample_ms ? o->sample_ms : KILN__SAMPLE_MS;
  c->template_dir = copy(o->template_dir);
  c->cache_dir = copy(o->cache_dir);
  c->program = copy(o->program);
  if ((c->template_dir || !o->template_dir) && (c->cache_dir || !o->cache_dir) &&
      (c->program || !o->program))
    return c;
  kiln__child_destroy(c);
  return NULL;
}

void kiln__child_destroy(kiln__child *c) {
  if (!c) return;
  kiln__process_end(&c->process);
  free(c->template_dir);
  free(c->cache_dir);
  free(c->program);
  free(c);
}

int kiln__child_has_device(const kiln__child *c) { return c->device >= 0; }

void kiln__child_set_problem(kiln__child *c, const kiln_attn_spec *spec,
                             const kiln_attn_args *shape) {
  c->spec = *spec;
  c->shape = *shape;
  c->is_open = 0;
  c->num_expected = 0;
  c->failure = KILN_OK;
  c->sentence[0] = '\0';
}

kiln_status kiln__child_failure(const kiln__child *c, const char **sentence) {
  *sentence = c->sentence;
  return c->failure;
}

/* ---- asking ---- */

/* A text from another process, for a record or a terminal. */
static void take_text(const json_t *answer, const char *name, char *out, size_t size) {
  const char *text = json_string_value(json_object_get(answer, name));
  snprintf(out, size, "%s", text ? text : "");
  for (char *at = out; *at; at++)
    if ((unsigned char)*at < 0x20 || (unsigned char)*at > 0x7e) *at = '?';
}

static int64_t take_number(const json_t *answer, const char *name, int64_t most) {
  const int64_t number = json_integer_value(json_object_get(answer, name));
  return number < 0 || number > most ? 0 : number;
}

/* Takes the question's reference. NULL and why, where the process had to be ended. */
static json_t *ask(kiln__child *c, json_t *question, int limit_ms, char *why, size_t size) {
  json_t *answer = NULL;
  if (question)
    answer = kiln__process_ask(&c->process, question, limit_ms, why, size);
  else
    snprintf(why, size, "no memory is left");
  json_decref(question);
  c->has_ended = !answer && c->process.pid == 0;
  if (!answer) kiln__process_end(&c->process);
  return answer;
}

/* 1 where the answer is a status: the measurer fails with it. */
static int is_failure(kiln__child *c, const json_t *answer) {
  const json_t *status = json_object_get(answer, "status");
  char text[768];
  if (!status) return 0;
  take_text(answer, "sentence", text, sizeof text);
  c->failure = (kiln_status)take_number(answer, "status", KILN_INTERNAL);
  if (c->failure == KILN_OK) c->failure = KILN_INTERNAL;
  snprintf(c->sentence, sizeof c->sentence, "kiln-measure cannot measure: %s",
           text[0] ? text : kiln_status_text(c->failure));
  return 1;
}

static json_t *question_of(const char *op, const kiln_tile *tile) {
  return json_pack("{s:s, s:o}", "op", op, "tile", kiln__line_tile(tile));
}

/* ---- starting ---- */

static void start(kiln__child *c) {
  char *place = c->program ? copy(c->program) : kiln__process_place();
  if (place) {
    c->failure = kiln__process_start(&c->process, place, c->sentence, sizeof c->sentence);
  } else {
    c->failure = KILN_UNSUPPORTED;
    snprintf(c->sentence, sizeof c->sentence,
             "the place of kiln-measure, which compiles and times kernels, is not known: install "
             "the whole of Kiln");
  }
  free(place);
  c->generation++;
  c->is_open = 0;
}

static json_t *open_question(const kiln__child *c) {
  return json_pack("{s:s, s:i, s:s?, s:s?, s:b, s:o, s:o}", "op", "open", "device", c->device,
                   "template_dir", c->template_dir, "cache_dir", c->cache_dir, "jit_off",
                   c->jit_off, "spec", kiln__line_spec(&c->spec), "shape",
                   kiln__line_shape(&c->shape));
}

/* 0 where the process gave no answer and was ended. */
static int open_problem(kiln__child *c, char *why, size_t size) {
  char version[32];
  json_t *answer = ask(c, open_question(c), KILN__OPEN_MS, why, size);
  if (!answer) return 0;
  take_text(answer, "kiln", version, sizeof version);
  if (!is_failure(c, answer) && strcmp(version, kiln_version()) != 0) {
    c->failure = KILN_UNSUPPORTED;
    snprintf(c->sentence, sizeof c->sentence,
             "kiln-measure is of version %s and this library of %s: install both from one build",
             version, kiln_version());
  }
  c->is_open = c->failure == KILN_OK;
  json_decref(answer);
  return 1;
}

static void announce(kiln__child *c) {
  char why[KILN__REASON_SIZE];
  json_t *tiles = json_array();
  if (c->num_expected == 0) {
    json_decref(tiles);
    return;
  }
  for (int i = 0; i < c->num_expected; i++)
    json_array_append_new(tiles, kiln__line_tile(&c->expected[i]));
  json_t *question = json_pack("{s:s, s:o}", "op", "compile", "tiles", tiles);
  json_t *answer = ask(c, question, c->sample_ms, why, sizeof why);
  if (answer) is_failure(c, answer);
  json_decref(answer);
}

/* A process that knows the problem and the tiles that are expected; 0 where there is none. One that
 * was left by an earlier tuning may have been killed since: then there is a second attempt. */
static int is_ready(kiln__child *c) {
  char why[KILN__REASON_SIZE] = "";
  for (int i = 0; i < STARTS && c->failure == KILN_OK; i++) {
    if (c->process.pid && c->is_open) return 1;
    if (!c->process.pid) start(c);
    if (c->failure == KILN_OK && open_problem(c, why, sizeof why) && c->failure == KILN_OK)
      announce(c);
  }
  if (c->failure == KILN_OK && c->process.pid && c->is_open) return 1;
  if (c->failure != KILN_OK) return 0;
  c->failure = KILN_UNSUPPORTED;
  snprintf(c->sentence, sizeof c->sentence,
           "kiln-measure, which times kernels, does not get as far as a first answer (%s): run "
           "kiln doctor",
           why);
  return 0;
}

/* ---- measuring ---- */

static void forget_expected(kiln__child *c, const kiln_tile *tile) {
  int kept = 0;
  for (int i = 0; i < c->num_expected; i++)
    if (kiln__tile_compare(&c->expected[i], tile) != 0) c->expected[kept++] = c->expected[i];
  c->num_expected = kept;
}

static kiln__outcome unknown(const kiln__child *c, char *reason) {
  snprintf(reason, KILN__REASON_SIZE, "%.*s", KILN__REASON_SIZE - 1, c->sentence);
  return KILN__OUTCOME_UNKNOWN;
}

/* The tile's fault: the process is not used any more, nor is it compiled in the next one. */
static kiln__outcome give_up(kiln__child *c, const kiln_tile *tile) {
  kiln__process_end(&c->process);
  forget_expected(c, tile);
  return KILN__OUTCOME_HANG;
}

/* Of an answer about a tile, which it takes; NULL = there was none, and the reason is set. */
static kiln__outcome judge(kiln__child *c, json_t *answer, const kiln_tile *tile, char *reason) {
  kiln__outcome outcome = KILN__OUTCOME_COUNT;
  if (!answer) return give_up(c, tile);
  if (is_failure(c, answer)) {
    json_decref(answer);
    return unknown(c, reason);
  }
  const char *name = json_string_value(json_object_get(answer, "outcome"));
  for (int i = KILN__OUTCOME_TIMED; name && i < KILN__OUTCOME_COUNT; i++)
    if (strcmp(kiln__outcome_name((kiln__outcome)i), name) == 0) outcome = (kiln__outcome)i;
  take_text(answer, "reason", reason, KILN__REASON_SIZE);
  json_decref(answer);
  if (outcome == KILN__OUTCOME_COUNT) {
    snprintf(reason, KILN__REASON_SIZE, "the measuring program's answer has no outcome");
    return give_up(c, tile);
  }
  return outcome == KILN__OUTCOME_HANG ? give_up(c, tile) : outcome;
}

/* A process that compiles several tiles may have died of another one's: then this one is tried by
 * itself. */
static json_t *ask_prepare(kiln__child *c, kiln__candidate *found) {
  json_t *answer = ask(c, question_of("prepare", &found->tile), c->prepare_ms, found->reason,
                       sizeof found->reason);
  if (answer || !c->has_ended || c->num_expected < 2) return answer;
  c->num_expected = 0;
  if (!is_ready(c)) return NULL;
  return ask(c, question_of("prepare", &found->tile), c->prepare_ms, found->reason,
             sizeof found->reason);
}

/* `found` has the tile; its resources are filled. *number: of a TIMED one. */
static kiln__outcome prepare_tile(kiln__child *c, kiln__candidate *found, int64_t *number) {
  if (!is_ready(c)) return unknown(c, found->reason);
  json_t *answer = ask_prepare(c, found);
  if (!answer && c->failure != KILN_OK) return unknown(c, found->reason);
  found->registers = (int32_t)take_number(answer, "registers", INT32_MAX);
  found->spill_bytes = (int32_t)take_number(answer, "spill_bytes", INT32_MAX);
  found->shared_bytes = take_number(answer, "shared_bytes", INT32_MAX);
  *number = take_number(answer, "handle", INT32_MAX);
  return judge(c, answer, &found->tile, found->reason);
}

static kiln__outcome prepare(void *self, kiln__candidate *candidate, void **out) {
  kiln__child *c = self;
  handle *made = malloc(sizeof *made);
  if (!made) {
    c->failure = KILN_OUT_OF_MEMORY;
    snprintf(c->sentence, sizeof c->sentence, "no memory is left to tune");
    return unknown(c, candidate->reason);
  }
  made->tile = candidate->tile;
  const kiln__outcome outcome = prepare_tile(c, candidate, &made->number);
  made->generation = c->generation;
  if (outcome == KILN__OUTCOME_TIMED)
    *out = made;
  else
    free(made);
  return outcome;
}

/* In a process that has replaced the one that the candidate was prepared in. */
static kiln__outcome renew(kiln__child *c, handle *h, char *reason) {
  kiln__candidate found = {.tile = h->tile};
  const kiln__outcome outcome = prepare_tile(c, &found, &h->number);
  h->generation = c->generation;
  if (outcome != KILN__OUTCOME_TIMED) memcpy(reason, found.reason, sizeof found.reason);
  return outcome;
}

static kiln__outcome sample(void *self, void *candidate, int64_t *time_ns, char *reason) {
  kiln__child *c = self;
  handle *h = candidate;
  kiln__outcome outcome = KILN__OUTCOME_TIMED;
  if (!c->process.pid || h->generation != c->generation) outcome = renew(c, h, reason);
  if (outcome != KILN__OUTCOME_TIMED) return outcome;
  json_t *question = json_pack("{s:s, s:I}", "op", "sample", "handle", (json_int_t)h->number);
  json_t *answer = ask(c, question, c->sample_ms, reason, KILN__REASON_SIZE);
  *time_ns = take_number(answer, "time_ns", INT64_MAX / 1000);
  outcome = judge(c, answer, &h->tile, reason);
  if (outcome != KILN__OUTCOME_TIMED || *time_ns > 0) return outcome;
  snprintf(reason, KILN__REASON_SIZE, "the measuring program's answer has no time");
  return give_up(c, &h->tile);
}

static void drop(void *self, void *candidate) {
  kiln__child *c = self;
  handle *h = candidate;
  char why[KILN__REASON_SIZE];
  if (c->process.pid && h->generation == c->generation)
    json_decref(ask(c, json_pack("{s:s, s:I}", "op", "drop", "handle", (json_int_t)h->number),
                    c->sample_ms, why, sizeof why));
  free(h);
}

/* As many as are compiled side by side, and a race at least. */
static int expect(void *self, const kiln_tile *tiles, int count) {
  kiln__child *c = self;
  const int was_open = c->process.pid && c->is_open;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int most = cores > EXPECTED_LEAST ? (int)cores : EXPECTED_LEAST;
  if (most > KILN__EXPECTED_MOST) most = KILN__EXPECTED_MOST;
  c->num_expected = count < most ? count : most;
  memcpy(c->expected, tiles, (size_t)c->num_expected * sizeof *tiles);
  if (is_ready(c) && was_open) announce(c);
  return c->num_expected;
}

static double now(void *self) {
  struct timespec time;
  (void)self;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static const kiln__measurer_ops ops = {
    .expect = expect, .prepare = prepare, .sample = sample, .drop = drop, .now = now};

kiln__measurer kiln__child_measurer(kiln__child *child) { return (kiln__measurer){&ops, child}; }
