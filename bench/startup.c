/* How long a kernel takes from nothing: a fresh process, one kernel, the public API alone.
 *   cc -O2 -Iinclude bench/startup.c -Lbuild/lib -lkiln -Wl,-rpath,$PWD/build/lib -o build/startup
 *   build/startup ARCH DTYPE HEAD_DIM MASK [DEVICE]
 * Prints the milliseconds of each step, on the wall and on the processor: the context, the text,
 * the binary (compiled, or from the cache), the same once more; with a DEVICE (an ordinal, or emu)
 * two whole plans instead, which load the kernel. docs/performance.md has figures. */
#include <kiln/kiln.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double clock_ms(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

typedef struct stopwatch {
  double wall, processor;
} stopwatch;

static stopwatch start(void) {
  return (stopwatch){clock_ms(CLOCK_MONOTONIC), clock_ms(CLOCK_PROCESS_CPUTIME_ID)};
}

static void lap(const char *what, stopwatch since) {
  printf("%-34s %9.2f ms   %9.2f ms on the processor\n", what,
         clock_ms(CLOCK_MONOTONIC) - since.wall,
         clock_ms(CLOCK_PROCESS_CPUTIME_ID) - since.processor);
}

static void need(kiln_context *ctx, kiln_status status) {
  if (status == KILN_OK) return;
  fprintf(stderr, "startup: %s\n", ctx ? kiln_last_error(ctx) : kiln_status_text(status));
  exit(1);
}

static void make_binary(kiln_context *ctx, const kiln_attn_spec *spec, const char *times) {
  kiln_source *source = NULL;
  kiln_binary *binary = NULL;
  kiln_binary_info info = {.size = sizeof info};
  char what[64];
  stopwatch step = start();
  need(ctx, kiln_source_generate(ctx, spec, NULL, 0, &source));
  snprintf(what, sizeof what, "%s: rendering", times);
  lap(what, step);
  step = start();
  need(ctx, kiln_binary_compile(ctx, source, &binary));
  kiln_binary_get_info(binary, &info);
  snprintf(what, sizeof what, "%s: %s", times, info.from_cache ? "from the cache" : "compiling");
  lap(what, step);
  kiln_binary_destroy(binary);
  kiln_source_destroy(source);
}

static void make_plan(kiln_context *ctx, const kiln_attn_spec *spec, const char *times) {
  kiln_plan *plan = NULL;
  kiln_plan_info info = {.size = sizeof info};
  char what[64];
  kiln_attn_args shape = KILN_ATTN_ARGS_INIT; /* so that tuning records are looked through too */
  shape.batch = 4;
  shape.seqlen_q = shape.seqlen_k = 4096;
  shape.num_heads = shape.num_heads_k = 16;
  kiln_attn_args_pack(&shape, spec);
  stopwatch step = start();
  need(ctx, kiln_plan_create(ctx, spec, NULL, &shape, &plan));
  kiln_plan_get_info(plan, &info);
  snprintf(what, sizeof what, "%s: plan, %s", times,
           info.from_cache ? "from the cache" : "compiled");
  lap(what, step);
  kiln_plan_destroy(plan);
}

int main(int count, char **args) {
  static const char *const fields[] = {"arch", "dtype", "head_dim", "mask"};
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_context *ctx = NULL;
  if (count < 5) {
    fprintf(stderr, "usage: startup ARCH DTYPE HEAD_DIM MASK [DEVICE]\n");
    return 2;
  }
  const int has_device = count > 5;
  const int device = !has_device                   ? KILN_DEVICE_NONE
                     : strcmp(args[5], "emu") == 0 ? KILN_DEVICE_EMU
                                                   : atoi(args[5]);
  stopwatch step = start();
  need(NULL, kiln_context_create(device, NULL, &ctx));
  lap("context", step);
  step = start();
  for (int i = 0; i < 4; i++) need(ctx, kiln_attn_spec_set(ctx, &spec, fields[i], args[i + 1]));
  lap("generator opened, spec read", step);
  void (*make)(kiln_context *, const kiln_attn_spec *, const char *) =
      has_device ? make_plan : make_binary;
  make(ctx, &spec, "first");
  make(ctx, &spec, "again");
  kiln_context_destroy(ctx);
  return 0;
}
