#!/usr/bin/env bash
# tests/golden/run.sh [update]: renders the kernels of cases.txt with the built program and compares
# them, byte for byte, with the files kept here. With `update` it accepts what is rendered: read the
# diff before you commit it. A file that no row names is a fault. Ends with `N passed, N failed`.
#   BUILD   build directory (default: build)
set -u
cd "$(dirname "$0")/../.."
kiln=${BUILD:-build}/bin/kiln
folder=tests/golden
verb=${1:-compare}
case $verb in
compare | update) ;;
*) echo "golden: the argument is update or nothing, not $verb" >&2; exit 2 ;;
esac
rendered=$(mktemp -d)
trap 'rm -rf "$rendered"' EXIT
passed=0 failed=0

# judge NAME FAULT: the case holds when there is no fault.
judge() {
  if [ -z "$2" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "$1: $2"
  fi
}

while read -r name flags; do
  case $name in '' | '#'*) continue ;; esac
  # shellcheck disable=SC2086 # flags are words
  if ! "$kiln" generate $flags -o "$rendered/$name.cu" >"$rendered/log" 2>&1; then
    judge "$name" "kiln generate $flags: $(cat "$rendered/log")"
    continue
  fi
  [ "$verb" = compare ] || cp "$rendered/$name.cu" "$folder/$name.cu"
  if difference=$(diff -u "$folder/$name.cu" "$rendered/$name.cu" 2>&1); then
    judge "$name" ""
  else
    judge "$name" "differs; if it is meant, run tests/golden/run.sh update"
    head -40 <<<"$difference"
  fi
done <$folder/cases.txt

for file in "$folder"/*.cu; do
  [ -e "$file" ] || continue
  name=$(basename "$file" .cu)
  grep -q "^$name " $folder/cases.txt || judge "$file" "no row of cases.txt names it: remove it"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
