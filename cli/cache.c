/* kiln cache: what the kernel cache holds, whether it is whole, and why two kernels differ. */
#include "out.h"
#include "verbs.h"

#include <string.h>

static const kiln__flag flags[] = {
    {"--json", NULL, "one object"},
    {0},
};

static kiln_status refuse(const char *word) {
  static const char *const names[] = {"ls", "why", "verify", "gc", "clear"};
  const char *near = kiln__nearest(word, names, 5);
  if (near)
    return kiln__fail(KILN_INVALID_ARGUMENT, "cache has no command %s; did you mean %s?", word,
                      near);
  return kiln__fail(KILN_INVALID_ARGUMENT,
                    "cache has no command %s; it has ls, why A B, verify, gc and clear", word);
}

/* Which call answers, and whether the words fit it. */
static kiln_status ask(kiln_context *ctx, const kiln__args *args, const char **json) {
  static const char *const commands[] = {"ls", "verify", "gc", "clear"};
  const char *word = args->words[0];
  bool why = strcmp(word, "why") == 0;
  if (why && args->num_words != 3)
    return kiln__fail(KILN_INVALID_ARGUMENT,
                      "cache why takes two kernel ids; kiln cache ls lists them");
  if (!why && args->num_words != 1)
    return kiln__fail(KILN_INVALID_ARGUMENT, "cache %s takes no further word", word);
  kiln_status status = KILN_OK;
  if (why) {
    status = kiln_cache_why(ctx, args->words[1], args->words[2], json);
    return status == KILN_OK ? KILN_OK : kiln__fail_context(ctx, status);
  }
  for (int i = 0; i < 4; i++) {
    if (strcmp(word, commands[i]) != 0) continue;
    status = kiln_cache_command(ctx, word, json);
    return status == KILN_OK ? KILN_OK : kiln__fail_context(ctx, status);
  }
  return refuse(word);
}

static kiln_status print(const kiln__args *args, const char *json) {
  json_t *value = kiln__json_parse(json, "the cache's answer");
  if (!value) return KILN_INTERNAL;
  if (kiln__args_has(args, "--json")) return kiln__print_json(value);
  kiln__print_text(value);
  json_decref(value);
  return KILN_OK;
}

static kiln_status run(const kiln__args *args) {
  char error[1024] = "";
  const char *json = NULL;
  kiln_context *ctx = NULL;
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  options.error = error;
  options.error_size = sizeof error;
  kiln_status status = kiln_context_create(KILN_DEVICE_NONE, &options, &ctx);
  if (status != KILN_OK)
    return kiln__fail(status, "%s", error[0] ? error : kiln_status_text(status));
  status = ask(ctx, args, &json);
  if (status == KILN_OK) status = print(args, json);
  kiln_context_destroy(ctx);
  return status;
}

const kiln__verb kiln__verb_cache = {
    .name = "cache",
    .usage = "ls | why A B | verify | gc | clear",
    .sentence = "Looks at the kernel cache, checks it, trims it.",
    .flags = flags,
    .min_words = 1,
    .max_words = 3,
    .run = run,
};
