/* The host side of a backward pass on a device that records: its launch record, what is refused,
 * the arguments that its three entries get, and the one call. Structs of an older header, which end
 * before the backward pass, are here too. */
#include "suites.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/line.h"
#include "fake.h"
#include "runtime/missing.h"

#define MEMORY ((char *)0x100000) /* an address that nothing reads */

/* clang-format off */
static const char record_text[] =
    "{\"format\":1,\"kiln\":\"0.1.0\",\"family\":\"hopper_backward\",\"layout\":\"backward.1\","
    "\"align\":16,"
    "\"spec\":{\"arch\":\"sm_90a\",\"pass\":\"backward\",\"algorithm\":\"flash\","
    "\"dtype\":\"bf16\",\"head_dim\":64,\"head_dim_v\":32,\"mask\":\"none\",\"deterministic\":1},"
    "\"tile\":{\"block_m\":64,\"block_n\":128,\"num_stages\":2,\"num_warps\":12},"
    "\"workspace\":["
    "{\"name\":\"delta\",\"bytes\":4,\"dims\":[[\"seqlen_q\",1],[\"num_heads\",1],[\"batch\",1]]},"
    "{\"name\":\"order\",\"bytes\":4,\"dims\":[[\"seqlen_q\",64]],\"zero\":true},"
    "{\"name\":\"dq\",\"bytes\":256,\"dims\":[[\"seqlen_q\",1],[\"num_heads\",1],[\"batch\",1]]}],"
    "\"maps\":{\"q\":{\"box_rows\":64,\"box_cols\":64,\"swizzle\":128},"
    "\"do\":{\"box_rows\":64,\"box_cols\":32,\"swizzle\":64},"
    "\"dk\":{\"box_rows\":128,\"box_cols\":64,\"swizzle\":128}},"
    "\"entries\":["
    "{\"name\":\"kiln_preprocess\",\"threads\":128,\"cluster\":1,\"shared_bytes\":0,"
    "\"persistent\":0,\"grid\":[[\"seqlen_q\",64],[\"num_heads\",1],[\"batch\",1]],"
    "\"params\":[\"args\"]},"
    "{\"name\":\"kiln_backward\",\"threads\":384,\"cluster\":1,\"shared_bytes\":98304,"
    "\"persistent\":0,\"grid\":[[\"seqlen_k\",128],[\"num_heads_k\",1],[\"batch\",1]],"
    "\"params\":[\"map:q\",\"map:do\",\"map:dk\",\"args\"]},"
    "{\"name\":\"kiln_convert\",\"threads\":128,\"cluster\":1,\"shared_bytes\":0,"
    "\"persistent\":0,\"grid\":[[\"seqlen_q\",64],[\"num_heads\",1],[\"batch\",1]],"
    "\"params\":[\"args\"]}],\"smem\":[]}";
/* clang-format on */

typedef struct bench {
  fake device;
  kiln__record record;
  kiln__loaded loaded;
  kiln_attn_args args;
  char sentence[1024];
} bench;

/* batch 2, seqlen_q 300, seqlen_k 200, heads 6/3: packed */
static void good_args(kiln_attn_args *args) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  *args = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  spec.head_dim = 64;
  spec.head_dim_v = 32;
  args->batch = 2;
  args->seqlen_q = 300;
  args->seqlen_k = 200;
  args->num_heads = 6;
  args->num_heads_k = 3;
  kiln_attn_args_pack(args, &spec);
  args->q = MEMORY;
  args->k = MEMORY + 0x10000;
  args->v = MEMORY + 0x20000;
  args->o = MEMORY + 0x30000;
  args->lse = (float *)(MEMORY + 0x40000);
  args->dout = MEMORY + 0x50000;
  args->dq = MEMORY + 0x60000;
  args->dk = MEMORY + 0x70000;
  args->dv = MEMORY + 0x80000;
  args->workspace = MEMORY + 0x90000;
  args->workspace_bytes = 1 << 20;
}

static void bench_init(bench *b) {
  memset(b, 0, sizeof *b);
  fake_parse_record(record_text, &b->record);
  b->loaded.ops = &fake_device_ops;
  b->loaded.device = &b->device;
  b->loaded.num_sms = 4;
  b->loaded.record = &b->record;
  for (int i = 0; i < 3; i++) b->loaded.entries[i] = (char *)&b->device + i;
  good_args(&b->args);
}

static kiln_status bench_run(bench *b) {
  kiln__text error;
  kiln__text_init_fixed(&error, b->sentence, sizeof b->sentence);
  return kiln__launch_run(&b->loaded, &b->args, NULL, &error);
}

/* ---- the record ---- */

START_TEST(a_backward_record) {
  kiln__record r;
  fake_parse_record(record_text, &r);
  ck_assert_int_eq(r.spec.pass, KILN_PASS_BACKWARD);
  ck_assert_int_eq(r.spec.deterministic, 1);
  ck_assert_str_eq(r.layout, "backward.1");
  ck_assert_int_eq(r.maps[KILN__DO].box_cols, 32);
  ck_assert_int_eq(r.maps[KILN__DK].box_rows, 128);
  ck_assert_int_eq(r.maps[KILN__DV].present, 0);
  ck_assert_int_eq(r.entries[1].params[1], KILN__DO);
  ck_assert_int_eq(r.entries[1].params[2], KILN__DK);
  ck_assert_int_eq(r.entries[1].params[3], KILN__PARAM_ARGS);
  fake_parse_record(fake_record, &r); /* written before the field was there */
  ck_assert_int_eq(r.spec.deterministic, 0);
}
END_TEST

/* One replacement in the record, and what the sentence must name. */
static const struct {
  const char *from, *to, *named;
} faults[] = {
    {"\"layout\":\"backward.1\"", "\"layout\":\"forward.1\"", "\"layout\" is not \"backward.1\""},
    {"\"pass\":\"backward\"", "\"pass\":\"forward\"", "\"layout\" is not \"forward.1\""},
    {"backward.1\",\"align\":16,\"spec\":{\"arch\":\"sm_90a\",\"pass\":\"backward\"",
     "forward.1\",\"align\":16,\"spec\":{\"arch\":\"sm_90a\",\"pass\":\"forward\"",
     "\"maps\" describes a gradient"},
    {"\"deterministic\":1", "\"deterministic\":2", "deterministic"},
    {"\"deterministic\":1", "\"deterministic\":\"1\"", "deterministic"},
    {"\"map:dk\"", "\"map:dv\"", "params"},
    {"\"workspace\":[", "\"workspace\":[{\"bytes\":1},{\"bytes\":1},", "workspace"},
};

START_TEST(every_fault_is_named) {
  char json[8192], sentence[512];
  kiln__record record;
  kiln__text error;
  const char *at = strstr(record_text, faults[_i].from);
  ck_assert_ptr_nonnull(at);
  snprintf(json, sizeof json, "%.*s%s%s", (int)(at - record_text), record_text, faults[_i].to,
           at + strlen(faults[_i].from));
  kiln__text_init_fixed(&error, sentence, sizeof sentence);
  ck_assert_int_eq(kiln__record_parse(json, strlen(json), &error, &record), KILN_CORRUPT);
  ck_assert_msg(strstr(sentence, faults[_i].named) != NULL, "%s", sentence);
}
END_TEST

/* ---- launches ---- */

START_TEST(three_entries_with_their_arguments) {
  bench b;
  bench_init(&b);
  ck_assert_msg(bench_run(&b) == KILN_OK, "%s", b.sentence);
  ck_assert_int_eq(b.device.num_launches, 3);
  ck_assert_int_eq(b.device.num_maps, 3);
  const int64_t tiles[3] = {5 * 6 * 2, 2 * 3 * 2, 5 * 6 * 2};
  for (int i = 0; i < 3; i++) {
    ck_assert_ptr_eq(b.device.launches[i].entry, (char *)&b.device + i);
    ck_assert_int_eq(b.device.launches[i].backward.tiles, tiles[i]);
    ck_assert_uint_eq(b.device.launches[i].grid[0], tiles[i]);
  }
  ck_assert_int_eq(b.device.launches[1].num_params, 4);
  const kiln__backward_args *a = &b.device.launches[1].backward;
  ck_assert_int_eq(a->workspace_at[0], 0);
  ck_assert_int_eq(a->workspace_at[1], 14592); /* 4 * 300 * 6 * 2, rounded up */
  ck_assert_int_eq(a->workspace_at[2], 14592 + 256);
  ck_assert_ptr_eq(b.device.cleared_at[0], MEMORY + 0x90000 + 14592);
  ck_assert_int_eq(a->group, 2);
  ck_assert_int_eq(a->m_blocks, 5);
  ck_assert_int_eq(a->n_blocks, 2);
  ck_assert_float_eq_tol(a->softmax_scale, 0.125f, 1e-7f);
  ck_assert_float_eq_tol(a->scale_log2, 0.18033688f, 1e-7f);
  b.args.softmax_scale = 0;
  ck_assert_int_eq(bench_run(&b), KILN_OK);
  ck_assert_float_eq(b.device.launches[3].backward.scale_log2, 0x1p-100f);
}
END_TEST

START_TEST(every_tensor_keeps_its_address_and_strides) {
  bench b;
  bench_init(&b);
  kiln_stride *const strides[] = {&b.args.q_stride,  &b.args.k_stride,  &b.args.v_stride,
                                  &b.args.o_stride,  &b.args.do_stride, &b.args.dq_stride,
                                  &b.args.dk_stride, &b.args.dv_stride};
  for (int i = 0; i < 8; i++) strides[i]->batch += 8 * i; /* no two are alike */
  ck_assert_msg(bench_run(&b) == KILN_OK, "%s", b.sentence);
  const kiln__backward_args *a = &b.device.launches[2].backward;
  const kiln_stride *const found[] = {&a->q_stride,  &a->k_stride,  &a->v_stride,  &a->o_stride,
                                      &a->do_stride, &a->dq_stride, &a->dk_stride, &a->dv_stride};
  for (int i = 0; i < 8; i++) ck_assert_mem_eq(found[i], strides[i], sizeof(kiln_stride));
  const void *const addresses[] = {a->q,    a->k,  a->v,  a->o,  a->lse,
                                   a->dout, a->dq, a->dk, a->dv, a->workspace};
  for (int i = 0; i < 10; i++) ck_assert_ptr_eq(addresses[i], MEMORY + 0x10000 * i);
}
END_TEST

/* The copy in templates/common/backward_args.tmpl.cu is laid out by the same rules. */
START_TEST(the_layout_of_the_arguments) {
  ck_assert_uint_eq(offsetof(kiln__backward_args, dout), 32);
  ck_assert_uint_eq(offsetof(kiln__backward_args, lse), 40);
  ck_assert_uint_eq(offsetof(kiln__backward_args, workspace), 72);
  ck_assert_uint_eq(offsetof(kiln__backward_args, workspace_at), 80);
  ck_assert_uint_eq(offsetof(kiln__backward_args, q_stride), 112);
  ck_assert_uint_eq(offsetof(kiln__backward_args, dv_stride), 280);
  ck_assert_uint_eq(offsetof(kiln__backward_args, tiles), 304);
  ck_assert_uint_eq(offsetof(kiln__backward_args, batch), 312);
  ck_assert_uint_eq(offsetof(kiln__backward_args, group), 332);
  ck_assert_uint_eq(offsetof(kiln__backward_args, softmax_scale), 344);
  ck_assert_uint_eq(sizeof(kiln__backward_args), 352);
}
END_TEST

static const struct {
  int32_t batch, seqlen_q, seqlen_k;
  int launches;
  int first; /* the entry that is launched first */
} empty[] = {
    {2, 0, 200, 1, 1}, /* dk and dv become 0 */
    {2, 300, 0, 2, 0}, /* so does dq */
    {2, 0, 0, 0, 0},
    {0, 300, 200, 0, 0},
};

START_TEST(empty_sizes) {
  bench b;
  bench_init(&b);
  b.args.batch = empty[_i].batch;
  b.args.seqlen_q = empty[_i].seqlen_q;
  b.args.seqlen_k = empty[_i].seqlen_k;
  if (!b.args.seqlen_q)
    b.args.q = b.args.o = b.args.lse = NULL, b.args.dq = NULL, b.args.dout = NULL;
  if (!b.args.seqlen_k) b.args.k = b.args.v = NULL, b.args.dk = b.args.dv = NULL;
  ck_assert_msg(bench_run(&b) == KILN_OK, "%s", b.sentence);
  ck_assert_int_eq(b.device.num_launches, empty[_i].launches);
  if (!empty[_i].launches) return;
  ck_assert_ptr_eq(b.device.launches[0].entry, (char *)&b.device + empty[_i].first);
  for (int i = 0; i < b.device.num_maps; i++) ck_assert_ptr_nonnull(b.device.maps[i].address);
}
END_TEST

/* ---- refusals ---- */

static void set_no_do(bench *b) { b->args.dout = NULL; }
static void set_no_dq(bench *b) { b->args.dq = NULL; }
static void set_no_dk(bench *b) { b->args.dk = NULL; }
static void set_no_dv(bench *b) { b->args.dv = NULL; }
static void set_no_o(bench *b) { b->args.o = NULL; }
static void set_no_lse(bench *b) { b->args.lse = NULL; }
static void set_odd_lse(bench *b) { b->args.lse = (float *)(MEMORY + 1); }
static void set_odd_do(bench *b) { b->args.dout = MEMORY + 2; }
static void set_odd_dv(bench *b) { b->args.dv_stride.row += 4; }
static void set_negative_do(bench *b) { b->args.do_stride.row = -64; }
static void set_dq_overlap(bench *b) { b->args.dq_stride.head = 0; }
static void set_dk_overlap(bench *b) { b->args.dk_stride.row = 64; }
static void set_dv_overlap(bench *b) { b->args.dv_stride.batch = 8; }
static void set_small_workspace(bench *b) { b->args.workspace_bytes = 14592; }

static const struct {
  void (*spoil)(bench *b);
  kiln_status status;
  const char *named;
} refusals[] = {
    {set_no_do, KILN_INVALID_ARGUMENT, "do is NULL"},
    {set_no_dq, KILN_INVALID_ARGUMENT, "dq is NULL"},
    {set_no_dk, KILN_INVALID_ARGUMENT, "dk is NULL"},
    {set_no_dv, KILN_INVALID_ARGUMENT, "dv is NULL"},
    {set_no_o, KILN_INVALID_ARGUMENT, "o is NULL"},
    {set_no_lse, KILN_INVALID_ARGUMENT, "lse is NULL"},
    {set_odd_lse, KILN_MISALIGNED, "lse's address"},
    {set_odd_do, KILN_MISALIGNED, "do's address"},
    {set_odd_dv, KILN_MISALIGNED, "dv's row stride"},
    {set_negative_do, KILN_INVALID_ARGUMENT, "do's row stride is -64"},
    {set_dq_overlap, KILN_INVALID_ARGUMENT, "dq's head stride is 0"},
    {set_dk_overlap, KILN_INVALID_ARGUMENT, "dk's head stride is 64"},
    {set_dv_overlap, KILN_INVALID_ARGUMENT, "overlap"},
    {set_small_workspace, KILN_WORKSPACE_TOO_SMALL, "the workspace has 14592 bytes"},
};

START_TEST(refusals_launch_nothing) {
  bench b;
  bench_init(&b);
  refusals[_i].spoil(&b);
  ck_assert_int_eq(bench_run(&b), refusals[_i].status);
  ck_assert_msg(strstr(b.sentence, refusals[_i].named) != NULL, "%s", b.sentence);
  ck_assert_int_eq(b.device.num_launches + b.device.num_clears, 0);
}
END_TEST

/* What is read may be the same elements again and again; o is an input here. */
START_TEST(inputs_may_overlap) {
  bench b;
  bench_init(&b);
  b.args.o_stride.head = b.args.do_stride.head = b.args.k_stride.batch = 0;
  ck_assert_msg(bench_run(&b) == KILN_OK, "%s", b.sentence);
}
END_TEST

/* ---- the public functions ---- */

START_TEST(one_call_runs_the_backward_pass) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args;
  f.record = record_text;
  good_args(&args);
  spec.head_dim = 64;
  spec.head_dim_v = 32;
  ck_assert_int_eq(kiln_attn_backward(ctx, &spec, &args, NULL), KILN_OK);
  ck_assert_int_eq(f.num_launches, 3);
  spec.pass = KILN_PASS_BACKWARD;
  ck_assert_int_eq(kiln_attn_backward(ctx, &spec, &args, NULL), KILN_OK);
  ck_assert_int_eq(f.num_compiles, 1);
  spec.deterministic = 1; /* another kernel */
  ck_assert_int_eq(kiln_attn_backward(ctx, &spec, &args, NULL), KILN_OK);
  ck_assert_int_eq(f.num_renders, 2);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "kiln_attn_backward"));
  fake_context_destroy(ctx);
}
END_TEST

/* What lies behind the end of a struct of an older header is neither read nor written. */
START_TEST(older_structs_are_taken) {
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args;
  kiln_tile tile;
  kiln_attn_spec taken;
  good_args(&args);
  spec.head_dim = 64;
  spec.size = offsetof(kiln_attn_spec, deterministic);
  spec.deterministic = 77;
  args.size = offsetof(kiln_attn_args, dout);
  memset(&args.do_stride, 0x55, sizeof args.do_stride);
  kiln_attn_args_pack(&args, &spec);
  ck_assert_int_eq(args.do_stride.row, 0x5555555555555555);
  ck_assert_int_eq(kiln__take_spec(ctx, &spec, NULL, &taken, &tile), KILN_OK);
  ck_assert_int_eq(taken.deterministic, 0);
  ck_assert_uint_eq(taken.size, sizeof taken);
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_OK);
  ck_assert_int_eq(kiln_attn_spec_resolve(ctx, &spec, NULL), KILN_OK);
  ck_assert_str_eq(spec.arch, "sm_90a");
  ck_assert_int_eq(spec.deterministic, 77);
  ck_assert_uint_eq(spec.size, offsetof(kiln_attn_spec, deterministic));
  spec.size -= 4;
  ck_assert_int_eq(kiln_attn_forward(ctx, &spec, &args, NULL), KILN_INVALID_ARGUMENT);
  spec.size += 4;
  f.record = record_text;
  ck_assert_int_eq(kiln_attn_backward(ctx, &spec, &args, NULL), KILN_INVALID_ARGUMENT);
  ck_assert_ptr_nonnull(strstr(kiln_last_error(ctx), "args.size has no room for dout"));
  fake_context_destroy(ctx);
}
END_TEST

/* Arrays of an older header: each element begins where that header's ends. */
START_TEST(older_arrays_are_taken) {
  enum {
    OLD_SPEC = offsetof(kiln_attn_spec, deterministic),
    OLD_ARGS = offsetof(kiln_attn_args, dout)
  };
  fake f;
  kiln_context *ctx = fake_context(&f, "");
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args;
  _Alignas(kiln_attn_args) char specs[3 * OLD_SPEC], shapes[3 * OLD_ARGS];
  good_args(&args);
  spec.size = OLD_SPEC, args.size = OLD_ARGS;
  for (int i = 0; i < 3; i++) {
    spec.head_dim = 64 + 8 * i;
    kiln_attn_args_pack(&args, &spec);
    memcpy(specs + i * OLD_SPEC, &spec, OLD_SPEC);
    memcpy(shapes + i * OLD_ARGS, &args, OLD_ARGS);
  }
  ck_assert_msg(kiln_prewarm(ctx, (void *)specs, (void *)shapes, 3) == KILN_OK, "%s",
                kiln_last_error(ctx));
  ck_assert_int_eq(f.num_compiles, 3);
  ck_assert_int_eq(kiln_prewarm(ctx, (void *)specs, (void *)shapes, -1), KILN_INVALID_ARGUMENT);
  ck_assert_str_eq(kiln_last_error(ctx), "count is -1: it must not be negative");
  fake_context_destroy(ctx);
}
END_TEST

/* Whatever the other sizes are: their product would not fit 63 bits. */
START_TEST(no_batch_needs_no_rows) {
  bench b;
  bench_init(&b);
  b.args.batch = 0;
  b.args.seqlen_q = b.args.seqlen_k = 2147479552;
  b.args.num_heads = b.args.num_heads_k = INT32_MAX;
  b.args.workspace_bytes = 1 << 28; /* for the item that no batch counts in */
  ck_assert_msg(bench_run(&b) == KILN_OK, "%s", b.sentence);
  ck_assert_int_eq(b.device.num_launches + b.device.num_clears, 0);
}
END_TEST

START_TEST(a_kernel_is_named_with_its_mode) {
  char text[512];
  kiln__text words;
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT, other = spec;
  const kiln_tile tile = KILN_TILE_INIT;
  spec.head_dim_v = 128;
  spec.pass = KILN_PASS_BACKWARD;
  other = spec;
  other.deterministic = 1;
  kiln__text_init_fixed(&words, text, sizeof text);
  kiln__missing_kernel(&words, &other, &tile, KILN__MISSING_NO_COMPILER);
  ck_assert_ptr_nonnull(strstr(kiln__text_get(&words), " backward deterministic in a pack"));
  ck_assert_ptr_nonnull(strstr(kiln__text_get(&words), " --mask none --deterministic`"));
  ck_assert(!kiln__same_spec(&spec, &other));
  ck_assert(!kiln__spec_same(&spec, &other));
  ck_assert(kiln__spec_same(&other, &other));
}
END_TEST

Suite *suite_backward_launch(void) {
  Suite *suite = suite_create("backward_launch");
  TCase *tests = tcase_create("backward-launch");
  tcase_add_test(tests, a_backward_record);
  tcase_add_loop_test(tests, every_fault_is_named, 0, (int)(sizeof faults / sizeof faults[0]));
  tcase_add_test(tests, three_entries_with_their_arguments);
  tcase_add_test(tests, every_tensor_keeps_its_address_and_strides);
  tcase_add_test(tests, the_layout_of_the_arguments);
  tcase_add_loop_test(tests, empty_sizes, 0, (int)(sizeof empty / sizeof empty[0]));
  tcase_add_loop_test(tests, refusals_launch_nothing, 0,
                      (int)(sizeof refusals / sizeof refusals[0]));
  tcase_add_test(tests, inputs_may_overlap);
  tcase_add_test(tests, one_call_runs_the_backward_pass);
  tcase_add_test(tests, older_structs_are_taken);
  tcase_add_test(tests, older_arrays_are_taken);
  tcase_add_test(tests, no_batch_needs_no_rows);
  tcase_add_test(tests, a_kernel_is_named_with_its_mode);
  suite_add_tcase(suite, tests);
  return suite;
}
