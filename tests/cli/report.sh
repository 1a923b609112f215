#!/usr/bin/env bash
# --report of tune (a replay) and of bench (over the stub driver): the page is whole in itself and
# well-formed, holds what was measured, takes no text for code, and has the same bytes every time.
# report.lua says what must hold of any page.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
. tools/env.sh

journal=tests/data/tuning.jsonl
page="$work/page.html"
replay="tune --arch sm_90a --dtype bf16 --head-dim 256 --no-causal --batch 8 --seqlen-q 2048 \
  --num-heads 8 --device none"

# page LAW...: of report.lua, and xmllint where it is installed.
page() {
  holds "the page" lua5.4 tests/cli/report.lua "$page" "$@"
  if command -v xmllint >/dev/null; then
    holds "xmllint" xmllint --noout "$page"
  else
    skip 1 "xmllint is not installed"
  fi
}

# ---- tune ----
# Eight tiles: a row each, a point each; the chosen one in both roofline and table.
# shellcheck disable=SC2086 # lists of flags
works $replay --simulate $journal --report "$page" --json
json time_us
page "<circle class=\"d =8" "</title></circle>=7" "</title></path>=2" \
  "<span class=\"tag c2\">chosen=1" "<span class=\"tag c1\">default=1" "FLOP per byte</title>=1" \
  "The measured best is 4th of 8 in the model's order=1" "$work=0" "A replay.=1"
for tile in 128x32\ s{2,3,4,5} 128x48\ s{2,3} 128x64\ s2 128x80\ s2; do
  holds "a row of $tile" grep -q "<td class=\"n\">[1-8]</td><td>$tile w12" "$page"
done
holds "the best is first" \
  grep -q '<td class="n">1</td><td>128x48 s3 w12<span class="tag c2">' "$page"
holds "with what is known of it" \
  grep -q '<td class="n">168</td><td class="n">0</td><td class="n">72.0</td>' "$page"
holds "what was printed is on the page" \
  grep -qF "$(sed 's/.*"time_us":\([0-9]*\.[0-9]*\).*/\1/' "$work/stdout" | xargs printf '%.2f')" \
  "$page"
cp "$page" "$work/first.html"
# shellcheck disable=SC2086
works $replay --simulate $journal --report "$page" --json
holds "the same bytes" cmp -s "$page" "$work/first.html"
# shellcheck disable=SC2086
works $replay --simulate $journal --strategy estimate --report "$page"
page "No tile was timed=1" "<circle class=\"d =0" "<svg class=\"chart\"=0"

# More tiles than are shown at once: all are there, the slow ones folded.
for block_n in 16 32 48 64 80 96 112 128 144 160 176 192; do
  for stages in 2 3 4; do
    sed "s/\"head_dim\":256,\"head_dim_v\":256/\"head_dim\":64,\"head_dim_v\":64/
      s/\"block_n\":64,\"num_stages\":2/\"block_n\":$block_n,\"num_stages\":$stages/
      s/38965[0-9]*/38${block_n}$stages/;q" $journal
  done
done >"$work/many.jsonl"
# shellcheck disable=SC2086
works ${replay/256/64} --strategy exhaustive --simulate "$work/many.jsonl" --report "$page" --json
known=$(grep -o '"known":[0-9]*' "$work/stdout" | cut -d: -f2)
holds "there are many: $known" [ "$known" -gt 30 ]
page "<circle class=\"d =$known" "<summary>$((known - 24)) slower ones=1" \
  "<td class=\"n\">$known</td><td>=1"

# A journal whose words are hostile, with a tile that failed.
name='<script>alert(1)<\/script>\&quot;\\" onload=\\"x'
why='"outcome":"hang","reason":"<\/td><img src=x> \&\&"'
sed -e "s/an invented GPU/$name/" \
  -e '/"block_n":32,"num_stages":5/s/"outcome":"timed","reason":""/'"$why/" \
  $journal >"$work/hostile.jsonl"
holds "the journal is hostile" \
  grep -q '"reason":"</td><img.*"name":"<script>' "$work/hostile.jsonl"
# shellcheck disable=SC2086
works $replay --strategy exhaustive --simulate "$work/hostile.jsonl" --report "$page"
page "&lt;script&gt;alert(1)&lt;/script&gt;&amp;quot;&quot; onload=2" \
  "&lt;/td&gt;&lt;img src=x&gt; &amp;&amp;=1" "<td>hang</td>=1" "<circle class=\"d =7"

# ---- bench ----
stub=$(cd "${BUILD:-build}" && pwd)/tests/stub
peers=bench/results/2026-11-29-h200/forward-bf16-1.json
(
  export LD_LIBRARY_PATH=$stub${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} STUB_H200=1
  "$kiln" bench --head-dim 64 --dtype bf16 --seqlen-q 4096,8192,16384 --samples 2 --peers $peers \
    --report "$page" >"$work/stdout" 2>"$work/stderr"
)
holds "bench ends with $? and says $(head -c 300 "$work/stderr")" [ "$?" = 0 ]
page "<b>stub H200</b>=1" "<svg class=\"chart\"=3" "FLOP per byte</title>=6" \
  "<td>sm_90a</td>=6" "on NVIDIA H200=1" "class=\"l c6 dash\"=4" "cudnn=10"

# ---- refusals: nothing is measured first ----
none="$work/none/page.html"
sentence="$none cannot be written (No such file or directory); choose another place with --report"
# shellcheck disable=SC2086
refuses 18 "$sentence" $replay --simulate $journal --records "$work/own.jsonl" --report "$none"
holds "no record was written" [ ! -e "$work/own.jsonl" ]
refuses 18 "$sentence" bench --report "$none"
refuses 18 "$work cannot be written (Is a directory); choose another place with --report" \
  tune --report "$work"
refuses 1 "--peers is drawn on a page; give one by --report FILE.html" bench --peers $peers
refuses 18 "$work/none cannot be read as JSON (unable to open $work/none: No such file or \
directory)" bench --report "$page" --peers "$work/none"
echo '{"rows":[]}' >"$work/empty.json"
refuses 1 "$work/empty.json has no rows with tflops; give a file that bench/peers.py --out wrote" \
  bench --report "$page" --peers "$work/empty.json"
holds "nothing is left behind" [ -z "$(find "$work" -name 'page.html.*')" ]

finish
