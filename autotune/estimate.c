/* estimate: the model's best, with nothing measured. The default stays unless the model sees a gain
 * well above what it can tell apart. */
#include "autotune/strategy.h"

#define LEAST_GAIN 0.05

static kiln_status run(kiln__search *s) {
  const kiln__space *space = s->space;
  const int best = space->order[0];
  const double limit = space->predicted_us[space->default_index] * (1 - LEAST_GAIN);
  s->chosen = space->predicted_us[best] < limit ? best : space->default_index;
  return KILN_OK;
}

static int most_of(const kiln__space *space) {
  (void)space;
  return 0;
}

const kiln__strategy kiln__strategy_estimate = {
    .name = "estimate", .measures = 0, .effort = 0, .run = run, .most = most_of};
