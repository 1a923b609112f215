#!/usr/bin/env bash
# The launcher that `kiln compile -o` writes: it builds without a warning, alone, and asks the
# driver for what libkiln asks, call by call, byte by byte; what libkiln refuses it refuses.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
. tools/env.sh
build=$(cd "${BUILD:-build}" && pwd)
maps="128 128 128 128 " args=192 # bytes of the parameters: sizes of docs/record.md

# arch, algorithm, dtype, head_dim, head_dim_v, mask, names begin with, parameters
while read -r arch algorithm dtype head_dim head_dim_v mask prefix params; do
  name="$arch $algorithm $dtype $head_dim/$head_dim_v $mask"
  rm -rf "$work/out"
  works compile --arch "$arch" --algorithm "$algorithm" --dtype "$dtype" --head-dim "$head_dim" \
    --head-dim-v "$head_dim_v" --mask "$mask" -o "$work/out"
  launcher=$(echo "$work"/out/*.launcher.c) cubin=$(echo "$work"/out/*.cubin)
  holds "$name: the launcher builds alone" cc -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 \
    -c "$launcher" -o "$work/alone.o"
  holds "$name: it shows its own names" [ -z "$(nm --defined-only "$work/alone.o" |
    awk '$2 == "T" { print $3 }' | grep -v "^${prefix}_\(open\|run\|workspace\|close\)$")" ]
  others=$(nm --undefined-only "$work/alone.o" | awk '{ print $2 }' |
    grep -vE '^(dlopen|dlsym|dlclose|calloc|free|memset|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail)$')
  holds "$name: it needs $others" [ -z "$others" ]
  holds "$name: the program builds" cc -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude \
    "-DPREFIX=$prefix" "-DLAUNCHER=\"$launcher\"" tests/data/launcher/main.c \
    -L"$build/lib" -lkiln "-Wl,-rpath,$build/lib" -o "$work/main"
  export STUB_PARAMS="${params//maps/$maps}"
  STUB_PARAMS="${STUB_PARAMS//args/$args}" STUB_H200=1 LD_LIBRARY_PATH="$build/tests/stub"
  export STUB_H200 LD_LIBRARY_PATH
  STUB_LOG="$work/by_launcher" "$work/main" launcher "$cubin"
  holds "$name: the launcher ends with $?" [ $? = 0 ]
  STUB_LOG="$work/by_library" "$work/main" library "$arch" "$algorithm" "$dtype" "$head_dim" \
    "$head_dim_v" "$mask"
  holds "$name: six launches or more" [ "$(grep -c '^launch' "$work/by_library")" -ge 6 ]
  holds "$name: $(diff "$work/by_library" "$work/by_launcher" | head -n 4 | cut -c1-200)" \
    cmp -s "$work/by_library" "$work/by_launcher"
  unset LD_LIBRARY_PATH STUB_H200 STUB_PARAMS
done <<'ROWS'
sm_90a flash bf16 128 128 causal kiln_flash_sm_90a_bf16_128_causal maps args
sm_90a flash fp16 40 24 none kiln_flash_sm_90a_fp16_40_24 maps args
sm_90 flash bf16 64 64 none kiln_flash_sm_90_bf16_64 args
sm_90 standard fp16 64 64 causal kiln_standard_sm_90_fp16_64_causal args
ROWS

finish
