/* The launcher that `kiln compile -o` writes, beside libkiln on a GPU: the same bits and the same
 * time. Built by tests/gpu/production.sh, with PREFIX for the launcher's names and LAUNCHER for its
 * file; bf16, causal, head_dim 128.
 *   launcher CUBIN
 * Ends with `N passed, N failed`. */
#include <kiln/kiln.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define JOINED(a, b)     a##b
#define OF(prefix, name) JOINED(prefix, name)
#include LAUNCHER

enum { HEADS = 8, HEADS_K = 2, DIM = 128, LAUNCHES = 200, TURNS = 9 };

static int passed, failed;
static kiln_context *ctx;

static void judge(int good, const char *what) {
  if (!good) printf("FAILED: %s\n", what);
  good ? passed++ : failed++;
}

static void need(kiln_status status) {
  if (status == KILN_OK) return;
  printf("%s\n0 passed, 1 failed\n", kiln_last_error(ctx));
  exit(1);
}

static void *tensor(size_t count, int is_random) {
  uint16_t *codes = malloc(count * 2);
  void *address = NULL;
  for (size_t i = 0; i < count; i++) {
    const float value = (float)(rand() % 4001 - 2000) / 1000.0f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    codes[i] = is_random ? (uint16_t)(bits >> 16) : 0x7fc0;
  }
  need(kiln_memory_alloc(ctx, count * 2, &address));
  need(kiln_memory_upload(ctx, address, codes, count * 2));
  free(codes);
  return address;
}

static kiln_launcher_stride same(kiln_stride s) {
  return (kiln_launcher_stride){s.batch, s.row, s.head};
}

static kiln_launcher_args translate(const kiln_attn_args *a) {
  kiln_launcher_args l = {.q = a->q, .k = a->k, .v = a->v, .o = a->o, .lse = a->lse};
  l.batch = a->batch, l.seqlen_q = a->seqlen_q, l.seqlen_k = a->seqlen_k;
  l.num_heads = a->num_heads, l.num_heads_k = a->num_heads_k;
  l.q_stride = same(a->q_stride), l.k_stride = same(a->k_stride);
  l.v_stride = same(a->v_stride), l.o_stride = same(a->o_stride);
  l.softmax_scale = a->softmax_scale;
  return l;
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Median microseconds of a launch in a row of many, the two in turn. */
static void race(kiln_plan *plan, const OF(PREFIX, ) * kernel, const kiln_attn_args *a) {
  double times[2][TURNS];
  const kiln_launcher_args l = translate(a);
  for (int turn = -1; turn < TURNS; turn++)
    for (int who = 0; who < 2; who++) {
      const double start = now_us();
      for (int i = 0; i < LAUNCHES; i++)
        if (who)
          OF(PREFIX, _run)(kernel, &l, NULL);
        else
          kiln_plan_run(plan, a, NULL);
      need(kiln_context_synchronize(ctx));
      if (turn >= 0) times[who][turn] = (now_us() - start) / LAUNCHES;
    }
  qsort(times[0], TURNS, sizeof times[0][0], compare);
  qsort(times[1], TURNS, sizeof times[1][0], compare);
  const double library = times[0][TURNS / 2], launcher = times[1][TURNS / 2];
  printf("seqlen %d: library %.2f us, launcher %.2f us a launch\n", (int)a->seqlen_q, library,
         launcher);
  judge(launcher < 1.05 * library + 0.5, "the launcher takes as long as the library");
}

static void try_size(kiln_plan *plan, const OF(PREFIX, ) * kernel, int batch, int seqlen) {
  const size_t rows = (size_t)batch * (size_t)seqlen, bytes = rows * HEADS * DIM * 2;
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args a = KILN_ATTN_ARGS_INIT;
  void *outputs[2], *lse[2];
  unsigned char *host[2];
  a.q = tensor(rows * HEADS * DIM, 1);
  a.k = tensor(rows * HEADS_K * DIM, 1);
  a.v = tensor(rows * HEADS_K * DIM, 1);
  a.batch = batch, a.seqlen_q = a.seqlen_k = seqlen;
  a.num_heads = HEADS, a.num_heads_k = HEADS_K;
  kiln_attn_args_pack(&a, &spec);
  for (int who = 0; who < 2; who++) {
    host[who] = malloc(bytes + rows * HEADS * 4);
    a.o = outputs[who] = tensor(rows * HEADS * DIM, 0);
    a.lse = lse[who] = tensor(rows * HEADS * 2, 0);
    const kiln_launcher_args l = translate(&a);
    if (who)
      judge(OF(PREFIX, _run)(kernel, &l, NULL) == 0, "the launcher launches");
    else
      need(kiln_plan_run(plan, &a, NULL));
    need(kiln_context_synchronize(ctx));
    need(kiln_memory_download(ctx, host[who], a.o, bytes));
    need(kiln_memory_download(ctx, host[who] + bytes, a.lse, rows * HEADS * 4));
  }
  judge(memcmp(host[0], host[1], bytes + rows * HEADS * 4) == 0, "the same bits");
  uint16_t first;
  memcpy(&first, host[1], sizeof first);
  judge((first & 0x7fc0) != 0x7fc0, "the output was written");
  race(plan, kernel, &a);
  void *all[] = {(void *)a.q, (void *)a.k, (void *)a.v, outputs[0], outputs[1], lse[0], lse[1]};
  for (int i = 0; i < 7; i++) need(kiln_memory_free(ctx, all[i]));
  free(host[0]);
  free(host[1]);
}

/* The launcher loads into the context that is current; libkiln leaves none behind. */
static int make_current(void) {
  int (*retain)(void **, int), (*push)(void *);
  void *context, *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return -1;
  *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
  *(void **)&push = dlsym(library, "cuCtxPushCurrent_v2");
  return retain(&context, 0) || push(context) ? -1 : 0;
}

int main(int count, char **words) {
  static char cubin[4 << 20];
  OF(PREFIX, ) *kernel = NULL;
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_plan *plan = NULL;
  FILE *file = count == 2 ? fopen(words[1], "rb") : NULL;
  if (!file || fread(cubin, 1, sizeof cubin, file) == 0) return 1;
  if (kiln_context_create(0, NULL, &ctx)) return 2;
  spec.head_dim = DIM;
  spec.mask = KILN_MASK_CAUSAL;
  need(kiln_plan_create(ctx, &spec, NULL, NULL, &plan));
  if (make_current() != 0) return 3;
  judge(OF(PREFIX, _open)(cubin, &kernel) == 0, "the launcher opens its cubin");
  const int sizes[][2] = {{2, 1000}, {1, 77}, {4, 2048}};
  for (int i = 0; i < 3 && kernel; i++) try_size(plan, kernel, sizes[i][0], sizes[i][1]);
  if (kernel) OF(PREFIX, _close)(kernel);
  kiln_plan_destroy(plan);
  kiln_context_destroy(ctx);
  printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
