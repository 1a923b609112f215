#!/usr/bin/env bash
# tests/conformance/run.sh: the emulator against the recorded answers of an H200, h200.txt and .bin.
#   BUILD   build directory (default: build)
set -eu
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
lua5.4 tests/conformance/compose.lua "$folder"
"${BUILD:-build}/tests/kiln_conformance" compare "$folder" "${1:-tests/conformance/h200}"
