/* Runs attention by a launcher or by libkiln, on the driver that is found: what they ask of it must
 * be the same. Built by tests/cli/launcher.sh, with PREFIX for the launcher's names and LAUNCHER
 * for its file; BACKWARD where it is one of a backward pass.
 *   main launcher CUBIN
 *   main library ARCH ALGORITHM DTYPE HEAD_DIM HEAD_DIM_V MASK PASS DETERMINISTIC */
#include <kiln/kiln.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOINED(a, b)     a##b
#define OF(prefix, name) JOINED(prefix, name)
#include LAUNCHER

enum { NUM_PROBLEMS = 7 };

#ifdef BACKWARD
typedef kiln_launcher_backward_args launcher_args;
#define RESULT a.dq_stride
#else
typedef kiln_launcher_args launcher_args;
#define RESULT a.o_stride
#endif

/* Addresses are never read: the driver is a stub. Odd sizes, strides of a larger tensor, one
 * element along an axis, no keys, scales of one's own, no queries. */
static launcher_args problem(int i) {
  launcher_args a = {.q = (void *)0x10000, .k = (void *)0x20000, .v = (void *)0x30000};
  a.o = (void *)0x40000;
  a.lse = i % 2 ? (float *)0x50004 : NULL;
#ifdef BACKWARD
  a.lse = (float *)0x50004;
  a.dout = (void *)0x70000, a.dq = (void *)0x80000;
  a.dk = (void *)0x90000, a.dv = (void *)0xa0000;
#endif
  a.workspace = (void *)0x60000, a.workspace_bytes = SIZE_MAX;
  a.batch = i == 2 ? 1 : 3,
  a.seqlen_q = i == 3   ? 1
               : i == 6 ? 0
                        : 1000 + i,
  a.seqlen_k = i == 4 ? 0 : 700 - 99 * i;
  a.num_heads = 6, a.num_heads_k = i == 1 ? 6 : 2;
  a.softmax_scale = i == 5 ? 0.5f : i == 2 ? 0.0f : -1.0f;
  kiln_launcher_stride stride = {8192 * 1024, 8192 + 8 * i, 1024};
  a.q_stride = a.k_stride = a.v_stride = a.o_stride = stride;
  if (i == 0) a.k_stride.batch = a.v_stride.head = 0;
#ifdef BACKWARD
  a.do_stride = a.dq_stride = a.dk_stride = a.dv_stride = stride;
  a.do_stride.row += 8, a.dq_stride.row += 16, a.dk_stride.row += 24, a.dv_stride.row += 32;
#endif
  return a;
}

static int by_launcher(const char *file) {
  static char cubin[4 << 20];
  OF(PREFIX, ) * kernel;
  int device, (*retain)(void **, int), (*push)(void *), (*get)(int *, int), (*init)(unsigned);
  void *context, *library = dlopen("libcuda.so.1", RTLD_NOW);
  FILE *f = fopen(file, "rb");
  if (!library || !f || fread(cubin, 1, sizeof cubin, f) == 0) return 1;
  *(void **)&init = dlsym(library, "cuInit");
  *(void **)&get = dlsym(library, "cuDeviceGet");
  *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
  *(void **)&push = dlsym(library, "cuCtxPushCurrent_v2");
  if (init(0) || get(&device, 0) || retain(&context, device)) return 2;
  /* Without a context the driver's own number is given. */
  if (OF(PREFIX, _open)(cubin, &kernel) != 201 || kernel) return 3;
  if (push(context) || OF(PREFIX, _open)(cubin, &kernel)) return 4;
  for (int i = 0; i < NUM_PROBLEMS; i++) {
    launcher_args a = problem(i);
    if (OF(PREFIX, _run)(kernel, &a, (void *)0x77)) return 5;
  }
  /* What the library refuses is refused, and nothing is launched. */
  launcher_args a = problem(0);
  a.num_heads_k = 4;
  if (OF(PREFIX, _run)(kernel, &a, NULL) != KILN_LAUNCHER_BAD_SIZE) return 6;
  a = problem(0), a.seqlen_q = -1;
  if (OF(PREFIX, _run)(kernel, &a, NULL) != KILN_LAUNCHER_BAD_SIZE) return 7;
  a = problem(0), a.k = (void *)0x20002;
  if (OF(PREFIX, _run)(kernel, &a, NULL) != KILN_LAUNCHER_MISALIGNED) return 8;
  a = problem(0), a.v_stride.row += 4;
  if (OF(PREFIX, _run)(kernel, &a, NULL) != KILN_LAUNCHER_MISALIGNED) return 9;
  a = problem(0), a.batch = 0, a.seqlen_q = 2147479552, a.num_heads = a.num_heads_k = INT32_MAX;
  if (OF(PREFIX, _run)(kernel, &a, NULL) != 0) return 10;
  if (OF(PREFIX, _workspace)(&a) == SIZE_MAX) return 17;
  a = problem(0), a.q_stride.row = INT64_C(1) << 40;
  if (OF(PREFIX, _run)(kernel, &a, NULL) != KILN_LAUNCHER_BAD_SIZE) return 14;
  a = problem(0), RESULT.head = 0;
  if (OF(PREFIX, _run)(kernel, &a, NULL) != KILN_LAUNCHER_BAD_SIZE) return 15;
  a = problem(0), RESULT.row = 5 * 1024; /* of 6 heads, 1024 apart */
  if (OF(PREFIX, _run)(kernel, &a, NULL) != KILN_LAUNCHER_BAD_SIZE) return 16;
  a = problem(0), a.batch = INT32_MAX, a.q_stride.batch = INT64_C(1) << 38;
  if (OF(PREFIX, _run)(kernel, &a, NULL) != KILN_LAUNCHER_BAD_SIZE) return 18;
  size_t needed = OF(PREFIX, _workspace)(&a);
  a = problem(0), needed = OF(PREFIX, _workspace)(&a), a.workspace_bytes = needed - 1;
  if (needed > 0 && OF(PREFIX, _run)(kernel, &a, NULL) != KILN_LAUNCHER_WORKSPACE) return 11;
#ifdef BACKWARD
  a = problem(0), a.lse = NULL;
  if (OF(PREFIX, _run)(kernel, &a, NULL) != KILN_LAUNCHER_MISALIGNED) return 12;
  a = problem(0), a.dv = NULL;
  if (OF(PREFIX, _run)(kernel, &a, NULL) != KILN_LAUNCHER_MISALIGNED) return 13;
#endif
  OF(PREFIX, _close)(kernel);
  return 0;
}

static kiln_stride same(kiln_launcher_stride s) { return (kiln_stride){s.batch, s.row, s.head}; }

static int by_library(char **words) {
  static const char *const fields[] = {"arch",       "algorithm", "dtype", "head_dim",
                                       "head_dim_v", "mask",      "pass",  "deterministic"};
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_context *ctx = NULL;
  kiln_plan *plan = NULL;
  if (kiln_context_create(0, NULL, &ctx)) return 1;
  for (int i = 0; i < 8; i++)
    if (kiln_attn_spec_set(ctx, &spec, fields[i], words[i])) return 2;
  int status = kiln_plan_create(ctx, &spec, NULL, NULL, &plan);
  for (int i = 0; i < NUM_PROBLEMS && status == 0; i++) {
    const launcher_args a = problem(i);
    kiln_attn_args args = KILN_ATTN_ARGS_INIT;
    args.q = a.q, args.k = a.k, args.v = a.v, args.o = (void *)(uintptr_t)a.o;
    args.lse = (float *)(uintptr_t)a.lse;
    args.workspace = a.workspace, args.workspace_bytes = a.workspace_bytes;
    args.batch = a.batch, args.seqlen_q = a.seqlen_q, args.seqlen_k = a.seqlen_k;
    args.num_heads = a.num_heads, args.num_heads_k = a.num_heads_k;
    args.q_stride = same(a.q_stride), args.k_stride = same(a.k_stride);
    args.v_stride = same(a.v_stride), args.o_stride = same(a.o_stride);
#ifdef BACKWARD
    args.dout = a.dout, args.dq = a.dq, args.dk = a.dk, args.dv = a.dv;
    args.do_stride = same(a.do_stride), args.dq_stride = same(a.dq_stride);
    args.dk_stride = same(a.dk_stride), args.dv_stride = same(a.dv_stride);
#endif
    args.softmax_scale = a.softmax_scale;
    status = kiln_plan_run(plan, &args, (struct CUstream_st *)0x77);
  }
  if (status) fprintf(stderr, "%s\n", kiln_last_error(ctx));
  kiln_plan_destroy(plan);
  kiln_context_destroy(ctx);
  return status;
}

int main(int count, char **words) {
  if (count == 3) return by_launcher(words[2]);
  return count == 10 ? by_library(words + 2) : 100;
}
