#!/bin/sh
# Bytes of the arena that no value takes, of every model family under every policy, tiled and not: planned, nothing runs.
#   bench/fragments.sh [autosp=build/release/autosp] [seq=4096] [ranks=2]
# Fails beyond 2 % of an arena.  SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
autosp=${1:-build/release/autosp} seq=${2:-4096} ranks=${3:-2}
own=$(mktemp -d) # GPT-2's table of positions is as long as it says
trap 'rm -r "$own"' EXIT
sed "s/\"n_positions\": *[0-9]*/\"n_positions\": $seq/; s/\"n_ctx\": *[0-9]*/\"n_ctx\": $seq/" tests/models/gpt2/config.json > "$own/config.json"
for model in "$own" tests/models/llama tests/models/mistral tests/models/qwen2 tests/models/qwen3 tests/models/gemma2 \
             bench/peers/llama-30m.json bench/peers/llama-8b.json; do
    name=$(basename "$model" .json)
    [ "$model" != "$own" ] || name=gpt2
    for ac in none default sac layer budget; do
        for tile in off 512; do
            said=$("$autosp" plan --model "$model" --seq "$seq" --ranks "$ranks" --sp ulysses --ac $ac --tile $tile --memory 4000GiB)
            echo "$name $ac $tile $(echo "$said" | sed -n 's/.*fragments .*(\([0-9.]*\) % of the arena).*/\1/p')"
        done
    done
done | awk '{ printf "%-10s %-8s tile %-4s %6.2f %%\n", $1, $2, $3, $4; n++; if (NF != 4) bad = 1; if ($4 > worst) worst = $4 }
            END { printf "worst of %d plans: %.2f %%\n", n, worst; exit bad || n == 0 || worst > 2 }'
