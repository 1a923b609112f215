/* Creating and destroying contexts, and the questions every public function asks first.
 * A context is complete or not there: a failure undoes what was done, in reverse order. */
#include "runtime/context.h"

#include <jansson.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cuda.h"
#include "runtime/objects.h"

#define LARGEST_STRUCT 4096 /* bytes: a size beyond it was never set by an initialiser */

int kiln__copy_sized(void *to, size_t to_size, const void *from, size_t oldest_size) {
  size_t size;
  memcpy(&size, from, sizeof size);
  if (size < oldest_size || size > LARGEST_STRUCT) return -1;
  /* A newer caller may set fields that this library does not know; ignoring them would be wrong. */
  for (size_t i = to_size; i < size; i++)
    if (((const char *)from)[i]) return -1;
  memcpy(to, from, size < to_size ? size : to_size);
  memcpy(to, &to_size, sizeof to_size);
  return 0;
}

static kiln_status refuse(const kiln_context_options *options, kiln_status status,
                          const char *sentence) {
  if (options->error && options->error_size)
    snprintf(options->error, options->error_size, "%s", sentence);
  return status;
}

static void warn_unknown(kiln_context *ctx) {
  const char *name = kiln__text_get(&ctx->env.unknown);
  for (size_t length = strcspn(name, "\n"); name[0]; length = strcspn(name, "\n")) {
    kiln__log_print(&ctx->log, KILN_LOG_WARNING,
                    "%.*s is no variable that Kiln knows: `kiln doctor` lists them", (int)length,
                    name);
    name += length + (name[length] == '\n');
  }
}

/* Options and environment: what needs no device. 0, or -1 without memory. */
static int configure(kiln_context *ctx, const kiln_context_options *options) {
  if (kiln__env_read(&ctx->env) != 0) return -1;
  kiln__log_init(&ctx->log, &ctx->env, options->log, options->log_user);
  warn_unknown(ctx);
  const char *jit = kiln__env_get(&ctx->env, KILN__ENV_KILN_JIT);
  ctx->compile_off = options->jit_off || (jit && strcmp(jit, "off") == 0);
  if (jit && strcmp(jit, "off") != 0 && strcmp(jit, "on") != 0)
    kiln__log_print(&ctx->log, KILN_LOG_WARNING, "KILN_JIT is \"%s\": set it to on or off", jit);
  kiln__ladder_configure(&ctx->ladder, &ctx->env, &ctx->log);
  const char *templates = options->template_dir
                              ? options->template_dir
                              : kiln__env_get(&ctx->env, KILN__ENV_KILN_TEMPLATE_DIR);
  if (templates && !(ctx->template_dir = strdup(templates))) return -1;
  if (kiln__cache_open(&ctx->cache, options->cache_dir, &ctx->env, &ctx->log) != 0) return -1;
  ctx->cache.read_only = options->cache_read_only != 0;
  ctx->no_line_info = options->no_line_info != 0;
  return 0;
}

static kiln_status open_device(kiln_context *ctx, const kiln_context_options *options,
                               kiln__text *error) {
  kiln__device_options device = {ctx->device_id, &ctx->env, options->emu_seed,
                                 options->emu_schedule ? options->emu_schedule : "late",
                                 options->emu_starve};
  ctx->info.size = sizeof ctx->info;
  if (ctx->device_id == KILN_DEVICE_NONE) return KILN_OK;
  ctx->ops = ctx->device_id == KILN_DEVICE_EMU ? ctx->services.emulator : &kiln__cuda_ops;
  if (!ctx->ops) {
    kiln__text_string(error, "this library holds no emulator: link libkiln in place of libkiln_rt");
    return KILN_UNSUPPORTED;
  }
  kiln_status status = ctx->ops->open(&device, error, &ctx->device);
  if (status == KILN_OK) status = ctx->ops->info(ctx->device, &ctx->info, error);
  return status;
}

static void release(kiln_context *ctx) {
  if (ctx->device) ctx->ops->close(ctx->device);
  kiln__cache_close(&ctx->cache);
  kiln__env_free(&ctx->env);
  free(ctx->template_dir);
  free(ctx);
}

/* jansson seeds the order in which it hashes keys from /dev/urandom, unless it is told to begin
 * with; a production run opens nothing but the driver and the packs. */
static void seed_keys(void) { json_object_seed(randombytes_random() | 1); }

static int start_libraries(void) {
  /* The one state that all contexts share, because jansson's is: written once. */
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (sodium_init() < 0) return -1;
  return pthread_once(&once, seed_keys);
}

kiln_status kiln_context_create(int device, const kiln_context_options *given, kiln_context **out) {
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  char sentence[2048];
  kiln__text error;
  if (!out) return KILN_INVALID_ARGUMENT;
  *out = NULL;
  const size_t oldest = offsetof(kiln_context_options, jit_off);
  if (given && kiln__copy_sized(&options, sizeof options, given, oldest) != 0)
    return KILN_INVALID_ARGUMENT;
  if (device < KILN_DEVICE_EMU)
    return refuse(&options, KILN_INVALID_ARGUMENT,
                  "device must be a CUDA ordinal, KILN_DEVICE_NONE or KILN_DEVICE_EMU");
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  kiln_context *ctx = calloc(1, sizeof *ctx);
  if (!ctx) return refuse(&options, KILN_OUT_OF_MEMORY, "no memory is left for a context");
  ctx->pid = getpid();
  ctx->device_id = device;
  kiln__services_fill(&ctx->services);
  kiln_status status = KILN_OUT_OF_MEMORY;
  kiln__text_string(&error, "no memory is left for a context");
  if (start_libraries() != 0 || configure(ctx, &options) != 0) goto fail;
  kiln__text_clear(&error);
  status = open_device(ctx, &options, &error);
  if (status != KILN_OK) goto fail;
  status = KILN_OUT_OF_MEMORY;
  kiln__text_string(&error, "this process has no thread key left (PTHREAD_KEYS_MAX contexts)");
  if (kiln__error_open(ctx) != 0) goto fail;
  pthread_mutex_init(&ctx->generator_lock, NULL);
  pthread_mutex_init(&ctx->compiler_lock, NULL);
  pthread_rwlock_init(&ctx->plan_lock, NULL);
  pthread_mutex_init(&ctx->packs.lock, NULL);
  pthread_mutex_init(&ctx->ladder.lock, NULL);
  pthread_mutex_init(&ctx->ladder.measure_lock, NULL);
  pthread_mutex_init(&ctx->run_record.lock, NULL);
  pthread_mutex_init(&ctx->tuner_lock, NULL);
  *out = ctx;
  return KILN_OK;
fail:
  release(ctx);
  return refuse(&options, status, sentence);
}

void kiln_context_destroy(kiln_context *ctx) {
  if (!ctx) return;
  /* In a child after fork the driver's state is not ours to close. */
  if (ctx->pid != getpid()) ctx->device = NULL;
  if (ctx->tuner) ctx->services.tuner->close(ctx->tuner);
  pthread_mutex_destroy(&ctx->tuner_lock);
  kiln__call_close(ctx);
  kiln__ladder_close(ctx);
  kiln__generate_close(ctx);
  kiln__compiler_close(ctx);
  kiln__packs_close(&ctx->packs);
  pthread_mutex_destroy(&ctx->packs.lock);
  kiln__run_record_close(&ctx->run_record);
  pthread_mutex_destroy(&ctx->run_record.lock);
  pthread_rwlock_destroy(&ctx->plan_lock);
  pthread_mutex_destroy(&ctx->compiler_lock);
  pthread_mutex_destroy(&ctx->generator_lock);
  kiln__error_close(ctx);
  release(ctx);
}

kiln_status kiln__context_enter(kiln_context *ctx) {
  if (!ctx) return KILN_INVALID_ARGUMENT;
  if (ctx->pid == getpid()) return KILN_OK;
  return kiln__context_fail(
      ctx, KILN_FORKED, "the context was created before a fork: create one in the child process");
}

kiln_status kiln__context_need_device(kiln_context *ctx) {
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK || ctx->ops) return status;
  return kiln__context_fail(
      ctx, KILN_NO_DEVICE,
      "the context has no device: create it with a CUDA ordinal or KILN_DEVICE_EMU");
}

void kiln__info_copy(void *info, const void *whole, size_t size) {
  size_t *room = info;
  if (!room || *room <= sizeof *room) return;
  size_t count = *room < size ? *room : size;
  memcpy(room + 1, (const char *)whole + sizeof *room, count - sizeof *room);
}

kiln_status kiln_context_device(kiln_context *ctx, kiln_device_info *info) {
  kiln_status status = kiln__context_need_device(ctx);
  if (status != KILN_OK) return status;
  if (!info || info->size < sizeof info->size)
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                              "info.size must be sizeof(kiln_device_info)");
  kiln__info_copy(info, &ctx->info, sizeof ctx->info);
  return KILN_OK;
}
