/* From the events of kiln_plan_trace to lanes and bars, which page.c draws.
 *
 * Invariant: every bar lies in one lane, ends no earlier than it begins, and has a title that says
 * in the template's words what it is. Lanes stand in the order in which work flows: who loads, what
 * is loaded, the tensor cores, the warps that compute, what is stored.
 *
 * Called by page.c. */
#ifndef KILN_CLI_TIMELINE_H
#define KILN_CLI_TIMELINE_H

#include "page.h"

/* What a bar is; page.c has a colour for each. */
typedef enum kiln__bar_kind {
  KILN__BAR_FLIGHT,  /* a load, from issue to landing                    */
  KILN__BAR_LANDED,  /* its bytes in shared memory, until they are let go */
  KILN__BAR_WAIT,    /* a warp at a barrier, or behind a copy              */
  KILN__BAR_BEHIND,  /* a warp that waits for a product                   */
  KILN__BAR_QUEUED,  /* a product that was issued and has not begun        */
  KILN__BAR_SCORES,  /* s = q k^T on the tensor cores                      */
  KILN__BAR_RESULTS, /* o += p v                                           */
  KILN__BAR_SOFTMAX,
  KILN__BAR_OUTPUT, /* rounding and storing                               */
  KILN__BAR_STORE,  /* a TMA store on its way                             */
  KILN__BAR_KINDS
} kiln__bar_kind;

typedef struct kiln__bar {
  int lane;
  kiln__bar_kind kind;
  double begin, end; /* clocks */
  char label[32];
  char title[512];
} kiln__bar;

typedef struct kiln__lane {
  int order; /* section * 1000 + place */
  char section[32], name[32];
} kiln__lane;

typedef struct kiln__timeline {
  kiln__bar *bars;
  kiln__lane *lanes; /* sorted */
  int num_bars, num_lanes, room_bars, room_lanes;
  double clocks;
  double tensor_busy;    /* share of the time in which the tensor cores work */
  double softmax_hidden; /* share of the softmax during which they do */
} kiln__timeline;

/* OUT_OF_MEMORY leaves nothing allocated. */
kiln_status kiln__timeline_create(const kiln__page_facts *facts, const json_t *trace,
                                  kiln__timeline *timeline);
void kiln__timeline_destroy(kiln__timeline *timeline);

#endif
