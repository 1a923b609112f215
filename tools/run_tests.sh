#!/usr/bin/env bash
# tools/run_tests.sh LEVEL [NAME...]: runs the suites of tests/suites.txt and sums what they say.
# LEVEL is quick, check or full; each holds the ones before it. With NAMEs, only those suites.
#   BUILD   build directory (default: build)
# A suite reports by check's own line, `N%: Checks: N, Failures: N, Errors: N`, or by
# `N passed, N failed[, N skipped]` alone on a line. One that ends badly, runs past its budget, or
# reports no test at all counts as a failure whatever else it printed. The last line is the sum.
set -u
cd "$(dirname "$0")/.."
level=${1:-check}
[ $# -eq 0 ] || shift
export BUILD=${BUILD:-build}
. tools/env.sh

case $level in
quick) levels=" quick " ;;
check) levels=" quick check " ;;
full) levels=" quick check full " ;;
*) echo "run_tests: the level is quick, check or full, not $level" >&2; exit 2 ;;
esac

log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0 table=""

# Sets suite_passed, suite_failed, suite_skipped from the report lines of $log.
read_report() {
  read -r suite_passed suite_failed suite_skipped < <(awk '
    /^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+$/ {
      gsub(/[^0-9 ]/, ""); p += $2 - $3 - $4; f += $3 + $4 }
    /^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/ { p += $1; f += $3; s += $5 }
    END { print p + 0, f + 0, s + 0 }' "$log")
}

# run_suite NAME BUDGET COMMAND
run_suite() {
  local name=$1 budget=$2 command=$3 start=$SECONDS why="" rc
  echo "== $name: $command (budget ${budget} s)"
  timeout --kill-after=10 "$budget" bash -c "$command" </dev/null 2>&1 | tee "$log"
  rc=${PIPESTATUS[0]}
  read_report
  if [ "$rc" = 124 ] || [ "$rc" = 137 ]; then
    why="ran past its budget of $budget s"
  elif [ "$rc" != 0 ] && [ "$suite_failed" = 0 ]; then
    why="ended with exit code $rc"
  elif [ $((suite_passed + suite_failed + suite_skipped)) = 0 ]; then
    why="reported no test"
  fi
  [ -z "$why" ] || { suite_failed=$((suite_failed + 1)); echo "$name: $why"; }
  passed=$((passed + suite_passed)) failed=$((failed + suite_failed))
  skipped=$((skipped + suite_skipped))
  table+=$(printf '%-12s %6d passed %4d failed %4d skipped %5d s of %5d s  %s' "$name" \
    "$suite_passed" "$suite_failed" "$suite_skipped" $((SECONDS - start)) "$budget" "$why")$'\n'
}

count=0
while read -r suite_level budget name command; do
  case $suite_level in '' | '#'*) continue ;; esac
  if [ $# -gt 0 ]; then
    case " $* " in *" $name "*) ;; *) continue ;; esac
  else
    case "$levels" in *" $suite_level "*) ;; *) continue ;; esac
  fi
  count=$((count + 1))
  run_suite "$name" "$budget" "$command"
done <tests/suites.txt
if [ $count = 0 ]; then
  echo "run_tests: no suite of that name in tests/suites.txt" >&2
  exit 2
fi

printf '\n%s' "$table"
if [ $skipped = 0 ]; then
  echo "$passed passed, $failed failed"
else
  echo "$passed passed, $failed failed, $skipped skipped"
fi
[ $failed = 0 ]
