/* The tensors of one timed shape on a device: several sets that take turns.
 *
 * Invariant: q, k and v of every set are random normal numbers, never zeros, which a GPU multiplies
 * with less power and higher clocks; and the sets together are three times as large as L2, so that
 * no launch finds its tensors there. (Tensors of less than L2 / 1365 bytes a set fall short of
 * that: there are at most 4096 sets.) Every set has an lse, and for a backward pass all gradients
 * and the o and lse of a forward pass; all share one workspace. Only a caller that asks for it gets
 * fewer sets where memory is short.
 *
 * Called by race.c and workbench.c. */
#ifndef KILN_CLI_STAGE_H
#define KILN_CLI_STAGE_H

#include <kiln/kiln.h>

typedef struct kiln__stage {
  kiln_context *ctx;
  void *memory;    /* of the tensors of all sets, one after the other */
  void *workspace; /* NULL where none is needed */
  kiln_attn_args *args;
  const kiln_attn_args **sets; /* as kiln_plan_sample takes them */
  int num_sets;
} kiln__stage;

/* shape: the sizes; least_sets: how many will do where the device has no room for all, 0 = only
 * all. Refusals are printed; after one, destroy still has to be called. */
kiln_status kiln__stage_create(kiln_context *ctx, const kiln_attn_spec *spec,
                               const kiln_attn_args *shape, size_t workspace_bytes, int least_sets,
                               kiln__stage *stage);
void kiln__stage_destroy(kiln__stage *stage);

#endif
