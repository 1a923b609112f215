/* Bulk copies on the emulator: boxes of every rank and element, bytes in a row, sums; against plain
 * C, under every schedule, and the faults that they allow. */
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

static void start(emulated *e, int i, int threads, const char *text) {
  emulated_create(e, schedules[i].name, schedules[i].seed, threads);
  emulated_compile(e, text);
}

/* ---- boxes ---- */

enum { SPACE = 16384 }; /* bytes of a tensor, at most, and of a box */

typedef struct tensor {
  kiln__tensor_map map;
  int element;
  int corners[4][5];
} tensor;

static const tensor tensors[] = {
    {{.rank = 1, .dims = {301}, .box = {64}, .dtype = KILN_DTYPE_FP32},
     4,
     {{0}, {240}, {-4}, {304}}},
    {{.rank = 2,
      .dims = {72, 20},
      .strides = {288},
      .box = {32, 16},
      .dtype = KILN_DTYPE_FP32,
      .swizzle = 128},
     4,
     {{0, 0}, {44, 7}, {-8, -3}, {68, 19}}},
    {{.rank = 2,
      .dims = {160, 40},
      .strides = {160},
      .box = {64, 8},
      .dtype = KILN_DTYPE_E4M3,
      .swizzle = 64},
     1,
     {{0, 0}, {112, 35}, {-16, -1}, {16, 40}}},
    {{.rank = 3,
      .dims = {40, 9, 6},
      .strides = {80, 720},
      .box = {16, 4, 2},
      .dtype = KILN_DTYPE_FP16,
      .swizzle = 32},
     2,
     {{0, 0, 0}, {24, 7, 5}, {8, -2, -1}, {32, 3, 2}}},
    {{.rank = 5,
      .dims = {32, 6, 2, 3, 2},
      .strides = {128, 64, 768, 2304},
      .box = {32, 4, 2, 1, 2},
      .dtype = KILN_DTYPE_BF16,
      .swizzle = 64},
     2,
     {{0, 0, 0, 0, 0}, {0, 4, 1, 2, 1}, {8, -3, 0, 1, -1}, {0, 0, 0, 3, 0}}},
};

enum { NUM_TENSORS = sizeof tensors / sizeof *tensors };

/* Where element `index` of the box lies: its byte in shared memory, and in the tensor; 0 when it is
 * outside. */
static int place(const tensor *t, const int *corner, int index, int *shared, int64_t *global) {
  const kiln__tensor_map *m = &t->map;
  const int bits = m->swizzle == 128 ? 7 : m->swizzle == 64 ? 3 : m->swizzle == 32 ? 1 : 0;
  const int at = index * t->element;
  *shared = at ^ ((at >> 7 & bits) << 4);
  *global = 0;
  for (int d = 0; d < m->rank; d++) {
    const int64_t x = corner[d] + index % (int)m->box[d];
    index /= (int)m->box[d];
    if (x < 0 || x >= (int64_t)m->dims[d]) return 0;
    *global += d ? x * (int64_t)m->strides[d - 1] : x * t->element;
  }
  return 1;
}

static int box_elements(const tensor *t) {
  int all = 1;
  for (int d = 0; d < t->map.rank; d++) all *= (int)t->map.box[d];
  return all;
}

static void coordinates(const tensor *t, const int *corner, char *text, size_t size) {
  size_t length = 0;
  for (int d = 0; d < t->map.rank; d++)
    length += (size_t)snprintf(text + length, size - length, "%s%d", d ? ", " : "", corner[d]);
}

static const char tile_load_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM TensorMap map, PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), to = shared_base(), bar = to + 16384;\n"
                  "  if (t == 0) {\n"
                  "    bar_init(bar, 1);\n"
                  "    fence_bar_init();\n"
                  "    bar_expect(bar, (u32)a.n);\n"
                  "    tma_load_%dd(to, &map, bar, %s, 0);\n"
                  "  }\n"
                  "  sync_warp();\n"
                  "  bar_wait(bar, 0);\n"
                  "  for (u32 i = t; i < a.n / 16; i += 32) {\n"
                  "    u32 x[4];\n"
                  "    lds_u32x4(x, to + 16 * i);\n"
                  "    stg_u32x4((char *)a.out + 16 * i, x);\n"
                  "  }\n"
                  "}\n";

/* Stores, or adds to, a tensor what lies in `in`. */
static const char tile_store_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM TensorMap map, PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), from = shared_base();\n"
                  "  u32 x[4];\n"
                  "  for (u32 i = t; i < a.n / 16; i += 32) {\n"
                  "    ldg_u32x4(x, (const char *)a.in + 16 * i);\n"
                  "    sts_u32x4(from + 16 * i, x);\n"
                  "  }\n"
                  "  fence_async();\n"
                  "  sync_warp();\n"
                  "  if (t == 0) {\n"
                  "    tma_%s_%dd(&map, from, %s);\n"
                  "    bulk_commit();\n"
                  "    bulk_wait(0);\n"
                  "  }\n"
                  "}\n";

START_TEST(boxes_of_every_rank_land) {
  const tensor *t = &tensors[_i / NUM_SCHEDULES];
  static uint8_t bytes[SPACE], out[SPACE];
  const int count = box_elements(t), size = t->element;
  for (int i = 0; i < SPACE; i++) bytes[i] = (uint8_t)rand();
  for (int c = 0; c < 4; c++) {
    emulated e;
    char text[2048], where[64];
    coordinates(t, t->corners[c], where, sizeof where);
    snprintf(text, sizeof text, tile_load_text, (int)t->map.rank, where);
    start(&e, _i % NUM_SCHEDULES, 32, text);
    kiln__tensor_map map = t->map;
    map.address = emulated_upload(&e, bytes, sizeof bytes);
    emulated_tensor(&e, &map);
    e.args.n = count * size;
    e.args.out = emulated_alloc(&e, sizeof out);
    emulated_run(&e);
    emulated_download(&e, out, e.args.out, sizeof out);
    for (int i = 0; i < count; i++) {
      static const uint8_t zeros[4];
      int shared;
      int64_t global;
      const int inside = place(t, t->corners[c], i, &shared, &global);
      ck_assert_mem_eq(out + shared, inside ? bytes + global : zeros, (size_t)size);
    }
    emulated_destroy(&e);
  }
}
END_TEST

/* Small whole numbers of the tensor's dtype, in `count` elements. */
static void whole_numbers(const tensor *t, uint8_t *to, int count) {
  for (int i = 0; i < count; i++) {
    const float x = (float)(rand() % 31 - 15);
    const uint16_t half =
        (uint16_t)(t->map.dtype == KILN_DTYPE_FP16 ? kiln__fp16_encode(x) : kiln__bf16_encode(x));
    if (t->element == 4) memcpy(to + 4 * i, &x, sizeof x);
    if (t->element == 2) memcpy(to + 2 * i, &half, sizeof half);
    if (t->element == 1) to[i] = (uint8_t)rand();
  }
}

static float value(const tensor *t, const uint8_t *at) {
  float x;
  uint16_t half;
  memcpy(&half, at, sizeof half);
  if (t->element == 4) memcpy(&x, at, sizeof x);
  if (t->element == 4) return x;
  return t->map.dtype == KILN_DTYPE_FP16 ? kiln__fp16_decode(half) : kiln__bf16_decode(half);
}

/* What the tensor must hold after the box was stored or added; `wanted` begins as what it held.
 * Stored rows end on 16 bytes, behind the tensor's where those do not. */
static void check_stored(const tensor *t, const int *corner, int is_sum, const uint8_t *box,
                         const uint8_t *before, const uint8_t *after) {
  static uint8_t wanted[SPACE];
  tensor padded = *t;
  while (padded.map.dims[0] * (uint64_t)t->element % 16) padded.map.dims[0]++;
  memcpy(wanted, before, SPACE);
  for (int i = 0; i < box_elements(t); i++) {
    int shared;
    int64_t global;
    if (!place(&padded, corner, i, &shared, &global)) continue;
    if (is_sum)
      ck_assert(value(t, after + global) == value(t, before + global) + value(t, box + shared));
    memcpy(wanted + global, is_sum ? after + global : box + shared, (size_t)t->element);
  }
  ck_assert_mem_eq(after, wanted, SPACE);
}

START_TEST(boxes_of_every_rank_are_stored_and_added) {
  const tensor *t = &tensors[_i / NUM_SCHEDULES / 2];
  const int is_sum = _i / NUM_SCHEDULES % 2;
  static uint8_t box[SPACE], before[SPACE], after[SPACE];
  if (is_sum && t->element == 1) return;
  whole_numbers(t, box, SPACE / t->element);
  whole_numbers(t, before, SPACE / t->element);
  for (int c = 0; c < 4; c++) {
    emulated e;
    char text[2048], where[64];
    coordinates(t, t->corners[c], where, sizeof where);
    if (strchr(where, '-')) continue; /* below zero: refused, as boxes_that_no_map_allows */
    snprintf(text, sizeof text, tile_store_text, is_sum ? "add" : "store", (int)t->map.rank, where);
    start(&e, _i % NUM_SCHEDULES, 32, text);
    kiln__tensor_map map = t->map;
    void *at = emulated_upload(&e, before, SPACE);
    map.address = at;
    emulated_tensor(&e, &map);
    e.args.in = emulated_upload(&e, box, SPACE);
    e.args.n = box_elements(t) * t->element;
    emulated_run(&e);
    emulated_download(&e, after, at, SPACE);
    check_stored(t, t->corners[c], is_sum, box, before, after);
    emulated_destroy(&e);
  }
}
END_TEST

/* Two dimensions whose strides cancel modulo 2^64 end the tensor behind row 11, as a sequence
 * may end: of a box of 16 rows from row 10 on two are stored. */
START_TEST(strides_that_wrap_end_a_tensor_at_any_row) {
  emulated e;
  char text[2048];
  static uint8_t box[2048], after[20 * 128], zeros[20 * 128];
  const int far = 1 << 30, at = 10, left = 2;
  char where[64];
  for (int i = 0; i < 2048; i++) box[i] = (uint8_t)(i / 128 + 1);
  snprintf(where, sizeof where, "0, %d, %d, %d, 0", far - left, at + left, far);
  snprintf(text, sizeof text, tile_store_text, "store", 5, where);
  start(&e, _i, 32, text);
  void *tensor_at = emulated_upload(&e, zeros, sizeof zeros);
  const kiln__tensor_map map = {.address = tensor_at,
                                .rank = 5,
                                .dims = {64, (uint64_t)far, 1ull << 31, (uint64_t)far + 1, 1},
                                .strides = {128, 128, (1ull << 35) - 128, 16},
                                .box = {64, 16, 1, 1, 1},
                                .dtype = KILN_DTYPE_BF16};
  emulated_tensor(&e, &map);
  e.args.in = emulated_upload(&e, box, sizeof box);
  e.args.n = sizeof box;
  emulated_run(&e);
  emulated_download(&e, after, tensor_at, sizeof after);
  for (int i = 0; i < 20 * 128; i++)
    ck_assert_int_eq(after[i], i / 128 == 10 ? 1 : i / 128 == 11 ? 2 : 0);
  emulated_destroy(&e);
}
END_TEST

/* ---- bytes in a row: load, change, store, add ---- */

static const char bulk_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), s = shared_base(), bar = s + 4096;\n"
                  "  u32 x[4];\n"
                  "  if (t == 0) {\n"
                  "    bar_init(bar, 1);\n"
                  "    fence_bar_init(); /* bar */\n"
                  "    bar_expect(bar, 1024);\n"
                  "    bulk_load(s, a.in, 512, bar, 0);\n"
                  "    bulk_load(s + 512, (const char *)a.in + 1024, 512, bar, 0);\n"
                  "  }\n"
                  "  sync_warp();\n"
                  "  bar_wait(bar, 0); /* loads */\n"
                  "  for (u32 i = t; i < 64; i += 32) {\n"
                  "    lds_u32x4(x, s + 16 * i);\n"
                  "    for (int n = 0; n < 4; n++) x[n] ^= 0x80000000;\n"
                  "    sts_u32x4(s + 16 * i, x);\n"
                  "  }\n"
                  "  fence_async();\n"
                  "  sync_warp(); /* changed */\n"
                  "  if (t == 0) {\n"
                  "    bulk_store(a.out, s, 1024);\n"
                  "    bulk_commit(); /* store */\n"
                  "    bulk_wait(0); /* store */\n"
                  "    bulk_add_fp32((char *)a.out + 256, s, 512);\n"
                  "    bulk_commit(); /* sum */\n"
                  "    bulk_wait_read(0); /* sum */\n"
                  "    sts_u32(s, 0);\n"
                  "    bulk_wait(0);\n"
                  "  }\n"
                  "}\n";

static void prepare_bulk(emulated *e, int schedule, const float *in) {
  emulated_create(e, schedules[schedule].name, schedules[schedule].seed, 32);
  e->args.in = emulated_upload(e, in, 1536);
  e->args.out = emulated_alloc(e, 1024);
}

START_TEST(bytes_in_a_row_come_and_go) {
  emulated e;
  float in[384], out[256], moved[256];
  for (int i = 0; i < 384; i++) in[i] = (float)(3 * i - 500);
  for (int i = 0; i < 256; i++) moved[i] = -in[i < 128 ? i : i + 128];
  prepare_bulk(&e, _i, in);
  emulated_compile(&e, bulk_text);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (int i = 0; i < 256; i++)
    ck_assert(out[i] == moved[i] + (i >= 64 && i < 192 ? moved[i - 64] : 0));
  emulated_destroy(&e);
}
END_TEST

typedef struct fault {
  const char *old, *new_text, *expected;
} fault;

static const fault bulk_faults[] = {
    {"bar_wait(bar, 0); /* loads */", "", "(its completion was not waited for)"},
    {"bar_expect(bar, 1024)", "bar_expect(bar, 512)", "fewer bytes are expected"},
    {"bar_expect(bar, 1024)", "bar_expect(bar, 2048)", "deadlock"},
    {"fence_bar_init(); /* bar */", "", "without fence_bar_init"},
    {"bulk_load(s, a.in, 512", "bulk_load(s, a.in, 504", "504 bytes; multiples of 16"},
    {"bulk_load(s, a.in, 512", "bulk_load(s, a.in, 0", "0 bytes; multiples of 16"},
    {"bulk_load(s, a.in", "bulk_load(s + 8, a.in", "is not a multiple of 16"},
    {"bulk_load(s, a.in", "bulk_load(s, (const char *)a.in + 8", "is not a multiple of 16"},
    {"bulk_load(s, a.in", "bulk_load(s + 48 * 1024, a.in", "outside the block's memory"},
    {"a.in + 1024, 512", "a.in + 1040, 512", "of an allocation of 1536 bytes"},
    {"bulk_load(s + 512,", "bulk_load(s + 496,", "is not ordered after"},
    {"  fence_async();\n", "", "has no fence.proxy.async behind it"},
    {"sync_warp(); /* changed */", "", "(bulk group 1) may still read"},
    {"a.out, s, 1024", "a.out, s + 512, 1024", "that nothing has written"},
    {"a.out, s, 1024", "(char *)a.out + 16, s, 1024", "of an allocation of 1024 bytes"},
    {"bulk_wait_read(0); /* sum */", "", "(bulk group 2) may still read"},
    {"bulk_commit(); /* sum */", "", "may still read"},
    {"    bulk_wait_read(0); /* sum */\n    sts_u32(s, 0);\n    bulk_wait(0);\n", "",
     "bulk_wait_read is missing"},
    {"bulk_add_fp32((char *)a.out + 256", "bulk_add_fp32((char *)a.out + 264",
     "is not a multiple of 16"},
};

enum { NUM_BULK = sizeof bulk_faults / sizeof *bulk_faults };

START_TEST(faults_of_bulk_copies_are_named) {
  emulated e;
  static const float in[384];
  const int schedule = _i / NUM_BULK;
  const fault *f = &bulk_faults[_i % NUM_BULK];
  char *text = emulated_edit(bulk_text, f->old, f->new_text);
  prepare_bulk(&e, schedule, in);
  emulated_must_fault(&e, text, schedule == 0 ? f->expected : "emulator stopped");
  emulated_destroy(&e);
  free(text);
}
END_TEST

/* ---- sums of 16-bit numbers, and of subnormals ---- */

static const char sum_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), s = shared_base();\n"
                  "  u32 x[4];\n"
                  "  for (u32 i = t; i < a.n / 16; i += 32) {\n"
                  "    ldg_u32x4(x, (const char *)a.in + 16 * i);\n"
                  "    sts_u32x4(s + 16 * i, x);\n"
                  "  }\n"
                  "  fence_async();\n"
                  "  sync_warp();\n"
                  "  if (t) return;\n"
                  "  bulk_add_%s(a.out, s, (u32)a.n);\n"
                  "  bulk_commit();\n"
                  "  bulk_wait(0);\n"
                  "}\n";

static void run_sum(int schedule, const char *dtype, const void *x, void *y, size_t bytes) {
  emulated e;
  char text[1024];
  snprintf(text, sizeof text, sum_text, dtype);
  start(&e, schedule, 32, text);
  e.args.in = emulated_upload(&e, x, bytes);
  e.args.out = emulated_upload(&e, y, bytes);
  e.args.n = (int64_t)bytes;
  emulated_run(&e);
  emulated_download(&e, y, e.args.out, bytes);
  emulated_destroy(&e);
}

START_TEST(sums_of_16_bits_are_rounded_once) {
  enum { COUNT = 8192 };
  static uint16_t x[COUNT], y[COUNT], sum[COUNT];
  for (int i = 0; i < COUNT; i++) {
    x[i] = (uint16_t)(rand() >> 3);
    y[i] = (uint16_t)(i % 3 ? x[i] ^ (rand() >> 4 & 0x83ff) : rand() >> 3);
  }
  for (int bf16 = 0; bf16 < 2; bf16++) {
    memcpy(sum, y, sizeof sum);
    run_sum(_i, bf16 ? "bf16" : "fp16", x, sum, sizeof sum);
    for (int i = 0; i < COUNT; i++) {
      const double a = (double)(bf16 ? kiln__bf16_decode(x[i]) : kiln__fp16_decode(x[i]));
      const double b = (double)(bf16 ? kiln__bf16_decode(y[i]) : kiln__fp16_decode(y[i]));
      const uint16_t wanted =
          (uint16_t)(bf16 ? kiln__bf16_encode((float)(a + b)) : kiln__fp16_encode((float)(a + b)));
      if (isnan(a + b))
        ck_assert(isnan(bf16 ? kiln__bf16_decode(sum[i]) : kiln__fp16_decode(sum[i])));
      else
        ck_assert_msg(sum[i] == wanted, "%g + %g: %04x, not %04x", a, b, sum[i], wanted);
    }
  }
}
END_TEST

START_TEST(sums_of_32_bits_keep_subnormals) {
  const float x[4] = {0x1p-127f, 0x1.8p-126f, -0x1p-126f, 0x1p-130f};
  float y[4] = {0x1p-127f, -0x1p-126f, 0x1p-126f, 0x1p-130f};
  run_sum(_i, "fp32", x, y, sizeof y);
  ck_assert(y[0] == 0x1p-126f && y[1] == 0x1p-127f && y[2] == 0.0f && y[3] == 0x1p-129f);
}
END_TEST

/* ---- zeros by threads, then sums by the async proxy ---- */

static const char zeros_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), s = shared_base();\n"
                  "  u32 x[4] = {0, 0, 0, 0};\n"
                  "  stg_u32x4((char *)a.out + 16 * t, x);\n"
                  "  fence_async_global();\n"
                  "  for (u32 i = 0; i < 4; i++) sts_f32(s + 16 * t + 4 * i, (float)(4 * t + i));\n"
                  "  fence_async();\n"
                  "  sync_warp(); /* filled */\n"
                  "  if (t < 2) {\n"
                  "    bulk_add_fp32(a.out, s, 512);\n"
                  "    bulk_commit();\n"
                  "    bulk_wait(0);\n"
                  "  }\n"
                  "  sync_warp(); /* added */\n"
                  "  ldg_u32x4(x, (char *)a.out + 16 * (31 - t));\n"
                  "  stg_u32x4((char *)a.in + 16 * (31 - t), x);\n"
                  "}\n";

static const fault zeros_faults[] = {
    {"  fence_async_global();\n", "", "has no fence.proxy.async.global behind it"},
    {"sync_warp(); /* filled */", "sync_warp(); if (!t) fence_async_global();", NULL},
    {"sync_warp(); /* filled */", "", "that nothing has written"},
    {"sync_warp(); /* added */", "", "may still read"},
    {"bulk_wait(0)", "bulk_wait_read(0)", "(no bulk_wait, or no release behind it)"},
};

enum { NUM_ZEROS = sizeof zeros_faults / sizeof *zeros_faults };

/* A row without a sentence changes nothing. */
START_TEST(sums_follow_what_threads_have_fenced) {
  emulated e;
  float out[128];
  const int schedule = _i / NUM_ZEROS;
  const fault *f = &zeros_faults[_i % NUM_ZEROS];
  char *text = emulated_edit(zeros_text, f->old, f->new_text);
  emulated_create(&e, schedules[schedule].name, schedules[schedule].seed, 32);
  e.args.in = emulated_alloc(&e, sizeof out);
  e.args.out = emulated_alloc(&e, sizeof out);
  if (f->expected) {
    emulated_must_fault(&e, text, schedule == 0 ? f->expected : "emulator stopped");
  } else {
    emulated_compile(&e, text);
    emulated_run(&e);
    emulated_download(&e, out, e.args.in, sizeof out);
    for (int i = 0; i < 128; i++) ck_assert(out[i] == (float)(2 * i));
  }
  emulated_destroy(&e);
  free(text);
}
END_TEST

/* ---- what a map allows ---- */

/* The tensor is given `bytes`; without a sentence the call is legal. */
static void one_box(int schedule, const tensor *t, size_t bytes, const char *call,
                    const char *expected) {
  emulated e;
  char text[512];
  snprintf(text, sizeof text,
           EMULATED_ARGS "KERNEL void test_kernel(PARAM TensorMap map, PARAM Args a) {\n"
                         "  (void)a;\n"
                         "  if (thread_index() != 0) return;\n"
                         "  for (u32 i = 0; i < 16; i++) sts_u32x4(shared_base() + 16 * i, "
                         "(const u32[4]){i});\n"
                         "  fence_async();\n"
                         "  %s;\n"
                         "  bulk_commit();\n"
                         "  bulk_wait(0);\n"
                         "}\n",
           call);
  emulated_create(&e, schedules[schedule].name, schedules[schedule].seed, 32);
  kiln__tensor_map map = t->map;
  map.address = emulated_alloc(&e, bytes);
  emulated_tensor(&e, &map);
  if (expected) {
    emulated_must_fault(&e, text, expected);
  } else {
    emulated_compile(&e, text);
    emulated_run(&e);
  }
  emulated_destroy(&e);
}

static void refuse_box(int schedule, const tensor *t, const char *call, const char *expected) {
  one_box(schedule, t, SPACE, call, expected);
}

START_TEST(boxes_that_no_map_allows_are_named) {
  refuse_box(_i, &tensors[3], "tma_store_2d(&map, shared_base(), 0, 0)", "has rank 3");
  refuse_box(_i, &tensors[2], "tma_add_2d(&map, shared_base(), 0, 0)", "cannot be added");
  refuse_box(_i, &tensors[2], "tma_store_2d(&map, shared_base(), 8, 0)", "multiple of 16 bytes");
  refuse_box(_i, &tensors[1], "tma_store_2d(&map, shared_base(), 2, 0)", "multiple of 16 bytes");
  refuse_box(_i, &tensors[1], "tma_load_multicast_2d(shared_base(), &map, 0, 0, 0, 0, 2)",
             "names blocks outside a cluster of 1");
  refuse_box(_i, &tensors[0], "tma_add_1d(&map, shared_base(), -4)",
             "begins at -4 in dimension 0; only a load may begin below 0");
  refuse_box(_i, &tensors[3], "tma_store_3d(&map, shared_base(), 8, 0, -1)",
             "begins at -1 in dimension 2; only a load may begin below 0");
}
END_TEST

/* The tensor ends 4 bytes behind a multiple of 16: only a store at its end needs the other 12. */
START_TEST(stores_that_end_off_16_bytes_need_room) {
  const char *const at_end = "tma_store_1d(&map, shared_base(), 240)";
  one_box(_i, &tensors[0], 1204, at_end, "256 bytes at offset 960 of an allocation of 1204 bytes");
  one_box(_i, &tensors[0], 1216, at_end, NULL);
  one_box(_i, &tensors[0], 1204, "tma_store_1d(&map, shared_base(), 0)", NULL);
}
END_TEST

Suite *suite_emulator_copies(void) {
  Suite *suite = suite_create("emulator_copies");
  TCase *tests = tcase_create("copies");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, boxes_of_every_rank_land, 0, NUM_TENSORS * NUM_SCHEDULES);
  tcase_add_loop_test(tests, boxes_of_every_rank_are_stored_and_added, 0,
                      2 * NUM_TENSORS * NUM_SCHEDULES);
  tcase_add_loop_test(tests, strides_that_wrap_end_a_tensor_at_any_row, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, bytes_in_a_row_come_and_go, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, faults_of_bulk_copies_are_named, 0, 2 * NUM_BULK);
  tcase_add_loop_test(tests, sums_of_16_bits_are_rounded_once, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, sums_of_32_bits_keep_subnormals, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, sums_follow_what_threads_have_fenced, 0, 2 * NUM_ZEROS);
  tcase_add_loop_test(tests, boxes_that_no_map_allows_are_named, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, stores_that_end_off_16_bytes_need_room, 0, NUM_SCHEDULES);
  suite_add_tcase(suite, tests);
  return suite;
}
