# The same training step here and in PyTorch, side by side: a Llama of 30 M parameters from the same weights on the same text, the
# rounds alternating.  Prints seconds, ratios of medians and both sides' losses, which must be equal within rounding.
#   compare.py AUTOSP OUT [--rounds N] [--seq S] [--dtype f32|bf16] [--steps N] [--against eager,compile,checkpoint,ulysses]
# ulysses is compared on 2 ranks of 1 thread, the others on 1 rank of 2 threads.  Exit 1 beyond a bound or where losses differ.
# Neighbours: torch_step.py (their step), run.sh (the virtual environment).  SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Of their time, at most: by what is compared, dtype and S.
BOUNDS = {
    ("eager", "f32", 4096): 0.8,
    ("compile", "f32", 1024): 1 / 2.0,
    ("compile", "f32", 4096): 1 / 2.3,
    ("compile", "f32", 16384): 1 / 2.6,
    ("compile", "bf16", 4096): 1 / 2.0,
    ("compile", "bf16", 16384): 1 / 2.8,
    ("ulysses", "f32", 4096): 1 / 2.4,
    ("ulysses", "f32", 16384): 1 / 2.4,
}
LOSS_BOUND = {"f32": 2e-4, "bf16": 2e-2}  # relative: sums in other orders, after some steps of AdamW


def lines_of(command):
    return [json.loads(x) for x in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines() if x[:1] == "{"]


def ours(autosp, model, data, o, ranks):
    command = [autosp, "train", "--model", model, "--data", data, "--seq", str(o.seq), "--ranks", str(ranks), "--threads", str(2 // ranks)]
    records = lines_of([*command, "--steps", str(o.steps), "--dtype", o.dtype, "--json", "-"])
    steps = [r for r in records if r["record"] == "step"]
    plan = next(r for r in records if r["record"] == "plan")
    at_peak = statistics.median([r["mfu"] * r["seconds"] for r in steps if r["mfu"]] or [0])
    return {"loss": [r["loss"] for r in steps], "seconds": [r["seconds"] for r in steps], "flops": plan["flops"] * ranks, "at_peak": at_peak}


def theirs(how, model, data, o):
    ranks = 2 if how == "ulysses" else 1
    start = [sys.executable]
    if ranks > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return lines_of([*start, HERE + "/torch_step.py", how, model, data, str(o.seq), str(2 // ranks), str(o.steps), o.dtype])[0]


def prepare(out, seq):
    """A folder with config and weights, and a text of exactly one sequence."""
    model, data = out + "/model", out + "/text"
    os.makedirs(model, exist_ok=True)
    shutil.copy(HERE + "/llama-30m.json", model + "/config.json")
    subprocess.run([sys.executable, HERE + "/torch_step.py", "init", model], check=True)
    source = "/usr/share/common-licenses/GPL-3"
    with open(source if os.access(source, os.R_OK) else HERE + "/../../LICENSE", "rb") as f, open(data, "wb") as t:
        text = f.read()
        t.write((text * (seq // len(text) + 1))[:seq])
    return model, data


def main():
    p = argparse.ArgumentParser()
    p.add_argument("autosp")
    p.add_argument("out")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seq", type=int, default=4096)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    p.add_argument("--against", default="eager")
    o = p.parse_args()
    model, data = prepare(o.out, o.seq)
    peers = o.against.split(",")
    runs = {}
    for _ in range(o.rounds):
        for ranks in sorted({2 if how == "ulysses" else 1 for how in peers}):
            runs.setdefault(f"autosp, {ranks} x {2 // ranks}", []).append(ours(o.autosp, model, data, o, ranks))
        for how in peers:
            runs.setdefault(how, []).append(theirs(how, model, data, o))
    print(f"30 M Llama, {o.dtype}, S = {o.seq}, ranks x threads; {o.rounds} rounds of {o.steps} steps, the first of each not counted")
    mine = next(runs[name][0] for name in runs if name.startswith("autosp"))
    if mine["at_peak"]:
        print(f"{mine['flops'] / 1e9:.0f} GFLOP take {mine['at_peak']:.3f} s at the f32 peak of 2 cores")
    print(f"{'':16}{'best s':>9}{'median s':>9}{'of peak':>9}{'ratio':>8}{'bound':>8}{'first loss':>12}{'last loss':>12}")
    return 1 if any([not print_row(name, runs, o) for name in runs]) else 0


def steady(results):
    """Seconds of all steps but the first of each round."""
    return [t for r in results for t in r["seconds"][1:]]


def print_row(name, runs, o):
    """One side's row; of a peer also the ratio. False beyond its bound or where losses differ."""
    seconds, loss = steady(runs[name]), runs[name][0]["loss"]
    ratio, bound, equal = None, None, True
    at_peak = next(runs[x][0]["at_peak"] for x in runs if x.startswith("autosp"))
    if not name.startswith("autosp"):
        mine = runs["autosp, 2 x 1" if name == "ulysses" else "autosp, 1 x 2"]
        ratio = statistics.median(steady(mine)) / statistics.median(seconds)
        bound = BOUNDS.get((name, o.dtype, o.seq))
        equal = all(abs(a - b) <= LOSS_BOUND[o.dtype] * abs(b) for a, b in zip(mine[0]["loss"], loss, strict=True))
    columns = f"{at_peak / statistics.median(seconds):>9.2f}" if at_peak else f"{'':9}"
    columns += f"{f'{ratio:.3f}' if ratio else '':>8}{f'{bound:.3f}' if bound else '':>8}"
    note = "" if equal else "   losses differ"
    print(f"{name:16}{min(seconds):9.3f}{statistics.median(seconds):9.3f}{columns}{loss[0]:12.6f}{loss[-1]:12.6f}{note}")
    return equal and (bound is None or ratio <= bound)


sys.exit(main())
