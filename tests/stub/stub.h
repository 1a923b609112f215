/* What a test sets and sees of the stub driver. The test loads the stub first, so that the
 * runtime's dlopen of libcuda.so.1 finds it by its name. Included by tests/stub/cuda.c and
 * test_driver.c. */
#ifndef KILN_TESTS_STUB_H
#define KILN_TESTS_STUB_H

#include <stddef.h>

#define STUB_MAX_DEVICES 4

typedef struct stub_device {
  const char *name;
  int major, minor, num_sms, shared_bytes_block;
} stub_device;

typedef struct stub_state {
  /* set by the test */
  int version, fail_init, fail_alloc, fail_launch, fail_load;
  int capturing, max_threads;
  int times_vary; /* of events: 0.5 ms, 0.625 ms, 0.75 ms and again; else all 0.5 ms */
  int num_devices;
  stub_device devices[STUB_MAX_DEVICES];
  /* seen by the test */
  void *current;      /* context of the only thread */
  int capture_mode;   /* of the only thread */
  int retained;       /* primary contexts */
  int relaxed_allocs; /* allocations and loads while the mode was relaxed */
  unsigned grid[3], block[3], shared_bytes, cluster;
  int num_launches, num_loaded, num_timed;
} stub_state;

#endif
