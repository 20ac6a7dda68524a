# The peak of a training step that autosp foretells when it compiles a model, beside the bytes of tensors that are counted while the step
# runs (every allocation and release that PyTorch's profiler sees) and what the process grew by.  The bound is 5 %.
#   live_bytes.py [--ranks 1,2] [--tokens 1024,1500] [--models llama,gpt2] [--backends aot_eager,inductor] [--policies none,sac,layer,128MiB]
# AUTOSP_LIBRARY names libautosp.so; run it in a virtual environment with torch and transformers (build/venv).  A policy that is a size is
# the budget for what a step makes, beside parameters and AdamW's state.  Exit 1 beyond the bound.
# Neighbours: tests/python/pytorch (the same of one small model).  SPDX-License-Identifier: Apache-2.0
import argparse
import ctypes
import itertools
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))
BOUND = 0.05
VOCAB = 4096


def build(name):
    import transformers

    torch.manual_seed(0)
    if name == "gpt2":
        config = transformers.GPT2Config(vocab_size=VOCAB, n_embd=256, n_layer=2, n_head=8, n_positions=8192, resid_pdrop=0.0, embd_pdrop=0.0,
                                         attn_pdrop=0.0, use_cache=False, bos_token_id=1, eos_token_id=2)
    else:
        config = transformers.AutoConfig.for_model(
            name, vocab_size=VOCAB, hidden_size=256, intermediate_size=704, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4,
            max_position_embeddings=131072, use_cache=False, **({"sliding_window": 256} if name == "mistral" else {}))
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.loss_type = "ForCausalLM"
    return model


def count(run):
    """The most bytes that tensors made by run() took at once."""
    with torch.autograd.profiler.profile(profile_memory=True) as p:
        run()
    now = most = 0
    for e in sorted((e for e in p.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += e.nbytes()
        most = max(most, now)
    return most


def resident(key):
    with open("/proc/self/status") as f:
        return int(next(line for line in f if line.startswith(key)).split()[1]) * 1024


def growth(run):
    ctypes.CDLL(None).malloc_trim(0)  # what the heap holds for nobody
    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    run()
    return resident("VmHWM") - before


def measure(name, tokens, ranks, backend, policy):
    import autosp
    from autosp.backend import states_bytes

    torch._dynamo.reset()
    model = build(name)
    how = {"ac": policy}
    if policy[0].isdigit():
        how = {"memory": int(float(policy[:-3]) * 2**20) + states_bytes(list(model.parameters()))}
    autosp.compile(model, sp=ranks, backend=backend, **how)
    ids = torch.randint(3, VOCAB, (1, tokens), generator=torch.Generator().manual_seed(1))

    def step():
        model(input_ids=ids, labels=ids).loss.backward()

    for _ in range(2):
        step()
        model.zero_grad()
    grew = growth(step)
    model.zero_grad()
    return model._compiled_call_impl.backend.partitioner.peak, count(step), grew


def run(rank, ranks, asked):
    worst = 0.0
    for name, tokens, backend, policy in asked:
        said, counted, grew = measure(name, tokens, ranks, backend, policy)
        worst = max(worst, abs(said / counted - 1))
        if rank == 0:
            mib = [x / 2**20 for x in (said, counted, grew)]
            print(f"{name:8}{tokens:7}{ranks:6}  {backend:10}{policy:>8}{mib[0]:10.2f}{mib[1]:10.2f}{said / counted:8.4f}{mib[2]:10.1f}", flush=True)
    return worst


def main():
    parser = argparse.ArgumentParser()
    for key, value in (("ranks", "1,2"), ("tokens", "1024,1500"), ("models", "llama,gpt2"), ("backends", "aot_eager,inductor"),
                       ("policies", "none,sac,layer,128MiB")):
        parser.add_argument(f"--{key}", default=value)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--store")
    a = parser.parse_args()
    torch.set_num_threads(1)
    asked = list(itertools.product(a.models.split(","), map(int, a.tokens.split(",")), a.backends.split(","), a.policies.split(",")))
    if a.rank is not None:
        ranks = int(a.ranks)
        if ranks > 1:
            dist.init_process_group("gloo", init_method=f"file://{a.store}", rank=a.rank, world_size=ranks)
        sys.exit(run(a.rank, ranks, asked) > BOUND)
    print(f"{'model':8}{'tokens':>7}{'ranks':>6}  {'backend':10}{'policy':>8}{'foretold':>10}{'counted':>10}{'ratio':>8}{'process':>10}   MiB a rank")
    failed = False
    for ranks in map(int, a.ranks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            again = [sys.executable, *sys.argv, "--ranks", str(ranks), "--store", os.path.join(folder, "store"), "--rank"]
            processes = [subprocess.Popen([*again, str(r)], stderr=subprocess.DEVNULL if r else None) for r in range(ranks)]
            failed |= any([p.wait() != 0 for p in processes])
    sys.exit(failed)


if __name__ == "__main__":
    main()
