/* An engine that tunes one problem through libkiln and says what came of it: where the library
 * finds kiln-measure, when kiln is not the program. Built by tests/cli/measure.sh. */
#include <stdio.h>

#include <kiln/kiln.h>

int main(void) {
  kiln_context *ctx = NULL;
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args shape = KILN_ATTN_ARGS_INIT;
  kiln_tune_result result = {.size = sizeof result};
  spec.head_dim = 256;
  shape.batch = 1;
  shape.seqlen_q = shape.seqlen_k = 1024;
  shape.num_heads = shape.num_heads_k = 8;
  if (kiln_context_create(0, NULL, &ctx) != KILN_OK) return 1;
  kiln_status status = kiln_tune(ctx, &spec, &shape, NULL, &result);
  if (status == KILN_OK)
    printf("%dx%d\n", (int)result.tile.block_m, (int)result.tile.block_n);
  else
    printf("%s: %s\n", kiln_status_name(status), kiln_last_error(ctx));
  kiln_context_destroy(ctx);
  return 0;
}
