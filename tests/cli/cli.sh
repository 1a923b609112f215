#!/usr/bin/env bash
# The command line without a device: parsing, help, refusals with their sentences and exit codes,
# JSON, files. Compiling is tests/cli/compile.sh, launching tests/cli/emulator.sh.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh

# ---- the program ----
works --version
holds "the version is one line" grep -qx 'kiln [0-9]*\.[0-9]*\.[0-9]*' "$work/stdout"
works --help
for verb in generate compile run verify explain trace bench cache pack tune records doctor; do
  holds "--help names $verb" grep -q "^  $verb " "$work/stdout"
done
for verb in generate compile run verify explain trace bench cache pack tune records doctor; do
  works $verb --help
  holds "help of $verb" grep -q "^usage: kiln $verb" "$work/stdout"
done
works help run
holds "kiln help run is its help" grep -q "^usage: kiln run" "$work/stdout"
# What is not given: VERB FLAG DEFAULT
while read -r verb flag default; do
  works $verb --help
  holds "$verb $flag: default $default" \
    [ "$(grep -A 1 "^  $flag " "$work/stdout" | sed -n 's/.*; default //p')" = "$default" ]
done <<'ROWS'
generate --mask none
generate --head-dim 128
pack --mask all
pack --arch all
pack --pass forward
pack --head-dim-v 0
verify --arch all that the device runs
verify --algorithm all
bench --head-dim 64,128,256
bench --dtype all
tune --algorithm flash
run --dtype that of the tensors, or bf16
run --pass forward, with --do backward
ROWS
refuses 1 "there is no verb xyzzy; kiln --help lists them" help xyzzy
refuses 1 "give a verb; kiln --help lists them"
refuses 1 "there is no verb generat; did you mean generate?" generat
refuses 1 "there is no verb xyzzy; kiln --help lists them" xyzzy

# ---- what is planned ----
refuses 2 "--softcap: no kernel has a soft cap yet; leave it out" run --softcap 30
refuses 2 "--window-left: no kernel has a sliding window yet; leave it out" run --window-left=4
refuses 2 "--page-table: no kernel reads paged keys yet; copy the pages into one tensor" \
  run --page-table f
refuses 2 "--shapes: no file of shapes is read yet; --seqlen-q, --batch and --num-heads give them" \
  bench --shapes f
refuses 2 "--against: the comparison is not built yet; --algorithm flash,standard times both" \
  bench --against standard
refuses 1 "--dk needs --do, the gradient of o" run --dk f
refuses 1 "--deterministic needs --do, the gradient of o" run --deterministic
refuses 1 "--dq and --dv are the same file, x; write the result to one of its own" \
  run --do f --dq x --dk y --dv x
refuses 1 "--o and --q are the same file, q.npy; write the result to one of its own" \
  run --q q.npy --k k.npy --v v.npy --o q.npy
refuses 1 "--pass backward does not go without --do" run --pass backward
refuses 1 "--pass forward does not go with --do" run --do f --pass forward
refuses 2 "the standard family has no backward pass" generate --pass backward --algorithm standard
refuses 1 "--deterministic takes no value; write it alone" generate --deterministic=1
refuses 2 "dtype e4m3 is not built yet; legal are fp16 and bf16" generate --dtype e4m3

# ---- flags ----
refuses 1 "generate has no flag --head-dimm; did you mean --head-dim?" generate --head-dimm 64
refuses 1 "generate has no flag --xyzzy; kiln generate --help lists them" generate --xyzzy
refuses 1 "run has no flag --head-dim; kiln run --help lists them" run --head-dim 64
refuses 1 "--head-dim needs a value; kiln generate --help says which" generate --head-dim
refuses 1 "--plain takes no value; write it alone" generate --plain=1
refuses 1 "--mask is given twice; give it once (several values: A,B,C)" \
  generate --causal --no-causal
refuses 1 "generate does not know what to do with 'x'; usage: kiln generate SELECTION [-o FILE] \
[--plain] [--list]" generate x
refuses 1 "head_dim 59 is not a multiple of 8 up to 256; the nearest legal values are 56 and 64" \
  generate --head-dim 59
refuses 1 "head_dim 264 is not a multiple of 8 up to 256; the nearest legal value is 256" \
  generate --head-dim 264
refuses 1 "--device 'gpu' is unknown; give emu, cuda:N or none" generate --device gpu
refuses 1 "--device 'cuda:' is unknown; give emu, cuda:N or none" generate --device cuda:
refuses 1 "--emu-seed is for the emulator; add --device emu" verify --device none --emu-seed 1
refuses 8 "verify runs kernels; give --device emu or cuda:N" verify --device none
refuses 8 "bench times kernels on a GPU; give --device cuda:N" bench --device none
refuses 2 "the emulator has no time to measure; bench needs a GPU: --device cuda:N" \
  bench --device emu
refuses 1 "there is no case F12x; the nearest is F12a" verify --device none --case F12x
refuses 1 "--num-heads 10 is not a whole multiple of --num-heads-k 4" \
  explain --num-heads 10 --num-heads-k 4
refuses 1 "--batch 'two' is not a whole number from 0 to 2147483647" explain --batch two
refuses 1 "cache has no command lss; did you mean ls?" cache lss
refuses 1 "cache why takes two kernel ids; kiln cache ls lists them" cache why a
refuses 1 "pack has no command lss; did you mean ls?" pack lss
refuses 1 "pack has no command xyzzy; kiln pack --help lists them" pack xyzzy
refuses 1 "pack ls takes no --head-dim; usage: kiln pack ls FILE" pack ls f --head-dim 64
refuses 1 "pack verify takes no -o; usage: kiln pack verify FILE [--key PUB]" pack verify f -o g
refuses 1 "usage: kiln pack diff A B" pack diff f
refuses 1 "cache needs more; usage: kiln cache ls | why A B | verify | gc | clear" cache
refuses 1 "the selection holds 2 kernels and generate renders one; give single values, or use \
--list, or kiln compile -o DIR" generate --arch sm_80 --head-dim 64,72

# ---- run, before any device ----
refuses 1 "run needs --q, --k and --v; give --q a .npy file or FILE.safetensors:NAME" run
data=tests/data/minilm.safetensors
refuses 18 "$work/none.npy: cannot be opened (No such file or directory)" run --q "$work/none.npy"
refuses 1 "--softmax-scale -1 is negative; give 0 or more" run --q $data:layer0.q \
  --k $data:layer0.k --v $data:layer0.v --softmax-scale -1 --device none
refuses 1 "--softmax-scale 'nan' is not a finite number" run --q $data:layer0.q \
  --k $data:layer0.k --v $data:layer0.v --softmax-scale nan --device none
refuses 1 "--seqlen-k '82' is not a whole number from 0 to 81" run --q $data:layer0.q \
  --k $data:layer0.k --v $data:layer0.v --seqlen-k 82 --device none

refuses 8 "run launches a kernel; give --device emu or cuda:N" run --q $data:layer0.q \
  --k $data:layer0.k --v $data:layer0.v --device none

# ---- generate ----
spec="--arch sm_80 --head-dim 64 --causal"
# shellcheck disable=SC2086 # a list of flags
works generate $spec
cp "$work/stdout" "$work/first.cu"
# shellcheck disable=SC2086
(cd "$work" && "$kiln" generate $spec -o second.cu)
holds "generate is the same twice, from two directories" cmp -s "$work/first.cu" "$work/second.cu"
holds "no draft is left beside the file" [ "$(find "$work" -name 'second.cu*' | wc -l)" = 1 ]
holds "the source has #line" grep -q '^#line' "$work/first.cu"
# shellcheck disable=SC2086
works generate $spec --plain
holds "--plain has none" eval '! grep -q "^#line" "$work/stdout"'
# shellcheck disable=SC2086
refuses 18 "$work/no/x.cu cannot be written (No such file or directory); choose another place \
with -o" generate $spec -o "$work/no/x.cu"
mkfifo "$work/pipe"
# shellcheck disable=SC2086
refuses 18 "$work/pipe cannot be written (Not a regular file); choose another place with -o" \
  generate $spec -o "$work/pipe"
holds "a FIFO stays one" [ -p "$work/pipe" ]
rm "$work/pipe"
works generate --arch sm_80,sm_90 --head-dim 64,72,80 --dtype fp16,bf16 --list
holds "--list names 12 kernels" [ "$(sort -u "$work/stdout" | wc -l)" = 12 ]
works generate --arch sm_80 --head-dim 64,72 --list --json
json arch dtype head_dim head_dim_v mask tile

# ---- facts ----
works explain --device none --arch sm_80 --head-dim 64 --json
json predicted tile shape bytes
holds "explain predicts a time" grep -q '"predicted": *{"time_us": *[1-9]' "$work/stdout"
works doctor --json --device none
json kiln driver nvrtc cache environment would_run
works doctor --device none
works cache ls --json
json dir bytes kernels
works cache ls
works cache verify --json
works cache clear --json
holds "nothing was written outside of the cache" [ "$(ls "$work")" = "cache
first.cu
second.cu
stderr
stdout" ]

# ---- output ----
"$kiln" --help >/dev/full 2>"$work/stderr"
holds "a full disk is IO_FAILED" [ $? = 18 ]
holds "and is said" grep -q "^kiln: stdout cannot be written" "$work/stderr"
holds "no escape code is printed" eval '! "$kiln" --help | grep -q "$(printf "\033")"'

finish
