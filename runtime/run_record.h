/* KILN_RECORD: the problems of a run, for `kiln pack build --from` and `kiln tune --problems`.
 *
 * Invariant: each spec and shape is one line, written once by a context, whole, by one write; what
 * cannot be written is one warning and no failure. Plans call it when they are made: no launch
 * does. */
#ifndef KILN_RUNTIME_RUN_RECORD_H
#define KILN_RUNTIME_RUN_RECORD_H

#include <pthread.h>

#include <kiln/kiln.h>

typedef struct kiln__run_problem kiln__run_problem;

typedef struct kiln__run_record {
  pthread_mutex_t lock;
  kiln__run_problem *written;
  int warned;
} kiln__run_record;

/* shape: NULL, or without queries, is no problem. */
void kiln__run_record_add(kiln_context *ctx, const kiln_attn_spec *spec,
                          const kiln_attn_args *shape);
void kiln__run_record_close(kiln__run_record *record);

#endif
