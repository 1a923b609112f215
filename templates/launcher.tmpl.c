/* A launcher for one kernel, which needs its cubin and the CUDA driver, and nothing of Kiln.
 * Kernel text ${source_id}, made by
${command}
 *   cc -std=c11 -c THIS_FILE       (with -ldl where the C library does not hold it)
 *   #define ${name}_DECLARATIONS
 *   #include THIS_FILE             gives the declarations alone
 *
 * Results are 0, a number of the driver's CUresult, or one of the negative ones below; nothing was
 * launched then. What sizes, strides and results mean is Kiln's docs/numerics.md. */
#ifndef KILN_LAUNCHER_TYPES
#define KILN_LAUNCHER_TYPES

#include <stddef.h>
#include <stdint.h>

enum {
  KILN_LAUNCHER_NO_DRIVER = -1,  /* libcuda.so.1 is missing or older than CUDA 12 */
  KILN_LAUNCHER_BAD_SIZE = -2,   /* negative, too large, heads that do not divide, or a result
                                    with two elements at one address */
  KILN_LAUNCHER_MISALIGNED = -3, /* an address or a stride: multiples of 16 bytes are needed */
  KILN_LAUNCHER_NO_MEMORY = -4,
  KILN_LAUNCHER_WORKSPACE = -5 /* too small, or not aligned to 256 bytes */
};

/* q (batch, seqlen_q, num_heads, head_dim), k and v (batch, seqlen_k, num_heads_k, head_dim or
 * head_dim_v), o (batch, seqlen_q, num_heads, head_dim_v): strides count elements, the last
 * dimension is contiguous. lse: fp32 (batch, num_heads, seqlen_q), or NULL. softmax_scale: -1 for
 * 1 / sqrt(head_dim). */
typedef struct kiln_launcher_stride {
  int64_t batch, row, head;
} kiln_launcher_stride;
typedef struct kiln_launcher_args {
  const void *q, *k, *v;
  void *o;
  float *lse;
  void *workspace;
  size_t workspace_bytes;
  kiln_launcher_stride q_stride, k_stride, v_stride, o_stride;
  int32_t batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  float softmax_scale;
} kiln_launcher_args;

#endif
//@ if backward then
#ifndef KILN_LAUNCHER_BACKWARD_TYPES
#define KILN_LAUNCHER_BACKWARD_TYPES

/* q, k, v as above; o and lse as the forward pass wrote them; dout (the gradient of o) like o, dq
 * like q, dk like k, dv like v. */
typedef struct kiln_launcher_backward_args {
  const void *q, *k, *v, *o, *dout;
  const float *lse;
  void *dq, *dk, *dv;
  void *workspace;
  size_t workspace_bytes;
  kiln_launcher_stride q_stride, k_stride, v_stride, o_stride;
  kiln_launcher_stride do_stride, dq_stride, dk_stride, dv_stride;
  int32_t batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  float softmax_scale;
} kiln_launcher_backward_args;

#endif
//@ end
#ifndef ${name}_H
#define ${name}_H

//@ local pass = backward and ", gradients" or ""
//@ if is_deterministic then pass = pass .. ", deterministic" end
/* ${dtype}, head_dim ${head_dim}, head_dim_v ${head_dim_v}, mask ${mask}${pass}. */
typedef struct ${name}
    ${name};

/* Loads the cubin into the context that is current in this thread. */
int ${name}_open(const void *cubin,
                 ${name} **kernel);
/* Enqueues on a CUstream; from any thread in which that context is current. */
int ${name}_run(const ${name} *kernel,
                const ${args_type} *args, void *stream);
/* Bytes that args->workspace must have; SIZE_MAX where no memory holds them. */
size_t ${name}_workspace(const ${args_type} *args);
void ${name}_close(${name} *kernel);

#endif
#ifndef ${name}_DECLARATIONS

#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the driver, by its stable binary interface ---- */

//@ if clusters then
typedef struct launch_attribute {
  int id; /* 4: the blocks of a cluster */
  char pad[4];
  union {
    char bytes[64];
    unsigned cluster[3];
  } value;
} launch_attribute;

//@ end
typedef struct launch_config {
  unsigned grid[3], block[3], shared_bytes;
  void *stream, *attributes;
  unsigned num_attributes;
} launch_config;

typedef struct driver {
  void *library;
  int (*version)(int *version);
  int (*module_load)(void **module, const void *image);
  int (*module_unload)(void *module);
  int (*module_function)(void **function, void *module, const char *name);
  int (*function_set)(void *function, int attribute, int value);
  int (*context_device)(int *device);
  int (*device_attribute)(int *value, int attribute, int device);
  int (*launch)(const launch_config *config, void *function, void **params, void **extra);
//@ if clears then
  int (*clear)(uintptr_t address, unsigned char value, size_t bytes, void *stream);
//@ end
//@ if #maps > 0 then
  int (*tensor_map)(void *map, int dtype, unsigned rank, void *address, const uint64_t *dims,
                    const uint64_t *strides, const unsigned *box, const unsigned *steps,
                    int interleave, int swizzle, int promotion, int fill);
//@ end
} driver;

struct ${name} {
  driver driver;
  void *module;
  void *entries[${#entries}];
  int num_sms;
};

static int find(void *library, const char *symbol, void *function) {
  void *found = dlsym(library, symbol);
  memcpy(function, &found, sizeof found);
  return found != NULL;
}

static int open_driver(driver *d) {
  int version = 0;
  d->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!d->library) return 0;
  return find(d->library, "cuDriverGetVersion", &d->version) && d->version(&version) == 0 &&
         version >= 12000 && find(d->library, "cuModuleLoadData", &d->module_load) &&
         find(d->library, "cuModuleUnload", &d->module_unload) &&
         find(d->library, "cuModuleGetFunction", &d->module_function) &&
         find(d->library, "cuFuncSetAttribute", &d->function_set) &&
         find(d->library, "cuCtxGetDevice", &d->context_device) &&
         find(d->library, "cuDeviceGetAttribute", &d->device_attribute) &&
//@ if #maps > 0 then
         find(d->library, "cuTensorMapEncodeTiled", &d->tensor_map) &&
//@ end
//@ if clears then
         find(d->library, "cuMemsetD8Async", &d->clear) &&
//@ end
         find(d->library, "cuLaunchKernelEx", &d->launch);
}

static int open_entries(${name} *kernel,
                        const void *cubin) {
  static const struct {
    const char *name;
    int shared_bytes;
  } entries[] = {
//@ for _, e in ipairs(entries) do
    {"${e.name}", ${e.shared_bytes}},
//@ end
  };
  int device = 0;
  driver *d = &kernel->driver;
  int result = d->context_device(&device);
  if (result == 0) result = d->device_attribute(&kernel->num_sms, 16, device); /* multiprocessors */
  if (result == 0) result = d->module_load(&kernel->module, cubin);
  for (int i = 0; i < ${#entries} && result == 0; i++) {
    result = d->module_function(&kernel->entries[i], kernel->module, entries[i].name);
    if (result == 0 && entries[i].shared_bytes > 0) /* attribute 8: dynamic shared memory */
      result = d->function_set(kernel->entries[i], 8, entries[i].shared_bytes);
  }
  return result;
}

int ${name}_open(const void *cubin,
                 ${name} **kernel) {
  *kernel = calloc(1, sizeof **kernel);
  if (!*kernel) return KILN_LAUNCHER_NO_MEMORY;
  int result = KILN_LAUNCHER_NO_DRIVER;
  if (open_driver(&(*kernel)->driver)) result = open_entries(*kernel, cubin);
  if (result == 0) return 0;
  ${name}_close(*kernel);
  *kernel = NULL;
  return result;
}

void ${name}_close(${name} *kernel) {
  if (!kernel) return;
  if (kernel->module) kernel->driver.module_unload(kernel->module);
  if (kernel->driver.library) dlclose(kernel->driver.library);
  free(kernel);
}

/* ---- arguments ---- */

/* As the kernel takes it: parameter layout ${layout}. */
typedef struct kernel_args {
//@ if backward then
  const void *q, *k, *v, *o, *dout;
  const float *lse;
  void *dq, *dk, *dv;
  void *workspace;
  int64_t workspace_at[4];
  kiln_launcher_stride q_stride, k_stride, v_stride, o_stride;
  kiln_launcher_stride do_stride, dq_stride, dk_stride, dv_stride;
  int64_t tiles;
  int32_t batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  int32_t group, m_blocks, n_blocks;
  float softmax_scale, scale_log2;
//@ else
  const void *q, *k, *v;
  void *o;
  float *lse;
  void *workspace;
  kiln_launcher_stride q_stride, k_stride, v_stride, o_stride;
  int64_t tiles;
  int32_t batch, seqlen_q, seqlen_k, num_heads, num_heads_k;
  int32_t group, m_blocks, shift;
  float softmax_scale, scale_log2;
//@ end
} kernel_args;

static int64_t blocks(int64_t size, int64_t divisor) { return (size + divisor - 1) / divisor; }

/* -1 where it does not fit in 63 bits. */
static int64_t product(int count, const int64_t *factors) {
  int64_t total = 1;
  for (int i = 0; i < count; i++)
    if (factors[i] == 0) return 0;
  for (int i = 0; i < count; i++) {
    if (total > INT64_MAX / factors[i]) total = -1;
    if (total < 0) return -1;
    total *= factors[i];
  }
  return total;
}

static int sizes_are_legal(const ${args_type} *a) {
  const int32_t longest = 2147479552; /* kernels count rows, rounded up to tiles, in 32 bits */
  return a->batch >= 0 && a->seqlen_q >= 0 && a->seqlen_k >= 0 && a->seqlen_q <= longest &&
         a->seqlen_k <= longest && a->num_heads > 0 && a->num_heads_k > 0 &&
         a->num_heads % a->num_heads_k == 0 &&
         (a->softmax_scale == -1.0f || (isfinite(a->softmax_scale) && a->softmax_scale >= 0.0f));
}

static int tensor_is_aligned(const void *address, const kiln_launcher_stride *stride,
                             const int32_t extents[3]) {
  const int64_t strides[3] = {stride->batch, stride->row, stride->head};
  if (extents[0] == 0 || extents[1] == 0 || extents[2] == 0) return 1;
  if (!address || (uintptr_t)address % ${align} != 0) return 0;
  for (int i = 0; i < 3; i++) {
    if (extents[i] > 1 && (strides[i] < 0 || strides[i] * 2 % ${align} != 0)) return 0;
  }
  return 1;
}

static int tensors_are_aligned(const ${args_type} *a) {
  const int32_t queries[3] = {a->batch, a->seqlen_q, a->num_heads};
  const int32_t keys[3] = {a->batch, a->seqlen_k, a->num_heads_k};
//@ if backward then
  if (!a->lse && a->batch > 0 && a->seqlen_q > 0) return 0;
//@ end
//@ for i, t in ipairs(tensors) do
//@ local word = i == 1 and "return" or "      "
  ${word} tensor_is_aligned(a->${t.name}, &a->${t.stride}, ${t.extents}) &&
//@ end
         (uintptr_t)a->lse % sizeof(float) == 0;
}

/* Strides of less than 2^40 bytes, and no tensor beyond the address space; those of a result, from
 * the smallest to the largest, each step over all that lies inside it. */
static int layout_is_legal(const kiln_launcher_stride *stride, const int32_t extents[3],
                           int64_t inside, int is_result) {
  const int64_t strides[3] = {stride->batch, stride->row, stride->head};
  int left[3], least = 0;
  if (extents[0] == 0 || extents[1] == 0 || extents[2] == 0) return 1;
  for (int i = 0; i < 3; i++) {
    left[i] = extents[i] > 1;
    if (left[i] && (strides[i] >= INT64_C(1) << 39 || strides[i] > INT64_MAX / 8 / extents[i]))
      return 0;
  }
  while (is_result && least >= 0) {
    least = -1;
    for (int i = 0; i < 3; i++)
      if (left[i] && (least < 0 || strides[i] < strides[least])) least = i;
    if (least < 0) break;
    if (strides[least] < inside) return 0;
    inside += strides[least] * (extents[least] - 1);
    left[least] = 0;
  }
  return 1;
}

static int layouts_are_legal(const ${args_type} *a) {
  const int32_t queries[3] = {a->batch, a->seqlen_q, a->num_heads};
  const int32_t keys[3] = {a->batch, a->seqlen_k, a->num_heads_k};
//@ for i, t in ipairs(tensors) do
//@ local word, result = i == 1 and "return" or "      ", t.is_output and 1 or 0
//@ local ending = i == #tensors and ";" or " &&"
  ${word} layout_is_legal(&a->${t.stride}, ${t.extents}, ${t.dim}, ${result})${ending}
//@ end
}

/* Bytes of each item of the workspace; their sum, or SIZE_MAX where no memory holds them. */
static size_t measure_workspace(const ${args_type} *a, size_t bytes[]) {
  size_t sum = 0;
//@ if #workspace == 0 then
  (void)a, (void)bytes;
//@ end
//@ for i, item in ipairs(workspace) do
  const int64_t ${item.name}[] = {${item.factors}};
  const int64_t ${item.name}_bytes = product(${item.count}, ${item.name});
  if (${item.name}_bytes < 0 || ${item.name}_bytes > INT64_MAX / 8) return SIZE_MAX;
  sum += bytes[${i - 1}] = (size_t)(${item.name}_bytes + 255) / 256 * 256;
//@ end
  return sum;
}

size_t ${name}_workspace(const ${args_type} *a) {
  size_t bytes[${math.max(#workspace, 1)}];
  return measure_workspace(a, bytes);
}

static kernel_args args_of(const ${args_type} *a) {
  kernel_args x = {.q = a->q, .k = a->k, .v = a->v, .o = a->o, .lse = a->lse};
  x.workspace = a->workspace;
  x.q_stride = a->q_stride, x.k_stride = a->k_stride;
  x.v_stride = a->v_stride, x.o_stride = a->o_stride;
//@ if backward then
  x.dout = a->dout, x.dq = a->dq, x.dk = a->dk, x.dv = a->dv;
  x.do_stride = a->do_stride, x.dq_stride = a->dq_stride;
  x.dk_stride = a->dk_stride, x.dv_stride = a->dv_stride;
  size_t bytes[4];
  measure_workspace(a, bytes);
  for (int i = 1; i < ${#workspace}; i++)
    x.workspace_at[i] = x.workspace_at[i - 1] + (int64_t)bytes[i - 1];
//@ end
  x.batch = a->batch, x.seqlen_q = a->seqlen_q, x.seqlen_k = a->seqlen_k;
  x.num_heads = a->num_heads, x.num_heads_k = a->num_heads_k;
  x.group = a->num_heads / a->num_heads_k;
  x.m_blocks = (int32_t)blocks(a->seqlen_q, ${block_m});
//@ if backward then
  x.n_blocks = (int32_t)blocks(a->seqlen_k, ${block_n});
//@ else
  while (x.shift < 31 && (INT64_C(1) << x.shift) < a->seqlen_k) x.shift++;
//@ end
  x.softmax_scale = a->softmax_scale;
  if (x.softmax_scale == -1.0f) x.softmax_scale = ${f32(scale)};
//@ if backward then
  x.scale_log2 = x.softmax_scale * 1.44269504088896340736f; /* log2(e); has a reciprocal then */
  if (x.scale_log2 < 0x1p-100f) x.scale_log2 = 0x1p-100f;
//@ else
  x.scale_log2 = x.softmax_scale * 1.44269504088896340736f; /* log2(e); then positive and finite */
  if (x.scale_log2 < FLT_TRUE_MIN) x.scale_log2 = FLT_TRUE_MIN;
//@ end
  if (x.scale_log2 > FLT_MAX) x.scale_log2 = FLT_MAX;
  return x;
}
//@ if #maps > 0 then

/* ---- tensor maps: one of an axis of one element takes the stride of a row ---- */

typedef struct map {
  _Alignas(64) unsigned char bytes[128];
} map;

static int encode(const driver *d, map *out, const void *address, const void *readable, int dim,
                  const int32_t extents[3], const kiln_launcher_stride *stride, unsigned box_rows) {
  const int empty = extents[0] == 0 || extents[1] == 0 || extents[2] == 0;
  const int order[3] = {1, 2, 0}; /* row, head, batch */
  const int64_t given[3] = {stride->batch, stride->row, stride->head};
  const unsigned box[4] = {${maps[1].box_cols}, box_rows, 1, 1}, steps[4] = {1, 1, 1, 1};
  uint64_t dims[4] = {(uint64_t)dim, 1, 1, 1}, strides[3];
  for (int i = 0; i < 3; i++) {
    const int axis = order[i], single = empty || extents[axis] == 1;
    dims[i + 1] = single ? 1 : (uint64_t)extents[axis];
    strides[i] = (uint64_t)(single ? (dim * 2 + 15) / 16 * 16 : given[axis] * 2);
  }
  memset(out, 0, sizeof *out);
  return d->tensor_map(out->bytes, ${map_dtype}, 4, (void *)(uintptr_t)(empty ? readable : address),
                       dims, strides, box, steps, 0, ${map_swizzle}, 2, 0);
}
//@ end

/* ---- launching ---- */

//@ if clears then
/* What has to begin as zeros. */
static int clear_workspace(const driver *d, const ${args_type} *a, void *stream) {
  size_t bytes[${#workspace}], at = (size_t)(uintptr_t)a->workspace;
  int result = 0;
  measure_workspace(a, bytes);
//@ for i, item in ipairs(workspace) do
//@ if item.zero then
  if (result == 0 && bytes[${i - 1}] > 0) result = d->clear(at, 0, bytes[${i - 1}], stream);
//@ end
  at += bytes[${i - 1}];
//@ end
  return result;
}

//@ end
//@ local sizes = clusters and "unsigned threads, unsigned cluster," or "unsigned threads,"
/* Blocks of a grid along x; where they do not fit there, along y too. */
static int64_t widest_grid(int64_t cluster) { return INT64_C(2147483647) / cluster * cluster; }

static int grid_fits(int64_t count, int64_t cluster) {
  return (count - 1) / widest_grid(cluster) < 65535;
}

static int launch(const ${name} *kernel, int entry, unsigned threads,
                  unsigned cluster, unsigned shared_bytes, int64_t count, void **params,
                  void *stream) {
  const int64_t widest = widest_grid(cluster), x = count < widest ? count : widest;
//@ if clusters then
  launch_attribute attribute = {.id = 4, .value = {.cluster = {cluster, 1, 1}}};
//@ end
  const launch_config config = {.grid = {(unsigned)x, (unsigned)((count - 1) / x + 1), 1},
                                .block = {threads, 1, 1},
                                .shared_bytes = shared_bytes,
//@ if clusters then
                                .attributes = &attribute,
                                .num_attributes = cluster > 1,
//@ end
                                .stream = stream};
  return kernel->driver.launch(&config, kernel->entries[entry], params, NULL);
}

int ${name}_run(const ${name} *kernel,
                const ${args_type} *a, void *stream) {
  if (!sizes_are_legal(a)) return KILN_LAUNCHER_BAD_SIZE;
  if (!tensors_are_aligned(a)) return KILN_LAUNCHER_MISALIGNED;
  if (!layouts_are_legal(a)) return KILN_LAUNCHER_BAD_SIZE;
  const size_t needed = ${name}_workspace(a);
  if (needed > 0 && (!a->workspace || a->workspace_bytes < needed ||
                     (uintptr_t)a->workspace % 256 != 0))
    return KILN_LAUNCHER_WORKSPACE;
//@ local nothing = backward and "(a->seqlen_q == 0 && a->seqlen_k == 0)" or "a->seqlen_q == 0"
  if (a->batch == 0 || ${nothing}) return 0;
//@ for i, e in ipairs(entries) do
  const int64_t sizes_${i - 1}[] = {${e.factors}};
  const int64_t tiles_${i - 1} = product(${e.count}, sizes_${i - 1});
//@ if e.persistent > 0 then
  const int64_t most_${i - 1} = (int64_t)kernel->num_sms * ${e.persistent};
  const int64_t count_${i - 1} = tiles_${i - 1} < most_${i - 1} ? tiles_${i - 1} : most_${i - 1};
  if (tiles_${i - 1} < 0 || tiles_${i - 1} >= INT64_C(1) << 32) return KILN_LAUNCHER_BAD_SIZE;
//@ else
  if (tiles_${i - 1} < 0 || tiles_${i - 1} > INT64_MAX / ${e.cluster})
    return KILN_LAUNCHER_BAD_SIZE;
  const int64_t count_${i - 1} = tiles_${i - 1} * ${e.cluster};
//@ end
  if (!grid_fits(count_${i - 1}, ${e.cluster})) return KILN_LAUNCHER_BAD_SIZE;
//@ end
  kernel_args args = args_of(a);
  int result = 0;
//@ if #maps > 0 then
  const int32_t queries[3] = {a->batch, a->seqlen_q, a->num_heads};
  const int32_t keys[3] = {a->batch, a->seqlen_k, a->num_heads_k};
//@ local readable = backward and "readable" or "a->q"
//@ if backward then
  const void *readable = a->seqlen_q > 0 ? a->q : a->k;
//@ end
  map maps[${#maps}];
//@ for i, m in ipairs(maps) do
  if (result == 0)
    result = encode(&kernel->driver, &maps[${i - 1}], a->${m.name}, ${readable}, ${m.dim},
                    ${m.extents}, &a->${m.stride}, ${m.box_rows});
//@ end
//@ end
//@ if clears then
  if (result == 0) result = clear_workspace(&kernel->driver, a, stream);
//@ end
//@ for i, e in ipairs(entries) do
  if (result == 0 && count_${i - 1} > 0) {
    void *params[] = {${e.param_list}};
    args.tiles = tiles_${i - 1};
    result = launch(kernel, ${i - 1}, ${e.threads}, ${e.cluster}, ${e.shared_bytes}, count_${i - 1},
                    params, stream);
  }
//@ end
  return result;
}

#endif
