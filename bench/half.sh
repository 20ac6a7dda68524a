#!/bin/sh
# Does training in bf16 follow f32?  The demo in both, step by step on the same batches: last losses,
# their mean over the last ten steps, and the largest difference of a step.
# usage: half.sh [AUTOSP [STEPS [SEQ [RANKS]]]]      SPDX-License-Identifier: Apache-2.0
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
autosp=${1:-$source/build/release/autosp} steps=${2:-300} seq=${3:-1024} ranks=${4:-2}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for dtype in f32 bf16; do
    "$autosp" train --model "$source/examples/demo/config.json" --data "$source/LICENSE" "$source/README.md" --seq "$seq" \
        --ranks "$ranks" --seed 1 --steps "$steps" --lr 3e-3 --warmup 10 --dtype $dtype --json "$dir/$dtype" >/dev/null
    grep '"record": "step"' "$dir/$dtype" | sed 's/.*"loss": \([0-9.]*\).*/\1/' >"$dir/$dtype.loss"
done
paste "$dir/f32.loss" "$dir/bf16.loss" | awk -v steps="$steps" '
    { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d }
    NR > steps - 10 { f += $1; b += $2; n++ }
    END { printf "%d steps, last loss %.4f in f32, %.4f in bf16: %.4f apart; last %d steps %.4f and %.4f; most of a step %.4f\n",
          NR, $1, $2, $1 - $2, n, f / n, b / n, most }'
