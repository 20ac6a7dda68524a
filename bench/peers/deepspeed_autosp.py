# DeepSpeed 0.19.8's AutoSP and autosp side by side: two ranks over gloo on this machine, float32.  First the inputs on which results
# differ: the loss and the worst gradient of each against the unsharded model.  Then seconds of a step (forward, backward, AdamW) and
# what a rank's process grows by in one, beside parameters, gradients and AdamW's state.  Bounds: 0.8 of its time, 0.5 of its memory.
#   python3 deepspeed_autosp.py LIBAUTOSP [--tokens 4096] [--steps 3] [--only inputs|steps] [--ac POLICY]
# Makes its own virtual environment, build/peers-ds-venv.  Exit 1 beyond a bound, or where autosp is wrong; what DeepSpeed says is printed.
# Neighbours: live_bytes.py, compare.py.  SPDX-License-Identifier: Apache-2.0
import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
VENV = os.path.join(ROOT, "build", "peers-ds-venv")
PACKAGES = ["torch==2.13.0", "transformers==5.24.0", "deepspeed==0.19.8", "accelerate", "safetensors", "numpy"]
RANKS = 2
LOSS, GRADIENTS = 1e-6, 5e-6

# what it is, model, tokens, labels, attention mask
INPUTS = [("Hugging Face Llama, no mask", "llama", 256, "all", False), ("Hugging Face Llama, mask of ones", "llama", 256, "all", True),
          ("plain Llama", "plain", 256, "all", False), ("plain Llama, a rank without labels", "plain", 256, "late", False),
          ("plain Llama, 257 tokens", "plain", 257, "all", False)]


# ---- one process: a rank ----

def build(name, large, tokens):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.manual_seed(0)
    width, layers, heads, inner, vocab = (512, 8, 8, 1408, 4096) if large else (256, 2, 8, 512, 1000)
    if name == "llama":
        import transformers

        return transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(
            vocab_size=vocab, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
            num_key_value_heads=heads, max_position_embeddings=max(2048, tokens), use_cache=False))

    def rotated(x):
        a, b = x.chunk(2, -1)
        return torch.cat((-b, a), -1)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)
            self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
            self.gate, self.up, self.down = (nn.Linear(*shape, bias=False) for shape in ((width, inner), (width, inner), (inner, width)))

        def forward(self, x, cos, sin):
            b, s, d = x.shape
            h = self.norm1(x)
            q, k, v = (f(h).view(b, s, heads, d // heads).transpose(1, 2) for f in (self.q, self.k, self.v))
            q, k = q * cos + rotated(q) * sin, k * cos + rotated(k) * sin
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(a.transpose(1, 2).reshape(b, s, d))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.norm = nn.Embedding(vocab, width), nn.RMSNorm(width, 1e-6)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.head = nn.Linear(width, vocab, bias=False)
            half = width // heads
            self.register_buffer("frequencies", 1.0 / (10000 ** (torch.arange(0, half, 2).float() / half)), persistent=False)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, input_ids, labels, position_ids):
            angle = position_ids[..., None].float() * self.frequencies
            angle = torch.cat((angle, angle), -1)
            x, cos, sin = self.tokens(input_ids), angle.cos()[:, None], angle.sin()[:, None]
            for layer in self.layers:
                x = layer(x, cos, sin)
            logits = self.head(self.norm(x))
            labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
            return F.cross_entropy(logits.view(-1, vocab), labels.view(-1), ignore_index=-100)

    return Plain()


def batch(case):
    import torch

    ids = torch.randint(3, 1000, (1, case["tokens"]), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    if case["labels"] == "late":
        labels[0, :case["tokens"] * 5 // 8] = -100
    out = {"input_ids": ids, "labels": labels, "position_ids": torch.arange(case["tokens"])[None]}
    return {**out, "attention_mask": torch.ones_like(ids)} if case["mask"] else out


def loss_of(out):
    return out.loss if hasattr(out, "loss") else out


def deepspeed_step(model, optimizer, case):
    """A function that runs one step and gives its loss."""
    import deepspeed
    from deepspeed.compile.passes.sp_compile import prepare_autosp_inputs

    config = {"train_micro_batch_size_per_gpu": 1, "sequence_parallel_size": RANKS, "zero_optimization": {"stage": 0},
              "compile": {"deepcompile": True, "passes": ["autosp"]}, "zero_allow_untested_optimizer": True, "gradient_clipping": 0.0}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    engine.compile(compile_kwargs={"dynamic": True})

    def step():
        given = batch(case)
        ids, labels, places, mask = prepare_autosp_inputs(given["input_ids"], given["labels"], given["position_ids"],
                                                          given.get("attention_mask"), seq_dim=1)
        more = {} if mask is None else {"attention_mask": mask}
        loss = loss_of(engine(input_ids=ids, labels=labels, position_ids=places, **more))
        engine.backward(loss)
        engine.step()
        return loss.item()

    return step


def autosp_step(model, optimizer, case):
    import autosp

    model = autosp.compile(model, sp=RANKS, backend=case["backend"], ac=case["ac"])

    def step():
        loss = loss_of(model(**batch(case)))
        loss.backward()
        optimizer.step()
        if case["steps"]:
            optimizer.zero_grad()
        return loss.item()

    return step


def resident(key):
    with open("/proc/self/status") as f:
        return int(next(line for line in f if line.startswith(key)).split()[1]) * 1024


def compare_inputs(case, make):
    """Loss and gradients: of DeepSpeed's engine what an SGD step of rate 1 moves the parameters by, which rounds them to some 2e-5."""
    import math

    import torch

    model, plain = build(case["model"], False, case["tokens"]), build(case["model"], False, case["tokens"])
    want = loss_of(plain(**batch(case)))
    want.backward()
    wanted = {k: p.grad for k, p in plain.named_parameters()}
    before = {k: p.detach().clone() for k, p in model.named_parameters()}
    loss = make(model, torch.optim.SGD(model.parameters(), lr=1.0), case)()
    have = {k.replace("_orig_mod.", ""): before[k.replace("_orig_mod.", "")] - p.detach() for k, p in model.named_parameters()}
    if case["who"] == "autosp":
        have = {k: p.grad for k, p in model.named_parameters()}
    everything = math.sqrt(sum(float(g.norm()) ** 2 for g in wanted.values()))
    worst = max(float((have[k] - g).norm()) / max(float(g.norm()), 0.01 * everything) for k, g in wanted.items())
    return {"unsharded": want.item(), "loss": loss, "gradients": worst}


def measure_steps(case, make):
    import torch

    model = build(case["model"], True, case["tokens"])
    step = make(model, torch.optim.AdamW(model.parameters(), lr=3e-4), case)
    losses = [step()]
    step()
    seconds, grown = [], []
    for _ in range(case["steps"]):
        ctypes.CDLL(None).malloc_trim(0)  # what the heap holds for nobody
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
        before, start = resident("VmRSS"), time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - start)
        grown.append(resident("VmHWM") - before)
    return {"losses": losses, "seconds": seconds, "grown": max(grown)}


def rank_main(case, rank, store, out):
    os.environ.update({"DS_ACCELERATOR": "cpu", "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)})
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    make = autosp_step
    if case["who"] == "deepspeed":
        import deepspeed

        deepspeed.init_distributed("gloo")
        make = deepspeed_step
    try:
        said = (measure_steps if case["steps"] else compare_inputs)(case, make)
    except Exception as e:
        said = {"error": f"{type(e).__name__}: {' '.join(str(e).split()).replace('backend=' + repr('backend_fn') + ' raised: ', '')}"}
    with open(f"{out}.{rank}", "w") as f:
        json.dump(said, f)
    os._exit(0)  # the other rank may wait in a collective


# ---- the parent ----

def run(seconds=3000, **case):
    """What each rank says of a case."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"), "HF_HUB_OFFLINE": "1"}
        with open(os.path.join(folder, "log"), "w") as log:
            processes = [subprocess.Popen([sys.executable, "-B", __file__, "--case", json.dumps([case, r, os.path.join(folder, "store"), out])],
                                          env=environment, stdout=log, stderr=log) for r in range(RANKS)]
            end = time.monotonic() + seconds
            while time.monotonic() < end and any(p.poll() is None for p in processes):
                time.sleep(0.1)
                if any(os.path.exists(f"{out}.{r}") and "error" in open(f"{out}.{r}").read() for r in range(RANKS)):
                    end = min(end, time.monotonic() + 20)  # one has failed: the other may hang
            for p in processes:
                p.kill()
                p.wait()
        said = []
        for r in range(RANKS):
            try:
                with open(f"{out}.{r}") as f:
                    said.append(json.load(f))
            except (OSError, ValueError):
                said.append({"error": "hangs, or ended without a word"})
        return said


def first_error(said):
    words = [s["error"] for s in said if "error" in s]
    return next((w for w in words if not w.startswith("hangs")), words[0] if words else None)


def inputs():
    wrong = False
    print(f"{'input':38}{'':11}{'unsharded':>11}{'loss of rank 0':>16}{'of rank 1':>11}{'worst gradient':>16}")
    for what, model, tokens, labels, mask in INPUTS:
        for who in ("deepspeed", "autosp"):
            said = run(who=who, model=model, tokens=tokens, labels=labels, mask=mask, steps=0, backend="aot_eager", ac=None)
            error = first_error(said)
            if error:
                print(f"{what:38}{who:11}{error[:110]}", flush=True)
            else:
                print(f"{what:38}{who:11}{said[0]['unsharded']:11.6f}{said[0]['loss']:16.6f}{said[1]['loss']:11.6f}"
                      f"{max(s['gradients'] for s in said):16.1e}", flush=True)
            right = not error and all(abs(s["loss"] - s["unsharded"]) <= LOSS * s["unsharded"] and s["gradients"] <= GRADIENTS for s in said)
            wrong |= who == "autosp" and not right
    return wrong


def steps(a):
    beyond = False
    print(f"\n{'model':8}{'tokens':>8}  {'':11}{'seconds a step':>15}{'MiB a rank':>12}{'first loss':>12}")
    for model in ("plain", "llama"):
        best = {}
        for who in ("deepspeed", "autosp"):
            said = run(who=who, model=model, tokens=a.tokens, labels="all", mask=model == "llama", steps=a.steps, backend="inductor", ac=a.ac)
            error = first_error(said)
            if error:
                print(f"{model:8}{a.tokens:8}  {who:11}{error[:110]}", flush=True)
                beyond |= who == "autosp"
                continue
            best[who] = max(min(s["seconds"]) for s in said), max(s["grown"] for s in said)
            print(f"{model:8}{a.tokens:8}  {who:11}{best[who][0]:15.2f}{best[who][1] / 2**20:12.0f}{said[0]['losses'][0]:12.6f}", flush=True)
        if len(best) == 2:
            t, m = (best["autosp"][i] / best["deepspeed"][i] for i in range(2))
            print(f"{'ratio':16}  {'':11}{t:15.2f}{m:12.2f}   bounds 0.8, 0.5", flush=True)
            beyond |= t > 0.8 or m > 0.5
    return beyond


def enter():
    """Goes on inside the virtual environment."""
    python = os.path.abspath(os.path.join(VENV, "bin", "python"))
    if sys.prefix == os.path.abspath(VENV):
        return
    if not os.path.exists(os.path.join(VENV, "whole")):
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        open(os.path.join(VENV, "whole"), "w").close()
    os.execv(python, [python, "-B", *sys.argv])


def main():
    if sys.argv[1:2] == ["--case"]:
        sys.path.insert(0, os.path.join(ROOT, "python"))
        rank_main(*json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", choices=["inputs", "steps"])
    parser.add_argument("--ac", default="sac")
    a = parser.parse_args()
    os.environ["AUTOSP_LIBRARY"] = os.path.abspath(a.library)
    enter()
    failed = a.only != "steps" and inputs()
    failed |= a.only != "inputs" and steps(a)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
