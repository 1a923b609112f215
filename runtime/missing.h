/* The sentence for a kernel that is not there and may not be compiled: it names the kernel and the
 * command that makes it. Called by binary.c and plan.c. */
#ifndef KILN_RUNTIME_MISSING_H
#define KILN_RUNTIME_MISSING_H

#include <kiln/kiln.h>

#include "runtime/text.h"

typedef enum kiln__missing_reason {
  KILN__MISSING_JIT_OFF,     /* KILN_JIT or the context's options say so */
  KILN__MISSING_NO_COMPILER, /* libkiln_rt */
  KILN__MISSING_ON_EMULATOR  /* KILN_JIT is off, and packs hold nothing for the emulator */
} kiln__missing_reason;

/* Fields of the tile that are 0 were left to Kiln. */
void kiln__missing_kernel(kiln__text *error, const kiln_attn_spec *spec, const kiln_tile *tile,
                          kiln__missing_reason reason);

/* Whether every number of the spec is one that a word stands for: with any other, no command makes
 * the kernel. Head dims are not looked at. */
int kiln__spec_has_words(const kiln_attn_spec *spec);

/* "sm_90a bf16 128 causal", with the head_dim_v where it differs, the algorithm where it is not
 * flash, and the fields of the tile that are not 0. */
void kiln__spec_words(kiln__text *text, const kiln_attn_spec *spec, const kiln_tile *tile);

#endif
