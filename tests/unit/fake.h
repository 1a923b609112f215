/* A device, a generator and a compiler that only record what they are asked, so that the runtime
 * can be tested on a machine without a GPU. They are put into a context made for KILN_DEVICE_NONE.
 *
 * Called by test_launch.c, test_backward_launch.c, test_plan.c, test_alloc.c, test_driver.c,
 * test_bench.c and test_packs.c; single-threaded unless said otherwise. */
#ifndef KILN_TESTS_FAKE_H
#define KILN_TESTS_FAKE_H

#include "runtime/launch_internal.h"
#include "runtime/objects.h"

#define FAKE_MAX 16

typedef struct fake_launch {
  const void *entry; /* as entry_get gave it: another one for every kernel */
  uint32_t grid[2];
  kiln__entry_shape shape;
  int num_params;
  kiln__forward_args args;      /* the last parameter, of a forward pass */
  kiln__backward_args backward; /* or of a backward pass */
} fake_launch;

typedef struct fake {
  kiln_status fail_load, fail_launch; /* what these calls give; OK by default */
  int capturing;
  int num_loads, num_unloads, num_entries;
  size_t loaded_bytes; /* of the last image: what the generator rendered, or an ELF */
  int num_launches, num_clears, num_maps;
  double launch_us; /* of every launch, by the device's events; 12 by default */
  int timed_from;   /* launches before the timer at hand */
  int num_allocs, num_frees;
  fake_launch launches[FAKE_MAX];
  kiln__tensor_map maps[FAKE_MAX];
  size_t cleared[FAKE_MAX];
  void *cleared_at[FAKE_MAX];

  /* generator and compiler */
  const char *record;          /* what render gives */
  const char *backward_record; /* the same of a backward pass; NULL = as of any other */
  const char *stamp;           /* of the generator; NULL = none */
  int num_renders, num_compiles, num_opens;
  kiln_status fail_compile;
  const char *compiler_version;
  const char *compiler_key; /* what locate says; NULL = only opening tells */
  int more_options;         /* the compiler is called with one option more */
  int no_line_info;         /* as it was opened; it then gives itself another option */
  int slow_compile;         /* so that others come while one compiles */
} fake;

extern const kiln__device_ops fake_device_ops; /* the device is a fake */
extern const char fake_record[];               /* one entry, four maps, a zeroed workspace item */

/* A context whose device, generator and compiler are the fake; cache_dir as in the options. */
kiln_context *fake_context(fake *f, const char *cache_dir);
/* Gives the context back to what kiln_context_destroy expects, then destroys it. */
void fake_context_destroy(kiln_context *ctx);
void fake_parse_record(const char *json, kiln__record *record); /* fails the test on an error */

#endif
