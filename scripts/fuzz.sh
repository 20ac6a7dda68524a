#!/bin/sh
# fuzz.sh SECONDS: runs every libFuzzer target that long, as many at once as there are processors.  A finding is left
# in build/fuzz-found/ and makes this fail.  SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
targets=$(ls tests/fuzz/*_fuzz.c | sed 's|.*/||; s|_fuzz\.c$||')
# shellcheck disable=SC2046 # a list of words
scripts/build.sh fuzz $(echo "$targets" | sed 's/$/_fuzz/')
mkdir -p build/fuzz-found
export seconds
echo "$targets" | xargs -P "$(nproc)" -I NAME sh -c '
    mkdir -p "build/fuzz-corpus/NAME"
    build/fuzz/NAME_fuzz -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="build/fuzz-found/NAME-" \
        -print_final_stats=1 "build/fuzz-corpus/NAME" "tests/fuzz/corpus/NAME" >"build/fuzz-NAME.log" 2>&1 || {
        echo "fuzz: NAME found something:"
        grep -v "^#" "build/fuzz-NAME.log" | tail -n 40
        exit 1
    }
    awk "/stat::number_of_executed_units/ { print \"fuzz: NAME: \" \$2 \" runs in $seconds s, nothing found\" }" "build/fuzz-NAME.log"'
