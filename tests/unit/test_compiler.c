/* The compiler that a cache directory remembers: it is not opened where the kernel is cached, and
 * whatever the note says, a kernel is stored under the name that the compiler gives itself. */
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

typedef struct desk {
  char root[64], path[128];
  int no_line_info; /* of the contexts */
  fake f;
} desk;

/* What one process finds and does. */
typedef struct visit {
  kiln_status status;
  int opens, compiles, from_cache;
  char kernel_id[KILN__ID_SIZE];
} visit;

static void desk_open(desk *d) {
  memset(d, 0, sizeof *d);
  strcpy(d->root, "/tmp/kiln-note-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(d->root));
  snprintf(d->path, sizeof d->path, "%s/notes/nvrtc.json", d->root);
}

static void desk_close(desk *d) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", d->root);
  ck_assert_int_eq(system(command), 0);
}

/* A process of its own: a context whose compiler is not open yet. */
static visit come(desk *d, const char *key, const char *version, int compile_off) {
  visit v = {0};
  kiln_plan *plan = NULL;
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_plan_info info = {.size = sizeof info};
  kiln_context *ctx = fake_context(&d->f, d->root);
  d->f.compiler_key = key;
  d->f.compiler_version = version;
  ctx->compiler = NULL;
  ctx->no_line_info = d->no_line_info;
  ctx->compile_off = compile_off;
  v.status = kiln_plan_create(ctx, &spec, NULL, NULL, &plan);
  if (plan) {
    kiln_plan_get_info(plan, &info);
    v.from_cache = info.from_cache;
    strcpy(v.kernel_id, info.kernel_id);
  }
  v.opens = d->f.num_opens;
  v.compiles = d->f.num_compiles;
  kiln_plan_destroy(plan);
  fake_context_destroy(ctx);
  return v;
}

static void expect(visit v, int opens, int compiles) {
  ck_assert_int_eq(v.status, KILN_OK);
  ck_assert_int_eq(v.opens, opens);
  ck_assert_int_eq(v.compiles, compiles);
  ck_assert_int_eq(v.from_cache, !compiles);
}

START_TEST(a_cached_kernel_opens_no_compiler) {
  desk d;
  desk_open(&d);
  visit first = come(&d, "a file", "fake 1.0", 0);
  expect(first, 1, 1);
  visit second = come(&d, "a file", "fake 1.0", 0);
  expect(second, 0, 0);
  ck_assert_str_eq(first.kernel_id, second.kernel_id);
  desk_close(&d);
}
END_TEST

START_TEST(another_file_is_opened) {
  desk d;
  desk_open(&d);
  expect(come(&d, "a file", "fake 1.0", 0), 1, 1);
  expect(come(&d, "another file", "fake 1.0", 0), 1, 0);
  expect(come(&d, "another file", "fake 1.0", 0), 0, 0); /* the note is of the last one */
  expect(come(&d, NULL, "fake 1.0", 0), 1, 0);
  desk_close(&d);
}
END_TEST

/* One compiler, with line tables and without: neither takes the note or the kernel of the other. */
START_TEST(line_tables_are_another_compiler) {
  desk d;
  desk_open(&d);
  visit with = come(&d, "a file", "fake 1.0", 0);
  expect(with, 1, 1);
  d.no_line_info = 1;
  visit without = come(&d, "a file", "fake 1.0", 0);
  expect(without, 1, 1);
  ck_assert_str_ne(with.kernel_id, without.kernel_id);
  visit again = come(&d, "a file", "fake 1.0", 0);
  expect(again, 0, 0);
  ck_assert_str_eq(again.kernel_id, without.kernel_id);
  d.no_line_info = 0;
  visit back = come(&d, "a file", "fake 1.0", 0);
  expect(back, 1, 0);
  ck_assert_str_eq(back.kernel_id, with.kernel_id);
  desk_close(&d);
}
END_TEST

/* Another compiler under the same key: cached kernels are still what they say they are, and what is
 * compiled goes under its real name. */
START_TEST(a_wrong_note_does_no_damage) {
  desk d;
  desk_open(&d);
  visit old = come(&d, "a file", "fake 1.0", 0);
  unlink(d.path);
  visit new = come(&d, "a file", "fake 2.0", 0);
  expect(new, 1, 1);
  ck_assert_str_ne(old.kernel_id, new.kernel_id);
  expect(come(&d, "a file", "fake 1.0", 0), 0, 0); /* a hit: the kernel of 2.0 */
  char command[512];
  snprintf(command, sizeof command, "rm -rf %s/kernels/%s", d.root, new.kernel_id);
  ck_assert_int_eq(system(command), 0);
  visit back = come(&d, "a file", "fake 1.0", 0);
  expect(back, 1, 0); /* a miss: the compiler is asked, and its kernel is there */
  ck_assert_str_eq(back.kernel_id, old.kernel_id);
  expect(come(&d, "a file", "fake 1.0", 0), 0, 0); /* the note was put right */
  desk_close(&d);
}
END_TEST

/* With compiling turned off a wrong note must not hide a kernel either. */
START_TEST(a_wrong_note_hides_nothing) {
  desk d;
  desk_open(&d);
  visit old = come(&d, "a file", "fake 1.0", 0);
  unlink(d.path);
  visit new = come(&d, "a file", "fake 2.0", 0);
  char command[512];
  snprintf(command, sizeof command, "rm -rf %s/kernels/%s", d.root, new.kernel_id);
  ck_assert_int_eq(system(command), 0);
  visit off = come(&d, "a file", "fake 1.0", 1);
  expect(off, 1, 0);
  ck_assert_str_eq(off.kernel_id, old.kernel_id);
  snprintf(command, sizeof command, "rm -rf %s/kernels/%s", d.root, old.kernel_id);
  ck_assert_int_eq(system(command), 0);
  ck_assert_int_eq(come(&d, "a file", "fake 1.0", 1).status, KILN_MISSING_KERNEL);
  desk_close(&d);
}
END_TEST

static const char *const damage[] = {
    "",
    "not json",
    "[]",
    "{\"key\":\"a file\"}",
    "{\"key\":\"a file\",\"version\":7,\"options\":[]}",
    "{\"key\":\"a file\",\"version\":\"fake 1.0\",\"options\":[1]}",
    "{\"key\":\"a file\",\"version\":\"fake 1.0 fake 1.0 fake 1.0 fake 1.0 fake 1.0 fake 1.0 fake "
    "1.0"
    " fake 1.0 fake 1.0 fake 1.0 fake 1.0 fake 1.0 fake 1.0 fake 1.0\",\"options\":[]}",
};

START_TEST(a_damaged_note_is_none) {
  desk d;
  desk_open(&d);
  expect(come(&d, "a file", "fake 1.0", 0), 1, 1);
  FILE *file = fopen(d.path, "w");
  ck_assert_ptr_nonnull(file);
  fputs(damage[_i], file);
  fclose(file);
  expect(come(&d, "a file", "fake 1.0", 0), 1, 0);
  expect(come(&d, "a file", "fake 1.0", 0), 0, 0);
  desk_close(&d);
}
END_TEST

/* A note that other users can write is not read: it would name kernels of their choice. */
START_TEST(a_note_of_others_is_none) {
  desk d;
  char command[256];
  desk_open(&d);
  expect(come(&d, "a file", "fake 1.0", 0), 1, 1);
  snprintf(command, sizeof command, "chmod 666 %s", d.path);
  ck_assert_int_eq(system(command), 0);
  expect(come(&d, "a file", "fake 1.0", 0), 1, 0);
  desk_close(&d);
}
END_TEST

/* ---- the key of NVRTC ---- */

static int key_of(const char *file, int no_line_info, char *key, size_t size) {
  kiln__env env;
  kiln__text text;
  memset(&env, 0, sizeof env);
  env.values[KILN__ENV_KILN_NVRTC] = (char *)file;
  kiln__text_init_fixed(&text, key, size);
  return kiln__nvrtc_ops.locate(&env, no_line_info, NULL, &text);
}

START_TEST(the_key_follows_the_file) {
  char before[2048], after[2048], command[512];
  desk d;
  desk_open(&d);
  snprintf(d.path, sizeof d.path, "%s/libnvrtc.so", d.root);
  ck_assert_int_eq(key_of(d.path, 0, before, sizeof before), 0); /* there is no such file */
  snprintf(command, sizeof command, "echo one >%s && touch -d 2020-01-01 %s", d.path, d.path);
  ck_assert_int_eq(system(command), 0);
  ck_assert_int_eq(key_of(d.path, 0, before, sizeof before), 1);
  ck_assert_int_eq(key_of(d.path, 0, after, sizeof after), 1);
  ck_assert_str_eq(before, after);
  /* Replaced by a file of the same size and date. */
  usleep(20000); /* a clock tick of the file system */
  snprintf(command, sizeof command, "echo two >%s && touch -d 2020-01-01 %s", d.path, d.path);
  ck_assert_int_eq(system(command), 0);
  ck_assert_int_eq(key_of(d.path, 0, after, sizeof after), 1);
  ck_assert_str_ne(before, after);
  ck_assert_int_eq(key_of(d.path, 1, before, sizeof before), 1);
  ck_assert_str_ne(before, after); /* its options */
  desk_close(&d);
}
END_TEST

Suite *suite_compiler(void) {
  Suite *suite = suite_create("compiler");
  TCase *tests = tcase_create("compiler");
  suite_add_tcase(suite, tests);
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, a_cached_kernel_opens_no_compiler);
  tcase_add_test(tests, another_file_is_opened);
  tcase_add_test(tests, line_tables_are_another_compiler);
  tcase_add_test(tests, a_wrong_note_does_no_damage);
  tcase_add_test(tests, a_wrong_note_hides_nothing);
  tcase_add_loop_test(tests, a_damaged_note_is_none, 0, sizeof damage / sizeof damage[0]);
  tcase_add_test(tests, a_note_of_others_is_none);
  tcase_add_test(tests, the_key_follows_the_file);
  return suite;
}
