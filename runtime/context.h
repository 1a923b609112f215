/* The context as the runtime sees it: what every file of the runtime may reach.
 *
 * Fields are set by kiln_context_create and read-only afterwards, except those under `lock`. The
 * generator (one Lua state) and the compiler are opened at their first use. */
#ifndef KILN_RUNTIME_CONTEXT_H
#define KILN_RUNTIME_CONTEXT_H

#include <pthread.h>
#include <sys/types.h>

#include <kiln/kiln.h>

#include "runtime/cache.h"
#include "runtime/device.h"
#include "runtime/env.h"
#include "runtime/ladder.h"
#include "runtime/log.h"
#include "runtime/packs.h"
#include "runtime/run_record.h"
#include "runtime/services.h"

/* One per thread and context: the last failure, and the JSON that the last call gave out. */
typedef struct kiln__thread_slot {
  struct kiln__thread_slot *next;
  struct kiln_context *ctx;
  kiln__text error;
  char *json;
} kiln__thread_slot;

struct kiln_context {
  pid_t pid; /* of the process that made it: a fork may not use it */
  int device_id;
  kiln__env env;
  kiln__log log;
  kiln__services services;
  kiln__cache cache;
  char *template_dir; /* NULL = embedded */
  int compile_off;    /* KILN_JIT=off, or the options */
  int no_line_info;
  kiln__packs packs;
  kiln__ladder ladder;

  const kiln__device_ops *ops; /* NULL for KILN_DEVICE_NONE */
  void *device;
  kiln_device_info info;

  pthread_mutex_t generator_lock; /* held during every call of the generator */
  void *generator;
  char *schema;

  pthread_mutex_t compiler_lock; /* held while the compiler is opened */
  void *compiler;
  struct kiln__compiler_note *compiler_note; /* what the cache remembers of it; compiler.c */

  pthread_key_t thread_key;
  pthread_mutex_t thread_lock; /* guards the list of slots */
  kiln__thread_slot *thread_slots;

  pthread_rwlock_t plan_lock; /* guards the one-call plans */
  struct kiln__plan_row *plans;
  kiln__run_record run_record;

  pthread_mutex_t tuner_lock; /* held during a tuning */
  void *tuner;                /* what the autotuner keeps from one to the next */
};

/* error.c. kiln__context_fail keeps the sentence for kiln_last_error and returns the status. */
int kiln__error_open(kiln_context *ctx); /* 0, or -1 when no thread key is left */
void kiln__error_close(kiln_context *ctx);
kiln_status kiln__context_fail(kiln_context *ctx, kiln_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* INVALID_ARGUMENT: an address or a struct that the call needs was not given. ctx may be NULL. */
kiln_status kiln__context_null(kiln_context *ctx);
kiln_status kiln__context_fail_text(kiln_context *ctx, kiln_status status,
                                    const kiln__text *sentence);
/* Gives a malloc'd JSON text to the calling thread's slot, which frees it later. */
kiln_status kiln__give_json(kiln_context *ctx, char *text, const char **json);

/* INVALID_ARGUMENT for no context, FORKED in a child of the process that made it. */
kiln_status kiln__context_enter(kiln_context *ctx);
/* The same, and NO_DRIVER or NO_DEVICE where the context has no device. */
kiln_status kiln__context_need_device(kiln_context *ctx);

/* generate.c */
kiln_status kiln__context_resolve(kiln_context *ctx, kiln_attn_spec *spec, kiln_tile *tile);
/* The digest of the files that the generator renders from; 0 where they may change, or there is no
 * generator. */
int kiln__context_templates(kiln_context *ctx, char stamp[KILN__ID_SIZE]);
void kiln__generate_close(kiln_context *ctx);

/* compiler.c */
void kiln__compiler_close(kiln_context *ctx);

/* call.c: destroys the plans that the calls of one step keep */
void kiln__call_close(kiln_context *ctx);

/* Copies a struct that the caller filled and that begins with its size, however old or new its
 * header is. 0, or -1 when its size is none. */
int kiln__copy_sized(void *to, size_t to_size, const void *from, size_t oldest_size);

#endif
