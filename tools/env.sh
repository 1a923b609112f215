# Sourced by scripts that run kiln from the root of a checkout: names the private NVRTC that
# tools/deps.sh fetched, where there is one and the user has not chosen another.
if [ -z "${KILN_NVRTC:-}" ]; then
  for kiln_file in "$PWD"/.deps/nvrtc/nvidia/*/lib/libnvrtc.so.[0-9]*; do
    [ ! -e "$kiln_file" ] || export KILN_NVRTC="$kiln_file"
  done
  unset kiln_file
fi
