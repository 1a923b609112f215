/* Loaded kernels: from a binary to a module on the device, and launches of it.
 * A kernel is read-only once it is loaded, so launches take no lock. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/objects.h"

#define SENTENCE_SIZE 16384 /* bytes, on the stack: the emulator's reports have many lines */

/* Machine code runs on the compute capability that it was made for; the code of the device's best
 * arch is that, also where the device is a later minor version. The emulator runs every arch. */
kiln_status kiln__check_arch(kiln_context *ctx, const char *arch) {
  const kiln_device_info *info = &ctx->info;
  char exact[16];
  if (ctx->device_id < 0) return KILN_OK;
  snprintf(exact, sizeof exact, "sm_%d%d", (int)info->compute_major, (int)info->compute_minor);
  if (strcmp(arch, info->arch) == 0 || strcmp(arch, exact) == 0) return KILN_OK;
  if (!info->arch[0])
    return kiln__context_fail(
        ctx, KILN_MISMATCH,
        "the kernel is for %s, and there are no kernels for this device (%s, compute "
        "capability %d.%d)",
        arch, info->name, (int)info->compute_major, (int)info->compute_minor);
  return kiln__context_fail(
      ctx, KILN_MISMATCH,
      "the kernel is for %s and the device (%s) has compute capability %d.%d: make "
      "it for %s",
      arch, info->name, (int)info->compute_major, (int)info->compute_minor, info->arch);
}

static kiln_status load(kiln_context *ctx, const kiln_binary *binary, kiln_kernel *kernel,
                        kiln__text *error) {
  kiln__entry_attributes attributes;
  kiln_status status = ctx->ops->module_load(ctx->device, binary->item.image,
                                             binary->item.image_size, error, &kernel->module);
  for (int i = 0; i < kernel->record.num_entries && status == KILN_OK; i++) {
    const kiln__entry *entry = &kernel->record.entries[i];
    status = ctx->ops->entry_get(ctx->device, kernel->module, entry->name, &entry->shape, error,
                                 &kernel->loaded.entries[i], &attributes);
  }
  return status;
}

kiln_status kiln_kernel_load(kiln_context *ctx, const kiln_binary *binary, kiln_kernel **out) {
  char sentence[SENTENCE_SIZE];
  kiln__text error;
  if (!out) return kiln__context_null(ctx);
  *out = NULL;
  kiln_status status = kiln__context_need_device(ctx);
  if (status != KILN_OK) return status;
  if (!binary) return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT, "binary is NULL");
  if (binary->for_emulator != (ctx->device_id == KILN_DEVICE_EMU))
    return kiln__context_fail(
        ctx, KILN_MISMATCH,
        "the kernel was compiled for another kind of device: compile it with this "
        "context");
  status = kiln__check_arch(ctx, binary->record.spec.arch);
  if (status != KILN_OK) return status;
  kiln_kernel *kernel = calloc(1, sizeof *kernel);
  if (!kernel) return kiln__context_fail(ctx, KILN_OUT_OF_MEMORY, "no memory is left for a kernel");
  kernel->ctx = ctx;
  kernel->record = binary->record;
  kernel->loaded.ops = ctx->ops;
  kernel->loaded.device = ctx->device;
  kernel->loaded.num_sms = ctx->info.num_sms;
  kernel->loaded.record = &kernel->record;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  status = load(ctx, binary, kernel, &error);
  if (status == KILN_OK) {
    *out = kernel;
    return KILN_OK;
  }
  kiln_kernel_destroy(kernel);
  return kiln__context_fail_text(ctx, status, &error);
}

kiln_status kiln__take_args(kiln_context *ctx, const kiln_attn_args *from, kiln_attn_args *args) {
  const size_t oldest = offsetof(kiln_attn_args, dout);
  *args = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  if (from && kiln__copy_sized(args, sizeof *args, from, oldest) == 0) return KILN_OK;
  return kiln__context_fail(
      ctx, KILN_INVALID_ARGUMENT,
      "args.size is not sizeof(kiln_attn_args): start from KILN_ATTN_ARGS_INIT");
}

kiln_status kiln__take_pass_args(kiln_context *ctx, kiln_pass pass, const kiln_attn_args *from,
                                 kiln_attn_args *args) {
  kiln_status status = kiln__take_args(ctx, from, args);
  if (status != KILN_OK || pass == KILN_PASS_FORWARD || from->size >= sizeof *args) return status;
  return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                            "args.size has no room for dout, dq, dk and dv: compile with the "
                            "header of this version");
}

kiln_status kiln_kernel_workspace(const kiln_kernel *kernel, const kiln_attn_args *given,
                                  size_t *bytes) {
  char sentence[1024];
  kiln__text error;
  kiln_attn_args args;
  if (!kernel || !bytes) return kiln__context_null(kernel ? kernel->ctx : NULL);
  *bytes = 0;
  const kiln_pass pass = kernel->record.spec.pass;
  kiln_status status = kiln__take_pass_args(kernel->ctx, pass, given, &args);
  if (status != KILN_OK) return status;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  status = kiln__launch_check(&kernel->record, &args, 1, &error);
  if (status == KILN_OK) status = kiln__launch_workspace(&kernel->record, &args, &error, bytes);
  return status == KILN_OK ? status : kiln__context_fail_text(kernel->ctx, status, &error);
}

kiln_status kiln_kernel_launch(kiln_kernel *kernel, const kiln_attn_args *given,
                               struct CUstream_st *stream) {
  char sentence[SENTENCE_SIZE];
  kiln__text error;
  kiln_attn_args args;
  if (!kernel) return KILN_INVALID_ARGUMENT;
  const kiln_pass pass = kernel->record.spec.pass;
  kiln_status status = kiln__context_enter(kernel->ctx);
  if (status == KILN_OK) status = kiln__take_pass_args(kernel->ctx, pass, given, &args);
  if (status != KILN_OK) return status;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  status = kiln__launch_run(&kernel->loaded, &args, stream, &error);
  return status == KILN_OK ? status : kiln__context_fail_text(kernel->ctx, status, &error);
}

void kiln_kernel_destroy(kiln_kernel *kernel) {
  if (!kernel) return;
  /* In a child after fork the module belongs to the parent. */
  if (kernel->module && kiln__context_enter(kernel->ctx) == KILN_OK)
    kernel->loaded.ops->module_unload(kernel->loaded.device, kernel->module);
  free(kernel);
}
