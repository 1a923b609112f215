#!/usr/bin/env bash
# tests/gpu/verify.sh KILN OUT: proves the kernels right on the GPU at hand, and runs a part of them
# under compute-sanitizer. KILN is the built program, OUT a folder that gets a log a step and
# summary.txt. Ends with `N passed, N failed`; the exit code is 0 when nothing failed.
#   JOBS  steps at once (default: 8). Most of a step is the reference, on the host.
#   ONLY  an extended regular expression: the names of the steps that are run (default: all); those
#         of the backward pass begin with backward-
#   SANITIZER  the compute-sanitizer to run (default: the one on the PATH). Racecheck of 2025.3, of
#         CUDA 13.0, loses barriers that the halves of a block come to from different places, and
#         reports hazards in mma.sync gradients of head dims up to 128. That of 2026.4 does not.
set -u
kiln=$1 out=$2
jobs=${JOBS:-8} only=${ONLY:-.} sanitizer=${SANITIZER:-compute-sanitizer}
mkdir -p "$out"
export KILN_CACHE_DIR=${KILN_CACHE_DIR:-$out/cache}

# step NAME COMMAND...: a command that ends with `N passed, N failed` when it judges cases.
step() {
  local name=$1 log=$out/$1.log start=$SECONDS
  shift
  "$@" >"$log" 2>&1
  local code=$? line
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -n 1)
  [ -n "$line" ] || line="0 passed, 1 failed"
  [ $code -eq 0 ] || [ "${line##*, }" != "0 failed" ] || line="0 passed, 1 failed"
  echo "$name: $line, $((SECONDS - start)) s" | tee -a "$out/summary.txt"
}

# clean NAME TOOL COMMAND...: under compute-sanitizer; its verdict counts as one case.
clean() {
  local name=$1 tool=$2 log=$out/$1.log start=$SECONDS verdict="0 passed, 1 failed"
  shift 2
  "$sanitizer" --tool "$tool" --error-exitcode 99 "$@" >"$log" 2>&1
  if [ $? -eq 0 ] && grep -qE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$log"; then
    verdict="1 passed, 0 failed"
  fi
  echo "$name: $verdict, $((SECONDS - start)) s" | tee -a "$out/summary.txt"
}

# start KIND NAME ...: runs a step beside the others.
start() {
  [[ $2 =~ $only ]] || return 0
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  count=$((count + 1))
  "$@" &
}

count=0
: >"$out/summary.txt"
"$kiln" doctor --json >"$out/doctor.json" 2>&1
every=$(seq -s, 8 8 256)
for dtype in fp16 bf16; do
  for arch in sm_90a sm_90; do
    one="--pass forward --device cuda:0 --arch $arch --dtype $dtype --mask none,causal"
    # Every head dim shares the problems out; four head dims take every problem each.
    for head_dim in 64 80 128 256; do
      start step "full-$arch-$dtype-$head_dim" "$kiln" verify $one --algorithm flash \
        --head-dim $head_dim
    done
    start step "every-$arch-$dtype" "$kiln" verify $one --algorithm flash --head-dim "$every"
    start step "pairs-$arch-$dtype" "$kiln" verify $one --algorithm flash --head-dim 192 \
      --head-dim-v 128
    start step "standard-$arch-$dtype" "$kiln" verify $one --algorithm standard --head-dim 64,128
    one="--pass backward --device cuda:0 --arch $arch --dtype $dtype --mask none,causal"
    for head_dim in 64 80 128 256; do
      start step "backward-full-$arch-$dtype-$head_dim" "$kiln" verify $one --head-dim $head_dim
    done
    start step "backward-every-$arch-$dtype" "$kiln" verify $one --head-dim "$every"
    start step "backward-pairs-$arch-$dtype" "$kiln" verify $one --head-dim 192 \
      --head-dim-v 128
    start step "backward-deterministic-$arch-$dtype" "$kiln" verify $one --deterministic \
      --head-dim 40,64,128,192,256
  done
done
for tool in racecheck memcheck synccheck; do
  for kernel in "sm_90a bf16 64" "sm_90a bf16 256" "sm_90a fp16 128" "sm_90 bf16 128" \
    "sm_90 fp16 80" "sm_90 bf16 256"; do
    set -- $kernel
    start clean "$tool-$1-$2-$3" $tool "$kiln" verify --pass forward --device cuda:0 --arch $1 \
      --dtype $2 --head-dim $3 --mask causal --algorithm flash --quick
    for order in deterministic no-deterministic; do
      start clean "backward-$tool-$1-$2-$3-$order" $tool "$kiln" verify --pass backward --quick \
        --device cuda:0 --arch $1 --dtype $2 --head-dim $3 --mask causal --$order
    done
  done
  start clean "$tool-standard" $tool "$kiln" verify --pass forward --device cuda:0 --arch sm_90 \
    --dtype bf16 --head-dim 64 --mask causal --algorithm standard --quick
done
wait
verdicts=$(grep -oE '[0-9]+ passed, [0-9]+ failed' "$out/summary.txt")
passed=$(awk '{ n += $1 } END { print n + 0 }' <<<"$verdicts")
failed=$(awk -v steps="$count" '{ n += $3 } END { print n + steps - NR }' <<<"$verdicts")
echo "$passed passed, $failed failed" | tee -a "$out/summary.txt"
[ "$passed" -gt 0 ] && [ "$failed" -eq 0 ]
