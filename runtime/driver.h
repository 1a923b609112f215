/* The CUDA driver, opened by name at run time: our own declarations of the few functions that Kiln
 * calls, so that no CUDA header is needed and a machine without a driver can load the library.
 * Types and numbers are those of the driver's stable binary interface. Used by cuda*.c alone. */
#ifndef KILN_RUNTIME_DRIVER_H
#define KILN_RUNTIME_DRIVER_H

#include <kiln/kiln.h>

#include "runtime/text.h"

#define KILN__DRIVER_MINIMUM 12000 /* 12.0: the first with tensor maps and extended launches */

typedef int kiln__cu_result;             /* 0 = success */
typedef unsigned long long kiln__cu_ptr; /* device address */
typedef struct CUstream_st *kiln__cu_stream;

enum {
  KILN__CU_OUT_OF_MEMORY = 2,
  KILN__CU_NO_DEVICE = 100,
  KILN__CU_INVALID_DEVICE = 101,
  KILN__CU_NO_BINARY = 209,
  KILN__CU_CAPTURE_IMPLICIT = 906
};

enum { /* device attributes */
       KILN__CU_L2_BYTES = 38,
       KILN__CU_NUM_SMS = 16,
       KILN__CU_COMPUTE_MAJOR = 75,
       KILN__CU_COMPUTE_MINOR = 76,
       KILN__CU_SHARED_BYTES_SM = 81,
       KILN__CU_SHARED_BYTES_BLOCK = 97
};

enum { /* function attributes */
       KILN__CU_FUNC_MAX_THREADS = 0,
       KILN__CU_FUNC_STATIC_BYTES = 1,
       KILN__CU_FUNC_LOCAL_BYTES = 3,
       KILN__CU_FUNC_REGISTERS = 4,
       KILN__CU_FUNC_DYNAMIC_BYTES = 8,
       KILN__CU_FUNC_WIDE_CLUSTER = 14
};

enum { KILN__CU_ATTRIBUTE_CLUSTER = 4, KILN__CU_CAPTURE_RELAXED = 2 };

typedef struct kiln__cu_attribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    unsigned cluster[3];
  } value;
} kiln__cu_attribute;

typedef struct kiln__cu_launch {
  unsigned grid[3], block[3], shared_bytes;
  kiln__cu_stream stream;
  kiln__cu_attribute *attributes;
  unsigned num_attributes;
} kiln__cu_launch;

/* member, symbol, parameters. A symbol with a version suffix is the one that today's headers call.
 * */
#define KILN__DRIVER_MAP(X)                                                                  \
  X(init, cuInit, (unsigned flags))                                                          \
  X(version, cuDriverGetVersion, (int *version))                                             \
  X(error_name, cuGetErrorName, (kiln__cu_result result, const char **name))                 \
  X(error_text, cuGetErrorString, (kiln__cu_result result, const char **text))               \
  X(device_count, cuDeviceGetCount, (int *count))                                            \
  X(device_get, cuDeviceGet, (int *device, int ordinal))                                     \
  X(device_name, cuDeviceGetName, (char *name, int size, int device))                        \
  X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, int device))         \
  X(device_memory, cuDeviceTotalMem_v2, (size_t * bytes, int device))                        \
  X(primary_retain, cuDevicePrimaryCtxRetain, (void **context, int device))                  \
  X(primary_release, cuDevicePrimaryCtxRelease_v2, (int device))                             \
  X(context_push, cuCtxPushCurrent_v2, (void *context))                                      \
  X(context_pop, cuCtxPopCurrent_v2, (void **context))                                       \
  X(context_current, cuCtxGetCurrent, (void **context))                                      \
  X(memory_alloc, cuMemAlloc_v2, (kiln__cu_ptr * address, size_t bytes))                     \
  X(memory_free, cuMemFree_v2, (kiln__cu_ptr address))                                       \
  X(upload, cuMemcpyHtoD_v2, (kiln__cu_ptr to, const void *from, size_t bytes))              \
  X(download, cuMemcpyDtoH_v2, (void *to, kiln__cu_ptr from, size_t bytes))                  \
  X(clear, cuMemsetD8Async,                                                                  \
    (kiln__cu_ptr to, unsigned char value, size_t bytes, kiln__cu_stream stream))            \
  X(stream_synchronize, cuStreamSynchronize, (kiln__cu_stream stream))                       \
  X(stream_capturing, cuStreamIsCapturing, (kiln__cu_stream stream, int *status))            \
  X(capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode))                            \
  X(module_load, cuModuleLoadData, (void **module, const void *image))                       \
  X(module_unload, cuModuleUnload, (void *module))                                           \
  X(module_function, cuModuleGetFunction, (void **function, void *module, const char *name)) \
  X(function_get, cuFuncGetAttribute, (int *value, int attribute, void *function))           \
  X(function_set, cuFuncSetAttribute, (void *function, int attribute, int value))            \
  X(launch, cuLaunchKernelEx,                                                                \
    (const kiln__cu_launch *launch, void *function, void **params, void **extra))            \
  X(tensor_map, cuTensorMapEncodeTiled,                                                      \
    (void *map, int dtype, unsigned rank, void *address, const uint64_t *dims,               \
     const uint64_t *strides, const unsigned *box, const unsigned *element_strides,          \
     int interleave, int swizzle, int promotion, int fill))                                  \
  X(event_create, cuEventCreate, (void **event, unsigned flags))                             \
  X(event_destroy, cuEventDestroy_v2, (void *event))                                         \
  X(event_record, cuEventRecord, (void *event, kiln__cu_stream stream))                      \
  X(event_synchronize, cuEventSynchronize, (void *event))                                    \
  X(event_elapsed, cuEventElapsedTime, (float *milliseconds, void *start, void *stop))

typedef struct kiln__driver {
  void *library;
  int installed; /* version: 1000 * major + 10 * minor */
#define KILN__DRIVER_MEMBER(member, symbol, params) kiln__cu_result(*member) params;
  KILN__DRIVER_MAP(KILN__DRIVER_MEMBER)
#undef KILN__DRIVER_MEMBER
  kiln__cu_result (*function_load)(void *function); /* NULL before driver 12.4 */
} kiln__driver;

/* NO_DRIVER or NO_DEVICE and one sentence that says what to do; then nothing is held. */
kiln_status kiln__driver_open(kiln__driver *driver, kiln__text *error);
void kiln__driver_close(kiln__driver *driver);
/* The status for a failed call, and its sentence: what was tried, the driver's name and text. */
kiln_status kiln__driver_fail(const kiln__driver *driver, kiln__cu_result result, const char *what,
                              kiln__text *error);

#endif
