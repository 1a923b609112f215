/* Clusters of two: each block loads half of every tile into both, by multicast, and gives a place
 * back to both producers; blocks copy to each other. The emulator must say nothing about that, and
 * name each of the mistakes that only a cluster allows, under every schedule. */
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
  FAULT_SCHEDULES = 3, /* the first ones */
  ROWS = 64,           /* of 64 elements: four tiles of two boxes of eight rows */
  WORDS = 32 * ROWS,
};

static const char right[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM TensorMap map, PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), lane = t % 32, s = shared_base(), rank = "
                  "cluster_rank(),\n"
                  "            full = s + 4096, empty = full + 16;\n"
                  "  if (t == 0) {\n"
                  "    for (u32 i = 0; i < 2; i++) {\n"
                  "      bar_init(full + 8 * i, 1);\n"
                  "      bar_init(empty + 8 * i, 2);\n"
                  "    }\n"
                  "    fence_bar_init();\n"
                  "  }\n"
                  "  cluster_sync(); /* barriers */\n"
                  "  for (u32 i = 0; i < 4 && t == 32; i++) {\n"
                  "    const u32 slot = i % 2, half = slot * 2048 + 1024 * rank;\n"
                  "    bar_wait(empty + 8 * slot, (i / 2) ^ 1);\n"
                  "    bar_expect(full + 8 * slot, 2048);\n"
                  "    tma_load_multicast(s + half, &map, full + 8 * slot, 0, (int)(16 * i + 8 * "
                  "rank), 0, 0, 0,\n"
                  "                       3);\n"
                  "  }\n"
                  "  for (u32 i = 0; i < 4 && t < 32; i++) {\n"
                  "    const u32 slot = i % 2;\n"
                  "    u32 x[4];\n"
                  "    bar_wait(full + 8 * slot, i / 2);\n"
                  "    for (u32 j = lane; j < 128; j += 32) {\n"
                  "      lds_u32x4(x, s + slot * 2048 + 16 * j);\n"
                  "      stg_u32x4((char *)a.out + 8192 * block_index() + 2048 * i + 16 * j, x);\n"
                  "    }\n"
                  "    sync_warp();\n"
                  "    if (lane < 2) bar_arrive_peer(empty + 8 * slot, lane);\n"
                  "  }\n"
                  "  cluster_sync(); /* end */\n"
                  "}\n";

typedef struct fault {
  const char *old, *new_text; /* the edit */
  const char *expected;       /* a part of the report, late schedule */
  const char *old2, *new2;    /* a second edit, or NULL */
} fault;

static const fault faults[] = {
    {"  cluster_sync(); /* barriers */\n", "  sync_threads();\n", "is not an initialised mbarrier",
     NULL, NULL},
    {"    fence_bar_init();\n", "", "was initialised without fence_bar_init", NULL, NULL},
    {"full + 8 * slot, 2048", "full + 8 * slot, 1024", "mbarrier full + 8 * i#0", NULL, NULL},
    {"full + 8 * slot, 2048", "full + 8 * slot, 4096", "deadlock", NULL, NULL},
    {"if (lane < 2) bar_arrive_peer(empty + 8 * slot, lane);",
     "if (lane == 0) bar_arrive(empty + 8 * slot);",
     "by block 0 TMA on mbarrier full + 8 * i#0 (its completion was not waited for)",
     "empty + 8 * i, 2", "empty + 8 * i, 1"},
    {"if (lane < 2) bar_arrive_peer(empty + 8 * slot, lane);",
     "if (lane == 0) bar_arrive(empty + 8 * slot);", "1 of 2 arrivals missing", NULL, NULL},
    {"if (lane < 2) bar_arrive_peer(empty + 8 * slot, lane);",
     "if (lane < 2) bar_arrive_peer(empty + 8 * slot, rank ^ 1);",
     "has no arrivals left in phase 0", NULL, NULL},
    {"    sync_warp();\n", "", "may still read", NULL, NULL},
    {"    bar_wait(empty + 8 * slot, (i / 2) ^ 1);\n", "", "mbarrier full + 8 * i#0", NULL, NULL},
    {"    bar_wait(full + 8 * slot, i / 2);\n", "", "that nothing has written", NULL, NULL},
    {"                       3);\n", "                       (u16)(1 << rank));\n", "deadlock",
     NULL, NULL},
    {"                       3);\n", "                       7);\n",
     "names blocks outside a cluster of 2", NULL, NULL},
    {"1024 * rank;\n", "0 * rank;\n", "is not ordered after", NULL, NULL},
    {"  cluster_sync(); /* end */\n", "", "has ended", NULL, NULL},
    {"  cluster_sync(); /* end */\n",
     "  sync_threads();\n  sts_flag(s + 8192, 0);\n"
     "  for (int i = 0; i < 99; i++) lds_flag(s + 8192);\n",
     "may have ended before /kiln/test:29: bar_arrive_peer(empty + 8 * slot, lane) by block ", NULL,
     NULL},
};

enum { NUM_FAULTS = sizeof faults / sizeof *faults };

static void create(emulated *e, int schedule) {
  static uint32_t in[WORDS];
  for (uint32_t i = 0; i < WORDS; i++) in[i] = i * 2654435761u;
  emulated_create(e, schedules[schedule].name, schedules[schedule].seed, 64);
  e->shape.cluster = 2;
  e->blocks = 4;
  emulated_map(e, emulated_upload(e, in, sizeof in), ROWS, 64, 8, 64, 0);
  e->args.out = emulated_alloc(e, 4 * sizeof in);
}

START_TEST(both_blocks_get_every_tile) {
  emulated e;
  static uint32_t out[4 * WORDS];
  create(&e, _i);
  emulated_compile(&e, right);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (uint32_t i = 0; i < 4 * WORDS; i++) ck_assert_uint_eq(out[i], i % WORDS * 2654435761u);
  emulated_destroy(&e);
}
END_TEST

START_TEST(faults_of_clusters_are_named) {
  const int schedule = _i / NUM_FAULTS;
  const fault *f = &faults[_i % NUM_FAULTS];
  emulated e;
  char *once = emulated_edit(right, f->old, f->new_text);
  char *text = f->old2 ? emulated_edit(once, f->old2, f->new2) : once;
  create(&e, schedule);
  emulated_must_fault(&e, text, schedule == 0 ? f->expected : "emulator stopped");
  emulated_destroy(&e);
  if (text != once) free(text);
  free(once);
}
END_TEST

/* ---- bytes copied to another block ---- */

static const char peer_text[] =
    EMULATED_ARGS "KERNEL void test_kernel(PARAM Args a) {\n"
                  "  const u32 t = (u32)thread_index(), rank = cluster_rank(), s = shared_base();\n"
                  "  const u32 bar = s + 2048;\n"
                  "  u32 x[4] = {rank, t, 7, 9};\n"
                  "  if (t == 0) {\n"
                  "    bar_init(bar, 1);\n"
                  "    fence_bar_init();\n"
                  "  }\n"
                  "  sts_u32x4(s + 16 * t, x);\n"
                  "  fence_async();\n"
                  "  cluster_sync(); /* filled */\n"
                  "  if (t == 0) {\n"
                  "    bar_expect(bar, 512);\n"
                  "    bulk_copy_peer(s + 512, s, 512, bar, rank ^ 1);\n"
                  "  }\n"
                  "  bar_wait(bar, 0);\n"
                  "  lds_u32x4(x, s + 512 + 16 * t);\n"
                  "  stg_u32x4((char *)a.out + 512 * block_index() + 16 * t, x);\n"
                  "  cluster_sync(); /* both have come */\n"
                  "  sts_u32x4(s + 16 * t, x);\n"
                  "}\n";

static void prepare_peer(emulated *e, int schedule) {
  emulated_create(e, schedules[schedule].name, schedules[schedule].seed, 32);
  e->args.out = emulated_alloc(e, 4 * 512);
  e->blocks = 4;
  e->shape.cluster = 2;
}

START_TEST(blocks_copy_to_each_other) {
  emulated e;
  uint32_t out[4][32][4];
  prepare_peer(&e, _i);
  emulated_compile(&e, peer_text);
  emulated_run(&e);
  emulated_download(&e, out, e.args.out, sizeof out);
  for (uint32_t b = 0; b < 4; b++)
    for (uint32_t t = 0; t < 32; t++)
      ck_assert(out[b][t][0] == (b ^ 1) % 2 && out[b][t][1] == t && out[b][t][3] == 9);
  emulated_destroy(&e);
}
END_TEST

static const fault peer_faults[] = {
    {"  bar_wait(bar, 0);\n", "", "that nothing has written", NULL, NULL},
    {"bar, rank ^ 1)", "bar, 2)", "block 2 of a cluster of 2", NULL, NULL},
    {"bulk_copy_peer(s + 512, s, 512", "bulk_copy_peer(s + 512, s + 8, 512",
     "is not a multiple of 16", NULL, NULL},
    {"  cluster_sync(); /* filled */\n", "  sync_warp();\n", "mbarrier", NULL, NULL},
    {"  cluster_sync(); /* both have come */\n", "",
     "that /kiln/test:15: bulk_copy_peer(s + 512, s, 512, bar, rank ^ 1) by block", NULL, NULL},
    {"  fence_async();\n", "", "has no fence.proxy.async behind it", NULL, NULL},
};

enum { NUM_PEER = sizeof peer_faults / sizeof *peer_faults };

START_TEST(faults_of_copies_to_others_are_named) {
  emulated e;
  const int schedule = _i / NUM_PEER;
  const fault *f = &peer_faults[_i % NUM_PEER];
  char *text = emulated_edit(peer_text, f->old, f->new_text);
  prepare_peer(&e, schedule);
  emulated_must_fault(&e, text, schedule == 0 ? f->expected : "emulator stopped");
  emulated_destroy(&e);
  free(text);
}
END_TEST

Suite *suite_emulator_cluster(void) {
  Suite *suite = suite_create("emulator_cluster");
  TCase *tests = tcase_create("clusters");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, both_blocks_get_every_tile, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, faults_of_clusters_are_named, 0, NUM_FAULTS * FAULT_SCHEDULES);
  tcase_add_loop_test(tests, blocks_copy_to_each_other, 0, NUM_SCHEDULES);
  tcase_add_loop_test(tests, faults_of_copies_to_others_are_named, 0, NUM_PEER * FAULT_SCHEDULES);
  suite_add_tcase(suite, tests);
  return suite;
}
