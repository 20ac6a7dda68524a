#!/bin/sh
# The same training step here and in PyTorch eager, side by side: float32, a Llama of 30 M parameters, S = 4096, 1 rank with
# 2 threads, the rounds alternating.  Makes its own virtual environment.  The bound is 0.8 of PyTorch's time.
#   run.sh [ROUNDS]     exit 1 beyond the bound
# Neighbours: eager_step.py (their step).  SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-3}
steps=4
venv=build/peers-venv
out=build/peers
data=/usr/share/common-licenses/GPL-3
[ -r $data ] || data=LICENSE
mkdir -p $out
if [ ! -e $venv/whole ]; then
    python3 -m venv $venv
    $venv/bin/pip install --quiet torch==2.13.0 numpy
    touch $venv/whole
fi
rm -f $out/*.json
for i in $(seq "$rounds"); do
    build/release/autosp train --model bench/peers/llama-30m.json --data $data --seq 4096 --ranks 1 --threads 2 \
        --steps $steps --json $out/autosp-"$i".json >/dev/null
    $venv/bin/python bench/peers/eager_step.py bench/peers/llama-30m.json $data 4096 2 $steps >$out/eager-"$i".json
done
exec $venv/bin/python - $out <<'EOF'
import glob, json, statistics, sys
ours, theirs = [], []
for name in sorted(glob.glob(sys.argv[1] + "/*.json")):
    with open(name) as f:
        records = [json.loads(line) for line in f]
    if "eager" in name:
        theirs += records[0]["seconds"][1:]                               # the first step warms up
    else:
        ours += [r["seconds"] for r in records if r["record"] == "step"][1:]
print(f"30 M Llama, float32, S = 4096, 1 rank x 2 threads, seconds a step; {len(ours)} steps each")
print(f"{'':18}{'best':>8}{'median':>8}")
for name, t in ("autosp", ours), ("PyTorch eager", theirs):
    print(f"{name:18}{min(t):8.3f}{statistics.median(t):8.3f}")
ratio = statistics.median(ours) / statistics.median(theirs)
print(f"{'ratio':18}{min(ours) / min(theirs):8.3f}{ratio:8.3f}   bound 0.8")
sys.exit(ratio > 0.8)
EOF
