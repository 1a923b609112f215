/* See landscape.h. */
#include "landscape.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "autotune/space.h"

char landscape_error[1024];

/* In -1 .. 1, the same for the same number. */
static double scatter(uint64_t number) {
  number = (number ^ (number >> 31)) * 0x7fb5d329728ea185u;
  number = (number ^ (number >> 27)) * 0x81dadef4bc2dd44du;
  number ^= number >> 33;
  return (double)(number >> 11) * 0x1p-52 - 1;
}

static double factor_of(const kiln_tile *t, double distortion, unsigned seed) {
  const int32_t fields[] = {t->block_m * 100 + t->num_warps, t->block_n, t->num_stages};
  double factor = 1;
  uint64_t all = seed;
  for (int i = 0; i < 3; i++) {
    const uint64_t name = (uint64_t)seed * 1000003 + (uint64_t)i * 65537 + (uint64_t)fields[i];
    factor *= 1 + distortion * scatter(name);
    all = all * 1000003 + (uint64_t)fields[i];
  }
  return factor * (1 + distortion / 5 * scatter(all));
}

static void fill_rows(landscape *l, double distortion, unsigned seed) {
  kiln__space space;
  ck_assert_int_eq(kiln__space_create(l->ctx, &l->spec, &l->shape, 132, &space), KILN_OK);
  ck_assert_int_le(space.count, LANDSCAPE_MAX);
  l->count = space.count;
  for (int i = 0; i < space.count; i++) {
    const kiln_tile *t = &space.tiles[i];
    const double time = space.predicted_us[i] * 1e3 * factor_of(t, distortion, seed);
    l->rows[i] = (kiln__candidate){.tile = *t,
                                   .outcome = KILN__OUTCOME_TIMED,
                                   .median_ns = (int64_t)time,
                                   .mad_ns = (int64_t)(time * 0.003),
                                   .lower_ns = (int64_t)time,
                                   .upper_ns = (int64_t)time,
                                   .samples = 25,
                                   .registers = 168,
                                   .shared_bytes = 512 * (int64_t)t->block_n * t->num_stages};
  }
  kiln__space_destroy(&space);
}

void landscape_create(landscape *l, const char *arch, int head_dim, int seqlen, double distortion,
                      unsigned seed) {
  kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
  memset(l, 0, sizeof *l);
  l->noise = 0.005;
  options.cache_dir = "";
  ck_assert_int_eq(kiln_context_create(KILN_DEVICE_NONE, &options, &l->ctx), KILN_OK);
  l->spec = (kiln_attn_spec)KILN_ATTN_SPEC_INIT;
  snprintf(l->spec.arch, sizeof l->spec.arch, "%s", arch);
  l->spec.head_dim = l->spec.head_dim_v = head_dim;
  l->shape = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  l->shape.batch = 16384 / seqlen;
  l->shape.seqlen_q = l->shape.seqlen_k = seqlen;
  l->shape.num_heads = l->shape.num_heads_k = 2048 / head_dim;
  ck_assert_int_eq(kiln__environment_of(l->ctx, &l->spec, &l->environment), KILN_OK);
  strcpy(l->environment.compute_capability, "9.0");
  strcpy(l->environment.name, "an invented GPU");
  strcpy(l->environment.driver, "580.1");
  strcpy(l->environment.nvrtc, "13.0.88");
  l->environment.num_sms = 132;
  l->environment.shared_bytes_block = 232448;
  l->environment.l2_bytes = 50 << 20;
  fill_rows(l, distortion, seed);
}

void landscape_destroy(landscape *l) { kiln_context_destroy(l->ctx); }

kiln__candidate *landscape_row(landscape *l, const kiln_tile *tile) {
  for (int i = 0; i < l->count; i++)
    if (kiln__tile_compare(&l->rows[i].tile, tile) == 0) return &l->rows[i];
  ck_abort_msg("no such tile");
  return NULL;
}

kiln_tile landscape_default(landscape *l) {
  kiln_attn_spec spec = l->spec;
  kiln_tile tile = KILN_TILE_INIT;
  ck_assert_int_eq(kiln_attn_spec_resolve(l->ctx, &spec, &tile), KILN_OK);
  return tile;
}

kiln_status landscape_tune(landscape *l, const char *strategy, unsigned seed, double budget_s,
                           const char *records, kiln_tune_result *result) {
  l->device.rows = l->rows;
  l->device.count = l->count;
  l->device.seed = seed;
  l->device.noise = l->noise;
  const kiln__tuning tuning = {.ctx = l->ctx,
                               .spec = l->spec,
                               .shape = l->shape,
                               .strategy = kiln__strategy_find(strategy),
                               .budget_s = budget_s,
                               .records = records,
                               .environment = l->environment,
                               .measurer = kiln__simulation_measurer(&l->device)};
  ck_assert_ptr_nonnull(tuning.strategy);
  return kiln__tuning_run(&tuning, result, landscape_error, sizeof landscape_error);
}
