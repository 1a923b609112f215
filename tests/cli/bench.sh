#!/usr/bin/env bash
# bench over the stub driver, whose events are 500, 625 and 750 us apart, in turn: shapes, figures,
# both outputs, refusals. What a GPU takes is not known here; what is made of its times is.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
. tools/env.sh
stub=$(cd "${BUILD:-build}" && pwd)/tests/stub
export LD_LIBRARY_PATH=$stub${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} STUB_H200=1

# field NAME: its values in order, one a line.
field() { grep -o "\"$1\":[^,}]*" "$work/stdout" | cut -d: -f2; }
# figures NAME VALUE...: these are the values, in order.
figures() {
  local name=$1
  shift
  holds "$name is $(field "$name" | tr '\n' ' ')and not $*" [ "$(field "$name" | xargs)" = "$*" ]
}

one="--head-dim 64 --dtype bf16 --no-causal"
# 24 sets of 528,384 bytes are 3 times the stub's L2 of 4 MiB. The warm-up's 40 rounds of 24
# launches in 625 us make 13 rounds 200 us long, and a sample 625 / (13 * 24) us in the middle.
# shellcheck disable=SC2086 # a list of flags
works bench $one --seqlen-q 512 --batch 1 --num-heads 2 --json
json device kernel_id arch algorithm dtype head_dim head_dim_v mask tile batch seqlen_q seqlen_k \
  num_heads num_heads_k samples launches time_us time_us_min time_us_max time_us_mad tflops
figures device stub H200
figures launches 312
figures samples 25
figures time_us 2.00320513
figures time_us_min 1.6025641
figures time_us_max 2.40384615
figures time_us_mad 0.400641026
figures tflops 67.0014898
figures arch sm_90a

# What is left out: 16,384 tokens, a hidden size of 2,048. Rows of one shape stand together.
works bench --head-dim 64 --dtype bf16 --seqlen-q 512,16384 --num-heads-k 4 --samples 1 --json
figures mask none none causal causal
figures seqlen_q 512 16384 512 16384
figures seqlen_k 512 16384 512 16384
figures batch 32 1 32 1
figures num_heads 32 32 32 32
figures num_heads_k 4 4 4 4
# shellcheck disable=SC2086
works bench $one --arch sm_90a,sm_90 --seqlen-q 128,256 --seqlen-k 100 --batch 1 --samples 1 --json
figures arch sm_90a sm_90 sm_90a sm_90
figures seqlen_q 128 128 256 256
figures seqlen_k 100 100 100 100

# shellcheck disable=SC2086
works bench $one --seqlen-q 512 --batch 1 --num-heads 2
holds "a heading and a row" [ "$(wc -l <"$work/stdout")" = 3 ]
holds "names the device" grep -q "^stub H200; " "$work/stdout"
holds "TFLOP/s and ms" \
  grep -Eq "^sm_90a bf16 64 none .* 67\.0 +0\.0016 +0\.0020 +0\.0024$" "$work/stdout"

# ---- refusals ----
refuses 1 "--seqlen-q '512,x' is not a list of whole numbers from 1 to 2147483647" \
  bench --seqlen-q 512,x
refuses 1 "--seqlen-q '0' is not a list of whole numbers from 1 to 2147483647" bench --seqlen-q 0
refuses 1 "--batch '0' is not a whole number from 1 to 2147483647" bench --batch 0
refuses 1 "--samples '0' is not a whole number from 1 to 100000" bench --samples 0
# shellcheck disable=SC2086
refuses 1 "num_heads 32 is not a whole multiple of --num-heads-k 3; give --num-heads" \
  bench $one --num-heads-k 3
# shellcheck disable=SC2086
try bench $one --seqlen-q 512 --batch 100000 --json
holds "a shape that does not fit is OUT_OF_MEMORY" [ "$rc" = 3 ]
holds "with its sentence" grep -qx "kiln: the tensors and the workspace of this shape take [0-9.]* \
GB and the device has 8.59 GB; choose a smaller --batch, --seqlen-q or --num-heads" "$work/stderr"
# shellcheck disable=SC2086
try bench $one --algorithm standard --seqlen-q 512
holds "a kernel that does not load is named" grep -q "^kiln: sm_90a bf16 64 none standard: " \
  "$work/stderr"
holds "and nothing is timed" [ "$rc" = 9 ]

finish
