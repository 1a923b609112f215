/* The list of unit-test suites: one row here and one file test_NAME.c with suite_NAME() make a new
 * one.
 *
 * Called by main.c, which runs every row in order. */
#ifndef KILN_TESTS_SUITES_H
#define KILN_TESTS_SUITES_H

#include <check.h>

#define KILN_TEST_SUITES(X) \
  X(number)                 \
  X(tensor)                 \
  X(npy)                    \
  X(safetensors)            \
  X(reference)              \
  X(gradients)              \
  X(textbook)               \
  X(generator)              \
  X(manifest)               \
  X(tiles)                  \
  X(samples)                \
  X(tuning)                 \
  X(records)                \
  X(cli)                    \
  X(bench)                  \
  X(report)                 \
  X(workbench)              \
  X(workbench_backward)     \
  X(child)                  \
  X(status)                 \
  X(nvrtc_log)              \
  X(nvrtc)                  \
  X(record)                 \
  X(launch)                 \
  X(backward_launch)        \
  X(plan)                   \
  X(cache)                  \
  X(compiler)               \
  X(rendering)              \
  X(pack)                   \
  X(pack_sources)           \
  X(packs)                  \
  X(ladder)                 \
  X(ladder_plans)           \
  X(driver)                 \
  X(threads)                \
  X(gpu)                    \
  X(alloc)                  \
  X(emulator_warp)          \
  X(emulator_hopper)        \
  X(emulator_lanes)         \
  X(emulator_copies)        \
  X(emulator_memory)        \
  X(emulator_products)      \
  X(emulator_faults)        \
  X(emulator_blocks)        \
  X(emulator_cluster)       \
  X(emulator_device)

#define X(name) Suite *suite_##name(void);
KILN_TEST_SUITES(X)
#undef X

#endif
