/* Happens-before in global memory: kernels whose threads and blocks meet there and are right, and
 * edits that take away one step of what orders them, or put another in its place. The emulator must
 * say nothing about what is right, and name both sides of what is not, whatever the schedule. */
#include "emulated.h"
#include "suites.h"

#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  int64_t seed;
} schedules[] = {{"late", -1}, {"random", 1}, {"eager", -1}, {"random", 2}, {"random", 3}};

enum {
  NUM_SCHEDULES = sizeof schedules / sizeof *schedules,
  FAULT_SCHEDULES = 2, /* the first ones */
  MAX_WORDS = 1024
};

typedef struct example {
  const char *text;
  int threads;
  uint32_t blocks, words; /* of out; in has as many, all zero */
  int maps;               /* a tensor map of in and one of out: 8 rows of 64 elements of 16 bits */
} example;

typedef struct fault {
  const char *old, *new_text; /* the edit */
  const char *expected;       /* a part of the report; NULL: the kernel is still right */
} fault;

static void create(emulated *e, const example *x, int schedule) {
  static const uint32_t zeros[MAX_WORDS];
  emulated_create(e, schedules[schedule].name, schedules[schedule].seed, x->threads);
  e->blocks = x->blocks;
  e->args.n = x->blocks;
  e->args.in = emulated_upload(e, zeros, 4 * x->words);
  e->args.out = emulated_upload(e, zeros, 4 * x->words);
  if (!x->maps) return;
  emulated_map(e, e->args.in, 8, 64, 8, 64, 0);
  emulated_map(e, e->args.out, 8, 64, 8, 64, 0);
}

/* Runs an example that is right twice: the end of a kernel orders what comes after it. */
static void run_right(const example *x, const char *text, int schedule, uint32_t *out) {
  emulated e;
  create(&e, x, schedule);
  emulated_compile(&e, text);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, 4 * x->words);
  emulated_run(&e);
  emulated_destroy(&e);
}

static void run_edited(const example *x, const fault *f, int schedule) {
  emulated e;
  char *text = emulated_edit(x->text, f->old, f->new_text);
  create(&e, x, schedule);
  if (f->expected) {
    emulated_must_fault(&e, text, f->expected);
  } else {
    emulated_compile(&e, text);
    emulated_run(&e);
  }
  emulated_destroy(&e);
  free(text);
}

/* ---- the last block merges what all have left ---- */

static const char merge_text[] = EMULATED_ARGS
    "KERNEL void test_kernel(PARAM Args a) {\n"
    "  const u32 t = (u32)thread_index(), b = (u32)block_index(), s = shared_base();\n"
    "  float *parts = (float *)a.in + 64;\n"
    "  stg_f32(parts + 64 * b + t, (float)(b + t));\n"
    "  sync_threads(); /* the block has stored */\n"
    "  if (t == 0) {\n"
    "    fence_gpu(); /* before */\n"
    "    const u32 ticket = atomic_inc_u32((u32 *)a.in, (u32)a.n - 1);\n"
    "    fence_gpu(); /* behind */\n"
    "    sts_u32(s, ticket);\n"
    "  }\n"
    "  sync_threads(); /* the ticket is there */\n"
    "  if (lds_i32(s) != (int)a.n - 1) return;\n"
    "  float sum = 0;\n"
    "  for (int i = 0; i < (int)a.n; i++) sum += ldg_f32(parts + 64 * i + t);\n"
    "  stg_f32((float *)a.out + t, sum);\n"
    "}\n";

static const example merge = {merge_text, 64, 7, 64 * 8, 0};

static const fault merge_faults[] = {
    {"fence_gpu(); /* before */", "",
     "of an allocation of 2048 bytes is not ordered after /kiln/test:5: stg_f32(parts + 64 * b + "
     "t, (float)(b + "
     "t)) by block 0 warp "},
    {"fence_gpu(); /* behind */", "", "is not ordered after /kiln/test:5: stg_f32"},
    {"sync_threads(); /* the block has stored */", "",
     "is not ordered after /kiln/test:5: stg_f32"},
    {"sync_threads(); /* the block has stored */\n", "fence_gpu();\n", "is not ordered after"},
    {"  sync_threads(); /* the block has stored */\n  if (t == 0) {\n    fence_gpu(); /* before "
     "*/\n",
     "  fence_gpu();\n  sync_threads();\n  if (t == 0) {\n", "is not ordered after"},
    {"    fence_gpu(); /* before */\n"
     "    const u32 ticket = atomic_inc_u32((u32 *)a.in, (u32)a.n - 1);\n"
     "    fence_gpu(); /* behind */\n",
     "    const u32 ticket = atomic_add_u32_acq_rel((u32 *)a.in, 1) % (u32)a.n;\n", NULL},
};

enum { NUM_MERGE = sizeof merge_faults / sizeof *merge_faults };

START_TEST(the_last_block_merges) {
  uint32_t out[MAX_WORDS];
  run_right(&merge, merge.text, _i, out);
  for (int t = 0; t < 64; t++) {
    float sum;
    memcpy(&sum, &out[t], sizeof sum);
    ck_assert(sum == (float)(21 + 7 * t));
  }
}
END_TEST

START_TEST(a_merge_without_a_step_is_named) {
  run_edited(&merge, &merge_faults[_i % NUM_MERGE], _i / NUM_MERGE);
}
END_TEST

/* ---- blocks add to the same words in falling order, by a semaphore ---- */

static const char turns_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), turn = (u32)(a.n - 1 - block_index());\n"
                  "  float *sum = (float *)a.out + t;\n"
                  "  if (t == 0) semaphore_wait((u32 *)a.in, turn);\n"
                  "  sync_threads(); /* it is our turn */\n"
                  "  stg_f32(sum, (turn ? 2.0f * ldg_f32(sum) : 0.0f) + (float)turn);\n"
                  "  sync_threads(); /* all have added */\n"
                  "  if (t == 0) stg_release_u32((u32 *)a.in, (turn + 1) % (u32)a.n);\n"
                  "}\n";

static const example turns = {turns_text, 64, 6, 64, 0};

static const fault turns_faults[] = {
    {"if (t == 0) semaphore_wait((u32 *)a.in, turn);\n  sync_threads(); /* it is our turn */\n",
     "semaphore_wait((u32 *)a.in, turn);\n", NULL},
    {"semaphore_wait((u32 *)a.in, turn);", "while (ldg_acquire_u32((u32 *)a.in) != turn) {}", NULL},
    {"semaphore_wait((u32 *)a.in, turn);",
     "{ while (atomic_add_u32((u32 *)a.in, 0) != turn) {} fence_gpu(); }", NULL},
    {"stg_release_u32((u32 *)a.in, (turn + 1) % (u32)a.n)",
     "{ fence_gpu(); atomic_inc_u32((u32 *)a.in, (u32)a.n - 1); }", NULL},
    {"stg_release_u32((u32 *)a.in, (turn + 1) % (u32)a.n)", "red_add_u32_release((u32 *)a.in, 1)",
     NULL},
    {"semaphore_wait((u32 *)a.in, turn);", "while (atomic_add_u32((u32 *)a.in, 0) != turn) {}",
     "is not ordered after /kiln/test:7: stg_f32(sum, "},
    {"sync_threads(); /* it is our turn */", "", "by block "},
    {"sync_threads(); /* all have added */", "", "by block "},
    {"stg_release_u32((u32 *)a.in, (turn + 1) % (u32)a.n)",
     "atomic_inc_u32((u32 *)a.in, (u32)a.n - 1)", "is not ordered after /kiln/test:7: stg_f32"},
    {"stg_release_u32((u32 *)a.in, (turn + 1) % (u32)a.n)",
     "{ atomic_inc_u32((u32 *)a.in, (u32)a.n - 1); fence_gpu(); }", "is not ordered after"},
    {"stg_release_u32((u32 *)a.in, (turn + 1) % (u32)a.n)",
     "stg_u32((u32 *)a.in, (turn + 1) % (u32)a.n)", "is not ordered after /kiln/test:9: stg_u32("},
    {"stg_release_u32((u32 *)a.in, (turn + 1) % (u32)a.n)",
     "stg_release_u32((u32 *)a.in, turn + (turn != 3))",
     "semaphore_wait((u32 *)a.in, turn) for the word at offset 0 of an allocation of 256 bytes to "
     "become 4 (it is 3)"},
};

enum { NUM_TURNS = sizeof turns_faults / sizeof *turns_faults };

START_TEST(blocks_take_turns) {
  uint32_t out[MAX_WORDS];
  run_right(&turns, turns.text, _i, out);
  for (int t = 0; t < 64; t++) {
    float sum;
    memcpy(&sum, &out[t], sizeof sum);
    ck_assert(sum == 57.0f); /* (((((0 + 1) * 2 + 2) * 2 + 3) * 2 + 4) * 2 + 5 */
  }
}
END_TEST

START_TEST(turns_without_a_step_are_named) {
  run_edited(&turns, &turns_faults[_i % NUM_TURNS], _i / NUM_TURNS);
}
END_TEST

/* Eight blocks of 1024 threads fit: the twelfth, whose turn is the first, never begins. */
START_TEST(a_block_that_cannot_begin_is_named) {
  emulated e;
  example many = turns;
  many.threads = 1024;
  many.blocks = 12;
  many.words = 1024;
  create(&e, &many, _i);
  emulated_must_fault(
      &e, many.text,
      "deadlock: every thread waits; blocks 8 to 11 have not begun, as no more than "
      "8 fit\n  block 0: 1 thread of warp 0 (lane 0) at /kiln/test:5: "
      "semaphore_wait((u32 *)a.in, turn) for the word at offset 0 of an allocation "
      "of 4096 bytes to become 11 (it is 0)");
  emulated_destroy(&e);
}
END_TEST

START_TEST(a_word_that_does_not_change_is_named) {
  emulated e;
  create(&e, &turns, _i);
  emulated_must_fault(&e,
                      EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                                    "  if (thread_index() == 0 && block_index())\n"
                                    "    while (!ldg_acquire_u32((u32 *)a.in)) {}\n"
                                    "}\n",
                      "/kiln/test:4: ldg_acquire_u32((u32 *)a.in): the word does not change");
  emulated_destroy(&e);
}
END_TEST

/* ---- a lock ---- */

static const char lock_text[] = EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                                              "  if (thread_index() % 32) return;\n"
                                              "  u32 x[4];\n"
                                              "  while (atomic_cas_u32((u32 *)a.in, 0, 1)) {}\n"
                                              "  fence_gpu(); /* taken */\n"
                                              "  ldg_u32x4(x, a.out);\n"
                                              "  for (int i = 0; i < 4; i++) x[i] += (u32)i + 1;\n"
                                              "  stg_u32x4(a.out, x);\n"
                                              "  fence_gpu(); /* given back */\n"
                                              "  atomic_exch_u32((u32 *)a.in, 0);\n"
                                              "}\n";

static const example lock = {lock_text, 64, 4, 64, 0};

static const fault lock_faults[] = {
    {"fence_gpu(); /* taken */", "",
     "ldg_u32x4(x, a.out) at offset 0 of an allocation of 256 bytes "
     "is not ordered after /kiln/test:9: stg_u32x4(a.out, x) by "
     "block "},
    {"fence_gpu(); /* given back */", "", "is not ordered after /kiln/test:9: stg_u32x4(a.out, x)"},
    {"  while (atomic_cas_u32((u32 *)a.in, 0, 1)) {}\n", "", "by block "},
};

enum { NUM_LOCK = sizeof lock_faults / sizeof *lock_faults };

START_TEST(a_lock_guards) {
  uint32_t out[MAX_WORDS];
  run_right(&lock, lock.text, _i, out);
  for (uint32_t i = 0; i < 4; i++) ck_assert_uint_eq(out[i], 8 * (i + 1));
}
END_TEST

START_TEST(a_lock_without_a_step_is_named) {
  run_edited(&lock, &lock_faults[_i % NUM_LOCK], _i / NUM_LOCK);
}
END_TEST

/* ---- blocks that do not talk, and threads of one block ---- */

static const char apart_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), b = (u32)block_index();\n"
                  "  u16 *halves = (u16 *)a.out + 64 * b; /* own */\n"
                  "  const u32 x = ldg_u16((u16 *)a.in + t);\n"
                  "  stg_u16(halves + t, x + t); /* first */\n"
                  "  sync_threads(); /* stored */\n"
                  "  const u32 y = ldg_u16(halves + (t ^ 63));\n"
                  "  sync_threads(); /* loaded */\n"
                  "  stg_u16(halves + t, y);\n"
                  "}\n";

static const example apart = {apart_text, 64, 5, 256, 0};

static const fault apart_faults[] = {
    {"64 * b; /* own */", "64 * (b / 2);", "nothing orders blocks that do not talk"},
    {"64 * b; /* own */", "64 * b - (b == 3) * 2;",
     "block 3 warp 0 lane 0: /kiln/test:10: stg_u16(halves + t, y) at offset 380 of an allocation "
     "of 1024 bytes is not ordered after /kiln/test:10: stg_u16(halves + t, y) by block 2 warp 1 "
     "lane 30; nothing orders blocks that do not talk"},
    {"(u16 *)a.in + t", "(u16 *)a.out + 64 * ((b + 1) % 5) + t",
     "nothing orders blocks that do not talk"},
    {"sync_threads(); /* stored */", "",
     "that /kiln/test:8: ldg_u16(halves + (t ^ 63)) by block 0 warp 0 lane 31 may still read"},
    {"sync_threads(); /* loaded */", "",
     "is not ordered after /kiln/test:10: stg_u16(halves + t, y) by block 0 warp 1 lane 31"},
    {"stg_u16(halves + t, x + t); /* first */", "stg_u16(halves + t / 2 * 2, x + t);",
     "is not ordered after /kiln/test:6: stg_u16(halves + t / 2 * 2, x + t) by block 0 warp "},
};

enum { NUM_APART = sizeof apart_faults / sizeof *apart_faults };

START_TEST(blocks_stay_apart) {
  uint32_t out[MAX_WORDS];
  run_right(&apart, apart.text, _i, out);
  for (uint32_t i = 0; i < 160; i++) {
    const uint32_t t = i % 32 * 2;
    ck_assert_uint_eq(out[i], (t ^ 63) | ((t + 1) ^ 63) << 16);
  }
}
END_TEST

START_TEST(accesses_without_order_are_named) {
  const fault *f = &apart_faults[_i % NUM_APART];
  fault any = *f;
  /* Which pair is met first depends on the schedule; that there is one does not. */
  if (_i / NUM_APART > 0) any.expected = "of an allocation of 1024 bytes";
  run_edited(&apart, &any, _i / NUM_APART);
}
END_TEST

/* ---- through TMA and cp.async ---- */

static const char box_text[] = EMULATED_ARGS
    "KERNEL void test_kernel(PARAM TensorMap in, PARAM TensorMap out, PARAM Args a) {\n"
    "  const u32 t = (u32)thread_index(), s = shared_base(), full = s + 2048;\n"
    "  u32 x[4];\n"
    "  if (t == 0) {\n"
    "    bar_init(full, 1);\n"
    "    fence_bar_init();\n"
    "    bar_expect(full, 1024);\n"
    "    tma_load(s, &in, full, 0, 0, 0, 0, 0);\n"
    "    bar_wait(full, 0);\n"
    "    tma_store(&out, s, 0, 0, 0, 0);\n"
    "    bulk_commit();\n"
    "    bulk_wait(0); /* written */\n"
    "  }\n"
    "  sync_threads(); /* all know */\n"
    "  ldg_u32x4(x, (char *)a.out + 16 * t);\n"
    "  stg_u32x4((char *)a.in + 16 * t, x);\n"
    "  cp_async_16(s + 1024 + 16 * t, (char *)a.out + 16 * t, 16);\n"
    "  cp_async_commit();\n"
    "  cp_async_wait(0);\n"
    "  stg_u32x4((char *)a.out + 16 * t, x);\n"
    "}\n";

static const example box = {box_text, 64, 1, 256, 1};

static const fault box_faults[] = {
    {"bulk_wait(0); /* written */", "bulk_wait_read(0);",
     "is not ordered after /kiln/test:11: tma_store(&out, s, 0, 0, 0, 0) by block 0 warp 0 lane 0 "
     "(no bulk_wait, or no release behind it)"},
    {"sync_threads(); /* all know */", "", "by "},
    {"    bar_wait(full, 0);\n    tma_store(&out, s, 0, 0, 0, 0);\n",
     "    tma_store(&in, s + 3072, 0, 0, 0, 0);\n    bar_wait(full, 0);\n", "tma_store("},
    {"  cp_async_wait(0);\n  stg_u32x4((char *)a.out + 16 * t, x);\n",
     "  stg_u32x4((char *)a.out + 16 * t, x);\n  cp_async_wait(0);\n",
     "overwrites offset 0 of an allocation of 1024 bytes that /kiln/test:18: cp_async_16("},
    {"    bar_init(full, 1);\n", "    stg_u32(a.in, 1);\n    bar_init(full, 1);\n",
     "has no fence.proxy.async.global behind it"},
};

enum { NUM_BOX = sizeof box_faults / sizeof *box_faults };

START_TEST(boxes_are_ordered) {
  uint32_t out[MAX_WORDS];
  run_right(&box, box.text, _i, out);
}
END_TEST

START_TEST(boxes_without_order_are_named) {
  const fault *f = &box_faults[_i % NUM_BOX];
  fault any = *f;
  if (_i / NUM_BOX > 0) any.expected = "emulator stopped";
  run_edited(&box, &any, _i / NUM_BOX);
}
END_TEST

Suite *suite_emulator_blocks(void) {
  Suite *suite = suite_create("emulator_blocks");
  TCase *tests = tcase_create("global");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, the_last_block_merges, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, a_merge_without_a_step_is_named, 0, NUM_MERGE * FAULT_SCHEDULES);
  tcase_add_loop_test(tests, blocks_take_turns, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, turns_without_a_step_are_named, 0, NUM_TURNS * FAULT_SCHEDULES);
  tcase_add_loop_test(tests, a_block_that_cannot_begin_is_named, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, a_word_that_does_not_change_is_named, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, a_lock_guards, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, a_lock_without_a_step_is_named, 0, NUM_LOCK * FAULT_SCHEDULES);
  tcase_add_loop_test(tests, blocks_stay_apart, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, accesses_without_order_are_named, 0, NUM_APART * FAULT_SCHEDULES);
  tcase_add_loop_test(tests, boxes_are_ordered, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, boxes_without_order_are_named, 0, NUM_BOX * FAULT_SCHEDULES);
  suite_add_tcase(suite, tests);
  return suite;
}
