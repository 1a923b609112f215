/* The order of launches in a race; race.h states the rules. */
#include "race.h"

#include "out.h"
#include "stage.h"

#include <math.h>
#include <stdlib.h>

#define SAMPLE_US 200.0
#define WARM_US   20000.0
#define MOST      1000000.0 /* rounds in a sample */

static kiln_status sample(const kiln__stage *stage, const kiln__entrant *e, int turns,
                          double *time_us) {
  kiln_status status = kiln_plan_sample(e->plan, stage->sets, stage->num_sets, turns, time_us);
  return status == KILN_OK ? KILN_OK : kiln__fail_context(stage->ctx, status);
}

/* Rounds that take so long at least. */
static int rounds(const kiln__stage *stage, double wanted_us, double launch_us) {
  double turns = ceil(wanted_us / (launch_us * stage->num_sets));
  return turns < 1 ? 1 : turns < MOST ? (int)turns : (int)MOST;
}

/* The first round is slower than any later one and only says how many warm the GPU up; their mean
 * says how many a sample takes. */
static kiln_status warm_up(const kiln__stage *stage, kiln__entrant *e) {
  double launch_us = 0;
  kiln_status status = sample(stage, e, 1, &launch_us);
  if (status == KILN_OK) status = sample(stage, e, rounds(stage, WARM_US, launch_us), &launch_us);
  e->turns = rounds(stage, SAMPLE_US, launch_us);
  return status;
}

static kiln_status measure(const kiln__race *race, const kiln__stage *stage) {
  kiln_status status = KILN_OK;
  for (int i = 0; i < race->num_entrants && status == KILN_OK; i++)
    status = warm_up(stage, &race->entrants[i]);
  for (int s = 0; s < race->num_samples; s++)
    for (int i = 0; i < race->num_entrants && status == KILN_OK; i++) {
      kiln__entrant *e = &race->entrants[i];
      status = sample(stage, e, e->turns, &e->samples[s]);
    }
  for (int i = 0; i < race->num_entrants && status == KILN_OK; i++)
    race->entrants[i].spread = kiln__rate_spread(race->entrants[i].samples, race->num_samples);
  return status;
}

/* The most that any entrant needs. */
static kiln_status find_workspace(const kiln__race *race, size_t *most) {
  *most = 0;
  for (int i = 0; i < race->num_entrants; i++) {
    size_t bytes = 0;
    kiln_attn_args args = race->shape;
    kiln_attn_args_pack(&args, race->spec);
    kiln_status status = kiln_plan_workspace(race->entrants[i].plan, &args, &bytes);
    if (status != KILN_OK) return kiln__fail_context(race->ctx, status);
    if (bytes > *most) *most = bytes;
  }
  return KILN_OK;
}

kiln_status kiln__race_run(kiln__race *race) {
  size_t workspace = 0, count = (size_t)race->num_samples;
  double *samples = calloc(count * (size_t)race->num_entrants, sizeof *samples);
  kiln__stage stage = {.ctx = race->ctx};
  if (!samples) return kiln__fail(KILN_OUT_OF_MEMORY, "no memory is left for samples");
  for (int i = 0; i < race->num_entrants; i++)
    race->entrants[i].samples = samples + (size_t)i * count;
  kiln_status status = find_workspace(race, &workspace);
  if (status == KILN_OK)
    status = kiln__stage_create(race->ctx, race->spec, &race->shape, workspace, 0, &stage);
  if (status == KILN_OK) status = measure(race, &stage);
  race->num_sets = stage.num_sets;
  kiln__stage_destroy(&stage);
  for (int i = 0; i < race->num_entrants; i++) race->entrants[i].samples = NULL;
  free(samples);
  return status;
}
