#!/usr/bin/env bash
# tools/fuzz.sh TARGET|all SECONDS: builds the fuzz targets of tests/fuzz/ with clang, ASan and
# UBSan, runs each over its committed corpus, and then fuzzes it for that many seconds.
# tools/fuzz.sh TARGET|all merge: puts into the committed corpus the least of what earlier runs
# found that reaches all the code they reached; look at the new files before you commit them.
#   FUZZ_BUILD   build directory (default: build-fuzz): finds in its corpus/, findings in its found/
# A finding is a failure, and its input is named; it goes into tests/fuzz/corpus/TARGET/ with the
# repair.
set -u
cd "$(dirname "$0")/.."
build=${FUZZ_BUILD:-build-fuzz}
targets=$(cd tests/fuzz && ls *.c | sed 's/\.c$//; /^fuzz$/d' | xargs)
usage() {
  echo "usage: tools/fuzz.sh TARGET|all SECONDS, or TARGET merge; targets: $targets" >&2
  exit 2
}
[ $# = 2 ] || usage
[ "$1" = all ] || case " $targets " in *" $1 "*) targets=$1 ;; *) usage ;; esac
case $2 in merge) ;; '' | *[!0-9]*) usage ;; esac

cmake -S . -B "$build" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_C_FLAGS_DEBUG="-O1 -g" -DKILN_SANITIZE=fuzzer-no-link,address,undefined -DKILN_FUZZ=ON \
  >"$build.log" 2>&1 &&
  cmake --build "$build" -j "$(nproc)" --target kiln_fuzz >>"$build.log" 2>&1 || {
  tail -20 "$build.log" >&2
  exit 1
}
rm -f "$build.log"
export UBSAN_OPTIONS=print_stacktrace=1

passed=0 failed=0
for target in $targets; do
  seeds=tests/fuzz/corpus/$target work=$build/corpus/$target found=$build/found/$target
  mkdir -p "$seeds" "$work" "$found"
  flags=(-timeout=20 -rss_limit_mb=2048 -max_len=16384 -artifact_prefix="$found/"
    -print_final_stats=1)
  [ ! -e "tests/fuzz/$target.dict" ] || flags+=(-dict="tests/fuzz/$target.dict")
  if [ "$2" = merge ]; then
    least=$build/merged/$target
    rm -rf "$least" && mkdir -p "$least"
    "$build/fuzz/fuzz_$target" "${flags[@]}" -set_cover_merge=1 -use_counters=0 "$least" "$seeds" \
      "$work" >"$build/merge.log" 2>&1 || failed=1
    cp -n "$least"/* "$seeds/"
    continue
  fi
  log=$found/log
  if "$build/fuzz/fuzz_$target" "${flags[@]}" -runs=0 "$seeds" >"$log" 2>&1 &&
     "$build/fuzz/fuzz_$target" "${flags[@]}" -max_total_time="$2" "$work" "$seeds" >"$log" 2>&1
  then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    grep -E '^(==|SUMMARY|.*runtime error|artifact_prefix)|Test unit written' "$log" | head -20
  fi
  echo "$target: $(ls "$seeds" | wc -l) seeds, $(sed -n 's/.*DONE *\(cov: [0-9]*\).*/\1/p' "$log" |
    tail -1), $(awk '/number_of_executed_units/ { n = $2 } /average_exec_per_sec/ { r = $2 }
      END { print n + 0 " runs, " r + 0 " a second" }' "$log")"
done
[ "$2" = merge ] || echo "$passed passed, $failed failed"
[ $failed = 0 ]
