#!/usr/bin/env bash
# run and verify on the emulator: real input, files, figures, short k, sizes of zero.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh

data=tests/data/minilm.safetensors
input="--q $data:layer0.q --k $data:layer0.k --v $data:layer0.v --device emu --arch sm_80"

# The header of a .npy file, in which the shape stands as text.
shape() { head -c 128 "$1" | tr -d '\0' | grep -ao "'shape': ([^)]*)"; }

# shellcheck disable=SC2086 # a list of flags
works run $input --check --json --o "$work/o.npy" --lse "$work/lse.npy"
json kernel_id max_abs_error rel_rms_error lse_max_abs_error tolerance ok
holds "o has its shape" [ "$(shape "$work/o.npy")" = "'shape': (1, 81, 12, 32)" ]
holds "lse has its shape" [ "$(shape "$work/lse.npy")" = "'shape': (1, 12, 81)" ]
# shellcheck disable=SC2086
works run $input --o "$work/again.npy"
holds "the same bits again" cmp -s "$work/o.npy" "$work/again.npy"
# shellcheck disable=SC2086
works run $input --causal --seqlen-k 40 --check
holds "figures are printed" grep -q "rel_rms_error .* (tolerance 0.0006)" "$work/stdout"
# shellcheck disable=SC2086
works run $input --seqlen-k 0 --check --dtype bf16
# shellcheck disable=SC2086
works run $input --softmax-scale 0 --check

works verify --device emu --arch sm_80 --head-dim 64 --dtype bf16 --causal --algorithm flash \
  --case F2b
holds "the last line counts" [ "$(tail -n 1 "$work/stdout")" = "1 passed, 0 failed" ]
try verify --device emu --arch sm_80 --head-dim 64 --dtype bf16 --algorithm flash --case F1c --json
holds "verify succeeds" [ "$rc" = 0 ]
holds "counts on stderr" [ "$(cat "$work/stderr")" = "2 passed, 0 failed" ]
holds "counts on stdout" [ "$(tail -n 1 "$work/stdout")" = '{"passed":2,"failed":0}' ]
sed -i '$d' "$work/stdout"
json case kernel_id max_abs_error rel_rms_error lse_max_abs_error ok sentence

finish
