/* The emulator's warp and mma.sync instructions against plain C models: ldmatrix, stmatrix, mma,
 * shuffles, votes, cp.async, barriers, conversions, atomics. Every schedule must give the same. */
#include "emulated.h"
#include "number.h"
#include "suites.h"

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

/* ---- ldmatrix, stmatrix ---- */

/* Shared memory holds 32 rows of 8 elements, element (r, c) = 8 r + c; lane i names row 31 - i. */
static const char ldmatrix_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 lane = (u32)thread_index(), s = shared_base();\n"
                  "  for (u32 i = 0; i < 4; i++) {\n"
                  "    const u32 e = 8 * lane + 2 * i;\n"
                  "    sts_u32(s + 2 * e, e | (e + 1) << 16);\n"
                  "  }\n"
                  "  sync_warp();\n"
                  "  u32 r[4], t[4];\n"
                  "  ldmatrix_x4(r, s + 16 * (31 - lane));\n"
                  "  ldmatrix_x4_trans(t, s + 16 * (31 - lane));\n"
                  "  sync_warp();\n"
                  "  stmatrix_x4(s + 512 + 16 * (31 - lane), r);\n"
                  "  sync_warp();\n"
                  "  u32 *out = (u32 *)a.out + 12 * lane;\n"
                  "  for (u32 i = 0; i < 4; i++) {\n"
                  "    stg_u32(out + i, r[i]);\n"
                  "    stg_u32(out + 4 + i, t[i]);\n"
                  "    stg_u32(out + 8 + i, (u32)lds_i32(s + 512 + 16 * lane + 4 * i));\n"
                  "  }\n"
                  "}\n";

static uint32_t pair(int row0, int column0, int row1, int column1) {
  return (uint32_t)(8 * row0 + column0) | (uint32_t)(8 * row1 + column1) << 16;
}

START_TEST(ldmatrix_and_stmatrix_follow_their_layouts) {
  emulated e;
  uint32_t out[32][12];
  start(&e, _i, 32, ldmatrix_text);
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (int lane = 0; lane < 32; lane++) {
    for (int m = 0; m < 4; m++) {
      const int q = 2 * (lane % 4), g = lane / 4;
      const int row = 31 - (8 * m + g), row0 = 31 - (8 * m + q), row1 = row0 - 1;
      ck_assert_uint_eq(out[lane][m], pair(row, q, row, q + 1));
      ck_assert_uint_eq(out[lane][4 + m], pair(row0, g, row1, g));
      ck_assert_uint_eq(out[lane][8 + m], pair(lane, 2 * m, lane, 2 * m + 1));
    }
  }
  emulated_destroy(&e);
}
END_TEST

/* ---- mma.sync ---- */

/* Fragments are loaded element by element from row-major a (16 x 16), b (16 x 8) and d (16 x 8). */
#define MMA_TEXT(dtype)                                                             \
  EMULATED_ARGS                                                                     \
  "KERNEL void test_kernel(PARAM Args x) {\n"                                       \
  "  const int g = thread_index() / 4, q = thread_index() % 4;\n"                   \
  "  const u16 *pa = (const u16 *)x.in, *pb = pa + 256;\n"                          \
  "  const float *pd = (const float *)x.in2;\n"                                     \
  "  u32 a[4], b[2];\n"                                                             \
  "  float d[4];\n"                                                                 \
  "  for (int i = 0; i < 4; i++) {\n"                                               \
  "    const u16 *p = pa + (g + 8 * (i & 1)) * 16 + 2 * q + 8 * (i >> 1);\n"        \
  "    a[i] = ldg_u16(p) | ldg_u16(p + 1) << 16;\n"                                 \
  "    d[i] = ldg_f32(pd + (g + 8 * (i >> 1)) * 8 + 2 * q + (i & 1));\n"            \
  "  }\n"                                                                           \
  "  for (int i = 0; i < 2; i++) {\n"                                               \
  "    const u16 *p = pb + (2 * q + 8 * i) * 8 + g;\n"                              \
  "    b[i] = ldg_u16(p) | ldg_u16(p + 8) << 16;\n"                                 \
  "  }\n"                                                                           \
  "  mma_m16n8k16_" dtype "(d, a, b);\n"                                            \
  "  for (int i = 0; i < 4; i++)\n"                                                 \
  "    stg_f32((float *)x.out + (g + 8 * (i >> 1)) * 8 + 2 * q + (i & 1), d[i]);\n" \
  "}\n"

static const char *const mma_texts[] = {MMA_TEXT("fp16"), MMA_TEXT("bf16")};

static uint16_t encode(int dtype, float x) {
  return (uint16_t)(dtype ? kiln__bf16_encode(x) : kiln__fp16_encode(x));
}

static float decode(int dtype, uint16_t x) {
  return dtype ? kiln__bf16_decode(x) : kiln__fp16_decode(x);
}

/* Quarters up to 8 in size: every sum is exact, whatever its order. */
static float quarter(void) { return (float)(rand() % 65 - 32) / 4; }

START_TEST(mma_is_a_matrix_product) {
  emulated e;
  uint16_t operands[256 + 128];
  float d[128], out[128];
  const int dtype = _i % 2;
  srand(7);
  for (int i = 0; i < 384; i++) operands[i] = encode(dtype, quarter());
  for (int i = 0; i < 128; i++) d[i] = quarter();
  start(&e, _i / 2, 32, mma_texts[dtype]);
  e.args.in = emulated_upload(&e, operands, sizeof operands);
  e.args.in2 = emulated_upload(&e, d, sizeof d);
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (int row = 0; row < 16; row++) {
    for (int column = 0; column < 8; column++) {
      float sum = d[8 * row + column];
      for (int k = 0; k < 16; k++)
        sum +=
            decode(dtype, operands[16 * row + k]) * decode(dtype, operands[256 + 8 * k + column]);
      ck_assert(out[8 * row + column] == sum);
    }
  }
  emulated_destroy(&e);
}
END_TEST

/* Subnormals, infinities and NaN as operands: one product a row, 1 elsewhere. */
START_TEST(mma_takes_every_fp16_number) {
  static const uint16_t special[8] = {0x0001, 0x03ff, 0x8001, 0x7bff,
                                      0x7c00, 0xfc00, 0x7e00, 0x8000};
  emulated e;
  uint16_t operands[256 + 128] = {0};
  float d[128] = {0}, out[128];
  for (int row = 0; row < 8; row++) operands[16 * row] = special[row];
  operands[256] = 0x3c00; /* 1 at k = 0, column 0 */
  start(&e, 0, 32, mma_texts[0]);
  e.args.in = emulated_upload(&e, operands, sizeof operands);
  e.args.in2 = emulated_upload(&e, d, sizeof d);
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (int row = 0; row < 8; row++) {
    const float wanted = kiln__fp16_decode(special[row]);
    ck_assert(out[8 * row] == wanted || (wanted != wanted && out[8 * row] != out[8 * row]));
  }
  emulated_destroy(&e);
}
END_TEST

/* ---- shuffles, votes ---- */

static const char shuffle_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const int lane = thread_index();\n"
                  "  u32 *out = (u32 *)a.out + 6 * lane;\n"
                  "  stg_u32(out, (u32)shfl_i32(lane * 3, (lane + 5) % 32));\n"
                  "  stg_u32(out + 1, (u32)shfl_xor_f32((float)lane, 9));\n"
                  "  stg_u32(out + 2, shfl_xor_u32((u32)lane, 16));\n"
                  "  stg_u32(out + 3, (u32)any_sync(lane == 17));\n"
                  "  stg_u32(out + 4, (u32)any_sync(0));\n"
                  "  stg_u32(out + 5, (u32)redux_max_i32(lane == 4 ? -1 : -100 - lane));\n"
                  "}\n";

START_TEST(shuffles_and_votes) {
  emulated e;
  uint32_t out[32][6];
  start(&e, _i, 32, shuffle_text);
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (uint32_t lane = 0; lane < 32; lane++) {
    ck_assert_uint_eq(out[lane][0], (lane + 5) % 32 * 3);
    ck_assert_uint_eq(out[lane][1], lane ^ 9);
    ck_assert_uint_eq(out[lane][2], lane ^ 16);
    ck_assert_uint_eq(out[lane][3], 1);
    ck_assert_uint_eq(out[lane][4], 0);
    ck_assert_uint_eq(out[lane][5], 0xffffffffu);
  }
  emulated_destroy(&e);
}
END_TEST

/* ---- conversions ---- */

static const char pack_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  for (i64 i = thread_index(); i < a.n; i += 32) {\n"
                  "    const float x = ldg_f32((const float *)a.in + i);\n"
                  "    stg_u32((u32 *)a.out + 2 * i, pack_bf16(x, -x));\n"
                  "    stg_u32((u32 *)a.out + 2 * i + 1, pack_fp16(x, -x));\n"
                  "  }\n"
                  "}\n";

enum { NUM_FLOATS = 1 << 16 };

START_TEST(conversions_round_to_nearest_even) {
  emulated e;
  float *in = malloc(NUM_FLOATS * sizeof *in);
  uint32_t *out = malloc(2 * NUM_FLOATS * sizeof *out);
  srand(11);
  for (int i = 0; i < NUM_FLOATS; i++) {
    /* every sign and exponent, mantissas at and beside the midpoints */
    const uint32_t low = (uint32_t[]){0, 0x1000, 0x8000, 0xfff, 0x7fff, 0x1001}[i % 6];
    const uint32_t bits = (uint32_t)i << 16 | (low ^ ((uint32_t)rand() & 0xe000 & -(i % 3 == 0)));
    memcpy(&in[i], &bits, sizeof bits);
  }
  start(&e, 0, 32, pack_text);
  e.args.in = emulated_upload(&e, in, NUM_FLOATS * sizeof *in);
  e.args.out = emulated_alloc(&e, 2 * NUM_FLOATS * sizeof *out);
  e.args.n = NUM_FLOATS;
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, 2 * NUM_FLOATS * sizeof *out);
  for (int i = 0; i < NUM_FLOATS; i++) {
    if (in[i] != in[i]) {
      ck_assert_uint_eq(out[2 * i], 0x7fff7fffu);
      ck_assert_uint_eq(out[2 * i + 1], 0x7fff7fffu);
      continue;
    }
    ck_assert_uint_eq(out[2 * i] & 0xffff, kiln__bf16_encode(in[i]));
    ck_assert_uint_eq(out[2 * i + 1] & 0xffff, kiln__fp16_encode(in[i]));
    ck_assert_uint_eq(out[2 * i] >> 16, kiln__bf16_encode(-in[i]));
    ck_assert_uint_eq(out[2 * i + 1] >> 16, kiln__fp16_encode(-in[i]));
  }
  emulated_destroy(&e);
  free(in);
  free(out);
}
END_TEST

/* ---- cp.async ---- */

/* Thread t copies t % 17 bytes; the group behind it is not waited for until the end. */
static const char copy_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), s = shared_base();\n"
                  "  cp_async_16(s + 16 * t, (const char *)a.in + 16 * t, (int)(t % 17));\n"
                  "  cp_async_commit();\n"
                  "  cp_async_16(s + 4096 + 16 * t, (const char *)a.in + 16 * t, 16);\n"
                  "  cp_async_commit();\n"
                  "  cp_async_wait(1);\n"
                  "  sync_threads();\n"
                  "  u32 x[4];\n"
                  "  lds_u32x4(x, s + 16 * (63 - t));\n"
                  "  stg_u32x4((char *)a.out + 16 * (63 - t), x);\n"
                  "  cp_async_wait(0);\n"
                  "  sync_threads();\n"
                  "  lds_u32x4(x, s + 4096 + 16 * (63 - t));\n"
                  "  stg_u32x4((char *)a.out + 1024 + 16 * (63 - t), x);\n"
                  "}\n";

START_TEST(copies_fill_with_zeros) {
  emulated e;
  unsigned char in[1024], out[2048];
  for (int i = 0; i < 1024; i++) in[i] = (unsigned char)(1 + i % 255);
  start(&e, _i, 64, copy_text);
  e.args.in = emulated_upload(&e, in, sizeof in);
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (int i = 0; i < 1024; i++) {
    ck_assert_int_eq(out[i], i % 16 < i / 16 % 17 ? in[i] : 0);
    ck_assert_int_eq(out[1024 + i], in[i]);
  }
  emulated_destroy(&e);
}
END_TEST

/* ---- barriers, blocks, atomics ---- */

/* Warp 0 produces ten values for warp 1, one slot, two named barriers: 1 = full, 2 = empty. */
static const char named_text[] = EMULATED_ARGS
    "KERNEL void test_kernel(PARAM Args a) {\n"
    "  const u32 lane = (u32)thread_index() & 31, s = shared_base();\n"
    "  const int producer = thread_index() < 32;\n"
    "  for (int i = 0; i < 10; i++) {\n"
    "    if (producer) {\n"
    "      if (i) named_sync(2, 64);\n"
    "      sts_i32(s + 4 * lane, i * 100 + (int)lane);\n"
    "      named_arrive(1, 64);\n"
    "    } else {\n"
    "      named_sync(1, 64);\n"
    "      stg_u32((u32 *)a.out + 32 * i + lane, (u32)lds_i32(s + 4 * (31 - lane)));\n"
    "      if (i < 9) named_arrive(2, 64);\n"
    "    }\n"
    "  }\n"
    "}\n";

START_TEST(named_barriers_pass_values) {
  emulated e;
  uint32_t out[320];
  start(&e, _i, 64, named_text);
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (uint32_t i = 0; i < 320; i++) ck_assert_uint_eq(out[i], i / 32 * 100 + 31 - i % 32);
  emulated_destroy(&e);
}
END_TEST

/* Warp 1 sets a flag that warp 0 polls; the value behind it comes by a barrier. */
static const char flag_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 s = shared_base();\n"
                  "  if (thread_index() == 0) sts_flag(s, 0);\n"
                  "  sync_threads();\n"
                  "  if (thread_index() >= 32) sts_flag(s, 5);\n"
                  "  while (lds_flag(s) != 5) {}\n"
                  "  if (thread_index() == 0) stg_u32(a.out, (u32)lds_flag(s));\n"
                  "}\n";

START_TEST(a_flag_is_polled) {
  emulated e;
  uint32_t out;
  start(&e, _i, 64, flag_text);
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, &out, e.args.out, sizeof out);
  ck_assert_uint_eq(out, 5);
  emulated_destroy(&e);
}
END_TEST

static const char blocks_text[] = EMULATED_ARGS
    "KERNEL void test_kernel(PARAM Args a) {\n"
    "  if (thread_index() == 0) {\n"
    "    const u64 ticket = atomic_add_u64((u64 *)a.in, 2);\n"
    "    stg_u32((u32 *)a.out + ticket / 2, (u32)(block_index() + 100 * num_blocks()));\n"
    "  }\n"
    "}\n";

START_TEST(blocks_share_an_atomic) {
  emulated e;
  uint64_t counter = 0;
  uint32_t out[7], sum = 0;
  start(&e, _i, 32, blocks_text);
  e.blocks = 7;
  e.args.in = emulated_upload(&e, &counter, sizeof counter);
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, &counter, e.args.in, sizeof counter);
  emulated_download(&e, out, e.args.out, sizeof out);
  ck_assert_uint_eq(counter, 14);
  for (int i = 0; i < 7; i++) sum += out[i];
  ck_assert_uint_eq(sum, 7 * 700 + 21);
  emulated_destroy(&e);
}
END_TEST

/* Sums that nobody set to zero, in blocks that come after others on the same stacks. */
static const char unset_text[] = EMULATED_ARGS
    "KERNEL void test_kernel(PARAM Args a) {\n"
    "  const u32 p[4] = {0, 0, 0, 0};\n"
    "  float d[16];\n"
    "  for (int i = 0; i < 16; i += 4) mma_m16n8k16_bf16(d + i, p, p);\n"
    "  for (int i = 0; i < 16; i++)\n"
    "    stg_f32((float *)a.out + 512 * block_index() + 16 * thread_index() + i, d[i]);\n"
    "}\n";

START_TEST(locals_begin_as_nan) {
  emulated e;
  static float out[9 * 512];
  start(&e, _i, 32, unset_text);
  e.blocks = 9;
  e.args.out = emulated_alloc(&e, sizeof out);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (int i = 0; i < 9 * 512; i++) ck_assert(out[i] != out[i]);
  emulated_destroy(&e);
}
END_TEST

Suite *suite_emulator_warp(void) {
  Suite *suite = suite_create("emulator_warp");
  TCase *tests = tcase_create("instructions");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, ldmatrix_and_stmatrix_follow_their_layouts, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, mma_is_a_matrix_product, 0, 2 * NUM_SCHEDULES);
  tcase_add_test(tests, mma_takes_every_fp16_number);
  tcase_add_loop_test(tests, shuffles_and_votes, 0, NUM_SCHEDULES);
  tcase_add_test(tests, conversions_round_to_nearest_even);
  tcase_add_loop_test(tests, copies_fill_with_zeros, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, named_barriers_pass_values, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, a_flag_is_polled, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, blocks_share_an_atomic, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, locals_begin_as_nan, 0, NUM_SCHEDULES);
  suite_add_tcase(suite, tests);
  return suite;
}
