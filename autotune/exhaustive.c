/* exhaustive: every legal tile, the best by the model first, so that a budget that ends it has been
 * spent well. */
#include "autotune/strategy.h"

static kiln_status run(kiln__search *s) {
  return kiln__search_race(s, s->space->order, s->space->count);
}

static int most_of(const kiln__space *space) { return space->count; }

const kiln__strategy kiln__strategy_exhaustive = {
    .name = "exhaustive", .measures = 1, .effort = 2, .run = run, .most = most_of};
