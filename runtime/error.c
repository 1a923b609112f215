/* The last failure of every thread on a context, and the JSON texts given out. A thread's slot is
 * made at its first failure (never on a path that succeeds), freed when the thread or the context
 * ends. Called from every file of the runtime. */
#include "runtime/context.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_LIMIT (256 * 1024) /* bytes: a compiler's message may be long */

static void free_slot(kiln__thread_slot *slot) {
  kiln__text_free(&slot->error);
  free(slot->json);
  free(slot);
}

static void thread_ends(void *value) {
  kiln__thread_slot *slot = value;
  kiln_context *ctx = slot->ctx;
  pthread_mutex_lock(&ctx->thread_lock);
  for (kiln__thread_slot **at = &ctx->thread_slots; *at; at = &(*at)->next) {
    if (*at != slot) continue;
    *at = slot->next;
    break;
  }
  pthread_mutex_unlock(&ctx->thread_lock);
  free_slot(slot);
}

int kiln__error_open(kiln_context *ctx) {
  if (pthread_key_create(&ctx->thread_key, thread_ends) != 0) return -1;
  pthread_mutex_init(&ctx->thread_lock, NULL);
  return 0;
}

void kiln__error_close(kiln_context *ctx) {
  pthread_key_delete(ctx->thread_key);
  while (ctx->thread_slots) {
    kiln__thread_slot *slot = ctx->thread_slots;
    ctx->thread_slots = slot->next;
    free_slot(slot);
  }
  pthread_mutex_destroy(&ctx->thread_lock);
}

/* NULL without memory: the failure then has a status and no sentence. */
static kiln__thread_slot *get_slot(kiln_context *ctx) {
  kiln__thread_slot *slot = pthread_getspecific(ctx->thread_key);
  if (slot) return slot;
  slot = calloc(1, sizeof *slot);
  if (!slot) return NULL;
  slot->ctx = ctx;
  kiln__text_init(&slot->error, ERROR_LIMIT);
  if (pthread_setspecific(ctx->thread_key, slot) != 0) {
    free(slot);
    return NULL;
  }
  pthread_mutex_lock(&ctx->thread_lock);
  slot->next = ctx->thread_slots;
  ctx->thread_slots = slot;
  pthread_mutex_unlock(&ctx->thread_lock);
  return slot;
}

kiln_status kiln__context_fail(kiln_context *ctx, kiln_status status, const char *format, ...) {
  kiln__thread_slot *slot = get_slot(ctx);
  if (!slot) return status;
  va_list arguments;
  kiln__text_clear(&slot->error);
  va_start(arguments, format);
  kiln__text_vprintf(&slot->error, format, arguments);
  va_end(arguments);
  return status;
}

kiln_status kiln__context_fail_text(kiln_context *ctx, kiln_status status,
                                    const kiln__text *sentence) {
  const char *text = kiln__text_get(sentence);
  return kiln__context_fail(ctx, status, "%s", text[0] ? text : kiln_status_text(status));
}

kiln_status kiln__context_null(kiln_context *ctx) {
  if (!ctx) return KILN_INVALID_ARGUMENT;
  return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                            "an argument that the call needs is NULL or was not made by its _INIT");
}

const char *kiln_last_error(const kiln_context *ctx) {
  if (!ctx) return "";
  const kiln__thread_slot *slot = pthread_getspecific(ctx->thread_key);
  return slot ? kiln__text_get(&slot->error) : "";
}

kiln_status kiln__give_json(kiln_context *ctx, char *text, const char **json) {
  kiln__thread_slot *slot = text ? get_slot(ctx) : NULL;
  if (!slot) {
    free(text);
    return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a report");
  }
  free(slot->json);
  slot->json = text;
  *json = text;
  return KILN_OK;
}
