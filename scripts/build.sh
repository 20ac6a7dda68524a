#!/bin/sh
# build.sh PRESET [TARGET...]: configures and builds quietly, with one progress line; the end of the log on failure.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
preset=$1
shift
log=build/$preset.log
mkdir -p build
failed() {
    echo "build: $preset failed; the end of $log:" >&2
    tail -n 40 "$log" >&2
    exit 1
}
cmake --preset "$preset" >"$log" 2>&1 || failed
start=$(date +%s)
status=build/$preset.status
[ -t 1 ] && live=1 || live=0
{
    cmake --build --preset "$preset" ${1:+--target} "$@" 2>&1 && echo ok >"$status" || echo failed >"$status"
} | tee -a "$log" | awk -v live=$live -v preset="$preset" '
    live && /^\[[0-9]+\/[0-9]+\]/ { printf "\rbuild: %s %s ", preset, $1; fflush() }
    END { if (live) printf "\r\033[K" }'
[ "$(cat "$status")" = ok ] || failed
echo "build: $preset is ready in $(($(date +%s) - start)) s"
