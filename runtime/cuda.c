/* A GPU as a device: opening it, its properties, its memory. The table at the end is what the
 * runtime sees. */
#include "runtime/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda_internal.h"

kiln__cu_result kiln__cuda_enter(const kiln__cuda *cuda, int relaxed, kiln__cuda_scope *scope) {
  void *current = NULL;
  scope->cuda = cuda;
  scope->pushed = 0;
  scope->mode = -1;
  kiln__cu_result result = cuda->driver.context_current(&current);
  if (result != 0) return result;
  if (current != cuda->primary) {
    result = cuda->driver.context_push(cuda->primary);
    if (result != 0) return result;
    scope->pushed = 1;
  }
  if (relaxed) {
    int mode = KILN__CU_CAPTURE_RELAXED;
    if (cuda->driver.capture_mode(&mode) == 0) scope->mode = mode;
  }
  return 0;
}

void kiln__cuda_leave(kiln__cuda_scope *scope) {
  void *popped;
  if (scope->mode >= 0) scope->cuda->driver.capture_mode(&scope->mode);
  if (scope->pushed) scope->cuda->driver.context_pop(&popped);
}

kiln_status kiln__cuda_done(kiln__cuda_scope *scope, kiln__cu_result result, const char *what,
                            kiln__text *error) {
  kiln__cuda_leave(scope);
  return result == 0 ? KILN_OK : kiln__driver_fail(&scope->cuda->driver, result, what, error);
}

/* ---- which arch runs where ---- */

/* Newest first: a device without a row of its own runs the next lower row of its major version,
 * because machine code runs on later minor versions; code for an "a" arch runs on its own version
 * alone. */
static const struct {
  int major, minor;
  const char *arch;
} arch_rows[] = {
    {12, 0, "sm_120"}, {9, 0, "sm_90a"}, {8, 9, "sm_89"}, {8, 6, "sm_86"}, {8, 0, "sm_80"},
};

const char *kiln__arch_best(int major, int minor) {
  for (size_t i = 0; i < sizeof arch_rows / sizeof arch_rows[0]; i++)
    if (arch_rows[i].major == major && arch_rows[i].minor <= minor) return arch_rows[i].arch;
  return "";
}

/* ---- opening ---- */

static void device_close(void *device) {
  kiln__cuda *cuda = device;
  if (cuda->primary) cuda->driver.primary_release(cuda->device);
  kiln__driver_close(&cuda->driver);
  free(cuda);
}

static kiln_status find_device(kiln__cuda *cuda, int ordinal, kiln__text *error) {
  int count = 0;
  kiln__cu_result result = cuda->driver.device_count(&count);
  if (result != 0)
    return kiln__driver_fail(&cuda->driver, result, "the devices cannot be counted", error);
  if (ordinal >= count) {
    kiln__text_printf(error, "device is %d: this machine has %d CUDA device%s, numbered from 0",
                      ordinal, count, count == 1 ? "" : "s");
    return KILN_NO_DEVICE;
  }
  result = cuda->driver.device_get(&cuda->device, ordinal);
  if (result == 0) result = cuda->driver.primary_retain(&cuda->primary, cuda->device);
  if (result == 0) return KILN_OK;
  return kiln__driver_fail(&cuda->driver, result, "the device cannot be opened", error);
}

static kiln_status device_open(const kiln__device_options *options, kiln__text *error,
                               void **device) {
  kiln__cuda *cuda = calloc(1, sizeof *cuda);
  if (!cuda) {
    kiln__text_string(error, "no memory is left for a device");
    return KILN_OUT_OF_MEMORY;
  }
  kiln_status status = kiln__driver_open(&cuda->driver, error);
  if (status == KILN_OK) {
    status = find_device(cuda, options->ordinal, error);
    if (status == KILN_OK) {
      *device = cuda;
      return KILN_OK;
    }
    kiln__driver_close(&cuda->driver);
  }
  free(cuda);
  return status;
}

static kiln__cu_result read_info(const kiln__driver *driver, int device, kiln_device_info *info) {
  int values[4];
  const int attributes[4] = {KILN__CU_SHARED_BYTES_BLOCK, KILN__CU_SHARED_BYTES_SM,
                             KILN__CU_L2_BYTES, KILN__CU_NUM_SMS};
  size_t memory;
  int major, minor;
  kiln__cu_result result = driver->device_name(info->name, sizeof info->name, device);
  for (int i = 0; i < 4 && result == 0; i++)
    result = driver->device_attribute(&values[i], attributes[i], device);
  if (result == 0) result = driver->device_attribute(&major, KILN__CU_COMPUTE_MAJOR, device);
  if (result == 0) result = driver->device_attribute(&minor, KILN__CU_COMPUTE_MINOR, device);
  if (result == 0) result = driver->device_memory(&memory, device);
  if (result != 0) return result;
  info->size = sizeof *info;
  info->shared_bytes_block = values[0];
  info->shared_bytes_sm = values[1];
  info->l2_bytes = values[2];
  info->num_sms = values[3];
  info->compute_major = major;
  info->compute_minor = minor;
  info->memory_bytes = (int64_t)memory;
  snprintf(info->arch, sizeof info->arch, "%s", kiln__arch_best(major, minor));
  return 0;
}

static kiln_status device_info(void *device, kiln_device_info *info, kiln__text *error) {
  kiln__cuda *cuda = device;
  memset(info, 0, sizeof *info);
  kiln__cu_result result = read_info(&cuda->driver, cuda->device, info);
  if (result != 0)
    return kiln__driver_fail(&cuda->driver, result, "the device's properties cannot be read",
                             error);
  return KILN_OK;
}

/* ---- memory ---- */

static kiln_status memory_alloc(void *device, size_t bytes, void **address, kiln__text *error) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  kiln__cu_ptr pointer = 0;
  kiln__cu_result result = kiln__cuda_enter(cuda, 1, &scope);
  if (result == 0) result = cuda->driver.memory_alloc(&pointer, bytes);
  *address = result == 0 ? (void *)(uintptr_t)pointer : NULL;
  return kiln__cuda_done(&scope, result, "device memory cannot be allocated", error);
}

static kiln_status memory_free(void *device, void *address, kiln__text *error) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  kiln__cu_result result = kiln__cuda_enter(cuda, 1, &scope);
  if (result == 0) result = cuda->driver.memory_free((uintptr_t)address);
  return kiln__cuda_done(&scope, result, "device memory cannot be freed", error);
}

static kiln_status upload(void *device, void *to, const void *from, size_t bytes,
                          kiln__text *error) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  kiln__cu_result result = kiln__cuda_enter(cuda, 0, &scope);
  if (result == 0) result = cuda->driver.upload((uintptr_t)to, from, bytes);
  return kiln__cuda_done(&scope, result, "the copy to the device failed", error);
}

static kiln_status download(void *device, void *to, const void *from, size_t bytes,
                            kiln__text *error) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  kiln__cu_result result = kiln__cuda_enter(cuda, 0, &scope);
  if (result == 0) result = cuda->driver.download(to, (uintptr_t)from, bytes);
  return kiln__cuda_done(&scope, result, "the copy from the device failed", error);
}

static kiln_status synchronize(void *device, kiln__text *error) {
  kiln__cuda *cuda = device;
  kiln__cuda_scope scope;
  kiln__cu_result result = kiln__cuda_enter(cuda, 0, &scope);
  if (result == 0) result = cuda->driver.stream_synchronize(NULL);
  return kiln__cuda_done(&scope, result, "work on the device failed", error);
}

/* ---- what needs no context ---- */

int kiln_device_count(void) {
  char sentence[256];
  kiln__text error;
  kiln__driver driver;
  int count = 0;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  if (kiln__driver_open(&driver, &error) != KILN_OK) return 0;
  if (driver.device_count(&count) != 0) count = 0;
  kiln__driver_close(&driver);
  return count;
}

const kiln__device_ops kiln__cuda_ops = {
    .open = device_open,
    .close = device_close,
    .info = device_info,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .upload = upload,
    .download = download,
    .synchronize = synchronize,
    .module_load = kiln__cuda_module_load,
    .module_unload = kiln__cuda_module_unload,
    .entry_get = kiln__cuda_entry_get,
    .tensor_map_encode = kiln__cuda_tensor_map,
    .clear = kiln__cuda_clear,
    .launch = kiln__cuda_launch,
    .is_capturing = kiln__cuda_is_capturing,
    .timer_start = kiln__cuda_timer_start,
    .timer_stop = kiln__cuda_timer_stop,
};
