/* What other engines took, from a file of bench/peers.py.
 *
 * Invariant: a figure is of the same computation and sizes, to the last one, or there is none.
 *
 * Called by report.c and report_rates.c. */
#ifndef KILN_CLI_PEERS_H
#define KILN_CLI_PEERS_H

#include <jansson.h>
#include <kiln/kiln.h>

enum { KILN__ENGINES_MAX = 8 };

typedef struct kiln__peers {
  json_t *root; /* NULL = no file was given; keeps the strings */
  const char *engines[KILN__ENGINES_MAX];
  int num_engines;
} kiln__peers;

/* Refusals are printed; then there is nothing to destroy. */
kiln_status kiln__peers_read(const char *path, kiln__peers *peers);
void kiln__peers_destroy(kiln__peers *peers);

/* TFLOP/s, counted as kiln__rate_flops does where the file has a time; 0 = no such row. */
double kiln__peers_tflops(const kiln__peers *peers, int engine, const kiln_attn_spec *spec,
                          const kiln_attn_args *shape);

/* A member of the file's environment as text; "" where there is none. */
const char *kiln__peers_environment(const kiln__peers *peers, const char *name);

#endif
