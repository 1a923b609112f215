#!/usr/bin/env bash
# tools/checks/format.sh: every C file but templates is as clang-format leaves it; `make format`
# repairs.
set -u
cd "$(dirname "$0")/../.."
passed=0 failed=0

# The formatter must object to a badly formatted line, or its silence below means nothing.
if printf 'int  x ;\n' | clang-format --dry-run -Werror --assume-filename=x.c 2>/dev/null; then
  echo "clang-format accepts a badly formatted line"
  failed=1
fi
while read -r file; do
  if clang-format --dry-run -Werror "$file" 2>/dev/null; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "$file: format: run clang-format -i on it"
  fi
done < <(git ls-files '*.c' '*.h' ':!*.tmpl.c')
echo "$passed passed, $failed failed"
[ $failed = 0 ]
