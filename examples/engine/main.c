/* Attention from a pack, with libkiln_rt: bf16, head_dim 64, causal, 4 query heads on 2 key heads.
 * Usage: engine PACK. Prints which kernel ran and the first numbers of the result. */
#include <kiln/kiln.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 1, SEQLEN = 300, HEADS = 4, HEADS_K = 2, HEAD_DIM = 64 };

/* A number as bf16, cut off: enough for an example. */
static uint16_t bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}
static float from_bf16(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void need(kiln_context *ctx, kiln_status status) {
  if (status == KILN_OK) return;
  fprintf(stderr, "engine: %s\n", ctx ? kiln_last_error(ctx) : kiln_status_text(status));
  exit((int)status);
}

/* A tensor on the device, (BATCH, SEQLEN, heads, HEAD_DIM), with numbers from -1 to 1. */
static void *tensor(kiln_context *ctx, int heads) {
  const size_t count = (size_t)BATCH * SEQLEN * (size_t)heads * HEAD_DIM;
  uint16_t *numbers = malloc(count * sizeof *numbers);
  void *address = NULL;
  if (!numbers) exit(3);
  for (size_t i = 0; i < count; i++) numbers[i] = bf16((float)(i * 37 % 201) / 100.0f - 1.0f);
  need(ctx, kiln_memory_alloc(ctx, count * sizeof *numbers, &address));
  need(ctx, kiln_memory_upload(ctx, address, numbers, count * sizeof *numbers));
  free(numbers);
  return address;
}

int main(int count, char **words) {
  kiln_context *ctx = NULL;
  kiln_pack *pack = NULL;
  kiln_plan *plan = NULL;
  kiln_plan_info info = {.size = sizeof info};
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  uint16_t first[4];
  if (count != 2) {
    fprintf(stderr, "usage: engine PACK\n");
    return 1;
  }

  /* Once: the device, the kernels, a plan. */
  need(NULL, kiln_context_create(0, NULL, &ctx));
  need(ctx, kiln_pack_open_file(ctx, words[1], NULL, &pack));
  need(ctx, kiln_context_add_pack(ctx, pack)); /* which keeps it */
  kiln_pack_destroy(pack);
  spec.dtype = KILN_DTYPE_BF16;
  spec.head_dim = spec.head_dim_v = HEAD_DIM;
  spec.mask = KILN_MASK_CAUSAL;
  need(ctx, kiln_plan_create(ctx, &spec, NULL, NULL, &plan));
  kiln_plan_get_info(plan, &info);
  printf("kernel %.12s: %s\n", info.kernel_id, info.why);

  /* For every layer: tensors, sizes, strides, a stream. */
  args.q = tensor(ctx, HEADS);
  args.k = tensor(ctx, HEADS_K);
  args.v = tensor(ctx, HEADS_K);
  args.o = tensor(ctx, HEADS);
  args.batch = BATCH;
  args.seqlen_q = args.seqlen_k = SEQLEN;
  args.num_heads = HEADS;
  args.num_heads_k = HEADS_K;
  kiln_attn_args_pack(&args, &spec);
  need(ctx, kiln_plan_run(plan, &args, NULL));
  need(ctx, kiln_context_synchronize(ctx));
  need(ctx, kiln_memory_download(ctx, first, args.o, sizeof first));
  printf("o begins with %g %g %g %g\n", (double)from_bf16(first[0]), (double)from_bf16(first[1]),
         (double)from_bf16(first[2]), (double)from_bf16(first[3]));

  void *tensors[] = {(void *)args.q, (void *)args.k, (void *)args.v, args.o};
  for (int i = 0; i < 4; i++) need(ctx, kiln_memory_free(ctx, tensors[i]));
  kiln_plan_destroy(plan);
  kiln_context_destroy(ctx);
  return 0;
}
