/* The parts of the command line that need no device: flags, the schema, the pool, the data that
 * verify makes and the comparison that it trusts. */
#include "args.h"
#include "compare.h"
#include "inputs.h"
#include "pool.h"
#include "suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Refusals are printed; the tests only look at their status. */
static void hush(void) { ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr)); }

/* ---- flags ---- */

static const char schema_text[] =
    "{\"fields\":["
    "{\"group\":\"spec\",\"name\":\"head_dim\",\"default\":128,\"min\":8,\"max\":256,\"multiple\":"
    "8,"
    "\"sentence\":\"Columns.\"},"
    "{\"group\":\"spec\",\"name\":\"mask\",\"default\":\"none\",\"values\":[\"none\",\"causal\"],"
    "\"flags\":[{\"flag\":\"--causal\",\"value\":\"causal\"}],\"sentence\":\"Mask.\"},"
    "{\"group\":\"tile\",\"name\":\"block_m\",\"default\":0,\"min\":16,\"max\":64,\"multiple\":16,"
    "\"sentence\":\"Rows.\"}],\"archs\":[{\"name\":\"sm_80\"}]}";

static const kiln__flag own_flags[] = {{"-o", "FILE", "where"}, {"--plain", NULL, "plain"}, {0}};
static const kiln__verb verb = {.name = "verb",
                                .usage = "",
                                .flags = own_flags,
                                .groups = KILN__TAKES_SELECTION,
                                .max_words = 2};

static kiln_status parse(kiln__schema *schema, char **argv, kiln__args *args) {
  int argc = 0;
  while (argv[argc]) argc++;
  ck_assert_int_eq(kiln__schema_parse(schema_text, schema), KILN_OK);
  return kiln__args_parse(&verb, schema, argc, argv, args);
}

START_TEST(schema_fields_become_flags) {
  kiln__schema schema;
  const kiln__choice *choice = NULL;
  ck_assert_int_eq(kiln__schema_parse(schema_text, &schema), KILN_OK);
  ck_assert_int_eq(schema.num_fields, 3);
  const kiln__field *dim = kiln__schema_find_flag(&schema, "--head-dim", &choice);
  ck_assert_ptr_nonnull(dim);
  ck_assert_int_eq(dim->num_values, 32);
  ck_assert_str_eq(dim->values[0], "8");
  ck_assert_str_eq(dim->values[31], "256");
  ck_assert(!dim->is_tile && !dim->takes_zero);
  const kiln__field *mask = kiln__schema_find_flag(&schema, "--causal", &choice);
  ck_assert_str_eq(mask->name, "mask");
  ck_assert_str_eq(choice->value, "causal");
  ck_assert(kiln__schema_find(&schema, "block_m")->is_tile);
  ck_assert(kiln__schema_find(&schema, "block_m")->takes_zero);
  ck_assert_ptr_nonnull(kiln__schema_arch(&schema, "sm_80"));
  ck_assert_ptr_null(kiln__schema_arch(&schema, "sm_99"));
  kiln__schema_destroy(&schema);
}
END_TEST

START_TEST(broken_schemas_are_refused) {
  static const char *const broken[] = {
      "",
      "[]",
      "{}",
      "{\"fields\":[{}]}",
      "{\"fields\":[{\"group\":\"spec\",\"name\":\"x\",\"default\":1,\"min\":1,\"max\":9,"
      "\"multiple\":0,\"sentence\":\"\"}]}",
      "{\"fields\":[{\"group\":\"spec\",\"name\":\"x\",\"default\":\"\",\"values\":[3],"
      "\"sentence\":\"\"}]}"};
  kiln__schema schema;
  hush();
  for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
    ck_assert_int_eq(kiln__schema_parse(broken[i], &schema), KILN_INTERNAL);
    ck_assert_ptr_null(schema.fields);
  }
}
END_TEST

START_TEST(options_and_words) {
  char *argv[] = {"--head-dim=64,72", "a", "--causal", "-o", "-", "--plain", "--", "--b", NULL};
  kiln__schema schema;
  kiln__args args;
  ck_assert_int_eq(parse(&schema, argv, &args), KILN_OK);
  ck_assert_str_eq(kiln__args_get(&args, "--head-dim"), "64,72");
  ck_assert_str_eq(kiln__args_get(&args, "--mask"), "causal");
  ck_assert_str_eq(kiln__args_get(&args, "-o"), "-");
  ck_assert(kiln__args_has(&args, "--plain"));
  ck_assert_ptr_null(kiln__args_get(&args, "--plain"));
  ck_assert(!kiln__args_has(&args, "--block-m"));
  ck_assert_int_eq(args.num_words, 2);
  ck_assert_str_eq(args.words[1], "--b");
  kiln__args_destroy(&args);
  kiln__schema_destroy(&schema);
}
END_TEST

START_TEST(lines_that_are_refused) {
  static char *lines[][5] = {
      {"--head-dim", NULL}, {"--plain=1", NULL}, {"--causal", "--mask", "none"},
      {"--nothing", NULL},  {"a", "b", "c"},     {"-x", NULL}};
  hush();
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    kiln__schema schema;
    kiln__args args;
    ck_assert_int_eq(parse(&schema, lines[i], &args), KILN_INVALID_ARGUMENT);
    kiln__schema_destroy(&schema);
  }
}
END_TEST

START_TEST(numbers_are_whole_and_within) {
  char *argv[] = {"--head-dim", "12", "--block-m", "0x10", "-o", "7z", NULL};
  kiln__schema schema;
  kiln__args args;
  int64_t value = -5;
  hush();
  ck_assert_int_eq(parse(&schema, argv, &args), KILN_OK);
  ck_assert_int_eq(kiln__args_integer(&args, "--mask", 0, 9, &value), KILN_OK);
  ck_assert_int_eq(value, -5);
  ck_assert_int_eq(kiln__args_integer(&args, "--head-dim", 0, 12, &value), KILN_OK);
  ck_assert_int_eq(value, 12);
  ck_assert_int_eq(kiln__args_integer(&args, "--block-m", 0, 99, &value), KILN_OK);
  ck_assert_int_eq(value, 16);
  ck_assert_int_eq(kiln__args_integer(&args, "--head-dim", 0, 11, &value), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(kiln__args_integer(&args, "-o", 0, 99, &value), KILN_INVALID_ARGUMENT);
  ck_assert_int_eq(value, 16);
  kiln__args_destroy(&args);
  kiln__schema_destroy(&schema);
}
END_TEST

START_TEST(nearest_names) {
  static const char *const names[] = {"generate", "compile", "run", "verify"};
  ck_assert_str_eq(kiln__nearest("genrate", names, 4), "generate");
  ck_assert_str_eq(kiln__nearest("rum", names, 4), "run");
  ck_assert_ptr_null(kiln__nearest("xyzzyplugh", names, 4));
}
END_TEST

/* ---- pool ---- */

enum { JOBS = 1000 };

static void count_job(void *user, int64_t index) { ((int *)user)[index]++; }

START_TEST(every_job_runs_once) {
  int runs[JOBS] = {0};
  int64_t begun = 0;
  kiln__pool *pool = kiln__pool_create(JOBS, count_job, runs);
  for (int64_t i = 0; i < JOBS; i++) {
    kiln__pool_wait(pool, i);
    ck_assert_int_eq(runs[i], 1);
  }
  kiln__pool_destroy(pool, &begun);
  ck_assert_int_eq(begun, JOBS);
}
END_TEST

START_TEST(pool_that_is_left_early) {
  int runs[JOBS] = {0};
  int64_t begun = 0;
  kiln__pool *pool = kiln__pool_create(JOBS, count_job, runs);
  kiln__pool_wait(pool, 0);
  kiln__pool_destroy(pool, &begun);
  ck_assert_int_ge(begun, 1);
  ck_assert_int_lt(begun, JOBS);
  for (int64_t i = 0; i < JOBS; i++) ck_assert_int_eq(runs[i], i < begun);
}
END_TEST

/* ---- data ---- */

static kiln_attn_spec spec_of(kiln_dtype dtype, int32_t dim, int32_t dim_v, kiln_mask mask) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  spec.dtype = dtype;
  spec.head_dim = dim;
  spec.head_dim_v = dim_v;
  spec.mask = mask;
  return spec;
}

static void check_inside(const kiln__inputs *in, const kiln__operand *x) {
  ck_assert_int_le(kiln__operand_extent(x), in->lengths[x->buffer]);
}

static void check_same(const kiln__inputs *a, const kiln__operand *x, const kiln__inputs *b,
                       const kiln__operand *y, int64_t batch, int64_t row, int64_t head) {
  const uint16_t *from = a->buffers[x->buffer] + kiln__operand_at(x, batch, row, head);
  const uint16_t *to = b->buffers[y->buffer] + kiln__operand_at(y, batch, row, head);
  ck_assert_mem_eq(from, to, (size_t)x->dim * sizeof *from);
}

static void check_packed(const kiln__inputs *in) {
  kiln__inputs packed;
  ck_assert_int_eq(kiln__inputs_pack(in, &packed), KILN_OK);
  for (int64_t row = 0; in->q.batch > 0 && row < in->k.rows; row += 7) {
    int64_t batch = in->q.batch - 1, head = in->k.heads - 1;
    check_same(in, &in->k, &packed, &packed.k, batch, row, head);
    check_same(in, &in->v, &packed, &packed.v, batch, row, head);
  }
  kiln__inputs_destroy(&packed);
}

/* No finite number is lost to the dtype's range, or the problem would not be the one it says it
 * is. */
static void check_finite(const kiln__problem *p, const kiln__inputs *in, const kiln__operand *x) {
  if (p->data == KILN__NAN_QUERY) return;
  for (int64_t b = 0; b < x->batch; b++)
    for (int64_t row = 0; row < x->rows; row++) {
      const uint16_t *at = in->buffers[x->buffer] + kiln__operand_at(x, b, row, 0);
      for (int32_t col = 0; col < x->dim; col++)
        ck_assert_msg(isfinite(kiln__decode(in->dtype, at[col])), "%s", p->id);
    }
}

START_TEST(every_problem_lies_inside_its_buffers) {
  kiln_attn_spec specs[] = {spec_of(KILN_DTYPE_BF16, 256, 256, KILN_MASK_CAUSAL),
                            spec_of(KILN_DTYPE_FP16, 256, 64, KILN_MASK_NONE),
                            spec_of(KILN_DTYPE_FP16, 128, 128, KILN_MASK_NONE),
                            spec_of(KILN_DTYPE_BF16, 8, 8, KILN_MASK_NONE)};
  const kiln_attn_spec *spec = &specs[_i];
  for (int i = 0; i < kiln__num_problems; i++) {
    kiln__problem p = kiln__problem_shrink(&kiln__problems[i]);
    kiln__inputs in;
    if (!kiln__problem_fits(&p, spec, false)) continue;
    ck_assert_int_eq(kiln__inputs_create(&p, spec, 1, &in), KILN_OK);
    check_inside(&in, &in.q);
    check_inside(&in, &in.k);
    check_inside(&in, &in.v);
    check_finite(&p, &in, &in.q);
    check_finite(&p, &in, &in.k);
    check_finite(&p, &in, &in.v);
    check_packed(&in);
    kiln__inputs_destroy(&in);
  }
}
END_TEST

START_TEST(slices_of_one_buffer_do_not_overlap) {
  kiln_attn_spec spec = spec_of(KILN_DTYPE_BF16, 64, 64, KILN_MASK_NONE);
  kiln__problem p = {.batch = 1, .seqlen_q = 9, .seqlen_k = 9, .num_heads = 2, .num_heads_k = 2};
  kiln__inputs in;
  p.layout = KILN__QKV_SLICES;
  ck_assert_int_eq(kiln__inputs_create(&p, &spec, 1, &in), KILN_OK);
  const uint16_t *q = in.buffers[0] + kiln__operand_at(&in.q, 0, 4, 1);
  const uint16_t *k = in.buffers[0] + kiln__operand_at(&in.k, 0, 4, 1);
  const uint16_t *v = in.buffers[0] + kiln__operand_at(&in.v, 0, 4, 1);
  ck_assert(k - q == 2 * 64 && v - k == 2 * 64);
  ck_assert_int_eq(in.lengths[0], 9 * 3 * 2 * 64);
  kiln__inputs_destroy(&in);
}
END_TEST

START_TEST(tails_hold_what_no_kernel_may_read) {
  kiln_attn_spec spec = spec_of(KILN_DTYPE_BF16, 64, 64, KILN_MASK_NONE);
  kiln__problem p = {.batch = 2, .seqlen_q = 3, .seqlen_k = 5, .num_heads = 2, .num_heads_k = 2};
  kiln__inputs in;
  p.tail = 4;
  p.flags = _i ? KILN__INFINITE : 0;
  ck_assert_int_eq(kiln__inputs_create(&p, &spec, 1, &in), KILN_OK);
  ck_assert_int_eq(in.lengths[in.k.buffer], 2 * 9 * 2 * 64);
  for (int64_t row = 0; row < 9; row++) {
    float value = kiln__decode(in.dtype, in.buffers[1][kiln__operand_at(&in.k, 0, row, 1)]);
    ck_assert(row < 5 ? isfinite(value) : _i ? isinf(value) : isnan(value));
  }
  kiln__inputs_destroy(&in);
}
END_TEST

START_TEST(another_seed_gives_other_data) {
  kiln_attn_spec spec = spec_of(KILN_DTYPE_FP16, 8, 8, KILN_MASK_NONE);
  kiln__problem p = {.batch = 1, .seqlen_q = 9, .seqlen_k = 9, .num_heads = 1, .num_heads_k = 1};
  kiln__inputs a, b, c;
  ck_assert_int_eq(kiln__inputs_create(&p, &spec, 1, &a), KILN_OK);
  ck_assert_int_eq(kiln__inputs_create(&p, &spec, 1, &b), KILN_OK);
  ck_assert_int_eq(kiln__inputs_create(&p, &spec, 2, &c), KILN_OK);
  ck_assert_mem_eq(a.buffers[0], b.buffers[0], 9 * 8 * sizeof(uint16_t));
  ck_assert_mem_ne(a.buffers[0], c.buffers[0], 9 * 8 * sizeof(uint16_t));
  kiln__inputs_destroy(&a);
  kiln__inputs_destroy(&b);
  kiln__inputs_destroy(&c);
}
END_TEST

/* ---- comparison ---- */

enum { ROWS = 1000, HEADS = 6, DIM = 8 };

/* One key and a scale of 0: o is v's one row and lse is 0, without any arithmetic. */
typedef struct one_key {
  kiln__inputs in;
  kiln__output out;
} one_key;

static void one_key_create(one_key *t) {
  kiln_attn_spec spec = spec_of(KILN_DTYPE_BF16, DIM, DIM, KILN_MASK_NONE);
  kiln__problem p = {.batch = 1, .seqlen_q = ROWS, .seqlen_k = 1, .num_heads = HEADS};
  p.num_heads_k = 1;
  p.flags = KILN__SCALE_GIVEN;
  ck_assert_int_eq(kiln__inputs_create(&p, &spec, 3, &t->in), KILN_OK);
  t->out.o = malloc(ROWS * HEADS * DIM * sizeof *t->out.o);
  t->out.lse = calloc(ROWS * HEADS, sizeof *t->out.lse);
  for (int i = 0; i < ROWS * HEADS * DIM; i++) t->out.o[i] = t->in.buffers[t->in.v.buffer][i % DIM];
}

static void one_key_destroy(one_key *t) {
  free(t->out.o);
  free(t->out.lse);
  kiln__inputs_destroy(&t->in);
}

static kiln__figures measure(const one_key *t, double budget) {
  kiln__figures f;
  ck_assert_int_eq(kiln__compare(&t->in, &t->out, budget, &f), KILN_OK);
  return f;
}

START_TEST(right_result_passes) {
  one_key t;
  one_key_create(&t);
  kiln__figures f = measure(&t, KILN__COMPARE_ALL);
  ck_assert(f.o_passes && f.lse_passes && f.exact_passes);
  ck_assert(f.max_abs_error == 0 && f.rel_rms_error == 0 && f.lse_max_abs_error == 0);
  ck_assert_int_eq(f.checked_rows, ROWS * HEADS);
  one_key_destroy(&t);
}
END_TEST

START_TEST(every_element_counts) {
  static const int places[] = {0, ROWS * HEADS * DIM / 2 + 3, ROWS * HEADS * DIM - 1};
  one_key t;
  one_key_create(&t);
  for (int i = 0; i < 3; i++) {
    uint16_t right = t.out.o[places[i]];
    t.out.o[places[i]] ^= 1;
    ck_assert(!measure(&t, KILN__COMPARE_ALL).exact_passes);
    t.out.o[places[i]] = 0x7fc0;
    ck_assert(!measure(&t, KILN__COMPARE_ALL).o_passes);
    t.out.o[places[i]] = right;
  }
  t.out.lse[ROWS * HEADS - 1] = 2e-3f;
  ck_assert(!measure(&t, KILN__COMPARE_ALL).lse_passes);
  one_key_destroy(&t);
}
END_TEST

/* A budget for a few spans: the first and the last row of the first and the last head are seen. */
START_TEST(sample_reaches_all_corners) {
  one_key t;
  one_key_create(&t);
  kiln__figures f = measure(&t, 1);
  ck_assert(f.o_passes && f.checked_rows < f.rows);
  ck_assert_int_eq(f.rows, ROWS * HEADS);
  static const int rows[] = {0, ROWS - 1}, heads[] = {0, HEADS - 1};
  for (int r = 0; r < 2; r++)
    for (int h = 0; h < 2; h++) {
      uint16_t *element = &t.out.o[(rows[r] * HEADS + heads[h]) * DIM];
      uint16_t right = *element;
      *element = 0x7fc0;
      ck_assert_msg(!measure(&t, 1).o_passes, "row %d, head %d", rows[r], heads[h]);
      *element = right;
    }
  one_key_destroy(&t);
}
END_TEST

/* Rows of a causal problem that is compared in spans see the same keys as in the whole. */
START_TEST(causal_spans_see_their_keys) {
  kiln_attn_spec spec = spec_of(KILN_DTYPE_BF16, DIM, DIM, KILN_MASK_CAUSAL);
  kiln__problem p = {.batch = 1, .seqlen_q = ROWS, .seqlen_k = ROWS / 2, .num_heads = 1};
  kiln__inputs in;
  kiln__figures f;
  p.num_heads_k = 1;
  p.flags = KILN__SCALE_GIVEN;
  ck_assert_int_eq(kiln__inputs_create(&p, &spec, 3, &in), KILN_OK);
  uint16_t *o = calloc(ROWS * DIM, sizeof *o);
  float *lse = calloc(ROWS, sizeof *lse);
  kiln__output out = {.o = o, .lse = lse};
  for (int64_t row = 0; row < ROWS;
       row++) { /* a scale of 0: lse is the log of the number of keys */
    int64_t keys = row + ROWS / 2 - ROWS + 1;
    lse[row] = keys > 0 ? (float)log((double)keys) : -INFINITY;
  }
  ck_assert_int_eq(kiln__compare(&in, &out, 1, &f), KILN_OK);
  ck_assert(f.lse_passes && !f.o_passes);
  ck_assert_int_lt(f.checked_rows, ROWS);
  lse[ROWS - 1] = (float)log(ROWS / 2 - 1);
  ck_assert_int_eq(kiln__compare(&in, &out, 1, &f), KILN_OK);
  ck_assert(!f.lse_passes);
  free(o);
  free(lse);
  kiln__inputs_destroy(&in);
}
END_TEST

Suite *suite_cli(void) {
  Suite *suite = suite_create("cli");
  TCase *flags = tcase_create("flags");
  tcase_add_test(flags, schema_fields_become_flags);
  tcase_add_test(flags, broken_schemas_are_refused);
  tcase_add_test(flags, options_and_words);
  tcase_add_test(flags, lines_that_are_refused);
  tcase_add_test(flags, numbers_are_whole_and_within);
  tcase_add_test(flags, nearest_names);
  suite_add_tcase(suite, flags);
  TCase *pool = tcase_create("pool");
  tcase_add_test(pool, every_job_runs_once);
  tcase_add_test(pool, pool_that_is_left_early);
  suite_add_tcase(suite, pool);
  TCase *data = tcase_create("data");
  tcase_set_timeout(data, 60);
  tcase_add_loop_test(data, every_problem_lies_inside_its_buffers, 0, 4);
  tcase_add_test(data, slices_of_one_buffer_do_not_overlap);
  tcase_add_loop_test(data, tails_hold_what_no_kernel_may_read, 0, 2);
  tcase_add_test(data, another_seed_gives_other_data);
  suite_add_tcase(suite, data);
  TCase *comparison = tcase_create("comparison");
  tcase_set_timeout(comparison, 60);
  tcase_add_test(comparison, right_result_passes);
  tcase_add_test(comparison, every_element_counts);
  tcase_add_test(comparison, sample_reaches_all_corners);
  tcase_add_test(comparison, causal_spans_see_their_keys);
  suite_add_tcase(suite, comparison);
  return suite;
}
