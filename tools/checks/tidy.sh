#!/usr/bin/env bash
# tools/checks/tidy.sh BUILD: clang-tidy over every C file of the compile database.
set -u
build=${1:-build}
cd "$(dirname "$0")/../.."
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT

# It must object to a planted fault, or its silence below means nothing.
echo 'int f(int x); int f(int x) { if (x == x) return 1; return 0; }' >"$log/planted.c"
if clang-tidy --quiet --config-file=.clang-tidy "$log/planted.c" -- >/dev/null 2>&1; then
  echo "clang-tidy accepts a planted fault"
  echo "0 passed, 1 failed"
  exit 1
fi

# One process a file, two at a time; each leaves its output behind when it found something.
export build log
# shellcheck disable=SC2016 # expanded by the inner shell
git ls-files '*.c' ':!tests' ':!*.tmpl.c' | xargs -P 2 -I{} bash -c '
  name=$log/$(tr / . <<<"{}")
  clang-tidy --quiet -p "$build" "{}" >"$name.out" 2>&1 && rm "$name.out"; touch "$name.done"'
cat "$log"/*.out 2>/dev/null | grep -vE '^[0-9]+ warnings? (generated|treated)'
files=$(find "$log" -name '*.done' | wc -l) failed=$(find "$log" -name '*.out' | wc -l)
echo "$((files - failed)) passed, $failed failed"
[ "$failed" = 0 ]
