#!/usr/bin/env bash
# tests/gpu/production.sh PREFIX OUT: what a production machine runs, on the GPU at hand: a pack, an
# engine of examples/ and its first result in time, what it opens and writes, and the launcher of
# one kernel beside libkiln. PREFIX is an installed Kiln (bin, lib, include); OUT gets the logs.
# Needs cc. Ends with `N passed, N failed`.
#   STRACE   a strace to look with (default: the one on the PATH, else that part is skipped)
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
prefix=$(cd "$1" && pwd) out=$2
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export KILN_CACHE_DIR=$work/cache LD_LIBRARY_PATH=$prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
passed=0 failed=0
holds() {
  local name=$1
  shift
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED: $name"; fi
}
is_at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a <= b) }'; }

pack=$work/attention.pack
"$prefix/bin/kiln" pack build --arch sm_90a --dtype bf16 --head-dim 64,128,256 \
  --algorithm flash -o "$pack" >"$out/pack.log" 2>&1
holds "a pack is built" [ -s "$pack" ]
build() { cc -O2 -w "-I$here/include" "$@" "-L$prefix/lib" "-Wl,-rpath,$prefix/lib" -ldl; }
holds "engine builds" build "$here/examples/engine/main.c" -o "$work/engine" -lkiln_rt
holds "production builds" build "$here/bench/production.c" -o "$work/production" -lkiln_rt
export KILN_CACHE_DIR=$work/none

"$work/engine" "$pack" >"$out/engine.log" 2>&1
holds "the engine runs: $(head -c 300 "$out/engine.log")" grep -q "^o begins with" "$out/engine.log"
for turn in 1 2 3; do
  "$work/production" "$pack" 128 causal >"$out/production-$turn.log" 2>&1
  ms=$(sed -n 's/^all of Kiln *\([0-9.]*\) ms$/\1/p' "$out/production-$turn.log")
  holds "start to first result in $ms ms, at most 50" is_at_most "$ms" 50
done
holds "no cache is made" [ ! -e "$work/none" ]

strace=${STRACE:-$(command -v strace)}
if [ -n "$strace" ] && $strace -o /dev/null true 2>"$out/strace.log"; then
  $strace -f -o "$out/calls" "$work/engine" "$pack" >/dev/null 2>>"$out/strace.log"
  holds "is one program" [ "$(grep -c ' execve(' "$out/calls")" = 1 ]
  # Everything that was opened to write, but for the driver's own devices.
  written=$(grep -E 'open(at)?\(.*O_(WRONLY|RDWR|CREAT).* = [0-9]+$' "$out/calls" |
    grep -vE '"/(dev|proc)/' | head -n 5)
  holds "opens to write: $written" [ -z "$written" ]
  ours=$(grep -E 'open(at)?\(.* = [0-9]+$' "$out/calls" | grep -c kiln)
  holds "opens of Kiln's files: $ours, its library" [ "$ours" -le 2 ]
  holds "opens the pack once" [ "$(grep -c 'open.*attention.pack' "$out/calls")" = 1 ]
else
  echo "skipped: there is no strace that may look"
fi

export KILN_CACHE_DIR=$work/cache
"$prefix/bin/kiln" compile --arch sm_90a --dtype bf16 --head-dim 128 --mask causal \
  -o "$work/one" >"$out/compile.log" 2>&1
launcher=$(echo "$work"/one/*.launcher.c) cubin=$(echo "$work"/one/*.cubin)
holds "the launcher builds" build -DPREFIX=kiln_flash_sm_90a_bf16_128_causal \
  "-DLAUNCHER=\"$launcher\"" "$here/tests/gpu/launcher.c" -o "$work/launcher" -lkiln
"$work/launcher" "$cubin" >"$out/launcher.log" 2>&1
holds "launcher and library agree: $(cat "$out/launcher.log")" \
  grep -qE '^[1-9][0-9]* passed, 0 failed$' "$out/launcher.log"
cat "$out"/production-2.log "$out/launcher.log"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
