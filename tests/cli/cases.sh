#!/usr/bin/env bash
# Cases from the field, with real processes and a real compiler: many at once on a cold cache, what
# makes a kernel another one, damage of every file, a bounded cache, compiling that is off, packs
# that select nothing.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
. tools/env.sh
build=$(cd "${BUILD:-build}" && pwd)
spec="--arch sm_80 --algorithm flash --dtype fp16 --head-dim 16 --mask none"

# compiles [OPTION...]: how many of the kernels were compiled now.
compiles() {
  # shellcheck disable=SC2086
  "$kiln" compile $spec --json "$@" 2>>"$work/warnings" | grep -c '"from_cache":false'
}

# ---- C1: sixteen processes, a cold cache, one kernel ----
for round in 1 2 3 4 5; do
  export KILN_CACHE_DIR=$work/round.$round
  for i in $(seq 16); do
    # shellcheck disable=SC2086
    "$kiln" compile $spec --json >"$work/many.$i" 2>"$work/many.$i.stderr" &
  done
  wait
  holds "all sixteen have the kernel" [ "$(cat "$work"/many.{1..16} | grep -c '"kernel_id"')" = 16 ]
  holds "it is one" [ "$(cat "$work"/many.{1..16} | grep -o '"kernel_id":"[^"]*"' | sort -u |
    wc -l)" = 1 ]
  holds "without a word: $(cat "$work"/many.*.stderr | head -1)" [ -z \
    "$(cat "$work"/many.*.stderr)" ]
  count=$(cat "$work"/many.{1..16} | grep -c '"from_cache":false')
  holds "it was compiled once and not $count times" [ "$count" = 1 ]
done

# ---- C4: what compiles again, and what does not ----
export KILN_CACHE_DIR=$work/again
: >"$work/warnings"
holds "a cold cache compiles" [ "$(compiles)" = 1 ]
holds "a second run does not" [ "$(compiles)" = 0 ]
holds "nor another directory" [ "$(cd / && compiles)" = 0 ]
holds "nor another order of the environment" [ "$(env -i HOME="$HOME" PATH="$PATH" \
  KILN_NVRTC="${KILN_NVRTC:-}" CUDA_HOME="${CUDA_HOME:-}" KILN_CACHE_DIR="$KILN_CACHE_DIR" \
  "$kiln" compile $spec --json | grep -c '"from_cache":true')" = 1 ]
mv "$work/again" "$work/moved"
export KILN_CACHE_DIR=$work/moved
holds "nor a moved cache" [ "$(compiles)" = 0 ]
mkdir "$work/texts"
cp -r generator/lua templates "$work/texts"
export KILN_TEMPLATE_DIR=$work/texts
holds "nor the same templates elsewhere" [ "$(compiles)" = 0 ]
template=$work/texts/templates/common/softmax.tmpl.cu
echo '// one line more' >>"$template"
touch -d 1970-01-02 "$template"
holds "an older template with one line more does" [ "$(compiles)" = 1 ]
unset KILN_TEMPLATE_DIR
holds "and the old one is still there" [ "$(compiles)" = 0 ]
holds "no warning: $(head -1 "$work/warnings")" [ ! -s "$work/warnings" ]

# ---- C5: every file of an entry, damaged in every way ----
export KILN_CACHE_DIR=$work/damaged
holds "the entry is made" [ "$(compiles)" = 1 ]
entry=$(ls -d "$KILN_CACHE_DIR"/kernels/*)
damage() {
  local file=$1 size
  size=$(stat -c %s "$file")
  case $2 in
  empty) : >"$file" ;;
  half) truncate -s $((size / 2)) "$file" ;;
  less) truncate -s -1 "$file" ;;
  flip) printf '\377' | dd of="$file" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null ;;
  directory) rm "$file" && mkdir "$file" ;;
  fifo) rm "$file" && mkfifo "$file" ;;
  loop) ln -sf "${file##*/}" "$file" ;;
  esac
}
for file in image.bin kernel.ptx record.json meta.json; do
  for kind in empty half less flip directory fifo loop; do
    : >"$work/warnings"
    damage "$entry/$file" "$kind"
    count=$(compiles)
    holds "$file, $kind: compiled $count times" [ "$count" = 1 ]
    holds "$file, $kind: one warning: $(cat "$work/warnings")" [ "$(grep -c 'set aside' \
      "$work/warnings")" = 1 ]
    holds "$file, $kind: whole again" [ "$(compiles)" = 0 ]
  done
done

# ---- C6: a bounded cache ----
export KILN_CACHE_DIR=$work/bounded KILN_CACHE_MAX=900K
for dim in 8 16 24 32 40 48; do
  "$kiln" compile --arch sm_80 --algorithm flash --dtype fp16 --head-dim $dim --mask none \
    >/dev/null 2>>"$work/warnings"
  used=$(cat "$KILN_CACHE_DIR"/kernels/*/* | wc -c)
  holds "the cache holds $used bytes" [ "$used" -le 900000 ]
done
holds "some kernels stay" [ "$(find "$KILN_CACHE_DIR/kernels" -name image.bin | wc -l)" -ge 1 ]
unset KILN_CACHE_MAX

# ---- D3: compiling is off ----
export KILN_CACHE_DIR=$work/off
started=$(date +%s%N)
# shellcheck disable=SC2086
KILN_JIT=off try compile $spec
took=$((($(date +%s%N) - started) / 1000000))
holds "a missing kernel is refused, $rc" [ "$rc" = 13 ]
holds "with the command that makes it" grep -q '`kiln pack build --arch sm_80 ' "$work/stderr"
holds "in $took ms" [ "$took" -lt 2000 ]
holds "and nothing is written" [ -z "$(find "$work/off" -name image.bin 2>/dev/null)" ]

# ---- D5: a selection that matches nothing ----
for also in "" --dry-run; do
  try pack build --arch sm_80 --dtype bf16 --head-dim 64 --block-m 240 $also -o "$work/none.pack"
  holds "an empty selection is refused, $rc" [ "$rc" -gt 0 ]
  holds "with a reason" grep -q "block_m 240" "$work/stderr"
  holds "and no pack" [ ! -e "$work/none.pack" ]
done

# ---- X2: other devices ----
export STUB_DEVICES="12.0 78, 8.6 20, 9.0 1" LD_LIBRARY_PATH="$build/tests/stub"
arch=(sm_120 sm_86 sm_90a) sms=(78 20 1)
for device in 0 1 2; do
  works explain --device cuda:$device --dtype bf16 --head-dim 64 --no-causal --json
  holds "device $device is an ${arch[device]}" grep -q "\"arch\":\"${arch[device]}\"" "$work/stdout"
  works doctor --device cuda:$device --json
  holds "with ${sms[device]} multiprocessors" grep -q "\"num_sms\":${sms[device]}[,}]" \
    "$work/stdout"
done

finish
