/* The sizes of a problem from the flags of the group KILN__TAKES_SHAPE.
 *
 * Called by explain.c and tune.c. */
#ifndef KILN_CLI_SHAPE_H
#define KILN_CLI_SHAPE_H

#include "args.h"

/* What was not given has the default that the flag's help tells. Refusals are printed. */
kiln_status kiln__shape_read(const kiln__args *args, kiln_attn_args *shape);

json_t *kiln__shape_json(const kiln_attn_args *shape);

#endif
