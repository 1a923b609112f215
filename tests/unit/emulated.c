/* Small kernels on the emulator: see emulated.h. */
#include "emulated.h"

#include <check.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the rendered file: prelude, kernel text, postlude ---- */

static const char script[] =
    "package.path = ... .. '/generator/lua/?.lua'\n"
    "local emulator, set = require('emulator'), require('wrapper_set')\n"
    "local text, entries = select(2, ...), { { name = 'test_kernel' } }\n"
    "local rows = set.select(require('wrappers'), text, 'emu')\n"
    "return emulator.prelude(rows, entries) .. '\\n#line 1 \"/kiln/test\"\\n' .. text\n"
    "  .. emulator.postlude(entries, text, rows)\n";

static char *render(const char *kernel_text) {
  lua_State *lua = luaL_newstate();
  ck_assert_ptr_nonnull(lua);
  luaL_openlibs(lua);
  const int failed = luaL_loadstring(lua, script);
  lua_pushstring(lua, KILN_TEST_SOURCE_DIR);
  lua_pushstring(lua, kernel_text);
  if (failed || lua_pcall(lua, 2, 1, 0)) ck_abort_msg("%s", lua_tostring(lua, -1));
  char *text = strdup(lua_tostring(lua, -1));
  lua_close(lua);
  return text;
}

/* ---- life ---- */

static void must(emulated *e, kiln_status status) {
  if (status != KILN_OK)
    ck_abort_msg("%s: %s", kiln_status_name(status), kiln__text_get(&e->error));
}

void emulated_create(emulated *e, const char *schedule, int64_t seed, int threads) {
  memset(e, 0, sizeof *e);
  kiln__text_init(&e->error, 64 << 10);
  ck_assert_int_eq(kiln__env_read(&e->env), 0);
  const kiln__device_options options = {
      .env = &e->env, .emu_seed = seed, .emu_schedule = schedule, .emu_starve = 0};
  must(e, kiln__emulator_ops.open(&options, &e->error, &e->device));
  must(e, kiln__emulator_compiler_ops.open(&e->env, 0, &e->error, &e->compiler));
  e->shape = (kiln__entry_shape){threads, 1, 48 << 10};
  e->blocks = 1;
}

void emulated_destroy(emulated *e) {
  kiln__emulator_ops.module_unload(e->device, e->module);
  kiln__emulator_ops.close(e->device);
  kiln__emulator_compiler_ops.close(e->compiler);
  kiln__env_free(&e->env);
  kiln__text_free(&e->error);
}

void emulated_compile(emulated *e, const char *kernel_text) {
  kiln__compiled compiled;
  char *text = render(kernel_text);
  must(e, kiln__emulator_compiler_ops.compile(e->compiler, text, strlen(text), "sm_90a", &compiled,
                                              &e->error));
  free(text);
  if (compiled.notes) ck_abort_msg("%s", compiled.notes);
  kiln__emulator_ops.module_unload(e->device, e->module);
  must(e, kiln__emulator_ops.module_load(e->device, compiled.image, compiled.image_size, &e->error,
                                         &e->module));
  free(compiled.image);
}

/* ---- memory ---- */

void *emulated_alloc(emulated *e, size_t count) {
  void *address;
  must(e, kiln__emulator_ops.memory_alloc(e->device, count, &address, &e->error));
  return address;
}

void *emulated_upload(emulated *e, const void *bytes, size_t count) {
  void *address = emulated_alloc(e, count);
  must(e, kiln__emulator_ops.upload(e->device, address, bytes, count, &e->error));
  return address;
}

void emulated_download(emulated *e, void *to, const void *from, size_t count) {
  must(e, kiln__emulator_ops.download(e->device, to, from, count, &e->error));
}

void emulated_map(emulated *e, const void *address, int rows, int columns, int box_rows,
                  int box_columns, int swizzle) {
  const uint64_t row = 2 * (uint64_t)columns, all = row * (uint64_t)rows;
  const kiln__tensor_map map = {
      .address = address,
      .rank = 4,
      .dims = {(uint64_t)columns, (uint64_t)rows, 1, 1},
      .strides = {row, all, all},
      .box = {(uint32_t)box_columns, (uint32_t)box_rows, 1, 1},
      .dtype = KILN_DTYPE_BF16,
      .swizzle = swizzle,
  };
  emulated_tensor(e, &map);
}

void emulated_tensor(emulated *e, const kiln__tensor_map *map) {
  must(e, kiln__emulator_ops.tensor_map_encode(e->device, map, &e->error, e->maps[e->num_maps]));
  e->num_maps++;
}

/* ---- running ---- */

kiln_status emulated_launch(emulated *e) {
  void *params[5];
  size_t sizes[5];
  kiln__entry_attributes attributes;
  kiln__launch launch = {.grid = {e->blocks, 1}, .shape = e->shape, .params = params};
  must(e, kiln__emulator_ops.entry_get(e->device, e->module, "test_kernel", &e->shape, &e->error,
                                       &launch.entry, &attributes));
  for (int i = 0; i < e->num_maps; i++) {
    params[i] = e->maps[i];
    sizes[i] = KILN__TENSOR_MAP_BYTES;
  }
  params[e->num_maps] = &e->args;
  sizes[e->num_maps] = sizeof e->args;
  launch.num_params = e->num_maps + 1;
  launch.param_sizes = sizes;
  kiln__text_clear(&e->error);
  return kiln__emulator_ops.launch(e->device, &launch, NULL, &e->error);
}

void emulated_run(emulated *e) { must(e, emulated_launch(e)); }

void emulated_must_fault(emulated *e, const char *kernel_text, const char *expected) {
  emulated_compile(e, kernel_text);
  const kiln_status status = emulated_launch(e);
  if (status == KILN_OK) ck_abort_msg("nothing was reported; wanted: %s", expected);
  if (!strstr(kiln__text_get(&e->error), expected))
    ck_abort_msg("reported: %s\nwanted: %s", kiln__text_get(&e->error), expected);
}

char *emulated_edit(const char *kernel_text, const char *old, const char *new_text) {
  const char *at = strstr(kernel_text, old);
  if (!at) ck_abort_msg("'%s' is not in the kernel", old);
  if (strstr(at + 1, old)) ck_abort_msg("'%s' is in the kernel twice", old);
  const size_t before = (size_t)(at - kernel_text);
  const size_t size = strlen(kernel_text) - strlen(old) + strlen(new_text) + 1;
  char *text = malloc(size);
  ck_assert_ptr_nonnull(text);
  snprintf(text, size, "%.*s%s%s", (int)before, kernel_text, new_text, at + strlen(old));
  return text;
}
