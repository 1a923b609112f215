/* What a test sets and sees of the stub driver. The test loads the stub first, so that the
 * runtime's dlopen of libcuda.so.1 finds it by its name. What the test sets, it sets while no other
 * thread runs. Included by tests/stub/cuda.c, test_driver.c and test_threads.c. */
#ifndef KILN_TESTS_STUB_H
#define KILN_TESTS_STUB_H

#include <stddef.h>

#define STUB_MAX_DEVICES 4

typedef struct stub_device {
  const char *name;
  int major, minor, num_sms, shared_bytes_block;
} stub_device;

typedef struct stub_thread {
  void *current; /* context */
  int capture_mode;
  void *stack[16];
  int depth;
} stub_thread;

typedef struct stub_state {
  /* set by the test */
  int version, fail_init, fail_alloc, fail_launch, fail_load;
  int capturing, max_threads;
  int times_vary; /* of events: 0.5 ms, 0.625 ms, 0.75 ms and again; else all 0.5 ms */
  int num_devices;
  stub_device devices[STUB_MAX_DEVICES];
  /* seen by the test */
  stub_thread *(*this_thread)(void);
  int retained;       /* primary contexts */
  int relaxed_allocs; /* allocations and loads while the mode was relaxed */
  unsigned grid[3], block[3], shared_bytes, cluster;
  int num_launches, num_loaded, num_timed;
} stub_state;

#endif
