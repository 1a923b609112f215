/* wgmma of 8-bit numbers, and with an A that is MN-major in shared memory, on the emulator: against
 * plain C, under every schedule. The other products: test_emulator_hopper.c. */
#include "emulated.h"
#include "number.h"
#include "suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  int64_t seed;
} schedules[] = {{"late", -1}, {"eager", -1}, {"random", 1}, {"random", 2}};

enum { NUM_SCHEDULES = sizeof schedules / sizeof *schedules };

/* a is 64 rows of 128 bytes, or 64 rows (k) of 64 columns (m); b is n rows of 128 bytes, or 64 rows
 * (k) of n columns. Swizzle 128. */
typedef struct product {
  const char *name; /* of the wrapper, without n */
  int n, from_registers, a_major, b_major, is_byte;
} product;

static const product products[] = {
    {"wgmma_ss_n%d_e4m3", 64, 0, 0, 0, 1},      {"wgmma_rs_n%d_e4m3", 40, 1, 0, 0, 1},
    {"wgmma_ss_n%d_e4m3", 256, 0, 0, 0, 1},     {"wgmma_ss_n%d_bf16_ta", 64, 0, 1, 0, 0},
    {"wgmma_ss_n%d_bf16_tab", 128, 0, 1, 1, 0}, {"wgmma_ss_n%d_bf16_ta", 8, 0, 1, 0, 0},
};

enum { NUM_PRODUCTS = sizeof products / sizeof *products };

static const char product_text[] = EMULATED_ARGS
    "enum { N = %d, PANELS = (N + 63) / 64 };\n"
    "KERNEL void test_kernel(PARAM TensorMap map_a, PARAM TensorMap map_b, PARAM Args x) {\n"
    "  const u32 t = (u32)thread_index(), s = shared_base(), b = s + 8192, bar = b + 36864;\n"
    "  const int row = (int)(t / 32 * 16 + t %% 32 / 4), column = (int)(2 * (t %% 4));\n"
    "  if (t == 0) {\n"
    "    bar_init(bar, 1);\n"
    "    fence_bar_init();\n"
    "  }\n"
    "  sync_threads();\n"
    "  if (t == 0) {\n"
    "    bar_expect(bar, 8192 + (%d ? 8192 * PANELS : 128 * N));\n"
    "    tma_load_2d(s, &map_a, bar, 0, 0, 0);\n"
    "    for (int i = 0; i < (%d ? PANELS : 1); i++)\n"
    "      tma_load_2d(b + 8192 * (u32)i, &map_b, bar, 64 * i, 0, 0);\n"
    "  }\n"
    "  bar_wait(bar, 0); /* a and b */\n"
    "  u32 f[16];\n"
    "  float d[N / 2];\n"
    "  for (int i = 0; i < N / 2; i++) d[i] = 1.0f;\n"
    "  for (int i = 0; i < 16; i++) {\n"
    "    const u16 *p = (const u16 *)x.in + (row + i %% 2 * 8) * 64 + column + i / 2 * 8;\n"
    "    f[i] = ldg_u16(p) | ldg_u16(p + 1) << 16;\n"
    "  }\n"
    "  (void)f;\n"
    "  const u64 da = %s | s >> 4, db = %s | b >> 4;\n"
    "  (void)da;\n"
    "  wgmma_fence();\n"
    "  for (int k = 0; k < 4; k++) %s(d, %s, db + %d * (u64)k, x.n || k);\n"
    "  wgmma_commit();\n"
    "  wgmma_wait(0);\n"
    "  touch_f32x%d(d);\n"
    "  for (int i = 0; i < N / 2; i++)\n"
    "    stg_f32((float *)x.out + (row + i %% 4 / 2 * 8) * N + i / 4 * 8 + column + i %% 2, "
    "d[i]);\n"
    "}\n";

static void write_text(const product *p, char *text, size_t size) {
  static const char k_major[] = "0x4000004000010000ull", mn_major[] = "0x4000004002000000ull";
  char name[64];
  snprintf(name, sizeof name, p->name, p->n);
  snprintf(text, size, product_text, p->n, p->b_major, p->b_major, p->a_major ? mn_major : k_major,
           p->b_major ? mn_major : k_major, name,
           p->from_registers ? "f + 4 * k"
           : p->a_major      ? "da + 128 * (u64)k"
                             : "da + 2 * (u64)k",
           p->b_major ? 128 : 2, p->n / 2);
}

/* Bytes of random numbers: any finite e4m3 below 16, or whole bf16. */
static void fill(const product *p, uint8_t *to, int bytes) {
  for (int i = 0; i < bytes; i += 2) {
    const uint16_t whole = (uint16_t)kiln__bf16_encode((float)(rand() % 17 - 8));
    for (int b = 0; b < 2; b++)
      to[i + b] =
          p->is_byte ? (uint8_t)((rand() & 0x80) | rand() % 0x58) : (uint8_t)(whole >> 8 * b);
  }
}

static double number(const product *p, const uint8_t *at, int index) {
  uint16_t x;
  if (p->is_byte) return (double)kiln__e4m3_decode(at[index]);
  memcpy(&x, at + 2 * index, sizeof x);
  return (double)kiln__bf16_decode(x);
}

static double wanted_of(const product *p, const uint8_t *a, const uint8_t *b, int row, int column) {
  const int depth = p->is_byte ? 128 : 64;
  double sum = 0;
  for (int k = 0; k < depth; k++)
    sum += number(p, a, p->a_major ? k * 64 + row : row * depth + k) *
           number(p, b, p->b_major ? k * p->n + column : column * depth + k);
  return sum;
}

static void add_map(emulated *e, const product *p, const void *at, int rows, int columns) {
  const int each = p->is_byte ? 1 : 2;
  const kiln__tensor_map map = {.address = at,
                                .rank = 2,
                                .dims = {(uint64_t)columns, (uint64_t)rows},
                                .strides = {(uint64_t)(columns * each)},
                                .box = {(uint32_t)(128 / each), (uint32_t)rows},
                                .dtype = p->is_byte ? KILN_DTYPE_E4M3 : KILN_DTYPE_BF16,
                                .swizzle = 128};
  emulated_tensor(e, &map);
}

static void prepare(emulated *e, const product *p, int schedule, uint8_t *a, uint8_t *b) {
  const int depth = p->is_byte ? 128 : 64;
  emulated_create(e, schedules[schedule].name, schedules[schedule].seed, 128);
  srand(4);
  fill(p, a, 8192);
  fill(p, b, 128 * p->n);
  e->args.in = emulated_upload(e, a, 8192);
  add_map(e, p, e->args.in, 64, depth);
  const void *at_b = emulated_upload(e, b, (size_t)(128 * p->n));
  if (p->b_major)
    add_map(e, p, at_b, 64, p->n);
  else
    add_map(e, p, at_b, p->n, depth);
  e->args.out = emulated_alloc(e, (size_t)(64 * p->n) * 4);
}

START_TEST(other_products_are_products_too) {
  const product *p = &products[_i / NUM_SCHEDULES];
  emulated e;
  char text[8192];
  static uint8_t a[8192], b[128 * 256];
  static float out[64 * 256];
  write_text(p, text, sizeof text);
  prepare(&e, p, _i % NUM_SCHEDULES, a, b);
  emulated_compile(&e, text);
  for (e.args.n = 0; e.args.n < 2; e.args.n++) { /* without and with the accumulator's value */
    emulated_run(&e);
    emulated_download(&e, out, e.args.out, (size_t)(64 * p->n) * 4);
    for (int i = 0; i < 64 * p->n; i++) {
      const double wanted = wanted_of(p, a, b, i / p->n, i % p->n) + (double)e.args.n;
      ck_assert_double_le(fabs((double)out[i] - wanted), p->is_byte ? 1e-3 : 0.0);
    }
  }
  emulated_destroy(&e);
}
END_TEST

/* The wait for the operands is gone: each kind of read must be checked. */
START_TEST(their_operands_must_have_arrived) {
  const product *p = &products[_i];
  emulated e;
  char text[8192];
  static uint8_t a[8192], b[128 * 256];
  write_text(p, text, sizeof text);
  char *broken = emulated_edit(text, "bar_wait(bar, 0); /* a and b */", "");
  prepare(&e, p, 0, a, b);
  emulated_must_fault(&e, broken, "(its completion was not waited for)");
  emulated_destroy(&e);
  free(broken);
}
END_TEST

/* Only one warp has waited, and reads its own rows of a; b it reads with all others. */
START_TEST(rows_of_a_belong_to_their_warp) {
  const product *p = &products[3];
  emulated e;
  char text[8192];
  static uint8_t a[8192], b[128 * 256];
  write_text(p, text, sizeof text);
  char *broken = emulated_edit(
      text, "  wgmma_wait(0);\n",
      "  if (t >= 32) wgmma_wait(0);\n  if (t >= 96) wgmma_wait(0);\n"
      "  if (t == 32) bar_arrive(bar);\n  if (t == 64) { bar_wait(bar, 1); bar_expect(bar, 8192);\n"
      "    tma_load_2d(s, &map_a, bar, 0, 0, 0); bar_wait(bar, 0); }\n"
      "  if (t < 32) wgmma_wait(0);\n");
  prepare(&e, p, 0, a, b);
  emulated_must_fault(&e, broken, "of warp 0 (wgmma group 1) may still read: nobody released it");
  emulated_destroy(&e);
  free(broken);
}
END_TEST

Suite *suite_emulator_products(void) {
  Suite *suite = suite_create("emulator_products");
  TCase *tests = tcase_create("products");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, other_products_are_products_too, 0, NUM_PRODUCTS * NUM_SCHEDULES);
  tcase_add_loop_test(tests, their_operands_must_have_arrived, 0, NUM_PRODUCTS);
  tcase_add_test(tests, rows_of_a_belong_to_their_warp);
  suite_add_tcase(suite, tests);
  return suite;
}
