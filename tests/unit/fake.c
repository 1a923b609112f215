/* A device, a generator and a compiler that record: see fake.h. Their state is the
 * fake itself. */
#include "fake.h"

#include "runtime/digest.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char fake_record[] =
    "{\"format\":1,\"kiln\":\"0.1.0\",\"family\":\"hopper\",\"layout\":\"forward.1\",\"align\":16,"
    "\"spec\":{\"arch\":\"sm_90a\",\"pass\":\"forward\",\"algorithm\":\"flash\",\"dtype\":\"bf16\","
    "\"head_dim\":64,\"head_dim_v\":64,\"mask\":\"none\"},"
    "\"tile\":{\"block_m\":128,\"block_n\":64,\"num_stages\":2,\"num_warps\":12},"
    "\"workspace\":[{\"name\":\"counter\",\"bytes\":16,\"dims\":[],\"zero\":true},"
    "{\"name\":\"part\",\"bytes\":100,\"dims\":[[\"seqlen_q\",128],[\"batch\",1]]}],"
    "\"maps\":{\"q\":{\"box_rows\":128,\"box_cols\":64,\"swizzle\":128},"
    "\"k\":{\"box_rows\":64,\"box_cols\":64,\"swizzle\":128},"
    "\"v\":{\"box_rows\":64,\"box_cols\":64,\"swizzle\":128},"
    "\"o\":{\"box_rows\":128,\"box_cols\":64,\"swizzle\":128}},"
    "\"entries\":[{\"name\":\"kiln_forward\",\"threads\":384,\"cluster\":1,\"shared_bytes\":98304,"
    "\"persistent\":1,\"grid\":[[\"seqlen_q\",128],[\"num_heads\",1],[\"batch\",1]],"
    "\"params\":[\"map:q\",\"map:k\",\"map:v\",\"map:o\",\"args\"]}],\"smem\":[]}";

/* What check asserts with would allocate, and the caller may be counting allocations. */
static void demand(int condition) {
  if (!condition) abort();
}

/* ---- device ---- */

static kiln_status module_load(void *device, const void *image, size_t size, kiln__text *error,
                               void **module) {
  fake *f = device;
  demand((size > 4 && memcmp(image, "\177ELF", 4) == 0) || size == strlen(image));
  f->num_loads++;
  f->loaded_bytes = size;
  if (f->fail_load != KILN_OK) {
    kiln__text_string(error, "the fake does not load");
    return f->fail_load;
  }
  *module = f;
  return KILN_OK;
}

static void module_unload(void *device, void *module) {
  fake *f = device;
  demand(module == f);
  f->num_unloads++;
}

static kiln_status entry_get(void *device, void *module, const char *name,
                             const kiln__entry_shape *shape, kiln__text *error, void **entry,
                             kiln__entry_attributes *attributes) {
  fake *f = device;
  (void)module;
  (void)name;
  (void)shape;
  (void)error;
  memset(attributes, 0, sizeof *attributes);
  *entry = &f->launches[f->num_entries++];
  return KILN_OK;
}

static kiln_status tensor_map_encode(void *device, const kiln__tensor_map *map, kiln__text *error,
                                     void *out) {
  fake *f = device;
  (void)error;
  demand((uintptr_t)out % 64 == 0);
  memset(out, 0x5a, KILN__TENSOR_MAP_BYTES);
  f->maps[f->num_maps++ % FAKE_MAX] = *map;
  return KILN_OK;
}

static kiln_status clear(void *device, void *address, size_t bytes, struct CUstream_st *stream,
                         kiln__text *error) {
  fake *f = device;
  (void)stream;
  (void)error;
  f->cleared_at[f->num_clears % FAKE_MAX] = address;
  f->cleared[f->num_clears++ % FAKE_MAX] = bytes;
  return KILN_OK;
}

static kiln_status launch(void *device, const kiln__launch *l, struct CUstream_st *stream,
                          kiln__text *error) {
  fake *f = device;
  (void)stream;
  if (f->fail_launch != KILN_OK) {
    kiln__text_string(error, "the fake does not launch");
    return f->fail_launch;
  }
  fake_launch *kept = &f->launches[f->num_launches++ % FAKE_MAX];
  kept->entry = l->entry;
  kept->grid[0] = l->grid[0];
  kept->grid[1] = l->grid[1];
  kept->shape = l->shape;
  kept->num_params = l->num_params;
  const size_t size = l->param_sizes[l->num_params - 1];
  const int backward = size == sizeof kept->backward;
  demand(backward || size == sizeof kept->args);
  memcpy(backward ? (void *)&kept->backward : &kept->args, l->params[l->num_params - 1], size);
  return KILN_OK;
}

static kiln_status is_capturing(void *device, struct CUstream_st *stream, int *capturing,
                                kiln__text *error) {
  (void)stream;
  (void)error;
  *capturing = ((fake *)device)->capturing;
  return KILN_OK;
}

/* ---- memory: the host's ---- */

static kiln_status memory_alloc(void *device, size_t bytes, void **address, kiln__text *error) {
  fake *f = device;
  (void)error;
  f->num_allocs++;
  *address = aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *address ? KILN_OK : KILN_OUT_OF_MEMORY;
}

static kiln_status memory_free(void *device, void *address, kiln__text *error) {
  fake *f = device;
  (void)error;
  f->num_frees++;
  free(address);
  return KILN_OK;
}

static kiln_status copy(void *device, void *to, const void *from, size_t bytes, kiln__text *error) {
  (void)device;
  (void)error;
  memcpy(to, from, bytes);
  return KILN_OK;
}

/* ---- time ---- */

static kiln_status timer_start(void *device, kiln__text *error, void **timer) {
  fake *f = device;
  (void)error;
  f->timed_from = f->num_launches;
  *timer = device;
  return KILN_OK;
}

static kiln_status timer_stop(void *device, void *timer, kiln__text *error, double *time_us) {
  fake *f = device;
  (void)timer;
  (void)error;
  *time_us = f->launch_us * (f->num_launches - f->timed_from);
  return KILN_OK;
}

const kiln__device_ops fake_device_ops = {
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .upload = copy,
    .download = copy,
    .module_load = module_load,
    .module_unload = module_unload,
    .entry_get = entry_get,
    .tensor_map_encode = tensor_map_encode,
    .clear = clear,
    .launch = launch,
    .is_capturing = is_capturing,
    .timer_start = timer_start,
    .timer_stop = timer_stop,
};

/* ---- generator ---- */

static kiln_status resolve(void *generator, kiln_attn_spec *spec, kiln_tile *tile, char *error,
                           size_t error_size) {
  (void)generator;
  if (spec->head_dim % 8) {
    snprintf(error, error_size, "head_dim is %d", (int)spec->head_dim);
    return KILN_INVALID_ARGUMENT;
  }
  if (!spec->head_dim_v) spec->head_dim_v = spec->head_dim;
  if (tile && !tile->block_m) tile->block_m = 128;
  return KILN_OK;
}

static kiln_status render(void *generator, const kiln_attn_spec *spec, const kiln_tile *tile,
                          unsigned flags, int for_emulator, kiln__generated *out, char *error,
                          size_t error_size) {
  fake *f = generator;
  (void)flags;
  (void)for_emulator;
  memset(out, 0, sizeof *out);
  f->num_renders++;
  kiln__text text;
  kiln__text_init(&text, 4096);
  kiln__text_printf(&text, "kernel %s %d %d", spec->arch, (int)spec->head_dim, (int)tile->block_m);
  out->length = text.length;
  out->text = kiln__text_take(&text);
  const int backward = spec->pass == KILN_PASS_BACKWARD && f->backward_record;
  out->record = strdup(backward ? f->backward_record : f->record);
  if (out->text && out->record) {
    kiln__digest_bytes(out->text, out->length, out->source_id);
    return KILN_OK;
  }
  free(out->text);
  free(out->record);
  memset(out, 0, sizeof *out);
  snprintf(error, error_size, "no memory");
  return KILN_OUT_OF_MEMORY;
}

static int stamp(void *generator, char out[KILN__ID_SIZE]) {
  const fake *f = generator;
  if (f->stamp) snprintf(out, KILN__ID_SIZE, "%s", f->stamp);
  return f->stamp != NULL;
}

static void nothing(void *generator) { (void)generator; }

static const kiln__generator_ops generator_ops = {
    .destroy = nothing, .resolve = resolve, .render = render, .stamp = stamp};

/* ---- compiler ---- */

static const char *const options[] = {"--fake", "--more"}, *const lean[] = {"--lean", "--more"};

static kiln_status identify(void *compiler, const char *arch, kiln__compiler_identity *identity,
                            kiln__text *error) {
  fake *f = compiler;
  (void)arch;
  (void)error;
  snprintf(identity->version, sizeof identity->version, "%s", f->compiler_version);
  identity->options = f->no_line_info ? lean : options;
  identity->num_options = f->more_options ? 2 : 1;
  return KILN_OK;
}

static kiln_status compile(void *compiler, const char *text, size_t length, const char *arch,
                           kiln__compiled *out, kiln__text *error) {
  fake *f = compiler;
  (void)arch;
  memset(out, 0, sizeof *out);
  f->num_compiles++;
  if (f->slow_compile) usleep(50000);
  if (f->fail_compile != KILN_OK) {
    kiln__text_string(error, "/kiln/templates/x.tmpl.cu(7): error: planted");
    return f->fail_compile;
  }
  out->image = strdup(text);
  out->image_size = length;
  out->ptx = strdup("// ptx");
  out->ptx_length = strlen("// ptx");
  out->notes = strdup("(C7510) a remark");
  out->num_entries = 1;
  out->entries[0] = (kiln__entry_resources){"kiln_forward", 168, 24, 1024};
  if (out->image && out->ptx && out->notes) return KILN_OK;
  free(out->image);
  free(out->ptx);
  free(out->notes);
  memset(out, 0, sizeof *out);
  return KILN_OUT_OF_MEMORY;
}

/* The fake is the context's device too, and the context is around its environment. */
static fake *fake_of(const kiln__env *env) {
  return ((kiln_context *)((char *)env - offsetof(kiln_context, env)))->device;
}

static kiln_status open_compiler(const kiln__env *env, int no_line_info, kiln__text *error,
                                 void **compiler) {
  (void)error;
  fake_of(env)->num_opens++;
  fake_of(env)->no_line_info = no_line_info;
  *compiler = fake_of(env);
  return KILN_OK;
}

static int locate(const kiln__env *env, int no_line_info, const void *compiler, kiln__text *key) {
  const fake *f = fake_of(env);
  (void)compiler;
  if (!f->compiler_key) return 0;
  kiln__text_printf(key, "%s%s", no_line_info ? "--lean " : "", f->compiler_key);
  return 1;
}

static const kiln__compiler_ops compiler_ops = {.open = open_compiler,
                                                .close = nothing,
                                                .locate = locate,
                                                .identify = identify,
                                                .compile = compile};

/* ---- context ---- */

kiln_context *fake_context(fake *f, const char *cache_dir) {
  kiln_context *ctx = NULL;
  kiln_context_options o = KILN_CONTEXT_OPTIONS_INIT;
  o.cache_dir = cache_dir;
  memset(f, 0, sizeof *f);
  f->record = fake_record;
  f->compiler_version = "fake 1.0";
  f->launch_us = 12;
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &o, &ctx), KILN_OK);
  ctx->device_id = 0;
  ctx->ops = &fake_device_ops;
  ctx->device = f;
  ctx->info.compute_major = 9;
  ctx->info.num_sms = 132;
  strcpy(ctx->info.arch, "sm_90a");
  strcpy(ctx->info.name, "a fake");
  ctx->services.generator = &generator_ops;
  ctx->services.nvrtc = &compiler_ops;
  ctx->generator = f;
  ctx->compiler = f;
  return ctx;
}

void fake_context_destroy(kiln_context *ctx) {
  kiln__call_close(ctx); /* its kernels go through the device */
  ctx->device = NULL;
  kiln_context_destroy(ctx);
}

void fake_parse_record(const char *json, kiln__record *record) {
  char sentence[512];
  kiln__text error;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  ck_assert_msg(kiln__record_parse(json, strlen(json), &error, record) == KILN_OK, "%s", sentence);
}
