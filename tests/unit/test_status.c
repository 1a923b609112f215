/* Statuses, texts, the environment, errors per thread, and contexts without a device. */
#include "suites.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/kiln.h>

#include "runtime/context.h"
#include "runtime/text.h"

START_TEST(names_and_texts_follow_the_list) {
  ck_assert_str_eq(kiln_status_name(KILN_OK), "OK");
  ck_assert_str_eq(kiln_status_name(KILN_COMPILE_FAILED), "COMPILE_FAILED");
  ck_assert_str_eq(kiln_status_text(KILN_FORKED), "the context was created before a fork");
  ck_assert_str_eq(kiln_status_name((kiln_status)4711), "UNKNOWN");
  ck_assert_int_eq(KILN_INTERNAL, 21);
  ck_assert_str_eq(kiln_version(), KILN_VERSION);
}
END_TEST

START_TEST(text_grows_up_to_its_limit) {
  kiln__text text;
  kiln__text_init(&text, 300);
  ck_assert_str_eq(kiln__text_get(&text), "");
  for (int i = 0; i < 100; i++) kiln__text_printf(&text, "%04d", i);
  ck_assert_uint_eq(text.length, 299);
  ck_assert_int_eq(text.truncated, 1);
  ck_assert_uint_eq(strlen(text.data), 299);
  ck_assert_int_eq(memcmp(text.data + 292, "0073007", 7), 0);
  kiln__text_clear(&text);
  ck_assert_str_eq(kiln__text_get(&text), "");
  kiln__text_free(&text);
}
END_TEST

START_TEST(text_over_a_buffer_never_grows) {
  char buffer[8];
  kiln__text text;
  kiln__text_init_fixed(&text, buffer, sizeof buffer);
  kiln__text_string(&text, "kiln");
  kiln__text_printf(&text, "-%s", "abcdef");
  ck_assert_str_eq(buffer, "kiln-ab");
  ck_assert_int_eq(text.truncated, 1);
}
END_TEST

/* Collects the sentences of a context. */
typedef struct heard {
  int count;
  char last[512];
} heard;

static void hear(void *user, kiln_log_level level, const char *sentence) {
  heard *h = user;
  if (level > KILN_LOG_WARNING) return;
  h->count++;
  strncpy(h->last, sentence, sizeof h->last - 1);
}

START_TEST(unknown_variables_are_warned_about) {
  heard h = {0};
  kiln_context_options o = KILN_CONTEXT_OPTIONS_INIT;
  kiln_context *ctx;
  o.log = hear;
  o.log_user = &h;
  o.cache_dir = "";
  setenv("KILN_CHACHE_DIR", "/x", 1);
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &o, &ctx), KILN_OK);
  ck_assert_int_eq(h.count, 1);
  ck_assert_ptr_nonnull(strstr(h.last, "KILN_CHACHE_DIR is no variable"));
  kiln_context_destroy(ctx);
  unsetenv("KILN_CHACHE_DIR");
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &o, &ctx), KILN_OK);
  ck_assert_int_eq(h.count, 1);
  kiln_context_destroy(ctx);
  setenv("KILN_TUNE", "sometimes", 1);
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &o, &ctx), KILN_OK);
  ck_assert_int_eq(h.count, 2);
  ck_assert_ptr_nonnull(strstr(h.last, "KILN_TUNE is \"sometimes\", which is taken as cached"));
  kiln_context_destroy(ctx);
  unsetenv("KILN_TUNE");
}
END_TEST

static void *fail_in_thread(void *user) {
  kiln_context *ctx = user;
  ck_assert_str_eq(kiln_last_error(ctx), "");
  kiln__context_fail(ctx, KILN_INTERNAL, "of the other thread");
  ck_assert_str_eq(kiln_last_error(ctx), "of the other thread");
  return NULL;
}

START_TEST(every_thread_has_its_own_error) {
  kiln_context *ctx;
  pthread_t thread;
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, NULL, &ctx), KILN_OK);
  ck_assert_str_eq(kiln_last_error(ctx), "");
  kiln__context_fail(ctx, KILN_INTERNAL, "of this thread %d", 1);
  pthread_create(&thread, NULL, fail_in_thread, ctx);
  pthread_join(thread, NULL);
  ck_assert_str_eq(kiln_last_error(ctx), "of this thread 1");
  ck_assert_ptr_null(ctx->thread_slots->next); /* the other thread's slot went with it */
  kiln_context_destroy(ctx);
}
END_TEST

START_TEST(a_context_without_device_says_so) {
  kiln_context *ctx;
  kiln_device_info info = {.size = sizeof info};
  void *address;
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, NULL, &ctx), KILN_OK);
  ck_assert_int_eq(kiln_context_device(ctx, &info), KILN_NO_DEVICE);
  ck_assert_int_eq(kiln_memory_alloc(ctx, 1, NULL), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "is NULL"));
  ck_assert_int_eq(kiln_memory_alloc(ctx, 1, &address), KILN_NO_DEVICE);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "KILN_DEVICE_EMU"));
  kiln_context_destroy(ctx);
}
END_TEST

/* On a machine without a driver, or with one and fewer devices than this. */
START_TEST(a_missing_device_is_a_status_and_a_sentence) {
  char sentence[512] = "";
  kiln_context_options o = KILN_CONTEXT_OPTIONS_INIT;
  kiln_context *ctx = (kiln_context *)&o;
  o.error = sentence;
  o.error_size = sizeof sentence;
  kiln_status status = kiln_context_create(1000, &o, &ctx);
  ck_assert(status == KILN_NO_DRIVER || status == KILN_NO_DEVICE);
  ck_assert_uint_gt(strlen(sentence), 10);
  ck_assert_ptr_null(ctx);
  ck_assert_int_eq(kiln_context_create(-7, &o, &ctx), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(sentence, "KILN_DEVICE_NONE"));
}
END_TEST

START_TEST(a_child_process_is_refused) {
  kiln_context *ctx;
  int result;
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, NULL, &ctx), KILN_OK);
  pid_t child = fork();
  if (child == 0) {
    const char *json;
    kiln_status status = kiln_context_report(ctx, &json);
    int said = strstr(kiln_last_error(ctx), "fork") != NULL;
    kiln_context_destroy(ctx);
    _exit(status == KILN_FORKED && said ? 0 : 1);
  }
  ck_assert_int_eq(waitpid(child, &result, 0), child);
  ck_assert_int_eq(result, 0);
  kiln_context_destroy(ctx);
}
END_TEST

START_TEST(structs_of_other_sizes) {
  kiln_context *ctx;
  struct {
    kiln_context_options known;
    long future;
  } newer = {KILN_CONTEXT_OPTIONS_INIT, 0};
  kiln_context_options shorter = KILN_CONTEXT_OPTIONS_INIT;
  newer.known.size = sizeof newer;
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &newer.known, &ctx), KILN_OK);
  kiln_context_destroy(ctx);
  newer.future = 1; /* a wish that this library does not know must not be ignored */
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &newer.known, &ctx),
                   KILN_INVALID_ARGUMENT);
  shorter.size = 8;
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &shorter, &ctx), KILN_INVALID_ARGUMENT);
}
END_TEST

Suite *suite_status(void) {
  Suite *suite = suite_create("status");
  TCase *tests = tcase_create("status");
  tcase_add_test(tests, names_and_texts_follow_the_list);
  tcase_add_test(tests, text_grows_up_to_its_limit);
  tcase_add_test(tests, text_over_a_buffer_never_grows);
  tcase_add_test(tests, unknown_variables_are_warned_about);
  tcase_add_test(tests, every_thread_has_its_own_error);
  tcase_add_test(tests, a_context_without_device_says_so);
  tcase_add_test(tests, a_missing_device_is_a_status_and_a_sentence);
  tcase_add_test(tests, a_child_process_is_refused);
  tcase_add_test(tests, structs_of_other_sizes);
  suite_add_tcase(suite, tests);
  return suite;
}
