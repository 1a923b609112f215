/* A line of a tuning journal: what is accepted is written the same way again. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "autotune/line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *bytes = fuzz_copy(data, size), why[256] = "";
  kiln__line line, again;
  if (kiln__line_parse(bytes, size, &line, why, sizeof why) != 0) {
    demand(why[0] != '\0' && line.candidates == NULL);
    free(bytes);
    return 0;
  }
  char *text = kiln__line_text(&line), *key = kiln__line_key(&line);
  demand(text && key && kiln__line_parse(text, strlen(text), &again, why, sizeof why) == 0);
  char *second = kiln__line_text(&again), *second_key = kiln__line_key(&again);
  demand(second && second_key && strcmp(text, second) == 0 && strcmp(key, second_key) == 0);
  free(second_key);
  free(second);
  free(key);
  free(text);
  kiln__line_free(&again);
  kiln__line_free(&line);
  free(bytes);
  return 0;
}
