#!/usr/bin/env bash
# tools/demo.sh: Kiln in a minute. Run by `make demo`, which has built it.
# Renders and compiles one kernel of each family, then runs the attention of a real transformer,
# layer by layer, and the gradients of its first layer: on the GPU where there is one, else on the
# emulator, with both families and both types. A command is printed before it runs, so that it can
# be typed again.
set -eu
cd "$(dirname "$0")/.."
. tools/env.sh
build=${BUILD:-build}
kiln=$build/bin/kiln
out=$build/demo

show() {
  echo
  echo "\$ $*"
  "$@"
}

mkdir -p "$out"
for arch in sm_80 sm_90a; do
  spec="--arch $arch --dtype bf16 --head-dim 128 --causal"
  # shellcheck disable=SC2086 # a list of flags
  show "$kiln" generate $spec -o "$out/$arch.cu"
  echo "$(wc -l <"$out/$arch.cu") lines of CUDA C in $out/$arch.cu"
  # shellcheck disable=SC2086
  show "$kiln" compile $spec -o "$out"
done

# One command a layer; the first is printed whole, of all of them the figures.
data=tests/data/minilm.safetensors
run_layers() { # the flags that all six have in common
  local number line
  echo
  for number in 0 1 2 3 4 5; do
    line="$kiln run --q $data:layer$number.q --k $data:layer$number.k --v $data:layer$number.v"
    line="$line $* --check"
    [ $number != 0 ] || echo "\$ $line --o $out/o0.npy"
    # shellcheck disable=SC2086 # words without blanks
    $line --o "$out/o$number.npy" --json >"$out/run.json"
    figure() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$out/run.json"; }
    printf '  layer %d: rel_rms_error %.2e of at most %.1e, max_abs_error %.2e\n' $number \
      "$(figure rel_rms_error)" "$(figure tolerance)" "$(figure max_abs_error)"
  done
}

# Of the first layer; its queries stand in for a gradient of o. Flags: the device and the arch.
run_gradients() {
  # shellcheck disable=SC2086 # words without blanks
  show "$kiln" run --q $data:layer0.q --k $data:layer0.k --v $data:layer0.v --do $data:layer0.q \
    "$@" --check --dq "$out/dq.npy" --dk "$out/dk.npy" --dv "$out/dv.npy"
}

echo
echo "The attention of all-MiniLM-L6-v2 on a paragraph (81 tokens, 12 heads of 32), compared with"
if [ -e /dev/nvidia0 ]; then
  echo "attention in fp64, on this machine's GPU:"
  for dtype in fp16 bf16; do run_layers --dtype $dtype --device cuda:0; done
  run_gradients --device cuda:0
else
  echo "attention in fp64. This machine has no GPU: Kiln's emulator runs the kernels, and checks"
  echo "each of their instructions for races, wrong waits and reads past a tensor."
  for arch in sm_80 sm_90a; do
    for dtype in fp16 bf16; do run_layers --dtype $dtype --device emu --arch $arch; done
  done
  for arch in sm_80 sm_90a; do run_gradients --device emu --arch $arch; done
fi
