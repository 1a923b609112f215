/* Making plans in the background; prepared.h states what is kept of a failure. */
#include "prepared.h"

#include <stdlib.h>
#include <string.h>

/* A plan runs any sizes; these only have to be legal. */
void kiln__prepare(kiln_context *ctx, const kiln__variant *variant, kiln__prepared *p) {
  kiln_attn_args shape = KILN_ATTN_ARGS_INIT;
  shape.batch = shape.num_heads = shape.num_heads_k = 1;
  shape.seqlen_q = shape.seqlen_k = 128;
  kiln_attn_args_pack(&shape, &variant->spec);
  p->status = kiln_plan_create(ctx, &variant->spec, &variant->tile, &shape, &p->plan);
  if (p->status != KILN_OK) p->error = strdup(kiln_last_error(ctx));
}

void kiln__prepared_destroy(kiln__prepared *p) {
  kiln_plan_destroy(p->plan);
  free(p->error);
  *p = (kiln__prepared){0};
}
