/* kiln records: what files of tuning records hold, whether they fit this machine, and how they come
 * from one to another. */
#include "device.h"
#include "out.h"
#include "verbs.h"

#include <string.h>

static const kiln__flag flags[] = {
    {"-o", "FILE", "export, merge: the file that is written; export prints without it"},
    {"--json", NULL, "one object"},
    {0},
};

static const struct {
  const char *name, *usage;
  int num_files;
} commands[] = {{"show", "show FILE", 1},
                {"check", "check FILE", 1},
                {"export", "export [-o FILE]", 0},
                {"import", "import FILE", 1},
                {"merge", "merge A B -o FILE", 2}};

enum { NUM_COMMANDS = sizeof commands / sizeof commands[0] };

static kiln_status refuse(const char *word) {
  const char *names[NUM_COMMANDS];
  for (int i = 0; i < NUM_COMMANDS; i++) names[i] = commands[i].name;
  const char *near = kiln__nearest(word, names, NUM_COMMANDS);
  if (near)
    return kiln__fail(KILN_INVALID_ARGUMENT, "records has no command %s; did you mean %s?", word,
                      near);
  return kiln__fail(KILN_INVALID_ARGUMENT,
                    "records has no command %s; it has show, check, export, import and merge",
                    word);
}

/* Whether the words fit their command. */
static kiln_status check_words(const kiln__args *args) {
  const bool has_output = kiln__args_has(args, "-o");
  for (int i = 0; i < NUM_COMMANDS; i++) {
    if (strcmp(args->words[0], commands[i].name) != 0) continue;
    const bool merges = commands[i].num_files == 2, writes = merges || commands[i].num_files == 0;
    if (args->num_words - 1 == commands[i].num_files && (has_output ? writes : !merges))
      return KILN_OK;
    return kiln__fail(KILN_INVALID_ARGUMENT, "usage: kiln records %s", commands[i].usage);
  }
  return refuse(args->words[0]);
}

/* Exported records as they are; anything else for people or as one object. */
static kiln_status print(const kiln__args *args, const char *json) {
  json_t *answer = kiln__json_parse(json, "the answer");
  if (!answer) return KILN_INTERNAL;
  const json_t *records = json_object_get(answer, "records");
  kiln_status status = KILN_OK;
  for (size_t i = 0; i < json_array_size(records); i++)
    printf("%s\n", json_string_value(json_array_get(records, i)));
  if (!records && kiln__args_has(args, "--json")) return kiln__print_json(answer);
  if (!records) kiln__print_text(answer);
  json_decref(answer);
  return status;
}

static kiln_status ask(kiln_context *ctx, const kiln__args *args) {
  const char *json = NULL;
  kiln_status status = kiln_records_command(ctx, args->words[0], args->words + 1,
                                            args->num_words - 1, kiln__args_get(args, "-o"), &json);
  kiln_status printed = json ? print(args, json) : KILN_OK;
  if (status != KILN_OK) return kiln__fail_context(ctx, status);
  return printed;
}

static kiln_status run(const kiln__args *args) {
  kiln_context *ctx = NULL;
  kiln_status status = check_words(args);
  if (status == KILN_OK) status = kiln__device_open(args, KILN__DEVICE_TO_ASK, NULL, &ctx);
  if (status == KILN_OK) status = ask(ctx, args);
  kiln_context_destroy(ctx);
  return status;
}

const kiln__verb kiln__verb_records = {
    .name = "records",
    .usage = "show FILE | check FILE | export [-o FILE] | import FILE | merge A B -o FILE",
    .sentence = "Looks at tuning records, checks, exports, imports and merges them.",
    .flags = flags,
    .groups = KILN__TAKES_TARGET,
    .min_words = 1,
    .max_words = 3,
    .run = run,
};
