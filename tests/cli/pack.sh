#!/usr/bin/env bash
# pack: building, looking, signing, taking apart, embedding; and production, which loads a pack with
# libkiln_rt and a driver alone (the stub's).
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
. tools/env.sh
build=$(cd "${BUILD:-build}" && pwd)
a=$work/one/a.pack
kind="--algorithm flash --dtype bf16 --head-dim 64 --mask none" spec="--arch sm_80,sm_90a $kind"
mkdir "$work/one" "$work/two"

# field NAME: its values in order, without quotes.
field() { grep -o "\"$1\":[^,}]*" "$work/stdout" | cut -d: -f2 | tr -d '"' | xargs; }
# figures NAME VALUE...: these are the values, in order.
figures() {
  local name=$1
  shift
  holds "$name is $(field "$name") and not $*" [ "$(field "$name")" = "$*" ]
}

# estimates WHAT SIZE: the dry run's figure is within 2 % of it.
estimates() {
  local figure
  figure=$(field estimated_bytes | cut -d. -f1)
  holds "$1 the estimate $figure of $2 is within 2 %" \
    [ "$((figure * 50 >= $2 * 49 && figure * 50 <= $2 * 51))" = 1 ]
}

# ---- building ----
# shellcheck disable=SC2086 # a list of flags
works pack build $spec --dry-run --json
json kernels at_hand estimated_bytes estimated_s threads
figures at_hand 0
holds "a dry run writes nothing" [ -z "$(ls "$work/one")" ]
# shellcheck disable=SC2086
KILN_JOBS=1 works pack build $spec -o "$a" --json
json path kernels bytes root compiled
figures kernels 2
figures compiled 2
figures bytes "$(stat -c %s "$a")"
# Again from nothing, from another directory, in two threads, in the other order: D6.
# shellcheck disable=SC2086
(cd "$work/two" && KILN_JOBS=2 KILN_CACHE_DIR=$work/two/cache "$kiln" pack build \
  --arch sm_90a,sm_80 $kind >"$work/two/said")
holds "kiln.pack is the default name, and the bytes are the same" cmp "$a" "$work/two/kiln.pack"
holds "both were compiled anew" grep -q "2 kernels, 2 compiled now" "$work/two/said"
# shellcheck disable=SC2086
works pack build $spec -o "$work/one/again.pack" --json
figures compiled 0
holds "from the cache the bytes are the same" cmp "$a" "$work/one/again.pack"
rm "$work/one/again.pack"
# shellcheck disable=SC2086
works pack build $spec --dry-run --json
figures at_hand 2
figures estimated_s 0.0
size=$(stat -c %s "$a")
estimates "alone" "$size"

# shellcheck disable=SC2086
try pack build $spec --max-size 80K -o "$work/one/b.pack"
holds "--max-size is refused with $rc" [ "$rc" = 1 ]
holds "and names the largest" grep -Eq "^kiln: the pack would be larger than --max-size 80K: .* \
the largest kernel is sm_(80|90a) bf16 64 none with [0-9]+ KB; choose fewer" "$work/stderr"
refuses 1 "--max-size '5X' is no size such as 500000, 800K, 5M or 2G" pack build --max-size 5X
refuses 1 "head_dim 59 is not a multiple of 8 up to 256; the nearest legal values are 56 and 64" \
  pack build --head-dim 59 -o "$work/one/b.pack"
refuses 2 "the standard family has no backward pass" pack build --pass backward --algorithm standard
# shellcheck disable=SC2086
refuses 18 "$work/no/b.pack cannot be written (No such file or directory); choose another place \
with -o" pack build $spec -o "$work/no/b.pack"
# Every kernel that is not compiled is named, and there is no pack of the rest.
KILN_JIT=off try pack build --arch sm_80 --algorithm flash --dtype bf16 --head-dim 64,80,88 \
  --mask none -o "$work/one/b.pack"
missing=$(sed -n 's/^kiln: sm_80 bf16 \([0-9]*\) none: there is no kernel.*/\1/p' "$work/stderr")
holds "the missing ones are named: $rc $(cat "$work/stderr")" [ "$rc:$(xargs <<<"$missing")" = \
  "13:80 88" ]
holds "what was refused left nothing behind" [ "$(ls "$work/one")" = a.pack ]

# ---- looking ----
works pack ls "$a" --json
json kernel_id source_id arch algorithm dtype head_dim head_dim_v mask tile default compiler bytes \
  sha256
figures arch sm_80 sm_90a
figures default true true
ids=$(field kernel_id)
works pack ls "$a"
holds "a line a kernel" [ "$(wc -l <"$work/stdout")" = 2 ]
works pack verify "$a" --json
json path kernels bytes kiln root public_key
figures public_key null
root=$(field root)
works pack diff "$a" "$work/two/kiln.pack"
holds "says that they are the same" grep -qx "both hold the same kernels" "$work/stdout"
works pack build --arch sm_80 --algorithm flash --dtype bf16 --head-dim 64,72 --mask none \
  -o "$work/one/c.pack"
works pack diff "$a" "$work/one/c.pack" --json
figures differs only A only B
figures head_dim 64 72
works pack diff "$work/one/c.pack" "$a" --json
figures differs only A only B
figures head_dim 72 64

# Of several tiles the default of the arch is the pack's, and not the smallest.
# shellcheck disable=SC2086
works pack build --arch sm_80 $kind --block-m 64,128 -o "$work/one/t.pack"
works pack ls "$work/one/t.pack" --json
figures default false true
works generate --arch sm_80 --algorithm flash --dtype bf16 --head-dim 64 --list --json
default_m=$(grep -o '"block_m":[0-9]*' "$work/stdout")
holds "the default of the arch is $default_m" [ "$default_m" = '"block_m":128' ]

# ---- taking apart ----
works pack extract "$a" -o "$work/parts"
# shellcheck disable=SC2086
works compile $spec -o "$work/whole" --json
compiled=$(field kernel_id)
holds "two kernels, two records" [ "$(ls "$work/parts" | sed 's/^[^.]*//' | xargs)" = \
  ".cubin .record.json .cubin .record.json" ]
works pack extract "$a" "$(cut -c1-12 <<<"$ids")" -o "$work/part"
holds "one kernel by its id" [ "$(ls "$work/part" | wc -l)" = 2 ]
refuses 1 "0 kernels of $a have an id that begins with \"x\"; kiln pack ls lists them" \
  pack extract "$a" x -o "$work/part"
refuses 1 "pack extract needs -o DIR, where its files go" pack extract "$a"

# ---- line tables ----
# sections FILE: their names. code FILE: the entry's machine code, in hex.
sections() { readelf -SW "$1" 2>/dev/null | grep -oE '^ +\[ *[0-9]+\] \.[^ ]+' | sed 's/.* //'; }
code() { readelf -x .text.kiln_forward "$1" 2>/dev/null | grep ' 0x'; }
size=$(stat -c %s "$a")
holds "two kernels take $size bytes" [ "$size" -le 150000 ]
# shellcheck disable=SC2086
works pack build $spec --line-info -o "$work/lines.pack" --json
figures compiled 0 # the kernels of compile
# shellcheck disable=SC2086
works pack build $spec --line-info --dry-run --json
figures at_hand 2
works pack ls "$work/lines.pack" --json
figures kernel_id "$compiled"
for id in $compiled; do
  holds "$id is no kernel of the smaller pack" eval '! grep -q "$id" <<<"$ids"'
done
works pack diff "$a" "$work/lines.pack" --json
figures differs options options
works pack extract "$work/lines.pack" -o "$work/lines"
for whole in "$work"/whole/*.cubin; do
  name=${whole##*/}
  slim=$work/parts/$name
  holds "with lines the cubin $name is compile's" cmp "$whole" "$work/lines/$name"
  holds "$name has line tables" grep -qx ".nv_debug_line_sass" <(sections "$whole")
  holds "a pack's has its code: $(sections "$slim")" grep -qx ".text.kiln_forward" \
    <(sections "$slim")
  holds "and none" eval '! sections "$slim" | grep -Eq "debug_(line|str|ptx)"'
  holds "the code of $name is there" [ "$(code "$whole" | wc -l)" -gt 1000 ]
  holds "the code of $name is the same" cmp <(code "$whole") <(code "$slim")
done

# ---- signing ----
head -c 32 /dev/urandom >"$work/secret"
cp "$a" "$work/one/s.pack"
works pack sign "$work/one/s.pack" --key "$work/secret" --json
figures root "$root"
public=$(field public_key)
works pack verify "$work/one/s.pack" --key "$public"
echo "$public" >"$work/public"
works pack verify "$work/one/s.pack" --key "$work/public"
od -An -v -tx1 "$work/secret" | tr -d ' \n' >"$work/secret.hex"
cp "$a" "$work/one/h.pack"
works pack sign "$work/one/h.pack" --key "$work/secret.hex"
holds "hex and raw are the same key" cmp "$work/one/s.pack" "$work/one/h.pack"
other=$(tr 0123456789abcdef 123456789abcdef0 <<<"$public")
refuses 17 "the pack $work/one/s.pack is signed by $public and not by $other: get it from who \
holds that key" pack verify "$work/one/s.pack" --key "$other"
refuses 17 "the pack $a is not signed: sign it with \`kiln pack sign\`" \
  pack verify "$a" --key "$public"
refuses 1 "$a is no key: it must hold 32 or 64 bytes, raw or in hex" \
  pack sign "$work/one/h.pack" --key "$a"
refuses 18 "the key $work/none cannot be opened (No such file or directory)" \
  pack sign "$work/one/h.pack" --key "$work/none"
works pack diff "$a" "$work/one/s.pack"

# ---- sources ----
# shellcheck disable=SC2086
works pack build $spec --sources -o "$work/sources.pack" --json
figures bytes "$(stat -c %s "$work/sources.pack")"
works pack verify "$work/sources.pack" --json
figures sources true
works pack verify "$a" --json
figures sources false
# shellcheck disable=SC2086
works pack build $spec --sources --dry-run --json
size=$(stat -c %s "$work/sources.pack")
estimates "with sources" "$size"
works pack extract "$work/sources.pack" -o "$work/with"
for source in "$work"/whole/*.cu; do
  holds "the source of ${source##*/} is compile's" cmp "$source" "$work/with/${source##*/}"
done
holds "two kernels, three files each: $(ls "$work/with")" [ "$(ls "$work/with" | wc -l)" = 6 ]
rm "$work"/with/*.cu
holds "the rest is as without" diff -r "$work/with" "$work/parts"
works pack diff "$a" "$work/sources.pack"
holds "sources make no difference" grep -qx "both hold the same kernels" "$work/stdout"

# ---- doctor ----
KILN_PACK_PATH="$a::$work/one/s.pack:$work/sources.pack:$work/none" works doctor --device none \
  --json
figures readable true true true false
figures kernels 2 2 2 0
figures sources false false true false
holds "the archs" [ "$(grep -o '"archs":"sm_80,sm_90a"' "$work/stdout" | wc -l)" = 3 ]
holds "who signed" grep -qE "\"signed_by\":\"[0-9a-f]{64}\"" "$work/stdout"
holds "what is wrong" grep -qF "\"problem\":\"the pack $work/none cannot be opened: No such \
file or directory\"" "$work/stdout"
KILN_PACK_PATH=$work/one/c.pack STUB_H200=1 LD_LIBRARY_PATH=$build/tests/stub works doctor
holds "a pack of another device" grep -qF "none of its kernels runs on this device: build it with \
--arch sm_90a" "$work/stdout"
works doctor --device none
holds "no pack, no row" grep -qx "packs: none" "$work/stdout"

# ---- damage ----
cp "$work/one/s.pack" "$work/bad.pack"
printf '\377' | dd of="$work/bad.pack" bs=1 seek=9000 conv=notrunc 2>"$work/stderr"
for command in ls verify "extract -o $work/never" "sign --key $work/secret"; do
  # shellcheck disable=SC2086
  try pack $command "$work/bad.pack"
  holds "pack $command refuses a damaged pack with $rc" [ "$rc" = 16 ]
done
truncate -s -1 "$work/bad.pack"
refuses 16 "the pack $work/bad.pack is damaged (it is not as long as it says): copy it again, or \
build it anew" pack ls "$work/bad.pack"
refuses 18 "the pack $work/none cannot be opened: No such file or directory" pack ls "$work/none"

# ---- production ----
link=(-std=c11 -Wall -Wextra -Werror -O1 -Iinclude tests/data/production/main.c
  -L"$build/lib" -lkiln_rt "-Wl,-rpath,$build/lib")
holds "the production program builds" cc "${link[@]}" -o "$work/main"
works pack embed "$a" -o "$work/embedded"
holds "the embedded one builds" cc -DPACK=a "-DHEADER=\"$work/embedded/a.h\"" "${link[@]}" \
  "$work/embedded/a.c" -o "$work/main_embedded"
id=$(cut -d' ' -f2 <<<"$ids" | cut -c1-12)
export STUB_H200=1 LD_LIBRARY_PATH="$build/tests/stub"

# says CODE TEXT COMMAND...: the program ends with the code and prints the line.
says() {
  local code=$1 text=$2
  shift 2
  rc=0
  "$@" >"$work/stdout" 2>&1 || rc=$?
  holds "$* ended with $rc for $code and said: $(head -c 600 "$work/stdout")" \
    [ "$rc:$(cat "$work/stdout")" = "$code:$text" ]
}
says 0 "$id pack $a: its default tile for this spec" "$work/main" "$a" 64 none
says 0 "$id pack in memory: its default tile for this spec" "$work/main_embedded" "" 64 none
KILN_PACK_PATH="$a:$work/one/c.pack" says 0 "$id pack $a: its default tile for this spec" \
  "$work/main" "" 64 none
if can_trace; then # D1
  cache=$(find "$work/cache" -type f | sort | xargs sha256sum)
  strace -f -e trace=execve,fork,vfork,clone,clone3,connect,openat,open,creat,mkdir,rename,unlink \
    -o "$work/trace" "$work/main" "$a" 64 none >"$work/stdout"
  holds "one process" [ "$(grep -cE ' (execve|fork|vfork|clone|clone3)\(' "$work/trace")" = 1 ]
  faults=$(grep -E 'connect\(|O_WRONLY|O_RDWR|O_CREAT|creat\(|mkdir\(|rename\(|unlink\(' \
    "$work/trace")
  holds "production writes: $faults" [ -z "$faults" ]
  holds "it opens the pack" grep -qF "\"$a\", O_RDONLY" "$work/trace"
  holds "and no compiler: $(grep nvrtc "$work/trace")" eval '! grep -q nvrtc "$work/trace"'
  holds "the cache is as it was" [ "$cache" = "$(find "$work/cache" -type f | sort |
    xargs sha256sum)" ]
else
  skip 5 "strace is not allowed to look"
fi

# A missing kernel: the sentence names it and the command that adds it, and the command does.
says 13 "MISSING_KERNEL: there is no kernel for sm_90a bf16 64 causal in a pack, and this library \
compiles none: add it by \`kiln pack build --arch sm_90a --pass forward --algorithm flash --dtype \
bf16 --head-dim 64 --head-dim-v 64 --mask causal\` and name the file in KILN_PACK_PATH" \
  "$work/main" "$a" 64 causal
command=$(cut -d'`' -f2 "$work/stdout")
(cd "$work/two" && eval "\"\${kiln%/*}\"/${command/kiln /kiln }" >"$work/stdout")
holds "the command wrote one kernel" grep -q "^kiln.pack: 1 kernels" "$work/stdout"
rc=0
KILN_PACK_PATH=$work/two/kiln.pack "$work/main" "$a" 64 causal >"$work/stdout" || rc=$?
holds "it is found then" [ "$rc" = 0 ]
KILN_PACK_PATH=$work/bad.pack says 16 "CORRUPT: the pack $work/bad.pack is damaged (it is not as \
long as it says): copy it again, or build it anew" "$work/main" "" 64 none

# The full library with compiling off: explain is told by the pack.
export KILN_JIT=off KILN_PACK_PATH=$a KILN_NVRTC=$work/none KILN_CACHE_DIR=$work/empty
works explain --device cuda:0 --dtype bf16 --head-dim 64 --no-causal --json
json kernel_id source_id why pack tile registers spill_bytes shared_bytes entries smem \
  workspace_bytes
figures kernel_id "$(cut -d' ' -f2 <<<"$ids")"
figures pack "$a"
try explain --device cuda:0 --dtype bf16 --head-dim 72 --no-causal
holds "the sentence has the command" grep -q '`kiln pack build --arch sm_90a ' "$work/stderr"
holds "another head_dim is missing, $rc: $(cat "$work/stderr")" [ "$rc" = 13 ]

# ---- a manifest ----
unset KILN_JIT KILN_PACK_PATH KILN_NVRTC STUB_H200 LD_LIBRARY_PATH
. tools/env.sh
export KILN_CACHE_DIR=$work/cache
sed -n 's/^    //; /^-- fleet.lua/,/^return rows/p' docs/pack.md >"$work/fleet.lua"
works pack build --manifest "$work/fleet.lua" --dry-run --json
figures kernels 34
cat >"$work/small.lua" <<'END'
local rows = {}
for _, arch in ipairs({ "sm_90a", "sm_80" }) do
  local row = { arch = arch, algorithm = "flash", dtype = "bf16", head_dim = 64, mask = "none" }
  table.insert(rows, row)
end
return rows
END
works pack build --manifest "$work/small.lua" -o "$work/manifest.pack" --json
figures kernels 2
holds "a manifest and flags give the same bytes" cmp "$a" "$work/manifest.pack"
try pack build --manifest "$work/small.lua" --max-size 80K -o "$work/never.pack"
holds "--max-size holds for a manifest: $rc" [ "$rc" = 1 ]
holds "and nothing is written" [ ! -e "$work/never.pack" ]
refuses 1 "--manifest takes the kernels from $work/small.lua; leave --head-dim out, or --manifest" \
  pack build --manifest "$work/small.lua" --head-dim 64
refuses 1 "--from takes the kernels from x; leave --manifest out, or --from" \
  pack build --manifest "$work/small.lua" --from x
refuses 18 "$work/none cannot be read (No such file or directory)" \
  pack build --manifest "$work/none"
printf 'return {\n  { headdim = 64 },\n}\n' >"$work/wrong.lua"
refuses 1 "$work/wrong.lua: row 1: there is no field 'headdim'; the fields are arch, pass, \
algorithm, dtype, head_dim, head_dim_v, mask, deterministic, block_m, block_n, num_stages, \
num_warps" \
  pack build --manifest "$work/wrong.lua" --dry-run
head -c 1048577 /dev/zero >"$work/wrong.lua"
refuses 1 "$work/wrong.lua is larger than 1048576 bytes" pack build --manifest "$work/wrong.lua"

# ---- what a run asked for ----
asked=$work/asked.jsonl
run() { KILN_RECORD=$asked works run --device emu --check --o "$work/o.npy" "$@"; }
q=tests/data/minilm.safetensors
for arch in sm_80 sm_90a sm_80; do
  run --q "$q:layer0.q" --k "$q:layer0.k" --v "$q:layer0.v" --arch "$arch"
done
holds "a problem a process" [ "$(wc -l <"$asked")" = 3 ]
line='{"arch":"sm_80","algorithm":"flash","dtype":"fp16","head_dim":32,"head_dim_v":32,'
line+='"mask":"none","batch":1,"seqlen_q":81,"seqlen_k":81,"num_heads":12,"num_heads_k":12}'
holds "a line is $(head -n 1 "$asked")" [ "$(head -n 1 "$asked")" = "$line" ]
sed 's/"seqlen_q":81/"seqlen_q":82/' "$asked" >"$work/more.jsonl"
cat "$asked" >>"$work/more.jsonl"
works pack build --from "$work/more.jsonl" --dry-run --json
figures kernels 2
works pack build --from "$work/more.jsonl" -o "$work/from.pack" --json
figures kernels 2
works pack ls "$work/from.pack" --json
figures head_dim 32 32
refuses 1 "--from takes the kernels from $asked; leave --head-dim out, or --from" \
  pack build --from "$asked" --head-dim 64
echo '{"head_dim":59}' >"$work/bad.jsonl"
try pack build --from "$work/bad.jsonl" -o "$work/worse.pack"
holds "a bad problem is refused: $rc" [ "$rc" = 1 ]
holds "and nothing is written" [ ! -e "$work/worse.pack" ]
: >"$work/empty.jsonl"
refuses 1 "$work/empty.jsonl holds no problem" pack build --from "$work/empty.jsonl"
KILN_RECORD=$work/none/asked.jsonl try run --device emu --q "$q:layer0.q" --k "$q:layer0.k" \
  --v "$q:layer0.v" --o "$work/o.npy"
holds "a record that cannot be written is one warning: $rc" [ "$rc" = 0 ]
holds "which names it" [ "$(grep -c "KILN_RECORD: $work/none/asked.jsonl" "$work/stderr")" = 1 ]

# ---- the backward pass: packed where it is asked for, beside another mode of itself ----
both="--arch sm_80 --algorithm flash --dtype bf16 --head-dim 64 --mask none"
# shellcheck disable=SC2086
try pack build $both --dry-run --json
holds "the pass is forward unless it is given: $(cat "$work/stdout")" [ "$(field kernels)" = 1 ]
# shellcheck disable=SC2086
works pack build $both --pass backward --deterministic -o "$work/backward.pack"
works pack ls "$work/backward.pack" --json
figures pass backward
figures deterministic 1
printf "return { { arch = 'sm_80', algorithm = 'flash', dtype = 'bf16', head_dim = 64, \
mask = 'none', pass = 'backward', deterministic = { 0, 1 } } }\n" >"$work/modes.lua"
works pack build --manifest "$work/modes.lua" -o "$work/modes.pack"
works pack ls "$work/modes.pack" --json
figures deterministic 0 1
figures default true true

finish
