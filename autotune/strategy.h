/* Strategies: which tiles of a space are measured, and in which order. Each is one file and one row
 * of the table in strategy.c; the default has been measured before run() is called. */
#ifndef KILN_AUTOTUNE_STRATEGY_H
#define KILN_AUTOTUNE_STRATEGY_H

#include "autotune/search.h"

typedef struct kiln__strategy {
  const char *name;
  int measures; /* 0 = run() chooses by the model alone */
  int effort;   /* a result of more effort answers for one of less */
  kiln_status (*run)(kiln__search *search);
  int (*most)(const kiln__space *space); /* tiles that it may measure */
} kiln__strategy;

extern const kiln__strategy kiln__strategy_estimate, kiln__strategy_hillclimb,
    kiln__strategy_exhaustive;

const kiln__strategy *kiln__strategy_find(const char *name); /* NULL where there is none */
const char *kiln__strategy_names(void);                      /* for sentences */

#endif
