/* Manifests of packs: what their rows select, and every way in which one is refused. */
#include "fixture.h"
#include "suites.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include <kiln/kiln.h>

static kiln_context *create(void) {
  kiln_context *ctx = NULL;
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  options.cache_dir = "";
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &options, &ctx), KILN_OK);
  return ctx;
}

/* The kernels of a manifest that has to be right. */
static json_t *read_kernels(kiln_context *ctx, const char *text) {
  const char *json = NULL;
  kiln_status status = kiln_manifest_read(ctx, "m.lua", text, strlen(text), &json);
  ck_assert_msg(status == KILN_OK, "%s", kiln_last_error(ctx));
  json_t *kernels = json_loads(json, 0, NULL);
  ck_assert(json_is_array(kernels));
  return kernels;
}

#define ROW "arch = 'sm_80', algorithm = 'flash', dtype = 'bf16', mask = 'none'"

/* How many kernels a manifest selects. */
static const struct {
  const char *text;
  size_t count;
} selections[] = {
    {"return { { " ROW ", head_dim = 64 } }", 1},
    {"return { { " ROW ", head_dim = { 64, 128.0, 96 } } }", 3},
    /* A row that comes twice, and a tile that is the default's: once. */
    {"return { { " ROW ", head_dim = 64 }, { " ROW ", head_dim = { 64, 72 } } }", 2},
    {"return { { " ROW ", head_dim = 64, head_dim_v = { 0, 64, 128 } } }", 2},
    {"return { { " ROW ", head_dim = 64, block_m = { 64, 128 } } }", 2},
    /* What is left out stands for all its values; what no kernel serves is left out of them. */
    {"return { { " ROW " } }", 32},
    {"return { { arch = 'sm_80', algorithm = 'flash', dtype = 'bf16', head_dim = 64 } }", 2},
    {"return { { head_dim = 64, algorithm = 'flash', dtype = 'fp16', mask = 'none', block_m = 192,"
     " num_warps = 16 } }",
     1},
    /* Lua. */
    {"local rows = {}\n"
     "local function row(dim) return { " ROW ", head_dim = dim } end\n"
     "for dim = 64, 128, 32 do table.insert(rows, row(dim)) end\n"
     "return rows",
     3},
    {"return { { " ROW ", head_dim = math.max(8, ('x'):rep(64):len()) } }", 1},
};

START_TEST(rows_select_kernels) {
  kiln_context *ctx = create();
  json_t *kernels = read_kernels(ctx, selections[_i].text);
  ck_assert_uint_eq(json_array_size(kernels), selections[_i].count);
  json_decref(kernels);
  kiln_context_destroy(ctx);
}
END_TEST

START_TEST(a_kernel_has_every_field_resolved) {
  kiln_context *ctx = create();
  const char *text = "return { { " ROW ", head_dim = 64, block_m = 64, num_warps = 4 } }";
  json_t *kernels = read_kernels(ctx, text), *kernel = json_array_get(kernels, 0);
  json_t *right = json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:s, s:i, s:i}", "arch", "sm_80",
                            "pass", "forward", "algorithm", "flash", "dtype", "bf16", "head_dim",
                            64, "head_dim_v", 64, "mask", "none", "block_m", 64, "num_warps", 4);
  const char *name;
  json_t *value;
  json_object_foreach(right, name, value)
      ck_assert_msg(json_equal(value, json_object_get(kernel, name)), "%s", name);
  ck_assert_int_gt(json_integer_value(json_object_get(kernel, "block_n")), 0);
  ck_assert_int_gt(json_integer_value(json_object_get(kernel, "num_stages")), 0);
  ck_assert_uint_eq(json_object_size(kernel), 12);
  json_decref(right);
  json_decref(kernels);
  kiln_context_destroy(ctx);
}
END_TEST

static const struct {
  const char *text;
  kiln_status status;
  const char *sentence;
} refusals[] = {
    /* Limits. */
    {"\nwhile true do end", 1,
     "m.lua:2: stopped after 10 million instructions: is there an endless loop?"},
    {"local s = 'x'\nwhile true do s = s .. s end", 1,
     "m.lua: stopped: the Lua code needs more than 8 MiB"},
    {"local s = ('x'):rep(1000000)\nwhile true do local t = s .. 'y' end", 1,
     "m.lua:2: stopped after 10 million instructions: is there an endless loop?"},
    {"local t = {}\nfor i = 1, 1025 do t[i] = { head_dim = 64 } end\nreturn t", 1,
     "m.lua: the manifest has more than 1024 rows"},
    {"return { {}, {}, {} }", 1,
     "m.lua: row 3: the manifest names more than 4096 kernels with it; give shorter lists"},
    /* The sandbox. */
    {"return io.open('/etc/passwd')", 1, "m.lua:1: unknown name 'io'"},
    {"os.exit(1)", 1, "m.lua:1: unknown name 'os'"},
    {"return require('schema')", 1, "m.lua:1: unknown name 'require'"},
    {"getmetatable('').__index = nil", 1, "m.lua:1: unknown name 'getmetatable'"},
    {"rows = {}", 1, "m.lua:1: 'rows' is not declared: write 'local rows'"},
    {"return ('x'):find('y')", 1, "m.lua:1: attempt to call a nil value (method 'find')"},
    {"\033Lua", 1, "m.lua: attempt to load a binary chunk (mode is 't')"},
    /* What is no manifest. */
    {"return {\n{ head_dim = }\n}", 1, "m.lua:2: unexpected symbol near '}'"},
    {"error('no fleet')", 1, "m.lua:1: no fleet"},
    {"error({})", 1, "m.lua: a table was raised as an error"},
    {"", 1,
     "m.lua: the manifest returns nothing and not a list of rows: end it with return { { arch = "
     "'sm_90a', head_dim = 128 } }"},
    {"return {}", 1, "m.lua: the manifest selects nothing: its list of rows is empty"},
    {"return { head_dim = 64 }", 1,
     "m.lua: the list of rows has the key 'head_dim': write each row in braces of its own"},
    {"return { {}, 'sm_80' }", 1, "m.lua: row 2: is 'sm_80' and not a table of fields"},
    /* Fields. */
    {"return { { head_dim = 64 }, { headdim = 64 } }", 1,
     "m.lua: row 2: there is no field 'headdim'; the fields are arch, pass, algorithm, dtype, "
     "head_dim, head_dim_v, mask, deterministic, block_m, block_n, num_stages, num_warps"},
    {"return { { head_dim = '64' } }", 1, "m.lua: row 1: head_dim is '64' and not a whole number"},
    {"return { { head_dim = 64.5 } }", 1, "m.lua: row 1: head_dim is 64.5 and not a whole number"},
    {"return { { dtype = 16 } }", 1, "m.lua: row 1: dtype is 16 and not a name in quotes"},
    {"return { { mask = true } }", 1, "m.lua: row 1: mask is a boolean and not a name in quotes"},
    {"return { { arch = {} } }", 1,
     "m.lua: row 1: arch is neither a value nor a list of 1 to 4096 values"},
    {"return { { arch = { a = 'sm_80' } } }", 1,
     "m.lua: row 1: arch is neither a value nor a list of 1 to 4096 values"},
    {"return { { arch = '' } }", 1, "m.lua: row 1: arch is '' and not a name in quotes"},
    {"return { { head_dim = { 64, 59 } } }", 1,
     "m.lua: row 1: head_dim 59 is not a multiple of 8 up to 256; the nearest legal values are 56 "
     "and 64"},
    {"return { { arch = 'sm_80', algorithm = 'standard', pass = 'backward' } }", 2,
     "m.lua: row 1: the standard family has no backward pass"},
    /* Rows that select nothing: everything given, and something left open. */
    {"return { { " ROW ", head_dim = 64, block_m = { 64, 240 } } }", 1,
     "m.lua: row 1: block_m 240 is not 16 or 32 rows for each of 4 warps"},
    {"return { { " ROW ", head_dim = 64 }, { arch = 'sm_80', head_dim = 64, block_m = 240 } }", 1,
     "m.lua: row 2: block_m 240 is not 16 or 32 rows for each of 4 warps"},
};

START_TEST(what_is_wrong_is_said_with_its_place) {
  kiln_context *ctx = create();
  const char *json = "untouched", *text = refusals[_i].text;
  kiln_status status = kiln_manifest_read(ctx, "m.lua", text, strlen(text), &json);
  ck_assert_str_eq(kiln_last_error(ctx), refusals[_i].sentence);
  ck_assert_int_eq(status, refusals[_i].status);
  ck_assert_ptr_null(json);
  json_decref(read_kernels(ctx, selections[0].text)); /* the context is as before */
  kiln_context_destroy(ctx);
}
END_TEST

START_TEST(a_null_is_refused) {
  kiln_context *ctx = create();
  const char *json = NULL;
  ck_assert_int_eq(kiln_manifest_read(ctx, NULL, "", 0, &json), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_manifest_read(ctx, "m.lua", NULL, 0, &json), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln_manifest_read(ctx, "m.lua", "", 0, NULL), KILN_INVALID_ARGUMENT);
  kiln_context_destroy(ctx);
}
END_TEST

Suite *suite_manifest(void) {
  Suite *suite = suite_create("manifest");
  TCase *tests = tcase_create("manifest");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, rows_select_kernels, 0, sizeof selections / sizeof *selections);
  tcase_add_test(tests, a_kernel_has_every_field_resolved);
  tcase_add_loop_test(tests, what_is_wrong_is_said_with_its_place, 0,
                      sizeof refusals / sizeof *refusals);
  tcase_add_test(tests, a_null_is_refused);
  suite_add_tcase(suite, tests);
  return suite;
}
