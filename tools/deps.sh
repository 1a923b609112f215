#!/bin/sh
# tools/deps.sh [--lint]: installs what a fresh Debian 12 machine lacks to build, run and test Kiln.
# When all is there it looks and returns, without a network access. Exit code 0 means that a build
# will find everything; otherwise the last line says what to type.
#   --lint   also clang, clang-format and clang-tidy, which only `make lint` and `make full` need
# Packages come by apt-get, as root or through sudo. NVRTC comes from the CUDA toolkit where one is
# found, otherwise from its wheel into .deps/nvrtc/ of this checkout: nothing else is touched.
set -eu
cd "$(dirname "$0")/.."

wanted_lint=no
for arg in "$@"; do
  case $arg in
  --lint) wanted_lint=yes ;;
  *) echo "deps: unknown argument $arg; the only one is --lint" >&2; exit 2 ;;
  esac
done

say() { echo "deps: $*" >&2; }
has() { command -v "$1" >/dev/null 2>&1; }

# An archive is there when the compiler's own search finds it under a full path.
has_archive() { case $(cc -print-file-name="$1" 2>/dev/null) in /*) true ;; *) false ;; esac; }
has_module() { has pkg-config && pkg-config --exists "$1"; }

# ---- Debian packages ----

missing=""
need() { missing="$missing $1"; }
{ has cc && has make && has objcopy; } || need build-essential
has cmake || need cmake
has pkg-config || need pkg-config
has lua5.4 || need lua5.4
has_module check || need check
has strace || need strace
{ has_module lua5.4 && has_archive liblua5.4.a; } || need liblua5.4-dev
{ has_module jansson && has_archive libjansson.a; } || need libjansson-dev
{ has_module libsodium && has_archive libsodium.a; } || need libsodium-dev
if [ $wanted_lint = yes ]; then
  has clang || need clang
  has clang-format || need clang-format
  has clang-tidy || need clang-tidy
fi

as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"

# Installs Debian packages, or says the line that would and gives up.
install_packages() {
  line="apt-get update && apt-get install -y --no-install-recommends $*"
  if ! has apt-get; then
    say "this machine has no apt-get; install the equivalents of: $*"
    exit 1
  fi
  if [ -n "$as_root" ] && ! { has sudo && sudo -n true 2>/dev/null; }; then
    say "these packages are missing and need root: $*"
    say "type: sudo sh -c '$line'"
    exit 1
  fi
  say "installing $*"
  if ! $as_root apt-get update -qq >&2 ||
     ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
         --no-install-recommends "$@" >&2; then
    say "apt-get failed; look at its message above, then type: $line"
    exit 1
  fi
}

# shellcheck disable=SC2086 # a list of package names
[ -z "$missing" ] || install_packages $missing

# ---- NVRTC ----

private=.deps/nvrtc

# The first libnvrtc of the folders given, or nothing.
first_nvrtc() {
  for folder in "$@"; do
    for file in "$folder"/libnvrtc.so "$folder"/libnvrtc.so.[0-9]*; do
      if [ -e "$file" ]; then
        echo "$file"
        return
      fi
    done
  done
}

python_folders() {
  python3 -c '
import glob, sys
for path in sys.path:
    for folder in glob.glob(path + "/nvidia/*/lib"): print(folder)' 2>/dev/null || true
}

# The order is that of the library's own search (docs: `kiln doctor` prints it).
find_nvrtc() {
  if [ -n "${KILN_NVRTC:-}" ]; then
    echo "$KILN_NVRTC"
    return
  fi
  set --
  for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr/local/cuda-*; do
    [ -z "$home" ] || set -- "$@" "$home/lib64" "$home/lib" "$home"/targets/*/lib
  done
  found=$(first_nvrtc "$@")
  ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
  [ -n "$found" ] ||
    found=$("$ldconfig" -p 2>/dev/null | sed -n 's/.*libnvrtc\.so.* => //p' | head -n 1)
  # shellcheck disable=SC2046 # folders of wheels have no blanks in practice; a miss only downloads
  [ -n "$found" ] || found=$(first_nvrtc $(python_folders))
  [ -n "$found" ] || found=$(first_nvrtc "$private"/nvidia/*/lib)
  echo "$found"
}

# A python3 whose pip works: the system's, or one in a private environment.
python_with_pip() {
  if python3 -m pip --version >/dev/null 2>&1; then
    echo python3
    return
  fi
  [ -x .deps/venv/bin/pip ] || {
    python3 -c 'import ensurepip' 2>/dev/null || install_packages python3-venv
    python3 -m venv .deps/venv >&2
  }
  echo .deps/venv/bin/python3
}

# Says the version, or fails when the file is not an NVRTC that loads here.
nvrtc_version() {
  "$1" -c '
import ctypes, sys
major, minor = ctypes.c_int(), ctypes.c_int()
if ctypes.CDLL(sys.argv[1]).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)): sys.exit(1)
print("%d.%d" % (major.value, minor.value))' "$2"
}

download_nvrtc() {
  python=$(python_with_pip) || exit 1
  rm -rf .deps/download "$private.new"
  mkdir -p .deps/download
  for wheel in 'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cuda-nvrtc-cu12>=12.8'; do
    say "no NVRTC found; fetching $wheel into $private (about 90 MB)"
    if "$python" -m pip download -q --no-deps --only-binary=:all: -d .deps/download "$wheel" >&2 &&
       "$python" -m zipfile -e .deps/download/*.whl "$private.new"; then
      break
    fi
    rm -rf .deps/download/* "$private.new"
  done
  rm -rf .deps/download
  library=$(first_nvrtc "$private.new"/nvidia/*/lib)
  if [ -z "$library" ] || ! version=$(nvrtc_version "$python" "$PWD/$library"); then
    rm -rf "$private.new"
    say "NVRTC could not be fetched; install the CUDA toolkit, or set KILN_NVRTC to its libnvrtc.so"
    exit 1
  fi
  rm -rf "$private"
  mv "$private.new" "$private"
  say "NVRTC $version is in $private; outside of make, set KILN_NVRTC to $PWD/$(find_nvrtc)"
}

if [ -n "${KILN_NVRTC:-}" ] && [ ! -e "$KILN_NVRTC" ]; then
  say "KILN_NVRTC names $KILN_NVRTC, which does not exist; correct it or unset it"
  exit 1
fi
[ -n "$(find_nvrtc)" ] || download_nvrtc
