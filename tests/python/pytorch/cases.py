# What the ranks run.  Each function gets its rank and its group (None: one rank) and says plain values.  Neighbours: ranks.py,
# test_*.py (who ask).  SPDX-License-Identifier: Apache-2.0
import importlib
import json
import math
import subprocess

import autosp
import models
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file


def gradients(model):
    return {k: p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}


def worst(want, have):
    """max over parameters of |a - b| / max(|a|, 0.01 |all of a|)."""
    assert want.keys() == have.keys()
    everything = math.sqrt(sum(float(x.norm()) ** 2 for x in want.values()))
    return max(float((have[k] - x).norm()) / max(float(x.norm()), 0.01 * everything) for k, x in want.items())


def step(model, batch):
    loss = models.loss_of(model(**batch))
    loss.backward()
    return loss.item(), gradients(model)


def against_eager(rank, group, name, b, s, dtype, options, labels="uneven", extra=""):
    """Loss and gradients of one step: how far they are from the unsharded eager model."""
    batch = models.batch(name, b, s, labels, extra)
    loss, want = step(models.build(name, dtype), batch)
    model = autosp.compile(models.build(name, dtype), sp=group or 1, verify=True, **{"backend": "aot_eager", **options})
    ours, have = step(model, batch)
    backend = model._compiled_call_impl.backend
    ops = [str(n.target) if "torch" in type(n.target).__module__ else getattr(n.target, "__name__", "") for n in backend.last.graph.nodes]
    square = max((math.prod(int(d) for d in n.meta["val"].shape) for n in backend.last.graph.nodes
                  if isinstance(n.meta.get("val"), torch.Tensor)), default=0)
    return {"loss": abs(ours - loss) / abs(loss), "gradients": worst(want, have), "ops": ops, "largest": square, "value": ours,
            "strategy": backend.strategy}


def autocast(rank, group, name, options):
    """Under autocast to bf16: how far the split model is from the unsharded one, and that one from f32."""
    batch, said = models.batch(name, 2, 25), []
    model = autosp.compile(models.build(name), sp=group, backend="eager", **options)
    for wide, m in ((True, models.build(name)), (False, models.build(name)), (False, model)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not wide):
            loss = models.loss_of(m(**batch))
        loss.backward()
        said.append((loss.item(), gradients(m)))
    (a, f), (b, g), (c, h) = said
    return {"loss": abs(c - b) / abs(b), "gradients": worst(g, h), "rounding": worst(f, g), "split": worst(f, h)}


def dropped(rank, group, name, options):
    """A model that drops, split and on one rank, from the same seed: how far they are from each other, and from another seed."""
    said = []
    alone, split = (autosp.compile(models.build(name, dropout=0.2), sp=sp, **{"backend": "eager", "verify": True, **options})
                    for sp in (1, group))
    for model, seed in ((alone, 5), (split, 5), (split, 6)):
        model.zero_grad()
        torch.manual_seed(seed)
        said.append(step(model, models.batch(name, 2, 25)))
    (a, g), (b, h), (c, _) = said
    return {"loss": abs(a - b) / abs(a), "gradients": worst(g, h), "other": abs(a - c) / abs(a)}


def live_bytes(run, wanted, ranks):
    """The most that the tensors of run() took at once, beside those that there were: the least of some counts, as gloo's threads hold on to
    what they have sent until they are scheduled.  Counts end where they are near what is wanted on all ranks."""
    least, near = math.inf, torch.zeros(1)
    for _ in range(12):
        least = min(least, _live_bytes(run))
        near.fill_(abs(wanted / least - 1) <= 0.02)
        if ranks is not None:
            torch.distributed.all_reduce(near, torch.distributed.ReduceOp.MIN, group=ranks)
        if near.item():
            break
    return least


def _live_bytes(run):
    with torch.autograd.profiler.profile(profile_memory=True) as p:
        run()
    events = sorted((e for e in p.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns())
    now = most = 0
    for e in events:
        now += e.nbytes()
        most = max(most, now)
    return most


def policies(rank, group, name, s, asked):
    """Under each policy: errors against the eager model, and bytes: said to be kept, said to be the peak, counted while it ran."""
    batch, out = models.batch(name, 1, s), {}
    loss, want = step(models.build(name, layers=2), batch)
    for ac, memory in asked:
        model = autosp.compile(models.build(name, layers=2), sp=group or 1, backend="aot_eager", ac=ac, memory=memory)
        ours, have = step(model, batch)
        model.zero_grad()
        said = model._compiled_call_impl.backend.partitioner
        peak = live_bytes(lambda: (models.loss_of(model(**batch)).backward(), model.zero_grad()), said.peak, group)
        out[ac] = {"loss": abs(ours - loss) / abs(loss), "gradients": worst(want, have), "kept": said.kept_bytes, "peak": said.peak,
                   "counted": peak}
    return out


def updates(rank, group, name, s):
    """Bytes of a step whose peak is AdamW's: foretold, and counted."""
    batch, model = models.batch(name, 1, s), autosp.compile(models.build(name), sp=group or 1, backend="aot_eager", ac="sac")
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        models.loss_of(model(**batch)).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    said = model._compiled_call_impl.backend.partitioner.peak
    return {"peak": said, "counted": live_bytes(step, said, group)}


def trains(rank, group, name, steps):
    """AdamW with accumulation and clipping, beside the unsharded model: losses of both, and the parameters' bits."""
    plain, model = models.build(name), models.build(name)
    model = autosp.compile(model, sp=group, backend="aot_eager")
    losses = []
    for m in (plain, model):
        optimizer = torch.optim.AdamW(m.parameters(), lr=3e-3)
        said = []
        for _ in range(steps):
            for k in range(2):
                loss = models.loss_of(m(**models.batch(name, 2, 24, seed=k))) / 2
                loss.backward()
                said.append(loss.item())
            torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(said)
    bits = sum(int(p.detach().view(torch.int32).to(torch.int64).sum()) for p in model.parameters())
    return {"losses": losses, "bits": bits, "graphs": model._compiled_call_impl.backend.graphs}


def lengths(rank, group, name, sizes):
    """One compiled model at several lengths: its errors, and how often it was compiled."""
    model, plain = autosp.compile(models.build(name), sp=group, backend="aot_eager"), models.build(name)
    errors = []
    for s in sizes:
        batch = models.batch(name, 2, s)
        loss, want = step(plain, batch)
        ours, have = step(model, batch)
        errors.append((abs(ours - loss) / abs(loss), worst(want, have)))
        plain.zero_grad(), model.zero_grad()
    with torch.no_grad():
        quiet = models.loss_of(model(**models.batch(name, 2, sizes[0]))).item()
        wanted = models.loss_of(plain(**models.batch(name, 2, sizes[0]))).item()
    return {"errors": errors, "graphs": model._compiled_call_impl.backend.graphs, "quiet": abs(quiet - wanted)}


def logits(rank, group, name, b, s):
    """Evaluation: what else the model gives, with labels and without; then a step of training."""
    plain, batch = models.build(name), models.batch(name, b, s)
    model = autosp.compile(models.build(name), sp=group, backend="eager", verify=True, logits=True)
    inputs = {k: x for k, x in batch.items() if k not in ("labels", "targets")}
    with torch.no_grad():
        want, have, alone = plain(**batch), model(**batch), model(**inputs)
        far = [float((x.logits - want.logits).abs().max() / want.logits.abs().max()) for x in (have, alone)]
    loss, g = step(plain, batch)
    ours, h = step(model, batch)
    return {"logits": far, "loss": abs(have.loss.item() - loss) / loss, "trained": abs(ours - loss) / loss, "gradients": worst(g, h),
            "bits": int(alone.logits.view(torch.int32).to(torch.int64).sum())}


def replicas(rank, group, name, how):
    """Two groups of two ranks, each with a row of the batch of its own, their gradients averaged: against the whole batch on one rank."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "sp"))
    batch, mine = models.batch(name, 2, 25, "all"), mesh["dp"].get_local_rank()
    plain, model = models.build(name), models.build(name)
    autosp.compile(model, sp=mesh["sp"], backend="eager", verify=True)
    if how == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=mesh["dp"].get_group())
    if how == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=mesh["dp"])
    errors = []
    for m, part in ((plain, batch), (model, {k: x[mine:mine + 1] for k, x in batch.items()})):
        optimizer, said = torch.optim.SGD(m.parameters(), lr=0.1), []
        for _ in range(2):
            loss = models.loss_of(m(**part))
            loss.backward()
            loss = loss.detach().clone()
            if m is not plain:
                torch.distributed.all_reduce(loss, group=mesh["dp"].get_group())
                loss /= 2
            said.append(loss.item())
            grads = {k.removeprefix("module."): p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad.clone()
                     for k, p in m.named_parameters()}
            optimizer.step(), optimizer.zero_grad()
        errors.append((said, grads))
    (a, g), (b, h) = errors
    return {"loss": max(abs(x - y) / x for x, y in zip(a, b)), "gradients": worst(g, h)}


def two_models(rank, group, sizes):
    """Two models in one process, one of them taken apart and built again."""
    out = []
    first, second = models.build("llama"), models.build("plain")
    autosp.compile(first, sp=group, backend="eager")
    autosp.compile(second, sp=group, strategy="ulysses", backend="eager")
    for name, model in (("llama", first), ("plain", second), ("llama", first)):
        batch = models.batch(name, 2, sizes)
        loss, want = step(models.build(name), batch)
        ours, have = step(model, batch)
        out.append((abs(ours - loss) / abs(loss), worst(want, have)))
        model.zero_grad()
    autosp.restore(first)
    batch = models.batch("llama", 2, sizes)
    eager = step(first, batch)[0]
    first.zero_grad()
    autosp.compile(first, sp=group, backend="eager")
    return {"errors": out, "again": abs(step(first, batch)[0] - eager)}


def tools(rank, group, folder):
    """plan, export and verify of one model."""
    model, batch = models.build("plain"), models.batch("plain", 2, 24)
    said = autosp.verify(model, batch, sp=group, strategy="ulysses")
    path = autosp.export(model, batch, f"{folder}/{rank}")
    back = autosp.prepare_autosp_inputs(batch["ids"], batch["targets"])
    return {"verify": said, "plan": autosp.plan(model, batch, sp=2, strategy="ulysses"), "path": path, "same": back[0] is batch["ids"]}


def adamw_losses(model, batch, rates):
    """What `autosp train` does, by PyTorch: AdamW, decay for matrices alone, gradients clipped at a norm of 1."""
    matrices, vectors = ([p for p in model.parameters() if (p.ndim >= 2) == wanted] for wanted in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer, losses = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8), []
    for rate in rates:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = models.loss_of(model(**batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def exported(rank, group, name, s, folder, program):
    """A model as a graph with its weights, trained by autosp alone and here: losses of both, and of its checkpoint when it is loaded."""
    def autosp_says(*args):
        said = subprocess.run([program, *map(str, args), "--json", "-"], capture_output=True, text=True)
        assert said.returncode == 0, said.stderr
        return [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]

    model, batch = models.build(name), models.batch(name, 1, s, "all")
    graph, tokens = autosp.export(model, batch, f"{folder}/{name}"), f"{folder}/{name}.u16"
    with open(tokens, "wb") as f:
        f.write(batch["input_ids"].to(torch.int16).numpy().tobytes())
    what = ("--model", graph, "--data", tokens, "--seq", s, "--ranks", 2, "--threads", 1)
    verify = next(r for r in autosp_says("verify", *what) if r["record"] == "verify")
    steps = [r for r in autosp_says("train", *what, "--steps", 20, "--lr", 1e-3, "--clip", 1, "--weight-decay", 0.1, "--out",
                                    f"{folder}/out-{name}") if r["record"] == "step"]
    losses = adamw_losses(model, batch, [r["lr"] for r in steps])
    with torch.no_grad():
        after = models.loss_of(model(**batch)).item()
        for k, x in load_file(f"{folder}/out-{name}/step-000020/model.safetensors").items():
            dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])[k].copy_(x)
        loaded = models.loss_of(model(**batch)).item()
    return {"torch": [*losses, after], "autosp": [*(r["loss"] for r in steps), loaded], "verify": [verify["loss_1"], verify["loss_p"]]}


def engine(rank, group, config, steps):
    """Losses of a DeepSpeed-shaped loop and of a plain one."""
    losses = []
    for split in (False, True):
        model = models.build("plain")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if split:
            it, _, _, _ = autosp.initialize(model, optimizer, config, backend="eager")
        said = []
        for i in range(steps):
            loss = (it if split else model)(**models.batch("plain", 2, 22, seed=i))
            said.append(loss.item())
            if split:
                it.backward(loss)
                it.step()
                continue
            (loss / 2).backward()
            if i % 2:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
        losses.append(said)
    return losses


def engine_refused(rank, group, config):
    model = models.Plain()
    autosp.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), config)


# ---- what is refused ----

class Breaks(models.Plain):
    def forward(self, ids, targets):
        loss = super().forward(ids, targets)
        if loss.item() > 0:
            loss = loss * 2
        return loss


class Unknown(models.Plain):
    """lgamma is in no table."""

    def __init__(self, split):
        super().__init__()
        self.split = split

    def forward(self, ids, targets):
        x = self.tokens(ids)
        at = torch.arange(ids.shape[1], device=ids.device).float()
        x = x + (torch.lgamma(x.abs() + 1) if self.split else torch.lgamma(at + 1)[None, :, None] * 1e-2)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x))[:, :-1].reshape(-1, models.VOCAB), targets[:, 1:].reshape(-1))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g


class Custom(models.Plain):
    def forward(self, ids, targets):
        return F.cross_entropy(self.head(Doubled.apply(self.tokens(ids))).flatten(0, 1), targets.flatten())


class Sized(models.Plain):
    """As many rows as the data say."""

    def forward(self, ids, targets):
        return F.cross_entropy(self.head(self.tokens(ids[ids > 7])), ids[ids > 7])


class NoLoss(models.Plain):
    def forward(self, ids, targets):
        return self.head(self.tokens(ids))


def unknown_on_whole(rank, group):
    torch.manual_seed(0)
    plain = Unknown(split=False)
    torch.manual_seed(0)
    model = autosp.compile(Unknown(split=False), sp=group, backend="eager", verify=True)
    batch = models.batch("plain", 2, 22)
    loss, want = step(plain, batch)
    ours, have = step(model, batch)
    return abs(ours - loss) / abs(loss), worst(want, have)


def refused(rank, group, what):
    batch = models.batch("plain", 2, 22)
    model = {"break": Breaks, "unknown": lambda: Unknown(split=True), "no loss": NoLoss, "custom": Custom, "sized": Sized}.get(what, models.Plain)()
    if what == "peers":
        batch["ids"][1, 7] += rank
    if what == "lengths":
        batch = models.batch("plain", 2, 22 + 2 * rank)
    model = autosp.compile(model, sp=group, backend="eager")
    models.loss_of(model(**batch)).sum().backward()


def setting(rank, group, options):
    autosp.compile(nn.Linear(2, 2), **options)


def another_torch(rank, group):
    theirs, torch.__version__ = torch.__version__, "2.99.0"
    try:
        autosp.compile(nn.Linear(2, 2), sp=2)
    finally:
        torch.__version__ = theirs


def twice(rank, group):
    """An edit list applied to the graph that it was applied to before, and to another one."""
    from autosp import backend as b
    from autosp import graph as g
    from autosp.capi import Edits
    from autosp.edit import Editor

    said = []

    def compiler(gm, example_inputs):
        graph, _ = g.retrace(gm, example_inputs)
        inputs = g.read_inputs(graph, gm, example_inputs, g.ROLES)
        writer = g.Writer(graph, inputs, "model")
        edits = Edits("model", writer.text(), "f32", 1, "auto")
        other = g.Writer(graph, inputs, "another")
        for w in (writer, other):
            try:
                Editor(w, "", 1, torch.device("cpu")).apply(edits)
                said.append("")
            except autosp.Error as e:
                said.append(str(e))
        assert b.Backend
        return gm.forward

    model = models.build("llama")
    torch.compile(model, backend=compiler, fullgraph=True)(**models.batch("llama", 2, 24))
    return said


def toy(rank, group, module, name, *args):
    return getattr(importlib.import_module(module), name)(group, *args)
