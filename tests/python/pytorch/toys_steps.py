# Acceptance cases about exchanges by themselves, optimizers, ranks that fail, and programs drawn at random.  Neighbours: toys.py,
# toys_attention.py, test_cases.py.  SPDX-License-Identifier: Apache-2.0
import datetime
import random

import autosp
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from autosp import ops
from toys import EXACT, IGNORED, as_unsharded, sliced, split, step, tokens_of
from toys_attention import Attention, causal, grouped, heads_of, manual, window

# ---- exchanges ----

def case_16(group):
    """Heads for tokens and back, values 1000 batch + 100 head + place."""
    rank, name, rows = dist.get_rank(group), group.group_name, []
    for b in (1, 2):
        whole = (1000 * torch.arange(b)[:, None, None] + 100 * torch.arange(4)[:, None] + torch.arange(8)).double()[..., None]
        mine = whole[:, :, 4 * rank:4 * rank + 4]
        heads = ops.all_to_all(mine, 1, 2, 2, 8, 1, 1, False, group=name)
        back = ops.all_to_all(heads, 2, 1, 2, 4, 1, 1, False, group=name)
        rows += [("heads", heads.tolist(), whole[:, 2 * rank:2 * rank + 2].tolist(), 0), ("back", back.tolist(), mine.tolist(), 0)]
    return rows


class Flat(nn.Module):
    """Rows of all sequences behind each other, around an MLP."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.emb, self.up, self.down, self.head = nn.Embedding(11, 6), nn.Linear(6, 10), nn.Linear(10, 6), nn.Linear(6, 11)

    def forward(self, ids, labels):
        b, s = ids.shape
        x = self.emb(ids)
        x = x + self.down(F.silu(self.up(x.view(b * s, 6)))).view(b, s, 6)
        return sliced(self.head(x), labels)


def case_36(group):
    rows = []
    for s in (8, 7):
        ids = tokens_of(2, s)
        rows += as_unsharded(lambda: Flat().double(), {"ids": ids, "labels": torch.where(ids < 3, IGNORED, ids)}, group)
    return rows


# ---- steps ----

OPTIMIZERS = {"sgd": (torch.optim.SGD, {"lr": 0.1}), "adamw": (torch.optim.AdamW, {"lr": 1e-2})}


def case_39(group, optimizer, sharded):
    """The norm of all gradients, and parameters after two steps that are clipped at half of it.  sharded: each rank has the state of some
    parameters (ZeRO 1)."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    kind, how = OPTIMIZERS[optimizer]
    ids, said = tokens_of(2, 9), []
    batch = {"ids": ids, "labels": torch.where(ids < 3, IGNORED, ids)}
    for model in (Flat().double(), split(Flat().double(), group)):
        own = sharded and said
        update = ZeroRedundancyOptimizer(model.parameters(), kind, process_group=group, **how) if own else kind(model.parameters(), **how)
        norms = []
        for _ in range(2):
            update.zero_grad()
            step(model, batch)
            norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])))
            torch.nn.utils.clip_grad_norm_(model.parameters(), norms[-1] / 2)
            update.step()
        said.append((norms, {k: p.tolist() for k, p in model.named_parameters()}))
    (want, p), (have, q) = said
    return [("norms", have, want, EXACT)] + [(k, q[k], p[k], 1e-11) for k in p]  # AdamW divides by roots of squares


def case_40(group):
    """One rank: PyTorch's ops to the bit where they are kept, and no collectives."""
    ids = tokens_of(2, 8)
    rows = as_unsharded(lambda: Attention(causal, random=True, rows=16, width=8), {"ids": torch.arange(16).view(2, 8)}, None, bound=0)
    model = split(Flat().double(), None)
    step(model, {"ids": ids, "labels": ids})
    names = [getattr(n.target, "__name__", str(n.target)) for n in model._compiled_call_impl.backend.last.graph.nodes]
    sent = [n for n in names if any(word in n for word in ("all_to_all", "all_reduce", "sum_gradients", "ring", "shard", "seed"))]
    return rows + as_unsharded(lambda: Flat().double(), {"ids": ids, "labels": ids}, None) + [("collectives", len(sent), 0, 0)]


def case_46(group):
    """Rank 1 fails: in the second step it passes other ids, to the third it does not come.  What each rank is told."""
    rank, said = dist.get_rank(group), []
    short = dist.new_group(dist.get_process_group_ranks(group), timeout=datetime.timedelta(seconds=10), use_local_synchronization=True)
    model, ids = split(Flat().double(), short), tokens_of(2, 8)
    step(model, {"ids": ids, "labels": ids})
    for others in (ids + rank, ids):
        if rank == 1 and said:
            said.append("out of memory")
            break
        try:
            step(model, {"ids": others, "labels": ids})
        except autosp.Error as e:
            said.append(str(e))
    return said


# ---- programs drawn at random ----

class Drawn(nn.Module):
    """A small transformer: every part of it is drawn."""

    MASKS = {"causal": causal, "window": window, "written": manual, "none": lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v)}
    PARTS = {"gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh}

    def __init__(self, draw):
        super().__init__()
        torch.manual_seed(draw.randrange(1 << 30))
        self.heads, width = draw.choice((2, 3, 4)), draw.choice((2, 3))
        d = self.heads * width
        self.kv = draw.choice([n for n in (1, 2, self.heads) if self.heads % n == 0])
        self.attend = grouped if self.kv < self.heads else self.MASKS[draw.choice(list(self.MASKS))]
        self.part, self.flat, self.tied, self.first = self.PARTS[draw.choice(list(self.PARTS))], *(draw.random() < 0.5 for _ in range(3))
        self.emb, self.places = nn.Embedding(11, d), nn.Embedding(16, d)
        norm = draw.choice((nn.LayerNorm, nn.RMSNorm))
        self.layers = nn.ModuleList(nn.ModuleDict({
            "norm1": norm(d), "q": nn.Linear(d, d), "kv": nn.Linear(d, 2 * self.kv * width), "o": nn.Linear(d, d), "norm2": norm(d),
            "up": nn.Linear(d, 2 * d), "down": nn.Linear(2 * d, d)}) for _ in range(draw.choice((1, 2))))
        self.head = nn.Linear(d, 11, bias=not self.tied)
        if self.tied:
            self.head.weight = self.emb.weight

    def forward(self, ids, labels):
        b, s = ids.shape
        x = self.emb(ids) + self.places(torch.arange(s, device=ids.device))
        for m in self.layers:
            h = m["norm1"](x) if self.first else x
            k, v = (heads_of(t, self.kv) for t in m["kv"](h).chunk(2, -1))
            x = x + m["o"](self.attend(heads_of(m["q"](h), self.heads), k, v, None).transpose(1, 2).flatten(2))
            h = m["norm2"](x).view(b * s, -1) if self.flat else m["norm2"](x)
            x = x + m["down"](self.part(m["up"](h))).view(x.shape)
        return sliced(self.head(x), labels)


def case_48(group, seed):
    """Gradients of the split program against central differences of the unsharded loss, for some entries of each parameter."""
    draw = random.Random(seed)
    made = draw.randrange(1 << 30)
    build = lambda: Drawn(random.Random(made)).double()
    b, s, strategy = draw.choice((1, 2)), draw.randrange(5, 13), draw.choice(("ulysses", "ring", "auto"))
    ids = tokens_of(b, s, seed=seed)
    batch = {"ids": ids, "labels": torch.where(torch.rand(b, s, generator=torch.Generator().manual_seed(seed)) < 0.3, IGNORED, ids)}
    batch["labels"][0, -1] = 1
    loss, have = step(split(build(), group, strategy=strategy), batch)
    plain, rows = build(), []
    largest = max(float(g.abs().max()) for g in have.values())
    with torch.no_grad():
        rows.append(("loss", loss, plain(**batch).item(), EXACT))
        for name, p in plain.named_parameters():
            if name not in have:  # norms that are not drawn
                continue
            flat, g = p.view(-1), have[name].reshape(-1)
            for i in draw.sample(range(len(flat)), min(3, len(flat))):
                was, ends = flat[i].item(), []
                for step_by in (1e-6, -1e-6):
                    flat[i] = was + step_by
                    ends.append(plain(**batch).item())
                flat[i] = was
                rows.append((f"{name}[{i}] of seed {seed}", float(g[i]) / largest, (ends[0] - ends[1]) / 2e-6 / largest, 1e-6))
    return rows
