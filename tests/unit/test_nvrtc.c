/* NVRTC itself: where it is looked for, and, where there is one, what it makes of small kernels. */
#include "suites.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/compile/nvrtc_find.h"
#include "runtime/services.h"

/* ---- where it is looked for ---- */

typedef struct visits {
  char origins[64][24];
  char files[64][512];
  int count;
} visits;

static int remember(void *user, const kiln__nvrtc_place *place) {
  visits *v = user;
  if (v->count == 64) return 1;
  snprintf(v->origins[v->count], sizeof v->origins[0], "%s", place->origin);
  snprintf(v->files[v->count], sizeof v->files[0], "%s", place->file ? place->file : "");
  v->count++;
  return 0;
}

/* A toolkit with two libraries in one of its folders. */
static void make_toolkit(const char *root, const char *folder) {
  char command[512];
  snprintf(command, sizeof command,
           "mkdir -p %s/%s; cd %s/%s; touch libnvrtc.so libnvrtc.so.12 libnvrtc.so.13 "
           "libnvrtc.alt.so.14 libnvrtc-builtins.so.13.0",
           root, folder, root, folder);
  ck_assert_int_eq(system(command), 0);
}

START_TEST(the_order_of_places) {
  char root[] = "/tmp/kiln-nvrtc-XXXXXX", wanted[128], command[64];
  kiln__env env;
  visits v = {0};
  ck_assert_ptr_nonnull(mkdtemp(root));
  make_toolkit(root, "lib");
  memset(&env, 0, sizeof env);
  env.values[KILN__ENV_CUDA_HOME] = (char *)"/nonexistent";
  env.values[KILN__ENV_CUDA_PATH] = root;
  ck_assert_int_eq(kiln__nvrtc_search(&env, remember, &v), 0);
  snprintf(wanted, sizeof wanted, "%s/lib/libnvrtc.so.13", root);
  ck_assert_str_eq(v.origins[0], "CUDA_HOME"); /* nothing there is no end of the search */
  ck_assert_str_eq(v.files[0], "");
  ck_assert_str_eq(v.origins[1], "CUDA_PATH");
  ck_assert_str_eq(v.files[1], wanted);
  ck_assert_str_eq(v.origins[2], "toolkit");
  ck_assert_int_eq(kiln__nvrtc_has_builtins(wanted), 1);
  ck_assert_int_eq(kiln__nvrtc_has_builtins("/usr/lib/libnvrtc.so.13"), 0);
  /* What the user names is the only place. */
  env.values[KILN__ENV_KILN_NVRTC] = root;
  v.count = 0;
  ck_assert_int_eq(kiln__nvrtc_search(&env, remember, &v), 0);
  ck_assert_int_eq(v.count, 1);
  ck_assert_str_eq(v.files[0], wanted);
  snprintf(command, sizeof command, "rm -rf %s", root);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(wheels_are_found) {
  char root[] = "/tmp/kiln-nvrtc-XXXXXX", command[64];
  kiln__env env;
  visits v = {0};
  int found = 0;
  ck_assert_ptr_nonnull(mkdtemp(root));
  make_toolkit(root, "lib/python3.11/site-packages/nvidia/cu13/lib");
  memset(&env, 0, sizeof env);
  env.values[KILN__ENV_VIRTUAL_ENV] = root;
  ck_assert_int_eq(kiln__nvrtc_search(&env, remember, &v), 0);
  for (int i = 0; i < v.count; i++)
    found += strcmp(v.origins[i], "wheel") == 0 && strncmp(v.files[i], root, strlen(root)) == 0;
  ck_assert_int_eq(found, 1);
  snprintf(command, sizeof command, "rm -rf %s", root);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(an_unusable_choice_is_named) {
  static const char *const choices[] = {"/nonexistent/libnvrtc.so", "/etc/passwd", "/tmp"};
  char sentence[1024];
  kiln__env env;
  kiln__text error;
  void *compiler = &env;
  memset(&env, 0, sizeof env);
  env.values[KILN__ENV_KILN_NVRTC] = (char *)choices[_i];
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  ck_assert_int_eq(kiln__nvrtc_ops.open(&env, 0, &error, &compiler), KILN_NO_COMPILER);
  ck_assert_ptr_null(compiler);
  ck_assert_ptr_nonnull(strstr(sentence, choices[_i]));
  ck_assert_ptr_nonnull(strstr(sentence, "set KILN_NVRTC"));
}
END_TEST

/* ---- what it compiles ---- */

typedef struct bench {
  kiln__env env;
  void *compiler;
  kiln__compiled out;
  char sentence[4096];
} bench;

static void bench_open_as(bench *b, int no_line_info) {
  kiln__text error;
  memset(b, 0, sizeof *b);
  kiln__text_init_fixed(&error, b->sentence, sizeof b->sentence);
  ck_assert_int_eq(kiln__env_read(&b->env), 0);
  ck_assert_msg(kiln__nvrtc_ops.open(&b->env, no_line_info, &error, &b->compiler) == KILN_OK, "%s",
                b->sentence);
}

static void bench_open(bench *b) { bench_open_as(b, 0); }

static kiln_status bench_compile(bench *b, const char *text, const char *arch) {
  kiln__text error;
  kiln__text_init_fixed(&error, b->sentence, sizeof b->sentence);
  return kiln__nvrtc_ops.compile(b->compiler, text, strlen(text), arch, &b->out, &error);
}

static void bench_drop(bench *b) {
  free(b->out.image);
  free(b->out.ptx);
  free(b->out.notes);
  memset(&b->out, 0, sizeof b->out);
}

static void bench_close(bench *b) {
  bench_drop(b);
  kiln__nvrtc_ops.close(b->compiler);
  kiln__env_free(&b->env);
}

static const char spilling[] =
    "#line 10 \"/kiln/templates/x.tmpl.cu\"\n"
    "extern \"C\" __global__ void __launch_bounds__(1024, 2) kiln_forward(float *a, const float *b,"
    " int n) {\n"
    "  __shared__ float sh[100];\n"
    "  float r[96];\n"
    "  for (int i = 0; i < 96; i++) r[i] = b[i * n + threadIdx.x];\n"
    "  for (int k = 0; k < n; k++)\n"
    "    for (int i = 0; i < 96; i++) r[i] = r[i] * r[(i * 7 + 3) % 96] + a[k];\n"
    "  sh[threadIdx.x % 100] = r[0];\n"
    "  __syncthreads();\n"
    "  for (int i = 0; i < 96; i++) a[i * n + threadIdx.x] = r[i] + sh[i];\n"
    "}\n";

static const char serialised[] =
    "#line 7 \"/kiln/templates/wg.tmpl.cu\"\n"
    "extern \"C\" __global__ void __launch_bounds__(128, 1) kiln_forward(float *o, long a, long b,"
    " int n) {\n"
    "  float d[4] = {0, 0, 0, 0};\n"
    "  for (int i = 0; i < n; i++) {\n"
    "  asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n"
    "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5,"
    " 1, 1, 1, 0, 0;\" : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) : \"l\"(a),"
    " \"l\"(b));\n"
    "  asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n"
    "  d[0] *= 2.0f;\n"
    "  asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n"
    "  }\n"
    "  o[threadIdx.x] = d[0] + d[1] + d[2] + d[3];\n"
    "}\n";

static const char wrong[] = "#line 3 \"/kiln/templates/bad.tmpl.cu\"\n"
                            "extern \"C\" __global__ void k(float *a) { a[0] = nosuch; }\n";

START_TEST(a_real_spill_is_found) {
  bench b;
  bench_open(&b);
  ck_assert_msg(bench_compile(&b, spilling, "sm_80") == KILN_OK, "%s", b.sentence);
  ck_assert_int_eq(b.out.num_entries, 1);
  ck_assert_str_eq(b.out.entries[0].name, "kiln_forward");
  ck_assert_int_gt(b.out.entries[0].registers, 15);
  ck_assert_int_le(b.out.entries[0].registers, 32);
  ck_assert_int_gt(b.out.entries[0].spill_bytes, 100);
  ck_assert_int_eq(b.out.entries[0].static_bytes, 400);
  ck_assert_ptr_nonnull(strstr(b.out.notes, "kiln_forward spills registers"));
  ck_assert_int_eq(memcmp(b.out.image, "\177ELF", 4), 0);
  ck_assert_ptr_nonnull(strstr(b.out.ptx, ".target sm_80"));
  bench_close(&b);
}
END_TEST

START_TEST(a_serialised_wgmma_is_a_note) {
  bench b;
  bench_open(&b);
  ck_assert_msg(bench_compile(&b, serialised, "sm_90a") == KILN_OK, "%s", b.sentence);
  ck_assert_ptr_nonnull(b.out.notes);
  ck_assert_msg(strstr(b.out.notes, "(C75") != NULL, "%s", b.out.notes);
  bench_close(&b);
}
END_TEST

START_TEST(an_error_names_the_template_line) {
  bench b;
  bench_open(&b);
  ck_assert_int_eq(bench_compile(&b, wrong, "sm_90a"), KILN_COMPILE_FAILED);
  ck_assert_msg(strstr(b.sentence, "/kiln/templates/bad.tmpl.cu(3): error") == b.sentence, "%s",
                b.sentence);
  ck_assert_ptr_null(b.out.image);
  ck_assert_int_eq(bench_compile(&b, "int x = y;", "sm_90a"), KILN_COMPILE_FAILED);
  ck_assert_msg(strstr(b.sentence, "/kiln/kernel.cu(1): error") == b.sentence, "%s", b.sentence);
  bench_close(&b);
}
END_TEST

START_TEST(the_identity) {
  bench b;
  kiln__text error;
  kiln__compiler_identity identity;
  bench_open(&b);
  kiln__text_init_fixed(&error, b.sentence, sizeof b.sentence);
  ck_assert_int_eq(kiln__nvrtc_ops.identify(b.compiler, "sm_90a", &identity, &error), KILN_OK);
  int major, minor, build;
  ck_assert_int_eq(sscanf(identity.version, "nvrtc %d.%d.%d", &major, &minor, &build), 3);
  ck_assert_int_ge(major, 12);
  ck_assert_str_eq(identity.options[0], "--std=c++17");
  ck_assert_int_eq(kiln__nvrtc_ops.identify(b.compiler, "sm_77", &identity, &error),
                   KILN_UNSUPPORTED);
  bench_close(&b);
}
END_TEST

static int has_option(const bench *b, const char *option) {
  char sentence[256];
  kiln__text error;
  kiln__compiler_identity identity;
  int found = 0;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  ck_assert_int_eq(kiln__nvrtc_ops.identify(b->compiler, "sm_80", &identity, &error), KILN_OK);
  for (int i = 0; i < identity.num_options; i++) found += strcmp(identity.options[i], option) == 0;
  return found;
}

/* What the assembler says is told either way. */
START_TEST(line_tables_are_left_out_where_they_are_not_wanted) {
  bench with, without;
  bench_open(&with);
  bench_open_as(&without, 1);
  ck_assert_int_eq(has_option(&with, "-lineinfo"), 1);
  ck_assert_int_eq(has_option(&without, "-lineinfo"), 0);
  ck_assert_int_eq(has_option(&without, "--std=c++17"), 1);
  ck_assert_int_eq(bench_compile(&with, spilling, "sm_80"), KILN_OK);
  ck_assert_int_eq(bench_compile(&without, spilling, "sm_80"), KILN_OK);
  ck_assert_ptr_nonnull(memmem(with.out.image, with.out.image_size, ".nv_debug", 9));
  ck_assert_ptr_null(memmem(without.out.image, without.out.image_size, ".nv_debug", 9));
  ck_assert_ptr_null(memmem(without.out.image, without.out.image_size, ".debug_line", 11));
  ck_assert_int_eq(with.out.entries[0].registers, without.out.entries[0].registers);
  ck_assert_str_eq(with.out.notes, without.out.notes);
  bench_close(&with);
  bench_close(&without);
}
END_TEST

static void *compile_in_thread(void *user) {
  bench *b = user;
  return (void *)(intptr_t)bench_compile(b, spilling, "sm_90a");
}

/* The same bytes from any directory and from several threads at once. */
START_TEST(the_same_bytes_from_anywhere) {
  bench first, others[3];
  pthread_t threads[3];
  void *status;
  bench_open(&first);
  ck_assert_int_eq(bench_compile(&first, spilling, "sm_90a"), KILN_OK);
  ck_assert_int_eq(chdir("/"), 0);
  for (int i = 0; i < 3; i++) {
    others[i] = (bench){.compiler = first.compiler};
    pthread_create(&threads[i], NULL, compile_in_thread, &others[i]);
  }
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], &status);
    ck_assert_int_eq((intptr_t)status, KILN_OK);
    ck_assert_uint_eq(others[i].out.image_size, first.out.image_size);
    ck_assert_mem_eq(others[i].out.image, first.out.image, first.out.image_size);
    ck_assert_int_eq(others[i].out.entries[0].registers, first.out.entries[0].registers);
    bench_drop(&others[i]);
  }
  bench_close(&first);
}
END_TEST

static int has_nvrtc(void) {
  char sentence[2048];
  kiln__env env;
  kiln__text error;
  void *compiler = NULL;
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  if (kiln__env_read(&env) != 0) return 0;
  int found = kiln__nvrtc_ops.open(&env, 0, &error, &compiler) == KILN_OK;
  if (found) kiln__nvrtc_ops.close(compiler);
  kiln__env_free(&env);
  return found;
}

Suite *suite_nvrtc(void) {
  Suite *suite = suite_create("nvrtc");
  TCase *tests = tcase_create("nvrtc");
  suite_add_tcase(suite, tests);
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, the_order_of_places);
  tcase_add_test(tests, wheels_are_found);
  tcase_add_loop_test(tests, an_unusable_choice_is_named, 0, 3);
  if (!has_nvrtc()) return suite;
  tcase_add_test(tests, a_real_spill_is_found);
  tcase_add_test(tests, a_serialised_wgmma_is_a_note);
  tcase_add_test(tests, an_error_names_the_template_line);
  tcase_add_test(tests, the_identity);
  tcase_add_test(tests, line_tables_are_left_out_where_they_are_not_wanted);
  tcase_add_test(tests, the_same_bytes_from_anywhere);
  return suite;
}
