/* The generator through its C functions: limits of the sandbox, exact error lines, refusals,
 * failing allocations, and texts that depend on nothing but spec and tile. Faulty templates and a
 * family for them are in tests/data/family. */
#include "fixture.h"
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "generator/fields.h"
#include "generator/generator.h"

#define FAMILY KILN_TEST_SOURCE_DIR "/tests/data/family"

static char error[4096];

static kiln__generator *create(const char *template_dir) {
  kiln__generator *g = NULL;
  kiln_status status = kiln__generator_create(template_dir, error, sizeof error, &g);
  ck_assert_msg(status == KILN_OK, "%s", error);
  ck_assert_ptr_nonnull(g);
  return g;
}

static kiln_attn_spec spec_for(const char *arch, int head_dim) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  strcpy(spec.arch, arch);
  spec.head_dim = head_dim;
  return spec;
}

static kiln__rendered render(kiln__generator *g, const kiln_attn_spec *spec, unsigned flags) {
  kiln__rendered rendered;
  kiln_status status =
      kiln__generator_render(g, spec, NULL, flags, 0, &rendered, error, sizeof error);
  ck_assert_msg(status == KILN_OK, "%s", error);
  return rendered;
}

static void check_same(const kiln__rendered *a, const kiln__rendered *b) {
  ck_assert_uint_eq(a->length, b->length);
  ck_assert_mem_eq(a->text, b->text, a->length);
  ck_assert_str_eq(a->source_id, b->source_id);
  ck_assert_str_eq(a->record, b->record);
}

/* ---- errors of templates ---- */

/* Every fault of tests/data/family, by the head_dim that chooses it, twice: a failed render leaves
 * nothing behind that changes the next. */
static const struct {
  int head_dim;
  const char *sentence;
} faults[] = {
    {8, "templates/fault/loop.tmpl.cu:2: stopped after 10 million instructions: "
        "is there an endless loop?"},
    {16, "stopped: the Lua code needs more than 64 MiB"},
    {24, "templates/fault/unknown_name.tmpl.cu:2: unknown name 'missing'"},
    {32, "lua/ampere.lua:29: attempt to index a nil value (field 'missing') "
         "(called at templates/fault/helper.tmpl.cu:3)"},
    {40, "templates/fault/hidden_loop.tmpl.cu:3: stopped after 10 million instructions: "
         "is there an endless loop?"},
    {48, "templates/fault/finalizer.tmpl.cu:2: a metatable may not have __gc here"},
    {72, "templates/fault/written_global.tmpl.cu:2: 'total' is not declared: write 'local total'"},
};

START_TEST(faulty_templates_fail_with_their_line) {
  kiln__generator *g = create(FAMILY);
  kiln_attn_spec spec = spec_for("sm_80", faults[_i].head_dim);
  for (int repeat = 0; repeat < 2; repeat++) {
    kiln__rendered rendered = {.length = 1};
    kiln_status status =
        kiln__generator_render(g, &spec, NULL, 0, 0, &rendered, error, sizeof error);
    ck_assert_int_eq(status, KILN_TEMPLATE_FAILED);
    ck_assert_str_eq(error, faults[_i].sentence);
    ck_assert(!rendered.text && !rendered.record && !rendered.length);
  }
  spec.head_dim = 128;
  kiln__rendered good = render(g, &spec, 0);
  ck_assert_ptr_nonnull(strstr(good.text, "KERNEL void kiln_forward("));
  kiln__rendered_free(&good);
  kiln__generator_destroy(g);
}
END_TEST

/* The family lists what it could reach of io, os, load, files outside and bytecode: nothing. */
START_TEST(sandbox_reaches_nothing) {
  kiln__generator *g = create(FAMILY);
  kiln_attn_spec spec = spec_for("sm_80", 56);
  kiln__rendered rendered = render(g, &spec, KILN_GENERATE_PLAIN);
  ck_assert_ptr_nonnull(strstr(rendered.text, "\n// []\n"));
  kiln__rendered_free(&rendered);
  kiln__generator_destroy(g);
}
END_TEST

/* Lua's own order of keys changes from process to process. */
START_TEST(pairs_comes_in_one_order) {
  kiln__generator *g = create(FAMILY);
  kiln_attn_spec spec = spec_for("sm_80", 80);
  kiln__rendered rendered = render(g, &spec, KILN_GENERATE_PLAIN);
  ck_assert_ptr_nonnull(strstr(rendered.text, "\n// [-1 1 2 ape cat dog yak zebra]\n"));
  kiln__rendered_free(&rendered);
  kiln__generator_destroy(g);
}
END_TEST

START_TEST(long_errors_are_cut_off) {
  kiln__generator *g = create(FAMILY);
  kiln_attn_spec spec = spec_for("sm_80", 24);
  kiln__rendered rendered;
  char small[12] = "untouched";
  ck_assert_int_eq(kiln__generator_render(g, &spec, NULL, 0, 0, &rendered, NULL, 0),
                   KILN_TEMPLATE_FAILED);
  ck_assert_int_eq(kiln__generator_render(g, &spec, NULL, 0, 0, &rendered, small, sizeof small),
                   KILN_TEMPLATE_FAILED);
  ck_assert_str_eq(small, "templates/f");
  kiln__generator_destroy(g);
}
END_TEST

START_TEST(the_stamp_is_of_embedded_files_alone) {
  char one[65] = "", two[65] = "";
  kiln__generator *a = create(NULL), *b = create(NULL);
  ck_assert_int_eq(kiln__generator_stamp(a, one), 1);
  ck_assert_int_eq(kiln__generator_stamp(b, two), 1);
  ck_assert_uint_eq(strlen(one), 64);
  ck_assert_str_eq(one, two);
  kiln__generator_destroy(a);
  kiln__generator_destroy(b);
  a = create(KILN_TEST_SOURCE_DIR "/generator");
  ck_assert_int_eq(kiln__generator_stamp(a, one), 0);
  kiln__generator_destroy(a);
}
END_TEST

START_TEST(broken_template_directory_is_named) {
  kiln__generator *g = NULL;
  kiln_status status = kiln__generator_create(KILN_TEST_SOURCE_DIR "/tests/data/broken_family",
                                              error, sizeof error, &g);
  ck_assert_int_eq(status, KILN_TEMPLATE_FAILED);
  ck_assert_str_eq(error, "lua/api.lua:2: syntax error near 'is'");
  ck_assert_ptr_null(g);
}
END_TEST

START_TEST(missing_template_directory_is_named) {
  kiln__generator *g = NULL;
  ck_assert_int_eq(kiln__generator_create("/nonexistent", error, sizeof error, &g),
                   KILN_TEMPLATE_FAILED);
  ck_assert_ptr_nonnull(strstr(error, "/nonexistent is no directory"));
  ck_assert_ptr_null(g);
}
END_TEST

/* ---- refusals ---- */

typedef struct refusal {
  const char *group, *field, *text;
  kiln_status status;
  const char *sentence;
} refusal;

static const refusal refusals[] = {
    {"spec", "head_dim", "59", KILN_INVALID_ARGUMENT,
     "head_dim 59 is not a multiple of 8 up to 256; the nearest legal values are 56 and 64"},
    {"spec", "head_dim", "0", KILN_INVALID_ARGUMENT,
     "head_dim 0 is not a multiple of 8 up to 256; the nearest legal value is 8"},
    {"spec", "head_dim", "264", KILN_INVALID_ARGUMENT,
     "head_dim 264 is not a multiple of 8 up to 256; the nearest legal value is 256"},
    {"spec", "head_dim", "-64", KILN_INVALID_ARGUMENT,
     "head_dim -64 is not a multiple of 8 up to 256; the nearest legal value is 8"},
    {"spec", "head_dim", "wide", KILN_INVALID_ARGUMENT,
     "head_dim 'wide' is not a whole number; legal are the multiples of 8 up to 256"},
    {"spec", "dtype", "e4m3", KILN_UNSUPPORTED,
     "dtype e4m3 is not built yet; legal are fp16 and bf16"},
    {"spec", "deterministic", "2", KILN_INVALID_ARGUMENT,
     "deterministic 2 is not within 0 to 1; the nearest legal value is 1"},
    {"spec", "arch", "sm_90b", KILN_INVALID_ARGUMENT,
     "arch 'sm_90b' is unknown; legal are sm_80, sm_86, sm_89, sm_90, sm_90a and sm_120"},
    {"spec", "softcap", "1", KILN_INVALID_ARGUMENT,
     "a spec has no field 'softcap'; its fields are arch, pass, algorithm, dtype, head_dim, "
     "head_dim_v, mask and deterministic"},
    {"tile", "num_warps", "17", KILN_INVALID_ARGUMENT,
     "num_warps 17 is not within 1 to 16; the nearest legal value is 16; "
     "0 leaves the choice to Kiln"},
};

START_TEST(fields_are_refused_with_a_sentence) {
  const refusal *r = &refusals[_i];
  kiln__generator *g = create(NULL);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_tile tile = KILN_TILE_INIT;
  kiln_attn_spec spec_before = spec;
  kiln_tile tile_before = tile;
  void *members = !strcmp(r->group, "spec") ? (void *)&spec : (void *)&tile;
  ck_assert_int_eq(
      kiln__generator_set(g, r->group, members, r->field, r->text, error, sizeof error), r->status);
  ck_assert_str_eq(error, r->sentence);
  ck_assert_mem_eq(&spec, &spec_before, sizeof spec);
  ck_assert_mem_eq(&tile, &tile_before, sizeof tile);
  kiln__generator_destroy(g);
}
END_TEST

START_TEST(fields_are_set_from_text) {
  kiln__generator *g = create(NULL);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_tile tile = KILN_TILE_INIT;
  static const char *const words[][2] = {
      {"arch", "sm_120"},  {"algorithm", "standard"}, {"dtype", "fp16"},
      {"head_dim", "192"}, {"head_dim_v", "128"},     {"mask", "causal"},
  };
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    ck_assert_int_eq(
        kiln__generator_set(g, "spec", &spec, words[i][0], words[i][1], error, sizeof error), 0);
  ck_assert_int_eq(kiln__generator_set(g, "tile", &tile, "block_n", "176", error, sizeof error), 0);
  ck_assert_str_eq(spec.arch, "sm_120");
  ck_assert_int_eq(spec.algorithm, KILN_ALGORITHM_STANDARD);
  ck_assert_int_eq(spec.dtype, KILN_DTYPE_FP16);
  ck_assert_int_eq(spec.head_dim, 192);
  ck_assert_int_eq(spec.head_dim_v, 128);
  ck_assert_int_eq(spec.mask, KILN_MASK_CAUSAL);
  ck_assert_int_eq(tile.block_n, 176);
  ck_assert_int_eq(tile.block_m, 0);
  kiln__generator_destroy(g);
}
END_TEST

START_TEST(resolve_fills_or_leaves_all_untouched) {
  kiln__generator *g = create(FAMILY);
  kiln_attn_spec spec = spec_for("sm_80", 128);
  kiln_tile tile = KILN_TILE_INIT;
  tile.block_m = 64;
  ck_assert_int_eq(kiln__generator_resolve(g, &spec, NULL, error, sizeof error), KILN_OK);
  ck_assert_int_eq(spec.head_dim_v, 128);
  ck_assert_int_eq(kiln__generator_resolve(g, &spec, &tile, error, sizeof error), KILN_OK);
  ck_assert(tile.block_m == 64 && tile.block_n == 32 && tile.num_stages == 1);
  ck_assert_int_eq(tile.num_warps, 4);
  spec.dtype = (kiln_dtype)7;
  spec.head_dim_v = 0;
  kiln_attn_spec before = spec;
  ck_assert_int_eq(kiln__generator_resolve(g, &spec, &tile, error, sizeof error),
                   KILN_INVALID_ARGUMENT);
  ck_assert_str_eq(error, "dtype 7 is unknown; legal are fp16 and bf16");
  ck_assert_mem_eq(&spec, &before, sizeof spec);
  memset(spec.arch, 'x', sizeof spec.arch); /* not terminated, and what follows is not 0 */
  spec.pass = KILN_PASS_BACKWARD;
  spec.dtype = KILN_DTYPE_BF16;
  ck_assert_int_eq(kiln__generator_resolve(g, &spec, &tile, error, sizeof error),
                   KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(error, "arch 'xxxxxxxxxxxxxxxx' is unknown"));
  kiln__generator_destroy(g);
}
END_TEST

/* ---- the same bytes ---- */

START_TEST(texts_depend_on_spec_and_tile_alone) {
  kiln__generator *g = create(FAMILY);
  kiln__generator *h = create(FAMILY);
  kiln_attn_spec spec = spec_for("sm_80", 128), other = spec_for("sm_80", 64);
  kiln__rendered first = render(g, &spec, 0);
  kiln__rendered between = render(g, &other, 0);
  kiln__rendered again = render(g, &spec, 0);
  char here[1024];
  ck_assert_ptr_nonnull(getcwd(here, sizeof here));
  ck_assert_int_eq(chdir("/"), 0);
  kiln__rendered elsewhere = render(h, &spec, 0);
  ck_assert_int_eq(chdir(here), 0);
  check_same(&first, &again);
  check_same(&first, &elsewhere);
  ck_assert_str_ne(first.source_id, between.source_id);
  kiln__rendered_free(&first);
  kiln__rendered_free(&between);
  kiln__rendered_free(&again);
  kiln__rendered_free(&elsewhere);
  kiln__generator_destroy(h);
  kiln__generator_destroy(g);
}
END_TEST

/* As sha256sum says; the header ends before the first empty line. */
START_TEST(source_id_is_sha256_of_the_text_below_the_header) {
  kiln__generator *g = create(FAMILY);
  kiln_attn_spec spec = spec_for("sm_80", 128);
  kiln__rendered rendered = render(g, &spec, 0);
  const char *body = strstr(rendered.text, "\n\n") + 1;
  fixture f;
  fixture_create(&f);
  char command[400], digest[65] = "";
  snprintf(command, sizeof command, "sha256sum <'%s'",
           fixture_write(&f, "body", body, strlen(body)));
  FILE *pipe = popen(command, "r");
  ck_assert_ptr_nonnull(pipe);
  ck_assert_uint_eq(fread(digest, 1, 64, pipe), 64);
  ck_assert_int_eq(pclose(pipe), 0);
  fixture_destroy(&f);
  ck_assert_str_eq(rendered.source_id, digest);
  kiln__rendered_free(&rendered);
  kiln__generator_destroy(g);
}
END_TEST

/* ---- the field tables ---- */

/* The schema as JSON lists "name":"…" once per field, in the order of the C tables. */
START_TEST(field_tables_agree_with_the_schema) {
  kiln__generator *g = create(NULL);
  char *json = NULL;
  ck_assert_int_eq(kiln__generator_schema(g, &json, error, sizeof error), KILN_OK);
  const char *at = json;
  const kiln__field *const tables[2] = {kiln__spec_fields, kiln__tile_fields};
  static const char *const groups[2] = {"spec", "tile"};
  int fields = 0;
  for (int t = 0; t < 2; t++)
    for (const kiln__field *field = tables[t]; field->name; field++, fields++) {
      char row[96];
      snprintf(row, sizeof row, "{\"group\":\"%s\",\"name\":\"%s\",", groups[t], field->name);
      const char *next = strstr(at, "{\"group\":");
      ck_assert_ptr_nonnull(next);
      ck_assert_msg(!strncmp(next, row, strlen(row)), "%s is not at its place", row);
      at = next + 1;
    }
  ck_assert_ptr_null(strstr(at, "{\"group\":"));
  ck_assert_int_eq(fields, 12);
  free(json);
  kiln__generator_destroy(g);
}
END_TEST

/* Padding apart, the tables cover the structs: a field that C has and the tables lack leaves a hole
 * of four bytes or more. */
START_TEST(field_tables_cover_the_structs) {
  const kiln__field *const tables[2] = {kiln__spec_fields, kiln__tile_fields};
  const size_t sizes[2] = {sizeof(kiln_attn_spec), sizeof(kiln_tile)};
  for (int t = 0; t < 2; t++) {
    size_t end = sizeof(size_t);
    for (const kiln__field *field = tables[t]; field->name; field++) {
      ck_assert_uint_eq(field->offset, end);
      ck_assert(field->kind == KILN__FIELD_TEXT || field->size == sizeof(int32_t));
      end = field->offset + field->size;
    }
    ck_assert_uint_lt(sizes[t] - end, sizeof(size_t));
  }
}
END_TEST

/* ---- failing allocations ---- */

typedef struct meter {
  long until_failure; /* allocations that still succeed; negative = all */
  long live;          /* blocks */
} meter;

/* Fails for good once the count is used up. Growing may fail, freeing never does. */
static void *metered(void *user, void *block, size_t size) {
  meter *m = user;
  if (!size) {
    if (block) m->live--;
    free(block);
    return NULL;
  }
  if (m->until_failure == 0) return NULL;
  if (m->until_failure > 0) m->until_failure--;
  void *moved = realloc(block, size);
  if (!block) m->live++;
  return moved;
}

/* Everything that a caller does with a generator, ended by the first failure. */
static kiln_status use_all(meter *m, kiln__rendered *rendered, char **json) {
  const kiln__allocator allocator = {metered, m};
  kiln__generator *g = NULL;
  kiln_attn_spec spec = spec_for("sm_80", 128);
  kiln_tile tile = KILN_TILE_INIT;
  kiln_status status = kiln__generator_create_with(&allocator, FAMILY, error, sizeof error, &g);
  ck_assert((status == KILN_OK) == (g != NULL));
  if (!status)
    status = kiln__generator_set(g, "spec", &spec, "mask", "causal", error, sizeof error);
  if (!status) status = kiln__generator_resolve(g, &spec, &tile, error, sizeof error);
  if (!status) status = kiln__generator_schema(g, json, error, sizeof error);
  if (!status)
    status = kiln__generator_render(g, &spec, &tile, 0, 0, rendered, error, sizeof error);
  kiln__generator_destroy(g);
  return status;
}

/* The strings that were handed out are the caller's: three blocks at the end, those that exist
 * before. */
START_TEST(every_allocation_may_fail) {
  kiln_status status = KILN_OUT_OF_MEMORY;
  long failures = 0;
  for (long n = 0; status; n++) {
    meter m = {.until_failure = n};
    kiln__rendered rendered = {0};
    char *json = NULL;
    error[0] = '\0';
    status = use_all(&m, &rendered, &json);
    ck_assert_int_eq(m.live, (json != NULL) + (rendered.text != NULL) + (rendered.record != NULL));
    free(json);
    if (!status) {
      ck_assert_int_eq(m.live, 3);
      ck_assert_ptr_nonnull(strstr(rendered.text, "KERNEL void"));
    } else {
      ck_assert_int_eq(status, KILN_OUT_OF_MEMORY);
      ck_assert_str_eq(error, "the generator ran out of host memory");
      ck_assert(!rendered.text && !rendered.record);
      failures++;
    }
    kiln__rendered_free(&rendered);
  }
  ck_assert_int_gt(failures, 500);
}
END_TEST

/* After a failure the same generator goes on. */
START_TEST(generator_survives_a_failed_allocation) {
  meter m = {.until_failure = -1};
  const kiln__allocator allocator = {metered, &m};
  kiln__generator *g = NULL;
  kiln_attn_spec spec = spec_for("sm_80", 128);
  ck_assert_int_eq(kiln__generator_create_with(&allocator, FAMILY, error, sizeof error, &g), 0);
  kiln__rendered wanted = render(g, &spec, 0);
  long failures = 0;
  for (long n = 0, failed = 1; failed; n += 7) {
    m.until_failure = n;
    kiln__rendered rendered;
    failed = kiln__generator_render(g, &spec, NULL, 0, 0, &rendered, error, sizeof error) != 0;
    failures += failed;
    kiln__rendered_free(&rendered);
    m.until_failure = -1;
    rendered = render(g, &spec, 0);
    check_same(&rendered, &wanted);
    kiln__rendered_free(&rendered);
  }
  ck_assert_int_gt(failures, 10);
  kiln__rendered_free(&wanted);
  kiln__generator_destroy(g);
}
END_TEST

/* ---- the embedded families ---- */

START_TEST(embedded_families_render_for_every_arch) {
  static const char *const archs[] = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_120"};
  kiln__generator *g = create(NULL);
  kiln_attn_spec spec = spec_for(archs[_i], 64);
  kiln__rendered rendered = render(g, &spec, 0);
  const char *family = !strcmp(archs[_i], "sm_90a") ? "\"hopper\"" : "\"ampere\"";
  ck_assert_ptr_nonnull(strstr(rendered.record, family));
  ck_assert_uint_eq(strlen(rendered.text), rendered.length);
  kiln__rendered_free(&rendered);
  kiln__generator_destroy(g);
}
END_TEST

Suite *suite_generator(void) {
  Suite *suite = suite_create("generator");
  TCase *faulty = tcase_create("errors of templates");
  tcase_set_timeout(faulty, 60);
  tcase_add_loop_test(faulty, faulty_templates_fail_with_their_line, 0,
                      (int)(sizeof faults / sizeof *faults));
  tcase_add_test(faulty, sandbox_reaches_nothing);
  tcase_add_test(faulty, pairs_comes_in_one_order);
  tcase_add_test(faulty, long_errors_are_cut_off);
  tcase_add_test(faulty, the_stamp_is_of_embedded_files_alone);
  tcase_add_test(faulty, broken_template_directory_is_named);
  tcase_add_test(faulty, missing_template_directory_is_named);
  suite_add_tcase(suite, faulty);
  TCase *fields = tcase_create("fields");
  tcase_add_loop_test(fields, fields_are_refused_with_a_sentence, 0,
                      (int)(sizeof refusals / sizeof *refusals));
  tcase_add_test(fields, fields_are_set_from_text);
  tcase_add_test(fields, resolve_fills_or_leaves_all_untouched);
  tcase_add_test(fields, field_tables_agree_with_the_schema);
  tcase_add_test(fields, field_tables_cover_the_structs);
  suite_add_tcase(suite, fields);
  TCase *texts = tcase_create("texts");
  tcase_add_test(texts, texts_depend_on_spec_and_tile_alone);
  tcase_add_test(texts, source_id_is_sha256_of_the_text_below_the_header);
  tcase_add_loop_test(texts, embedded_families_render_for_every_arch, 0, 6);
  suite_add_tcase(suite, texts);
  TCase *memory = tcase_create("failing allocations");
  tcase_set_timeout(memory, 120);
  tcase_add_test(memory, every_allocation_may_fail);
  tcase_add_test(memory, generator_survives_a_failed_allocation);
  suite_add_tcase(suite, memory);
  return suite;
}
