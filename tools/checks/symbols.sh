#!/usr/bin/env bash
# tools/checks/symbols.sh BUILD: the shared libraries need libc alone, export kiln_* alone and
# hold no path of this machine.
# A library that carries Lua, jansson or libsodium must neither ask for them nor show them.
set -u
build=${1:-build}
build_path=$(cd "$build" && pwd)
passed=0 failed=0

# judge WHAT FAULTS: the rule holds when no fault was found.
judge() {
  if [ -z "$2" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "$1:"
    sed 's/^/  /' <<<"$2"
  fi
}

for library in "$build"/lib/libkiln.so "$build"/lib/libkiln_rt.so; do
  if ! needed=$(readelf -d "$library") || ! undefined=$(nm -D --undefined-only "$library") ||
     ! defined=$(nm -D --defined-only "$library") || ! program=$(readelf -lW "$library"); then
    judge "$library" "cannot be read: build it first"
    continue
  fi
  judge "$library needs more than libc" "$(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$needed" |
    grep -vE '^(libc|libm|libdl|libpthread|ld-linux-x86-64)\.so\.[0-9]+$')"
  # Weak names without a version are the compiler's own start-up hooks.
  judge "$library asks for symbols outside libc" "$(awk '{ print $(NF-1), $NF }' <<<"$undefined" |
    grep -vE '^(U|w) [A-Za-z0-9_]+@GLIBC_[0-9.]+$' |
    grep -vE '^w (_ITM_(de)?registerTMCloneTable|__gmon_start__)$')"
  judge "$library exports more than kiln_*" "$(awk '{ print $NF }' <<<"$defined" |
    grep -vE '^(kiln_[a-z0-9][a-z0-9_]*(@@KILN_0)?|KILN_0)$')"
  judge "$library exports nothing" "$(grep -qE ' T kiln_' <<<"$defined" || echo none)"
  judge "$library has text relocations" "$(grep TEXTREL <<<"$needed")"
  judge "$library holds a path of this machine" \
    "$(grep -aoF -e "$build_path" -e "$PWD/" "$library" | sort -u)"
  judge "$library has an executable stack" "$(grep -E 'GNU_STACK.* RWE ' <<<"$program")"
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
