/* Device memory and synchronisation: the public functions over the device's table. */
#include "runtime/context.h"

/* What every function here does after its call of the device. */
static kiln_status finish(kiln_context *ctx, kiln_status status, const kiln__text *error) {
  return status == KILN_OK ? status : kiln__context_fail_text(ctx, status, error);
}

kiln_status kiln_memory_alloc(kiln_context *ctx, size_t bytes, void **address) {
  char sentence[1024];
  kiln__text error;
  if (!address) return kiln__context_null(ctx);
  *address = NULL;
  kiln_status status = kiln__context_need_device(ctx);
  if (status != KILN_OK) return status;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  /* The driver refuses 0 bytes, and a tensor may be empty. */
  status = ctx->ops->memory_alloc(ctx->device, bytes ? bytes : 1, address, &error);
  return finish(ctx, status, &error);
}

kiln_status kiln_memory_free(kiln_context *ctx, void *address) {
  char sentence[1024];
  kiln__text error;
  kiln_status status = kiln__context_need_device(ctx);
  if (status != KILN_OK || !address) return status;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  return finish(ctx, ctx->ops->memory_free(ctx->device, address, &error), &error);
}

static kiln_status check_copy(kiln_context *ctx, const void *to, const void *from, size_t bytes) {
  kiln_status status = kiln__context_need_device(ctx);
  if (status != KILN_OK || bytes == 0 || (to && from)) return status;
  return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT, "an address of a copy is NULL");
}

kiln_status kiln_memory_upload(kiln_context *ctx, void *to, const void *from, size_t bytes) {
  char sentence[1024];
  kiln__text error;
  kiln_status status = check_copy(ctx, to, from, bytes);
  if (status != KILN_OK || bytes == 0) return status;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  return finish(ctx, ctx->ops->upload(ctx->device, to, from, bytes, &error), &error);
}

kiln_status kiln_memory_download(kiln_context *ctx, void *to, const void *from, size_t bytes) {
  char sentence[1024];
  kiln__text error;
  kiln_status status = check_copy(ctx, to, from, bytes);
  if (status != KILN_OK || bytes == 0) return status;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  return finish(ctx, ctx->ops->download(ctx->device, to, from, bytes, &error), &error);
}

kiln_status kiln_context_synchronize(kiln_context *ctx) {
  char sentence[16384]; /* the emulator's reports have many lines */
  kiln__text error;
  kiln_status status = kiln__context_need_device(ctx);
  if (status != KILN_OK) return status;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  return finish(ctx, ctx->ops->synchronize(ctx->device, &error), &error);
}
