/* The rendering that a cache directory remembers: a plan of a cached kernel renders nothing, and
 * whatever the note says or lacks, the plan is the one that a rendering gives. */
#include "suites.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

typedef struct desk {
  char root[64];
  fake f;
} desk;

typedef struct visit {
  int renders, compiles;
  char source_id[KILN__ID_SIZE], kernel_id[KILN__ID_SIZE];
} visit;

static void desk_open(desk *d) {
  memset(d, 0, sizeof *d);
  strcpy(d->root, "/tmp/kiln-rendering-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(d->root));
}

static void sh(const char *format, const char *root) {
  char command[512];
  snprintf(command, sizeof command, format, root);
  ck_assert_int_eq(system(command), 0);
}

static void desk_close(desk *d) { sh("rm -rf %s", d->root); }

/* A process of its own, with a generator whose files have this stamp. */
static visit come(desk *d, const char *stamp, int head_dim) {
  visit v = {0};
  kiln_plan *plan = NULL;
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_plan_info info = {.size = sizeof info};
  kiln_context *ctx = fake_context(&d->f, d->root);
  d->f.stamp = stamp;
  spec.head_dim = head_dim;
  kiln_status status = kiln_plan_create(ctx, &spec, NULL, NULL, &plan);
  ck_assert_msg(status == KILN_OK, "%s", kiln_last_error(ctx));
  kiln_plan_get_info(plan, &info);
  ck_assert_int_eq(info.from_cache, !d->f.num_compiles);
  ck_assert_int_eq(info.spec.head_dim, head_dim);
  strcpy(v.source_id, info.source_id);
  strcpy(v.kernel_id, info.kernel_id);
  v.renders = d->f.num_renders;
  v.compiles = d->f.num_compiles;
  kiln_plan_destroy(plan);
  fake_context_destroy(ctx);
  return v;
}

static void expect(visit v, int renders, int compiles, const visit *like) {
  ck_assert_int_eq(v.renders, renders);
  ck_assert_int_eq(v.compiles, compiles);
  if (!like) return;
  ck_assert_str_eq(v.source_id, like->source_id);
  ck_assert_str_eq(v.kernel_id, like->kernel_id);
}

START_TEST(a_cached_kernel_is_not_rendered) {
  desk d;
  desk_open(&d);
  visit first = come(&d, "a stamp", 64);
  expect(first, 1, 1, NULL);
  expect(come(&d, "a stamp", 64), 0, 0, &first);
  desk_close(&d);
}
END_TEST

START_TEST(another_kernel_or_generator_is_rendered) {
  desk d;
  desk_open(&d);
  visit first = come(&d, "a stamp", 64), other = come(&d, "a stamp", 128);
  expect(other, 1, 1, NULL);
  ck_assert_str_ne(first.source_id, other.source_id);
  expect(come(&d, "another stamp", 64), 1, 0, &first);
  expect(come(&d, NULL, 64), 1, 0, &first);
  expect(come(&d, "a stamp", 64), 0, 0, &first);
  expect(come(&d, "a stamp", 128), 0, 0, &other);
  desk_close(&d);
}
END_TEST

START_TEST(files_in_a_directory_are_not_remembered) {
  desk d;
  desk_open(&d);
  visit first = come(&d, NULL, 64);
  expect(come(&d, NULL, 64), 1, 0, &first);
  desk_close(&d);
}
END_TEST

START_TEST(a_kernel_that_is_gone_is_rendered_and_compiled) {
  desk d;
  desk_open(&d);
  visit first = come(&d, "a stamp", 64);
  sh("rm -rf %s/kernels", d.root);
  expect(come(&d, "a stamp", 64), 1, 1, &first);
  expect(come(&d, "a stamp", 64), 0, 0, &first);
  desk_close(&d);
}
END_TEST

/* sed on the one note. */
static const char *const damage[] = {
    "sed -i 's/\"source_id\": \"./\"source_id\": \"g/' %s/notes/rendering-*",
    "sed -i 's/shared_bytes.....[0-9]*/&0/' %s/notes/rendering-*",
    "sed -i 's/\"key\": \"./\"key\": \"g/' %s/notes/rendering-*",
    "sed -i 's/\"blake2b\": \"./\"blake2b\": \"g/' %s/notes/rendering-*",
    "sed -i '/source_id/d' %s/notes/rendering-*",
    "sed -i 2q %s/notes/rendering-*",
    "truncate -s 0 %s/notes/rendering-*",
    "rm %s/notes/rendering-*",
};

START_TEST(a_damaged_note_is_none) {
  desk d;
  desk_open(&d);
  visit first = come(&d, "a stamp", 64);
  sh(damage[_i], d.root);
  expect(come(&d, "a stamp", 64), 1, 0, &first);
  expect(come(&d, "a stamp", 64), 0, 0, &first); /* the note was put right */
  desk_close(&d);
}
END_TEST

/* The note of one kernel under the name of another's. */
START_TEST(a_note_of_another_kernel_is_none) {
  desk d;
  char pattern[128];
  glob_t found;
  desk_open(&d);
  visit first = come(&d, "a stamp", 64), other = come(&d, "a stamp", 128);
  snprintf(pattern, sizeof pattern, "%s/notes/rendering-*", d.root);
  ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
  ck_assert_int_eq((int)found.gl_pathc, 2);
  ck_assert_int_eq(rename(found.gl_pathv[0], found.gl_pathv[1]), 0);
  globfree(&found);
  visit one = come(&d, "a stamp", 64), two = come(&d, "a stamp", 128);
  expect(one, one.renders, 0, &first);
  expect(two, two.renders, 0, &other);
  ck_assert_int_eq(one.renders + two.renders, 2);
  desk_close(&d);
}
END_TEST

Suite *suite_rendering(void) {
  Suite *suite = suite_create("rendering");
  TCase *tests = tcase_create("rendering");
  suite_add_tcase(suite, tests);
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, a_cached_kernel_is_not_rendered);
  tcase_add_test(tests, another_kernel_or_generator_is_rendered);
  tcase_add_test(tests, files_in_a_directory_are_not_remembered);
  tcase_add_test(tests, a_kernel_that_is_gone_is_rendered_and_compiled);
  tcase_add_loop_test(tests, a_damaged_note_is_none, 0, sizeof damage / sizeof damage[0]);
  tcase_add_test(tests, a_note_of_another_kernel_is_none);
  return suite;
}
