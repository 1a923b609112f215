#!/usr/bin/env bash
# tools/checks/sanitize.sh: builds everything with AddressSanitizer and UBSan, assertions on, in
# build-sanitize/, and runs the unit tests there. The last line is check's own.
set -eu
cd "$(dirname "$0")/../.."
. tools/env.sh
cmake -S . -B build-sanitize -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g" \
  -DKILN_SANITIZE=address,undefined -DKILN_WERROR=ON >/dev/null
cmake --build build-sanitize -j "$(nproc)" >/dev/null
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1
export LSAN_OPTIONS=suppressions=tools/checks/leaks.txt:print_suppressions=0
build-sanitize/tests/kiln_unit
