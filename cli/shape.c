/* See shape.h. */
#include "shape.h"

#include "out.h"

kiln_status kiln__shape_read(const kiln__args *args, kiln_attn_args *shape) {
  int64_t batch = 1, seqlen_q = 4096, num_heads = 16;
  kiln_status status = kiln__args_integer(args, "--batch", 0, INT32_MAX, &batch);
  if (status == KILN_OK) status = kiln__args_integer(args, "--seqlen-q", 0, INT32_MAX, &seqlen_q);
  if (status == KILN_OK) status = kiln__args_integer(args, "--num-heads", 1, INT32_MAX, &num_heads);
  int64_t seqlen_k = seqlen_q, num_heads_k = num_heads;
  if (status == KILN_OK) status = kiln__args_integer(args, "--seqlen-k", 0, INT32_MAX, &seqlen_k);
  if (status == KILN_OK)
    status = kiln__args_integer(args, "--num-heads-k", 1, INT32_MAX, &num_heads_k);
  if (status != KILN_OK) return status;
  if (num_heads % num_heads_k != 0)
    return kiln__fail(KILN_INVALID_ARGUMENT,
                      "--num-heads %lld is not a whole multiple of --num-heads-k %lld",
                      (long long)num_heads, (long long)num_heads_k);
  *shape = (kiln_attn_args)KILN_ATTN_ARGS_INIT;
  shape->batch = (int32_t)batch;
  shape->seqlen_q = (int32_t)seqlen_q;
  shape->seqlen_k = (int32_t)seqlen_k;
  shape->num_heads = (int32_t)num_heads;
  shape->num_heads_k = (int32_t)num_heads_k;
  return KILN_OK;
}

json_t *kiln__shape_json(const kiln_attn_args *shape) {
  return json_pack("{s:i, s:i, s:i, s:i, s:i}", "batch", (int)shape->batch, "seqlen_q",
                   (int)shape->seqlen_q, "seqlen_k", (int)shape->seqlen_k, "num_heads",
                   (int)shape->num_heads, "num_heads_k", (int)shape->num_heads_k);
}
