/* The program kiln-measure as a process of its own: found, started, asked, ended.
 *
 * Invariant: it is started by posix_spawn from its installed place alone (beside our own object
 * file, never by PATH, never by a fork, which CUDA does not survive), with no descriptor but the
 * one that it is asked through. Whatever it does, a question ends within its limit, and no signal
 * reaches the host. Used by child.c. */
#ifndef KILN_AUTOTUNE_PROCESS_H
#define KILN_AUTOTUNE_PROCESS_H

#include <jansson.h>
#include <sys/types.h>

#include <kiln/kiln.h>

#define KILN__ANSWER_LIMIT (1 << 16) /* bytes of a line */

typedef struct kiln__process {
  pid_t pid; /* 0 = none runs */
  int fd;
  char *bytes; /* of the answer that is under way */
  size_t length;
} kiln__process;

/* malloc'd path of the installed program; NULL without memory, or where our own object has none. */
char *kiln__process_place(void);

/* Errors: UNSUPPORTED (there is no such program, or it cannot be started), OUT_OF_MEMORY; and a
 * sentence. */
kiln_status kiln__process_start(kiln__process *process, const char *program, char *error,
                                size_t error_size);

/* Asks by one line and waits for one. NULL, or why there is no answer: too late, the program ended,
 * or what it said is no JSON object. Then it has to be ended. `why` is cut to its size. */
json_t *kiln__process_ask(kiln__process *process, const json_t *question, int limit_ms, char *why,
                          size_t why_size);

/* Kills and reaps it. Harmless where none runs; in a fork of the host it only lets go of it. */
void kiln__process_end(kiln__process *process);

#endif
