# What C puts into a graph beside ATen ops (src/front/emit.def), over functional collectives.  AOTAutograd traces through these
# functions, so that their derivatives are PyTorch's; the derivative of an exchange is its transpose.  No number here depends on the
# rank: it is asked for when the graph runs, so that all ranks compile the same graph and issue the same collectives in one order.
# Neighbours: edit.py (who inserts them), rows.py, call.py, ring.py.  SPDX-License-Identifier: Apache-2.0
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

from . import call, head
from .ring import ring_forward
from .rows import places_of, room

collectives = torch.ops._c10d_functional
BUCKET_BYTES = 32 << 20


# ---- rows ----

def _rank(group):
    return dist.get_rank(_resolve_process_group(group))


@torch.library.custom_op("autosp::places", mutates_args=())
def places(n: int, ranks: int, rings: int, zigzag: bool, group: str, device: torch.device) -> torch.Tensor:
    return places_of(n, ranks, rings, zigzag, _rank(group)).to(device)


@places.register_fake
def _(n, ranks, rings, zigzag, group, device):
    return torch.empty(room(n, ranks), dtype=torch.int64, device=device)


@torch.library.custom_op("autosp::parts", mutates_args=())
def parts(n: int, unit: int, ranks: int, device: torch.device) -> torch.Tensor:
    """The parts of n items in units, one behind the other, each with room for the largest; -1: the tail of a part."""
    held = torch.cat([places_of(n // unit, ranks, 1, False, r) for r in range(ranks)])
    items = held[:, None] * unit + torch.arange(unit)
    return torch.where(held[:, None] < 0, -1, items).flatten().to(device)


@parts.register_fake
def _(n, unit, ranks, device):
    return torch.empty(room(n // unit, ranks) * unit * ranks, dtype=torch.int64, device=device)


@torch.library.custom_op("autosp::joined", mutates_args=())
def joined(n: int, unit: int, ranks: int, device: torch.device) -> torch.Tensor:
    """Where each of n items stands among the parts."""
    held = parts(n, unit, ranks, torch.device("cpu"))
    out = torch.empty(n, dtype=torch.int64)
    out[held[held >= 0]] = torch.nonzero(held >= 0).flatten()
    return out.to(device)


@joined.register_fake
def _(n, unit, ranks, device):
    return torch.empty(n, dtype=torch.int64, device=device)


def _along(v, dim, x):
    """v, a vector, so that it broadcasts along dim of x."""
    return v.view([-1 if d == dim else 1 for d in range(x.dim())])


def shard_slice(x, dim, ranks, of, fill, rings, zigzag, *, group):
    n = x.shape[dim]
    p = places(of if _given(of) else n, ranks, rings, zigzag, group, x.device)
    y = x.index_select(dim, p.clamp(0, n - 1))
    return y if fill is None else torch.where(_along((p >= 0) & (p < n), dim, x), y, fill)


def shard_pad(x, dim, ranks, of, length, rings, zigzag, *, group):
    p = places(of if _given(of) else length, ranks, rings, zigzag, group, x.device)
    mine = torch.where(_along((p >= 0) & (p < length), dim, x), x, 0)
    shape = list(x.shape)
    shape[dim] = length
    return x.new_zeros(shape).index_add(dim, p.clamp(0, length - 1), mine)


def mask_tail(x, dim, ranks, of, length, rings, zigzag, *, group):
    p = places(of if _given(of) else length, ranks, rings, zigzag, group, x.device)
    return torch.where(_along((p >= 0) & (p < length), dim, x), x, 0)


def shorten(x, dim, ranks, of, length, rings, zigzag, *, group):
    return x.view_as(x)


def _given(size):
    return not isinstance(size, int) or size != 0


# ---- exchanges ----

@torch.library.custom_op("autosp::exchange_within", mutates_args=())
def exchange_within(x: torch.Tensor, group: str) -> torch.Tensor:
    """Part i of x to the i-th of as many neighbours in the group, theirs back: strategy="hybrid:UxR" has no groups of its own for them."""
    group, n = _resolve_process_group(group), x.shape[0]
    first = dist.get_rank(group) // n * n
    one_each = [int(first <= r < first + n) for r in range(dist.get_world_size(group))]
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    dist.all_to_all_single(y, x.contiguous(), one_each, one_each, group)
    return y


@exchange_within.register_fake
def _(x, group):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        if x.shape[0] != dist.get_world_size(_resolve_process_group(group)):
            return exchange_within(x, group)
        ones = [1] * x.shape[0]
        return collectives.wait_tensor(collectives.all_to_all_single(x.contiguous(), ones, ones, group))

    @staticmethod
    def backward(ctx, g):
        return _Exchange.apply(g, ctx.group), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return collectives.wait_tensor(collectives.all_reduce(x.contiguous(), "sum", group))

    @staticmethod
    def backward(ctx, g):
        return _Sum.apply(g, ctx.group), None


def all_reduce(x, *, group):
    return _Sum.apply(x, group)


def all_to_all(x, split, gather, ranks, whole, split_unit, gather_unit, zero, *, group):
    """Parts of `split` go to the ranks (of a group, or neighbours within it), theirs of `gather` are put together: `whole` items of it
    where parts may be ragged."""
    n = x.shape[split]
    if n % (ranks * split_unit) != 0:
        at = parts(n, split_unit, ranks, x.device)
        x = torch.where(_along(at >= 0, split, x), x.index_select(split, at.clamp(min=0)), 0)
    x = x.unflatten(split, (ranks, room(n // split_unit, ranks) * split_unit)).movedim(split, 0)
    y = _Exchange.apply(x, group).movedim(0, gather).flatten(gather, gather + 1)
    if not _given(whole):
        return y
    if whole % (ranks * gather_unit) != 0:
        return y.index_select(gather, joined(whole, gather_unit, ranks, x.device))
    return y.narrow(gather, 0, whole)


# ---- along a split sequence ----

@torch.library.custom_op("autosp::ranks_before", mutates_args=())
def ranks_before(ranks: int, group: str, device: torch.device) -> torch.Tensor:
    """How many ranks each rank of the group stands before this one."""
    return _rank(group) - torch.arange(ranks, device=device)


@ranks_before.register_fake
def _(ranks, group, device):
    return torch.empty(ranks, dtype=torch.int64, device=device)


def seq_select(x, dim, ranks, of, length, at, *, group):
    """Row `at` of the sequence, on every rank."""
    p = places(of if _given(of) else length, ranks, 1, False, group, x.device)
    return _Sum.apply(torch.where(_along(p == at, dim, x), x, 0).sum(dim), group)


def seq_cumsum(x, dim, ranks, of, length, *, group):
    """The sums of the own rows, and what all ranks before have summed up."""
    p = places(of if _given(of) else length, ranks, 1, False, group, x.device)
    own = torch.where(_along((p >= 0) & (p < length), dim, x), x, 0).cumsum(dim)
    before = ranks_before(ranks, group, x.device).view(-1, *[1] * x.dim())
    sums = _Sum.apply(torch.where(before == 0, own.narrow(dim, own.shape[dim] - 1, 1)[None], 0), group)
    return own + torch.where(before > 0, sums, 0).sum(0)


# ---- attention and dropout, by C's kernels ----

def attention(q, k, v, more, scale, causal, mask, empty, softcap, dropout, site, heads, head_unit, head_ranks, *, draw=None, group):
    call.cpu_only(q, "attention under a mask")
    attributes = call.text(scale=scale, causal=causal, mask=mask, empty=empty, softcap=softcap, dropout=dropout, site=site, heads=heads,
                           head_unit=head_unit, head_ranks=head_ranks)
    return call.attention(q, k, v, more, draw, attributes, group)[0]


def ring_sdpa(q, k, v, more, scale, causal, mask, empty, softcap, dropout, site, heads, head_unit, head_ranks, rings, zigzag, tokens, keys, *,
              draw=None, group):
    call.cpu_only(q, "a ring")
    attributes = call.text(scale=scale, causal=causal, mask=mask, empty=empty, softcap=softcap, dropout=dropout, site=site, heads=heads,
                           head_unit=head_unit, head_ranks=head_ranks, zigzag=zigzag)
    return ring_forward(q, k, v, more, draw, attributes, rings, tokens, keys, group)[0]


def dropout(x, p, site, dims, outer, whole, of, parts, stride, rings, zigzag, *, draw, group):
    call.cpu_only(x, "dropout")
    return call.dropout(x, draw, p, site, dims, outer, whole, of, parts, stride, rings, zigzag, group)


def draw(*, group):
    return call.draw(group)


# ---- losses and gradients ----

def head_loss(x, w, bias, labels, ignore, reduction, rows, *, group):
    train = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, w, bias))
    return head.head_loss(x, w, bias, labels, ignore, reduction == 1, rows, train)[0]


def count_valid(labels, ignore, *, group):
    return (labels != ignore).sum()


def label_weights(labels, weights, ignore, *, group):
    return torch.where(labels == ignore, 0, weights[labels.clamp(min=0)])


class _Seed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss, ranks):
        ctx.ranks = ranks
        return loss.clone()  # which callers may scale in place

    @staticmethod
    def backward(ctx, g):
        return g / ctx.ranks, None


def seed(loss, ranks):
    """The loss, which all ranks have: each of them starts 1/ranks of the backward pass."""
    return _Seed.apply(loss, ranks)


def _buckets(grads):
    """Gradients of one dtype together, in order, up to a size."""
    at, size = [], 0
    for g in grads:
        if at and (g.dtype != at[0].dtype or size + g.numel() * g.element_size() > BUCKET_BYTES):
            yield at
            at, size = [], 0
        at.append(g)
        size += g.numel() * g.element_size()
    if at:
        yield at


@torch.library.custom_op("autosp::bucket", mutates_args=())
def bucket(grads: list[torch.Tensor]) -> torch.Tensor:
    """An op of its own, so that the bucket is made when all of it is there: a `cat` Inductor has written to by each gradient, and the
    whole of it would be there from the first one on."""
    return torch.cat([g.reshape(-1) for g in grads])


@bucket.register_fake
def _(grads):
    return grads[0].new_empty(sum(g.numel() for g in grads))


class _SumGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, *params):
        ctx.group = group
        ctx.set_materialize_grads(False)
        return tuple(p.view_as(p) for p in params)

    @staticmethod
    def backward(ctx, *grads):
        present = [g for g in grads if g is not None]
        summed = []
        for grads_of_one in _buckets(present):
            flat = collectives.wait_tensor(collectives.all_reduce(bucket(grads_of_one), "sum", ctx.group))
            summed += [s.view(g.shape) for s, g in zip(flat.split([g.numel() for g in grads_of_one]), grads_of_one)]
        summed = iter(summed)
        return None, *(None if g is None else next(summed) for g in grads)


def sum_gradients(params, *, group):
    """The parameters; what comes back for them is summed over the ranks, once, in buckets, when all of it is there."""
    return _SumGradients.apply(group, *params)
