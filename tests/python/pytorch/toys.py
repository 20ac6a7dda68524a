# The acceptance cases of sequence parallelism that can be written in PyTorch, as models so small that what is right can be said by
# number.  A case gives rows (what, have, want, bound); test_cases.py compares.  Tables that ids look up stand for inputs that are trained:
# the gradient of a table is that of its rows.  Neighbours: test_cases.py, toys_attention.py (its attention).  SPDX-License-Identifier: Apache-2.0
import math

import autosp
import torch
import torch.nn as nn
import torch.nn.functional as F

EXACT = 1e-12
IGNORED = -100


def split(module, group, **options):
    return autosp.compile(module, sp=group or 1, **{"backend": "eager", "verify": True, **options})


def step(module, batch):
    loss = module(**batch)
    loss.backward()
    return loss.item(), {k: p.grad for k, p in module.named_parameters() if p.grad is not None}


def as_unsharded(build, batch, group, bound=EXACT, **options):
    """Loss and every gradient of one step."""
    want, g = step(build(), batch)
    have, h = step(split(build(), group, **options), batch)
    assert g.keys() == h.keys()
    return [("loss", have, want, bound)] + [(k, h[k].tolist(), g[k].tolist(), bound) for k in g]


# ---- losses ----

def padded(z, y, **how):
    return F.cross_entropy(z.reshape(-1, z.shape[-1]), F.pad(y, (0, 1), value=IGNORED)[:, 1:].reshape(-1), **how)


def sliced(z, y, by=1, **how):
    return F.cross_entropy(z[:, :-by].reshape(-1, z.shape[-1]), y[:, by:].reshape(-1), **how)


def unshifted(z, y, **how):
    return F.cross_entropy(z.reshape(-1, z.shape[-1]), y.reshape(-1), **how)


def of_hugging_face(z, y):
    from transformers.loss.loss_utils import ForCausalLMLoss

    return ForCausalLMLoss(z, y, z.shape[-1], num_items_in_batch=7).double()


class Losses(nn.Module):
    """Logits by position, and a loss of them."""

    def __init__(self, table, how):
        super().__init__()
        self.table, self.how = nn.Parameter(table), how

    def forward(self, ids, labels):
        return self.how(F.embedding(ids, self.table), labels)


def losses(tokens, of, shift=1, dtype=torch.float64):
    """Three classes; position t, where `of` has a loss for it, predicts the label of token t + shift with that loss: table, labels."""
    labels = torch.tensor([[(2 * t + t // 3) % 3 for t in range(tokens)]])
    table = torch.zeros(tokens, 3, dtype=dtype)
    for t in range(tokens):
        if t + shift < tokens and t not in of:
            labels[0, t + shift] = IGNORED
    for t, loss in of.items():
        table[t] = math.log((1 - math.exp(-loss)) / 2)
        table[t, labels[0, t + shift]] = -loss
    return table, labels


def numbered(values, first=0):
    return {first + i: float(x) for i, x in enumerate(values)}


def weights(table, grad, labels, shift):
    """What each position's loss weighs: its gradient over that of its own loss."""
    out = []
    for t in range(len(table)):
        y = int(labels[0, t + shift]) if t + shift < len(table) else IGNORED
        own = torch.softmax(table[t], 0) - F.one_hot(torch.tensor(max(y, 0)), 3)
        out.append(float((grad[t] * own).sum() / (own * own).sum()) if y != IGNORED else float(grad[t].abs().max()))
    return out


def loss_toy(group, tokens, of, how, want, weight, shift=1, bound=EXACT):
    table, labels = losses(tokens, of, shift)
    have, g = step(split(Losses(table.clone(), how), group), {"ids": torch.arange(tokens)[None], "labels": labels})
    return [("loss", have, want, bound),
            ("weights", weights(table, g["table"], labels, shift), [weight if t in of else 0.0 for t in range(tokens)], bound)]


ODD = numbered([1, 2, 3, 10, 5, 6, 7])
FOUR = {0: 1.0, 4: 5.0, 5: 6.0, 6: 7.0}


def case_1(group):
    return loss_toy(group, 8, ODD, sliced, 34 / 7, 1 / 7)


def case_2(group):
    return loss_toy(group, 8, FOUR, padded, 19 / 4, 1 / 4)


def case_3(group):
    return loss_toy(group, 8, {4: 5.0, 5: 6.0, 6: 7.0}, padded, 6.0, 1 / 3)


def case_4(group):
    """No label at all: as PyTorch says."""
    table, labels = losses(8, {})
    labels[:] = IGNORED
    have, g = step(split(Losses(table, padded), group), {"ids": torch.arange(8)[None], "labels": labels})
    return [("loss", have, math.nan, 0), ("gradients", g["table"].tolist(), torch.zeros(8, 3).tolist(), 0)]


def case_6(group):
    return loss_toy(group, 9, numbered(range(1, 9)), sliced, 4.5, 1 / 8)


def case_7(group):
    """The length changes from step to step; SGD goes on."""
    from models import Plain

    rows, torch_ids = [], torch.Generator().manual_seed(3)
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(Plain().double())
    plain, model = made[0], split(made[1], group)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, model)]
    for tokens in (8, 12, 8, 9):
        ids = torch.randint(0, 61, (2, tokens), generator=torch_ids)
        batch = {"ids": ids, "targets": torch.where(ids % 5 == 0, IGNORED, ids)}
        said = [step(m, batch)[0] for m in (plain, model)]
        for o in optimizers:
            o.step(), o.zero_grad()
        rows.append((f"loss at {tokens}", said[1], said[0], EXACT))
    rows += [(k, b.tolist(), a.tolist(), 1e-11) for (k, a), b in zip(plain.named_parameters(), model.parameters())]
    return rows + [("graphs", model._compiled_call_impl.backend.graphs, 2, 0)]  # of even lengths, and of odd ones


def case_8(group):
    return loss_toy(group, 8, FOUR, unshifted, 4.75, 1 / 4, shift=0)


def case_9(group):
    return loss_toy(group, 8, ODD, padded, 34 / 7, 1 / 7)


def case_10(group):
    return loss_toy(group, 8, numbered([1, 2, 9, 4, 5, 6]), lambda z, y: sliced(z, y, 2), 27 / 6, 1 / 6, shift=2)


def case_12(group):
    return loss_toy(group, 8, ODD, lambda z, y: sliced(z, y, reduction="sum"), 34.0, 1.0) + \
        loss_toy(group, 8, ODD, of_hugging_face, 34 / 7, 1 / 7, bound=1e-6)


def case_14(group):
    """Two batches accumulate: weighted by labels, and a mean of means."""
    rows = []
    for how, shares, want in ((lambda z, y: sliced(z, y, reduction="sum"), (1 / 10, 1 / 10), 3.7), (sliced, (1 / 2, 1 / 2), 2.928571428571429)):
        first, labels = losses(8, ODD)
        second, others = losses(8, {1: 0.5, 3: 1.0, 6: 1.5})
        table = torch.cat([first, second])
        model, total = split(Losses(table.clone(), how), group), 0.0
        for k, (y, share) in enumerate(zip((labels, others), shares)):
            loss = model(ids=torch.arange(8)[None] + 8 * k, labels=y) * share
            loss.backward()
            total += loss.item()
        each = (shares[0] / (1 if want == 3.7 else 7), shares[1] / (1 if want == 3.7 else 3))
        rows += [("loss", total, want, EXACT),
                 ("weights 1", weights(first, model.table.grad[:8], labels, 1), [each[0]] * 7 + [0.0], EXACT),
                 ("weights 2", weights(second, model.table.grad[8:], others, 1), [each[1] if t in (1, 3, 6) else 0.0 for t in range(8)], EXACT)]
    return rows


def case_15(group):
    """Exact counts of many labels, with logits of 16 bits."""
    rows = []
    for n, dtype in ((257, torch.bfloat16), (45001, torch.bfloat16), (100001, torch.bfloat16), (70000, torch.float16)):
        table, ids = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -2.0]], dtype=dtype), (torch.arange(n + 5) % 2)[None]
        labels = torch.where(torch.arange(n + 5) < n, torch.arange(n + 5) % 3, IGNORED)[None]
        said = [split(Losses(table, lambda z, y, how=how: unshifted(z.float(), y, reduction=how)), group)(ids=ids, labels=labels).item()
                for how in ("sum", "mean")]
        rows.append((f"{n} of {dtype}", said[0] / said[1], float(n), 1e-6))
    return rows


def smoothed(z, y):
    return sliced(z, y, label_smoothing=0.1)


def capped(z, y):
    return sliced(30 * torch.tanh(z / 30), y)


def pressed(z, y):
    """With a z-loss over the positions that count."""
    counts = y[:, 1:] != IGNORED
    lse = torch.logsumexp(z[:, :-1], -1)
    return sliced(z, y) + 1e-4 * torch.where(counts, lse * lse, 0).sum() / counts.sum()


def weighed(z, y):
    return sliced(z, y, weight=torch.tensor([0.5, 1.0, 2.0], dtype=z.dtype))


def by_chunks(z, y):
    """Three rows at a time."""
    z, y = z[:, :-1].reshape(-1, z.shape[-1]), y[:, 1:].reshape(-1)
    return sum(F.cross_entropy(a, b, reduction="sum") for a, b in zip(z.split(3), y.split(3))) / (y != IGNORED).sum()


def case_47(group):
    rows = []
    for how in (smoothed, capped, pressed, weighed):
        table, labels = losses(9, {**ODD, 7: 4.0})
        labels[0, 3] = IGNORED
        rows += as_unsharded(lambda how=how, t=table: Losses(t.clone(), how), {"ids": torch.arange(9)[None], "labels": labels}, group)
    return rows


def kept_graphs():
    """Process groups that there are, and what Dynamo keeps of compiled models."""
    import gc

    gc.collect()
    return len(torch.distributed.distributed_c10d._world.pg_map), sum(isinstance(x, torch.fx.GraphModule) for x in gc.get_objects())


def case_45(group):
    """Models of two groups of two and of one of four by turns; one is taken apart, and built again and again."""
    ids, rows = tokens_of(2, 9), []
    batch = {"ids": ids, "labels": torch.where(ids < 3, IGNORED, ids)}
    want, g = step(Tied().double(), batch)
    two, four = split(Tied().double(), 2), split(Tied().double(), group)
    told = None
    for i in range(14):
        for name, model in (("two", two), ("four", four)):
            model.zero_grad()
            have, h = step(model, batch)
            rows += [(f"{name} {i}", have, want, EXACT)] + [(f"{name} {i} {k}", h[k].tolist(), g[k].tolist(), EXACT) for k in g]
        autosp.restore(two)
        have, h = step(two, batch)
        rows.append((f"restored {i}", have, want, 0))
        if i == 3:
            told = kept_graphs()
        if i < 13:
            split(two, 2)
    groups, graphs = kept_graphs()
    return rows + [("groups", groups, told[0], 0), ("graphs are let go", max(0, graphs - told[1]), 0, 0)]


# ---- positions and tables ----

class Turned(nn.Module):
    """Rows (1, 0), turned by their position; the gradient of the weights is what came out."""

    def __init__(self, tokens, positions):
        super().__init__()
        self.w, self.positions = nn.Parameter(torch.ones(tokens, 2, dtype=torch.float64)), positions

    def forward(self, ids, position_ids=None):
        p = (self.positions(ids) if position_ids is None else position_ids).double()
        return (F.embedding(ids, self.w) * torch.stack([p.cos(), p.sin()], -1)).sum()


def case_20(group):
    rows, ids = [], torch.arange(8)[None]
    derived = lambda ids: torch.arange(ids.shape[1], device=ids.device)[None]
    ways = {"given": (None, {"position_ids": ids.clone()}, 0), "derived": (derived, {}, 0),
            "given from 100": (None, {"position_ids": ids + 100}, 100), "derived from 100": (lambda ids: derived(ids) + 100, {}, 100)}
    for name, (positions, more, first) in ways.items():
        _, g = step(split(Turned(8, positions), group), {"ids": ids, **more})
        rows.append((name, g["w"].tolist(), [[math.cos(first + t), math.sin(first + t)] for t in range(8)], EXACT))
    return rows


class Placed(nn.Module):
    """A learned table of places."""

    def __init__(self):
        super().__init__()
        self.x = nn.Parameter(torch.arange(8, dtype=torch.float64)[:, None] + 1)
        self.wpe = nn.Parameter(torch.linspace(0, 1, 16, dtype=torch.float64)[:, None].clone())

    def forward(self, ids):
        x = F.embedding(ids, self.x) * F.embedding(torch.arange(ids.shape[1], device=ids.device), self.wpe)
        return (x * x).sum()


def case_21(group):
    _, g = step(split(Placed(), group), {"ids": torch.arange(8)[None]})
    want = [[2 * (t + 1) ** 2 * t / 15] if t < 8 else [0.0] for t in range(16)]
    return [("wpe", g["wpe"].tolist(), want, EXACT)]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.mid = nn.Embedding(11, 6), nn.Linear(6, 6)

    def forward(self, ids, labels):
        return sliced(F.linear(torch.tanh(self.mid(self.emb(ids))), self.emb.weight), labels)


def tokens_of(b, s, vocab=11, seed=2):
    return torch.randint(0, vocab, (b, s), generator=torch.Generator().manual_seed(seed))


def case_31(group):
    ids = tokens_of(2, 9)
    return as_unsharded(lambda: Tied().double(), {"ids": ids, "labels": torch.where(ids < 3, IGNORED, ids)}, group)


# ---- what mixes tokens otherwise ----

class Mixed(nn.Module):
    """A table, something over its rows, and a weighted sum."""

    def __init__(self, how, width=3, rows=16, more=None):
        super().__init__()
        torch.manual_seed(1)
        self.x, self.w = (nn.Parameter(torch.randn(rows, width, dtype=torch.float64)) for _ in range(2))
        self.more, self.how = more() if more else None, how

    def forward(self, ids):
        y = self.how(self, F.embedding(ids, self.x))
        return (y * F.embedding(ids, self.w)).sum() if y.shape == ids.shape + self.w.shape[1:] else (y * y).sum()


MIXED = {"mean": lambda m, x: x.mean(1), "last": lambda m, x: x[:, -1], "layer_norm": lambda m, x: F.layer_norm(x, (x.shape[-1],)),
         "rms_norm": lambda m, x: F.rms_norm(x, (x.shape[-1],)), "cumsum": lambda m, x: x.cumsum(1), "roll": lambda m, x: x.roll(1, 1),
         "conv": lambda m, x: F.conv1d(F.pad(x.transpose(1, 2), (2, 0)), x.new_ones(x.shape[-1], 1, 3), groups=x.shape[-1]).transpose(1, 2),
         "flip": lambda m, x: x.flip(1), "sort": lambda m, x: x.sort(1).values, "max": lambda m, x: x.amax(1),
         "softmax": lambda m, x: x.softmax(1), "variance": lambda m, x: x.var(1), "first": lambda m, x: x[:, 0], "norm": lambda m, x: x.norm(),
         "outer": lambda m, x: x @ x.transpose(1, 2),
         "rows": lambda m, x: F.silu(x.reshape(-1, x.shape[-1]) @ x.new_ones(3, 3)).view(x.shape)}


def mixed(group, name, tokens=8):
    """Where PyTorch traces a convolution again, the number of tokens is no symbol any more, and C would not know its program."""
    return as_unsharded(lambda: Mixed(MIXED[name]), {"ids": torch.arange(16)[None, :2 * tokens].view(2, tokens)}, group, verify=name != "conv")


class Counting(nn.Module):
    """Counts its calls in a buffer, and its tokens in another."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.x = nn.Parameter(torch.randn(16, 2, dtype=torch.float64))
        self.register_buffer("calls", torch.zeros((), dtype=torch.float64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))

    def forward(self, ids):
        y = F.embedding(ids, self.x)
        self.calls += 1
        self.seen.mul_(0.5).add_(y.detach().mean())
        return (y * y).mean() * self.calls


def counted(group):
    made, rows = [Counting(), split(Counting(), group)], []
    for _ in range(2):
        said = [step(m, {"ids": torch.arange(16)[None]})[0] for m in made]
        rows.append(("loss", said[1], said[0], EXACT))
    return rows + [(k, getattr(made[1], k).tolist(), getattr(made[0], k).tolist(), EXACT) for k in ("calls", "seen")]


class Given(nn.Module):
    """A float input that is trained from outside, beside ids."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.mid = nn.Embedding(5, 3).double(), nn.Linear(3, 5).double()

    def forward(self, ids, embeds):
        return F.cross_entropy(self.mid(torch.tanh(self.emb(ids) + embeds)).reshape(-1, 5), ids.reshape(-1))


def given(group):
    rows, said = [], []
    for module in (Given(), split(Given(), group)):
        x = torch.randn(2, 7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
        loss = module(ids=tokens_of(2, 7, 5), embeds=x)
        loss.backward()
        said.append((loss.item(), x.grad.tolist(), module.mid.weight.grad.tolist()))
    return [(what, have, want, EXACT) for what, want, have in zip(("loss", "embeds", "weight"), *said)]
