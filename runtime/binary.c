/* From a source to a compiled kernel: the cache first, then the compiler. What is published has
 * been checked: its record parses and names the arch that was asked for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/compiler.h"
#include "runtime/identity.h"
#include "runtime/missing.h"
#include "runtime/objects.h"

#define LOCK_WAIT_MS 60000 /* longer than any compile; afterwards a kernel is compiled twice */

/* ---- what the compiler said, fresh or from the cache ---- */

static void sum_resources(kiln_binary *binary, const kiln__compiled *compiled) {
  for (int i = 0; i < compiled->num_entries; i++) {
    const kiln__entry_resources *found = &compiled->entries[i];
    binary->spill_bytes += found->spill_bytes;
    if (found->registers > binary->registers) binary->registers = found->registers;
    for (int e = 0; e < binary->record.num_entries; e++) {
      const kiln__entry *entry = &binary->record.entries[e];
      int64_t shared = entry->shape.shared_bytes + found->static_bytes;
      if (strcmp(entry->name, found->name) == 0 && shared > binary->shared_bytes)
        binary->shared_bytes = shared;
    }
  }
}

kiln_status kiln__binary_take_resources(kiln_binary *binary, kiln__compiled *compiled) {
  sum_resources(binary, compiled);
  binary->notes = compiled->notes ? compiled->notes : strdup("");
  compiled->notes = NULL;
  return binary->notes ? KILN_OK : KILN_OUT_OF_MEMORY;
}

/* The binary's record is the source's with the compiler's numbers, also for a kernel from the
 * cache: what a launch needs always comes from the generator that runs now. */
static kiln_status adopt(kiln_binary *binary, const kiln_source *source, kiln__compiled *compiled,
                         kiln__text *error) {
  const char *plain = source->generated.record;
  kiln_status status = kiln__record_parse(plain, strlen(plain), error, &binary->record);
  if (status == KILN_OK && strcmp(binary->record.spec.arch, source->spec.arch) != 0) {
    kiln__text_printf(error, "the launch record is for %s and the kernel for %s",
                      binary->record.spec.arch, source->spec.arch);
    status = KILN_INTERNAL;
  }
  if (status != KILN_OK) return status;
  free(binary->item.record);
  status = kiln__record_complete(plain, compiled, error, &binary->item.record);
  return status == KILN_OK ? kiln__binary_take_resources(binary, compiled) : status;
}

static kiln_status adopt_cached(kiln_binary *binary, const kiln_source *source, kiln__text *error) {
  kiln__compiled compiled;
  kiln__record_resources(binary->item.record, &compiled);
  kiln_status status = adopt(binary, source, &compiled, error);
  free(compiled.notes);
  return status;
}

/* ---- compiling ---- */

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static kiln_status compile(kiln_context *ctx, const kiln_source *source, kiln_binary *binary,
                           kiln__text *error) {
  kiln__compiled compiled;
  double start = now_ms();
  kiln_status status = kiln__compiler_ops_of(ctx)->compile(ctx->compiler, source->generated.text,
                                                           source->generated.length,
                                                           source->spec.arch, &compiled, error);
  if (status != KILN_OK) return status;
  binary->compile_ms = now_ms() - start;
  binary->item.image = compiled.image;
  binary->item.image_size = compiled.image_size;
  binary->item.ptx = compiled.ptx;
  binary->item.ptx_length = compiled.ptx_length;
  status = adopt(binary, source, &compiled, error);
  free(compiled.notes);
  return status;
}

static kiln_status refuse_missing(const kiln_source *source, kiln__text *error) {
  kiln__missing_kernel(error, &source->spec, &source->tile,
                       source->for_emulator ? KILN__MISSING_ON_EMULATOR : KILN__MISSING_JIT_OFF);
  return KILN_MISSING_KERNEL;
}

/* The kernel is not in the cache, as the opened compiler would name it. */
static kiln_status compile_locked(kiln_context *ctx, const kiln_source *source, kiln_binary *binary,
                                  kiln__text *error) {
  if (ctx->compile_off || binary->at_hand) return refuse_missing(source, error);
  int lock = kiln__cache_lock(&ctx->cache, binary->kernel_id, LOCK_WAIT_MS);
  /* Another process may have compiled it while this one waited. */
  if (lock >= 0)
    binary->from_cache =
        kiln__cache_load(&ctx->cache, binary->kernel_id, binary->wants_ptx, &binary->item);
  kiln_status status = binary->from_cache ? adopt_cached(binary, source, error)
                                          : compile(ctx, source, binary, error);
  if (status == KILN_OK && !binary->from_cache)
    kiln__cache_store(&ctx->cache, binary->kernel_id, binary->identity, &binary->item);
  kiln__cache_unlock(lock);
  return status;
}

/* The identity of what this compiler would make, and its digest. */
static kiln_status identify(const kiln_source *source, const kiln__compiler_identity *compiler,
                            kiln_binary *binary, kiln__text *error) {
  kiln__record record;
  kiln_status status = kiln__record_parse(source->generated.record,
                                          strlen(source->generated.record), error, &record);
  if (status != KILN_OK) return status;
  json_decref(binary->identity);
  binary->identity =
      kiln__identity_make(source->generated.source_id, source->spec.arch, record.layout, compiler);
  if (binary->identity && kiln__identity_digest(binary->identity, binary->kernel_id) == 0)
    return KILN_OK;
  kiln__text_string(error, "no memory is left for a kernel's identity");
  return KILN_OUT_OF_MEMORY;
}

/* Looks for the kernel that this compiler would make, and compiles it only where `opened` says that
 * the identity comes from the compiler itself. */
static kiln_status find(kiln_context *ctx, const kiln_source *source,
                        const kiln__compiler_identity *compiler, int opened, kiln_binary *binary,
                        kiln__text *error) {
  kiln_status status = identify(source, compiler, binary, error);
  if (status != KILN_OK) return status;
  binary->from_cache =
      kiln__cache_load(&ctx->cache, binary->kernel_id, binary->wants_ptx, &binary->item);
  if (binary->from_cache) return adopt_cached(binary, source, error);
  return opened ? compile_locked(ctx, source, binary, error) : KILN_OK;
}

static kiln_status make(kiln_context *ctx, const kiln_source *source, unsigned flags,
                        kiln__text *error, kiln_binary **out) {
  kiln__compiler_identity compiler;
  kiln_status status = KILN_OK;
  kiln_binary *binary = calloc(1, sizeof *binary);
  if (!binary) return KILN_OUT_OF_MEMORY;
  binary->for_emulator = source->for_emulator;
  binary->wants_ptx = (flags & KILN__WANTS_PTX) != 0;
  binary->at_hand = (flags & KILN__AT_HAND) != 0;
  if (kiln__compiler_recall(ctx, &compiler))
    status = find(ctx, source, &compiler, 0, binary, error);
  if (status == KILN_OK && !binary->from_cache) {
    status = kiln__compiler_identify(ctx, source->spec.arch, &compiler, error);
    if (status == KILN_NO_COMPILER && (ctx->compile_off || binary->at_hand)) { /* none is wanted */
      kiln__text_clear(error);
      status = refuse_missing(source, error);
    }
    if (status == KILN_OK)
      status = find(ctx, source, &compiler, source->generated.text != NULL, binary, error);
  }
  if (status == KILN_OK && binary->item.image)
    *out = binary;
  else
    kiln_binary_destroy(binary);
  return status;
}

kiln_status kiln__binary_make(kiln_context *ctx, const kiln_source *source, unsigned flags,
                              kiln_binary **out) {
  kiln__text error;
  if (!out) return kiln__context_null(ctx);
  *out = NULL;
  kiln_status status = kiln__context_enter(ctx);
  if (status != KILN_OK) return status;
  if (!source) return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT, "source is NULL");
  if (source->is_launcher)
    return kiln__context_fail(ctx, KILN_INVALID_ARGUMENT,
                              "the source is a launcher, which a C compiler takes: generate the "
                              "kernel without KILN_GENERATE_LAUNCHER");
  if (source->for_emulator != (ctx->device_id == KILN_DEVICE_EMU))
    return kiln__context_fail(
        ctx, KILN_INVALID_ARGUMENT,
        "the source was generated for another kind of device: generate it with this "
        "context");
  kiln__text_init(&error, 256 * 1024);
  status = make(ctx, source, flags, &error, out);
  if (status != KILN_OK) kiln__context_fail_text(ctx, status, &error);
  kiln__text_free(&error);
  return status;
}

kiln_status kiln_binary_compile(kiln_context *ctx, const kiln_source *source, kiln_binary **out) {
  return kiln__binary_make(ctx, source, KILN__WANTS_PTX, out);
}

void kiln_binary_get_info(const kiln_binary *binary, kiln_binary_info *info) {
  const kiln_binary_info whole = {
      .size = sizeof whole,
      .kernel_id = binary->kernel_id,
      .record = binary->item.record,
      .registers = binary->registers,
      .spill_bytes = binary->spill_bytes,
      .shared_bytes = binary->shared_bytes,
      .compile_ms = binary->compile_ms,
      .from_cache = binary->from_cache,
      .notes = binary->notes,
  };
  kiln__info_copy(info, &whole, sizeof whole);
}

const void *kiln_binary_image(const kiln_binary *binary, size_t *size) {
  if (size) *size = binary->item.image_size;
  return binary->item.image;
}

const char *kiln_binary_ptx(const kiln_binary *binary, size_t *length) {
  if (length) *length = binary->item.ptx_length;
  return binary->item.ptx;
}

void kiln_binary_destroy(kiln_binary *binary) {
  if (!binary) return;
  kiln__cache_item_free(&binary->item);
  json_decref(binary->identity);
  free(binary->notes);
  free(binary);
}
