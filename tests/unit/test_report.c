/* The report of kiln bench and kiln tune: text that stays text, axes, peers, and a page of measured
 * rows. The program with its flags is run by tests/cli/report.sh. */
#include "suites.h"

#include <stdlib.h>
#include <string.h>

#include "cli/chart.h"
#include "cli/html.h"
#include "cli/report.h"
#include "cli/verbs.h"
#include "fixture.h"

#define PEERS KILN_TEST_SOURCE_DIR "/bench/results/2026-11-29-h200/forward-bf16-1.json"
#define GQA   KILN_TEST_SOURCE_DIR "/bench/results/2026-11-29-h200/gqa.json"

static char *escaped(const char *text) {
  char *out = NULL;
  size_t length = 0;
  FILE *to = open_memstream(&out, &length);
  kiln__html_text(to, text);
  fclose(to);
  return out;
}

START_TEST(text_stays_text) {
#define NONE "\xef\xbf\xbd" /* U+FFFD */
  static const char *const rows[][2] = {
      {"<script>&\"'", "&lt;script&gt;&amp;&quot;'"},
      {"\xc2\xb5s, \xe1\xb5\x80, \xf0\x9f\x94\xa5", "\xc2\xb5s, \xe1\xb5\x80, \xf0\x9f\x94\xa5"},
      {"a\tb\nc\x01"
       "d\x7f",
       "a\tb\nc" NONE "d" NONE},
      {"\x80\xff\xc1\x81", NONE NONE NONE NONE},
      {"\xe2\x82", NONE NONE},
      {"\xc3<", NONE "&lt;"},
      {"\xe0\x80\xbc", NONE NONE NONE},          /* a longer form of '<' */
      {"\xed\xa0\x80", NONE NONE NONE},          /* half a surrogate pair */
      {"\xf4\x90\x80\x80", NONE NONE NONE NONE}, /* past the last character */
      {"\xef\xbf\xbf", NONE NONE NONE},
      {"", ""},
  };
#undef NONE
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char *out = escaped(rows[i][0]);
    ck_assert_str_eq(out, rows[i][1]);
    free(out);
  }
  char *out = escaped(NULL);
  ck_assert_str_eq(out, "");
  free(out);
}
END_TEST

START_TEST(axes_hold_what_they_show) {
  kiln__axis axis = kiln__axis_linear("", 349, 391);
  ck_assert_double_eq(axis.least, 340);
  ck_assert_double_eq(axis.most, 400);
  ck_assert_int_eq(axis.num_ticks, 7);
  axis = kiln__axis_linear("", 5, 5);
  ck_assert(axis.least <= 5 && axis.most > 5 && axis.num_ticks > 1);
  axis = kiln__axis_linear("", 0, 0);
  ck_assert(axis.most > 0);
  axis = kiln__axis_log("", 90, 1300);
  ck_assert_int_eq(axis.num_ticks, 4);
  ck_assert_double_eq_tol(axis.ticks[3], 1000, 1e-9);
  ck_assert_double_eq_tol(kiln__axis_share(&axis, 90), 0, 1e-12);
  ck_assert_double_eq_tol(kiln__axis_share(&axis, 1300), 1, 1e-12);
  const double sizes[] = {512, 1000, 4096};
  axis = kiln__axis_sizes("", sizes, 3);
  char text[3][32];
  for (int i = 0; i < 3; i++) kiln__axis_label(&axis, axis.ticks[i], text[i], sizeof text[i]);
  ck_assert_str_eq(text[0], "512");
  ck_assert_str_eq(text[1], "1000");
  ck_assert_str_eq(text[2], "4k");
}
END_TEST

/* ---- peers ---- */

static kiln_attn_spec spec_of(int32_t head_dim, kiln_mask mask) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  strcpy(spec.arch, "sm_90a");
  spec.head_dim = spec.head_dim_v = head_dim;
  spec.mask = mask;
  return spec;
}

static kiln_attn_args shape_of(int32_t batch, int32_t seqlen, int32_t heads, int32_t heads_k) {
  kiln_attn_args shape = KILN_ATTN_ARGS_INIT;
  shape.batch = batch;
  shape.seqlen_q = shape.seqlen_k = seqlen;
  shape.num_heads = heads;
  shape.num_heads_k = heads_k;
  return shape;
}

START_TEST(peers_match_to_the_last_size) {
  kiln__peers peers;
  ck_assert_int_eq(kiln__peers_read(GQA, &peers), KILN_OK);
  int cudnn = 0;
  while (cudnn < peers.num_engines && strcmp(peers.engines[cudnn], "cudnn") != 0) cudnn++;
  ck_assert_int_lt(cudnn, peers.num_engines);
  ck_assert_str_eq(kiln__peers_environment(&peers, "gpu"), "NVIDIA H200");
  const kiln_attn_args exact = shape_of(8, 2048, 32, 8);
  const kiln_attn_spec spec = spec_of(128, KILN_MASK_NONE);
  ck_assert_double_gt(kiln__peers_tflops(&peers, cudnn, &spec, &exact), 100);
  kiln_attn_args others[5];
  for (int i = 0; i < 5; i++) others[i] = exact;
  others[0].batch = 4;
  others[1].num_heads = 16;
  others[2].num_heads_k = 32;
  others[3].seqlen_q = 1024;
  others[4].seqlen_k = 1024;
  for (int i = 0; i < 5; i++) ck_assert(kiln__peers_tflops(&peers, cudnn, &spec, &others[i]) == 0);
  kiln_attn_spec specs[4] = {spec, spec, spec, spec};
  specs[0].mask = KILN_MASK_CAUSAL;
  specs[1].dtype = KILN_DTYPE_FP16;
  specs[2].head_dim = 64;
  specs[3].head_dim_v = 64;
  ck_assert(kiln__peers_tflops(&peers, cudnn, &specs[0], &exact) !=
            kiln__peers_tflops(&peers, cudnn, &spec, &exact));
  for (int i = 1; i < 4; i++) ck_assert(kiln__peers_tflops(&peers, cudnn, &specs[i], &exact) == 0);
  kiln__peers_destroy(&peers);
}
END_TEST

/* ---- a page ---- */

static kiln_context *ctx;
static fixture files;

static void make_context(void) {
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  options.cache_dir = "";
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &options, &ctx), KILN_OK);
  fixture_create(&files);
}

static void drop_context(void) {
  kiln_context_destroy(ctx);
  fixture_destroy(&files);
}

static int32_t member(const json_t *row, const char *name) {
  return (int32_t)json_integer_value(json_object_get(row, name));
}

static void add_row(kiln__report *report, const json_t *row, const char *engine, const char *arch) {
  const bool causal = strcmp(json_string_value(json_object_get(row, "mask")), "causal") == 0;
  kiln_attn_spec spec =
      spec_of(member(row, "head_dim"), causal ? KILN_MASK_CAUSAL : KILN_MASK_NONE);
  const kiln_attn_args shape = shape_of(member(row, "batch"), member(row, "seqlen"),
                                        member(row, "heads"), member(row, "heads_k"));
  kiln_tile tile = KILN_TILE_INIT;
  snprintf(spec.arch, sizeof spec.arch, "%s", arch);
  ck_assert_int_eq(kiln_attn_spec_resolve(ctx, &spec, &tile), KILN_OK);
  const double us = 1e3 * json_number_value(json_object_get(json_object_get(row, "ms"), engine));
  const kiln__spread spread = {us, us * 0.99, us * 1.02, us * 0.004};
  ck_assert_int_eq(kiln__report_add_timing(report, &spec, &tile, &shape, &spread, 132), KILN_OK);
}

/* Every row of the peers' file as if the program had measured it; the page's text is malloc'd. */
static char *make_page(const char *path) {
  kiln__option options[] = {{"--report", path}, {"--peers", PEERS}, {"--mask", "no <b>ne"}};
  const kiln__args args = {.verb = &kiln__verb_bench, .options = options, .num_options = 3};
  kiln__report report;
  ck_assert_int_eq(kiln__report_create(&args, &report), KILN_OK);
  report.ctx = ctx;
  size_t i;
  const json_t *row;
  json_array_foreach(json_object_get(report.peers.root, "rows"), i, row) {
    add_row(&report, row, "kiln", "sm_90a");
    add_row(&report, row, "kiln-ampere", "sm_90");
  }
  ck_assert_int_eq(kiln__report_finish(&report), KILN_OK);
  kiln__report_destroy(&report);
  char *text = calloc(1, 1 << 20);
  ck_assert_uint_gt(fixture_read(path, text, (1 << 20) - 1), 0);
  return text;
}

static int count(const char *text, const char *word) {
  int n = 0;
  for (; (text = strstr(text, word)); text += strlen(word)) n++;
  return n;
}

START_TEST(a_page_of_measured_rows) {
  char path[320];
  snprintf(path, sizeof path, "%s", fixture_path(&files, "page.html"));
  char *page = make_page(path);
  /* 36 shapes and 2 families: in a chart by length, and in a roofline. */
  ck_assert_int_eq(count(page, "% of the nominal roof\n"), 2 * 36 * 2);
  ck_assert_int_eq(count(page, "<svg class=\"chart\""), 6 + 2);
  ck_assert_int_eq(count(page, "FLOP per byte</title>"), 2 * 36);
  /* The first row: 435.07 TFLOP/s of kiln's and 387.77 of cuDNN's. */
  ck_assert_int_gt(count(page, "435.1 TFLOP/s"), 0);
  ck_assert_int_gt(count(page, "388 <b class=\"better\">1.12&#215;</b>"), 0);
  /* Each row against its own figure: the kiln of the file is what was added. */
  ck_assert_int_gt(count(page, "<b>1.00 &#215;</b><span>against kiln, mean of 36 shapes"), 0);
  ck_assert_int_eq(count(page, ">4800 GB/s<"), 2);
  ck_assert_int_eq(count(page, ">949 TFLOP/s<"), 1);
  ck_assert_int_eq(count(page, "--mask 'no &lt;b&gt;ne'"), 1);
  ck_assert_int_eq(count(page, path), 0);
  char *again = make_page(path);
  ck_assert_str_eq(page, again);
  free(page);
  free(again);
}
END_TEST

/* One query a sequence reads every key for little arithmetic: 2.15 GB take 448 us at 4800 GB/s. */
START_TEST(a_roof_of_memory) {
  char path[320];
  snprintf(path, sizeof path, "%s", fixture_path(&files, "page.html"));
  kiln__option options[] = {{"--report", path}};
  const kiln__args args = {.verb = &kiln__verb_bench, .options = options, .num_options = 1};
  kiln__report report;
  ck_assert_int_eq(kiln__report_create(&args, &report), KILN_OK);
  report.ctx = ctx;
  kiln_attn_args shape = shape_of(64, 4096, 16, 16);
  shape.seqlen_q = 1;
  kiln_attn_spec spec = spec_of(128, KILN_MASK_NONE);
  kiln_tile tile = KILN_TILE_INIT;
  ck_assert_int_eq(kiln_attn_spec_resolve(ctx, &spec, &tile), KILN_OK);
  const kiln__spread spread = {2 * 447.6, 890, 900, 1};
  ck_assert_int_eq(kiln__report_add_timing(&report, &spec, &tile, &shape, &spread, 132), KILN_OK);
  shape.batch = 0; /* without arithmetic there is no rate */
  ck_assert_int_eq(kiln__report_add_timing(&report, &spec, &tile, &shape, &spread, 132), KILN_OK);
  ck_assert_int_eq(report.num_timings, 1);
  ck_assert_int_eq(kiln__report_finish(&report), KILN_OK);
  kiln__report_destroy(&report);
  char *page = calloc(1, 1 << 20);
  fixture_read(path, page, (1 << 20) - 1);
  ck_assert_int_eq(count(page, " 50 % of the nominal roof\n"), 2);
  ck_assert_int_eq(count(page, "1 FLOP per byte</title>"), 1);
  free(page);
}
END_TEST

START_TEST(no_report_is_asked_for) {
  const kiln__args args = {.verb = &kiln__verb_bench};
  kiln__report report;
  ck_assert_int_eq(kiln__report_create(&args, &report), KILN_OK);
  const kiln__spread spread = {1, 1, 1, 0};
  const kiln_attn_spec spec = spec_of(128, KILN_MASK_NONE);
  const kiln_tile tile = KILN_TILE_INIT;
  const kiln_attn_args shape = shape_of(1, 512, 1, 1);
  ck_assert_int_eq(kiln__report_add_timing(&report, &spec, &tile, &shape, &spread, 0), KILN_OK);
  ck_assert_int_eq(report.num_timings, 0);
  ck_assert_int_eq(kiln__report_finish(&report), KILN_OK);
  ck_assert_int_eq(fixture_count(&files), 0);
  kiln__report_destroy(&report);
}
END_TEST

Suite *suite_report(void) {
  Suite *suite = suite_create("report");
  TCase *texts = tcase_create("texts"), *pages = tcase_create("pages");
  tcase_add_test(texts, text_stays_text);
  tcase_add_test(texts, axes_hold_what_they_show);
  tcase_add_test(texts, peers_match_to_the_last_size);
  tcase_add_checked_fixture(pages, make_context, drop_context);
  tcase_set_timeout(pages, 60);
  tcase_add_test(pages, a_page_of_measured_rows);
  tcase_add_test(pages, a_roof_of_memory);
  tcase_add_test(pages, no_report_is_asked_for);
  suite_add_tcase(suite, texts);
  suite_add_tcase(suite, pages);
  return suite;
}
