/* See space.h. */
#include "autotune/space.h"

#include <stdlib.h>

int kiln__tile_compare(const kiln_tile *a, const kiln_tile *b) {
  if (a->block_m != b->block_m) return a->block_m < b->block_m ? -1 : 1;
  if (a->block_n != b->block_n) return a->block_n < b->block_n ? -1 : 1;
  if (a->num_stages != b->num_stages) return a->num_stages < b->num_stages ? -1 : 1;
  if (a->num_warps != b->num_warps) return a->num_warps < b->num_warps ? -1 : 1;
  return 0;
}

int kiln__space_find(const kiln__space *space, const kiln_tile *tile) {
  for (int i = 0; i < space->count; i++)
    if (kiln__tile_compare(&space->tiles[i], tile) == 0) return i;
  return -1;
}

/* Insertion keeps equals in their order; the lists are a few hundred long. */
static void sort_by_model(kiln__space *space) {
  for (int i = 0; i < space->count; i++) {
    int at = i;
    for (; at > 0 && space->predicted_us[space->order[at - 1]] > space->predicted_us[i]; at--)
      space->order[at] = space->order[at - 1];
    space->order[at] = i;
  }
}

static kiln_status predict_all(kiln_context *ctx, const kiln_attn_spec *spec,
                               const kiln_attn_args *shape, int32_t num_sms, kiln__space *space) {
  for (int i = 0; i < space->count; i++) {
    kiln_prediction p = {.size = sizeof p};
    kiln_status status = kiln_tile_predict(ctx, spec, &space->tiles[i], shape, num_sms, &p);
    if (status != KILN_OK) return status;
    space->predicted_us[i] = p.time_us;
  }
  sort_by_model(space);
  return KILN_OK;
}

static kiln_status find_default(kiln_context *ctx, const kiln_attn_spec *spec, kiln__space *space) {
  kiln_attn_spec resolved = *spec;
  kiln_tile tile = KILN_TILE_INIT;
  kiln_status status = kiln_attn_spec_resolve(ctx, &resolved, &tile);
  if (status == KILN_OK) space->default_index = kiln__space_find(space, &tile);
  return status == KILN_OK && space->default_index < 0 ? KILN_INTERNAL : status;
}

kiln_status kiln__space_create(kiln_context *ctx, const kiln_attn_spec *spec,
                               const kiln_attn_args *shape, int32_t num_sms, kiln__space *space) {
  *space = (kiln__space){0};
  int32_t count = 0;
  kiln_status status = kiln_tile_list(ctx, spec, NULL, 0, &count);
  if (status != KILN_OK) return status;
  space->tiles = calloc((size_t)count + 1, sizeof *space->tiles);
  space->predicted_us = calloc((size_t)count + 1, sizeof *space->predicted_us);
  space->order = calloc((size_t)count + 1, sizeof *space->order);
  status = space->tiles && space->predicted_us && space->order ? KILN_OK : KILN_OUT_OF_MEMORY;
  if (status == KILN_OK) status = kiln_tile_list(ctx, spec, space->tiles, count, &count);
  space->count = count;
  if (status == KILN_OK) status = predict_all(ctx, spec, shape, num_sms, space);
  if (status == KILN_OK) status = find_default(ctx, spec, space);
  if (status != KILN_OK) kiln__space_destroy(space);
  return status;
}

void kiln__space_destroy(kiln__space *space) {
  free(space->tiles);
  free(space->predicted_us);
  free(space->order);
  *space = (kiln__space){0};
}

int kiln__space_restrict(kiln__space *space, int (*wanted)(void *user, const kiln_tile *tile),
                         void *user) {
  int kept = 0;
  if (!wanted(user, &space->tiles[space->default_index])) return -1;
  for (int i = 0; i < space->count; i++) {
    if (!wanted(user, &space->tiles[i])) continue;
    if (i == space->default_index) space->default_index = kept;
    space->tiles[kept] = space->tiles[i];
    space->predicted_us[kept++] = space->predicted_us[i];
  }
  space->count = kept;
  sort_by_model(space);
  return 0;
}

/* ---- neighbours ---- */

/* Which fields of two tiles differ. */
enum { ROWS = 1, KEYS = 2, STAGES = 4, WARPS = 8 };

static int differences(const kiln_tile *a, const kiln_tile *b) {
  return (a->block_m != b->block_m ? ROWS : 0) | (a->block_n != b->block_n ? KEYS : 0) |
         (a->num_stages != b->num_stages ? STAGES : 0) | (a->num_warps != b->num_warps ? WARPS : 0);
}

static int32_t field_of(const kiln_tile *tile, int field) {
  if (field == KEYS) return tile->block_n;
  return field == STAGES ? tile->num_stages : tile->block_m;
}

/* The smallest step of `field` upwards (sign 1) or downwards (-1) that a legal tile makes while all
 * fields outside of `may_change` stay; 0 where there is none. */
static int32_t nearest_step(const kiln__space *space, const kiln_tile *from, int field,
                            int may_change, int sign) {
  int32_t step = 0;
  for (int i = 0; i < space->count; i++) {
    const kiln_tile *tile = &space->tiles[i];
    const int32_t by = sign * (field_of(tile, field) - field_of(from, field));
    if (by <= 0 || (differences(tile, from) & ~may_change)) continue;
    if (step == 0 || by < step) step = by;
  }
  return step;
}

static int add_steps(const kiln__space *space, int index, int field, int may_change, int count,
                     int *out) {
  const kiln_tile *from = &space->tiles[index];
  for (int sign = -1; sign <= 1; sign += 2) {
    const int32_t step = nearest_step(space, from, field, may_change, sign);
    for (int i = 0; step && i < space->count && count < KILN__NEIGHBOURS_MAX; i++) {
      const kiln_tile *tile = &space->tiles[i];
      const int away = differences(tile, from) & ~may_change;
      if (!away && sign * (field_of(tile, field) - field_of(from, field)) == step) out[count++] = i;
    }
  }
  return count;
}

int kiln__space_neighbours(const kiln__space *space, int index, int out[KILN__NEIGHBOURS_MAX]) {
  int count = add_steps(space, index, KEYS, KEYS, 0, out);
  count = add_steps(space, index, STAGES, STAGES, count, out);
  count = add_steps(space, index, ROWS, ROWS | WARPS, count, out);
  for (int i = 0; i < space->count && count < KILN__NEIGHBOURS_MAX; i++)
    if (differences(&space->tiles[i], &space->tiles[index]) == WARPS) out[count++] = i;
  return count;
}
