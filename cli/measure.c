/* kiln-measure: compiles, proves and times candidates for a tuning (autotune/child.c), in a process
 * of its own, so that what a kernel does to the GPU or to the compiler costs this process alone.
 *
 * It is asked by JSON objects on stdin, one a line, and answers each with one line on stdout:
 *   {"op":"open","device":0,"cache_dir":...,"template_dir":...,"jit_off":...,"spec":{},"shape":{}}
 *   {"op":"compile","tiles":[{},...]}    begins in the background
 *   {"op":"prepare","tile":{}}           "outcome", "reason", "handle", "registers", ...
 *   {"op":"sample","handle":0}           "outcome", "reason", "time_ns"
 *   {"op":"drop","handle":0}
 * Where the machine and not a candidate is at fault the answer has "status" and "sentence".
 *
 * Invariant: nothing but answers reaches the other end, whatever the libraries print; what they say
 * on stderr becomes the sentence. It ends with its input, also in the middle of a launch. */
#include "out.h"
#include "workbench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1 << 16, SENTENCE_BYTES = 700 };

typedef struct session {
  FILE *in, *out;
  kiln_context *ctx; /* made by the first open */
  kiln__workbench *bench;
  bool is_open;
} session;

typedef kiln_status answer_fn(session *s, const json_t *question, json_t *answer);

/* ---- the problem ---- */

static kiln_status refuse(const char *what) {
  return kiln__fail(KILN_INVALID_ARGUMENT, "the question has no good %s", what);
}

static void hear_nothing(void *user, kiln_log_level level, const char *sentence) {
  (void)user, (void)level, (void)sentence;
}

static kiln_status open_context(session *s, const json_t *question) {
  char error[512] = "";
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  const json_t *device = json_object_get(question, "device");
  options.cache_dir = json_string_value(json_object_get(question, "cache_dir"));
  options.template_dir = json_string_value(json_object_get(question, "template_dir"));
  options.jit_off = json_is_true(json_object_get(question, "jit_off"));
  options.cache_read_only = 1;
  options.log = hear_nothing;
  options.error = error;
  options.error_size = sizeof error;
  if (s->ctx) return KILN_OK;
  if (!json_is_integer(device)) return refuse("device");
  kiln_status status = kiln_context_create((int)json_integer_value(device), &options, &s->ctx);
  if (status != KILN_OK)
    return kiln__fail(status == KILN_OUT_OF_MEMORY ? status : KILN_NO_DEVICE,
                      "a second process cannot use the device (%s); set its compute mode to "
                      "default, or give it another device",
                      error[0] ? error : kiln_status_text(status));
  return kiln__workbench_create(s->ctx, &s->bench);
}

static kiln_status read_spec(session *s, const json_t *object, kiln_attn_spec *spec) {
  const char *name;
  json_t *value;
  kiln_status status = KILN_OK;
  *spec = (kiln_attn_spec)KILN_ATTN_SPEC_INIT;
  if (!json_is_object(object)) return refuse("spec");
  json_object_foreach((json_t *)(uintptr_t)object, name, value) {
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    const char *text = json_is_string(value) ? json_string_value(value) : number;
    if (status == KILN_OK) status = kiln_attn_spec_set(s->ctx, spec, name, text);
  }
  if (status == KILN_OK) status = kiln_attn_spec_resolve(s->ctx, spec, NULL);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(s->ctx, status);
}

/* A member that is a whole number from 0 on; -1 = it is none. */
static int32_t number_of(const json_t *object, const char *name) {
  const json_t *value = json_object_get(object, name);
  const json_int_t number = json_integer_value(value);
  return json_is_integer(value) && number >= 0 && number <= INT32_MAX ? (int32_t)number : -1;
}

static kiln_status read_shape(const json_t *object, kiln_attn_args *shape) {
  *shape = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  shape->batch = number_of(object, "batch");
  shape->seqlen_q = number_of(object, "seqlen_q");
  shape->seqlen_k = number_of(object, "seqlen_k");
  shape->num_heads = number_of(object, "num_heads");
  shape->num_heads_k = number_of(object, "num_heads_k");
  if (shape->batch < 0 || shape->seqlen_q < 0 || shape->seqlen_k < 0 || shape->num_heads < 1 ||
      shape->num_heads_k < 1)
    return refuse("shape");
  return KILN_OK;
}

static kiln_status open_problem(session *s, const json_t *question, json_t *answer) {
  kiln_attn_spec spec;
  kiln_attn_args shape;
  kiln_status status = open_context(s, question);
  s->is_open = false;
  if (status == KILN_OK) status = read_spec(s, json_object_get(question, "spec"), &spec);
  if (status == KILN_OK) status = read_shape(json_object_get(question, "shape"), &shape);
  if (status == KILN_OK) status = kiln__workbench_open(s->bench, &spec, &shape);
  s->is_open = status == KILN_OK;
  json_object_set_new(answer, "kiln", json_string(kiln_version()));
  return status;
}

/* ---- candidates ---- */

static kiln_status read_tile(const json_t *object, kiln_tile *tile) {
  *tile = (kiln_tile)KILN_TILE_INIT;
  tile->block_m = number_of(object, "block_m");
  tile->block_n = number_of(object, "block_n");
  tile->num_stages = number_of(object, "num_stages");
  tile->num_warps = number_of(object, "num_warps");
  if (tile->block_m < 1 || tile->block_n < 1 || tile->num_stages < 1 || tile->num_warps < 1)
    return refuse("tile");
  return KILN_OK;
}

static kiln_status compile(session *s, const json_t *question, json_t *answer) {
  kiln_tile tiles[KILN__WORKBENCH_BATCH];
  const json_t *list = json_object_get(question, "tiles");
  const size_t count = json_array_size(list);
  (void)answer;
  if (!s->is_open || count > KILN__WORKBENCH_BATCH) return refuse("problem or tiles");
  for (size_t i = 0; i < count; i++) {
    kiln_status status = read_tile(json_array_get(list, i), &tiles[i]);
    if (status != KILN_OK) return status;
  }
  return kiln__workbench_compile(s->bench, tiles, (int)count);
}

/* The words are those of tuning records. */
static void tell_finding(const kiln__finding *finding, json_t *answer) {
  static const char *const words[] = {"timed", "compile_failed", "wrong_result", "hang"};
  json_object_set_new(answer, "outcome", json_string(words[finding->outcome]));
  json_object_set_new(answer, "reason", json_string(finding->reason));
}

static kiln_status prepare(session *s, const json_t *question, json_t *answer) {
  kiln_tile tile;
  kiln__finding found;
  if (!s->is_open) return refuse("problem");
  kiln_status status = read_tile(json_object_get(question, "tile"), &tile);
  if (status == KILN_OK) status = kiln__workbench_prepare(s->bench, &tile, &found);
  if (status != KILN_OK) return status;
  tell_finding(&found, answer);
  json_object_set_new(answer, "handle", json_integer(found.handle));
  json_object_set_new(answer, "registers", json_integer(found.registers));
  json_object_set_new(answer, "spill_bytes", json_integer(found.spill_bytes));
  json_object_set_new(answer, "shared_bytes", json_integer(found.shared_bytes));
  return KILN_OK;
}

static kiln_status sample(session *s, const json_t *question, json_t *answer) {
  kiln__finding found;
  double time_us = 0;
  if (!s->is_open) return refuse("problem");
  kiln_status status =
      kiln__workbench_sample(s->bench, number_of(question, "handle"), &found, &time_us);
  if (status != KILN_OK) return status;
  tell_finding(&found, answer);
  json_object_set_new(answer, "time_ns", json_integer((json_int_t)(time_us * 1e3 + 0.5)));
  return KILN_OK;
}

static kiln_status drop(session *s, const json_t *question, json_t *answer) {
  (void)answer;
  if (s->is_open) kiln__workbench_drop(s->bench, number_of(question, "handle"));
  return KILN_OK;
}

/* ---- asking and answering ---- */

/* Takes what was said on stderr since the last time: its first line, without the program's name. */
static void take_sentence(char *text, size_t size) {
  const ssize_t got = pread(STDERR_FILENO, text, size - 1, 0);
  const char *name = "kiln: ";
  text[got > 0 ? got : 0] = '\0';
  text[strcspn(text, "\n")] = '\0';
  if (strncmp(text, name, strlen(name)) == 0)
    memmove(text, text + strlen(name), strlen(text + strlen(name)) + 1);
  if (ftruncate(STDERR_FILENO, 0) != 0) text[0] = '\0';
}

static json_t *answer(session *s, const char *line) {
  static const struct {
    const char *op;
    answer_fn *fn;
  } ops[] = {{"open", open_problem},
             {"compile", compile},
             {"prepare", prepare},
             {"sample", sample},
             {"drop", drop}};
  char sentence[SENTENCE_BYTES];
  kiln_status status = KILN_INVALID_ARGUMENT;
  json_t *question = json_loads(line, JSON_REJECT_DUPLICATES, NULL), *told = json_object();
  const char *op = json_string_value(json_object_get(question, "op"));
  for (size_t i = 0; op && i < sizeof ops / sizeof ops[0]; i++)
    if (strcmp(ops[i].op, op) == 0) status = ops[i].fn(s, question, told);
  take_sentence(sentence, sizeof sentence);
  if (status != KILN_OK) {
    json_object_set_new(told, "status", json_integer(status));
    json_object_set_new(told, "sentence", json_stringn(sentence, strlen(sentence)));
  }
  json_decref(question);
  return told;
}

static int say(const session *s, json_t *told) {
  char *text = json_dumps(told, JSON_COMPACT);
  json_decref(told);
  if (!text) return -1;
  fprintf(s->out, "%s\n", text);
  free(text);
  return fflush(s->out);
}

static void serve(session *s) {
  char *line = malloc(LINE_MAX_BYTES);
  while (line && fgets(line, LINE_MAX_BYTES, s->in))
    if (say(s, answer(s, line)) != 0) break;
  free(line);
}

/* ---- the process ---- */

/* The other end is gone: a launch that does not end is no reason to stay. Pipes and files, which a
 * person may ask through, end with what they hold. */
static void *watch(void *user) {
  struct pollfd input = {.fd = *(const int *)user, .events = POLLRDHUP};
  while (poll(&input, 1, -1) < 0 && errno == EINTR) {}
  if (input.revents & POLLRDHUP) _exit(0);
  return NULL;
}

/* stdin and stdout are moved out of the libraries' way, and stderr into memory. */
static int take_descriptors(session *s, int *input) {
  *input = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int said = memfd_create("stderr", MFD_CLOEXEC);
  if (*input < 0 || output < 0 || nothing < 0 || said < 0) return -1;
  if (fcntl(said, F_SETFL, O_APPEND) != 0) return -1;
  if (dup2(nothing, STDIN_FILENO) < 0 || dup2(nothing, STDOUT_FILENO) < 0) return -1;
  if (dup2(said, STDERR_FILENO) < 0) return -1;
  s->in = fdopen(*input, "r");
  s->out = fdopen(output, "w");
  return s->in && s->out ? 0 : -1;
}

/* The forward pass that gradients are made of has a plan here too. To measure that one would wait
 * for the tuning that waits for this process, and it is no problem of the user's run. */
static int choose_nothing(void) {
  return setenv("KILN_TUNE", "off", 1) == 0 && unsetenv("KILN_RECORD") == 0 ? 0 : -1;
}

/* A terminal's Ctrl-C reaches this process too: its end is for the one that asks to decide. */
int main(void) {
  session s = {0};
  int input = -1;
  pthread_t watcher;
  if (choose_nothing() != 0) return KILN_OUT_OF_MEMORY;
  signal(SIGINT, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  if (take_descriptors(&s, &input) != 0) return KILN_IO_FAILED;
  if (pthread_create(&watcher, NULL, watch, &input) != 0) return KILN_OUT_OF_MEMORY;
  serve(&s);
  kiln__workbench_destroy(s.bench);
  kiln_context_destroy(s.ctx);
  return KILN_OK;
}
