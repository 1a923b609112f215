/* The parts of the report that have files of their own. Called by report.c. */
#ifndef KILN_RUNTIME_REPORT_H
#define KILN_RUNTIME_REPORT_H

#include <jansson.h>

#include "runtime/context.h"

/* Every file of KILN_PACK_PATH: what it holds, who signed it, and in one sentence what is wrong
 * with it. The thread's last error may be one of theirs afterwards. */
json_t *kiln__report_packs(kiln_context *ctx);

#endif
