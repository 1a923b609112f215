#!/usr/bin/env bash
# install: what `cmake --install` leaves, as somebody else's project meets it: by find_package and
# by pkg-config, both libraries, after the whole was moved; names and versions of the libraries.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
build=$(cd "${BUILD:-build}" && pwd)
version=$("$kiln" --version | cut -d" " -f2)

# Installed in one place and moved to another: nothing may remember the first.
holds "installs" cmake --install "$build" --prefix "$work/first" >"$work/log" 2>&1
mv "$work/first" "$work/moved"
lib=$(dirname "$(find "$work/moved" -name 'libkiln.so.0')")
strangers=$(grep -rlF "$work/first" "$work/moved" | head)
holds "the first place is in: $strangers" [ -z "$strangers" ]

holds "find_package" cmake -S tests/data/downstream -B "$work/down" \
  "-DCMAKE_PREFIX_PATH=$work/moved" >"$work/log" 2>&1
holds "builds" cmake --build "$work/down" >>"$work/log" 2>&1
holds "libkiln generates" [ "$("$work/down/with_kiln")" = "$version generates" ]
says=$("$work/down/with_kiln_rt")
holds "libkiln_rt says why it cannot: $says" \
  [ "$says" = "$version this library holds no generator: link libkiln in place of libkiln_rt" ]
program=$(cat "$work/down/program.txt")
holds "Kiln::program is $program" [ "$("$program" --version)" = "kiln $version" ]

export PKG_CONFIG_PATH="$lib/pkgconfig"
for name in kiln kiln_rt; do
  # shellcheck disable=SC2046 # a list of flags
  holds "pkg-config $name" cc -std=c11 -Wall -Wextra -Werror tests/data/downstream/main.c \
    -o "$work/by_$name" $(pkg-config --cflags --libs "$name") "-Wl,-rpath,$lib"
  holds "$name runs" grep -q "^$version " <("$work/by_$name")
  holds "$name has the soname lib$name.so.0" \
    grep -q "SONAME.*\[lib$name.so.0\]" <(readelf -d "$lib/lib$name.so.0")
  exported=$(nm -D --defined-only "$lib/lib$name.so.0" | awk '$2 != "A" { print $3 }')
  others=$(grep -v '^kiln_[a-z0-9_]*@@KILN_0$' <<<"$exported")
  holds "$name exports: $others" [ -z "$others" ]
  holds "$name exports a private name" [ -z "$(grep '^kiln__' <<<"$exported")" ]
done

# examples/gradients: its loss falls, on the emulator; on a device that is none its two plans come
# from the pack, and every step launches the forward pass and the three kernels of the backward one.
holds "gradients configures" cmake -S examples/gradients -B "$work/gradients" \
  "-DCMAKE_PREFIX_PATH=$work/moved" >"$work/log" 2>&1
holds "gradients builds" cmake --build "$work/gradients" >"$work/log" 2>&1
pack=$work/gradients/attention.pack
packed=$("$program" pack ls "$pack" | grep -oE 'causal( backward deterministic)?' | sort | xargs)
holds "its pack holds $packed" [ "$packed" = "causal causal backward deterministic" ]
says=$("$work/gradients/gradients" emu)
losses=$(sed -n 's/^step [0-4]: loss \([0-9.]*\)$/\1/p' <<<"$says")
holds "five losses: $says" [ "$(wc -w <<<"$losses")" = 5 ]
holds "they fall: $losses" [ "$losses" = "$(sort -gru <<<"$losses")" ]
says=$(LD_LIBRARY_PATH=$build/tests/stub STUB_H200=1 STUB_LOG=$work/calls KILN_JIT=off \
  KILN_CACHE_DIR='' KILN_PACK_PATH=$pack "$work/gradients/gradients" 0)
holds "both kernels are the pack's: $says" [ "$(grep -cF "$pack" <<<"$says")" = 2 ]
launched=$(grep -oE '^launch kiln_[a-z]+' "$work/calls" | cut -d_ -f2 | tr '\n' ' ')
one="forward preprocess backward convert "
holds "it launches $launched" [ "$launched" = "$one$one$one$one$one" ]

# The manual and the completions name every verb and every flag of the program.
pages=$work/moved/share/man/man1
completion=$work/moved/share/bash-completion/completions/kiln
fish=$work/moved/share/fish/vendor_completions.d/kiln.fish
zsh=$work/moved/share/zsh/site-functions/_kiln
verbs=$("$program" --help | awk '/^Verbs:/ { on = 1; next } on && !/^ / { exit } on { print $1 }')
holds "there are verbs" [ "$(wc -w <<<"$verbs")" -ge 9 ]
for verb in $verbs; do
  page=$pages/kiln-$verb.1 missing=""
  for flag in $("$program" "$verb" --help | sed -n 's/^  \(-[-a-z]*\).*/\1/p'); do
    grep -qE -- "^\.B ${flag//-/\\\\-}( |\$)" "$page" || missing+=" $flag in the manual"
    grep -qE -- "^    $verb:\*\).*[' ]$flag " "$completion" || missing+=" $flag in bash's"
    grep -qE -- "^    $verb\).*[( ]$flag " "$zsh" || missing+=" $flag in zsh's"
    name=${flag#-}
    grep -qE -- "from $verb' -[sl] ${name#-}( |\$)" "$fish" || missing+=" $flag in fish's"
  done
  holds "$verb lacks$missing" [ -z "$missing" ]
done
completed=$(bash -c '. "$1"; COMP_WORDS=(kiln compile --dtype b) COMP_CWORD=3
  _kiln; echo "${COMPREPLY[*]}"' - "$completion")
holds "bash completes b to $completed" [ "$completed" = bf16 ]
for pair in pack:build records:merge cache:why; do
  verb=${pair%:*} word=${pair#*:}
  completed=$(bash -c '. "$1"; COMP_WORDS=(kiln "$2" "$3") COMP_CWORD=2
    _kiln; echo "${COMPREPLY[*]}"' - "$completion" "$verb" "${word:0:2}")
  holds "bash completes $verb ${word:0:2} to $completed" [ "$completed" = "$word" ]
  holds "zsh's has no $verb $word" grep -qE "^    $verb\).*[( ]$word " "$zsh"
  holds "fish's has no $verb $word" grep -qE -- "from $verb' -a $word\$" "$fish"
done
if command -v groff >/dev/null; then
  warnings=$(groff -ww -man -Tutf8 "$pages"/*.1 2>&1 >/dev/null | head -n 3)
  holds "groff says $warnings" [ -z "$warnings" ]
else
  skip 1 "there is no groff"
fi

finish
