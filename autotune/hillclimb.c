/* hillclimb: the model's best few race with the default; then the neighbours of the fastest are
 * measured, then those of the next fastest, and so on, a race at a time. It ends when everything
 * near the leader is known, or a share of the space has been measured. Where it would end on a
 * handful of tiles, for the default stands alone, the next ones of the model's order come first.
 *
 * Of tiles that differ in num_stages alone only the first goes into the start: the model hardly
 * tells them apart, and they are neighbours. */
#include <stdlib.h>
#include <string.h>

#include "autotune/strategy.h"

#define START       6   /* or half of what may be measured */
#define FAR         1.3 /* times the best predicted: such neighbours are not measured */
#define SHARE       5   /* at most one of so many tiles is measured ... */
#define LEAST_TRIED 8   /* ... but so many at least, */
#define MOST_TRIED  28  /* and so many at most */
#define FEW         14  /* tiles: a climb that ends on fewer goes on in the model's order */
#define NEAR        110 /* per cent of the leader's time: only so near is looked for more */

static int differ_in_stages(const kiln_tile *a, const kiln_tile *b) {
  return a->block_m == b->block_m && a->block_n == b->block_n && a->num_warps == b->num_warps;
}

/* The first so many of the model's order, one for each block_m, block_n and num_warps. */
static int find_start(const kiln__space *space, int wanted, int *out) {
  int count = 0;
  for (int i = 0; i < space->count && count < wanted; i++) {
    int repeated = 0;
    for (int k = 0; k < count; k++)
      repeated |= differ_in_stages(&space->tiles[out[k]], &space->tiles[space->order[i]]);
    if (!repeated) out[count++] = space->order[i];
  }
  return count;
}

/* The first of the model's order of which nothing is known. */
static int find_next_predicted(const kiln__search *s, int wanted, int *out) {
  int count = 0;
  for (int i = 0; i < s->space->count && count < wanted; i++)
    if (s->known[s->space->order[i]].outcome == KILN__OUTCOME_UNKNOWN)
      out[count++] = s->space->order[i];
  return count;
}

/* The neighbours of which nothing is known and that the model does not rule out. */
static int find_untried(const kiln__search *s, int around, int room, int *out) {
  int near[KILN__NEIGHBOURS_MAX], count = 0;
  const kiln__space *space = s->space;
  const int found = kiln__space_neighbours(space, around, near);
  const double limit = FAR * space->predicted_us[space->order[0]];
  for (int i = 0; i < found && count < room; i++)
    if (s->known[near[i]].outcome == KILN__OUTCOME_UNKNOWN && space->predicted_us[near[i]] <= limit)
      out[count++] = near[i];
  return count;
}

static int count_known(const kiln__search *s) {
  int count = 0;
  for (int i = 0; i < s->space->count; i++) count += s->known[i].outcome != KILN__OUTCOME_UNKNOWN;
  return count;
}

/* The fastest tile that is near the leader and not yet looked around; -1 where there is none. */
static int find_centre(const kiln__search *s, const char *seen) {
  const int leader = kiln__search_leader(s);
  const int64_t limit = leader < 0 ? 0 : s->known[leader].median_ns * NEAR / 100;
  int best = -1;
  for (int i = 0; i < s->space->count; i++) {
    const kiln__candidate *c = &s->known[i];
    if (c->outcome != KILN__OUTCOME_TIMED || c->median_ns > limit || seen[i]) continue;
    if (best < 0 || c->median_ns < s->known[best].median_ns) best = i;
  }
  return best;
}

/* What is untried around the fastest, then around the next fastest, until a race is full: a machine
 * with many cores compiles a full one as fast as a single tile. */
static int find_next(const kiln__search *s, int room, char *seen, int *out) {
  int count = 0;
  if (room > KILN__RACE_GROUP) room = KILN__RACE_GROUP;
  memset(seen, 0, (size_t)s->space->count);
  for (int centre; count < room && (centre = find_centre(s, seen)) >= 0;) {
    int near[KILN__NEIGHBOURS_MAX];
    const int found = find_untried(s, centre, KILN__NEIGHBOURS_MAX, near);
    seen[centre] = 1;
    for (int i = 0; i < found && count < room; i++) {
      int repeated = 0;
      for (int k = 0; k < count; k++) repeated |= out[k] == near[i];
      if (!repeated) out[count++] = near[i];
    }
  }
  return count;
}

static int least(int a, int b) { return a < b ? a : b; }

static int most_of(const kiln__space *space) {
  const int share = least(space->count / SHARE, MOST_TRIED);
  return least(share > LEAST_TRIED ? share : LEAST_TRIED, space->count);
}

static kiln_status run(kiln__search *s) {
  int tiles[KILN__NEIGHBOURS_MAX];
  char *seen = malloc((size_t)s->space->count + 1);
  const int most = most_of(s->space);
  int count = find_start(s->space, least(most / 2, START), tiles);
  kiln_status status = seen ? KILN_OK : KILN_OUT_OF_MEMORY;
  while (status == KILN_OK && count > 0 && !s->out_of_time) {
    status = kiln__search_race(s, tiles, count);
    const int known = count_known(s);
    count = known < most ? find_next(s, most - known, seen, tiles) : 0;
    if (count == 0) count = find_next_predicted(s, least(most, FEW) - known, tiles);
  }
  free(seen);
  return status;
}

const kiln__strategy kiln__strategy_hillclimb = {
    .name = "hillclimb", .measures = 1, .effort = 1, .run = run, .most = most_of};
