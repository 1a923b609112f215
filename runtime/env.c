/* The environment of one context: see env.h. */
#include "runtime/env.h"

#include <stdlib.h>
#include <string.h>

extern char **environ;

static const char *const names[KILN__ENV_COUNT] = {
#define NAME_ROW(name, text) #name,
    KILN__ENV_MAP(NAME_ROW)
#undef NAME_ROW
};

static const char *const sentences[KILN__ENV_COUNT] = {
#define SENTENCE_ROW(name, text) text,
    KILN__ENV_MAP(SENTENCE_ROW)
#undef SENTENCE_ROW
};

const char *kiln__env_name_text(kiln__env_name name) { return names[name]; }
const char *kiln__env_sentence(kiln__env_name name) { return sentences[name]; }

static int is_known(const char *name, size_t length) {
  for (int i = 0; i < KILN__ENV_COUNT; i++)
    if (strlen(names[i]) == length && memcmp(names[i], name, length) == 0) return 1;
  return 0;
}

static void note_unknown(kiln__env *env) {
  for (char **entry = environ; entry && *entry; entry++) {
    size_t length = strcspn(*entry, "=");
    if (strncmp(*entry, "KILN_", 5) != 0 || is_known(*entry, length)) continue;
    kiln__text_append(&env->unknown, *entry, length);
    kiln__text_string(&env->unknown, "\n");
  }
}

int kiln__env_read(kiln__env *env) {
  memset(env, 0, sizeof *env);
  kiln__text_init(&env->unknown, 4096);
  for (int i = 0; i < KILN__ENV_COUNT; i++) {
    const char *value = getenv(names[i]);
    if (!value) continue;
    env->values[i] = strdup(value);
    if (!env->values[i]) {
      kiln__env_free(env);
      return -1;
    }
  }
  note_unknown(env);
  return 0;
}

void kiln__env_free(kiln__env *env) {
  for (int i = 0; i < KILN__ENV_COUNT; i++) free(env->values[i]);
  kiln__text_free(&env->unknown);
  memset(env, 0, sizeof *env);
}

const char *kiln__env_get(const kiln__env *env, kiln__env_name name) {
  const char *value = env->values[name];
  return value && value[0] ? value : NULL;
}
