/* What lanes tell each other, elections, atomics in shared memory, tries of mbarriers, on the
 * emulator: against plain C, under every schedule; and the faults that they allow. */
#include "emulated.h"
#include "number.h"
#include "suites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  int64_t seed;
} schedules[] = {{"late", -1}, {"eager", -1}, {"random", 1}, {"random", 2}};

enum { NUM_SCHEDULES = sizeof schedules / sizeof *schedules };

static void start(emulated *e, int i, int threads, const char *text) {
  emulated_create(e, schedules[i].name, schedules[i].seed, threads);
  emulated_compile(e, text);
}

/* ---- shuffles, votes, reductions ---- */

enum { COUNT = 14 };

static const char lanes_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 lane = (u32)thread_index();\n"
                  "  u32 *out = (u32 *)a.out + lane, x[4];\n"
                  "  ldg_u32x4(x, (const u32 *)a.in + lane / 4 * 4);\n"
                  "  const u32 v = x[lane % 4], n = (u32)a.n;\n"
                  "  const u32 y[14] = {\n"
                  "    (u32)shfl_up_i32((int)v, (int)n), (u32)shfl_down_i32((int)v, (int)n),\n"
                  "    ballot_sync((int)(v & 1)), (u32)all_sync((int)(v & 2)),\n"
                  "    (u32)all_sync(lane != n || v), redux_add_u32(v), redux_min_u32(v),\n"
                  "    redux_max_u32(v), (u32)redux_min_i32((int)v), redux_and_u32(v | n),\n"
                  "    redux_or_u32(v & n), redux_xor_u32(v), (u32)redux_add_i32((int)v),\n"
                  "    byte_perm(v, n, 0x7250)};\n"
                  "  for (int i = 0; i < 14; i++) stg_u32(out + 32 * i, y[i]);\n"
                  "}\n";

static uint32_t reduced(const uint32_t *v, uint32_t n, int what) {
  uint32_t r = what == 6 || what == 9 ? ~0u : what == 8 ? INT32_MAX : 0;
  for (int i = 0; i < 32; i++) {
    const uint32_t x = v[i];
    if (what == 5 || what == 12) r += x;
    if (what == 6 && x < r) r = x;
    if (what == 7 && x > r) r = x;
    if (what == 8 && (int32_t)x < (int32_t)r) r = x;
    if (what == 9) r &= x | n;
    if (what == 10) r |= x & n;
    if (what == 11) r ^= x;
  }
  return r;
}

static uint32_t wanted_of(const uint32_t *v, uint32_t n, int what, int lane) {
  uint32_t bits = 0, twos = ~0u;
  for (int i = 0; i < 32; i++) {
    bits |= (v[i] & 1) << i;
    if (!(v[i] & 2)) twos = 0;
  }
  switch (what) {
  case 0: return v[lane < (int)n ? lane : lane - (int)n];
  case 1: return v[lane + (int)n > 31 ? lane : lane + (int)n];
  case 2: return bits;
  case 3: return twos != 0;
  case 4: return v[n] != 0;
  case 13: return (v[lane] & 0xff) | (n >> 8 & 0xff) << 8 | (v[lane] & 0xff0000) | (n & 0xff000000);
  default: return reduced(v, n, what);
  }
}

START_TEST(lanes_tell_what_the_isa_says) {
  emulated e;
  uint32_t v[32], out[COUNT][32];
  start(&e, _i, 32, lanes_text);
  e.args.in = emulated_alloc(&e, sizeof v);
  e.args.out = emulated_alloc(&e, sizeof out);
  srand(5);
  for (e.args.n = 0; e.args.n < 32; e.args.n++) {
    for (int i = 0; i < 32; i++) v[i] = (uint32_t)rand() * 3u | (e.args.n % 3 == 0) * 2u;
    if (e.args.n % 4 == 1) v[e.args.n] = 0;
    ck_assert_int_eq(kiln__emulator_ops.upload(e.device, e.args.in, v, sizeof v, &e.error), 0);
    emulated_run(&e);
    emulated_download(&e, out, e.args.out, sizeof out);
    for (int what = 0; what < COUNT; what++)
      for (int lane = 0; lane < 32; lane++)
        ck_assert_msg(out[what][lane] == wanted_of(v, (uint32_t)e.args.n, what, lane),
                      "%d of lane %d, n = %d", what, lane, (int)e.args.n);
  }
  emulated_destroy(&e);
}
END_TEST

START_TEST(another_reduction_of_the_warp_is_named) {
  emulated e;
  emulated_create(&e, schedules[_i].name, schedules[_i].seed, 32);
  emulated_must_fault(&e,
                      EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                                    "  const u32 t = (u32)thread_index(); (void)a;\n"
                                    "  if (t < 9) redux_add_u32(t); else redux_xor_u32(t);\n"
                                    "}\n",
                      "meets another reduction");
  emulated_destroy(&e);
}
END_TEST

/* ---- the election ---- */

static const char elect_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const int t = thread_index();\n"
                  "  grid_wait();\n"
                  "  for (int i = 0; i < 3; i++)\n"
                  "    if (elect_one()) stg_u32((u32 *)a.out + t / 32 * 3 + i, (u32)t % 32);\n"
                  "  grid_launch_dependents();\n"
                  "}\n";

/* One lane of each warp, the same every time; late, not lane 0. */
START_TEST(the_elected_lane_is_always_the_same) {
  uint32_t out[6];
  for (int i = 0; i < NUM_SCHEDULES; i++) {
    emulated e;
    start(&e, i, 64, elect_text);
    e.args.out = emulated_alloc(&e, sizeof out);
    emulated_run(&e);
    emulated_download(&e, out, e.args.out, sizeof out);
    for (int n = 0; n < 6; n++) ck_assert_uint_eq(out[n], out[0]);
    ck_assert_uint_lt(out[0], 32);
    ck_assert(i > 0 || out[0] != 0);
    emulated_destroy(&e);
  }
}
END_TEST

/* ---- atomics in shared memory ---- */

static const char atomics_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), s = shared_base();\n"
                  "  const u32 zeros[4] = {0, 0x80000000, 0, 0};\n"
                  "  if (t == 70) sts_u32x4(s, zeros);\n"
                  "  sync_threads(); /* zeros */\n"
                  "  stg_u32((u32 *)a.out + 4 + atomic_shared_add_u32(s, 1), t);\n"
                  "  atomic_shared_max_i32(s + 4, (int)(t * 29 % 96) - 50);\n"
                  "  atomic_shared_add_f32(s + 8, (float)t);\n"
                  "  sync_threads(); /* sums */\n"
                  "  if (t < 4) stg_u32((u32 *)a.out + t, (u32)lds_i32(s + 4 * t));\n"
                  "}\n";

START_TEST(shared_atomics_lose_nothing) {
  emulated e;
  uint32_t out[4 + 96], seen[96] = {0};
  float sum;
  start(&e, _i, 96, atomics_text);
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  memcpy(&sum, &out[2], sizeof sum);
  ck_assert_uint_eq(out[0], 96);
  ck_assert_int_eq((int)out[1], 45);
  ck_assert(sum == 95.0f * 96.0f / 2.0f);
  for (int i = 0; i < 96; i++) seen[out[4 + i]]++;
  for (int i = 0; i < 96; i++) ck_assert_uint_eq(seen[i], 1);
  emulated_destroy(&e);
}
END_TEST

/* ---- tries ---- */

static const char tries_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM TensorMap map, PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), s = shared_base(), full = s + 8192;\n"
                  "  u32 x[4], tries = 0;\n"
                  "  if (t == 0) {\n"
                  "    bar_init(full, 1);\n"
                  "    bar_init(full + 8, 1);\n"
                  "    fence_bar_init();\n"
                  "  }\n"
                  "  sync_threads();\n"
                  "  const int early = bar_try(full + 8, 0); /* nobody arrives */\n"
                  "  sync_threads();\n"
                  "  if (t == 0) {\n"
                  "    bar_expect(full, 128);\n"
                  "    tma_load(s, &map, full, 0, 0, 0, 0, 0);\n"
                  "  }\n"
                  "  while (!bar_try(full, 0)) tries++;\n"
                  "  lds_u32x4(x, s + 16 * (t % 8));\n"
                  "  stg_u32x4((char *)a.out + 16 * t, x);\n"
                  "  stg_u32((u32 *)a.out + 256 + 2 * t, (u32)early);\n"
                  "  stg_u32((u32 *)a.out + 257 + 2 * t, tries);\n"
                  "}\n";

static void prepare_tries(emulated *e, int schedule, const uint32_t *box) {
  emulated_create(e, schedules[schedule].name, schedules[schedule].seed, 64);
  emulated_map(e, emulated_upload(e, box, 128), 1, 64, 1, 64, 0);
  e->args.out = emulated_alloc(e, 1024 + 512);
}

/* The first try, of a phase that never comes, runs out of time; late and random, others fail for
 * nothing. */
START_TEST(a_try_may_fail_and_may_be_made_again) {
  emulated e;
  uint32_t box[32], out[384], tries = 0;
  for (uint32_t i = 0; i < 32; i++) box[i] = 7 * i;
  prepare_tries(&e, _i, box);
  emulated_compile(&e, tries_text);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (int t = 0; t < 64; t++) {
    ck_assert_mem_eq(out + 4 * t, box + t % 8 * 4, 16);
    ck_assert_uint_eq(out[256 + 2 * t], 0);
    tries += out[257 + 2 * t];
  }
  ck_assert(strcmp(schedules[_i].name, "eager") ? tries > 0 : tries == 0);
  emulated_destroy(&e);
}
END_TEST

/* Late, the first try of every thread fails, even of a phase that is complete. */
START_TEST(the_first_try_fails_late) {
  emulated e;
  uint32_t out[2];
  start(&e, 0, 32,
        EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                      "  const u32 s = shared_base();\n"
                      "  if (thread_index() == 0) {\n"
                      "    bar_init(s, 1);\n"
                      "    stg_u32(a.out, (u32)bar_try(s, 1));\n"
                      "    stg_u32((u32 *)a.out + 1, (u32)bar_try(s, 1));\n"
                      "  }\n"
                      "}\n");
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  ck_assert_uint_eq(out[0], 0);
  ck_assert_uint_eq(out[1], 1);
  emulated_destroy(&e);
}
END_TEST

typedef struct fault {
  const char *old, *new_text, *expected;
} fault;

static const fault try_faults[] = {
    {"while (!bar_try(full, 0)) tries++;", "bar_try(full, 0);", "that nothing has written"},
    {"bar_expect(full, 128)", "bar_expect(full, 256)",
     "bar_try(full, 0) for mbarrier full#0 parity 0 (phase 0, 0 of 1"},
    {"bar_try(full, 0)) tries++", "bar_try(full + 8, 0)) tries++", "deadlock"},
    {"bar_try(full, 0)) tries++", "bar_try(full, 2)) tries++", "parity 2"},
    {"bar_try(full, 0)) tries++", "bar_try(full + 16, 0)) tries++", "not an initialised mbarrier"},
};

enum { NUM_TRY = sizeof try_faults / sizeof *try_faults };

static const fault atomic_faults[] = {
    {"sync_threads(); /* zeros */", "", "that nothing has written"},
    {"sync_threads(); /* sums */", "", "is not ordered after"},
    {"sync_threads(); /* sums */", "any_sync(1);", "is not ordered after"},
    {"atomic_shared_add_f32(s + 8, (float)t);", "sts_f32(s + 8, (float)t);",
     "is not ordered after"},
    {"atomic_shared_add_u32(s, 1)", "atomic_shared_add_u32(s + 2, 1)", "is not a multiple of 4"},
};

enum { NUM_ATOMIC = sizeof atomic_faults / sizeof *atomic_faults };

START_TEST(faults_of_tries_are_named) {
  emulated e;
  static const uint32_t box[32];
  const int schedule = _i / NUM_TRY * 2; /* eager, no try fails for nothing */
  const fault *f = &try_faults[_i % NUM_TRY];
  char *text = emulated_edit(tries_text, f->old, f->new_text);
  prepare_tries(&e, schedule, box);
  emulated_must_fault(&e, text, schedule == 0 ? f->expected : "emulator stopped");
  emulated_destroy(&e);
  free(text);
}
END_TEST

START_TEST(faults_of_shared_atomics_are_named) {
  emulated e;
  const int schedule = _i / NUM_ATOMIC;
  const fault *f = &atomic_faults[_i % NUM_ATOMIC];
  char *text = emulated_edit(atomics_text, f->old, f->new_text);
  emulated_create(&e, schedules[schedule].name, schedules[schedule].seed, 96);
  e.args.out = emulated_alloc(&e, 400);
  emulated_must_fault(&e, text, schedule == 0 ? f->expected : "emulator stopped");
  emulated_destroy(&e);
  free(text);
}
END_TEST

/* A thread reads the word behind an atomic of its own, and has not heard of another's before it. */
START_TEST(every_atomic_counts) {
  emulated e;
  emulated_create(&e, schedules[_i].name, schedules[_i].seed, 64);
  e.args.out = emulated_alloc(&e, 4);
  emulated_must_fault(&e,
                      EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                                    "  const u32 t = (u32)thread_index(), s = shared_base();\n"
                                    "  if (t == 0) { sts_u32(s, 0); sts_u32(s + 32, 0); }\n"
                                    "  sync_threads();\n"
                                    "  if (t == 32) {\n"
                                    "    atomic_shared_add_u32(s, 1);\n"
                                    "    sts_flag(s + 32, 1);\n"
                                    "  }\n"
                                    "  if (t) return;\n"
                                    "  while (!lds_flag(s + 32)) {}\n"
                                    "  atomic_shared_add_u32(s, 1);\n"
                                    "  stg_u32(a.out, (u32)lds_i32(s));\n"
                                    "}\n",
                      "lds_i32(s) at shared 0x400 is not ordered after");
  emulated_destroy(&e);
}
END_TEST

/* ---- matrices, stored by columns ---- */

static const char columns_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 lane = (u32)thread_index(), s = shared_base();\n"
                  "  u32 r[4], x[4];\n"
                  "  for (u32 m = 0; m < 4; m++)\n"
                  "    r[m] = (64 * m + 2 * lane) | (64 * m + 2 * lane + 1) << 16;\n"
                  "  stmatrix_x4_trans(s + 16 * lane, r);\n"
                  "  sync_warp();\n"
                  "  lds_u32x4(x, s + 16 * lane);\n"
                  "  stg_u32x4((char *)a.out + 16 * lane, x);\n"
                  "}\n";

/* Element (row, column) of the registers' matrix is 64 m + 8 row + column; memory has it turned. */
START_TEST(matrices_are_stored_by_columns) {
  emulated e;
  uint16_t out[4][8][8];
  start(&e, _i, 32, columns_text);
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (int i = 0; i < 256; i++) ck_assert_int_eq(out[i / 64][i % 8][i / 8 % 8], i);
  emulated_destroy(&e);
}
END_TEST

/* ---- conversions ---- */

static const char numbers_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  for (u32 i = (u32)thread_index(); i < 65536; i += 128) {\n"
                  "    const float x = unpack_fp16(i), y = unpack_bf16(i);\n"
                  "    stg_f32((float *)a.out + i, x);\n"
                  "    stg_f32((float *)a.out + 65536 + i, y);\n"
                  "    stg_u32((u32 *)a.out + 131072 + i, pack_e4m3(x, y));\n"
                  "  }\n"
                  "}\n";

/* The nearest e4m3 number to x, ties to the even code; 448 where x is larger. */
static unsigned nearest_e4m3(float x) {
  unsigned best = 0;
  double error = INFINITY;
  if (isnan(x)) return 0x7f;
  for (unsigned code = 0; code < 0x7f; code++) {
    const double e = fabs(fabs((double)x) - (double)kiln__e4m3_decode((uint8_t)code));
    if (e < error || (e == error && code % 2 == 0)) best = code;
    error = fmin(error, e);
  }
  return isinf(x) ? (signbit(x) ? 0xfe : 0x7e) : best | (signbit(x) ? 0x80 : 0);
}

START_TEST(numbers_are_converted_to_the_nearest) {
  emulated e;
  static float out[3 * 65536];
  start(&e, 0, 128, numbers_text);
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (unsigned i = 0; i < 65536; i++) {
    const float x = kiln__fp16_decode((uint16_t)i), y = kiln__bf16_decode((uint16_t)i);
    uint32_t packed;
    memcpy(&packed, &out[131072 + i], sizeof packed);
    ck_assert(isnan(x) ? isnan(out[i]) : out[i] == x && signbit(out[i]) == signbit(x));
    ck_assert(isnan(y) ? isnan(out[65536 + i]) : out[65536 + i] == y);
    if (i % 7) continue; /* the model is slow */
    ck_assert_uint_eq(packed & 0xff, nearest_e4m3(x));
    ck_assert_uint_eq(packed >> 8, nearest_e4m3(y));
  }
  emulated_destroy(&e);
}
END_TEST

Suite *suite_emulator_lanes(void) {
  Suite *suite = suite_create("emulator_lanes");
  TCase *tests = tcase_create("lanes");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, lanes_tell_what_the_isa_says, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, another_reduction_of_the_warp_is_named, 0, NUM_SCHEDULES);
  tcase_add_test(tests, the_elected_lane_is_always_the_same);
  tcase_add_loop_test(tests, shared_atomics_lose_nothing, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, faults_of_shared_atomics_are_named, 0, 2 * NUM_ATOMIC);
  tcase_add_loop_test(tests, every_atomic_counts, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, a_try_may_fail_and_may_be_made_again, 0, NUM_SCHEDULES);
  tcase_add_test(tests, the_first_try_fails_late);
  tcase_add_loop_test(tests, faults_of_tries_are_named, 0, 2 * NUM_TRY);
  tcase_add_loop_test(tests, matrices_are_stored_by_columns, 0, NUM_SCHEDULES);
  tcase_add_test(tests, numbers_are_converted_to_the_nearest);
  suite_add_tcase(suite, tests);
  return suite;
}
