#!/usr/bin/env bash
# kiln tune and kiln records without a GPU: a journal of invented times (tests/data/tuning.jsonl) is
# replayed, and files of records are checked, imported, exported and merged.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh

journal=tests/data/tuning.jsonl
problem="--arch sm_90a --dtype bf16 --head-dim 256 --no-causal \
  --batch 8 --seqlen-q 2048 --num-heads 8"
replay="tune $problem --device none --simulate $journal"
own="$work/own.jsonl"
export KILN_RECORDS="$own:$work/other.jsonl"

# value NAME: of the one JSON object on stdout, a word or a number
value() { grep -o "\"$1\": *[^,{}]*" "$work/stdout" | head -1 | sed 's/.*: *//'; }
tile() { grep -o '"tile": *{[^}]*}' "$work/stdout" | head -1; }
lines() { wc -l <"$1"; }

# ---- refusals ----
no_gpu="tune measures on a GPU and there is none; give --simulate JOURNAL to replay the times \
of another"
refuses 8 "$no_gpu" tune --device none
refuses 8 "$no_gpu" tune --device emu --strategy estimate
refuses 1 "tune chooses the tile; leave --block-m out" tune --block-m 64
refuses 1 "--budget '60x' is no time; give a number and s, m or h, such as 60s" tune --budget 60x
# shellcheck disable=SC2086 # lists of flags
refuses 1 "strategy guess is unknown; there are estimate, hillclimb and exhaustive" \
  $replay --strategy guess
refuses 1 "$journal has no record of this problem; kiln records show lists them" \
  tune --device none --simulate $journal --arch sm_90a --dtype bf16 --head-dim 64 --no-causal
refuses 18 "$work/none: cannot be opened (No such file or directory)" \
  tune --device none --simulate "$work/none" --arch sm_90a --dtype bf16 --head-dim 64 --no-causal
refuses 1 "records has no command shw; did you mean show?" records shw
refuses 1 "usage: kiln records merge A B -o FILE" records merge a b
refuses 1 "usage: kiln records show FILE" records show $journal -o "$work/x"

# ---- replays ----
for strategy in estimate hillclimb exhaustive; do
  # shellcheck disable=SC2086
  works $replay --strategy $strategy --json
  json arch tile default_tile shape time_us default_us predicted_us legal known measured samples \
    complete from_records simulated
  tile >"$work/$strategy"
done
holds "the climb ends where the whole search does" cmp -s "$work/hillclimb" "$work/exhaustive"
holds "with another tile than the default" \
  grep -q '"block_n": *48, *"num_stages": *3' "$work/hillclimb"
holds "exhaustive knows every tile of the journal" [ "$(value known)" = "$(value legal)" ]
holds "no record is kept of a replay unless asked" [ ! -e "$own" ]
# shellcheck disable=SC2086
works $replay
holds "the row tells the gain" grep -q '^sm_90a bf16 256 none .* 1.11[0-9] .* 8 of 8' "$work/stdout"
# shellcheck disable=SC2086
works $replay --strategy exhaustive --budget 5s --records "$work/part.jsonl" --json
holds "a budget ends it" [ "$(value complete)" = false ]
# shellcheck disable=SC2086
works $replay --strategy exhaustive --records "$work/part.jsonl" --json
holds "and the next one goes on" [ "$(value complete)" = true ] && [ "$(value samples)" -gt 0 ]
# shellcheck disable=SC2086
works $replay --strategy exhaustive --records "$work/part.jsonl" --json
holds "a finished tuning is not repeated" [ "$(value samples)" = 0 ]
holds "and says so" [ "$(value from_records)" = true ]
cat >"$work/problems" <<END
{"arch":"sm_90a","head_dim":256,"batch":8,"seqlen_q":2048,"num_heads":8}

{"arch":"sm_90a","head_dim":256,"mask":"none","batch":16,"seqlen_q":2000,"num_heads":4}
END
works tune --problems "$work/problems" --device none --simulate $journal --json
holds "two problems, two lines" [ "$(lines "$work/stdout")" = 2 ]
echo '{"head_dims":256}' >"$work/problems"
refuses 1 "$work/problems:1: a spec has no field 'head_dims'; its fields are arch, pass, \
algorithm, dtype, head_dim, head_dim_v, mask and deterministic" \
  tune --problems "$work/problems" --device none --simulate $journal
printf '\n%s\n' '{"pass":"backward","deterministic":true}' >"$work/problems"
refuses 1 "$work/problems:2: deterministic 'true' is not a whole number; legal are 0 to 1" \
  tune --problems "$work/problems" --device none --simulate $journal
echo '{"pass":"backward","algorithm":"standard"}' >"$work/problems"
refuses 2 "$work/problems:1: the standard family has no backward pass" \
  tune --problems "$work/problems" --device none --simulate $journal
echo '{"batch":-1}' >"$work/problems"
refuses 1 "$work/problems:1: batch is no size" \
  tune --problems "$work/problems" --device none --simulate $journal
echo '[' >"$work/problems"
try tune --problems "$work/problems" --device none --simulate $journal
holds "a line that is no object is named" grep -q "problems:1: the line is no JSON object" \
  "$work/stderr"

# ---- records ----
works records show $journal --device none
works records show $journal --device none --json
json used refused damaged replaced conflicts lines
holds "every line is used" [ "$(value used)" = "$(lines $journal)" ]
# A table has the columns of all its rows, not those of the first.
{ head -n 1 $journal && head -n 1 $journal | sed 's/"pass":"forward"/"pass":"backward"/' && echo '{'
} >"$work/mixed"
try records show "$work/mixed" --device none
holds "what is damaged says why: $(head -c 900 "$work/stdout")" \
  grep -q 'damaged .*the line is no JSON object' "$work/stdout"
holds "a forward row has no pass" grep -q 'sm_90a  *bf16  *256 .*none' "$work/stdout"
holds "a backward row has one" grep -q 'sm_90a  *backward  0  *bf16  *256 ' "$work/stdout"
try records check $journal --device none --json
holds "the times of another kernel are refused" [ "$rc" = 15 ]
holds "by name" grep -q '"differs": *"source_id"' "$work/stdout"
try records import $journal --device none
holds "an import that uses nothing is none" [ "$rc" = 10 ]
holds "nothing is written then" [ ! -e "$own" ]

works doctor --json --device none
version=$(value kiln)
works generate --arch sm_90a --head-dim 256 --mask none --device none
id=$(sed -n 's/.*source id *\([0-9a-f]\{64\}\).*/\1/p' "$work/stdout" | head -n 1)
sed "s/0\{64\}/$id/; s/\"kiln\":\"0.0.0\"/\"kiln\":$version/" $journal >"$work/here.jsonl"
try records check "$work/here.jsonl" --device none --json
holds "those of the own kernel fit" [ "$rc" = 0 ]
works records import "$work/here.jsonl" --device none --json
holds "all lines are imported" [ "$(value used)" = "$(lines "$work/here.jsonl")" ]
holds "one line of each tile, and the choice" [ "$(lines "$own")" = 9 ]
works records export --device none -o "$work/a"
works records export --device none
holds "export prints what it writes" cmp -s "$work/stdout" "$work/a"
mkfifo "$work/pipe"
try records merge "$work/a" "$work/here.jsonl" --device none -o "$work/pipe"
holds "a FIFO is refused: $rc" [ "$rc" = 18 ]
holds "a FIFO stays one" [ -p "$work/pipe" ]
works records merge "$work/a" "$work/here.jsonl" --device none -o "$work/b" --json
holds "without a conflict" grep -q '"conflicts": *\[\]' "$work/stdout"
works records merge "$work/b" "$work/b" --device none -o "$work/c"
holds "a merge with itself changes no byte" cmp -s "$work/b" "$work/c"
head -c 2000 "$work/b" >"$work/torn"
works records show "$work/torn" --device none --json
holds "a torn line is none" [ "$(value damaged)" = 0 ] && [ "$(value used)" -lt 5 ]

# ---- plans read records: on the stub driver, whose device the times are moved to ----
stub=$(cd "${BUILD:-build}" && pwd)/tests/stub
export LD_LIBRARY_PATH=$stub${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} STUB_H200=1
sed 's/"l2_bytes":[0-9]*/"l2_bytes":4194304/' "$work/here.jsonl" >"$work/plans.jsonl"
KILN_RECORDS=$work/plans.jsonl works explain --head-dim 256 --mask none --batch 8 --seqlen-q 2048 \
  --seqlen-k 2048 --num-heads 8 --json
json why ladder tile
holds "the record's tile is taken" grep -q '"block_n":48,"num_stages":3' "$work/stdout"
holds "and named" grep -q '"why":"exact: tuned on an invented GPU' "$work/stdout"
KILN_TUNE=off KILN_RECORDS=$work/plans.jsonl works explain --head-dim 256 --mask none --batch 8 \
  --seqlen-q 2048 --seqlen-k 2048 --num-heads 8 --json
holds "KILN_TUNE=off takes the default" \
  grep -q '"why":"arch default: KILN_TUNE is off' "$work/stdout"

finish
