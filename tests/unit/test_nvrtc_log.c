/* The parser of NVRTC's log, on logs recorded from NVRTC 12.0, 12.8 and 13.0. */
#include "suites.h"

#include <string.h>

#include "runtime/compile/nvrtc_log.h"

static const char spilling_13[] =
    "/kiln/templates/x.tmpl.cu(21): warning #177-D: variable \"unused_thing\" was declared but "
    "never "
    "referenced\n"
    "  extern \"C\" __global__ void second(float *a) { a[threadIdx.x]=1; int unused_thing; }\n"
    "                                                                      ^\n\n"
    "Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"\n\n"
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'second' for 'sm_90a'\n"
    "ptxas info    : Function properties for second\n"
    "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 10 registers, used 0 barriers\n"
    "ptxas info    : Compile time = 1.856 ms\n"
    "ptxas info    : Compiling entry function 'kiln_forward' for 'sm_90a'\n"
    "ptxas info    : Function properties for kiln_forward\n"
    "ptxas         .     1032 bytes stack frame, 1680 bytes spill stores, 1848 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 1 barriers, 1032 bytes cumulative stack size, 400 "
    "bytes "
    "smem\n"
    "ptxas info    : Compile time = 61.578 ms\n";

static const char spilling_12[] =
    "ptxas info    : 304 bytes gmem\n"
    "ptxas info    : Compiling entry function 'kiln_forward' for 'sm_90a'\n"
    "ptxas info    : Function properties for kiln_forward\n"
    "ptxas         .     1048 bytes stack frame, 1688 bytes spill stores, 1856 bytes spill loads\n"
    "ptxas info    : Used 32 registers, 400 bytes smem\n";

static const char serialised[] =
    "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine "
    "register count at entry.\n"
    "ptxas info    : (C7517) warpgroup.wait is injected in around line 72 by compiler to allow use "
    "of "
    "registers defined by GMMA in function 'kiln_forward'\n"
    "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized "
    "due to insufficient register resources for the wgmma pipeline in the function 'kiln_forward'\n"
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'kiln_forward' for 'sm_90a'\n"
    "ptxas info    : Function properties for kiln_forward\n"
    "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 30 registers, used 0 barriers\n";

static const char wrong[] =
    "/kiln/templates/bad.tmpl.cu(3): error: identifier \"nosuch\" is undefined\n"
    "  extern \"C\" __global__ void k(float*a) { a[0]=nosuch; \n"
    "                                               ^\n\n"
    "Remark: The warnings can be suppressed with \"-diag-suppress\"\n\n"
    "ptxas info    : 0 bytes gmem\n"
    "1 error detected in the compilation of \"/kiln/kernel.cu\".\n";

static void parse(const char *log, kiln__compiled *out, kiln__text *notes) {
  memset(out, 0, sizeof *out);
  kiln__text_init(notes, 4096);
  kiln__nvrtc_log_parse(log, out, notes);
}

START_TEST(resources_of_every_entry) {
  kiln__compiled out;
  kiln__text notes;
  parse(spilling_13, &out, &notes);
  ck_assert_int_eq(out.num_entries, 2);
  ck_assert_str_eq(out.entries[0].name, "second");
  ck_assert_int_eq(out.entries[0].registers, 10);
  ck_assert_int_eq(out.entries[0].spill_bytes, 0);
  ck_assert_int_eq(out.entries[0].static_bytes, 0);
  ck_assert_str_eq(out.entries[1].name, "kiln_forward");
  ck_assert_int_eq(out.entries[1].registers, 32);
  ck_assert_int_eq(out.entries[1].spill_bytes, 1680 + 1848);
  ck_assert_int_eq(out.entries[1].static_bytes, 400);
  ck_assert_str_eq(kiln__text_get(&notes),
                   "/kiln/templates/x.tmpl.cu(21): warning #177-D: variable \"unused_thing\" was "
                   "declared but never referenced\n"
                   "kiln_forward spills registers: 1680 bytes of stores, 1848 of loads\n");
  kiln__text_free(&notes);
}
END_TEST

START_TEST(the_form_of_version_12) {
  kiln__compiled out;
  kiln__text notes;
  parse(spilling_12, &out, &notes);
  ck_assert_int_eq(out.num_entries, 1);
  ck_assert_int_eq(out.entries[0].registers, 32);
  ck_assert_int_eq(out.entries[0].spill_bytes, 1688 + 1856);
  ck_assert_int_eq(out.entries[0].static_bytes, 400);
  kiln__text_free(&notes);
}
END_TEST

START_TEST(numbered_remarks_become_notes) {
  kiln__compiled out;
  kiln__text notes;
  parse(serialised, &out, &notes);
  const char *text = kiln__text_get(&notes);
  ck_assert_int_eq(strncmp(text, "(C7508) Potential Performance Loss: 'setmaxnreg' ignored", 56),
                   0);
  ck_assert_ptr_nonnull(strstr(text, "\n(C7517) warpgroup.wait is injected"));
  ck_assert_ptr_nonnull(strstr(text, "\n(C7511) Potential Performance Loss: wgmma"));
  ck_assert_ptr_null(strstr(text, "gmem"));
  ck_assert_int_eq(out.entries[0].registers, 30);
  kiln__text_free(&notes);
}
END_TEST

START_TEST(errors_keep_the_template_line) {
  char buffer[1024];
  kiln__text error;
  kiln__text_init_fixed(&error, buffer, sizeof buffer);
  kiln__nvrtc_log_errors(wrong, &error);
  ck_assert_int_eq(strncmp(buffer, "/kiln/templates/bad.tmpl.cu(3): error: identifier", 49), 0);
  ck_assert_ptr_nonnull(strstr(buffer, "1 error detected"));
  ck_assert_ptr_null(strstr(buffer, "Remark"));
  ck_assert_ptr_null(strstr(buffer, "gmem"));
}
END_TEST

/* Any cut of a log, and a name that never ends, stay inside the bounds (run under a sanitizer too).
 * */
START_TEST(damaged_logs_are_harmless) {
  kiln__compiled out;
  kiln__text notes;
  char log[8192];
  for (size_t length = 0; length < sizeof spilling_13; length++) {
    memcpy(log, spilling_13, length);
    log[length] = '\0';
    parse(log, &out, &notes);
    kiln__text_free(&notes);
  }
  memset(log, 'a', sizeof log - 1);
  log[sizeof log - 1] = '\0';
  memcpy(log, "Compiling entry function '", 26);
  parse(log, &out, &notes);
  ck_assert_int_eq(out.num_entries, 0);
  kiln__text_free(&notes);
}
END_TEST

Suite *suite_nvrtc_log(void) {
  Suite *suite = suite_create("nvrtc_log");
  TCase *tests = tcase_create("nvrtc_log");
  tcase_add_test(tests, resources_of_every_entry);
  tcase_add_test(tests, the_form_of_version_12);
  tcase_add_test(tests, numbered_remarks_become_notes);
  tcase_add_test(tests, errors_keep_the_template_line);
  tcase_add_test(tests, damaged_logs_are_harmless);
  suite_add_tcase(suite, tests);
  return suite;
}
