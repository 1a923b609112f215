/* The search space of one problem: its legal tiles, what the model says of each, and which lie
 * beside each other. Strategies walk over its indexes.
 *
 * Invariant: the default is one of the tiles; order and neighbours are the same on every machine.
 */
#ifndef KILN_AUTOTUNE_SPACE_H
#define KILN_AUTOTUNE_SPACE_H

#include <kiln/kiln.h>

typedef struct kiln__space {
  int count;
  kiln_tile *tiles;
  double *predicted_us;
  int *order; /* indexes, the best by the model first; of equals the first in the list */
  int default_index;
} kiln__space;

#define KILN__NEIGHBOURS_MAX 16

/* spec: resolved. num_sms: 0 as in kiln_tile_predict. The context's last error tells of a failure;
 * nothing is held then. */
kiln_status kiln__space_create(kiln_context *ctx, const kiln_attn_spec *spec,
                               const kiln_attn_args *shape, int32_t num_sms, kiln__space *space);
void kiln__space_destroy(kiln__space *space);

/* Leaves only those tiles for which `wanted` gives 1. 0, or -1 where the default is none of them:
 * then the space is as it was. */
int kiln__space_restrict(kiln__space *space, int (*wanted)(void *user, const kiln_tile *tile),
                         void *user);

/* The index of a tile, or -1. */
int kiln__space_find(const kiln__space *space, const kiln_tile *tile);

/* The tiles that differ from one in a single choice, by one step: the next smaller and larger
 * block_n or num_stages, or the next smaller and larger block_m or other num_warps with both others
 * as they are (the two go together). Gives their number. */
int kiln__space_neighbours(const kiln__space *space, int index, int out[KILN__NEIGHBOURS_MAX]);

/* < 0 where a comes before b: by block_m, block_n, num_stages, num_warps. */
int kiln__tile_compare(const kiln_tile *a, const kiln_tile *b);

#endif
