#!/usr/bin/env bash
# The launcher that `kiln compile -o` writes: it builds without a warning, alone, and asks the
# driver for what libkiln asks, call by call, byte by byte; what libkiln refuses it refuses.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
. tools/env.sh
build=$(cd "${BUILD:-build}" && pwd)
# Bytes of the parameters: sizes of docs/record.md
maps="128 128 128 128 " args=192 backward_args=352

# arch, algorithm, dtype, head_dim, head_dim_v, mask, pass, deterministic, has maps; names end with
while read -r arch algorithm dtype head_dim head_dim_v mask pass deterministic has_maps ending; do
  name="$arch $algorithm $dtype $head_dim/$head_dim_v $mask $pass $deterministic"
  rm -rf "$work/out"
  order=--no-deterministic prefix=kiln_$algorithm
  [ "$pass" = forward ] || prefix+=_backward
  [ "$deterministic" = 0 ] || order=--deterministic prefix+=_deterministic
  prefix+=_$ending
  [ "$has_maps" = maps ] && before=$maps || before=
  works compile --arch "$arch" --algorithm "$algorithm" --dtype "$dtype" --head-dim "$head_dim" \
    --head-dim-v "$head_dim_v" --mask "$mask" --pass "$pass" $order -o "$work/out"
  launcher=$(echo "$work"/out/*.launcher.c) cubin=$(echo "$work"/out/*.cubin)
  holds "$name: the launcher builds alone" cc -std=c11 -Wall -Wextra -Wpedantic -Werror -O2 \
    -c "$launcher" -o "$work/alone.o"
  holds "$name: it shows its own names" [ -z "$(nm --defined-only "$work/alone.o" |
    awk '$2 == "T" { print $3 }' | grep -v "^${prefix}_\(open\|run\|workspace\|close\)$")" ]
  others=$(nm --undefined-only "$work/alone.o" | awk '{ print $2 }' |
    grep -vE '^(dlopen|dlsym|dlclose|calloc|free|memset|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail)$')
  holds "$name: it needs $others" [ -z "$others" ]
  defines=("-DPREFIX=$prefix" "-DLAUNCHER=\"$launcher\"")
  [ "$pass" = forward ] || defines+=(-DBACKWARD)
  holds "$name: the program builds" cc -std=gnu11 -Wall -Wextra -Werror -O2 -Iinclude \
    "${defines[@]}" tests/data/launcher/main.c \
    -L"$build/lib" -lkiln "-Wl,-rpath,$build/lib" -o "$work/main"
  export STUB_PARAMS="$backward_args" STUB_PARAMS_kiln_backward="$before$backward_args"
  [ "$pass" = backward ] || STUB_PARAMS="$before$args"
  export STUB_H200=1 LD_LIBRARY_PATH="$build/tests/stub"
  STUB_LOG="$work/by_launcher" "$work/main" launcher "$cubin"
  holds "$name: the launcher ends with $?" [ $? = 0 ]
  STUB_LOG="$work/by_library" "$work/main" library "$arch" "$algorithm" "$dtype" "$head_dim" \
    "$head_dim_v" "$mask" "$pass" "$deterministic"
  holds "$name: six launches or more" [ "$(grep -c '^launch' "$work/by_library")" -ge 6 ]
  holds "$name: $(diff "$work/by_library" "$work/by_launcher" | head -n 4 | cut -c1-200)" \
    cmp -s "$work/by_library" "$work/by_launcher"
  unset LD_LIBRARY_PATH STUB_H200 STUB_PARAMS
done <<'ROWS'
sm_90a flash bf16 128 128 causal forward 0 maps sm_90a_bf16_128_causal
sm_90a flash fp16 40 24 none forward 0 maps sm_90a_fp16_40_24
sm_90 flash bf16 64 64 none forward 0 none sm_90_bf16_64
sm_90 standard fp16 64 64 causal forward 0 none sm_90_fp16_64_causal
sm_90a flash bf16 128 128 causal backward 0 maps sm_90a_bf16_128_causal
sm_90a flash fp16 40 24 none backward 1 maps sm_90a_fp16_40_24
sm_90a flash bf16 256 192 causal backward 1 maps sm_90a_bf16_256_192_causal
sm_90 flash bf16 64 64 causal backward 1 none sm_90_bf16_64_causal
ROWS

finish
