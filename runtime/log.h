/* Sentences for the caller: to its function, or to stderr. Sentences below the level cost nothing.
 * A logger is read-only after kiln__log_init, so any thread may use it. */
#ifndef KILN_RUNTIME_LOG_H
#define KILN_RUNTIME_LOG_H

#include <kiln/kiln.h>

#include "runtime/env.h"

typedef struct kiln__log {
  kiln_log_fn *write;
  void *user;
  kiln_log_level level; /* sentences above it are dropped */
} kiln__log;

/* write NULL = stderr, down to warnings, or as far as KILN_LOG says. */
void kiln__log_init(kiln__log *log, const kiln__env *env, kiln_log_fn *write, void *user);
void kiln__log_print(const kiln__log *log, kiln_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
