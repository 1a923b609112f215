/* What the fuzz targets of this folder share. A target is one file with LLVMFuzzerTestOneInput; a
 * crash, a sanitizer's report or a `demand` that does not hold is a finding. Its input goes into
 * corpus/TARGET/ together with the repair. tools/fuzz.sh builds and runs them.
 *
 * Called by every file of this folder. */
#ifndef KILN_TESTS_FUZZ_H
#define KILN_TESTS_FUZZ_H

#include <kiln/kiln.h>

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One context for the whole process, without a device, a cache and a word on stderr. */
kiln_context *fuzz_context(void);

/* The input as an open plain file of the process's own, its position at 0; the same one each time.
 */
int fuzz_file(const uint8_t *data, size_t size);

/* A copy that ends where the input ends, so that one byte more is a finding. free() ends it. */
void *fuzz_copy(const void *data, size_t size);

void demand(int condition); /* aborts */

#endif
