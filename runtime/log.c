/* Sentences for the caller: see log.h. */
#include "runtime/log.h"

#include <stdio.h>
#include <string.h>

#include "runtime/text.h"

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static void write_stderr(void *user, kiln_log_level level, const char *sentence) {
  (void)user;
  fprintf(stderr, "kiln: %s: %s\n", level_names[level], sentence);
}

void kiln__log_init(kiln__log *log, const kiln__env *env, kiln_log_fn *write, void *user) {
  const char *wanted = kiln__env_get(env, KILN__ENV_KILN_LOG);
  int known = 0;
  log->write = write ? write : write_stderr;
  log->user = user;
  log->level = write ? KILN_LOG_DEBUG : KILN_LOG_WARNING;
  for (int i = KILN_LOG_ERROR; wanted && i <= KILN_LOG_DEBUG; i++) {
    if (strcmp(wanted, level_names[i]) != 0) continue;
    log->level = (kiln_log_level)i;
    known = 1;
  }
  if (wanted && !known)
    kiln__log_print(log, KILN_LOG_WARNING,
                    "KILN_LOG is \"%s\": set it to error, warning, info or debug", wanted);
}

void kiln__log_print(const kiln__log *log, kiln_log_level level, const char *format, ...) {
  if (level > log->level) return;
  char buffer[1024];
  kiln__text text;
  va_list arguments;
  kiln__text_init_fixed(&text, buffer, sizeof buffer);
  va_start(arguments, format);
  kiln__text_vprintf(&text, format, arguments);
  va_end(arguments);
  log->write(log->user, level, buffer);
}
