/* Small kernels on the emulator: text in, compiled by the emulator's own path, run, memory out.
 *
 * A kernel text declares `typedef struct {...} Args;` and `KERNEL void test_kernel(...)`, whose
 * parameters are tensor maps, then Args. The prelude comes from generator/lua/emulator.lua. Every
 * function fails the running test when something other than the kernel goes wrong.
 * Called by test_emulator_*.c. */
#ifndef KILN_TESTS_EMULATED_H
#define KILN_TESTS_EMULATED_H

#include <stdint.h>

#include "runtime/services.h"

typedef struct emulated_args { /* the usual Args of a test kernel: see EMULATED_ARGS */
  void *in, *in2, *out;
  int64_t n;
} emulated_args;

#define EMULATED_ARGS "typedef struct { void *in, *in2, *out; i64 n; } Args;\n"

typedef struct emulated {
  void *compiler, *device, *module;
  kiln__env env;
  kiln__text error; /* of the last run */
  char maps[4][KILN__TENSOR_MAP_BYTES] __attribute__((aligned(64)));
  int num_maps;
  emulated_args args;
  kiln__entry_shape shape;
  uint32_t blocks;
} emulated;

/* One block of `threads` threads with 48 KB of shared memory. schedule: "late", "eager", "random".
 * */
void emulated_create(emulated *e, const char *schedule, int64_t seed, int threads);
void emulated_destroy(emulated *e);
void emulated_compile(emulated *e, const char *kernel_text);
void *emulated_upload(emulated *e, const void *bytes, size_t count); /* device address */
void *emulated_alloc(emulated *e, size_t count);
void emulated_download(emulated *e, void *to, const void *from, size_t count);
/* A map of a (rows x columns) tensor of 16-bit elements, as the next parameter. */
void emulated_map(emulated *e, const void *address, int rows, int columns, int box_rows,
                  int box_columns, int swizzle);
/* Any map, as the next parameter. */
void emulated_tensor(emulated *e, const kiln__tensor_map *map);
kiln_status emulated_launch(emulated *e); /* the message lies in e->error */
void emulated_run(emulated *e);           /* must succeed */
/* Compiles and runs; must stop with a message that holds `expected`. */
void emulated_must_fault(emulated *e, const char *kernel_text, const char *expected);
/* kernel_text with the one place of `old` replaced. The caller frees it. */
char *emulated_edit(const char *kernel_text, const char *old, const char *new_text);

#endif
