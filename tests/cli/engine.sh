#!/usr/bin/env bash
# examples/engine as a user builds it: from an installed Kiln, with its pack, on a stub driver. The
# pack is built once, again when the selection changes, and at no other time.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
. tools/env.sh
build=$(cd "${BUILD:-build}" && pwd)
holds "installs" cmake --install "$build" --prefix "$work/kiln" >"$work/log" 2>&1

configure() { cmake -S examples/engine -B "$work/engine" "-DCMAKE_PREFIX_PATH=$work/kiln" "$@"; }
holds "configures" configure >"$work/log" 2>&1
holds "builds" cmake --build "$work/engine" >"$work/log" 2>&1
pack=$work/engine/attention.pack
holds "the pack is right" "$kiln" pack verify "$pack" >/dev/null
sum() { sha256sum "$pack" | cut -d' ' -f1; }
first=$(sum) made=$(stat -c %y "$pack")
cmake --build "$work/engine" >"$work/log" 2>&1
holds "nothing is built again" [ "$(stat -c %y "$pack")" = "$made" ]
configure >/dev/null 2>&1
cmake --build "$work/engine" >"$work/log" 2>&1
holds "nor after configuring again" [ "$(stat -c %y "$pack")" = "$made" ]
touch "$work/kiln/bin/kiln"
cmake --build "$work/engine" >"$work/log" 2>&1
holds "a new program builds it again" [ "$(stat -c %y "$pack")" != "$made" ]
holds "with the same bytes" [ "$(sum)" = "$first" ]

# On a device that is none: what reaches the driver, and what the program says.
export LD_LIBRARY_PATH=$build/tests/stub STUB_H200=1 KILN_CACHE_DIR=$work/none STUB_LOG=$work/calls
says=$("$work/engine/engine" "$pack")
holds "the engine says: $says" grep -q "^kernel [0-9a-f]\{12\}: .*attention.pack" <<<"$says"
holds "one launch" [ "$(grep -c '^launch kiln_forward' "$work/calls")" = 1 ]
holds "no cache is made" [ ! -e "$work/none" ]
unset STUB_LOG

# What the process opens, writes and starts: libraries, the driver, the pack, its own output.
if can_trace; then
  strace -f -o "$work/calls" "$work/engine/engine" "$pack" >/dev/null
  opened=$(sed -n 's/.*open\(at\)\{0,1\}(.*"\(.*\)".* = [0-9]*$/\2/p' "$work/calls" |
    grep -vE '/(ld\.so\.cache|lib(c|m|kiln_rt)\.so\.[0-9]+|libcuda\.so\.1)$')
  holds "opens besides libraries and the driver: $opened" [ "$opened" = "$pack" ]
  others=$(grep -E ' (creat|unlink|rename|mkdir|connect|socket|fork|vfork|clone3?)(at)?\(' \
    "$work/calls")
  holds "writes or starts: $others" [ -z "$others" ]
  holds "is one process" [ "$(grep -c ' execve(' "$work/calls")" = 1 ]
  files=$(grep ' write(' "$work/calls" | grep -vc ' write(1, ')
  holds "writes to files $files times" [ "$files" = 0 ]
else
  skip 4 "strace is not allowed to look"
fi
says=$("$work/engine/engine" "$work/missing.pack" 2>&1)
holds "a missing pack is named: $says" grep -qF "$work/missing.pack" <<<"$says"

# Without a kernel for this device.
configure -DENGINE_ARCHS=sm_80 >/dev/null 2>&1
LD_LIBRARY_PATH='' cmake --build "$work/engine" >"$work/log" 2>&1
holds "another selection is another pack" [ "$(sum)" != "$first" ]
says=$("$work/engine/engine" "$pack" 2>&1)
rc=$?
holds "the missing kernel is named: $rc $says" grep -qF "kiln pack build --arch sm_90a" <<<"$says"
holds "MISSING_KERNEL is 13, not $rc" [ $rc = 13 ]

finish
