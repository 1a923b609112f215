#!/usr/bin/env bash
# tools/checks/sanitize.sh: builds everything with AddressSanitizer and UBSan, assertions on, in
# build-sanitize/, and runs the unit tests there, two suites at a time: a test is a process, and
# such a process is slow to begin. Then once more with ThreadSanitizer, in build-sanitize-thread/,
# the suites whose tests have threads. Each suite ends with check's own line.
set -eu
cd "$(dirname "$0")/../.."
. tools/env.sh
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=tools/checks/leaks.txt:print_suppressions=0
export TSAN_OPTIONS=halt_on_error=1

# build FOLDER SANITIZERS TARGET
build() {
  cmake -S . -B "$1" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g" \
    -DKILN_SANITIZE="$2" -DKILN_WERROR=ON >/dev/null
  cmake --build "$1" -j "$(nproc)" --target "$3" >/dev/null
}

# run SUITE... from stdin with the kiln_unit of folder $1; $2: what stands before the command
run() {
  export unit="$2 $1/tests/kiln_unit"
  # shellcheck disable=SC2016 # expanded by the inner shell
  xargs -P 2 -I{} sh -c '
    log=$(mktemp) rc=0
    CK_RUN_SUITE={} $unit >"$log" 2>&1 || rc=$?
    cat "$log" && rm "$log" && exit $rc'
}

suites=$(sed -n 's/^  X(\([a-z_]*\)).*/\1/p' tests/unit/suites.h)
[ "$(wc -w <<<"$suites")" -ge 30 ] # or the list was not understood
build build-sanitize address,undefined all
run build-sanitize "" <<<"$suites"

threaded=$(grep -l pthread_create tests/unit/test_*.c | sed 's/.*test_\(.*\)\.c/\1/')
[ "$(wc -w <<<"$threaded")" -ge 2 ]
build build-sanitize-thread thread kiln_unit
# Addresses as random as some kernels make them are more than ThreadSanitizer's shadow has room for.
fixed=$(setarch -R true 2>/dev/null && echo "setarch -R" || true)
run build-sanitize-thread "$fixed" <<<"$threaded"
