/* The verbs of the program, one file each.
 *
 * Called by main.c, whose table of verbs is made of these rows, and by the unit tests. */
#ifndef KILN_CLI_VERBS_H
#define KILN_CLI_VERBS_H

#include "args.h"

extern const kiln__verb kiln__verb_generate, kiln__verb_compile, kiln__verb_run, kiln__verb_verify,
    kiln__verb_explain, kiln__verb_trace, kiln__verb_bench, kiln__verb_cache, kiln__verb_pack,
    kiln__verb_doctor, kiln__verb_tune, kiln__verb_records;

#endif
