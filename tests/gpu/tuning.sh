#!/usr/bin/env bash
# tests/gpu/tuning.sh PREFIX OUT: what tuning chooses and when it measures, on the GPU at hand.
# PREFIX is an installed Kiln (bin, libexec, lib, include); OUT gets the logs and the records.
# Needs cc. Ends with `N passed, N failed`.
#   ONLY  an extended regular expression: the parts that are run, of same, far, illegal, lengths,
#         captured (which needs lengths), many and short (default: all)
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
prefix=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
work=$(mktemp -d)
busy=
trap '[ -z "$busy" ] || kill "$busy" 2>/dev/null; rm -rf "$work"' EXIT
unset KILN_TUNE
export KILN_CACHE_DIR=$work/cache LD_LIBRARY_PATH=$prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
passed=0 failed=0
holds() {
  local name=$1
  shift
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED: $name"; fi
}
part() { [[ $1 =~ ^(${ONLY:-.*})$ ]] && echo "$1, $SECONDS s"; }

# judged NAME COMMAND...: a part of the program, whose own checks are one here.
judged() {
  local name=$1
  shift
  "$@" >"$out/$name.log" 2>&1
  holds "$name: $(head -c 600 "$out/$name.log")" \
    grep -qE '^[1-9][0-9]* passed, 0 failed$' "$out/$name.log"
}

# ---- records ----

# tune NAME FLAG...: one tuning in a process of its own, by the journal NAME.jsonl.
tune() {
  local name=$1
  shift
  "$prefix/bin/kiln" tune --dtype bf16 --no-causal --batch 1 --num-heads 8 "$@" --json \
    --records "$out/$name.jsonl" >"$out/$name.json" 2>"$out/$name.log"
}
value() { grep -o "\"$2\": *[^,{}]*" "$out/$1.json" | head -n 1 | sed 's/.*: *//'; }
choices() { grep -c '"kind":"choice"' "$1"; }
choice() { grep '"kind":"choice"' "$1" | tail -n 1; }
tiles() {
  local n='([0-9]+)'
  sed -E "s/.*\{\"block_m\":$n,\"block_n\":$n,\"num_stages\":$n,\"num_warps\":$n\}.*/\1x\2x\3x\4/"
}
chosen() { choice "$1" | tiles; } # the last tile of the line is the choice
# Tile, median and MAD in ns of every candidate of the last choice that was timed.
candidates() {
  local tile median mad
  choice "$1" | grep -oE '"mad_ns":[^{}]*"outcome":"timed"[^{}]*"tile":\{[^}]*\}' |
    sed -E 's/"mad_ns":([0-9]+),"median_ns":([0-9]+).*(\{.*\})/\3 \2 \1/' |
    while read -r tile median mad; do echo "$(tiles <<<"$tile") $median $mad"; done
}
# tie JOURNAL A B: by its medians the two tie: 1.5 %, or twice the MAD of the faster.
tie() {
  candidates "$1" | awk -v a="$2" -v b="$3" '
    $1 == a { x = $2; mad_x = $3 }
    $1 == b { y = $2; mad_y = $3 }
    END {
      if (!x || !y) exit 1
      low = x < y ? x : y; gap = x < y ? y - x : x - y
      width = 2 * (x < y ? mad_x : mad_y)
      if (width < 0.015 * low) width = 0.015 * low
      printf "  %s and %s: %.2f %% apart, a tie is %.2f %%\n", a, b, 100 * gap / low,
        100 * width / low
      exit gap > width
    }'
}

# agrees FIRST OTHER CODE: the same choice, a tie, or a tuning that says why it chose none.
agrees() {
  if [ "$3" = 15 ]; then
    grep -q "noisy: its times spread too widely" "$out/$2.log"
    return
  fi
  [ "$3" = 0 ] || return
  local a b
  a=$(chosen "$out/$1.jsonl") b=$(chosen "$out/$2.jsonl")
  [ "$a" = "$b" ] || tie "$out/$2.jsonl" "$a" "$b" || tie "$out/$1.jsonl" "$a" "$b"
}

# ---- one problem, ten times: one winner ----

same() {
  local name code first=
  for name in idle-{1..7} busy-{1..3}; do
    if [ $name = busy-1 ]; then
      "$work/tuning" busy >"$out/busy.log" 2>&1 &
      busy=$!
      for _ in $(seq 300); do
        ! grep -q '^busy' "$out/busy.log" || break
        sleep 0.1
      done
    fi
    rm -f "$out/$name.jsonl"
    tune $name --head-dim 256 --seqlen-q 1024
    code=$?
    [ $code != 0 ] || first=${first:-$name} # the first that chooses
    holds "$name chooses as ${first:-none} does: $(head -c 300 "$out/$name.log")" \
      agrees "$first" $name $code
    if [ $code = 0 ]; then
      holds "$name measures: $(value $name measured)" [ "$(value $name measured)" -ge 5 ]
      echo "  $name: $(chosen "$out/$name.jsonl"), $(value $name time_us) us," \
        "the default $(value $name default_us) us, $SECONDS s"
    fi
  done
  holds "the GPU was busy: $(head -c 300 "$out/busy.log")" kill "$busy"
  wait "$busy" 2>/dev/null
  busy=
}

# ---- sizes far from those that were tuned ----

# takes STEP WORDS DIM SEQLEN: the step of the ladder that a plan takes, and what it says.
takes() {
  "$work/tuning" plan "$3" "$4" >"$out/plan-$3-$4.log" 2>&1
  holds "$4 is no $1: $(head -c 300 "$out/plan-$3-$4.log")" \
    grep -qE "^$1 [0-9x]+ (arch )?$1: $2" "$out/plan-$3-$4.log"
}
far() {
  rm -f "$out/near.jsonl"
  tune near --head-dim 96 --seqlen-q 512 --budget 10s
  holds "512 is tuned: $(head -c 300 "$out/near.log")" [ "$(choices "$out/near.jsonl")" = 1 ]
  export KILN_RECORDS=$out/near.jsonl
  takes exact "tuned on" 96 512
  takes near_shape "tuned on" 96 1024
  takes default "no tuning record applies" 96 2048
  takes default "no tuning record applies" 96 32768
  "$prefix/bin/kiln" explain --dtype bf16 --head-dim 96 --no-causal --batch 1 --seqlen-q 32768 \
    --num-heads 8 --json >"$out/explain.json" 2>&1
  holds "the ladder says what is missing" \
    grep -q 'near_shape[^{}]*there is no tuning within one bucket of them' "$out/explain.json"
  unset KILN_RECORDS
}

# ---- one bucket of lengths; a candidate more ----

# The slowest of the first race, which is after the default: a climb always begins with it.
victim() {
  grep '"kind":"candidate"' "$1" | sed -n 2,4p | grep -o '"tile":{[^}]*}' | tiles >"$work/first"
  candidates "$1" | grep -wFf "$work/first" | grep -vw "$(chosen "$1")" | sort -nk2 | tail -n 1
}
json_of() {
  sed -E 's/(.*)x(.*)x(.*)x(.*)/"block_m":\1,"block_n":\2,"num_stages":\3,"num_warps":\4}/' <<<"$1"
}
lengths() {
  local journal=$out/lengths.jsonl again=$out/again.jsonl tile pattern
  rm -f "$journal"
  KILN_TUNE=measure KILN_RECORDS=$journal judged lengths "$work/tuning" lengths 256 1000 1100
  holds "101 lengths, one tuning: $(choices "$journal")" [ "$(choices "$journal")" = 1 ]
  tile=$(victim "$journal" | cut -d' ' -f1)
  pattern=$(json_of "$tile")
  grep -v '"kind":"choice"' "$journal" | grep -vF "$pattern" >"$again"
  holds "$tile is taken out, and the choice" \
    [ "$(wc -l <"$again")" -le $(($(wc -l <"$journal") - 2)) ]
  tune again --head-dim 256 --seqlen-q 1000
  holds "one is measured again: $(value again measured)" [ "$(value again measured)" = 1 ]
  holds "it is $tile" grep -qF "$pattern" <(grep '"kind":"candidate"' "$again" | tail -n 1)
  holds "all are known" [ "$(candidates "$again" | wc -l)" = "$(candidates "$journal" | wc -l)" ]
  tune again --head-dim 256 --seqlen-q 1000
  holds "then none" [ "$(value again from_records) $(value again measured)" = "true 0" ]
}

# ---- captures ----

captured() {
  local mode
  for mode in off cached measure; do
    cp "$out/lengths.jsonl" "$work/captured.jsonl"
    KILN_TUNE=$mode KILN_RECORDS=$work/captured.jsonl \
      judged captured-$mode "$work/tuning" captured 256 1000 4096
    holds "$mode measures nothing in a capture" cmp "$out/lengths.jsonl" "$work/captured.jsonl"
  done
}

# ---- others ----

many() {
  local i pids=()
  rm -f "$out/many.jsonl"
  export KILN_TUNE=measure KILN_RECORDS=$out/many.jsonl
  for i in 1 2 3 4; do
    "$work/tuning" plan 256 2048 >"$out/many-$i.log" 2>&1 &
    pids+=($!)
  done
  wait "${pids[@]}"
  unset KILN_TUNE KILN_RECORDS
  holds "one of four tunes: $(choices "$out/many.jsonl")" [ "$(choices "$out/many.jsonl")" = 1 ]
  holds "all four know it" [ "$(cat "$out"/many-?.log | grep -c '^exact .* tuned on')" = 4 ]
  holds "and take one tile" [ "$(cut -d' ' -f2 "$out"/many-?.log | sort -u | wc -l)" = 1 ]
  holds "which is the record's" \
    [ "$(cut -d' ' -f2 "$out/many-1.log")" = "$(chosen "$out/many.jsonl")" ]
}

illegal() { judged illegal "$work/tuning" illegal; }

# A second process needs some 500 MB for its context alone: with 100 it cannot begin, with 700 it
# has little room for tensors.
short() {
  local megabytes
  for megabytes in 100 700; do
    rm -f "$out/short-$megabytes.jsonl"
    KILN_RECORDS=$out/short-$megabytes.jsonl \
      judged short-$megabytes "$work/tuning" short 256 1024 $megabytes
    sed 's/^/  /' "$out/short-$megabytes.log"
  done
}

holds "the program builds" cc -O2 -std=c11 -Wall -Wextra "-I$prefix/include" \
  "$here/tests/gpu/tuning.c" -o "$work/tuning" "-L$prefix/lib" "-Wl,-rpath,$prefix/lib" -lkiln -ldl
for name in same far illegal lengths captured many short; do
  if part $name; then $name; fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
