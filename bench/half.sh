#!/bin/sh
# Does training in bf16 follow f32?  The demo in f32, in bf16, and in bf16 without a master copy, step by step on the same batches:
# last losses, their mean over the last ten steps, and the largest difference of a step from f32.
# usage: half.sh [AUTOSP [STEPS [SEQ [RANKS [LR]]]]]      SPDX-License-Identifier: Apache-2.0
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
autosp=${1:-$source/build/release/autosp} steps=${2:-300} seq=${3:-1024} ranks=${4:-2} rate=${5:-3e-3}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for way in "f32" "bf16" "bf16 --master none"; do
    # shellcheck disable=SC2086 # a way is words
    "$autosp" train --model "$source/examples/demo/config.json" --data "$source/LICENSE" "$source/README.md" --seq "$seq" \
        --ranks "$ranks" --seed 1 --steps "$steps" --lr "$rate" --warmup 10 --dtype $way --json "$dir/json" >/dev/null
    grep '"record": "step"' "$dir/json" | sed 's/.*"loss": \([0-9.]*\).*/\1/' >"$dir/loss"
    [ -e "$dir/f32" ] || cp "$dir/loss" "$dir/f32"
    paste "$dir/f32" "$dir/loss" | awk -v steps="$steps" -v way="$way" '
        { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d }
        NR > steps - 10 { f += $1; b += $2; n++ }
        END { printf "%-20s %d steps, last loss %.4f, %.4f from f32; last %d steps %.4f, %.4f from f32; most of a step %.4f\n",
              way, NR, $2, d, n, b / n, (b > f ? b - f : f - b) / n, most }'
done
