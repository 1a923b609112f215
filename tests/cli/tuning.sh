#!/usr/bin/env bash
# tests/gpu/tuning.sh without a GPU: over the stub driver, with tests/data/measurer in the place of
# kiln-measure. What the stub cannot do is left out: it knows no graphs, and computes nothing.
set -u
cd "$(dirname "$0")/../.." || exit
. tests/cli/lib.sh
. tools/env.sh
build=$(cd "${BUILD:-build}" && pwd)
export LD_LIBRARY_PATH=$build/tests/stub${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} STUB_H200=1
tree=$work/tree
holds "installs" cmake --install "$build" --prefix "$tree" >"$work/log" 2>&1
measurer=$(find "$tree" -name kiln-measure)
cp tests/data/measurer "$measurer"
# The folder of the libraries is not lib everywhere.
[ -e "$tree/lib/libkiln.so" ] || ln -sfn "$(dirname "$(find "$tree" -name libkiln.so)")" "$tree/lib"

# runs VERDICT PARTS: these parts end so, and the last of them was met.
runs() {
  local verdict=$1 last=${2##*|}
  ONLY=$2 tests/gpu/tuning.sh "$tree" "$work/out" >"$work/stdout" 2>&1
  holds "$2 ended with: $(grep -E 'FAILED|passed' "$work/stdout" | head -c 1000)" \
    grep -qE "$verdict" "$work/stdout"
  holds "$2 met $last" grep -q "^$last, " "$work/stdout"
}
runs '^[1-9][0-9]+ passed, 0 failed$' 'same|far|illegal|lengths|many'

# A tuner whose choice is by chance is found, and one that finds its device noisy is not blamed.
sed 's/math.abs(n - 80)/math.abs(n - WANTED)/; 4i WANTED = io.open(os.getenv("FLIP")) and 64 or 80 \
io.open(os.getenv("FLIP"), "a"):close()' tests/data/measurer >"$measurer"
FLIP=$work/flip runs '^FAILED: idle-2 chooses as idle-1 does' same
for apart in 7.98 7.96; do # by the medians of the one tuning, and of the other
  holds "by how much: $apart" \
    grep -q "  128x80x2x12 and 128x64x2x12: $apart % apart, a tie is 1.5" "$work/stdout"
done
sed 's/count % 7 \* 10/count % 7 * 20000/' tests/data/measurer >"$measurer"
runs '^[1-9][0-9]* passed, 0 failed$' same
holds "no choice is a verdict too: $(head -c 300 "$work/out/idle-1.log")" \
  grep -q "its times spread too widely" "$work/out/idle-1.log"
finish
