#!/usr/bin/env bash
# Tuning on a GPU, over the stub driver: where kiln-measure is found and what it costs when it is
# not well. The real one finds every kernel wrong there, because the stub computes nothing; where
# times are wanted, tests/data/measurer stands in its place.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
. tools/env.sh
build=$(cd "${BUILD:-build}" && pwd)
export LD_LIBRARY_PATH=$build/tests/stub${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} STUB_H200=1
export MEASURER_LOG="$work/log"

# A program and a library in a tree of their own, with the measurer that is given.
place=$work/tree/libexec/kiln/kiln-measure
mkdir -p "$work/tree/bin" "$work/tree/lib" "$work/tree/libexec/kiln"
cp "$build/bin/kiln" "$work/tree/bin/kiln"
cp "$build"/lib/libkiln.so.0 "$work/tree/lib/libkiln.so.0"
put() { rm -f "$place" && cp "$1" "$place"; }
real=$build/libexec/kiln/kiln-measure
invented=tests/data/measurer
kiln=$work/tree/bin/kiln

problem="--dtype bf16 --head-dim 256 --no-causal --batch 1 --seqlen-q 1024 --num-heads 8"
journal="$work/journal"
tune="tune $problem --strategy exhaustive --records $journal"
value() { grep -o "\"$1\": *[^,{}]*" "$work/stdout" | head -1 | sed 's/.*: *//'; }
logged() { grep -c "^$1" "$work/log"; }
of_journal() { grep -c "$1" "$journal"; }
fresh() { rm -f "$journal" "$work/log" && touch "$work/log"; }

# ---- a program that is well ----
fresh
put $invented
# shellcheck disable=SC2086 # lists of flags
works $tune --json
json arch tile default_tile time_us default_us legal known measured samples complete simulated
holds "every tile is known" [ "$(value known)" = "$(value legal)" ]
holds "the fastest is chosen" grep -q '"tile":{"block_m":128,"block_n":80,' "$work/stdout"
holds "by a time of the measurer" grep -q '"time_us":100\.4' "$work/stdout"
holds "every record says where" \
  [ "$(of_journal '"name":"stub H200"')" = "$(wc -l <"$journal")" ]
# shellcheck disable=SC2086
works $tune --json
holds "a finished tuning starts no measurer" [ "$(logged start)" = 1 ]
holds "it comes from the records" [ "$(value from_records)" = true ]
# A tile that the records do not know, as after a change of the search space.
grep -v '"kind":"choice"' "$journal" |
  grep -v '"block_m":128,"block_n":48,"num_stages":3' >"$work/fewer"
holds "one is forgotten" [ "$(grep -o '"tile":{[^}]*}' "$work/fewer" | sort -u | wc -l)" = \
  $(($(value legal) - 1)) ]
mv "$work/fewer" "$journal"
# shellcheck disable=SC2086
works $tune --json
holds "it alone is measured: $(value measured)" \
  [ "$(value measured) $(value known)" = "1 $(value legal)" ]

fresh
# shellcheck disable=SC2086
KILN_CACHE_DIR=$work/new/cache works tune $problem
holds "a new machine has records afterwards" [ -s "$work/new/cache/tuning.jsonl" ]
holds "for its user alone" [ "$(stat -c %a "$work/new/cache")" = 700 ]

# ---- where it is found ----
cc -std=c11 -Wall -Wextra -Werror -Iinclude tests/data/tuner.c -o "$work/engine" \
  "$work/tree/lib/libkiln.so.0" "-Wl,-rpath,$work/tree/lib" || fail "the engine does not build"
KILN_RECORDS=$work/engine.jsonl "$work/engine" >"$work/said"
holds "the library finds it: $(cat "$work/said")" [ "$(cat "$work/said")" = 128x80 ]
rm "$place"
fresh
missing="$work/tree/lib/../libexec/kiln/kiln-measure, which compiles and times kernels in a \
process of its own, cannot be started (No such file or directory): install the whole of Kiln"
rm "$work/engine.jsonl"
PATH=$build/libexec/kiln:$PATH KILN_RECORDS=$work/engine.jsonl "$work/engine" >"$work/said"
holds "the library says what is missing: $(cat "$work/said")" \
  [ "$(cat "$work/said")" = "UNSUPPORTED: $missing" ]
# shellcheck disable=SC2086
PATH=$build/libexec/kiln:$PATH refuses 2 "${missing/lib\//bin\/}" $tune

# ---- what a hang costs ----
put $invented
fresh
# shellcheck disable=SC2086
MEASURER=sample-hang:128x48x3 works $tune --json
holds "one candidate" [ "$(value failed)" = 1 ]
holds "that is remembered" grep -q '"outcome":"hang","reason":"no answer within 10 s"' "$journal"
holds "the others are known" [ "$(value known)" = "$(value legal)" ]
holds "by a second process" [ "$(logged start)" = 2 ]

# ---- a tuner that is killed (T6) ----
fresh
# shellcheck disable=SC2086
MEASURER_PAUSE=0.02 "$kiln" $tune >"$work/stdout" 2>&1 &
tuner=$!
for _ in $(seq 200); do
  [ -e "$journal" ] && [ "$(of_journal candidate)" -ge 9 ] && break
  sleep 0.1
done
kill -9 $tuner
wait $tuner 2>/dev/null
known=$(of_journal '"kind":"candidate"')
holds "it was killed in the middle: $known candidates" [ "$known" -ge 9 ]
holds "before it had chosen" [ "$(of_journal '"kind":"choice"')" = 0 ]
sleep 0.5
holds "its measurer ends too" [ -z "$(pgrep -f "$work/tree.*kiln-measure")" ]
head -c -100 "$journal" >"$work/torn" && mv "$work/torn" "$journal" # as if killed while writing
: >"$work/log"
# shellcheck disable=SC2086
works $tune --json
holds "the next one finishes" [ "$(value complete)" = true ]
holds "with every tile" [ "$(value known)" = "$(value legal)" ]
holds "without those that are known: $(value measured)" \
  [ "$(value measured)" -le $(($(value legal) - known + 1 + 7)) ]

# ---- many at once ----
fresh
for i in 1 2 3 4 5 6 7 8; do
  # shellcheck disable=SC2086
  "$kiln" $tune --json >"$work/many.$i" 2>&1 &
done
wait
holds "one of eight measures" [ "$(logged start)" = 1 ]
holds "each tile once" [ "$(of_journal '"kind":"choice"')" = 1 ]
holds "the others read" [ "$(cat "$work"/many.* | grep -c '"from_records":true')" = 7 ]
holds "and choose the same" [ "$(grep -ho '"tile":{[^}]*}' "$work"/many.* | sort -u | wc -l)" = 1 ]

# ---- the real one ----
put "$real"
fresh
# shellcheck disable=SC2086
try $tune
holds "a wrong kernel is never timed" grep -q "the default tile could not be timed (wrong_result: \
F7 (113 queries and keys): elements of o were not written)" "$work/stderr"
holds "nor chosen" [ "$rc" = 15 ]
holds "nothing is published" [ ! -e "$KILN_CACHE_DIR/kernels" ]
holds "no time is kept" [ "$(of_journal '"outcome":"timed"')" = 0 ]

# The forward pass that gradients are made of is neither tuned, which would wait for the tuning that
# waits for it, nor recorded.
fresh
# shellcheck disable=SC2086
STUB_LOG=/dev/null KILN_TUNE=measure KILN_RECORDS=$journal KILN_RECORD=$work/problems \
  try explain $problem --pass backward
holds "gradients are proved: $(head -c 400 "$work/stderr")" grep -q "could not be timed \
(wrong_result: F7 (113 queries and keys): elements of o were not written)" "$work/stderr"
holds "the run's problem is the one: $(cat "$work/problems")" \
  [ "$(grep -c . "$work/problems") $(grep -c '"pass":"backward"' "$work/problems")" = "1 1" ]
export STUB_ONLY=kiln-measure
fresh
# shellcheck disable=SC2086
STUB_FAIL="cuDevicePrimaryCtxRetain 46" refuses 8 "kiln-measure cannot measure: a second process \
cannot use the device (the device cannot be opened: a stub's error (CUDA_ERROR_STUB)); set its \
compute mode to default, or give it another device" $tune
# shellcheck disable=SC2086
STUB_FAIL="cuMemAlloc_v2 2" try $tune
holds "no memory is named: $(cat "$work/stderr")" grep -q "kiln-measure cannot measure: the device \
has no .* GB left for the tensors of this shape" "$work/stderr"
holds "by its status" [ "$rc" = 3 ]
fresh
# shellcheck disable=SC2086
STUB_FAIL="cuStreamSynchronize 719" try $tune
holds "a fault is one: $(cat "$work/stderr")" \
  grep -q "could not be timed (hang: F7 .*LAUNCH_FAILED" "$work/stderr"

# A launch that does not end ends with the tuner.
fresh
# shellcheck disable=SC2086
STUB_HANG=cuStreamSynchronize "$kiln" $tune >"$work/stdout" 2>&1 &
tuner=$!
measurer=""
for _ in $(seq 100); do
  measurer=$(pgrep -P $tuner -f kiln-measure) && break
  sleep 0.1
done
sleep 2
holds "the measurer hangs" [ -e "/proc/${measurer:-none}" ]
kill -9 $tuner
wait $tuner 2>/dev/null
for _ in $(seq 50); do
  [ -e "/proc/$measurer" ] || break
  sleep 0.1
done
holds "it ends" [ ! -e "/proc/$measurer" ]

finish
