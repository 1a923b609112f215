/* A stub of the CUDA driver: it computes nothing, but its devices, versions and failures are what a
 * test wants, and it checks what the real one would: that a context is current in every call that
 * needs one. Built as libcuda.so.1 in a folder of its own; loaded by test_driver.c, and by the
 * program in tests/cli/bench.sh. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/driver.h"
#include "tests/stub/stub.h"

#define EXPORT __attribute__((visibility("default")))
enum { INVALID_VALUE = 1, INVALID_CONTEXT = 201, NOT_FOUND = 500 };

static stub_thread *this_thread(void) {
  static _Thread_local stub_thread mine;
  return &mine;
}

EXPORT stub_state stub = {.version = 13000, .max_threads = 1024, .this_thread = this_thread};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what the test sees, and of names */

static void count(int *counter, int by) { __atomic_fetch_add(counter, by, __ATOMIC_RELAXED); }

/* STUB_FAIL="cuName 719": that entry point gives 719, and does nothing. STUB_HANG=cuName: it does
 * not come back. STUB_ONLY=program: both are of that program alone. */
static kiln__cu_result fault(const char *name) {
  const char *fails = getenv("STUB_FAIL"), *hangs = getenv("STUB_HANG"),
             *only = getenv("STUB_ONLY");
  const size_t length = strlen(name);
  if (only && strcmp(only, program_invocation_short_name) != 0) return 0;
  while (hangs && strcmp(hangs, name) == 0) pause();
  if (!fails || strncmp(fails, name, length) != 0 || fails[length] != ' ') return 0;
  return atoi(fails + length);
}

/* STUB_DEVICES="12.0 78, 8.6 20": compute capability and multiprocessors of each. */
static void read_devices(const char *text) {
  stub_device d = {"stub", 0, 0, 0, 101376};
  int length = 0;
  while (stub.num_devices < STUB_MAX_DEVICES &&
         sscanf(text, "%d.%d %d%n", &d.major, &d.minor, &d.num_sms, &length) == 3) {
    d.shared_bytes_block = d.major == 9 ? 232448 : 101376;
    stub.devices[stub.num_devices++] = d;
    text += length + strspn(text + length, ", ");
  }
}

/* What a test outside of the process can set: such devices, or one like an H200, with times that
 * vary. */
__attribute__((constructor)) static void read_environment(void) {
  if (getenv("STUB_DEVICES")) read_devices(getenv("STUB_DEVICES"));
  if (!getenv("STUB_H200")) return;
  stub.num_devices = 1;
  stub.times_vary = 1;
  stub.devices[0] = (stub_device){"stub H200", 9, 0, 132, 232448};
}

/* STUB_LOG=FILE: what is set and launched, with every parameter's bytes, so that two programs can
 * be compared. STUB_PARAMS: the sizes of a launch's parameters, "128 192", which a driver knows
 * from the cubin; STUB_PARAMS_entry: those of one entry. Memory is not written then. */
static FILE *log_file(void) {
  static FILE *file;
  const char *name = getenv("STUB_LOG");
  if (name && !file) file = fopen(name, "w");
  return file;
}

static void log_bytes(const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) fprintf(log_file(), "%02x", bytes[i]);
}

static void log_launch(const kiln__cu_launch *launch, const char *entry, void **params) {
  char own[64];
  snprintf(own, sizeof own, "STUB_PARAMS_%s", entry);
  const char *sizes = getenv(own) ? getenv(own) : getenv("STUB_PARAMS");
  if (!log_file()) return;
  fprintf(log_file(), "launch %s grid %u %u %u block %u %u %u shared %u stream %p attributes %u\n",
          entry, launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
          launch->block[1], launch->block[2], launch->shared_bytes, (void *)launch->stream,
          launch->num_attributes);
  for (unsigned i = 0; i < launch->num_attributes; i++)
    fprintf(log_file(), "  attribute %d: %u %u %u\n", launch->attributes[i].id,
            launch->attributes[i].value.cluster[0], launch->attributes[i].value.cluster[1],
            launch->attributes[i].value.cluster[2]);
  for (int i = 0; sizes && *sizes; i++) {
    fprintf(log_file(), "  param %d ", i);
    log_bytes(params[i], strtoul(sizes, (char **)&sizes, 10));
    fprintf(log_file(), "\n");
  }
  fflush(log_file());
}

static char contexts[STUB_MAX_DEVICES], pushed[16][8]; /* addresses alone matter */

/* The declarations of driver.h, so that a stub with another signature does not compile. */
#define DECLARE(member, symbol, params) EXPORT kiln__cu_result symbol params;
KILN__DRIVER_MAP(DECLARE)
#undef DECLARE

kiln__cu_result cuInit(unsigned flags) { return flags ? INVALID_VALUE : stub.fail_init; }

kiln__cu_result cuDriverGetVersion(int *version) {
  *version = stub.version;
  return 0;
}

kiln__cu_result cuGetErrorName(kiln__cu_result result, const char **name) {
  *name = result == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_STUB";
  return 0;
}

kiln__cu_result cuGetErrorString(kiln__cu_result result, const char **text) {
  *text = result == 2 ? "out of memory" : "a stub's error";
  return 0;
}

/* ---- devices ---- */

kiln__cu_result cuDeviceGetCount(int *count) {
  *count = stub.num_devices;
  return 0;
}

kiln__cu_result cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal < stub.num_devices ? 0 : KILN__CU_INVALID_DEVICE;
}

kiln__cu_result cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, (size_t)size, "%s", stub.devices[device].name);
  return 0;
}

kiln__cu_result cuDeviceGetAttribute(int *value, int attribute, int device) {
  const stub_device *d = &stub.devices[device];
  switch (attribute) {
  case KILN__CU_NUM_SMS: *value = d->num_sms; return 0;
  case KILN__CU_COMPUTE_MAJOR: *value = d->major; return 0;
  case KILN__CU_COMPUTE_MINOR: *value = d->minor; return 0;
  case KILN__CU_SHARED_BYTES_BLOCK: *value = d->shared_bytes_block; return 0;
  case KILN__CU_SHARED_BYTES_SM: *value = d->shared_bytes_block + 1024; return 0;
  case KILN__CU_L2_BYTES: *value = 4 << 20; return 0;
  default: return INVALID_VALUE;
  }
}

kiln__cu_result cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  *bytes = (size_t)8 << 30;
  return 0;
}

/* ---- contexts ---- */

kiln__cu_result cuDevicePrimaryCtxRetain(void **context, int device) {
  const kiln__cu_result failed = fault("cuDevicePrimaryCtxRetain");
  if (failed) return failed;
  count(&stub.retained, 1);
  *context = &contexts[device];
  return 0;
}

kiln__cu_result cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  count(&stub.retained, -1);
  return 0;
}

kiln__cu_result cuCtxPushCurrent_v2(void *context) {
  stub_thread *t = this_thread();
  t->stack[t->depth++] = t->current;
  t->current = context;
  return 0;
}

kiln__cu_result cuCtxPopCurrent_v2(void **context) {
  stub_thread *t = this_thread();
  if (t->depth == 0) return INVALID_CONTEXT;
  *context = t->current;
  t->current = t->stack[--t->depth];
  return 0;
}

/* Not Kiln's own, but a launcher's. */
EXPORT kiln__cu_result cuCtxGetDevice(int *device);
kiln__cu_result cuCtxGetDevice(int *device) {
  *device = (int)((char *)this_thread()->current - contexts);
  return this_thread()->current ? 0 : INVALID_CONTEXT;
}

kiln__cu_result cuCtxGetCurrent(void **context) {
  *context = this_thread()->current;
  return 0;
}

static int has_context(void) {
  for (int i = 0; i < STUB_MAX_DEVICES; i++)
    if (this_thread()->current == &contexts[i]) return 1;
  return 0;
}

static void note_relaxed(void) { count(&stub.relaxed_allocs, this_thread()->capture_mode == 2); }

/* ---- memory: the host's ---- */

kiln__cu_result cuMemAlloc_v2(kiln__cu_ptr *address, size_t bytes) {
  if (!has_context()) return INVALID_CONTEXT;
  note_relaxed();
  if (stub.fail_alloc) return stub.fail_alloc;
  const kiln__cu_result failed = fault("cuMemAlloc_v2");
  if (failed) return failed;
  *address = (uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
  return 0;
}

kiln__cu_result cuMemFree_v2(kiln__cu_ptr address) {
  free((void *)(uintptr_t)address);
  return has_context() ? 0 : INVALID_CONTEXT;
}

kiln__cu_result cuMemcpyHtoD_v2(kiln__cu_ptr to, const void *from, size_t bytes) {
  memcpy((void *)(uintptr_t)to, from, bytes);
  return has_context() ? 0 : INVALID_CONTEXT;
}

kiln__cu_result cuMemcpyDtoH_v2(void *to, kiln__cu_ptr from, size_t bytes) {
  memcpy(to, (void *)(uintptr_t)from, bytes);
  return has_context() ? 0 : INVALID_CONTEXT;
}

kiln__cu_result cuMemsetD8Async(kiln__cu_ptr to, unsigned char value, size_t bytes,
                                kiln__cu_stream stream) {
  if (log_file())
    fprintf(log_file(), "clear %llx %d %zu stream %p\n", (unsigned long long)to, value, bytes,
            (void *)stream);
  else
    memset((void *)(uintptr_t)to, value, bytes);
  return has_context() ? 0 : INVALID_CONTEXT;
}

/* ---- streams and events ---- */

kiln__cu_result cuStreamSynchronize(kiln__cu_stream stream) {
  (void)stream;
  const kiln__cu_result failed = fault("cuStreamSynchronize");
  if (failed) return failed;
  return has_context() ? 0 : INVALID_CONTEXT;
}

/* As the driver does for the default stream while a blocking stream is captured. */
kiln__cu_result cuStreamIsCapturing(kiln__cu_stream stream, int *status) {
  *status = stream ? stub.capturing : 0;
  return !stream && stub.capturing ? KILN__CU_CAPTURE_IMPLICIT : 0;
}

kiln__cu_result cuThreadExchangeStreamCaptureMode(int *mode) {
  int old = this_thread()->capture_mode;
  this_thread()->capture_mode = *mode;
  *mode = old;
  return 0;
}

kiln__cu_result cuEventCreate(void **event, unsigned flags) {
  (void)flags;
  *event = pushed[0];
  return has_context() ? 0 : INVALID_CONTEXT;
}

kiln__cu_result cuEventDestroy_v2(void *event) {
  (void)event;
  return 0;
}

kiln__cu_result cuEventRecord(void *event, kiln__cu_stream stream) {
  (void)event;
  (void)stream;
  return has_context() ? 0 : INVALID_CONTEXT;
}

kiln__cu_result cuEventSynchronize(void *event) {
  (void)event;
  return 0;
}

kiln__cu_result cuEventElapsedTime(float *milliseconds, void *start, void *stop) {
  (void)start;
  (void)stop;
  *milliseconds =
      0.5f + 0.125f * (float)(stub.times_vary *
                              (__atomic_fetch_add(&stub.num_timed, 1, __ATOMIC_RELAXED) % 3));
  return 0;
}

/* ---- kernels ---- */

kiln__cu_result cuModuleLoadData(void **module, const void *image) {
  if (!has_context()) return INVALID_CONTEXT;
  note_relaxed();
  if (stub.fail_load) return stub.fail_load;
  count(&stub.num_loaded, 1);
  *module = (void *)(uintptr_t)image;
  return 0;
}

kiln__cu_result cuModuleUnload(void *module) {
  (void)module;
  count(&stub.num_loaded, -1);
  return has_context() ? 0 : INVALID_CONTEXT;
}

kiln__cu_result cuModuleGetFunction(void **function, void *module, const char *name) {
  static char names[8][32];
  static int used;
  (void)module;
  pthread_mutex_lock(&lock);
  snprintf(names[used % 8], sizeof names[0], "%s", name);
  *function = names[used++ % 8];
  pthread_mutex_unlock(&lock);
  return strcmp(name, "kiln_forward") == 0 || log_file() ? 0 : NOT_FOUND;
}

kiln__cu_result cuFuncGetAttribute(int *value, int attribute, void *function) {
  (void)function;
  *value = attribute == KILN__CU_FUNC_MAX_THREADS ? stub.max_threads : 32;
  return 0;
}

kiln__cu_result cuFuncSetAttribute(void *function, int attribute, int value) {
  const stub_device *d = &stub.devices[(char *)this_thread()->current - contexts];
  if (log_file()) fprintf(log_file(), "set %s %d %d\n", (char *)function, attribute, value);
  return attribute == KILN__CU_FUNC_DYNAMIC_BYTES && value > d->shared_bytes_block ? INVALID_VALUE
                                                                                   : 0;
}

kiln__cu_result cuLaunchKernelEx(const kiln__cu_launch *launch, void *function, void **params,
                                 void **extra) {
  if (!has_context()) return INVALID_CONTEXT;
  if (stub.fail_launch) return stub.fail_launch;
  if (!params || extra) return INVALID_VALUE;
  pthread_mutex_lock(&lock);
  log_launch(launch, function, params);
  memcpy(stub.grid, launch->grid, sizeof stub.grid);
  memcpy(stub.block, launch->block, sizeof stub.block);
  stub.shared_bytes = launch->shared_bytes;
  stub.cluster = launch->num_attributes ? launch->attributes[0].value.cluster[0] : 1;
  stub.num_launches++;
  pthread_mutex_unlock(&lock);
  return 0;
}

/* The rules that the real function documents. */
kiln__cu_result cuTensorMapEncodeTiled(void *map, int dtype, unsigned rank, void *address,
                                       const uint64_t *dims, const uint64_t *strides,
                                       const unsigned *box, const unsigned *element_strides,
                                       int interleave, int swizzle, int promotion, int fill) {
  int legal = (uintptr_t)map % 64 == 0 && (dtype == 6 || dtype == 9) && rank == 4 && address &&
              (uintptr_t)address % 16 == 0 && interleave == 0 && swizzle >= 0 && swizzle <= 3 &&
              promotion == 2 && fill == 0;
  for (int i = 0; i < 4 && legal; i++)
    legal = dims[i] >= 1 && dims[i] <= UINT64_C(1) << 32 && box[i] >= 1 && box[i] <= 256 &&
            element_strides[i] == 1 &&
            (i == 3 || (strides[i] % 16 == 0 && strides[i] < UINT64_C(1) << 40));
  memset(map, 0, 128);
  /* Enough of it to tell two maps apart. */
  memcpy(map, &address, 8);
  memcpy((char *)map + 8, dims, 32);
  memcpy((char *)map + 40, strides, 24);
  memcpy((char *)map + 64, box, 16);
  memcpy((char *)map + 80, &dtype, 4);
  memcpy((char *)map + 84, &swizzle, 4);
  return legal ? 0 : INVALID_VALUE;
}
