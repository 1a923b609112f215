/* The disk cache: what it keeps, what it sets aside, and that nothing here is an error. */
#include "suites.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake.h"
#include "runtime/digest.h"
#include "runtime/identity.h"

static char image[3000]; /* the bytes of every kernel here; filled by shelf_open */

/* A cache in a new directory, and the warnings it has given. */
typedef struct shelf {
  char root[64], path[512], last[768]; /* last: the warning */
  kiln__env env;
  kiln__log log;
  kiln__cache cache;
  json_t *identity;
  char id[KILN__ID_SIZE];
  atomic_int warnings, stop;
} shelf;

static void hear(void *user, kiln_log_level level, const char *sentence) {
  shelf *s = user;
  if (level != KILN_LOG_WARNING) return;
  s->warnings++;
  snprintf(s->last, sizeof s->last, "%s", sentence);
}

static void make_identity(shelf *s, const char *source_id) {
  static const char *const options[] = {"-a", "-b"};
  kiln__compiler_identity compiler = {"fake 1.0", options, 2};
  json_decref(s->identity);
  s->identity = kiln__identity_make(source_id, "sm_90a", "forward.1", &compiler);
  ck_assert_int_eq(kiln__identity_digest(s->identity, s->id), 0);
}

static void shelf_open_at(shelf *s, const char *dir) {
  kiln__log_init(&s->log, &s->env, hear, s);
  s->warnings = 0;
  ck_assert_int_eq(kiln__cache_open(&s->cache, dir, &s->env, &s->log), 0);
}

static void shelf_open(shelf *s) {
  memset(s, 0, sizeof *s);
  for (size_t i = 0; i < sizeof image; i++) image[i] = (char)(i * 7);
  strcpy(s->root, "/tmp/kiln-cache-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(s->root));
  make_identity(s, "one");
  shelf_open_at(s, s->root);
}

/* A second look by another process: a cache of its own, with its own single warning. */
static void shelf_reopen(shelf *s) {
  kiln__cache_close(&s->cache);
  shelf_open_at(s, s->root);
}

static void shelf_close(shelf *s) {
  char command[256];
  kiln__cache_close(&s->cache);
  json_decref(s->identity);
  snprintf(command, sizeof command, "chmod -R u+rwX %s; rm -rf %s", s->root, s->root);
  ck_assert_int_eq(system(command), 0);
}

static const char *entry_path(shelf *s, const char *file) {
  snprintf(s->path, sizeof s->path, "%s/kernels/%s%s%s", s->root, s->id, file ? "/" : "",
           file ? file : "");
  return s->path;
}

static void store(shelf *s) {
  kiln__cache_item item = {image, sizeof image, (char *)"// ptx", 6, (char *)"{\"format\":1}"};
  kiln__cache_store(&s->cache, s->id, s->identity, &item);
}

/* Loads and compares; 1 = a hit. */
static int load(shelf *s) {
  kiln__cache_item item;
  if (!kiln__cache_load(&s->cache, s->id, 1, &item)) return 0;
  ck_assert_uint_eq(item.image_size, sizeof image);
  ck_assert_mem_eq(item.image, image, sizeof image);
  ck_assert_str_eq(item.ptx, "// ptx");
  ck_assert_str_eq(item.record, "{\"format\":1}");
  kiln__cache_item_free(&item);
  return 1;
}

/* A bad entry is a miss with one warning; the next store works again. */
static void expect_set_aside(shelf *s) {
  shelf_reopen(s);
  ck_assert_int_eq(load(s), 0);
  ck_assert_int_eq(load(s), 0);
  ck_assert_msg(s->warnings == 1, "%d warnings", s->warnings);
  ck_assert_ptr_nonnull(strstr(s->last, "set aside"));
  store(s);
  ck_assert_int_eq(load(s), 1);
  ck_assert_int_eq(s->warnings, 1);
}

START_TEST(what_is_stored_is_loaded) {
  shelf s;
  shelf_open(&s);
  ck_assert_int_eq(load(&s), 0);
  store(&s);
  ck_assert_int_eq(load(&s), 1);
  struct stat status;
  ck_assert_int_eq(stat(entry_path(&s, NULL), &status), 0);
  ck_assert_int_eq(status.st_mode & 0777, 0700);
  ck_assert_int_eq(stat(entry_path(&s, "meta.json"), &status), 0);
  ck_assert_int_eq(status.st_mode & 0777, 0600);
  store(&s); /* a second publication changes nothing */
  ck_assert_int_eq(load(&s), 1);
  ck_assert_int_eq(s.warnings, 0);
  shelf_close(&s);
}
END_TEST

/* ---- damage (C5) ---- */

static const char *const file_names[] = {"image.bin", "kernel.ptx", "record.json", "meta.json"};

START_TEST(truncated_files) {
  shelf s;
  struct stat status;
  const char *file = file_names[_i / 4];
  shelf_open(&s);
  store(&s);
  ck_assert_int_eq(stat(entry_path(&s, file), &status), 0);
  const off_t sizes[4] = {0, 1, status.st_size / 2, status.st_size - 1};
  ck_assert_int_eq(truncate(entry_path(&s, file), sizes[_i % 4]), 0);
  expect_set_aside(&s);
  shelf_close(&s);
}
END_TEST

START_TEST(flipped_bytes) {
  shelf s;
  struct stat status;
  const char *file = file_names[_i];
  shelf_open(&s);
  store(&s);
  ck_assert_int_eq(stat(entry_path(&s, file), &status), 0);
  for (off_t at = 0; at < status.st_size; at += status.st_size / 13 + 1) {
    unsigned char byte;
    int fd = open(entry_path(&s, file), O_RDWR);
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
    expect_set_aside(&s);
  }
  shelf_close(&s);
}
END_TEST

static void to_directory(const char *path) { ck_assert_int_eq(mkdir(path, 0700), 0); }
static void to_fifo(const char *path) { ck_assert_int_eq(mkfifo(path, 0600), 0); }
static void to_loop(const char *path) { ck_assert_int_eq(symlink(path, path), 0); }
static void to_link(const char *path) { ck_assert_int_eq(symlink("/etc/passwd", path), 0); }
static void to_nothing(const char *path) { ck_assert_int_ne(access(path, F_OK), 0); }

static void (*const replacements[])(const char *path) = {to_directory, to_fifo, to_loop, to_link,
                                                         to_nothing};

START_TEST(replaced_files) {
  shelf s;
  shelf_open(&s);
  for (int i = 0; i < 4; i++) {
    store(&s);
    ck_assert_int_eq(unlink(entry_path(&s, file_names[i])), 0);
    replacements[_i](s.path);
    expect_set_aside(&s);
  }
  shelf_close(&s);
}
END_TEST

START_TEST(a_replaced_entry) {
  shelf s;
  char away[600];
  shelf_open(&s);
  store(&s);
  snprintf(away, sizeof away, "%s/away", s.root);
  ck_assert_int_eq(rename(entry_path(&s, NULL), away), 0);
  replacements[_i](entry_path(&s, NULL));
  expect_set_aside(&s);
  shelf_close(&s);
}
END_TEST

START_TEST(a_renamed_entry) { /* C3: the name says one kernel, the inside another */
  shelf s;
  char old[512];
  shelf_open(&s);
  store(&s);
  strcpy(old, entry_path(&s, NULL));
  make_identity(&s, "two");
  ck_assert_int_eq(rename(old, entry_path(&s, NULL)), 0);
  expect_set_aside(&s);
  ck_assert_ptr_nonnull(strstr(s.last, "another kernel"));
  shelf_close(&s);
}
END_TEST

static int fatal_step; /* of the child process alone */
static void die_at_step(int step) {
  if (step == fatal_step) kill(getpid(), SIGKILL);
}

START_TEST(killed_while_writing) {
  shelf s;
  int result;
  kiln__cache_removed removed;
  shelf_open(&s);
  pid_t child = fork();
  if (child == 0) {
    fatal_step = _i;
    s.cache.on_step = die_at_step;
    store(&s);
    _exit(0);
  }
  ck_assert_int_eq(waitpid(child, &result, 0), child);
  ck_assert(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
  shelf_reopen(&s);
  ck_assert_int_eq(load(&s), _i == 7); /* after the rename it is complete */
  store(&s);
  ck_assert_int_eq(load(&s), 1);
  ck_assert_int_eq(s.warnings, 0);
  ck_assert_int_eq(kiln__cache_gc(&s.cache, s.cache.limit, 0, NULL, &removed), 0);
  ck_assert_int_eq(removed.leftovers, _i > 0 && _i < 7);
  ck_assert_int_eq(load(&s), 1);
  shelf_close(&s);
}
END_TEST

/* ---- places that cannot be used (C2) ---- */

START_TEST(useless_directories_are_one_warning) {
  static const char *const homes[] = {NULL, "", "relative", "/nonexistent", "/proc", "/dev/null"};
  shelf s;
  shelf_open(&s);
  ck_assert_int_eq(kiln__env_read(&s.env), 0);
  for (int i = KILN__ENV_KILN_CACHE_DIR; i < KILN__ENV_COUNT; i++) {
    free(s.env.values[i]);
    s.env.values[i] = NULL;
  }
  s.env.values[KILN__ENV_HOME] = homes[_i] ? strdup(homes[_i]) : NULL;
  kiln__cache_close(&s.cache);
  shelf_open_at(&s, NULL);
  ck_assert_int_eq(load(&s), 0);
  store(&s);
  ck_assert_int_eq(load(&s), 0);
  ck_assert_msg(s.warnings == 1, "%d warnings, the last: %s", s.warnings, s.last);
  ck_assert_msg(access("/nonexistent", F_OK) != 0, "a missing home was made");
  kiln__env_free(&s.env);
  shelf_close(&s);
}
END_TEST

START_TEST(the_order_of_directories) {
  shelf s;
  shelf_open(&s);
  kiln__cache_close(&s.cache);
  s.env.values[KILN__ENV_HOME] = (char *)"/tmp";
  shelf_open_at(&s, NULL);
  ck_assert_str_eq(s.cache.dir, "/tmp/.cache/kiln");
  kiln__cache_close(&s.cache);
  s.env.values[KILN__ENV_XDG_CACHE_HOME] = (char *)"/x";
  shelf_open_at(&s, NULL);
  ck_assert_str_eq(s.cache.dir, "/x/kiln");
  kiln__cache_close(&s.cache);
  s.env.values[KILN__ENV_KILN_CACHE_DIR] = (char *)"/k";
  s.env.values[KILN__ENV_KILN_CACHE_MAX] = (char *)"20M";
  shelf_open_at(&s, NULL);
  ck_assert_str_eq(s.cache.dir, "/k");
  ck_assert_int_eq(s.cache.limit, 20 << 20);
  kiln__cache_close(&s.cache);
  shelf_open_at(&s, "/o");
  ck_assert_str_eq(s.cache.dir, "/o");
  kiln__cache_close(&s.cache);
  s.env.values[KILN__ENV_KILN_CACHE_MAX] = (char *)"20X";
  shelf_open_at(&s, ""); /* none is wanted */
  ck_assert_ptr_null(s.cache.dir);
  ck_assert_int_eq(s.warnings, 1);
  ck_assert_int_eq(load(&s), 0);
  store(&s);
  ck_assert_int_eq(s.warnings, 1);
  shelf_close(&s);
}
END_TEST

START_TEST(a_directory_that_others_can_write_is_refused) {
  shelf s;
  shelf_open(&s);
  store(&s);
  ck_assert_int_eq(chmod(s.root, 0777), 0);
  ck_assert_int_eq(load(&s), 0);
  ck_assert_int_eq(s.warnings, 1);
  ck_assert_ptr_nonnull(strstr(s.last, "other users can write it"));
  ck_assert_int_eq(chmod(s.root, 0700), 0);
  ck_assert_int_eq(load(&s), 1);
  ck_assert_int_eq(chmod(entry_path(&s, "image.bin"), 0622), 0);
  expect_set_aside(&s);
  shelf_close(&s);
}
END_TEST

START_TEST(a_full_disk_is_one_warning) {
  shelf s;
  struct rlimit limit = {1000, RLIM_INFINITY};
  shelf_open(&s);
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  store(&s);
  store(&s);
  limit.rlim_cur = RLIM_INFINITY;
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  ck_assert_int_eq(s.warnings, 1);
  ck_assert_ptr_nonnull(strstr(s.last, "could not be written"));
  ck_assert_int_eq(load(&s), 0);
  kiln__cache_removed removed;
  kiln__cache_gc(&s.cache, s.cache.limit, 0, NULL, &removed);
  ck_assert_int_eq(removed.leftovers, 0); /* the private directory went at once */
  shelf_close(&s);
}
END_TEST

/* ---- the limit ---- */

START_TEST(the_least_recently_used_goes_first) {
  static const char *const sources[] = {"a", "b", "c"};
  shelf s;
  kiln__cache_removed removed;
  shelf_open(&s);
  for (int i = 0; i < 3; i++) {
    make_identity(&s, sources[i]);
    store(&s);
    usleep(20000);
  }
  make_identity(&s, "a");
  ck_assert_int_eq(load(&s), 1); /* now b is the oldest */
  ck_assert_int_eq(kiln__cache_gc(&s.cache, 9000, 3600, NULL, &removed), 0);
  ck_assert_int_eq(removed.kernels, 1);
  ck_assert_int_gt(removed.bytes, 3000);
  for (int i = 0; i < 3; i++) {
    make_identity(&s, sources[i]);
    ck_assert_int_eq(load(&s), i != 1);
  }
  s.cache.limit = 5000; /* a store makes room for itself and keeps itself */
  make_identity(&s, "d");
  store(&s);
  ck_assert_int_eq(load(&s), 1);
  make_identity(&s, "c");
  ck_assert_int_eq(load(&s), 0);
  const struct timespec later[2] = {{4000000000, 0}, {4000000000, 0}};
  make_identity(&s, "d"); /* even before one that seems to be used later */
  ck_assert_int_eq(utimensat(AT_FDCWD, entry_path(&s, NULL), later, 0), 0);
  make_identity(&s, "f");
  store(&s);
  ck_assert_int_eq(load(&s), 1);
  s.cache.limit = 100; /* what does not fit at all is not stored */
  make_identity(&s, "e");
  store(&s);
  ck_assert_int_eq(load(&s), 0);
  ck_assert_int_eq(s.warnings, 0);
  shelf_close(&s);
}
END_TEST

/* Publishes and evicts one kernel again and again. */
static void *publish_and_evict(void *user) {
  shelf *s = user;
  kiln__cache_removed removed;
  while (!atomic_load(&s->stop)) {
    store(s);
    kiln__cache_gc(&s->cache, 0, 3600, NULL, &removed);
  }
  return NULL;
}

/* C6: a load sees a whole kernel or none, and never takes one that came in between for damage. */
START_TEST(evicting_while_another_loads) {
  shelf s;
  pthread_t threads[2];
  int hits = 0;
  shelf_open(&s);
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, publish_and_evict, &s);
  for (int i = 0; i < 4000 || hits == 0; i++) hits += load(&s);
  atomic_store(&s.stop, 1);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  ck_assert_msg(s.warnings == 0, "%s", s.last);
  store(&s);
  ck_assert_int_eq(load(&s), 1);
  shelf_close(&s);
}
END_TEST

/* ---- many at once, and what makes a kernel another one (C1, C4) ---- */

/* A child process that needs the kernel; its exit code is the number of its compiles. */
static int child_plan(const char *dir) {
  fake f;
  kiln_context *ctx = fake_context(&f, dir);
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_plan *plan = NULL;
  f.slow_compile = 1;
  kiln_status status = kiln_plan_create(ctx, &spec, NULL, NULL, &plan);
  kiln_plan_destroy(plan);
  fake_context_destroy(ctx);
  return status == KILN_OK ? f.num_compiles : 100;
}

START_TEST(sixteen_processes_one_compile) {
  for (int round = 0; round < 20; round++) {
    shelf s;
    int result, compiles = 0;
    shelf_open(&s);
    for (int i = 0; i < 16; i++)
      if (fork() == 0) _exit(child_plan(s.root));
    for (int i = 0; i < 16; i++) {
      ck_assert_int_gt(wait(&result), 0);
      ck_assert(WIFEXITED(result));
      compiles += WEXITSTATUS(result);
    }
    ck_assert_int_eq(compiles, 1);
    shelf_close(&s);
  }
}
END_TEST

static int compiles_again(fake *f, kiln_context *ctx, const kiln_attn_spec *spec) {
  kiln_plan *plan;
  int before = f->num_compiles;
  ck_assert_int_eq(kiln_plan_create(ctx, spec, NULL, NULL, &plan), KILN_OK);
  kiln_plan_info info = {.size = sizeof info};
  kiln_plan_get_info(plan, &info);
  ck_assert_int_eq(info.from_cache, f->num_compiles == before);
  ck_assert_ptr_nonnull(strstr(info.record, "\"spill_bytes\":24"));
  ck_assert_ptr_nonnull(strstr(info.record, "(C7510) a remark"));
  kiln_plan_destroy(plan);
  return f->num_compiles - before;
}

START_TEST(what_compiles_again) {
  shelf s;
  fake f;
  char moved[128], here[512];
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  shelf_open(&s);
  kiln_context *ctx = fake_context(&f, s.root);
  ck_assert_int_eq(compiles_again(&f, ctx, &spec), 1);
  ck_assert_int_eq(compiles_again(&f, ctx, &spec), 0);
  f.compiler_version = "fake 1.1";
  ck_assert_int_eq(compiles_again(&f, ctx, &spec), 1);
  f.more_options = 1;
  ck_assert_int_eq(compiles_again(&f, ctx, &spec), 1);
  spec.head_dim = 72;
  ck_assert_int_eq(compiles_again(&f, ctx, &spec), 1);
  ck_assert_int_eq(compiles_again(&f, ctx, &spec), 0);
  fake_context_destroy(ctx);
  /* another process, another working directory, a moved cache: nothing is compiled */
  snprintf(moved, sizeof moved, "%s.moved", s.root);
  ck_assert_int_eq(rename(s.root, moved), 0);
  ck_assert_ptr_nonnull(getcwd(here, sizeof here));
  ck_assert_int_eq(chdir("/"), 0);
  ctx = fake_context(&f, moved);
  ck_assert_int_eq(compiles_again(&f, ctx, &(kiln_attn_spec)KILN_ATTN_SPEC_INIT), 0);
  fake_context_destroy(ctx);
  ck_assert_int_eq(chdir(here), 0);
  ck_assert_int_eq(rename(moved, s.root), 0);
  shelf_close(&s);
}
END_TEST

START_TEST(why_names_the_first_field) {
  shelf s;
  fake f;
  char ids[3][KILN__ID_SIZE];
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  const char *json;
  shelf_open(&s);
  kiln_context *ctx = fake_context(&f, s.root);
  for (int i = 0; i < 3; i++) {
    kiln_plan *plan;
    kiln_plan_info info = {.size = sizeof info};
    if (i == 1) f.compiler_version = "fake 1.1";
    if (i == 2) f.more_options = 1;
    ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_OK);
    kiln_plan_get_info(plan, &info);
    strcpy(ids[i], info.kernel_id);
    kiln_plan_destroy(plan);
  }
  ck_assert_int_eq(kiln_cache_why(ctx, ids[0], ids[1], &json), KILN_OK);
  ck_assert_str_eq(json, "{\"differs\":\"compiler\",\"a\":\"fake 1.0\",\"b\":\"fake 1.1\"}");
  ids[2][20] = '\0'; /* the beginning of an id will do */
  ck_assert_int_eq(kiln_cache_why(ctx, ids[1], ids[2], &json), KILN_OK);
  ck_assert_ptr_nonnull(strstr(json, "\"differs\":\"options\""));
  ck_assert_int_eq(kiln_cache_why(ctx, ids[1], ids[1], &json), KILN_OK);
  ck_assert_str_eq(json, "{\"differs\":null,\"a\":null,\"b\":null}");
  ck_assert_int_eq(kiln_cache_why(ctx, ids[1], "", &json), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_null(json);
  fake_context_destroy(ctx);
  shelf_close(&s);
}
END_TEST

START_TEST(the_verbs) {
  shelf s;
  fake f;
  const char *json;
  char command[256];
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  shelf_open(&s);
  kiln_context *ctx = fake_context(&f, s.root);
  ck_assert_int_eq(kiln_cache_command(ctx, "ls", &json), KILN_OK);
  ck_assert_ptr_nonnull(strstr(json, "\"kernels\":[]"));
  f.fail_compile = KILN_COMPILE_FAILED; /* nothing of a failed compile is published */
  kiln_plan *plan;
  ck_assert_int_eq(kiln_plan_create(ctx, &spec, NULL, NULL, &plan), KILN_COMPILE_FAILED);
  ck_assert_int_eq(kiln_cache_command(ctx, "ls", &json), KILN_OK);
  ck_assert_ptr_nonnull(strstr(json, "\"kernels\":[]"));
  f.fail_compile = KILN_OK;
  ck_assert_int_eq(compiles_again(&f, ctx, &spec), 1);
  ck_assert_int_eq(kiln_cache_command(ctx, "ls", &json), KILN_OK);
  ck_assert_ptr_nonnull(strstr(json, "\"arch\":\"sm_90a\""));
  ck_assert_int_eq(kiln_cache_command(ctx, "verify", &json), KILN_OK);
  ck_assert_str_eq(json, "{\"checked\":1,\"set_aside\":[]}");
  snprintf(command, sizeof command, "for f in %s/kernels/*/image.bin; do : >$f; done", s.root);
  ck_assert_int_eq(system(command), 0);
  ck_assert_int_eq(kiln_cache_command(ctx, "verify", &json), KILN_OK);
  ck_assert_ptr_nonnull(strstr(json, "its image.bin is damaged"));
  ck_assert_int_eq(compiles_again(&f, ctx, &spec), 1);
  ck_assert_int_eq(kiln_cache_command(ctx, "gc", &json), KILN_OK);
  ck_assert_ptr_nonnull(strstr(json, "\"removed_kernels\":0"));
  ck_assert_int_eq(kiln_cache_command(ctx, "clear", &json), KILN_OK);
  ck_assert_ptr_nonnull(strstr(json, "\"removed_kernels\":1"));
  ck_assert_ptr_nonnull(strstr(json, "\"removed_leftovers\":1"));
  ck_assert_int_eq(kiln_cache_command(ctx, "burn", &json), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_null(json);
  fake_context_destroy(ctx);
  shelf_close(&s);
}
END_TEST

/* The digest is over lengths and bytes: moving a byte from one field to the next changes it. */
START_TEST(identities) {
  static const char *const split[] = {"ab", "c"}, *const other[] = {"a", "bc"};
  kiln__compiler_identity x = {"v", split, 2}, y = {"v", other, 2};
  char id_x[KILN__ID_SIZE], id_y[KILN__ID_SIZE];
  json_t *a = kiln__identity_make("s", "sm_80", "forward.1", &x);
  json_t *b = kiln__identity_make("s", "sm_80", "forward.1", &y);
  ck_assert_int_eq(kiln__identity_digest(a, id_x), 0);
  ck_assert_int_eq(kiln__identity_digest(b, id_y), 0);
  ck_assert_str_ne(id_x, id_y);
  ck_assert_str_eq(kiln__identity_difference(a, b), "options");
  json_object_del(b, "arch");
  ck_assert_int_eq(kiln__identity_digest(b, id_y), -1);
  json_decref(a);
  json_decref(b);
  kiln__digest_bytes("abc", 3, id_x);
  ck_assert_str_eq(id_x, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}
END_TEST

Suite *suite_cache(void) {
  Suite *suite = suite_create("cache");
  TCase *tests = tcase_create("cache");
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, what_is_stored_is_loaded);
  tcase_add_loop_test(tests, truncated_files, 0, 16);
  tcase_add_loop_test(tests, flipped_bytes, 0, 4);
  tcase_add_loop_test(tests, replaced_files, 0, 5);
  tcase_add_loop_test(tests, a_replaced_entry, 0, 4);
  tcase_add_test(tests, a_renamed_entry);
  tcase_add_loop_test(tests, killed_while_writing, 0, 8);
  tcase_add_loop_test(tests, useless_directories_are_one_warning, 0, 6);
  tcase_add_test(tests, the_order_of_directories);
  tcase_add_test(tests, a_directory_that_others_can_write_is_refused);
  tcase_add_test(tests, a_full_disk_is_one_warning);
  tcase_add_test(tests, the_least_recently_used_goes_first);
  tcase_add_test(tests, evicting_while_another_loads);
  tcase_add_test(tests, sixteen_processes_one_compile);
  tcase_add_test(tests, what_compiles_again);
  tcase_add_test(tests, why_names_the_first_field);
  tcase_add_test(tests, the_verbs);
  tcase_add_test(tests, identities);
  suite_add_tcase(suite, tests);
  return suite;
}
