#!/bin/sh
# Finds what the build needs and installs what is missing on Debian and Ubuntu; elsewhere prints the
# names and stops with 2.  --dev adds what tests, sanitizers and CI need.  Prints one line when all is there.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
dev=no
[ "${1:-}" != --dev ] || dev=yes
log=build/deps.log
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

has() { command -v "$1" >/dev/null 2>&1; }
has_header() { echo "#include <$1>" | cc -E -x c - >/dev/null 2>&1; }
has_recent_cmake() { # presets with workflows
    has cmake && cmake --version | awk 'NR == 1 { split($3, v, "."); exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 25)) }'
}
has_libfuzzer() {
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return !d && n; }' >"$scratch/f.c"
    has clang && clang -fsanitize=fuzzer,address,undefined "$scratch/f.c" -o "$scratch/f" >/dev/null 2>&1
}
known() { apt-cache show "$1" >/dev/null 2>&1; }

# What is missing: names for people, and Debian packages.
look() {
    names='' packages='' optional=''
    miss() { names="$names${names:+, }$1" packages="$packages $2"; }
    if ! has cc || ! has_header stdio.h; then miss 'a C compiler' 'gcc libc6-dev'; fi
    has_recent_cmake || miss 'CMake 3.25 or newer' cmake
    has ninja || miss ninja ninja-build
    has pkg-config || miss pkg-config pkg-config
    has_header jansson.h || miss jansson libjansson-dev
    has_header xxhash.h || miss xxhash libxxhash-dev
    has_header cmocka.h || miss cmocka libcmocka-dev
    if ! has mpicc || ! has mpirun; then miss 'Open MPI' 'openmpi-bin libopenmpi-dev'; fi
    has_header oneapi/dnnl/dnnl.h || { miss oneDNN libdnnl-dev && optional="$optional libdnnl-dev"; }
    [ $dev = yes ] || return 0
    has_libfuzzer || miss 'clang with its sanitizers' 'clang llvm libclang-rt-dev'
    has clang-format-14 || { miss 'clang-format 14' clang-format-14 && optional="$optional clang-format-14"; }
    python3 -c 'import venv, ensurepip' >/dev/null 2>&1 || miss 'Python 3 with venv' 'python3 python3-venv'
}

# The package that holds clang's run-time libraries carries clang's version in its name.
real_name() {
    case $1 in
    libclang-rt-dev)
        v=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
        known "libclang-rt-$v-dev" && echo "libclang-rt-$v-dev" || true ;;
    libdnnl-dev) if known libdnnl-dev; then echo libdnnl-dev; elif known libonednn-dev; then echo libonednn-dev; fi ;;
    clang-format-14) if known clang-format-14; then echo clang-format-14; fi ;;
    *) echo "$1" ;;
    esac
}

stop() {
    echo "deps: missing: $names" >&2
    echo "deps: $1" >&2
    exit 2
}

look
if [ -z "$names" ]; then
    echo "deps: everything is there"
    exit 0
fi
has apt-get || stop "install these with your package manager, then run this again (Debian's names:$packages)"
sudo=''
if [ "$(id -u)" != 0 ]; then
    has sudo || stop "as root: apt-get install$packages"
    sudo='sudo'
    sudo -n true 2>/dev/null || [ -t 0 ] || stop "as root: apt-get install$packages"
fi
echo "deps: installing $names"
mkdir -p build
export DEBIAN_FRONTEND=noninteractive
if ! $sudo apt-get update >"$log" 2>&1; then echo "deps: apt-get update failed (see $log); trying with the lists at hand" >&2; fi
wanted=''
for p in $packages; do wanted="$wanted $(real_name "$p")"; done
# shellcheck disable=SC2086 # a list of words
if ! $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $wanted >>"$log" 2>&1; then
    tail -n 5 "$log" >&2
    stop "apt-get install$wanted failed; the whole story is in $log"
fi
look
left=''
for p in $packages; do # what this system does not offer and the build can do without
    case " $optional " in *" $p "*) ;; *) left="$left $p" ;; esac
done
[ -z "$left" ] || stop "still missing after apt-get install (too old here?); see $log"
[ -z "$names" ] || echo "deps: going on without $names, which this system does not offer"
