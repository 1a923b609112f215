/* What an engine does in production, with libkiln_rt alone: main [PACK] HEAD_DIM MASK. It opens the
 * pack (with -DPACK=name the one that `kiln pack embed` wrote), runs one launch on device 0, and
 * prints where the kernel came from. The exit code is the first status that is not OK.
 * Called by tests/cli/pack.sh. */
#include <kiln/kiln.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PACK
#include HEADER
#endif

static kiln_context *ctx;

static void demand(kiln_status status) {
  if (status == KILN_OK) return;
  printf("%s: %s\n", kiln_status_name(status), kiln_last_error(ctx));
  exit((int)status);
}

static void add_pack(const char *path) {
  kiln_pack *pack = NULL;
#ifdef PACK
  (void)path;
  demand(kiln_pack_open_memory(ctx, PACK, sizeof PACK, NULL, &pack));
#else
  if (!path[0]) return; /* KILN_PACK_PATH alone */
  demand(kiln_pack_open_file(ctx, path, NULL, &pack));
#endif
  demand(kiln_context_add_pack(ctx, pack));
  kiln_pack_destroy(pack);
}

int main(int argc, char **argv) {
  kiln_attn_spec spec = KILN_ATTN_SPEC_INIT;
  kiln_attn_args args = KILN_ATTN_ARGS_INIT;
  kiln_plan_info info = {.size = sizeof info};
  kiln_plan *plan = NULL;
  void *memory = NULL;
  if (argc != 4) return KILN_INVALID_ARGUMENT;
  demand(kiln_context_create(0, NULL, &ctx));
  add_pack(argv[1]);
  spec.head_dim = atoi(argv[2]);
  spec.mask = strcmp(argv[3], "causal") == 0 ? KILN_MASK_CAUSAL : KILN_MASK_NONE;
  args.batch = args.num_heads = args.num_heads_k = 2;
  args.seqlen_q = args.seqlen_k = 256;
  kiln_attn_args_pack(&args, &spec);
  demand(kiln_plan_create(ctx, &spec, NULL, &args, &plan));
  kiln_plan_get_info(plan, &info);
  const size_t bytes = (size_t)2 * 256 * 2 * (size_t)spec.head_dim * 2; /* of each tensor */
  demand(kiln_memory_alloc(ctx, 4 * bytes + info.workspace_bytes + 256, &memory));
  args.q = memory;
  args.k = (char *)memory + bytes;
  args.v = (char *)memory + 2 * bytes;
  args.o = (char *)memory + 3 * bytes;
  args.workspace = (char *)memory + (4 * bytes + 255) / 256 * 256;
  args.workspace_bytes = info.workspace_bytes;
  demand(kiln_plan_run(plan, &args, NULL));
  demand(kiln_context_synchronize(ctx));
  printf("%.12s %s\n", info.kernel_id, info.why);
  demand(kiln_memory_free(ctx, memory));
  kiln_plan_destroy(plan);
  kiln_context_destroy(ctx);
  return 0;
}
