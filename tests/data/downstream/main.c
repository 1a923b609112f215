/* Prints the version of the library that was found, and whether it has a generator. */
#include <kiln/kiln.h>

#include <stdio.h>

int main(void) {
  kiln_context *ctx = NULL;
  kiln_source *source = NULL;
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  if (kiln_context_create(KILN_DEVICE_NONE, NULL, &ctx) != KILN_OK) return 1;
  int generates = kiln_source_generate(ctx, &spec, NULL, 0, &source) == KILN_OK;
  printf("%s %s\n", kiln_version(), generates ? "generates" : kiln_last_error(ctx));
  kiln_source_destroy(source);
  kiln_context_destroy(ctx);
  return 0;
}
