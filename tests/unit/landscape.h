/* Invented times for every legal tile of a problem: what test_tuning.c and test_records.c tune on.
 */
#ifndef KILN_TESTS_LANDSCAPE_H
#define KILN_TESTS_LANDSCAPE_H

#include "autotune/simulate.h"
#include "autotune/tune.h"

enum { LANDSCAPE_MAX = 1024 };

typedef struct landscape {
  kiln_context *ctx;
  kiln_attn_spec spec;
  kiln_attn_args shape;
  kiln__candidate rows[LANDSCAPE_MAX];
  int count;
  kiln__simulation device;
  double noise; /* of the device */
  kiln__environment environment;
} landscape;

/* Times by the model, times a factor of every field's value within 1 +- `distortion`, and of every
 * tile within 1 +- a fifth of it. Noise is half a per cent. */
void landscape_create(landscape *l, const char *arch, int head_dim, int seqlen, double distortion,
                      unsigned seed);
void landscape_destroy(landscape *l);

kiln__candidate *landscape_row(landscape *l, const kiln_tile *tile);
kiln_tile landscape_default(landscape *l);

/* A tuning on a device with this seed of noise; records: NULL = none. */
kiln_status landscape_tune(landscape *l, const char *strategy, unsigned seed, double budget_s,
                           const char *records, kiln_tune_result *result);
extern char landscape_error[1024]; /* of the last tuning */

#endif
