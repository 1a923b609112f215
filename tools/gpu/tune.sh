#!/usr/bin/env bash
# tools/gpu/tune.sh OUT: tunes one problem (bf16, head_dim 128, causal, 4096 tokens) on the GPU at
# hand with every strategy, and prints what each chose, what it took and what became of the tiles.
# OUT is a folder that gets the records of each strategy and its rows.
#   PREFIX  where bin/kiln and libexec/kiln/kiln-measure are (default: $BUILD, or build)
set -eu
kiln=$(cd "${PREFIX:-${BUILD:-build}}" && pwd)/bin/kiln
mkdir -p "$1"
out=$(cd "$1" && pwd)
export KILN_CACHE_DIR=$out/cache
mkdir -p "$KILN_CACHE_DIR"
problem="--dtype bf16 --head-dim 128 --causal --batch 4 --num-heads 16"

# tune NAME FLAG...: one row, and the seconds that it took.
tune() {
  local name=$1 start=$EPOCHREALTIME
  shift
  # shellcheck disable=SC2086 # a list of flags
  "$kiln" tune $problem "$@" | tee "$out/$name.txt"
  awk -v a="$start" -v b="$EPOCHREALTIME" -v n="$name" \
    'BEGIN { printf "%s: %.1f s\n", n, b - a }' | tee -a "$out/$name.txt"
}

# What became of the tiles of a journal.
outcomes() {
  grep '"kind":"candidate"' "$1" | grep -o '"outcome":"[a-z_]*"' | sort | uniq -c || true
  grep '"kind":"candidate"' "$1" | grep -v '"outcome":"timed"' | \
    grep -o '"reason":"[^"]*"' | sort | uniq -c | sort -rn | head -n 5 || true
}

for strategy in estimate hillclimb exhaustive; do
  tune $strategy --seqlen-q 4096 --strategy $strategy --records "$out/$strategy.jsonl"
  [ ! -e "$out/$strategy.jsonl" ] || outcomes "$out/$strategy.jsonl"
done
for again in 1 2 3; do
  tune "hillclimb-$again" --seqlen-q 4096 --records "$out/hillclimb-$again.jsonl"
done
tune from-records --seqlen-q 4096 --records "$out/hillclimb.jsonl"

# Two problems of one spec in one process: the second compiles only what the first did not.
printf '{"head_dim":128,"mask":"causal","batch":4,"num_heads":16,"seqlen_q":%d}\n' 4096 8192 \
  >"$out/problems"
start=$EPOCHREALTIME
"$kiln" tune --problems "$out/problems" --records "$out/two.jsonl" | tee "$out/two.txt"
awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "two shapes: %.1f s\n", b - a }'
find "$KILN_CACHE_DIR" -name image.bin | wc -l | sed 's/$/ kernels published (0 is right)/'
