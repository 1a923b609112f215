#!/usr/bin/env bash
# compile and explain with NVRTC and no GPU: facts, files, order, cache.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
. tools/env.sh

works compile --arch sm_80 --head-dim 64,72 --no-causal --json -o "$work/out"
json kernel_id source_id arch dtype head_dim head_dim_v mask tile registers spill_bytes \
  shared_bytes compile_ms notes
holds "two kernels in order" [ "$(grep -o '"head_dim":[0-9]*' "$work/stdout" | tr '\n' ' ')" = \
  '"head_dim":64 "head_dim":72 ' ]
for ending in cu ptx cubin record.json launcher.c; do
  holds "two .$ending files" [ "$(find "$work/out" -name "*.$ending" | wc -l)" = 2 ]
done
holds "and nothing else" [ "$(find "$work/out" -type f | wc -l)" = 10 ]
"$kiln" generate --arch sm_80 --head-dim 64 -o "$work/one.cu"
holds "the source is generate's" cmp -s "$work/one.cu" "$work"/out/*-bf16-64-64-*.cu
holds "compiled and not cached" grep -q '"from_cache":false' "$work/stdout"
works compile --arch sm_80 --head-dim 64,72 --no-causal --json
holds "the second time from the cache" [ "$(grep -c '"from_cache":true' "$work/stdout")" = 2 ]

works explain --device none --arch sm_80 --head-dim 64
for figure in "m = 2, l = 2.198" "m = 3, l = 2.611" "33.6 MB" "134 MB" "blocks_per_sm"; do
  holds "explain says $figure" grep -q "$figure" "$work/stdout"
done
works explain --device none --arch sm_80 --head-dim 64 --json
json kernel_id why tile registers spill_bytes shared_bytes entries smem bytes
holds "scores of a head of 4096" grep -q '"score_bytes_per_head":33554432' "$work/stdout"

# 16 heads of 4096 queries: 64 columns of fp32 and 8 bytes of statistics each.
works explain --device none --arch sm_80 --head-dim 64 --pass backward
for figure in "lse = 3.960" "P = 0.052, 0.031, 0.141, 0.085" "workspace_bytes: 17301504"; do
  holds "explain of the backward pass says $figure" grep -q "$figure" "$work/stdout"
done
holds "and nothing of the forward pass" [ "$(grep -c 'm = 2' "$work/stdout")" = 0 ]

export KILN_JIT=off
try compile --arch sm_80 --head-dim 104
holds "a missing kernel is MISSING_KERNEL without JIT" [ "$rc" = 13 ]
unset KILN_JIT

finish
