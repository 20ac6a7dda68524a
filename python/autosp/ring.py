# Attention around a ring: this rank's queries on the keys of all ranks, which go round, as blocks whose results are merged by their
# log-sum-exps (src/pass/ring.c has the same for autosp's own executor).  Which rows a rank holds, which pairs are seen and how blocks
# are merged is C's.  An op of its own, so that the graph is the same on all ranks.  Neighbours: ops.py (who calls it), call.py.
# SPDX-License-Identifier: Apache-2.0
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

from .call import call, computed, derive, place


class _Ring:
    def __init__(self, attributes, rings, tokens, keys, group):
        self.group = _resolve_process_group(group)
        self.place = place(group)
        self.attributes = f"{attributes}, rings = {rings}, tokens = {tokens}, keys = {keys}"
        self.rings, self.by = rings, self.place[1] // rings

    def block(self, op, step, operands, draw):
        return call(op, f"{self.attributes}, step = {step}", [computed(x) for x in operands], draw, *self.place)

    def turn(self, tensors):
        """What the group before this one holds."""
        rank, ranks = self.place
        to = dist.get_global_rank(self.group, (rank + self.by) % ranks)
        by = dist.get_global_rank(self.group, (rank - self.by) % ranks)
        given = [t.contiguous() for t in tensors]
        taken = [torch.empty_like(t) for t in given]
        sends = [dist.P2POp(dist.isend, t, to, self.group, tag=i) for i, t in enumerate(given)]
        receives = [dist.P2POp(dist.irecv, t, by, self.group, tag=i) for i, t in enumerate(taken)]
        for work in dist.batch_isend_irecv(sends + receives):
            work.wait()
        return taken


@torch.library.custom_op("autosp::ring_forward", mutates_args=())
def ring_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, more: list[torch.Tensor], draw: torch.Tensor | None, attributes: str,
                 rings: int, tokens: int, keys: int, group: str) -> tuple[torch.Tensor, torch.Tensor]:
    ring = _Ring(attributes, rings, tokens, keys, group)
    merged = None
    for step in range(rings):
        block = ring.block("sdpa", step, (q, k, v, *more), draw)
        merged = block if merged is None else call("merge_attention", "", [*merged, *block])
        if step + 1 < rings:
            k, v = ring.turn([k, v])
    return merged[0].to(q.dtype), merged[1]


@ring_forward.register_fake
def _(q, k, v, more, draw, attributes, rings, tokens, keys, group):
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return q.new_empty(q.shape[:3] + v.shape[3:]), q.new_empty(q.shape[:3], dtype=wide)


@torch.library.custom_op("autosp::ring_backward", mutates_args=())
def ring_backward(g: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor,
                  more: list[torch.Tensor], draw: torch.Tensor | None, attributes: str, rings: int, tokens: int, keys: int,
                  group: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ring = _Ring(attributes, rings, tokens, keys, group)
    kinds = [x.dtype for x in (q, k, v)]
    q, out, lse, g = (computed(x) for x in (q, out, lse, g))
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(computed(k)), torch.zeros_like(computed(v))
    for step in range(rings):
        a, b, c = ring.block("sdpa_grad", step, (q, k, v, out, lse, g, *more), draw)
        dq += a
        dk += b
        dv += c
        k, v, dk, dv = ring.turn([k, v, dk, dv])  # what was added up comes home with the last turn
    return tuple(x.to(kind) for x, kind in zip((dq, dk, dv), kinds))


@ring_backward.register_fake
def _(g, q, k, v, *rest):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


derive(ring_forward, ring_backward)
