/* The table of strategies. */
#include "autotune/strategy.h"

#include <string.h>

static const kiln__strategy *const strategies[] = {
    &kiln__strategy_estimate,
    &kiln__strategy_hillclimb,
    &kiln__strategy_exhaustive,
};

const kiln__strategy *kiln__strategy_find(const char *name) {
  for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++)
    if (strcmp(strategies[i]->name, name) == 0) return strategies[i];
  return NULL;
}

const char *kiln__strategy_names(void) { return "estimate, hillclimb and exhaustive"; }
