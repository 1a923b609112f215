#!/usr/bin/env bash
# tools/gpu/conformance.sh FOLDER: writes the cases of tests/conformance and their cubins into
# FOLDER, for tools/gpu/conformance.py on a machine with a GPU.
#   BUILD   build directory (default: build)
set -eu
cd "$(dirname "$0")/../.."
. tools/env.sh
mkdir -p "$1"
lua5.4 tests/conformance/compose.lua "$1"
"${BUILD:-build}/tests/kiln_conformance" compile "$1"
