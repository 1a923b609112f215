#!/usr/bin/env bash
# tools/checks/sanitize.sh: builds everything with AddressSanitizer and UBSan, assertions on, in
# build-sanitize/, and runs the unit tests there, two suites at a time: a test is a process, and
# such a process is slow to begin. Each suite ends with check's own line.
set -eu
cd "$(dirname "$0")/../.."
. tools/env.sh
cmake -S . -B build-sanitize -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g" \
  -DKILN_SANITIZE=address,undefined -DKILN_WERROR=ON >/dev/null
cmake --build build-sanitize -j "$(nproc)" >/dev/null
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=tools/checks/leaks.txt:print_suppressions=0
suites=$(sed -n 's/^  X(\([a-z_]*\)).*/\1/p' tests/unit/suites.h)
[ "$(wc -w <<<"$suites")" -ge 30 ] # or the list was not understood
# shellcheck disable=SC2016 # expanded by the inner shell
xargs -P 2 -I{} sh -c '
  log=$(mktemp) rc=0
  CK_RUN_SUITE={} build-sanitize/tests/kiln_unit >"$log" 2>&1 || rc=$?
  cat "$log" && rm "$log" && exit $rc' <<<"$suites"
