/* The page of kiln bench and kiln tune: --report FILE.html.
 *
 * Invariant: the page shows what the verb measured and nothing else; the same figures give the same
 * bytes: there is no date in it. Its place is proved to be writable before anything is measured.
 * Without --report every function here does nothing.
 *
 * Called by bench.c and tune.c; report_rates.c and report_race.c write its parts. */
#ifndef KILN_CLI_REPORT_H
#define KILN_CLI_REPORT_H

#include "args.h"
#include "peers.h"
#include "rate.h"

#include <stdio.h>

#define KILN__REPORT_FLAG \
  { "--report", "FILE", "also write the figures as a page: FILE.html" }

/* A kernel's time on one shape. */
typedef struct kiln__timing {
  kiln_attn_spec spec; /* resolved */
  kiln_tile tile;
  kiln_attn_args shape; /* its sizes */
  kiln__spread spread;  /* us */
  double tflops;
  kiln_prediction model; /* its roofs */
} kiln__timing;

/* A problem that was tuned. */
typedef struct kiln__tuned {
  kiln_attn_spec spec;
  kiln_attn_args shape;
  kiln_tune_result result;
  json_t *record; /* result.record */
} kiln__tuned;

typedef struct kiln__report {
  const kiln__args *args;
  const char *path; /* NULL = no page is wanted */
  kiln_context *ctx;
  kiln__peers peers;
  kiln__timing *timings;
  kiln__tuned *tuned;
  int num_timings, room_timings, num_tuned, room_tuned;
  bool is_replay; /* of tune --simulate */
  FILE *to;       /* while it is written */
} kiln__report;

/* Reads --report and --peers. Refusals are printed; destroy may be called then too. */
kiln_status kiln__report_create(const kiln__args *args, kiln__report *report);
void kiln__report_destroy(kiln__report *report);

/* spec: resolved; num_sms: of the device that was measured, 0 = the context's. A shape without
 * arithmetic has no rate and is left out. */
kiln_status kiln__report_add_timing(kiln__report *report, const kiln_attn_spec *spec,
                                    const kiln_tile *tile, const kiln_attn_args *shape,
                                    const kiln__spread *spread, int32_t num_sms);
/* And the timing of the tile that was chosen, where it has one. */
kiln_status kiln__report_add_tuned(kiln__report *report, const kiln_attn_spec *spec,
                                   const kiln_attn_args *shape, const kiln_tune_result *result);

/* Writes the file. */
kiln_status kiln__report_finish(kiln__report *report);

/* ---- its parts ---- */

extern const char kiln__rates_style[], kiln__race_style[];

void kiln__report_write_lengths(const kiln__report *report); /* TFLOP/s by seqlen  */
void kiln__report_write_timings(const kiln__report *report); /* the table          */
void kiln__report_write_rooflines(const kiln__report *report);
void kiln__report_write_gains(const kiln__report *report); /* of tuning, a table */
void kiln__report_write_races(const kiln__report *report);

/* Mean ratio to an engine, over the fastest kernel of each shape; *count is how many there are. */
double kiln__report_ratio(const kiln__report *report, int engine, int *count);

typedef struct kiln__tile_text {
  char text[64];
} kiln__tile_text;

kiln__tile_text kiln__tile_describe(const kiln_tile *tile); /* "128x176 s2 w12" */

/* "batch 4, seqlen_q 4096, seqlen_k 4096, heads 16", with those of keys where they differ. */
typedef struct kiln__shape_text {
  char text[128];
} kiln__shape_text;

kiln__shape_text kiln__shape_describe(const kiln_attn_args *shape);

#endif
