/* Lines, journals and files of tuning records: what is read, refused, merged and written back. */
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "autotune/journal.h"
#include "fixture.h"
#include "landscape.h"

static landscape land;
static fixture files;
static char *line_text; /* of a finished tuning */
static char error[1024];

/* Valid until the next call. */
static char *read_text(const char *path) {
  static char text[4 << 20];
  text[fixture_read(path, text, sizeof text - 1)] = '\0';
  return text;
}

static int same_files(const char *a, const char *b) {
  char *first = strdup(read_text(a));
  const int same = strcmp(first, read_text(b)) == 0;
  free(first);
  return same;
}

/* The path of a file with these lines. */
static const char *write_lines(const char *name, const char *a, const char *b) {
  static char text[4 << 20];
  const int length = snprintf(text, sizeof text, "%s%s", a, b);
  return fixture_write(&files, name, text, (size_t)length);
}

static void make_record(const char *name, int seqlen, char out[320]) {
  kiln_tune_result r = {.size = sizeof r};
  strcpy(out, fixture_path(&files, name));
  land.shape.batch = 16384 / seqlen;
  land.shape.seqlen_q = land.shape.seqlen_k = seqlen;
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 1, 0, out, &r), KILN_OK);
}

static void create(void) {
  char path[320];
  landscape_create(&land, "sm_90a", 128, 2048, 0.08, 5);
  fixture_create(&files);
  make_record("first", 2048, path);
  const char *last = strstr(read_text(path), "{\"candidates\":[{\"lower_ns\"");
  for (const char *next = last; next; next = strstr(next + 1, "\n{")) last = next;
  line_text = strdup(last + (last[0] == '\n'));
  line_text[strcspn(line_text, "\n")] = '\0';
  ck_assert_ptr_nonnull(strstr(line_text, "\"kind\":\"choice\""));
}

static void destroy(void) {
  free(line_text);
  fixture_destroy(&files);
  landscape_destroy(&land);
}

static int parse(const char *text, size_t length, char why[256]) {
  kiln__line line;
  const int bad = kiln__line_parse(text, length, &line, why, 256);
  if (!bad) kiln__line_free(&line);
  return bad;
}

/* ---- lines ---- */

START_TEST(a_line_gives_the_same_bytes) {
  kiln__line line;
  char why[256];
  ck_assert_int_eq(kiln__line_parse(line_text, strlen(line_text), &line, why, sizeof why), 0);
  char *again = kiln__line_text(&line);
  ck_assert_str_eq(again, line_text);
  ck_assert_str_eq(line.environment.name, "an invented GPU");
  ck_assert_int_eq(line.problem.seqlen_q_log2, 11);
  ck_assert_int_eq(line.problem.heads_log2, 7);
  ck_assert_int_eq(line.problem.gqa, 1);
  free(again);
  kiln__line_free(&line);
}
END_TEST

/* Lines from before the field was there say nothing of it and mean 0. */
START_TEST(deterministic_came_late) {
  static const char with[] = "\"deterministic\":1,\"dtype\"";
  kiln__line line;
  char why[256];
  ck_assert_ptr_null(strstr(line_text, "deterministic"));
  ck_assert_int_eq(kiln__line_parse(line_text, strlen(line_text), &line, why, sizeof why), 0);
  ck_assert_int_eq(line.problem.spec.deterministic, 0);
  line.problem.spec.deterministic = 1;
  char *text = kiln__line_text(&line), *key = kiln__line_key(&line);
  kiln__line_free(&line);
  ck_assert_ptr_nonnull(strstr(text, with));
  ck_assert_ptr_nonnull(strstr(key, with));
  ck_assert_int_eq(kiln__line_parse(text, strlen(text), &line, why, sizeof why), 0);
  ck_assert_int_eq(line.problem.spec.deterministic, 1);
  free(key);
  free(text);
  kiln__line_free(&line);
}
END_TEST

/* What stands in the line, what takes its place, and the sentence. */
static const struct {
  const char *from, *to, *sentence;
} faults[] = {
    {"\"format\":1", "\"format\":2", "format is not 1"},
    {"\"kind\":\"choice\"", "\"kind\":\"choices\"", "kind is neither choice nor candidate"},
    {"\"num_sms\":132", "\"num_sms\":\"132\"", "num_sms is no whole number"},
    {"\"num_sms\":132", "\"num_sms\":132.0", "num_sms is no whole number"},
    {"\"num_sms\":132", "\"num_sms\":-1", "num_sms is out of its range"},
    {"\"num_sms\":132", "\"num_sms\":4294967428", "num_sms is out of its range"},
    {"\"num_sms\":132", "\"sms\":132", "num_sms is missing"},
    {"\"num_sms\":132", "\"num_sms\":132,\"num_sms\":132", "the line is no JSON object"},
    {"\"driver\":\"580.1\"", "\"driver\":580", "driver is no text"},
    {"\"driver\":\"580.1\"", "\"driver\":\"0123456789012345678901234567890123456789\"",
     "driver is too long"},
    {"\"dtype\":\"bf16\"", "\"dtype\":\"bf17\"", "dtype is no known word"},
    {"\"head_dim\":128", "\"head_dim\":0", "head_dim is out of its range"},
    {"\"seqlen_q_log2\":11", "\"seqlen_q_log2\":12", "problem is not that of its shape"},
    {"\"num_heads_k\":16", "\"num_heads_k\":0", "num_heads_k is out of its range"},
    {"\"num_heads_k\":16", "\"num_heads_k\":3", "num_heads is no whole multiple of num_heads_k"},
    {"\"outcome\":\"timed\"", "\"outcome\":\"unknown\"", "outcome is unknown"},
    {"\"candidates\":[", "\"candidates\":[7,", "candidates holds what is no object"},
    {"\"candidates\":[", "\"others\":[", "candidates is no list of 1 to 4096 objects"},
    {"\"strategy\":\"hillclimb\"", "\"strategy\":[]", "strategy is no text"},
    {"\"environment\":{", "\"environment\":[],\"e\":{", "environment is no object"},
};

static char *replaced(const char *text, const char *from, const char *to) {
  static char out[1 << 20];
  const char *at = strstr(text, from);
  ck_assert_msg(at != NULL, "%s is not there", from);
  snprintf(out, sizeof out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  return out;
}

START_TEST(wrong_members_are_named) {
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
    char why[256] = "";
    const char *text = replaced(line_text, faults[i].from, faults[i].to);
    ck_assert_msg(parse(text, strlen(text), why) != 0, "%s passed", faults[i].to);
    ck_assert_str_eq(why, faults[i].sentence);
  }
}
END_TEST

START_TEST(a_chosen_tile_was_timed) {
  char why[256] = "", *text = strdup(line_text);
  char *tile = strstr(text, "\"strategy\"");
  tile = strstr(tile, "\"tile\":{\"block_m\":128");
  ck_assert_ptr_nonnull(tile);
  memcpy(tile, "\"tile\":{\"block_m\":129", 21);
  ck_assert_int_ne(parse(text, strlen(text), why), 0);
  ck_assert_str_eq(why, "tile is none of the timed candidates");
  free(text);
}
END_TEST

START_TEST(deep_and_long_lines_are_refused) {
  static char deep[100000];
  char why[256] = "";
  memset(deep, '[', sizeof deep);
  ck_assert_int_ne(parse(deep, sizeof deep, why), 0);
  ck_assert_str_eq(why, "the line is nested too deeply");
  char *huge = calloc(1, KILN__LINE_LIMIT + 2);
  memset(huge, ' ', KILN__LINE_LIMIT + 1);
  ck_assert_int_ne(parse(huge, KILN__LINE_LIMIT + 1, why), 0);
  ck_assert_str_eq(why, "the line is longer than 1 MiB");
  free(huge);
  ck_assert_int_ne(parse("", 0, why), 0);
  ck_assert_int_ne(parse("\"[[[[[[[[[[[[\"", 14, why), 0);
  ck_assert_str_eq(why, "the line is no JSON object"); /* brackets in a string are no depth */
}
END_TEST

/* Bytes that are changed, left out or doubled: refused, or read as something whose own bytes are
 * read back the same. */
START_TEST(mutations_are_refused_or_whole) {
  const size_t length = strlen(line_text);
  char *text = malloc(length + 2);
  uint32_t state = 1;
  int refused = 0;
  for (int i = 0; i < 3000; i++) {
    char why[256] = "";
    kiln__line line, again;
    state = state * 1664525u + 1013904223u;
    const size_t at = (state >> 8) % length;
    memcpy(text, line_text, length + 1);
    if (i % 3 == 0) text[at] = (char)(state >> 24);
    if (i % 3 == 1) memmove(text + at, text + at + 1, length - at);
    if (i % 3 == 2) memmove(text + at + 1, text + at, length - at + 1);
    if (kiln__line_parse(text, length + (i % 3 == 2) - (i % 3 == 1), &line, why, sizeof why) != 0) {
      ck_assert(why[0] != '\0' && line.candidates == NULL);
      refused++;
      continue;
    }
    char *whole = kiln__line_text(&line);
    ck_assert_int_eq(kiln__line_parse(whole, strlen(whole), &again, why, sizeof why), 0);
    kiln__line_free(&again);
    kiln__line_free(&line);
    free(whole);
  }
  ck_assert_int_gt(refused, 1500);
  ck_assert_int_lt(refused, 3000);
  free(text);
}
END_TEST

/* ---- buckets and environments ---- */

START_TEST(buckets_are_rounded_logarithms) {
  static const int32_t cases[][2] = {{0, 0},      {1, 0},         {2, 1},     {3, 2},
                                     {1000, 10},  {1448, 10},     {1449, 11}, {1100, 10},
                                     {32768, 15}, {INT32_MAX, 31}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    kiln_attn_args shape = KILN_ATTN_ARGS_INIT;
    shape.seqlen_q = cases[i][0];
    shape.seqlen_k = 1;
    shape.batch = INT32_MAX;
    shape.num_heads = 32;
    shape.num_heads_k = 8;
    const kiln__problem p = kiln__problem_of(&land.spec, &shape);
    ck_assert_int_eq(p.seqlen_q_log2, cases[i][1]);
    ck_assert(p.seqlen_k_log2 == 0 && p.heads_log2 == 36 && p.gqa == 4);
  }
}
END_TEST

START_TEST(environments_differ_hard_or_softly) {
  char hard[256], soft[256];
  kiln__environment there = land.environment;
  kiln__environment_compare(&there, &land.environment, hard, soft, sizeof hard);
  ck_assert(hard[0] == '\0' && soft[0] == '\0');
  there.num_sms = 78;
  strcpy(there.source_id, "another");
  strcpy(there.driver, "590");
  strcpy(there.name, "B");
  kiln__environment_compare(&there, &land.environment, hard, soft, sizeof hard);
  ck_assert_str_eq(hard, "num_sms, source_id");
  ck_assert_str_eq(soft, "name, driver");
  const kiln__environment unknown = {0};
  kiln__environment_compare(&there, &unknown, hard, soft, sizeof hard);
  ck_assert(hard[0] == '\0' && soft[0] == '\0');
}
END_TEST

/* ---- files ---- */

static kiln_status command(const char *verb, const char *a, const char *b, const char *own,
                           const char *out, json_t **answer) {
  const char *const list[] = {a, b};
  char *json = NULL;
  kiln_status status = kiln__records_command(land.ctx, verb, list, a ? b ? 2 : 1 : 0, own, out,
                                             &json, error, sizeof error);
  *answer = json_loads(json, 0, NULL);
  ck_assert_ptr_nonnull(*answer);
  free(json);
  return status;
}

static int64_t number(const json_t *answer, const char *name) {
  ck_assert_ptr_nonnull(json_object_get(answer, name));
  return json_integer_value(json_object_get(answer, name));
}

static const char *verdict(const json_t *answer, size_t line, const char *name) {
  const json_t *row = json_array_get(json_object_get(answer, "lines"), line);
  const char *text = json_string_value(json_object_get(row, name));
  return text ? text : "";
}

START_TEST(torn_damaged_and_empty_lines_cost_themselves) {
  json_t *answer;
  char text[256];
  snprintf(text, sizeof text, "{\"half\":\n\n{\"a\":1}\n");
  char *path = strdup(write_lines("mixed", text, line_text)); /* no newline: torn */
  ck_assert_int_eq(command("show", path, NULL, NULL, NULL, &answer), KILN_OK);
  ck_assert_int_eq(number(answer, "used"), 0);
  ck_assert_int_eq(number(answer, "damaged"), 2);
  ck_assert_str_eq(verdict(answer, 0, "why"), "the line is no JSON object");
  ck_assert_str_eq(verdict(answer, 1, "why"), "format is not 1");
  json_decref(answer);
  ck_assert_int_eq(kiln__journal_append_text(path, line_text, error, sizeof error), KILN_OK);
  ck_assert_int_eq(command("show", path, NULL, NULL, NULL, &answer), KILN_OK);
  ck_assert_int_eq(number(answer, "used"), 2); /* the torn one was whole but for its newline */
  json_decref(answer);
  free(path);
}
END_TEST

START_TEST(what_is_no_plain_file_is_refused) {
  json_t *answer;
  char fifo[320];
  strcpy(fifo, fixture_path(&files, "fifo"));
  ck_assert_int_eq(mkfifo(fifo, 0600), 0);
  const char *const paths[] = {fifo, files.folder, "/dev/zero", "/no/such/file"};
  for (int i = 0; i < 4; i++) {
    ck_assert_int_eq(command("show", paths[i], NULL, NULL, NULL, &answer), KILN_IO_FAILED);
    ck_assert_ptr_nonnull(strstr(error, paths[i]));
    json_decref(answer);
  }
}
END_TEST

START_TEST(check_judges_every_line) {
  json_t *answer;
  char *here = strdup(write_lines("here", line_text, "\n"));
  ck_assert_int_eq(command("check", here, NULL, NULL, NULL, &answer), KILN_OK);
  ck_assert(number(answer, "used") == 1 && number(answer, "refused") == 0);
  json_decref(answer);
  const char *other = replaced(line_text, "\"timing\":\"median", "\"timing\":\"mean");
  char *path = strdup(write_lines("other", other, "\n"));
  ck_assert_int_eq(command("check", path, NULL, NULL, NULL, &answer), KILN_CHECK_FAILED);
  ck_assert_int_eq(number(answer, "refused"), 1);
  ck_assert_str_eq(verdict(answer, 0, "verdict"), "refused");
  ck_assert_str_eq(verdict(answer, 0, "differs"), "timing");
  json_decref(answer);
  ck_assert_int_eq(kiln__journal_append_text(path, line_text, error, sizeof error), KILN_OK);
  ck_assert_int_eq(command("check", path, NULL, NULL, NULL, &answer), KILN_MISMATCH);
  ck_assert_str_eq(verdict(answer, 1, "verdict"), "ok");
  json_decref(answer);
  free(path);
  free(here);
}
END_TEST

START_TEST(imports_take_what_fits) {
  json_t *answer;
  char own[320];
  strcpy(own, fixture_path(&files, "own"));
  char *path = strdup(write_lines("one", line_text, "\n"));
  ck_assert_int_eq(command("import", path, NULL, own, NULL, &answer), KILN_OK);
  ck_assert_int_eq(number(answer, "used"), 1);
  json_decref(answer);
  ck_assert(same_files(own, path));
  ck_assert_int_eq(command("import", path, NULL, own, NULL, &answer), KILN_OK);
  json_decref(answer);
  char *twice = strdup(read_text(own)); /* nothing is added a second time */
  ck_assert_int_eq(strlen(twice), strlen(line_text) + 1);
  const char *foreign = replaced(line_text, "\"source_id\":\"", "\"source_id\":\"9");
  const char *other = write_lines("foreign", foreign, "\n");
  ck_assert_int_eq(command("import", other, NULL, own, NULL, &answer), KILN_MISMATCH);
  ck_assert_ptr_nonnull(strstr(error, "nothing was imported; 1 records are of another"));
  ck_assert_str_eq(verdict(answer, 0, "differs"), "source_id");
  ck_assert_str_eq(read_text(own), twice);
  json_decref(answer);
  free(twice);
  free(path);
}
END_TEST

START_TEST(merges_are_stable_and_list_conflicts) {
  json_t *answer;
  char a[320], b[320], ab[320], again[320], out[320];
  make_record("a", 2048, a);
  make_record("b", 512, b);
  strcpy(ab, fixture_path(&files, "ab"));
  strcpy(again, fixture_path(&files, "again"));
  strcpy(out, fixture_path(&files, "out"));
  ck_assert_int_eq(command("merge", a, b, NULL, ab, &answer), KILN_OK);
  ck_assert_int_eq((int)json_array_size(json_object_get(answer, "conflicts")), 0);
  json_decref(answer);
  ck_assert_int_eq(command("merge", b, a, NULL, again, &answer), KILN_OK);
  json_decref(answer);
  char *first = strdup(read_text(ab));
  ck_assert(strcmp(read_text(again), first) == 0);
  ck_assert_int_eq(command("merge", ab, ab, NULL, again, &answer), KILN_OK);
  json_decref(answer);
  ck_assert(strcmp(read_text(again), first) == 0);
  /* export, import elsewhere, export: the same bytes */
  ck_assert_int_eq(command("export", NULL, NULL, ab, out, &answer), KILN_OK);
  json_decref(answer);
  ck_assert_int_eq(command("import", out, NULL, fixture_path(&files, "elsewhere"), NULL, &answer),
                   KILN_OK);
  json_decref(answer);
  char *exported = strdup(read_text(out));
  ck_assert_int_eq(command("export", NULL, NULL, fixture_path(&files, "elsewhere"), out, &answer),
                   KILN_OK);
  json_decref(answer);
  ck_assert(strcmp(read_text(out), exported) == 0);
  free(exported);
  free(first);
}
END_TEST

START_TEST(the_later_of_two_choices_holds) {
  json_t *answer;
  char out[320];
  strcpy(out, fixture_path(&files, "out"));
  char *mine = strdup(write_lines("mine", line_text, "\n"));
  char *tail = strstr(line_text, "\"strategy\""), *tile = strstr(tail, "\"tile\":");
  char *other = malloc(strlen(line_text) + 100); /* the default is chosen in its place */
  const char *standard = strstr(line_text, "\"default\":") + strlen("\"default\":");
  const int size = (int)(strchr(standard, '}') + 1 - standard);
  snprintf(other, strlen(line_text) + 100, "%.*s\"tile\":%.*s}", (int)(tile - line_text), line_text,
           size, standard);
  char *theirs = strdup(write_lines("theirs", other, "\n"));
  ck_assert_int_eq(command("merge", mine, theirs, NULL, out, &answer), KILN_OK);
  ck_assert_int_eq((int)json_array_size(json_object_get(answer, "conflicts")), 1);
  ck_assert_int_eq(number(answer, "replaced"), 1);
  json_decref(answer);
  ck_assert(same_files(out, theirs));
  ck_assert_int_eq(command("merge", theirs, mine, NULL, out, &answer), KILN_OK);
  json_decref(answer);
  ck_assert(same_files(out, mine));
  free(theirs);
  free(other);
  free(mine);
}
END_TEST

START_TEST(a_replay_chooses_what_was_chosen) {
  kiln_tune_result first = {.size = sizeof first}, replay = first;
  kiln_tune_options options = KILN_TUNE_OPTIONS_INIT;
  char path[320];
  make_record("journal", 4096, path);
  ck_assert_int_eq(landscape_tune(&land, "hillclimb", 1, 0, path, &first), KILN_OK);
  options.simulate = path;
  options.strategy = "exhaustive";
  ck_assert_int_eq(kiln_tune(land.ctx, &land.spec, &land.shape, &options, &replay), KILN_OK);
  ck_assert_int_eq(kiln__tile_compare(&replay.tile, &first.tile), 0);
  ck_assert_int_eq(replay.legal, first.known);
  ck_assert_int_gt(replay.samples, 0);
  land.shape.num_heads_k = 4;
  ck_assert_int_eq(kiln_tune(land.ctx, &land.spec, &land.shape, &options, &replay),
                   KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(land.ctx), "has no record of this problem"));
}
END_TEST

START_TEST(tuning_without_a_gpu_is_refused) {
  kiln_tune_result r = {.size = sizeof r};
  kiln_tune_options options = KILN_TUNE_OPTIONS_INIT;
  ck_assert_int_ne(kiln_tune(land.ctx, &land.spec, &land.shape, NULL, &r), KILN_OK);
  options.strategy = "guess";
  ck_assert_int_eq(kiln_tune(land.ctx, &land.spec, &land.shape, &options, &r),
                   KILN_INVALID_ARGUMENT);
  ck_assert_str_eq(kiln_last_error(land.ctx),
                   "strategy guess is unknown; there are estimate, hillclimb and exhaustive");
}
END_TEST

Suite *suite_records(void) {
  Suite *suite = suite_create("records");
  TCase *tests = tcase_create("records");
  tcase_add_checked_fixture(tests, create, destroy);
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, a_line_gives_the_same_bytes);
  tcase_add_test(tests, deterministic_came_late);
  tcase_add_test(tests, wrong_members_are_named);
  tcase_add_test(tests, a_chosen_tile_was_timed);
  tcase_add_test(tests, deep_and_long_lines_are_refused);
  tcase_add_test(tests, mutations_are_refused_or_whole);
  tcase_add_test(tests, buckets_are_rounded_logarithms);
  tcase_add_test(tests, environments_differ_hard_or_softly);
  tcase_add_test(tests, torn_damaged_and_empty_lines_cost_themselves);
  tcase_add_test(tests, what_is_no_plain_file_is_refused);
  tcase_add_test(tests, check_judges_every_line);
  tcase_add_test(tests, imports_take_what_fits);
  tcase_add_test(tests, merges_are_stable_and_list_conflicts);
  tcase_add_test(tests, the_later_of_two_choices_holds);
  tcase_add_test(tests, a_replay_chooses_what_was_chosen);
  tcase_add_test(tests, tuning_without_a_gpu_is_refused);
  suite_add_tcase(suite, tests);
  return suite;
}
