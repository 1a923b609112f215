/* What NVRTC and the assembler inside it say about a kernel: a pure function of the log's text.
 * Called by nvrtc.c; tested on recorded logs. */
#ifndef KILN_RUNTIME_COMPILE_NVRTC_LOG_H
#define KILN_RUNTIME_COMPILE_NVRTC_LOG_H

#include "runtime/services.h"

/* Fills out->entries and out->num_entries from the assembler's report, and appends to `notes`, one
 * a line, the warnings with their template line and the assembler's remarks (spilling, C75xx:
 * serialised wgmma, inserted waits, an ignored setmaxnreg). */
void kiln__nvrtc_log_parse(const char *log, kiln__compiled *out, kiln__text *notes);
/* Appends what a failed compile has to say: the log without the assembler's statistics. */
void kiln__nvrtc_log_errors(const char *log, kiln__text *error);

#endif
