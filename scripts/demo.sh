#!/bin/sh
# demo.sh [FILE...]: trains a byte-level Llama on two ranks over the given text, then verifies the same program.
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then # licence texts are on every Debian; the project's own text is everywhere
    set -- $(find /usr/share/common-licenses -maxdepth 1 -type f -readable 2>/dev/null | sort)
    [ $# -gt 0 ] || set -- $(find README.md docs src include -type f \( -name '*.md' -o -name '*.[ch]' \) | sort)
fi
program="--model examples/demo/config.json --seq 4096 --ranks 2 --seed 1"
# shellcheck disable=SC2086 # a list of words
build/release/autosp train $program --data "$@" --steps 120 --lr 3e-3 --warmup 10 --clip 1
# shellcheck disable=SC2086
build/release/autosp verify $program --data "$@"
