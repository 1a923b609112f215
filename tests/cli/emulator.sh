#!/usr/bin/env bash
# run and verify on the emulator: real input, files, figures, short k, sizes of zero, gradients.
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
# The last panel of o ends behind the tensor, in memory that nothing has written.
works verify --device emu --arch sm_90a --head-dim 64 --head-dim-v 80 --dtype bf16 --no-causal \
  --algorithm flash --case size-65
try verify --device emu --arch sm_80 --head-dim 64 --dtype bf16 --algorithm flash --case F1c --json
holds "verify succeeds" [ "$rc" = 0 ]
holds "counts on stderr" [ "$(cat "$work/stderr")" = "2 passed, 0 failed" ]
holds "counts on stdout" [ "$(tail -n 1 "$work/stdout")" = '{"passed":2,"failed":0}' ]
sed -i '$d' "$work/stdout"
json case kernel_id max_abs_error rel_rms_error lse_max_abs_error ok sentence

# ---- the backward pass; the gradient of o is any tensor of its shape ----
# shellcheck disable=SC2086
works run $input --do $data:layer0.v --check --json --dq "$work/dq.npy" --dk "$work/dk.npy" \
  --dv "$work/dv.npy" --o "$work/again.npy" --lse "$work/lse2.npy"
json kernel_id pass deterministic max_abs_error rel_rms_error dq_rel_rms_error dk_rel_rms_error \
  dv_rel_rms_error dq_max_abs_error dk_max_abs_error dv_max_abs_error tolerance ok
for name in dq dk dv; do
  holds "$name has its shape" [ "$(shape "$work/$name.npy")" = "'shape': (1, 81, 12, 32)" ]
done
holds "o is the forward pass's" cmp -s "$work/o.npy" "$work/again.npy"
holds "lse too" cmp -s "$work/lse.npy" "$work/lse2.npy"
# shellcheck disable=SC2086
works run $input --do $data:layer0.v --dk "$work/dk2.npy" --dv "$work/dv2.npy"
holds "dk has the same bits again" cmp -s "$work/dk.npy" "$work/dk2.npy"
holds "dv has the same bits again" cmp -s "$work/dv.npy" "$work/dv2.npy"
# Six key blocks add to dq, in an order of their own under each seed.
tile="--block-m 32 --block-n 16 --num-warps 4 --num-stages"
for stages in 1 2; do
  for seed in 2 3 4; do
    # shellcheck disable=SC2086
    works run $input --do $data:layer0.v --deterministic --causal --check --dq "$work/dq$seed.npy" \
      $tile $stages --emu-schedule random --emu-seed $seed
  done
  holds "a figure for each" [ "$(grep -c '^d[qkv]: .* (tolerance 0.0006)$' "$work/stdout")" = 3 ]
  holds "a deterministic dq has the same bits again" cmp -s "$work/dq2.npy" "$work/dq3.npy"
  holds "and again" cmp -s "$work/dq2.npy" "$work/dq4.npy"
done
# shellcheck disable=SC2086
works run $input --do $data:layer0.v --seqlen-k 0 --dq "$work/dq.npy" --check
# shellcheck disable=SC2086
refuses 1 "--do has 3 dimensions; it must have 4: batch, seqlen, num_heads, head_dim" \
  run $input --do "$work/lse.npy"
works verify --pass backward --device emu --arch sm_80 --head-dim 64 --dtype bf16 --causal \
  --algorithm flash --case F2b
holds "the last line counts" [ "$(tail -n 1 "$work/stdout")" = "1 passed, 0 failed" ]
try verify --pass backward --device emu --arch sm_80 --head-dim 64 --dtype bf16 --algorithm flash \
  --case F5c --deterministic --json
holds "verify succeeds" [ "$rc" = 0 ]
sed -i '$d' "$work/stdout"
json case pass deterministic dq_rel_rms_error dk_rel_rms_error dv_rel_rms_error tolerance ok

# A wrong kernel is seen: one that leaves out the scale of dq.
mkdir "$work/texts"
cp -r generator/lua templates "$work/texts"
convert=$work/texts/templates/backward/convert.tmpl.cu
sed -i 's/ \*= a.softmax_scale/ *= 1.0f/' "$convert"
cmp -s "$convert" templates/backward/convert.tmpl.cu
holds "a fault is planted" [ "$?" = 1 ]
export KILN_TEMPLATE_DIR=$work/texts
try verify --pass backward --device emu --arch sm_80 --head-dim 64 --dtype bf16 --causal \
  --algorithm flash --case F2b
holds "and seen" [ "$rc" = 15 ]
holds "in dq" grep -q "FAILED, rel_rms_error .* of dq is above its tolerance 0.006" "$work/stdout"
# shellcheck disable=SC2086
try run $input --do $data:layer0.v --check
holds "by run too" [ "$rc" = 15 ]
holds "in a gradient" grep -q "a gradient is outside its tolerance" "$work/stderr"
unset KILN_TEMPLATE_DIR

finish
