/* kiln_conformance: the emulator's answers to the micro-kernels against a GPU's recorded ones.
 *
 *   kiln_conformance compile FOLDER          NAME.cubin for every NAME.cu, by NVRTC
 *   kiln_conformance compare FOLDER PREFIX   every case on the emulator against PREFIX.txt and .bin
 *
 * FOLDER comes from compose.lua. A case runs under three schedules; all must agree with the record.
 * A case that the record says no GPU has answered yet must give one answer under all of them, and
 * counts as skipped.
 * Ends with `N passed, N failed, N skipped`. Called by run.sh and tools/gpu/conformance.sh. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/services.h"
#include "tests/conformance/manifest.h"

enum { ERROR_BYTES = 64 << 10 };

static const struct {
  const char *name;
  int64_t seed;
} schedules[] = {{"late", -1}, {"eager", -1}, {"random", 1}};

enum { NUM_SCHEDULES = sizeof schedules / sizeof *schedules };

typedef struct tester {
  kiln__env env;
  kiln__text error;
  const kiln__compiler_ops *ops;
  void *compiler;
  void *devices[NUM_SCHEDULES];
  const char *folder;
  manifest cases;
  answers recorded;
} tester;

static int say(tester *t, const char *name) {
  printf("%s: %s\n", name, kiln__text_get(&t->error));
  return 0;
}

static int write_file(const char *folder, const char *name, const char *suffix, const void *bytes,
                      size_t count) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
  FILE *file = fopen(path, "wb");
  if (!file) return 0;
  const int is_written = fwrite(bytes, 1, count, file) == count;
  return fclose(file) == 0 && is_written;
}

static void compiled_free(kiln__compiled *compiled) {
  free(compiled->image);
  free(compiled->ptx);
  free(compiled->notes);
}

/* ---- compile ---- */

static int compile_for(tester *t, const conformance_case *c, const char *arch,
                       kiln__compiled *out) {
  size_t length;
  char *text = kiln__case_file(t->folder, c->name, ".cu", &length);
  if (!text) return 0;
  kiln__text_clear(&t->error);
  const kiln_status status = t->ops->compile(t->compiler, text, length, arch, out, &t->error);
  free(text);
  if (status != KILN_OK) return say(t, c->name);
  if (out->notes) printf("%s: %s\n", c->name, out->notes);
  return 1;
}

/* What needs no Hopper instruction must compile for sm_80 too. */
static int compile_case(tester *t, const conformance_case *c) {
  kiln__compiled compiled;
  if (!strcmp(c->arch, "sm_90") && strncmp(c->name, "forward", 7)) {
    if (!compile_for(t, c, "sm_80", &compiled)) return 0;
    compiled_free(&compiled);
  }
  if (!compile_for(t, c, c->arch, &compiled)) return 0;
  const int is_written =
      write_file(t->folder, c->name, ".cubin", compiled.image, compiled.image_size);
  compiled_free(&compiled);
  return is_written;
}

/* ---- run on the emulator ---- */

typedef struct run {
  void *in, *out;
  char maps[CASE_MAPS][KILN__TENSOR_MAP_BYTES] __attribute__((aligned(64)));
  uint64_t words[CASE_WORDS];
  void *params[CASE_MAPS + 1];
  size_t sizes[CASE_MAPS + 1];
} run;

static const char *address_in(const run *r, case_space space) {
  return space == SPACE_IN ? r->in : space == SPACE_OUT ? r->out : NULL;
}

/* Both buffers; the answer begins as 0xff, as all device memory does. */
static kiln_status fill_memory(tester *t, void *device, const conformance_case *c, run *r) {
  const kiln__device_ops *ops = &kiln__emulator_ops;
  size_t bytes;
  char *input = kiln__case_file(t->folder, c->name, ".in", &bytes);
  if (!input || bytes != c->in_bytes) {
    free(input);
    return KILN_IO_FAILED;
  }
  kiln_status status = ops->memory_alloc(device, c->in_bytes, &r->in, &t->error);
  if (status == KILN_OK) status = ops->memory_alloc(device, c->out_bytes, &r->out, &t->error);
  if (status == KILN_OK) status = ops->upload(device, r->in, input, bytes, &t->error);
  free(input);
  return status;
}

static kiln_status fill_params(tester *t, void *device, const conformance_case *c, run *r) {
  kiln_status status = KILN_OK;
  for (int i = 0; i < c->num_maps && status == KILN_OK; i++) {
    kiln__tensor_map map = c->maps[i].map;
    map.address = address_in(r, c->maps[i].space) + (uintptr_t)map.address;
    status = kiln__emulator_ops.tensor_map_encode(device, &map, &t->error, r->maps[i]);
    r->params[i] = r->maps[i];
    r->sizes[i] = KILN__TENSOR_MAP_BYTES;
  }
  for (int i = 0; i < c->num_words; i++)
    r->words[i] =
        (uint64_t)(uintptr_t)address_in(r, c->words[i].space) + (uint64_t)c->words[i].value;
  r->params[c->num_maps] = r->words;
  r->sizes[c->num_maps] = (size_t)c->num_words * sizeof *r->words;
  return status;
}

static kiln_status launch(tester *t, void *device, void *module, const conformance_case *c,
                          run *r) {
  kiln__entry_attributes attributes;
  kiln__launch launch = {.grid = {c->grid[0], c->grid[1]},
                         .shape = c->shape,
                         .params = r->params,
                         .param_sizes = r->sizes,
                         .num_params = c->num_maps + 1};
  const kiln_status status = kiln__emulator_ops.entry_get(device, module, c->entry, &c->shape,
                                                          &t->error, &launch.entry, &attributes);
  return status == KILN_OK ? kiln__emulator_ops.launch(device, &launch, NULL, &t->error) : status;
}

/* The answer of one schedule, out_bytes of it. */
static kiln_status answer(tester *t, void *device, const kiln__compiled *compiled,
                          const conformance_case *c, unsigned char *out) {
  const kiln__device_ops *ops = &kiln__emulator_ops;
  run r;
  void *module = NULL;
  memset(&r, 0, sizeof r);
  kiln_status status =
      ops->module_load(device, compiled->image, compiled->image_size, &t->error, &module);
  if (status == KILN_OK) status = fill_memory(t, device, c, &r);
  if (status == KILN_OK) status = fill_params(t, device, c, &r);
  if (status == KILN_OK) status = launch(t, device, module, c, &r);
  if (status == KILN_OK) status = ops->download(device, out, r.out, c->out_bytes, &t->error);
  ops->memory_free(device, r.in, &t->error);
  ops->memory_free(device, r.out, &t->error);
  ops->module_unload(device, module);
  return status;
}

/* Without a record the answer under the first schedule is the one for all. */
static int is_same(const conformance_case *c, const unsigned char *first, const unsigned char *out,
                   const char *schedule) {
  if (!memcmp(first, out, c->out_bytes)) return 1;
  printf("%s: another answer under %s than under %s\n", c->name, schedule, schedules[0].name);
  return 0;
}

static int compare_compiled(tester *t, const conformance_case *c, const kiln__compiled *compiled,
                            unsigned char *out) {
  const int waits = kiln__answer_waits(c, &t->recorded);
  unsigned char *first = out + c->out_bytes;
  for (int i = 0; i < NUM_SCHEDULES; i++) {
    kiln__text_clear(&t->error);
    if (answer(t, t->devices[i], compiled, c, out) != KILN_OK) return say(t, c->name);
    if (waits && i == 0) memcpy(first, out, c->out_bytes);
    if (waits ? !is_same(c, first, out, schedules[i].name)
              : !kiln__answer_agrees(c, &t->recorded, out, schedules[i].name))
      return 0;
  }
  return 1;
}

static int compare_case(tester *t, const conformance_case *c) {
  kiln__compiled compiled;
  size_t length;
  char *text = kiln__case_file(t->folder, c->name, ".c", &length);
  if (!text) return 0;
  kiln__text_clear(&t->error);
  const kiln_status status =
      t->ops->compile(t->compiler, text, length, c->arch, &compiled, &t->error);
  free(text);
  if (status != KILN_OK) return say(t, c->name);
  unsigned char *out = malloc(2 * c->out_bytes);
  const int agrees = out && compare_compiled(t, c, &compiled, out);
  free(out);
  compiled_free(&compiled);
  return agrees;
}

/* ---- the program ---- */

static int devices_open(tester *t) {
  for (int i = 0; i < NUM_SCHEDULES; i++) {
    const kiln__device_options options = {
        .env = &t->env, .emu_seed = schedules[i].seed, .emu_schedule = schedules[i].name};
    if (kiln__emulator_ops.open(&options, &t->error, &t->devices[i]) != KILN_OK) return 0;
  }
  return 1;
}

static int all_cases(tester *t, int (*one)(tester *t, const conformance_case *c)) {
  int failed = 0, skipped = 0;
  if (t->ops->open(&t->env, 0, &t->error, &t->compiler) != KILN_OK) {
    say(t, "compiler");
    return 1;
  }
  for (int i = 0; i < t->cases.num_cases; i++) {
    const conformance_case *c = &t->cases.cases[i];
    const int is_good = one(t, c);
    failed += !is_good;
    skipped += is_good && kiln__answer_waits(c, &t->recorded);
  }
  printf("%d passed, %d failed, %d skipped\n", t->cases.num_cases - failed - skipped, failed,
         skipped);
  return failed > 0;
}

static int compare(tester *t, const char *prefix) {
  t->ops = &kiln__emulator_compiler_ops;
  if (kiln__answers_read(prefix, &t->recorded) != 0 || !devices_open(t)) return 1;
  return all_cases(t, compare_case);
}

static int run_command(tester *t, int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: kiln_conformance compile FOLDER | compare FOLDER PREFIX\n");
    return 1;
  }
  t->folder = argv[2];
  if (kiln__manifest_read(t->folder, &t->cases) != 0) return 1;
  if (argc == 4 && !strcmp(argv[1], "compare")) return compare(t, argv[3]);
  t->ops = &kiln__nvrtc_ops;
  return all_cases(t, compile_case);
}

int main(int argc, char **argv) {
  tester *t = calloc(1, sizeof *t);
  if (!t) return 1;
  kiln__text_init(&t->error, ERROR_BYTES);
  if (kiln__env_read(&t->env) != 0) return 1;
  const int code = run_command(t, argc, argv);
  for (int i = 0; i < NUM_SCHEDULES; i++) kiln__emulator_ops.close(t->devices[i]);
  if (t->compiler) t->ops->close(t->compiler);
  kiln__answers_free(&t->recorded);
  kiln__env_free(&t->env);
  kiln__text_free(&t->error);
  free(t);
  return code;
}
