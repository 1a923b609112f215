#!/usr/bin/env bash
# trace: the events of both families, the page, refusals. trace.lua says what must hold of them.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh

# Key blocks, stages, and for a ring of cp.async slices of a block, at head_dim 64 and 512 keys.
for row in "sm_90a 128 3" "sm_80 64 1" "sm_80 64 2 2" "sm_80 32 3 1"; do
  read -r arch block_n stages slices <<<"$row"
  flags="--arch $arch --head-dim 64 --block-n $block_n --num-stages $stages"
  flags+=" --seqlen-q 200 --seqlen-k 512 --block 1"
  # shellcheck disable=SC2086 # a list of flags
  works trace $flags --device emu -o "$work/page.html"
  holds "names the file" [ "$(cat "$work/stdout")" = "$work/page.html" ]
  # shellcheck disable=SC2086
  works trace $flags --json
  json block num_blocks threads costs events clocks
  # shellcheck disable=SC2086
  holds "$row: events and page" \
    lua5.4 tests/cli/trace.lua "$work/stdout" "$work/page.html" $((512 / block_n)) $slices
done

sentence="trace follows the emulator and no device has a timeline to give; give --device emu"
refuses 2 "$sentence" trace --device cuda:0
refuses 2 "$sentence" trace --device none
refuses 2 "trace shows one kernel and the standard algorithm has several; give --algorithm flash" \
  trace --algorithm standard
refuses 1 "trace shows one kernel and the selection holds 2; give one value a field" \
  trace --head-dim 64,128
refuses 1 "there is no block 7 in a grid of 1; the first is 0" \
  trace --head-dim 64 --seqlen-q 64 --seqlen-k 64 --block 7
refuses 1 "--seqlen-k '0' is not a whole number from 1 to 2147483647" trace --seqlen-k 0
refuses 18 "$work/none/page.html cannot be written (No such file or directory); choose another \
place with -o" trace --head-dim 64 --seqlen-q 64 --seqlen-k 64 -o "$work/none/page.html"
holds "no page is left behind" [ ! -e trace.html ]

finish
