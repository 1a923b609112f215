/* The emulator's Hopper instructions against plain C models: TMA boxes with every swizzle, wgmma
 * with every descriptor, mbarriers, clusters, the register pool. Every schedule must give the same.
 * */
#include "emulated.h"
#include "number.h"
#include "suites.h"

#include <stdio.h>
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

/* ---- TMA ---- */

enum { ROWS = 20, COLUMNS = 72, BOX_ROWS = 16, BOX_BYTES = 2048 };

static const int swizzles[] = {0, 32, 64, 128};
static const int corners[][2] = {{0, 0},   {24, 7}, {-8, -5},
                                 {56, 19}, {72, 0}, {0, -16}}; /* col, row */

enum { NUM_CORNERS = sizeof corners / sizeof *corners };

/* The byte of a box that the element at (row, column) takes: the XOR acts on address bits, and the
 * box begins on a multiple of 1024. */
static int place(int swizzle, int row, int column) {
  const int width = swizzle ? swizzle : 128, at = row * width + 2 * column;
  const int bits = swizzle == 128 ? 7 : swizzle == 64 ? 3 : swizzle == 32 ? 1 : 0;
  return at ^ ((at >> 7 & bits) << 4);
}

static int box_columns(int swizzle) { return (swizzle ? swizzle : 128) / 2; }

/* The box's bytes in the order of their addresses. */
static const char load_text[] = EMULATED_ARGS
    "KERNEL void test_kernel(PARAM TensorMap map, PARAM Args a) {\n"
    "  const u32 t = (u32)thread_index(), to = shared_base(), bar = to + 4096;\n"
    "  if (t == 0) {\n"
    "    tma_prefetch_map(&map);\n"
    "    bar_init(bar, 1);\n"
    "    fence_bar_init();\n"
    "    bar_expect(bar, (u32)(a.n >> 32));\n"
    "    tma_load(to, &map, bar, (i32)(signed char)a.n, (i32)(signed char)(a.n >> 8), 0, 0, 0);\n"
    "  }\n"
    "  sync_warp();\n"
    "  bar_wait(bar, 0);\n"
    "  for (u32 i = t; i < (a.n >> 32) / 16; i += 32) {\n"
    "    u32 x[4];\n"
    "    lds_u32x4(x, to + 16 * i);\n"
    "    stg_u32x4((char *)a.out + 16 * i, x);\n"
    "  }\n"
    "}\n";

static int64_t coordinates(const int *corner, int bytes) {
  return (int64_t)(corner[0] & 0xff) | (int64_t)(corner[1] & 0xff) << 8 | (int64_t)bytes << 32;
}

START_TEST(a_box_lands_swizzled_and_padded) {
  emulated e;
  uint16_t tensor[ROWS][COLUMNS], out[BOX_BYTES / 2];
  const int swizzle = swizzles[_i % 4], width = box_columns(swizzle);
  for (int i = 0; i < ROWS * COLUMNS; i++) tensor[i / COLUMNS][i % COLUMNS] = (uint16_t)(i + 1);
  start(&e, _i / 4, 32, load_text);
  const void *at = emulated_upload(&e, tensor, sizeof tensor);
  emulated_map(&e, at, ROWS, COLUMNS, BOX_ROWS, width, swizzle);
  e.args.out = emulated_alloc(&e, sizeof out);
  for (int c = 0; c < NUM_CORNERS; c++) {
    e.args.n = coordinates(corners[c], BOX_ROWS * width * 2);
    emulated_run(&e);
    emulated_download(&e, out, e.args.out, sizeof out);
    for (int i = 0; i < BOX_ROWS * width; i++) {
      const int column = corners[c][0] + i % width, row = corners[c][1] + i / width;
      const int inside = column >= 0 && column < COLUMNS && row >= 0 && row < ROWS;
      const int wanted = inside ? tensor[row][column] : 0;
      ck_assert_int_eq(out[place(swizzle, i / width, i % width) / 2], wanted);
    }
  }
  emulated_destroy(&e);
}
END_TEST

/* Shared memory holds its own byte offsets / 2 before it is stored. */
static const char store_text[] = EMULATED_ARGS
    "KERNEL void test_kernel(PARAM TensorMap map, PARAM Args a) {\n"
    "  const u32 t = (u32)thread_index(), from = shared_base();\n"
    "  for (u32 i = t; i < 512; i += 32) sts_u32(from + 4 * i, 2 * i | (2 * i + 1) << 16);\n"
    "  fence_async();\n"
    "  sync_warp();\n"
    "  if (t == 0) {\n"
    "    tma_store(&map, from, (i32)(signed char)a.n, (i32)(signed char)(a.n >> 8), 0, 0);\n"
    "    bulk_commit();\n"
    "    bulk_wait_read(0);\n"
    "    bulk_wait(0);\n"
    "  }\n"
    "}\n";

START_TEST(a_box_is_stored_and_clipped) {
  emulated e;
  uint16_t tensor[ROWS][COLUMNS];
  const int swizzle = swizzles[_i % 4], width = box_columns(swizzle);
  start(&e, _i / 4, 32, store_text);
  memset(tensor, 0xee, sizeof tensor);
  void *at = emulated_upload(&e, tensor, sizeof tensor);
  emulated_map(&e, at, ROWS, COLUMNS, BOX_ROWS, width, swizzle);
  for (int c = 0; c < NUM_CORNERS; c++) {
    if (corners[c][0] < 0 || corners[c][1] < 0) continue; /* only a load may begin there */
    e.args.n = coordinates(corners[c], 0);
    emulated_run(&e);
    emulated_download(&e, tensor, at, sizeof tensor);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
      const int row = i / COLUMNS - corners[c][1], column = i % COLUMNS - corners[c][0];
      if (row < 0 || row >= BOX_ROWS || column < 0 || column >= width) continue;
      ck_assert_int_eq(tensor[i / COLUMNS][i % COLUMNS], place(swizzle, row, column) / 2);
    }
    if (c == 0) ck_assert_int_eq(tensor[ROWS - 1][COLUMNS - 1], 0xeeee);
  }
  emulated_destroy(&e);
}
END_TEST

/* ---- wgmma ----
 * a (64 x depth) and b, (n x depth) or transposed (depth x n), come by TMA in panels as wide as the
 * swizzle; without one, in panels of 16 bytes. depth is one panel of a swizzled tile, or 16. */

typedef struct product {
  int n, bf16, trans, swizzle, from_registers;
} product;

static const product products[] = {
    {64, 1, 0, 128, 0},  {128, 0, 1, 128, 1}, {32, 1, 1, 64, 0}, {16, 0, 0, 64, 1},
    {48, 1, 1, 32, 0},   {8, 1, 0, 32, 0},    {64, 0, 0, 0, 0},  {24, 1, 1, 0, 1},
    {256, 0, 0, 128, 0}, {192, 1, 1, 128, 0},
};

enum { NUM_PRODUCTS = sizeof products / sizeof *products };

static int depth_of(const product *p) { return p->swizzle ? p->swizzle / 2 : 16; }
static int panel_of(const product *p) { return p->swizzle ? p->swizzle / 2 : 8; }

/* Descriptor without its address. Strides as in docs/emulator.md. */
static unsigned long long fields(const product *p, int rows, int trans) {
  const unsigned long long code = p->swizzle == 128 ? 1 : p->swizzle == 64 ? 2 : p->swizzle ? 3 : 0;
  unsigned long long leading = 1, stride = (unsigned long long)p->swizzle / 2; /* / 16 */
  if (trans) leading = (unsigned long long)(depth_of(p) * panel_of(p) * 2 / 16);
  if (!p->swizzle) {
    stride = trans ? leading : 8;
    leading = trans ? 8 : (unsigned long long)rows;
  }
  return code << 62 | stride << 32 | leading << 16;
}

static const char wgmma_text[] = EMULATED_ARGS
    "enum { N = %d, DEPTH = %d, PANEL = %d, TRANS = %d, B_ROWS = TRANS ? DEPTH : N,\n"
    "       B_PANELS = (TRANS ? N : DEPTH) / PANEL, A_PANELS = DEPTH / PANEL,\n"
    "       A_STEP = %d, B_STEP = %d };\n"
    "KERNEL void test_kernel(PARAM TensorMap map_a, PARAM TensorMap map_b, PARAM Args x) {\n"
    "  const u32 t = (u32)thread_index(), s = shared_base(), b = s + 8192, bar = b + 36864;\n"
    "  const int row = (int)(t / 32 * 16 + t %% 32 / 4), column = (int)(2 * (t %% 4));\n"
    "  if (t == 0) {\n"
    "    bar_init(bar, 1);\n"
    "    fence_bar_init();\n"
    "  }\n"
    "  sync_threads();\n"
    "  if (t == 0) {\n"
    "    bar_expect(bar, 2 * DEPTH * (64 + N));\n"
    "    for (int i = 0; i < A_PANELS; i++)\n"
    "      tma_load(s + (u32)i * 64 * PANEL * 2, &map_a, bar, i * PANEL, 0, 0, 0, 0);\n"
    "    for (int i = 0; i < B_PANELS; i++)\n"
    "      tma_load(b + (u32)i * B_ROWS * PANEL * 2, &map_b, bar, i * PANEL, 0, 0, 0, 0);\n"
    "  }\n"
    "  bar_wait(bar, 0);\n"
    "  u32 f[DEPTH / 4];\n"
    "  float d[N / 2];\n"
    "  for (int i = 0; i < N / 2; i++) d[i] = 1.0f;\n"
    "  for (int i = 0; i < DEPTH / 4; i++) {\n"
    "    const u16 *p = (const u16 *)x.in + (row + i %% 2 * 8) * DEPTH + column + i / 2 * 8;\n"
    "    f[i] = ldg_u16(p) | ldg_u16(p + 1) << 16;\n"
    "  }\n"
    "  (void)f;\n"
    "  const u64 da = 0x%llxull | s >> 4, db = 0x%llxull | b >> 4;\n"
    "  (void)da;\n"
    "  wgmma_fence();\n"
    "  for (int k = 0; k < DEPTH / 16; k++)\n"
    "    wgmma_%s_n%d_%s%s(d, %s, db + (u64)k * B_STEP, x.n || k);\n"
    "  wgmma_commit();\n"
    "  wgmma_wait(0);\n"
    "  touch_f32x%d(d);\n"
    "  for (int i = 0; i < N / 2; i++)\n"
    "    stg_f32((float *)x.out + (row + i %% 4 / 2 * 8) * N + i / 4 * 8 + column + i %% 2, "
    "d[i]);\n"
    "}\n";

static void write_text(const product *p, char *text, size_t size) {
  const int depth = depth_of(p), rs = p->from_registers;
  /* 16 k further, in 16 bytes: inside the span, or the next panels, or the next rows */
  const int a_step = p->swizzle ? 2 : 2 * 64;
  const int b_step = !p->swizzle ? 0 : p->trans ? p->swizzle : 2;
  snprintf(text, size, wgmma_text, p->n, depth, panel_of(p), p->trans, a_step, b_step,
           fields(p, 64, 0), fields(p, p->n, p->trans), rs ? "rs" : "ss", p->n,
           p->bf16 ? "bf16" : "fp16", p->trans ? "_t" : "",
           rs ? "f + 4 * k" : "da + (u64)k * A_STEP", p->n / 2);
}

static uint16_t encode(int bf16, float x) {
  return (uint16_t)(bf16 ? kiln__bf16_encode(x) : kiln__fp16_encode(x));
}

static float decode(int bf16, uint16_t x) {
  return bf16 ? kiln__bf16_decode(x) : kiln__fp16_decode(x);
}

static float element_product(const product *p, const uint16_t *a, const uint16_t *b, int row,
                             int column, float sum) {
  const int depth = depth_of(p);
  for (int k = 0; k < depth; k++)
    sum += decode(p->bf16, a[row * depth + k]) *
           decode(p->bf16, p->trans ? b[k * p->n + column] : b[column * depth + k]);
  return sum;
}

START_TEST(wgmma_is_a_matrix_product) {
  const product *p = &products[_i / NUM_SCHEDULES];
  const int depth = depth_of(p), panel = panel_of(p), columns = p->trans ? p->n : depth;
  emulated e;
  char text[8192];
  uint16_t a[64 * 64], b[256 * 64];
  static float out[64 * 256];
  srand(3);
  for (int i = 0; i < 64 * depth; i++) a[i] = encode(p->bf16, (float)(rand() % 33 - 16) / 4);
  for (int i = 0; i < p->n * depth; i++) b[i] = encode(p->bf16, (float)(rand() % 33 - 16) / 4);
  write_text(p, text, sizeof text);
  start(&e, _i % NUM_SCHEDULES, 128, text);
  e.args.in = emulated_upload(&e, a, (size_t)(64 * depth) * 2);
  const void *at_b = emulated_upload(&e, b, (size_t)(p->n * depth) * 2);
  emulated_map(&e, e.args.in, 64, depth, 64, panel, p->swizzle);
  emulated_map(&e, at_b, p->trans ? depth : p->n, columns, p->trans ? depth : p->n, panel,
               p->swizzle);
  e.args.out = emulated_alloc(&e, (size_t)(64 * p->n) * 4);
  for (e.args.n = 0; e.args.n < 2; e.args.n++) { /* without and with the accumulator's value */
    emulated_run(&e);
    emulated_download(&e, out, e.args.out, (size_t)(64 * p->n) * 4);
    for (int i = 0; i < 64 * p->n; i++)
      ck_assert(out[i] == element_product(p, a, b, i / p->n, i % p->n, e.args.n ? 1.0f : 0.0f));
  }
  emulated_destroy(&e);
}
END_TEST

/* ---- clusters ---- */

/* Two blocks; each loads its half of a 16 x 64 tile into both, three tiles through one slot. */
static const char cluster_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM TensorMap map, PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), rank = cluster_rank(), s = shared_base();\n"
                  "  const u32 full = s + 4096, empty = full + 8;\n"
                  "  if (t == 0) {\n"
                  "    bar_init(full, 1);\n"
                  "    bar_init(empty, 2);\n"
                  "    fence_bar_init();\n"
                  "  }\n"
                  "  cluster_sync();\n"
                  "  for (u32 i = 0; i < 3; i++) {\n"
                  "    if (t == 0) {\n"
                  "      bar_wait(empty, (i & 1) ^ 1);\n"
                  "      bar_expect(full, 2048);\n"
                  "      tma_load_multicast(s + rank * 1024, &map, full, 0, (int)(i * 16 + rank * "
                  "8), 0, 0, 0, 3);\n"
                  "    }\n"
                  "    bar_wait(full, i & 1);\n"
                  "    u32 x[4];\n"
                  "    for (u32 c = t; c < 128; c += 32) {\n"
                  "      lds_u32x4(x, s + 16 * c);\n"
                  "      stg_u32x4((char *)a.out + block_index() * 6144 + i * 2048 + 16 * c, x);\n"
                  "    }\n"
                  "    sync_warp();\n"
                  "    if (t < 2) bar_arrive_peer(empty, t);\n"
                  "  }\n"
                  "  cluster_sync();\n"
                  "}\n";

START_TEST(a_cluster_shares_its_loads) {
  emulated e;
  uint16_t tensor[48 * 64], out[4][48 * 64];
  for (int i = 0; i < 48 * 64; i++) tensor[i] = (uint16_t)i;
  start(&e, _i, 32, cluster_text);
  const void *at = emulated_upload(&e, tensor, sizeof tensor);
  emulated_map(&e, at, 48, 64, 8, 64, 0);
  e.args.out = emulated_alloc(&e, sizeof out);
  e.blocks = 4;
  e.shape.cluster = 2;
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (int b = 0; b < 4; b++) ck_assert_mem_eq(out[b], tensor, sizeof tensor);
  emulated_destroy(&e);
}
END_TEST

/* ---- registers ---- */

static const char registers_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  if (thread_index() < 128) reg_dec(24);\n"
                  "  else reg_inc(240);\n"
                  "  if (thread_index() == 200) stg_u32(a.out, 1);\n"
                  "}\n";

START_TEST(the_pool_gives_what_was_given_back) {
  emulated e;
  uint32_t done = 0;
  start(&e, _i, 384, registers_text);
  e.args.out = emulated_alloc(&e, sizeof done);
  emulated_run(&e);
  emulated_download(&e, &done, e.args.out, sizeof done);
  ck_assert_uint_eq(done, 1);
  emulated_destroy(&e);
}
END_TEST

Suite *suite_emulator_hopper(void) {
  Suite *suite = suite_create("emulator_hopper");
  TCase *tests = tcase_create("instructions");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, a_box_lands_swizzled_and_padded, 0, 4 * NUM_SCHEDULES);
  tcase_add_loop_test(tests, a_box_is_stored_and_clipped, 0, 4 * NUM_SCHEDULES);
  tcase_add_loop_test(tests, wgmma_is_a_matrix_product, 0, NUM_PRODUCTS * NUM_SCHEDULES);
  tcase_add_loop_test(tests, a_cluster_shares_its_loads, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, the_pool_gives_what_was_given_back, 0, NUM_SCHEDULES);
  suite_add_tcase(suite, tests);
  return suite;
}
