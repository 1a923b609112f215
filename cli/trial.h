/* One problem on a device: tensors up, the plan run, results down.
 *
 * Invariant: results lie between guard zones and are filled with NaN before every launch, so that
 * an element that was not written and one that was written outside are both seen. Device memory is
 * given back whatever happens. Before a backward pass the forward pass of the same problem runs on
 * the same device, or its reference on the host, and its o and lse are inputs that must stay as
 * they are.
 *
 * Called by run and verify. */
#ifndef KILN_CLI_TRIAL_H
#define KILN_CLI_TRIAL_H

#include "compare.h"

typedef struct kiln__trial {
  kiln_status launch;  /* of the launch: what refused the arguments, or OK */
  char sentence[1024]; /* why, or what was written that must not be; "" = all is well */
  bool sound;          /* every element written, nothing else touched, the same bits twice */
  kiln__output output; /* after a launch that was OK */
  double time_us;      /* of one launch, where asked for */
} kiln__trial;

enum {
  KILN__TRIAL_TWICE = 1, /* launch again and compare the bits; look at the inputs afterwards. The
                            second dq is kept, to be compared with the reference too */
  KILN__TRIAL_TIME = 2,  /* measure time_us */
  KILN__TRIAL_ALONE = 4  /* of a backward pass: o and lse by the reference, so that no other kernel
                            is compiled and run */
};

/* A status other than OK is a failure of the machine and not of the kernel; it is printed. */
kiln_status kiln__trial_run(kiln_context *ctx, kiln_plan *plan, const kiln__inputs *inputs,
                            unsigned flags, kiln__trial *trial);
void kiln__trial_destroy(kiln__trial *trial);

/* Whether two results of problems of one size are the same, bit for bit; but dq, whose sums have no
 * order unless the pass is deterministic, is only compared where it is. */
bool kiln__output_equal(const kiln__inputs *inputs, const kiln__output *a, const kiln__output *b);
/* The same of o and lse, whatever the pass. */
bool kiln__output_same_forward(const kiln__inputs *inputs, const kiln__output *a,
                               const kiln__output *b);
void kiln__output_destroy(kiln__output *output); /* leaves it empty; accepts an empty one */

#endif
