# Sourced by the tests of the command line, from the root of the checkout: runs the program and
# compares exit code, stdout and stderr. $BUILD names the build directory.
kiln=$(cd "${BUILD:-build}" && pwd)/bin/kiln
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/cache"
export KILN_CACHE_DIR="$work/cache"
passed=0 failed=0 skipped=0

pass() { passed=$((passed + 1)); }
fail() {
  failed=$((failed + 1))
  echo "FAILED: $1" >&2
}

# Runs the program; leaves $rc, $work/stdout and $work/stderr.
try() {
  rc=0
  "$kiln" "$@" >"$work/stdout" 2>"$work/stderr" </dev/null || rc=$?
}

# refuses CODE SENTENCE ARGUMENT...: that exit code, that sentence on stderr, nothing on stdout.
refuses() {
  local code=$1 sentence=$2
  shift 2
  try "$@"
  if [ "$rc" = "$code" ] && [ ! -s "$work/stdout" ] &&
     [ "$(cat "$work/stderr")" = "kiln: $sentence" ]; then
    pass
  else
    fail "kiln $* ended with $rc for $code and said: $(head -c 400 "$work/stderr")"
  fi
}

# works ARGUMENT...: exit code 0 and no word on stderr.
works() {
  try "$@"
  if [ "$rc" = 0 ] && [ ! -s "$work/stderr" ]; then
    pass
  else
    fail "kiln $* ended with $rc and said: $(head -c 400 "$work/stderr")"
  fi
}

# holds WHAT COMMAND...: the command succeeds.
holds() {
  local what=$1
  shift
  if "$@"; then pass; else fail "$what"; fi
}

# json KEY...: every line of stdout is one JSON object with these keys, and there is one at least.
json() { holds "stdout is no JSON with $*" lua5.4 tests/cli/json.lua "$work/stdout" "$@"; }

# skip COUNT WHY: checks that this machine cannot make; they are in the sum.
skip() {
  skipped=$((skipped + $1))
  echo "SKIPPED $1: $2" >&2
}

# A container may forbid what strace does.
can_trace() { strace -o /dev/null true 2>/dev/null; }

finish() {
  echo "$passed passed, $failed failed$([ "$skipped" = 0 ] || echo ", $skipped skipped")"
  [ "$failed" = 0 ]
}
