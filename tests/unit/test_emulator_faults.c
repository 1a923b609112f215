/* Planted faults: kernels that are right, and edits that break one rule each. The emulator must say
 * nothing about the first under any schedule, and name the rule for the second; under other
 * schedules some fault must be named. Values alone would miss most of them. */
#include "emulated.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>

typedef struct fault {
  const char *old, *new_text; /* the edit */
  const char *expected;       /* a part of the report, late schedule */
  const char *old2, *new2;    /* a second edit, or NULL */
} fault;

static const struct {
  const char *name;
  int64_t seed;
} schedules[] = {{"late", -1}, {"eager", -1}, {"random", 1}, {"random", 2}, {"random", 3}};

enum { NUM_SCHEDULES = sizeof schedules / sizeof *schedules };

static char *broken(const char *text, const fault *f) {
  char *once = emulated_edit(text, f->old, f->new_text);
  if (!f->old2) return once;
  char *twice = emulated_edit(once, f->old2, f->new2);
  free(once);
  return twice;
}

/* ---- cp.async: three tiles of 1 KB through a ring of two, 64 threads ---- */

static const char copy_kernel[] = EMULATED_ARGS
    "KERNEL void test_kernel(PARAM Args a) {\n"
    "  const u32 t = (u32)thread_index(), s = shared_base();\n"
    "  const char *in = (const char *)a.in + 16 * t;\n"
    "  u32 x[4];\n"
    "  cp_async_16(s + 16 * t, in, 16);\n"
    "  cp_async_commit(); /* first */\n"
    "  for (u32 i = 0; i < 3; i++) {\n"
    "    cp_async_wait(0);\n"
    "    sync_threads();\n"
    "    if (i < 2) cp_async_16(s + (i + 1) % 2 * 1024 + 16 * t, in + (i + 1) * 1024, 16);\n"
    "    cp_async_commit();\n"
    "    lds_u32x4(x, s + i % 2 * 1024 + 16 * (63 - t));\n"
    "    stg_u32x4((char *)a.out + 1024 * i + 16 * (63 - t), x);\n"
    "  }\n"
    "}\n";

static const fault copy_faults[] = {
    {"cp_async_wait(0);\n", "", "no cp.async.wait_group", NULL, NULL},
    {"cp_async_wait(0)", "cp_async_wait(1)", "cp.async.wait_group", NULL, NULL},
    {"cp_async_commit(); /* first */", "", "cp.async.wait_group", NULL, NULL},
    {"sync_threads();\n", "", "that nothing has written", NULL, NULL},
    {"(i + 1) % 2 * 1024 + 16", "16", "cp_async_16(s + 16 * t, in + (i + 1) * 1024, 16)", NULL,
     NULL},
    {"s + 16 * t, in", "s + 16 * t + 8, in", "is not a multiple of 16", NULL, NULL},
    {"s + 16 * t, in", "s + 49152 + 16 * t, in", "outside the block's memory", NULL, NULL},
    {"s + 16 * t, in", "s + 16 * t, in + 8", "is not a multiple of 16", NULL, NULL},
    {"s + 16 * t, in", "s + 16 * t, in - 1024", "lie in no device memory", NULL, NULL},
    {"in + (i + 1) * 1024", "in + (i + 3) * 1024", "of an allocation of 4096 bytes", NULL, NULL},
    {"x, s + i % 2", "x, s + 8192 + i % 2", "reads shared 0x2400 that nothing has written", NULL,
     NULL},
    {"if (i < 2) cp", "if (i < 3) cp", "ends and has not waited for /kiln/test:11: cp_async_16",
     NULL, NULL},
    {"in, 16);\n  cp", "in, 17);\n  cp", "17 bytes; 0 to 16", NULL, NULL},
    {"1024 * i + 16 * (63 - t), x", "1024 * i + 16 * (64 - t), x", "of an allocation of 3072", NULL,
     NULL},
    {"sync_threads();\n", "if (t < 32) sync_threads();\n", "is not ordered after", NULL, NULL},
    {"  }\n}\n", "  }\n  if (t < 32) sync_threads();\n}\n",
     "32 threads of warp 0 at /kiln/test:16: sync_threads() for barrier 0 (32 of 64", NULL, NULL},
    {"sync_threads();\n", "named_sync(16, 64);\n", "there is no barrier 16", NULL, NULL},
    {"sync_threads();\n", "named_sync(1, 96);\n", "96 threads", NULL, NULL},
    {"sync_threads();\n", "named_sync(1, 32);\n", "that nothing has written", NULL, NULL},
    {"sync_threads();\n", "sync_threads(); if (t == 7) *(volatile int *)(a.n + 16) = 1;\n",
     "warp 0 lane 7: plain access to unmapped address 0x10; the last instruction before was "
     "/kiln/test:10: sync_threads()",
     NULL, NULL},
    {"  u32 x[4];\n", "  u32 x[4]; volatile char big[1 << 18]; x[0] = (u32)big[a.n];\n",
     "stack overflowed", NULL, NULL},
};

enum { NUM_COPY = sizeof copy_faults / sizeof *copy_faults };

static void run_copy(int schedule, const char *text, const char *expected) {
  emulated e;
  static const char zeros[4096];
  emulated_create(&e, schedules[schedule].name, schedules[schedule].seed, 64);
  e.args.in = emulated_upload(&e, zeros, sizeof zeros);
  e.args.out = emulated_alloc(&e, 3072);
  if (expected) {
    emulated_must_fault(&e, text, expected);
  } else {
    emulated_compile(&e, text);
    emulated_run(&e);
  }
  emulated_destroy(&e);
}

START_TEST(the_copy_kernel_is_right) { run_copy(_i, copy_kernel, NULL); }
END_TEST

START_TEST(copy_faults_are_named) {
  const int schedule = _i / NUM_COPY;
  const fault *f = &copy_faults[_i % NUM_COPY];
  char *text = broken(copy_kernel, f);
  run_copy(schedule, text, schedule == 0 ? f->expected : "emulator stopped");
  free(text);
}
END_TEST

/* ---- one warp ---- */

static const char warp_kernel[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 lane = (u32)thread_index() % 32, s = shared_base();\n"
                  "  for (int i = 0; i < 2; i++) {\n"
                  "    sts_u32(s + 4 * lane, lane);\n"
                  "    sync_warp(); /* behind the stores */\n"
                  "    const int other = lds_i32(s + 4 * (31 - lane));\n"
                  "    stg_u32((u32 *)a.out + lane, (u32)shfl_i32(other, 3));\n"
                  "    sync_warp(); /* behind the loads */\n"
                  "  }\n"
                  "}\n";

static const fault warp_faults[] = {
    {"sync_warp(); /* behind the stores */", "", "that nothing has written", NULL, NULL},
    {"sync_warp(); /* behind the stores */", "shfl_i32(0, 0);", "is not ordered after", NULL, NULL},
    {"sync_warp(); /* behind the loads */", "any_sync(1);", "may still read", NULL, NULL},
    {"(u32)shfl_i32(other, 3)", "(u32)(lane < 16 ? shfl_i32(other, 3) : redux_max_i32(other))",
     "of another lane of the warp", NULL, NULL},
    {"(u32)shfl_i32(other, 3)", "(u32)(lane < 16 ? shfl_i32(other, 3) : 0)", "another lane", NULL,
     NULL},
    {"sts_u32(s + 4 * lane, lane);", "sts_flag(s, 1); while (lds_flag(s)) {}",
     "the flag does not change", NULL, NULL},
    {"sts_u32(s + 4 * lane, lane);", "lds_flag(s + 4 * lane);",
     "lds_flag(s + 4 * lane) reads shared 0x400 that nothing has written", NULL, NULL},
    {"sts_u32(s + 4 * lane, lane)", "sts_u32(s + 2 * lane, lane)", "is not a multiple of 4", NULL,
     NULL},
};

enum { NUM_WARP = sizeof warp_faults / sizeof *warp_faults };

START_TEST(warp_faults_are_named) {
  emulated e;
  const int schedule = _i / NUM_WARP;
  const fault *f = &warp_faults[_i % NUM_WARP];
  char *text = broken(warp_kernel, f);
  emulated_create(&e, schedules[schedule].name, schedules[schedule].seed, 32);
  e.args.out = emulated_alloc(&e, 128);
  emulated_compile(&e, warp_kernel);
  emulated_run(&e);
  emulated_must_fault(&e, text, schedule == 0 ? f->expected : "emulator stopped");
  emulated_destroy(&e);
  free(text);
}
END_TEST

/* ---- TMA, wgmma and a store: a producer warp and a warpgroup, three tiles through two slots ----
 * */

static const char hopper_kernel[] = EMULATED_ARGS
    "DEV u64 desc(u32 at) { return 0x4000004000010000ull | at >> 4; }\n"
    "KERNEL void test_kernel(PARAM TensorMap map_a, PARAM TensorMap map_b, PARAM TensorMap map_o,\n"
    "                        PARAM Args x) {\n"
    "  const u32 t = (u32)thread_index(), lane = t % 32, s = shared_base();\n"
    "  const u32 a = s, b = s + 8192, o = s + 24576, full = s + 40960, empty = full + 16;\n"
    "  (void)x;\n"
    "  if (t == 0) {\n"
    "    for (u32 i = 0; i < 2; i++) {\n"
    "      bar_init(full + 8 * i, 1);\n"
    "      bar_init(empty + 8 * i, 4);\n"
    "    }\n"
    "    fence_bar_init();\n"
    "  }\n"
    "  sync_threads();\n"
    "  if (t >= 128) {\n"
    "    for (u32 i = 0; i < 3 && t == 128; i++) {\n"
    "      const u32 slot = i % 2;\n"
    "      bar_wait(empty + 8 * slot, (i / 2) ^ 1);\n"
    "      bar_expect(full + 8 * slot, i ? 8192 : 16384);\n"
    "      if (!i) tma_load(a, &map_a, full, 0, 0, 0, 0, 0);\n"
    "      tma_load(b + slot * 8192, &map_b, full + 8 * slot, 0, (int)(64 * i), 0, 0, 0);\n"
    "    }\n"
    "    return;\n"
    "  }\n"
    "  float d[32], e[32];\n"
    "  u32 p[4];\n"
    "  for (u32 i = 0; i < 3; i++) {\n"
    "    const u32 slot = i % 2;\n"
    "    bar_wait(full + 8 * slot, i / 2);\n"
    "    wgmma_fence(); /* ss */\n"
    "    for (u32 k = 0; k < 4; k++)\n"
    "      wgmma_ss_n64_bf16(d, desc(a) + 2 * k, desc(b + slot * 8192) + 2 * k, i || k);\n"
    "    wgmma_commit(); /* ss */\n"
    "    wgmma_wait(0); /* ss */\n"
    "    touch_f32x32(d);\n"
    "    if (lane == 0) bar_arrive(empty + 8 * slot);\n"
    "  }\n"
    "  for (int i = 0; i < 4; i++) p[i] = pack_bf16(d[2 * i], d[2 * i + 1]);\n"
    "  wgmma_fence(); /* rs */\n"
    "  wgmma_rs_n64_bf16(e, p, desc(b), 0);\n"
    "  wgmma_commit(); /* rs */\n"
    "  wgmma_wait(0); /* rs */\n"
    "  touch_f32x32(e);\n"
    "  touch_u32x4(p);\n"
    "  const u32 row = t / 32 * 16 + t % 16, half = lane / 16;\n"
    "  for (int round = 0; round < 2; round++) {\n"
    "    if (round && lane == 0) bulk_wait_read(0);\n"
    "    sync_warp(); /* staging */\n"
    "    for (u32 j = 0; j < 4; j++) {\n"
    "      const float *v = (round ? e : d) + 8 * j;\n"
    "      const u32 r[4] = {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),\n"
    "                        pack_bf16(v[6], v[7])};\n"
    "      stmatrix_x4(o + row * 128 + (((2 * j + half) ^ (row & 7)) << 4), r);\n"
    "    }\n"
    "    fence_async();\n"
    "    sync_warp(); /* store */\n"
    "    if (lane == 0) {\n"
    "      tma_store(&map_o, o + t / 32 * 2048, 0, (int)(t / 32 * 16) + 64 * round, 0, 0);\n"
    "      bulk_commit();\n"
    "    }\n"
    "  }\n"
    "  if (lane == 0) bulk_wait(0);\n"
    "}\n";

static const fault hopper_faults[] = {
    {"tma_load(a, &map_a, full, 0, 0", "tma_load(a, &map_a, full, 4, 0",
     "column 4, which is no multiple of 16 bytes", NULL, NULL},
    {"tma_store(&map_o, o + t / 32 * 2048, 0,", "tma_store(&map_o, o + t / 32 * 2048, -1,",
     "column -1, which is no multiple of 16 bytes", NULL, NULL},
    {"0, (int)(t / 32 * 16) + 64 * round", "0, (int)(t / 32 * 16) + 64 * round - 8",
     "begins at -8 in dimension 1; only a load may begin below 0", NULL, NULL},
    {"    bar_wait(full + 8 * slot, i / 2);\n", "", "shared 0x", NULL, NULL},
    {"    bar_wait(full + 8 * slot, i / 2);\n",
     "    if (lane == 0) bar_wait(full + 8 * slot, i / 2);\n", "shared 0x", NULL, NULL},
    {"    bar_wait(full + 8 * slot, i / 2);\n",
     "    if (t >= 32) bar_wait(full + 8 * slot, i / 2);\n", "(its completion was not waited for)",
     NULL, NULL},
    {"      bar_wait(empty + 8 * slot, (i / 2) ^ 1);\n", "", "full + 8 * i#0", NULL, NULL},
    {"(i / 2) ^ 1", "i / 2", "deadlock", NULL, NULL},
    {"    wgmma_wait(0); /* ss */\n    touch_f32x32(d);\n"
     "    if (lane == 0) bar_arrive(empty + 8 * slot);\n",
     "    if (lane == 0) bar_arrive(empty + 8 * slot);\n    wgmma_wait(0);\n",
     "may still read: nobody released it", NULL, NULL},
    {"wgmma_wait(0); /* ss */", "", "is used while its wgmma is in flight", NULL, NULL},
    {"wgmma_wait(0); /* ss */", "d[5] *= 2.0f; wgmma_wait(0);",
     "accumulator register 5 was written", NULL, NULL},
    {"wgmma_wait(0); /* rs */", "p[1]++; wgmma_wait(0);", "an operand register of", NULL, NULL},
    {"wgmma_wait(0); /* rs */", "", "wgmma", NULL, NULL},
    {"    touch_f32x32(d);\n", "    d[7] += 1.0f;\n    touch_f32x32(d);\n",
     "before it was touched behind the wait", NULL, NULL},
    {"  touch_f32x32(e);\n", "", "has not touched the results of wgmma", NULL, NULL},
    {"  touch_u32x4(p);\n", "  p[2]++;\n  touch_u32x4(p);\n",
     "were written before they were touched behind its wait", NULL, NULL},
    {"  touch_u32x4(p);\n",
     "  p[2]++;\n  wgmma_fence();\n  wgmma_rs_n64_bf16(e, p, desc(b), 0);\n  wgmma_commit();\n"
     "  wgmma_wait(0);\n  touch_f32x32(e);\n",
     "were written before they were touched behind its wait", NULL, NULL},
    {"wgmma_fence(); /* ss */", "", "without wgmma_fence", NULL, NULL},
    {"wgmma_fence(); /* rs */", "", "without wgmma_fence", NULL, NULL},
    {"wgmma_commit(); /* ss */", "", "that are not committed", NULL, NULL},
    {"    fence_async();\n", "", "has no fence.proxy.async behind it", NULL, NULL},
    {"    fence_async();\n    sync_warp(); /* store */\n",
     "    sync_warp();\n    if (lane == 0) fence_async();\n", "has no fence.proxy.async behind it",
     NULL, NULL},
    {"    fence_async();\n", "    if (lane == 0) fence_async();\n",
     "has no fence.proxy.async behind it", NULL, NULL},
    {"    sync_warp(); /* store */\n", "", "is not ordered after", NULL, NULL},
    {"    if (round && lane == 0) bulk_wait_read(0);\n", "", "(bulk group 1) may still read", NULL,
     NULL},
    {"    sync_warp(); /* staging */\n", "", "(bulk group 1) may still read", NULL, NULL},
    {"      bulk_commit();\n", "", "may still read", NULL, NULL},
    {"  if (lane == 0) bulk_wait(0);\n", "", "bulk_wait_read is missing", NULL, NULL},
    {"i ? 8192 : 16384", "i ? 8192 : 8192", "fewer bytes are expected", NULL, NULL},
    {"i ? 8192 : 16384", "i ? 16384 : 16384", "deadlock", NULL, NULL},
    {"    fence_bar_init();\n", "", "without fence_bar_init", NULL, NULL},
    {"  sync_threads();\n", "", "initialis", NULL, NULL},
    {"empty + 8 * i, 4", "empty + 8 * i, 5", "1 of 5 arrivals missing", NULL, NULL},
    {"empty + 8 * i, 4", "empty + 8 * i, 3", "may still read: nobody released it", NULL, NULL},
    {"empty + 8 * i, 4", "empty + 8 * i, 1", "may still read: nobody released it",
     "if (lane == 0) bar_arrive", "if (t == 0) bar_arrive"},
    {"desc(a) + 2 * k", "desc(a + 65536) + 2 * k", "outside the block's memory", NULL, NULL},
    {"desc(a) + 2 * k", "(desc(a) | 1ull << 49) + 2 * k", "base offset", NULL, NULL},
    {"desc(a) + 2 * k", "desc(a + t / 64 * 16) + 2 * k", "operands differ within the warpgroup",
     NULL, NULL},
    {"b + slot * 8192, &map_b", "b + slot * 8192 + 512, &map_b", "is not a multiple of 1024", NULL,
     NULL},
    {"b + slot * 8192, &map_b", "b + 1024 + slot * 8192, &map_b", "shared 0x", NULL, NULL},
    {"full + 8 * i, 1", "full + 8 * i, 0", "0 arrivals", NULL, NULL},
    {"full + 8 * slot, i ?", "full + 4 * slot, i ?", "is not a multiple of 8", NULL, NULL},
    {"bar_arrive(empty + 8 * slot)", "bar_arrive_peer(empty + 8 * slot, 1)", "a cluster of 1", NULL,
     NULL},
    {"    wgmma_fence(); /* ss */\n", "    reg_dec(20);\n    wgmma_fence();\n",
     "a multiple of 8 from 24 to 256", NULL, NULL},
};

enum { NUM_HOPPER = sizeof hopper_faults / sizeof *hopper_faults };

static void run_hopper(int schedule, const char *text, const char *expected) {
  emulated e;
  static const uint16_t zeros[64 * 64 * 3];
  emulated_create(&e, schedules[schedule].name, schedules[schedule].seed, 160);
  void *at = emulated_upload(&e, zeros, sizeof zeros);
  emulated_map(&e, at, 64, 64, 64, 64, 128);
  emulated_map(&e, at, 192, 64, 64, 64, 128);
  emulated_map(&e, emulated_alloc(&e, 2 * 64 * 128), 128, 64, 16, 64, 128);
  if (expected) {
    emulated_must_fault(&e, text, expected);
  } else {
    emulated_compile(&e, text);
    emulated_run(&e);
  }
  emulated_destroy(&e);
}

START_TEST(the_hopper_kernel_is_right) { run_hopper(_i, hopper_kernel, NULL); }
END_TEST

START_TEST(hopper_faults_are_named) {
  const int schedule = _i / NUM_HOPPER;
  const fault *f = &hopper_faults[_i % NUM_HOPPER];
  char *text = broken(hopper_kernel, f);
  run_hopper(schedule, text, schedule == 0 ? f->expected : "emulator stopped");
  free(text);
}
END_TEST

/* ---- the register pool: 168 for each of 384 threads ---- */

START_TEST(a_pool_that_is_too_small_is_named) {
  emulated e;
  emulated_create(&e, schedules[_i].name, schedules[_i].seed, 384);
  emulated_must_fault(&e,
                      EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                                    "  (void)a;\n"
                                    "  if (thread_index() < 128) reg_dec(40);\n"
                                    "  else reg_inc(240);\n"
                                    "}\n",
                      "reg_inc(240) for 240 registers a thread (");
  emulated_destroy(&e);
}
END_TEST

/* ---- ldmatrix before a TMA load over the same bytes ---- */

static const char reload_kernel[] = EMULATED_ARGS
    "KERNEL void test_kernel(PARAM TensorMap map, PARAM Args x) {\n"
    "  const u32 t = (u32)thread_index(), lane = t % 32, s = shared_base(), full = s + 8192,\n"
    "            empty = full + 8;\n"
    "  u32 p[4];\n"
    "  float d[4] = {0};\n"
    "  if (t == 0) {\n"
    "    bar_init(full, 1);\n"
    "    bar_init(empty, 1);\n"
    "    fence_bar_init();\n"
    "  }\n"
    "  sync_threads();\n"
    "  for (u32 i = 0; i < 2 && t == 32; i++) {\n"
    "    bar_wait(empty, i ^ 1);\n"
    "    bar_expect(full, 8192);\n"
    "    tma_load(s, &map, full, 0, 0, 0, 0, 0);\n"
    "  }\n"
    "  for (u32 i = 0; i < 2 && t < 32; i++) {\n"
    "    bar_wait(full, i);\n"
    "    ldmatrix_x4(p, s + lane % 16 * 128 + lane / 16 * 16);\n"
    "    mma_m16n8k16_bf16(d, p, p);\n"
    "    sync_warp();\n"
    "    if (t == 0) bar_arrive(empty);\n"
    "  }\n"
    "  stg_f32((float *)x.out + t, d[0]);\n"
    "}\n";

static const fault reload_faults[] = {
    {"    mma_m16n8k16_bf16(d, p, p);\n", "", "neither consumed by a finished mma nor fenced", NULL,
     NULL},
    {"    mma_m16n8k16_bf16(d, p, p);\n    sync_warp();\n",
     "    sync_warp();\n    mma_m16n8k16_bf16(d, p, p);\n", "neither consumed", NULL, NULL},
    {"    sync_warp();\n", "", "may still read", NULL, NULL},
};

enum { NUM_RELOAD = sizeof reload_faults / sizeof *reload_faults };

/* The same with wgmma: its wait says that the loads of its registers are complete. */
static const char reload_wgmma_kernel[] = EMULATED_ARGS
    "KERNEL void test_kernel(PARAM TensorMap map, PARAM Args x) {\n"
    "  const u32 t = (u32)thread_index(), lane = t % 32, s = shared_base(), full = s + 16384,\n"
    "            empty = full + 8;\n"
    "  u32 p[4];\n"
    "  float d[4];\n"
    "  (void)x;\n"
    "  if (t == 0) {\n"
    "    bar_init(full, 1);\n"
    "    bar_init(empty, 4);\n"
    "    fence_bar_init();\n"
    "  }\n"
    "  sync_threads();\n"
    "  for (u32 i = 0; i < 2 && t == 128; i++) {\n"
    "    bar_wait(empty, i ^ 1);\n"
    "    bar_expect(full, i ? 8192 : 16384);\n"
    "    tma_load(s, &map, full, 0, 0, 0, 0, 0);\n"
    "    if (!i) tma_load(s + 8192, &map, full, 0, 0, 0, 0, 0);\n"
    "  }\n"
    "  for (u32 i = 0; i < 2 && t < 128; i++) {\n"
    "    bar_wait(full, i);\n"
    "    ldmatrix_x4(p, s + (t / 32 * 16 + lane % 16) * 128 + lane / 16 * 16);\n"
    "    wgmma_fence();\n"
    "    wgmma_rs_n8_bf16(d, p, 0x0000000800400000ull | (s + 8192) >> 4, 0);\n"
    "    wgmma_commit();\n"
    "    wgmma_wait(0);\n"
    "    sync_warp();\n"
    "    if (lane == 0) bar_arrive(empty);\n"
    "    touch_u32x4(p);\n"
    "    touch_f32x4(d);\n"
    "  }\n"
    "}\n";

static const fault reload_wgmma_faults[] = {
    {"    sync_warp();\n    if (lane == 0) bar_arrive(empty);\n", "    sync_warp();\n",
     "neither consumed by a finished mma nor fenced", "    wgmma_wait(0);\n",
     "    sync_warp();\n    if (lane == 0) bar_arrive(empty);\n    wgmma_wait(0);\n"},
};

static void run_reload(int schedule, int threads, const char *right, const fault *f) {
  emulated e;
  static const uint16_t zeros[64 * 64];
  char *text = broken(right, f);
  emulated_create(&e, schedules[schedule].name, schedules[schedule].seed, threads);
  emulated_map(&e, emulated_upload(&e, zeros, sizeof zeros), 64, 64, 64, 64, 0);
  e.args.out = emulated_alloc(&e, 256);
  emulated_compile(&e, right);
  emulated_run(&e);
  emulated_must_fault(&e, text, schedule == 0 ? f->expected : "emulator stopped");
  emulated_destroy(&e);
  free(text);
}

START_TEST(loads_must_be_consumed_before_a_slot_is_released) {
  run_reload(_i / NUM_RELOAD, 64, reload_kernel, &reload_faults[_i % NUM_RELOAD]);
}
END_TEST

START_TEST(a_finished_wgmma_has_consumed_its_registers) {
  run_reload(_i, 160, reload_wgmma_kernel, &reload_wgmma_faults[0]);
}
END_TEST

Suite *suite_emulator_faults(void) {
  Suite *suite = suite_create("emulator_faults");
  TCase *tests = tcase_create("faults");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, the_copy_kernel_is_right, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, copy_faults_are_named, 0, 2 * NUM_COPY);
  tcase_add_loop_test(tests, warp_faults_are_named, 0, NUM_WARP);
  tcase_add_loop_test(tests, the_hopper_kernel_is_right, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, hopper_faults_are_named, 0, 2 * NUM_HOPPER);
  tcase_add_loop_test(tests, a_pool_that_is_too_small_is_named, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, loads_must_be_consumed_before_a_slot_is_released, 0, 2 * NUM_RELOAD);
  tcase_add_loop_test(tests, a_finished_wgmma_has_consumed_its_registers, 0, 2);
  suite_add_tcase(suite, tests);
  return suite;
}
