#!/usr/bin/env bash
# The Python binding, where there is a Python: bindings.py.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
. tools/env.sh
build=$(cd "${BUILD:-build}" && pwd)
if command -v python3 >/dev/null; then
  KILN_LIBRARY=$build/lib/libkiln.so python3 tests/cli/bindings.py >"$work/stdout"
  holds "the binding ends with $?" [ $? = 0 ]
  holds "21 refusals: $(cat "$work/stdout")" grep -q '^21 passed, 0 failed$' "$work/stdout"
else
  skip 2 "there is no python3"
fi

finish
