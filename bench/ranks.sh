#!/bin/sh
# Tokens a second of 2 ranks x 1 thread against 1 rank x 2 threads, rounds alternating: what sequence parallelism costs inside one
# machine.  The 30 M Llama of bench/peers.
#   ranks.sh [ROUNDS [SEQ]]
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-3}
seq=${2:-4096}
out=build/bench-ranks
data=/usr/share/common-licenses/GPL-3
[ -r $data ] || data=LICENSE
mkdir -p $out
rm -f $out/*.json
for i in $(seq "$rounds"); do
    for ranks in 1 2; do
        build/release/autosp train --model bench/peers/llama-30m.json --data $data --seq "$seq" --ranks $ranks \
            --threads $((2 / ranks)) --steps 3 --json $out/$ranks-"$i".json >/dev/null
    done
done
exec python3 - $out "$seq" <<'EOF'
import glob, json, statistics, sys
rate = {}
for ranks in "1", "2":
    seconds, waits = [], []
    for name in glob.glob(f"{sys.argv[1]}/{ranks}-*.json"):
        with open(name) as f:
            steps = [r for r in map(json.loads, f) if r["record"] == "step"][1:]  # the first warms up
        seconds += [r["seconds"] for r in steps]
        waits += [r["exchange_seconds"] / r["seconds"] for r in steps]
    rate[ranks] = int(sys.argv[2]) / statistics.median(seconds)
    print(f"{ranks} rank x {2 // int(ranks)} thread: {rate[ranks]:8.1f} tokens/s, exchanging {100 * statistics.median(waits):.1f} % of the step")
print(f"2 ranks against 1: {rate['2'] / rate['1']:.3f}")
EOF
