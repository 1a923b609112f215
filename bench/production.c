/* How long a production process takes to its first result, beyond the CUDA driver's own start.
 *   cc -O2 -Iinclude bench/production.c -Lbuild/lib -lkiln_rt -ldl -o build/production
 *   build/production PACK HEAD_DIM MASK
 * The driver starts first, by calls of our own (cuInit, the device's primary context); then Kiln:
 * context, pack, plan, first launch with its synchronisation. bf16, device 0. Prints milliseconds
 * of each step and of all of Kiln's. */
#include <kiln/kiln.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 2, SEQLEN = 1024, HEADS = 16 };

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static double lap(const char *what, double since) {
  const double now = now_ms();
  printf("%-40s %8.2f ms\n", what, now - since);
  return now;
}

static void need(kiln_context *ctx, kiln_status status) {
  if (status == KILN_OK) return;
  fprintf(stderr, "production: %s\n", ctx ? kiln_last_error(ctx) : kiln_status_text(status));
  exit((int)status);
}

/* What any CUDA program waits for: 0, or -1 where there is no driver. */
static int start_driver(void) {
  int (*init)(unsigned), (*retain)(void **, int);
  void *context, *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return -1;
  *(void **)&init = dlsym(library, "cuInit");
  *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
  return init && retain && init(0) == 0 && retain(&context, 0) == 0 ? 0 : -1;
}

static kiln_attn_args make_tensors(kiln_context *ctx, const kiln_attn_spec *spec) {
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  const size_t bytes = (size_t)BATCH * SEQLEN * HEADS * (size_t)spec->head_dim * 2;
  void *memory = NULL;
  args.batch = BATCH;
  args.seqlen_q = args.seqlen_k = SEQLEN;
  args.num_heads = args.num_heads_k = HEADS;
  kiln_attn_args_pack(&args, spec);
  need(ctx, kiln_memory_alloc(ctx, 4 * bytes, &memory));
  args.q = memory;
  args.k = (char *)memory + bytes;
  args.v = (char *)memory + 2 * bytes;
  args.o = (char *)memory + 3 * bytes;
  return args;
}

int main(int count, char **words) {
  kiln_context *ctx = NULL;
  kiln_pack *pack = NULL;
  kiln_plan *plan = NULL;
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  if (count != 4) {
    fprintf(stderr, "usage: production PACK HEAD_DIM MASK\n");
    return 1;
  }
  double at = now_ms();
  if (start_driver() != 0) {
    fprintf(stderr, "production: there is no CUDA driver or no device\n");
    return 1;
  }
  at = lap("the driver", at);
  const double start = at;
  need(NULL, kiln_context_create(0, NULL, &ctx));
  at = lap("context", at);
  need(ctx, kiln_pack_open_file(ctx, words[1], NULL, &pack));
  need(ctx, kiln_context_add_pack(ctx, pack));
  kiln_pack_destroy(pack);
  at = lap("pack", at);
  spec.head_dim = atoi(words[2]);
  spec.mask = strcmp(words[3], "causal") == 0 ? KILN_MASK_CAUSAL : KILN_MASK_NONE;
  kiln_attn_args args = make_tensors(ctx, &spec);
  at = lap("tensors (the caller's)", at);
  need(ctx, kiln_plan_create(ctx, &spec, NULL, &args, &plan));
  at = lap("plan", at);
  need(ctx, kiln_plan_run(plan, &args, NULL));
  need(ctx, kiln_context_synchronize(ctx));
  lap("first launch", at);
  lap("all of Kiln", start);
  need(ctx, kiln_memory_free(ctx, (void *)args.q));
  kiln_plan_destroy(plan);
  kiln_context_destroy(ctx);
  return 0;
}
