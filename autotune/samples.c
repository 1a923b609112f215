/* See samples.h. */
#include "autotune/samples.h"

#include <stdlib.h>
#include <string.h>

#define PASSES     3       /* of the median polish: then it has settled */
#define SHARE_UNIT 1000000 /* 1 */
#define SHARE_MOST 1e6
#define TIME_MOST  1e18 /* ns; two of them can be added */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static int compare_times(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

static int64_t middle(const int64_t *sorted, int count) {
  return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static void sort_times(int64_t *sorted, const int64_t *times, int count) {
  memcpy(sorted, times, (size_t)count * sizeof *sorted);
  qsort(sorted, (size_t)count, sizeof *sorted, compare_times);
}

int64_t kiln__time_in_pace(int64_t time_ns, double pace) {
  const double time = (double)time_ns / pace + 0.5;
  return (int64_t)(time < TIME_MOST ? time : TIME_MOST);
}

typedef struct figures {
  int64_t median, mad, lower, upper; /* lower, upper: quartiles */
} figures;

static figures figures_of(const int64_t *times, int count) {
  int64_t sorted[KILN__SAMPLES_MOST];
  sort_times(sorted, times, count);
  figures f = {.median = middle(sorted, count),
               .lower = sorted[count / 4],
               .upper = sorted[count - 1 - count / 4]};
  for (int i = 0; i < count; i++) sorted[i] = llabs(times[i] - f.median);
  qsort(sorted, (size_t)count, sizeof *sorted, compare_times);
  f.mad = middle(sorted, count);
  return f;
}

static void put_figures(kiln__samples *s, figures f) {
  s->found.samples = s->count;
  s->found.median_ns = f.median;
  s->found.mad_ns = f.mad;
  s->found.lower_ns = f.lower;
  s->found.upper_ns = f.upper;
}

void kiln__samples_add(kiln__samples *samples, int64_t time_ns) {
  samples->times[samples->count++] = time_ns;
  put_figures(samples, figures_of(samples->times, samples->count));
}

/* ---- one pace ---- */

typedef struct race {
  kiln__samples *const *of;
  int count, common;                   /* rounds that all had ... */
  int64_t medians[KILN__SAMPLED_MOST]; /* ... and the medians of each in these */
} race;

static void find_medians(race *r) {
  for (int i = 0; i < r->count; i++) {
    int64_t sorted[KILN__SAMPLES_MOST];
    sort_times(sorted, r->of[i]->times, r->common);
    r->medians[i] = larger(middle(sorted, r->common), 1);
  }
}

/* What the samples of a round are of their own candidates' medians, in the median of all who had it
 * but one (-1 = but nobody). 1 where there is nobody to compare with. */
static double pace_of(const race *r, int round, int but) {
  int64_t shares[KILN__SAMPLED_MOST];
  int num = 0;
  for (int i = 0; i < r->count; i++) {
    if (i == but || round >= r->of[i]->count) continue;
    const double share = (double)r->of[i]->times[round] / (double)r->medians[i];
    shares[num++] = (int64_t)((share < SHARE_MOST ? share : SHARE_MOST) * SHARE_UNIT);
  }
  if (num < (but < 0 ? 2 : 1)) return 1;
  qsort(shares, (size_t)num, sizeof *shares, compare_times);
  return (double)larger(middle(shares, num), 1) / SHARE_UNIT;
}

static void divide_by_pace(race *r) {
  find_medians(r);
  for (int round = 0; round < KILN__SAMPLES_MOST; round++) {
    const double pace = pace_of(r, round, -1);
    for (int i = 0; i < r->count; i++)
      if (round < r->of[i]->count)
        r->of[i]->times[round] = kiln__time_in_pace(r->of[i]->times[round], pace);
  }
}

/* The MAD as a share of the median: at most 1 */
static double spread_of(figures f) {
  return f.mad < f.median ? (double)f.mad / (double)f.median : 1;
}

/* One candidate in the pace of the others: with its own, its noise would pass for the clock's. */
static figures figures_beside(const race *r, int index) {
  int64_t times[KILN__SAMPLES_MOST];
  const kiln__samples *one = r->of[index];
  for (int round = 0; round < one->count; round++)
    times[round] = kiln__time_in_pace(one->times[round], pace_of(r, round, index));
  return figures_of(times, one->count);
}

/* The same spread around another median. */
static figures around(int64_t median, figures f) {
  const double pace = (double)larger(f.median, 1) / (double)larger(median, 1);
  return (figures){median, kiln__time_in_pace(f.mad, pace), kiln__time_in_pace(f.lower, pace),
                   kiln__time_in_pace(f.upper, pace)};
}

/* Medians by a median polish. The spread is that beside the others, or the one that was measured
 * where it is smaller: noisy neighbours are nobody's fault. */
void kiln__samples_even_out(kiln__samples *const *samples, int count) {
  race r = {.of = samples, .count = count, .common = KILN__SAMPLES_MOST};
  figures measured[KILN__SAMPLED_MOST];
  if (count < 2) return;
  for (int i = 0; i < count; i++) {
    measured[i] = figures_of(samples[i]->times, samples[i]->count);
    if (samples[i]->count < r.common) r.common = samples[i]->count;
  }
  for (int pass = 0; pass < PASSES; pass++) divide_by_pace(&r);
  find_medians(&r);
  for (int i = 0; i < count; i++) {
    const int64_t median = figures_of(samples[i]->times, samples[i]->count).median;
    const figures beside = figures_beside(&r, i);
    const int is_less = spread_of(beside) < spread_of(measured[i]);
    put_figures(samples[i], around(median, is_less ? beside : measured[i]));
  }
}
