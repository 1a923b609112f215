/* The page of kiln trace: one HTML file with the timeline as inline SVG.
 *
 * Invariant: the page is whole in itself. It names no other file and no host, and without its
 * script, which zooms, it shows the same.
 *
 * Called by trace.c. */
#ifndef KILN_CLI_PAGE_H
#define KILN_CLI_PAGE_H

#include "selection.h"

typedef struct kiln__page_facts {
  const kiln__variant *variant;
  const kiln_attn_args *args; /* of the run: sizes, strides, addresses */
} kiln__page_facts;

/* events: the object of kiln_plan_trace. *text is malloc'd. Refusals are printed. */
kiln_status kiln__page_make(const kiln__page_facts *facts, const json_t *events, char **text,
                            size_t *length);

#endif
