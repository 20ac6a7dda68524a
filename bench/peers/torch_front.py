# What autosp.compile claims inside PyTorch, against PyTorch by itself and against the same thing written by hand.  Four parts:
#   one       a Hugging Face Llama on one rank beside plain torch.compile: seconds of a step by turns, bytes of tensors at its peak, and
#             whether the compiled graphs hold a tensor of S x S elements.  Bounds: 2 times faster, a third of the bytes, none.
#   longest   the longest sequence of a 30 M Llama on two ranks whose step makes at most --cap beside parameters and AdamW's state
#             (gradients are of it): by the peak that is foretold at compile time, nothing of that length runs; then a step at the length
#             for --small, its peak foretold and counted (bound: 5 %), and what the process grew by.  With --run N a step of N tokens within
#             --cap instead.
#   compile   a Llama of --deep layers on two ranks: processor time of a compilation, of that the second trace, Python and C of ours
#             (bounds: 1 s, and 15 % with the trace); whether other lengths compile again.
#   step      a Llama of --layers layers on two ranks: seconds of a step beside Ulysses written by hand over the same kernels, by turns
#             (bound: 2 %).
#   torch_front.py [--only one,longest,compile,step] [--tokens 4096] [--layers 8] [--width 512] [--deep 32]
#     [--steps 3] [--threads 1] [--ac sac] [--cap 1536] [--small 192] [--run 0]
# AUTOSP_LIBRARY names libautosp.so; run it in a virtual environment with torch and transformers (build/venv).  Exit 1 beyond a bound.
# Neighbours: torch_hand.py (the model, and Ulysses by hand), live_bytes.py (counting), deepspeed_autosp.py (the 30 M Llama).
# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import deepspeed_autosp
import torch
import torch.distributed as dist
import torch_hand
from live_bytes import count, growth
from torch._inductor.custom_graph_pass import CustomGraphPass

MIB = 2**20
PARTS = ("one", "longest", "compile", "step")
RANKS = {"one": 1, "longest": 2, "compile": 2, "step": 2}
FASTER, LOWER, FORETOLD, OURS_SECONDS, TRACE_SHARE, BY_HAND = 2.0, 3.0, 0.05, 1.0, 0.15, 0.02
VOCAB = 4096


def say(rank, text):
    if rank == 0:
        print(text, flush=True)


def bound(rank, what, ok):
    say(rank, f"  {'holds' if ok else 'MISSED'}: {what}")
    return ok


def tokens_of(n, seed=1):
    return torch.randint(3, VOCAB, (1, n), generator=torch.Generator().manual_seed(seed))


def by_turns(runs, steps):
    """Median seconds of two functions, run by turns, and the median of the first's by the second's: what else the machine does falls on
    both."""
    seconds = {name: [] for name in runs}
    for i in range(steps):
        for name in list(runs)[::1 if i % 2 else -1]:
            if dist.is_initialized():
                dist.barrier()
            start = time.perf_counter()
            runs[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(s) for name, s in seconds.items()}, statistics.median(a / b for a, b in zip(*seconds.values()))


# ---- one rank beside plain torch.compile ----

class Largest(CustomGraphPass):
    """Sees each graph that Inductor is about to make code of."""

    def __init__(self):
        self.elements, self.what = 0, ""

    def uuid(self):
        return None

    def __call__(self, graph):
        for n in graph.nodes:
            v = n.meta.get("val")
            for t in v if isinstance(v, (tuple, list)) else (v,):
                if isinstance(t, torch.Tensor):
                    elements = torch.Size([int(d.node.hint) if isinstance(d, torch.SymInt) else int(d) for d in t.shape]).numel()
                    if elements > self.elements:
                        self.elements, self.what = elements, f"{n.name} {list(map(str, t.shape))}"


def llama(layers, width, tokens):
    import transformers

    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=width, intermediate_size=width * 11 // 4, num_hidden_layers=layers, num_attention_heads=width // 64,
        num_key_value_heads=width // 128,
        max_position_embeddings=tokens, use_cache=False))


def one(a, rank):
    import autosp

    ids, runs, seen, peaks = tokens_of(a.tokens), {}, {}, {}
    for name in ("torch.compile", "autosp"):
        model = llama(a.layers, a.width, a.tokens)
        model = autosp.compile(model, sp=1, ac=a.ac) if name == "autosp" else torch.compile(model)
        optimizer, seen[name] = torch.optim.AdamW(model.parameters(), fused=True), Largest()

        def step(model=model, optimizer=optimizer):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.item()

        with torch._inductor.config.patch(post_grad_custom_post_pass=seen[name], fx_graph_cache=False):
            first = step()
        peaks[name] = count(step)
        runs[name] = step
        say(rank, f"{name:16} first loss {first:.6f}, peak of tensors {peaks[name] / MIB:.1f} MiB, "
                  f"largest tensor {seen[name].elements / a.tokens**2:.3f} S x S: {seen[name].what}")
    t, faster = by_turns(runs, a.steps)
    lower = peaks["torch.compile"] / peaks["autosp"]
    say(rank, f"Hugging Face Llama, {a.layers} layers of {a.width}, S = {a.tokens}: seconds a step " + ", ".join(f"{k} {v:.3f}" for k, v in t.items()))
    return all([bound(rank, f"{faster:.2f} times faster than torch.compile ({FASTER})", faster >= FASTER),
                bound(rank, f"{lower:.2f} times lower peak ({LOWER})", lower >= LOWER),
                bound(rank, "no tensor of S x S elements", seen["autosp"].elements < a.tokens**2)])


# ---- the longest sequence ----

class Told(Exception):
    """What is kept was chosen, which is all that was asked."""


def states_of(model):
    from autosp.backend import states_bytes

    return states_bytes(list(model.parameters()))


def foretell(tokens, budget, ranks):
    """The peak of the fastest choice within a budget for what a step makes, or the smallest peak there is.  Nothing runs."""
    import autosp
    from autosp import policy

    torch._dynamo.reset()
    model, choose = deepspeed_autosp.build("plain", True, tokens), policy.Partitioner._choose

    def chosen(self, *args):
        choose(self, *args)
        raise Told(self.peak)

    autosp.compile(model, sp=ranks, memory=budget + states_of(model), check=False)
    policy.Partitioner._choose = chosen
    try:
        model(input_ids=tokens_of(tokens), labels=tokens_of(tokens), position_ids=torch.arange(tokens)[None])
    except Exception as e:
        smallest = re.search(r"the smallest that was found is (\d+)", str(e))
        told = e if isinstance(e, Told) else getattr(e, "inner_exception", None)
        if not smallest and not isinstance(told, Told):
            raise
        return int(smallest[1]) if smallest else told.args[0]
    finally:
        policy.Partitioner._choose = choose
        autosp.restore(model)


def longest_for(budget, ranks, unit=256):
    """The peak grows about linearly with the tokens: by straight lines through what was foretold, then by units."""
    fits, lower, n = {}, (0, 0), 2048
    while True:
        smallest = foretell(n, 1, ranks)
        fits[n] = smallest <= budget
        slope = (smallest - lower[1]) / (n - lower[0])
        at = int(n + (budget - smallest) / slope) // unit * unit if slope > 0 else n + unit
        best, worst = max((k for k, ok in fits.items() if ok), default=0), min((k for k, ok in fits.items() if not ok), default=None)
        if fits[n]:
            lower = (n, smallest)
        at = max(at, best + unit)
        at = min(at, worst - unit) if worst else at
        if at <= best or at in fits or len(fits) > 8:
            return best
        n = at


def longest(a, rank):
    import autosp

    ranks = RANKS["longest"]
    held = True
    if not a.run:
        n = longest_for(a.cap * MIB, ranks)
        say(rank, f"30 M Llama on {ranks} ranks, f32: foretold to make at most {a.cap} MiB a rank up to S = {n}")
        held = a.cap != 1536 or bound(rank, "36,000 tokens", n >= 36000)
    budget = a.cap if a.run else a.small
    n = a.run or longest_for(budget * MIB, ranks)
    torch._dynamo.reset()
    model = deepspeed_autosp.build("plain", True, n)
    gradients = sum(p.numel() * p.element_size() for p in model.parameters())
    autosp.compile(model, sp=ranks, memory=budget * MIB + states_of(model))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = {"input_ids": tokens_of(n), "labels": tokens_of(n), "position_ids": torch.arange(n)[None]}

    def step():
        model(**batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    start, counted = time.perf_counter(), []
    step()
    first, start = time.perf_counter() - start, time.perf_counter()
    grew = growth(lambda: counted.append(count(step)))
    seconds, said = time.perf_counter() - start, model._compiled_call_impl.backend.partitioner.peak
    say(rank, f"at most {budget} MiB (of that gradients {gradients / MIB:.1f}): S = {n}, foretold {said / MIB:.2f}, counted "
              f"{counted[0] / MIB:.2f}, the process grew by {grew / MIB:.1f} MiB; first step {first:.1f} s, the other {seconds:.1f}")
    near = abs(said / counted[0] - 1)
    return held and bound(rank, f"the foretold peak is within {near:.2%} of the counted one", near <= FORETOLD)


# ---- what compiling and exchanging cost ----

@contextlib.contextmanager
def timed(where, name, into):
    """Processor seconds of a function, added up."""
    f = getattr(where, name)

    def run(*args, **kwargs):
        start = time.process_time()
        try:
            return f(*args, **kwargs)
        finally:
            into[name] = into.get(name, 0) + time.process_time() - start

    setattr(where, name, run)
    try:
        yield
    finally:
        setattr(where, name, f)


def compile(a, rank):
    import autosp
    from autosp import api, backend, graph, policy

    ranks = RANKS["compile"]
    model, spent = torch_hand.Llama(a.deep, width=256), {}
    autosp.compile(model, sp=ranks, strategy="ulysses", ac=a.ac)
    with timed(graph, "retrace", spent), timed(backend, "transform", spent), timed(backend, "agree", spent), \
            timed(policy.Partitioner, "_choose", spent), timed(api, "check_batch", spent):
        seconds = []
        for n in (256, 320, 384):
            start = time.process_time()
            model(tokens_of(n), tokens_of(n)).backward()
            seconds.append(time.process_time() - start)
    compilation, trace = seconds[0] - seconds[-1], spent["retrace"]
    ours = spent["transform"] - trace + spent["_choose"]
    graphs = model._compiled_call_impl.backend.graphs
    say(rank, f"{a.deep} layers on {ranks} ranks: compiling takes {compilation:.1f} s of a processor, of that the second trace {trace:.2f}, "
              f"Python and C of autosp {ours:.2f} (edits {spent['transform'] - trace:.2f}, what is kept {spent['_choose']:.2f})")
    autosp.restore(model)
    torch._dynamo.reset()
    return all([bound(rank, f"{ours:.2f} s beside the trace ({OURS_SECONDS})", ours <= OURS_SECONDS),
                bound(rank, f"{(ours + trace) / compilation:.1%} of the compilation with it ({TRACE_SHARE:.0%})",
                      ours + trace <= TRACE_SHARE * compilation),
                bound(rank, f"three lengths compile {graphs} graph", graphs == 1)])


def step(a, rank):
    import autosp

    ranks = RANKS["step"]
    ids, runs, losses = tokens_of(a.tokens), {}, {}
    for name in ("by hand", "autosp"):
        model = torch_hand.Llama(a.layers)
        run = torch_hand.Ulysses(model, dist.group.WORLD) if name == "by hand" else autosp.compile(model, sp=ranks, strategy="ulysses")
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)

        def step(run=run, optimizer=optimizer):
            loss = run(ids, ids)
            loss.backward()
            if isinstance(run, torch_hand.Ulysses):
                run.sum_gradients()
            optimizer.step()
            optimizer.zero_grad()
            return loss.item()

        losses[name] = [step(), step()]
        runs[name] = step
    t, times = by_turns(runs, a.steps)
    over = 1 / times - 1
    say(rank, f"Llama of {a.layers} layers, S = {a.tokens}, {ranks} ranks: seconds a step " + ", ".join(f"{k} {v:.3f}" for k, v in t.items()) +
        f"; second losses {losses['by hand'][1]:.6f}, {losses['autosp'][1]:.6f}")
    return bound(rank, f"{over:+.1%} of a step by hand ({BY_HAND:.0%})", over <= BY_HAND)


# ---- ranks ----

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--ac", default="sac")
    for key, value in (("tokens", 4096), ("layers", 8), ("width", 512), ("deep", 32), ("steps", 3), ("threads", 1), ("cap", 1536), ("small", 192), ("run", 0)):
        parser.add_argument(f"--{key}", type=int, default=value)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--store")
    a = parser.parse_args()
    if a.rank is not None:
        ranks = RANKS[a.only]
        torch.set_num_threads(a.threads)
        if ranks > 1:
            dist.init_process_group("gloo", init_method=f"file://{a.store}", rank=a.rank, world_size=ranks)
        sys.exit(not globals()[a.only](a, a.rank))
    failed = False
    for part in a.only.split(","):
        with tempfile.TemporaryDirectory() as folder:
            again = [sys.executable, *sys.argv, "--only", part, "--store", os.path.join(folder, "store"), "--rank"]
            environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor")}
            processes = [subprocess.Popen([*again, str(r)], env=environment, stderr=subprocess.DEVNULL if r else None)
                         for r in range(RANKS[part])]
            failed |= any([p.wait() != 0 for p in processes])
    sys.exit(failed)


if __name__ == "__main__":
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
    main()
