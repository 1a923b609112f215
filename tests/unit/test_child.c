/* The parent's side of kiln-measure: what a program that hangs, dies or talks nonsense costs. The
 * program is tests/data/measurer, by its path. */
#include "suites.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "autotune/child.h"
#include "autotune/journal.h"
#include "fixture.h"
#include "landscape.h"

enum { LIMIT_MS = 700 };

static landscape land;
static fixture files;
static kiln__child *child;
static char journal[320], log_path[320];

static kiln__child *create_child(void) {
  const kiln__child_options options = {.program = KILN_TEST_SOURCE_DIR "/tests/data/measurer",
                                       .cache_dir = "",
                                       .prepare_ms = LIMIT_MS,
                                       .sample_ms = LIMIT_MS};
  kiln__child *made = kiln__child_create(&options);
  ck_assert_ptr_nonnull(made);
  return made;
}

/* Another process, which reads the environment anew. */
static void renew_child(void) {
  kiln__child_destroy(child);
  child = create_child();
}

static void create(void) {
  landscape_create(&land, "sm_90a", 256, 2048, 0, 1);
  fixture_create(&files);
  strcpy(journal, fixture_path(&files, "journal"));
  strcpy(log_path, fixture_path(&files, "log"));
  setenv("MEASURER_LOG", log_path, 1);
  child = create_child();
}

static void destroy(void) {
  kiln__child_destroy(child);
  fixture_destroy(&files);
  landscape_destroy(&land);
}

static kiln_status try_tune(kiln_tune_result *result) {
  kiln__child_set_problem(child, &land.spec, &land.shape);
  const kiln__tuning tuning = {.ctx = land.ctx,
                               .spec = land.spec,
                               .shape = land.shape,
                               .strategy = kiln__strategy_find("exhaustive"),
                               .records = journal,
                               .environment = land.environment,
                               .measurer = kiln__child_measurer(child)};
  *result = (kiln_tune_result){.size = sizeof *result};
  return kiln__tuning_run(&tuning, result, landscape_error, sizeof landscape_error);
}

static kiln_tune_result tune(void) {
  kiln_tune_result result;
  kiln_status status = try_tune(&result);
  ck_assert_msg(status == KILN_OK, "%s", landscape_error);
  return result;
}

/* Lines of the program's log that begin so. */
static int logged(const char *words) {
  char line[1024];
  int count = 0;
  FILE *file = fopen(log_path, "r");
  while (file && fgets(line, sizeof line, file)) count += strncmp(line, words, strlen(words)) == 0;
  if (file) fclose(file);
  return count;
}

/* What the journal says of a tile that failed. */
typedef struct failed_tile {
  int count;
  kiln__candidate last;
} failed_tile;

static kiln_status find_failed(void *user, int64_t number, kiln__line *line, const char *why) {
  failed_tile *f = user;
  (void)number, (void)why;
  if (!line) f->count++; /* nothing else is written either */
  if (!line || line->kind != KILN__LINE_CANDIDATE) return KILN_OK;
  if (line->candidates[0].outcome == KILN__OUTCOME_TIMED) return KILN_OK;
  f->count++;
  f->last = line->candidates[0];
  return KILN_OK;
}

static failed_tile read_failed(void) {
  failed_tile f = {0};
  char error[256];
  ck_assert_int_eq(kiln__journal_read(journal, 0, find_failed, &f, error, sizeof error), KILN_OK);
  return f;
}

/* ---- a program that is well ---- */

START_TEST(tiles_are_timed_and_chosen) {
  const kiln_tune_result r = tune();
  ck_assert(r.failed == 0 && r.known == land.count && r.complete);
  ck_assert_int_eq(r.tile.block_m, 128);
  ck_assert_int_eq(logged("start"), 1);
  ck_assert_int_eq(logged("sample"), (int)r.samples);
  const int groups = (land.count - 1 + KILN__RACE_GROUP - 1) / KILN__RACE_GROUP;
  ck_assert_int_eq(logged("prepare"), r.measured + groups); /* the default sets every pace */
  ck_assert_int_ge(logged("compile"), land.count / KILN__RACE_GROUP);
}
END_TEST

START_TEST(one_process_serves_many_tunings) {
  tune();
  land.shape.seqlen_q = land.shape.seqlen_k = 4096;
  const kiln_tune_result r = tune();
  ck_assert_int_gt(r.measured, 0);
  ck_assert(logged("start") == 1 && logged("open") == 2);
  ck_assert_int_eq(tune().from_records, 1);
  ck_assert_int_eq(logged("open"), 2); /* what is known needs no process */
}
END_TEST

START_TEST(it_is_given_nothing_but_the_way_to_ask) {
  const int kept = fcntl(0, F_DUPFD, 40); /* without FD_CLOEXEC, as careless hosts have them */
  ck_assert_int_ge(kept, 40);
  setenv("MEASURER_DESCRIPTORS", "1", 1);
  tune();
  close(kept);
  FILE *file = fopen(log_path, "r");
  int sockets = 0, highest = 0, count = 0;
  char line[256];
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "descriptors %d %d %d", &sockets, &highest, &count) == 3) break;
  fclose(file);
  ck_assert_msg(sockets == 2 && highest < 10 && count <= 5, "%d sockets, up to %d, %d in all",
                sockets, highest, count);
}
END_TEST

/* ---- one that is not ---- */

#define PLANTED "128x48x3" /* is prepared beside others, and far from the fastest */

/* Every other tile is timed, in a second process, and the journal tells what became of this one. */
static void costs_one(const char *behaviour, kiln__outcome outcome, const char *reason,
                      int starts) {
  char planted[64];
  snprintf(planted, sizeof planted, "%s:%s", behaviour, PLANTED);
  setenv("MEASURER", planted, 1);
  unlink(journal);
  unlink(log_path);
  const kiln_tune_result r = tune();
  const failed_tile f = read_failed();
  ck_assert_msg(r.failed == 1 && f.count == 1, "%s: %d failed", behaviour, (int)r.failed);
  ck_assert_int_eq(r.known, land.count);
  ck_assert_int_eq(f.last.outcome, outcome);
  ck_assert(f.last.tile.block_n == 48 && f.last.tile.num_stages == 3);
  ck_assert_msg(strstr(f.last.reason, reason) != NULL, "%s: %s", behaviour, f.last.reason);
  ck_assert_int_eq(logged("start"), starts);
  ck_assert_int_eq(r.tile.block_n, 80);
  renew_child();
}

START_TEST(a_hang_costs_one_candidate) {
  costs_one("prepare-hang", KILN__OUTCOME_HANG, "no answer within", 2);
  costs_one("sample-hang", KILN__OUTCOME_HANG, "no answer within", 2);
}
END_TEST

START_TEST(a_crash_costs_one_candidate) {
  costs_one("sample-fault", KILN__OUTCOME_HANG, "the measuring program ended by signal 11", 2);
  costs_one("sample-exit", KILN__OUTCOME_HANG, "the measuring program ended", 2);
  /* Which of the tiles that were compiled together it was is found by itself; both times that a
   * process dies of it others are being compiled too, so that each costs a second attempt. */
  costs_one("compile-exit", KILN__OUTCOME_HANG, "the measuring program ended", 4);
}
END_TEST

START_TEST(nonsense_costs_one_candidate) {
  costs_one("prepare-garbage", KILN__OUTCOME_HANG, "answer cannot be read", 2);
  costs_one("prepare-list", KILN__OUTCOME_HANG, "answer cannot be read", 2);
  costs_one("sample-long", KILN__OUTCOME_HANG, "answer cannot be read", 2);
  costs_one("prepare-dumb", KILN__OUTCOME_HANG, "answer has no outcome", 2);
}
END_TEST

START_TEST(a_wrong_result_needs_no_other_process) {
  costs_one("prepare-wrong", KILN__OUTCOME_WRONG_RESULT, "o differs?", 1);
}
END_TEST

/* The others that were ready with it are made ready again, and timed as often as without it. */
START_TEST(handles_outlive_the_process) {
  const kiln_tune_result well = tune();
  unlink(journal);
  unlink(log_path);
  setenv("MEASURER", "sample-exit:" PLANTED, 1);
  renew_child();
  const kiln_tune_result r = tune();
  ck_assert_int_ge(r.samples, well.samples - KILN__RACE_SAMPLES);
  ck_assert_int_gt(logged("prepare"), r.measured); /* some twice */
  ck_assert_int_eq(logged("prepare " PLANTED), 1);
}
END_TEST

START_TEST(a_failed_tile_is_remembered) {
  setenv("MEASURER", "prepare-exit:" PLANTED, 1);
  tune();
  unlink(log_path);
  land.shape.seqlen_q = 4096; /* nor is it tried on another shape */
  const kiln_tune_result r = tune();
  ck_assert(r.failed == 1 && r.measured > 0);
  ck_assert_int_eq(logged("prepare " PLANTED), 0);
}
END_TEST

/* ---- a machine that is not well ---- */

static void ends_with(kiln_status wanted, const char *sentence) {
  kiln_tune_result r;
  const char *said = NULL;
  ck_assert_int_ne(try_tune(&r), KILN_OK);
  ck_assert_int_eq(kiln__child_failure(child, &said), wanted);
  ck_assert_msg(strstr(said, sentence) != NULL, "%s", said);
}

START_TEST(a_failure_of_the_machine_ends_the_tuning) {
  setenv("MEASURER", "open-status", 1);
  ends_with(KILN_OUT_OF_MEMORY, "kiln-measure cannot measure: planted: no memory");
  renew_child();
  setenv("MEASURER", "sample-status:" PLANTED, 1);
  ends_with(KILN_OUT_OF_MEMORY, "planted: no memory");
  ck_assert_ptr_nonnull(strstr(landscape_error, "measuring ended: "));
  ck_assert_int_eq(read_failed().count, 0); /* it says nothing of any tile */
  unsetenv("MEASURER");
  renew_child();
  ck_assert_int_eq(tune().failed, 0); /* what was measured is kept, and this goes on */
  ck_assert_int_gt(logged("prepare"), land.count);
}
END_TEST

START_TEST(a_program_that_does_not_come_up) {
  setenv("MEASURER", "open-exit", 1);
  ends_with(KILN_UNSUPPORTED, "does not get as far as a first answer (the measuring program");
  ck_assert_int_eq(logged("start"), 2);
}
END_TEST

START_TEST(another_version_is_refused) {
  setenv("MEASURER_VERSION", "9.9.9", 1);
  ends_with(KILN_UNSUPPORTED, "kiln-measure is of version 9.9.9 and this library of 0.1.0");
}
END_TEST

START_TEST(a_missing_program_is_named) {
  const kiln__child_options options = {.program = "/nowhere/kiln-measure"};
  kiln__child_destroy(child);
  child = kiln__child_create(&options);
  ends_with(KILN_UNSUPPORTED,
            "/nowhere/kiln-measure, which compiles and times kernels in a process of its own, "
            "cannot be started (No such file or directory): install the whole of Kiln");
}
END_TEST

/* The host is killed by no SIGPIPE, and the next tuning begins with another process. */
START_TEST(a_process_that_died_between_tunings_is_replaced) {
  tune();
  FILE *list = popen("pgrep -P $PPID -f data/measurer", "r");
  int pid = 0;
  ck_assert_int_eq(fscanf(list, "%d", &pid), 1);
  pclose(list);
  ck_assert_int_eq(kill(pid, SIGKILL), 0);
  usleep(50000);
  land.shape.seqlen_q = 512;
  ck_assert_int_eq(tune().failed, 0);
  ck_assert_int_eq(logged("start"), 2);
}
END_TEST

/* A child of the host that destroys what it inherited leaves the process to the host. */
START_TEST(a_fork_owns_nothing) {
  int status = 0;
  tune();
  const pid_t pid = fork();
  if (pid == 0) {
    kiln__child_destroy(child);
    _exit(0);
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(status, 0);
  land.shape.seqlen_q = 512;
  tune();
  ck_assert_int_eq(logged("start"), 1);
}
END_TEST

Suite *suite_child(void) {
  Suite *suite = suite_create("child");
  TCase *tests = tcase_create("child");
  tcase_add_checked_fixture(tests, create, destroy);
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, tiles_are_timed_and_chosen);
  tcase_add_test(tests, one_process_serves_many_tunings);
  tcase_add_test(tests, it_is_given_nothing_but_the_way_to_ask);
  tcase_add_test(tests, a_hang_costs_one_candidate);
  tcase_add_test(tests, a_crash_costs_one_candidate);
  tcase_add_test(tests, nonsense_costs_one_candidate);
  tcase_add_test(tests, a_wrong_result_needs_no_other_process);
  tcase_add_test(tests, handles_outlive_the_process);
  tcase_add_test(tests, a_failed_tile_is_remembered);
  tcase_add_test(tests, a_failure_of_the_machine_ends_the_tuning);
  tcase_add_test(tests, a_program_that_does_not_come_up);
  tcase_add_test(tests, another_version_is_refused);
  tcase_add_test(tests, a_missing_program_is_named);
  tcase_add_test(tests, a_process_that_died_between_tunings_is_replaced);
  tcase_add_test(tests, a_fork_owns_nothing);
  suite_add_tcase(suite, tests);
  return suite;
}
