# Attention around a ring: this rank's queries on the keys of all ranks, which go round, as flash blocks whose results are merged by
# their log-sum-exps.  Which rows a rank holds is C's to say; a block is full, causal or empty by the places of its rows.  An op of its
# own, so that the graph is the same on all ranks.  Neighbours: ops.py (who calls it).  SPDX-License-Identifier: Apache-2.0
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

from .capi import Error
from .rows import places_of

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
FULL, CAUSAL = False, True


def _runs(places):
    """(first row, rows, first place) of each run of neighbours; the tail is none."""
    runs = []
    for row, place in enumerate(places.tolist()):
        if place < 0:
            break
        if runs and place == runs[-1][2] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([row, 1, place])
    return runs


def _blocks(queries, keys, causal):
    """Rows of queries, rows of keys and the kind of each block that is not empty."""
    for q, nq, at in queries:
        for k, nk, to in keys:
            if not causal or to + nk - 1 <= at:
                yield slice(q, q + nq), slice(k, k + nk), FULL
            elif to <= at + nq - 1:
                if (to, nk) != (at, nq):
                    raise Error(f"a block of queries {at}..{at + nq - 1} and keys {to}..{to + nk - 1} is neither whole nor causal; use strategy=\"ulysses\"")
                yield slice(q, q + nq), slice(k, k + nk), CAUSAL


class _Ring:
    def __init__(self, causal, ranks, zigzag, tokens, keys, group):
        self.group = _resolve_process_group(group)
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.causal = causal
        self.queries = _runs(places_of(tokens, ranks, ranks, zigzag, self.rank))
        self.keys = [_runs(places_of(keys, ranks, ranks, zigzag, r)) for r in range(ranks)]

    def blocks(self, step):
        return _blocks(self.queries, self.keys[(self.rank - step) % self.ranks], self.causal)

    def turn(self, tensors):
        """What the rank before this one holds."""
        to = dist.get_global_rank(self.group, (self.rank + 1) % self.ranks)
        by = dist.get_global_rank(self.group, (self.rank - 1) % self.ranks)
        given = [t.contiguous() for t in tensors]
        taken = [torch.empty_like(t) for t in given]
        sends = [dist.P2POp(dist.isend, t, to, self.group, tag=i) for i, t in enumerate(given)]
        receives = [dist.P2POp(dist.irecv, t, by, self.group, tag=i) for i, t in enumerate(taken)]
        for work in dist.batch_isend_irecv(sends + receives):
            work.wait()
        return taken


@torch.library.custom_op("autosp::ring_forward", mutates_args=())
def ring_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool, ranks: int, zigzag: bool, tokens: int,
                 keys: int, group: str) -> tuple[torch.Tensor, torch.Tensor]:
    ring = _Ring(causal, ranks, zigzag, tokens, keys, group)
    out = torch.zeros(q.shape[:3] + v.shape[3:], dtype=q.dtype)
    lse = torch.full(q.shape[:3], float("-inf"), dtype=q.dtype)
    for step in range(ranks):
        for rows, cols, kind in ring.blocks(step):
            o, l = flash(q[:, :, rows], k[:, :, cols], v[:, :, cols], 0.0, kind, scale=scale)
            both = torch.logaddexp(lse[:, :, rows], l.to(q.dtype))
            out[:, :, rows] = (out[:, :, rows] * (lse[:, :, rows] - both).exp()[..., None] + o * (l - both).exp()[..., None]).to(q.dtype)
            lse[:, :, rows] = both
        if step + 1 < ranks:
            k, v = ring.turn([k, v])
    return out, lse


@ring_forward.register_fake
def _(q, k, v, scale, causal, ranks, zigzag, tokens, keys, group):
    return q.new_empty(q.shape[:3] + v.shape[3:]), q.new_empty(q.shape[:3])


@torch.library.custom_op("autosp::ring_backward", mutates_args=())
def ring_backward(g: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, scale: float,
                  causal: bool, ranks: int, zigzag: bool, tokens: int, keys: int,
                  group: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ring = _Ring(causal, ranks, zigzag, tokens, keys, group)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for step in range(ranks):
        for rows, cols, kind in ring.blocks(step):
            a, b, c = flash_backward(g[:, :, rows], q[:, :, rows], k[:, :, cols], v[:, :, cols], out[:, :, rows].contiguous(),
                                     lse[:, :, rows], 0.0, kind, scale=scale)
            dq[:, :, rows] += a
            dk[:, :, cols] += b
            dv[:, :, cols] += c
        k, v, dk, dv = ring.turn([k, v, dk, dv])  # what was added up comes home with the last turn
    return dq, dk, dv


@ring_backward.register_fake
def _(g, q, k, v, out, lse, scale, causal, ranks, zigzag, tokens, keys, group):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx, inputs, output):
    q, k, v, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output)


def _derivative(ctx, g, _):
    q, k, v, out, lse = ctx.saved_tensors
    return (*ring_backward(g.contiguous(), q, k, v, out, lse, *ctx.rest), *[None] * len(ctx.rest))


ring_forward.register_autograd(_derivative, setup_context=_keep)


def ring_sdpa(q, k, v, scale, causal, rings, zigzag, tokens, keys, *, group):
    if q.device.type != "cpu":
        raise Error(f"rings on {q.device.type} are not supported yet; use strategy=\"ulysses\"")
    return ring_forward(q.contiguous(), k.contiguous(), v.contiguous(), scale, causal, rings, zigzag, tokens, keys, group)[0]
