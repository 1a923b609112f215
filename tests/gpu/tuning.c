/* What Kiln chooses and when, as a host program meets it: one part of tests/gpu/tuning.sh a run,
 * which builds it. Problems are bf16 without a mask, one batch, 8 heads; KILN_TUNE and KILN_RECORDS
 * are those of the environment.
 *   tuning plan DIM SEQLEN           prints the step of a plan's ladder, its tile and why
 *   tuning lengths DIM FIRST LAST    one call at each length
 *   tuning illegal                   a tile that asks for too much shared memory
 *   tuning captured DIM KNOWN NEW    calls in stream captures; KNOWN has a record, NEW has none
 *   tuning short DIM SEQLEN MB       a plan that measures while so much device memory is free
 *   tuning busy                      keeps the GPU busy for two minutes, or until it is killed
 * All but plan and busy end with `N passed, N failed`. */
#include <kiln/kiln.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 8, POISON = 0x7fc0 }; /* NaN */
enum { CAPTURING = 1, CAPTURE_GLOBAL = 0, NON_BLOCKING = 1 };

static int passed, failed;
static kiln_context *ctx;
static kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;

static void judge(int good, const char *what) {
  if (!good) printf("FAILED: %s (%s)\n", what, ctx ? kiln_last_error(ctx) : "");
  good ? passed++ : failed++;
}

static void need(kiln_status status) {
  if (status == KILN_OK) return;
  printf("%s: %s\n0 passed, 1 failed\n", kiln_status_name(status), kiln_last_error(ctx));
  exit(1);
}

/* ---- problems ---- */

static kiln_attn_args sizes_at(int seqlen) {
  kiln_attn_args a = KILN_ATTN_ARGS_INIT;
  a.batch = 1;
  a.seqlen_q = a.seqlen_k = seqlen;
  a.num_heads = a.num_heads_k = HEADS;
  kiln_attn_args_pack(&a, &spec);
  return a;
}

static size_t elements(const kiln_attn_args *a) {
  return (size_t)a->seqlen_q * HEADS * (size_t)spec.head_dim;
}

static void *tensor(size_t count) {
  uint16_t *codes = malloc(count * 2);
  void *address = NULL;
  for (size_t i = 0; i < count; i++) {
    const float value = (float)(rand() % 4001 - 2000) / 1000.0f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    codes[i] = (uint16_t)(bits >> 16);
  }
  need(kiln_memory_alloc(ctx, count * 2, &address));
  need(kiln_memory_upload(ctx, address, codes, count * 2));
  free(codes);
  return address;
}

static kiln_attn_args problem_at(int seqlen) {
  kiln_attn_args a = sizes_at(seqlen);
  a.q = tensor(elements(&a));
  a.k = tensor(elements(&a));
  a.v = tensor(elements(&a));
  a.o = tensor(elements(&a));
  return a;
}

/* The copy has arrived when it returns, for streams that do not wait for the default one too. */
static void poison(const kiln_attn_args *a) {
  uint16_t *codes = malloc(elements(a) * 2);
  for (size_t i = 0; i < elements(a); i++) codes[i] = POISON;
  need(kiln_memory_upload(ctx, a->o, codes, elements(a) * 2));
  need(kiln_context_synchronize(ctx));
  free(codes);
}

static uint16_t *read_output(const kiln_attn_args *a) {
  uint16_t *codes = malloc(elements(a) * 2);
  need(kiln_memory_download(ctx, codes, a->o, elements(a) * 2));
  return codes;
}

static int is_written(const uint16_t *codes, size_t count) {
  for (size_t i = 0; i < count; i++)
    if ((codes[i] & 0x7f80) == 0x7f80) return 0;
  return 1;
}

/* ---- plans ---- */

static const char *step_name(kiln_plan_step step) {
  static const char *const names[] = {"explicit",    "exact",   "near_shape",
                                      "near_device", "default", "model"};
  return (unsigned)step < sizeof names / sizeof *names ? names[step] : "unknown";
}

static kiln_plan_info print_plan(const kiln_plan *plan) {
  kiln_plan_info info = {.size = sizeof info};
  kiln_plan_get_info(plan, &info);
  printf("%s %dx%dx%dx%d %s\n", step_name(info.step), (int)info.tile.block_m,
         (int)info.tile.block_n, (int)info.tile.num_stages, (int)info.tile.num_warps, info.why);
  return info;
}

static void run_plan(int seqlen) {
  const kiln_attn_args a = sizes_at(seqlen);
  kiln_plan *plan;
  need(kiln_plan_create(ctx, &spec, NULL, &a, &plan));
  print_plan(plan);
  kiln_plan_destroy(plan);
}

static void run_lengths(int first, int last) {
  kiln_attn_args a = problem_at(last);
  for (int seqlen = first; seqlen <= last; seqlen++) {
    a.seqlen_q = a.seqlen_k = seqlen;
    judge(kiln_attn_forward(ctx, &spec, &a, NULL) == KILN_OK, "a call of a length");
  }
  judge(kiln_context_synchronize(ctx) == KILN_OK, "all lengths run");
}

/* Nothing compiles in this context: what is refused for its tile was refused before. */
static void run_illegal(void) {
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  kiln_tile tile = {sizeof tile, 128, 176, 3, 12}, list[1024];
  const kiln_attn_args a = sizes_at(512);
  kiln_plan *plan;
  int32_t count = 0;
  kiln_context_destroy(ctx);
  ctx = NULL;
  options.jit_off = 1;
  options.cache_dir = "";
  if (kiln_context_create(0, &options, &ctx) != KILN_OK) exit(1);
  spec.head_dim = 128;
  judge(kiln_plan_create(ctx, &spec, &tile, &a, &plan) == KILN_INVALID_ARGUMENT && !plan,
        "300 KB of shared memory are refused");
  judge(strstr(kiln_last_error(ctx), "bytes of shared memory, sm_90a has 232448 for a block") !=
            NULL,
        "by name");
  tile.num_stages = 2;
  judge(kiln_plan_create(ctx, &spec, &tile, &a, &plan) == KILN_MISSING_KERNEL,
        "a legal one is refused because nothing compiles");
  need(kiln_tile_list(ctx, &spec, list, 1024, &count));
  int is_listed[9] = {0};
  for (int i = 0; i < count && i < 1024; i++)
    is_listed[list[i].num_stages] += list[i].block_m == 128 && list[i].block_n == 176;
  judge(count <= 1024 && is_listed[2] == 1 && is_listed[3] == 0, "tuning meets the legal one only");
}

/* ---- the driver ---- */

static struct driver {
  int (*retain)(void **context, int device);
  int (*push)(void *context);
  int (*memory)(size_t *free, size_t *total);
  int (*create)(void **stream, unsigned flags);
  int (*destroy)(void *stream);
  int (*synchronize)(void *stream);
  int (*begin)(void *stream, int mode);
  int (*end)(void *stream, void **graph);
  int (*is_capturing)(void *stream, int *status);
  int (*nodes)(void *graph, void **nodes, size_t *count);
  int (*instantiate)(void **exec, void *graph, unsigned long long flags);
  int (*launch)(void *exec, void *stream);
  int (*drop_exec)(void *exec);
  int (*drop_graph)(void *graph);
} driver;

/* Streams and graphs are made in the context that is current; libkiln leaves none behind. */
static void open_driver(void) {
  const struct {
    void *function;
    const char *name;
  } rows[] = {{&driver.retain, "cuDevicePrimaryCtxRetain"},
              {&driver.push, "cuCtxPushCurrent_v2"},
              {&driver.memory, "cuMemGetInfo_v2"},
              {&driver.create, "cuStreamCreate"},
              {&driver.destroy, "cuStreamDestroy_v2"},
              {&driver.synchronize, "cuStreamSynchronize"},
              {&driver.begin, "cuStreamBeginCapture_v2"},
              {&driver.end, "cuStreamEndCapture"},
              {&driver.is_capturing, "cuStreamIsCapturing"},
              {&driver.nodes, "cuGraphGetNodes"},
              {&driver.instantiate, "cuGraphInstantiateWithFlags"},
              {&driver.launch, "cuGraphLaunch"},
              {&driver.drop_exec, "cuGraphExecDestroy"},
              {&driver.drop_graph, "cuGraphDestroy"}};
  void *context, *library = dlopen("libcuda.so.1", RTLD_NOW);
  for (size_t i = 0; library && i < sizeof rows / sizeof rows[0]; i++) {
    void *found = dlsym(library, rows[i].name);
    if (!found) library = NULL;
    memcpy(rows[i].function, &found, sizeof found);
  }
  if (library && driver.retain(&context, 0) == 0 && driver.push(context) == 0) return;
  printf("the driver has no streams or graphs\n0 passed, 1 failed\n");
  exit(1);
}

/* ---- captures ---- */

static int is_captured(void *stream) {
  int status = 0;
  return driver.is_capturing(stream, &status) == 0 && status == CAPTURING;
}

static size_t count_nodes(void *graph) {
  size_t count = 0;
  return graph && driver.nodes(graph, NULL, &count) == 0 ? count : SIZE_MAX;
}

/* The first call of all is refused, and the capture goes on as if there had been none. */
static void refuse_first(void *stream, int is_blocking, const kiln_attn_args *a) {
  void *graph = NULL;
  kiln_plan *plan = NULL;
  judge(driver.begin(stream, CAPTURE_GLOBAL) == 0, "a capture begins");
  judge(kiln_attn_forward(ctx, &spec, a, (struct CUstream_st *)stream) == KILN_CAPTURE_ACTIVE,
        "a first call in a capture is refused");
  /* A plan is for any stream, so only a capture that the default stream sees refuses it. */
  if (is_blocking)
    judge(kiln_plan_create(ctx, &spec, NULL, a, &plan) == KILN_CAPTURE_ACTIVE && !plan,
          "so is a plan");
  judge(is_captured(stream), "the capture stays valid");
  judge(driver.end(stream, &graph) == 0 && graph, "it ends well");
  judge(count_nodes(graph) == 0, "with nothing in it");
  if (graph) driver.drop_graph(graph);
}

static void *capture(void *stream, const kiln_attn_args *a) {
  void *graph = NULL, *exec = NULL;
  judge(driver.begin(stream, CAPTURE_GLOBAL) == 0, "a capture begins");
  judge(kiln_attn_forward(ctx, &spec, a, (struct CUstream_st *)stream) == KILN_OK,
        "a call that has a plan is captured");
  judge(is_captured(stream), "the capture stays valid");
  judge(driver.end(stream, &graph) == 0 && graph, "it ends well");
  judge(count_nodes(graph) >= 1 && count_nodes(graph) < 8, "with a launch in it");
  judge(graph && driver.instantiate(&exec, graph, 0) == 0 && exec, "it becomes a graph that runs");
  if (graph) driver.drop_graph(graph);
  return exec;
}

/* What the graph writes into a poisoned output; NULL where it does not run. */
static uint16_t *replay(void *stream, const kiln_attn_args *a) {
  void *exec = capture(stream, a);
  if (!exec) return NULL;
  poison(a);
  judge(driver.launch(exec, stream) == 0 && driver.synchronize(stream) == 0, "the graph runs");
  driver.drop_exec(exec);
  uint16_t *codes = read_output(a);
  judge(is_written(codes, elements(a)), "the graph writes the whole output");
  return codes;
}

static void try_captures(unsigned flags, const kiln_attn_args *known, const kiln_attn_args *new) {
  void *stream = NULL;
  judge(driver.create(&stream, flags) == 0, "a stream is made");
  refuse_first(stream, flags == 0, new);
  poison(known);
  judge(kiln_attn_forward(ctx, &spec, known, (struct CUstream_st *)stream) == KILN_OK,
        "the same call works after the capture");
  judge(driver.synchronize(stream) == 0, "it runs");
  uint16_t *direct = read_output(known), *captured = replay(stream, known);
  judge(is_written(direct, elements(known)), "it writes the whole output");
  judge(captured && memcmp(direct, captured, elements(known) * 2) == 0,
        "the graph gives the same bits");
  free(captured);
  free(direct);
  free(replay(stream, new)); /* by the plan of the other length */
  driver.destroy(stream);
}

static void run_captured(int known, int new) {
  open_driver();
  for (unsigned flags = 0; flags <= NON_BLOCKING; flags++) {
    const kiln_attn_args a = problem_at(known), b = problem_at(new);
    try_captures(flags, &a, &b);
    kiln_context_destroy(ctx); /* so that the next first call is one */
    ctx = NULL;
    if (flags < NON_BLOCKING && kiln_context_create(0, NULL, &ctx) != KILN_OK) exit(1);
  }
}

/* ---- little memory ---- */

/* Takes all of the device's memory but so much; it is freed with the process. */
static void leave(size_t wanted) {
  size_t available = 0, total = 0;
  for (size_t size = (size_t)1 << 30; size >= (size_t)1 << 20;) {
    void *address;
    if (driver.memory(&available, &total) != 0) break;
    if (available < wanted + size || kiln_memory_alloc(ctx, size, &address) != KILN_OK) size /= 2;
  }
  driver.memory(&available, &total);
  printf("%zu MB are free\n", available >> 20);
  judge(available <= wanted + ((size_t)16 << 20), "the device is nearly full");
}

static void run_short(int seqlen, int megabytes) {
  const kiln_attn_args a = problem_at(seqlen);
  kiln_plan_options options = KILN_PLAN_OPTIONS_INIT;
  kiln_plan *plan = NULL;
  options.mode = KILN_PLAN_MEASURE;
  options.deadline_s = 10;
  open_driver();
  poison(&a);
  leave((size_t)megabytes << 20);
  need(kiln_plan_create_with(ctx, &spec, NULL, &a, &options, &plan));
  const kiln_plan_info info = print_plan(plan);
  judge(info.step == KILN_STEP_EXACT || strstr(info.why, "measuring failed ("),
        "it was measured, or the plan says why not");
  judge(kiln_plan_run(plan, &a, NULL) == KILN_OK && kiln_context_synchronize(ctx) == KILN_OK,
        "the plan runs");
  uint16_t *codes = read_output(&a);
  judge(is_written(codes, elements(&a)), "it writes the whole output");
  free(codes);
  kiln_plan_destroy(plan);
}

static void run_busy(void) {
  const kiln_attn_args a = problem_at(4096);
  const time_t start = time(NULL);
  need(kiln_attn_forward(ctx, &spec, &a, NULL));
  need(kiln_context_synchronize(ctx));
  printf("busy\n");
  fflush(stdout);
  while (time(NULL) < start + 120) {
    for (int i = 0; i < 50; i++) need(kiln_attn_forward(ctx, &spec, &a, NULL));
    need(kiln_context_synchronize(ctx));
  }
}

int main(int count, char **words) {
  int numbers[3] = {0};
  const char *part = count > 1 ? words[1] : "";
  if (kiln_context_create(0, NULL, &ctx) != KILN_OK) return 1;
  for (int i = 0; i < 3 && i + 2 < count; i++) numbers[i] = atoi(words[i + 2]);
  if (numbers[0]) spec.head_dim = numbers[0];
  if (strcmp(part, "plan") == 0) run_plan(numbers[1]);
  if (strcmp(part, "lengths") == 0) run_lengths(numbers[1], numbers[2]);
  if (strcmp(part, "illegal") == 0) run_illegal();
  if (strcmp(part, "captured") == 0) run_captured(numbers[1], numbers[2]);
  if (strcmp(part, "short") == 0) run_short(numbers[1], numbers[2]);
  if (strcmp(part, "busy") == 0) run_busy();
  kiln_context_destroy(ctx);
  if (strcmp(part, "plan") != 0 && strcmp(part, "busy") != 0)
    printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
