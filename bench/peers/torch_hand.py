# A plain Llama for one device, and Ulysses written by hand around it: what autosp.compile should make of it, as somebody would write it who
# knows both.  Tokens are split over the ranks, heads exchanged around attention (q, k, v in one exchange), head and loss by chunks of
# rows, gradients summed in one bucket; torch.compile makes code of it.  Attention and head loss are autosp's kernels in both, so that
# what differs is what was found by a compiler.  Neighbours: torch_front.py (who compares them).  SPDX-License-Identifier: Apache-2.0
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VOCAB = 4096
ROWS = 512  # of the head at a time
IGNORED = -100


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Layer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up, self.down = (nn.Linear(*shape, bias=False) for shape in ((width, inner), (width, inner), (inner, width)))

    def forward(self, x, cos, sin, attend):
        b, s, d = x.shape
        h = self.norm1(x)
        q, k, v = (f(h).view(b, s, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(attend(turned(q, cos, sin), turned(k, cos, sin), v).transpose(1, 2).reshape(b, s, d))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, layers, width=512, heads=8, inner=None):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.norm = nn.Embedding(VOCAB, width), nn.RMSNorm(width, 1e-6)
        self.layers = nn.ModuleList(Layer(width, heads, inner or width * 11 // 4) for _ in range(layers))
        self.head = nn.Linear(width, VOCAB, bias=False)
        half = width // heads // 2
        self.register_buffer("frequencies", 10000 ** (-torch.arange(half) / half), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def hidden(self, ids, places, attend):
        angle = (places[:, None] * self.frequencies).repeat(1, 2)
        x, cos, sin = self.tokens(ids), angle.cos(), angle.sin()
        for layer in self.layers:
            x = layer(x, cos, sin, attend)
        return self.norm(x)

    def forward(self, ids, labels):
        x = self.hidden(ids, torch.arange(ids.shape[1], device=ids.device), attend)
        targets = F.pad(labels, (0, 1), value=IGNORED)[..., 1:]
        return F.cross_entropy(self.head(x).view(-1, VOCAB), targets.reshape(-1), ignore_index=IGNORED)


# ---- Ulysses ----

def exchange(x, group):
    """Parts of the first dimension go to the ranks, theirs come: its own transpose."""
    from torch.distributed._functional_collectives import all_to_all_single_autograd

    return all_to_all_single_autograd(x.contiguous(), None, None, group)


def attend_split(q, k, v, group, ranks):
    """(B, heads, tokens / P, D) each: heads / P of them on all tokens meanwhile.  One sequence a batch."""
    from autosp import call

    (_, heads, s, d), mine = q.shape, q.shape[1] // ranks
    packed = torch.stack([t[0] for t in (q, k, v)]).view(3, ranks, mine, s, d).transpose(0, 1)
    q, k, v = exchange(packed, group).permute(1, 2, 0, 3, 4).reshape(3, 1, mine, ranks * s, d).unbind(0)
    y = call.attention(q, k, v, [], None, call.text(scale=d**-0.5, causal=True), "")[0]
    y = exchange(y.view(mine, ranks, s, d).transpose(0, 1), group)
    return y.reshape(1, heads, s, d)


class Ulysses:
    """The loss of all ranks; the gradients of this rank's tokens, until they are summed."""

    def __init__(self, model, group):
        self.model, self.group = model, group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.compiled = torch.compile(self._mine, fullgraph=True)

    def _mine(self, ids, places, targets):
        from autosp import ops

        x = self.model.hidden(ids, places, lambda q, k, v: attend_split(q, k, v, self.group, self.ranks))
        return ops.head_loss(x, self.model.head.weight, None, targets.reshape(-1), IGNORED, 2, ROWS, group="")

    def __call__(self, ids, labels):
        targets = F.pad(labels, (0, 1), value=IGNORED)[..., 1:]
        places = torch.arange(ids.shape[1])
        mine = [x.chunk(self.ranks, -1)[self.rank].contiguous() for x in (ids, places, targets)]
        loss = self.compiled(*mine) / (targets != IGNORED).sum()
        whole = loss.detach().clone()
        dist.all_reduce(whole, group=self.group)
        return loss + (whole - loss.detach())

    def sum_gradients(self):
        grads = [p.grad for p in self.model.parameters()]
        flat = torch.cat([g.reshape(-1) for g in grads])
        dist.all_reduce(flat, group=self.group)
        for g, part in zip(grads, flat.split([g.numel() for g in grads])):
            g.copy_(part.view_as(g))
