#!/usr/bin/env bash
# tools/demo.sh: Kiln in a minute. Run by `make demo`, which has built it.
# Renders and compiles one kernel of each family, then runs the attention of a real transformer
# where there is a GPU. Every command is printed before it runs, so that it can be typed again.
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

data=tests/data/minilm.safetensors
layer() { echo "--q $data:layer$1.q --k $data:layer$1.k --v $data:layer$1.v"; }
echo
if [ -e /dev/nvidia0 ]; then
  echo "The attention of all-MiniLM-L6-v2 on a paragraph, layer by layer, on this machine's GPU:"
  for number in 0 1 2 3 4 5; do
    # shellcheck disable=SC2046
    show "$kiln" run $(layer $number) --o "$out/o$number.npy" --device cuda:0 --check
  done
else
  echo "This machine has no GPU. With one, the demo would go on with a real transformer:"
  echo "\$ $kiln run $(layer 0) --o $out/o0.npy --device cuda:0 --check"
fi
