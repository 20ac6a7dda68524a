# Ops of ours that PyTorch has none for, run by C's kernels on the tensors of a graph: attention under predicates, dropout that is the
# same for every number of ranks.  Neighbours: ops.py (the functions that C names), capi.py.  SPDX-License-Identifier: Apache-2.0
import functools

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

from .capi import Call, Error

NAMES = {torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.bool: "bool"}
DTYPES = {name: dtype for dtype, name in NAMES.items()}


@functools.lru_cache(maxsize=16)
def _prepared(*what):
    return Call(*what)


def _type(x):
    return f"{NAMES[x.dtype]}[{', '.join(map(str, x.shape))}]"


def _empty(text):
    dtype, dims = text[:-1].split("[")
    return torch.empty([int(d) for d in dims.split(", ") if d], dtype=DTYPES[dtype])


def _aligned(x):
    x = x.detach().contiguous()
    return x if x.data_ptr() % 64 == 0 else x.clone()


def call(op, attributes, operands, draw=None, rank=0, ranks=1):
    """The results of one op; operands of a dtype that it has."""
    operands = [_aligned(x) for x in operands]
    prepared = _prepared(op, attributes, tuple(_type(x) for x in operands), torch.get_num_threads(), rank, ranks)
    results = [_empty(t) for t in prepared.results]
    seed, step = (0, 0) if draw is None else draw.tolist()
    prepared.run([x.data_ptr() for x in operands], [x.data_ptr() for x in results], seed, step)
    return results


def text(**fields):
    """Attributes as in graph text, without those that say nothing."""

    def value(x):
        if isinstance(x, (list, tuple)):
            return "[" + ", ".join(str(int(i)) for i in x) + "]"
        if isinstance(x, bool):
            return "true" if x else "false"
        return f'"{x}"' if isinstance(x, str) else repr(x)

    return ", ".join(f"{k} = {value(x)}" for k, x in fields.items())


def place(group):
    """(rank, ranks) of the group."""
    if not group:
        return 0, 1
    group = _resolve_process_group(group)
    return dist.get_rank(group), dist.get_world_size(group)


def computed(x):
    """As the kernels compute: floats of 32 bits at least, whole numbers of 64."""
    if x.is_floating_point():
        return x if x.dtype == torch.float64 else x.float()
    return x if x.dtype == torch.bool else x.long()


# ---- attention ----

@torch.library.custom_op("autosp::attention", mutates_args=())
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, more: list[torch.Tensor], draw: torch.Tensor | None,
              attributes: str, group: str) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = call("sdpa", attributes, [computed(x) for x in (q, k, v, *more)], draw, *place(group))
    return out.to(q.dtype), lse


@attention.register_fake
def _(q, k, v, more, draw, attributes, group):
    return q.new_empty(q.shape[:3] + v.shape[3:]), q.new_empty(q.shape[:3], dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)


@torch.library.custom_op("autosp::attention_backward", mutates_args=())
def attention_backward(g: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor,
                       more: list[torch.Tensor], draw: torch.Tensor | None,
                       attributes: str, group: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    given = [computed(x) for x in (q, k, v, out, lse, g, *more)]
    return tuple(x.to(like.dtype) for x, like in zip(call("sdpa_grad", attributes, given, draw, *place(group)), (q, k, v)))


@attention_backward.register_fake
def _(g, q, k, v, out, lse, more, draw, attributes, group):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def derive(forward, backward):
    """forward(q, k, v, more, draw, *rest) has backward(g, q, k, v, out, lse, more, draw, *rest) as its derivative in q, k, v."""

    def keep(ctx, inputs, output):
        q, k, v, more, draw, *ctx.rest = inputs
        ctx.n_more, ctx.has_draw = len(more), draw is not None
        ctx.save_for_backward(q, k, v, *output, *more, *([draw] if ctx.has_draw else []))

    def derivative(ctx, g, _):
        q, k, v, out, lse, *more = ctx.saved_tensors
        draw = more.pop() if ctx.has_draw else None
        return (*backward(g, q, k, v, out, lse, more, draw, *ctx.rest), [None] * ctx.n_more, None, *[None] * len(ctx.rest))

    forward.register_autograd(derivative, setup_context=keep)


derive(attention, attention_backward)


# ---- random numbers ----

@torch.library.custom_op("autosp::draw", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def draw(group: str) -> torch.Tensor:
    """Where the random numbers of one forward pass begin: of the first rank's generator, so that torch.manual_seed settles them."""
    x = torch.randint(0, 1 << 62, (2,), dtype=torch.int64)
    if group:
        of = _resolve_process_group(group)
        dist.broadcast(x, dist.get_global_rank(of, 0), group=of)
    return x


@draw.register_fake
def _(group):
    return torch.empty(2, dtype=torch.int64)


@torch.library.custom_op("autosp::dropout", mutates_args=())
def dropout(x: torch.Tensor, draw: torch.Tensor, p: float, site: int, dims: list[int], outer: list[int], whole: list[int], of: list[int],
            parts: list[int], stride: list[int], rings: list[int], zigzag: bool, group: str) -> torch.Tensor:
    attributes = text(p=p, site=site, dims=dims, outer=outer, whole=whole, of=of, parts=parts, stride=stride, rings=rings, zigzag=zigzag)
    return call("dropout", attributes, [computed(x)], draw, *place(group))[0].to(x.dtype)


@dropout.register_fake
def _(x, draw, *rest):
    return x.new_empty(x.shape)


def _keep_draw(ctx, inputs, output):
    _, draw, *ctx.rest = inputs
    ctx.save_for_backward(draw)


def _dropped(ctx, g):
    return (dropout(g, ctx.saved_tensors[0], *ctx.rest), *[None] * (1 + len(ctx.rest)))


dropout.register_autograd(_dropped, setup_context=_keep_draw)


def cpu_only(x, what):
    if x.device.type != "cpu":
        raise Error(f"{what} on {x.device.type} is not supported yet")
