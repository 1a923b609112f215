/* The packs of a context: those that were added, then those of KILN_PACK_PATH.
 *
 * Invariant: a list only grows, and the context holds a reference to every pack in it. Those of
 * KILN_PACK_PATH are opened at the first plan, all or none: one that cannot be opened fails every
 * plan and is never passed over. Called by plan.c and context.c. */
#ifndef KILN_RUNTIME_PACKS_H
#define KILN_RUNTIME_PACKS_H

#include <pthread.h>
#include <stddef.h>

#include <kiln/kiln.h>

typedef struct kiln__pack_place {
  kiln_pack *pack; /* a reference of the context's */
} kiln__pack_place;

typedef struct kiln__pack_list {
  kiln__pack_place *places; /* in the order of looking */
  size_t count;
} kiln__pack_list;

typedef struct kiln__packs {
  pthread_mutex_t lock; /* guards what follows */
  kiln__pack_list added, of_path;
  int path_opened;
} kiln__packs;

void kiln__packs_close(kiln__packs *packs);

/* The kernel of a spec ("" as arch: the device's best; 0 as head_dim_v: head_dim) and of the fields
 * of the tile that are not 0. *binary is NULL where no pack has it, else it has been checked and
 * *pack is a reference that the caller destroys. */
kiln_status kiln__packs_find(kiln_context *ctx, const kiln_attn_spec *spec, const kiln_tile *tile,
                             kiln_binary **binary, kiln_pack **pack);

#endif
