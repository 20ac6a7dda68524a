#!/bin/sh
# The kernels on 64-bit Arm: cross-built, their tests under user-mode emulation.  Installs what it needs on Debian and Ubuntu;
# exits with 77 where that is not to be had.  SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
log=build/aarch64-deps.log
mkdir -p build
is_there() {
    command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64-static >/dev/null &&
        [ -e /usr/lib/aarch64-linux-gnu/libcmocka.so ] && [ -e /usr/lib/aarch64-linux-gnu/libjansson.so ]
}
install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    dpkg --add-architecture arm64 && apt-get update &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends gcc-aarch64-linux-gnu qemu-user-static \
            libjansson-dev:arm64 libcmocka-dev:arm64
}
if ! is_there && ! { install >"$log" 2>&1 && is_there; }; then
    echo "aarch64: no cross compiler or emulator here (see $log): not run" >&2
    exit 77
fi
tests=$(ls tests/unit/kern/*_test.c | sed 's|.*/\(.*\)_test.c|test_kern_\1|')
# shellcheck disable=SC2086 # a list of words
scripts/build.sh aarch64 $tests
ctest --preset aarch64
