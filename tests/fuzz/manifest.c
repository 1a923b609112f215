/* A manifest of a pack: it ends, within its limits, with kernels or with a sentence, and leaves the
 * generator as it was. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  kiln_context *ctx = fuzz_context();
  char *text = fuzz_copy(data, size);
  const char *json = NULL, *schema = NULL;
  kiln_status status = kiln_manifest_read(ctx, "m", text, size, &json);
  free(text);
  if (status == KILN_OK) {
    demand(json != NULL && json[0] == '[' && json[1] == '{' && json[strlen(json) - 1] == ']');
  } else {
    demand(status == KILN_INVALID_ARGUMENT || status == KILN_UNSUPPORTED);
    demand(json == NULL && strncmp(kiln_last_error(ctx), "m:", 2) == 0);
  }
  demand(kiln_schema(ctx, &schema) == KILN_OK);
  return 0;
}
