# Attention by number: tables of queries, keys, values and weights by position, one number a head, so that the gradient of the weights is
# what came out.  Neighbours: toys.py, test_cases.py.  SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn as nn
import torch.nn.functional as F
from toys import EXACT, as_unsharded, split, step
from torch.utils.checkpoint import checkpoint

TOKENS, HEADS = 8, 4
CAUSAL_DV = [2.717857142857143, 1.717857142857143, 1.217857142857143, 0.8845238095238095, 0.6345238095238095, 0.4345238095238095,
             0.26785714285714285, 0.125]


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Attention(nn.Module):
    """how(q, k, v, mask) of tables; random: of random ones, with two batch rows of eight heads' widths."""

    def __init__(self, how, v=None, kv_heads=HEADS, random=False, rows=TOKENS, width=1):
        super().__init__()
        torch.manual_seed(4)
        make = torch.randn if random else torch.zeros
        q, k, w = (make(rows, n * width, dtype=torch.float64) for n in (HEADS, kv_heads, HEADS))
        v = torch.randn(rows, kv_heads * width, dtype=torch.float64) if v is None else v
        self.q, self.k, self.v, self.w = (nn.Parameter(x) for x in (q, k, v, w if random else torch.ones_like(w)))
        self.how, self.kv_heads = how, kv_heads

    def forward(self, ids, mask=None):
        q, k, v = (heads_of(F.embedding(ids, x), n) for x, n in ((self.q, HEADS), (self.k, self.kv_heads), (self.v, self.kv_heads)))
        out = self.how(q, k, v, mask).transpose(1, 2).flatten(2)
        return (out * F.embedding(ids, self.w)).sum()


def causal(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def grouped(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def repeated(q, k, v, mask):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def by_keyword(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def by_place(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask)


def seen(n, device):
    return torch.arange(n, device=device)


def with_keys_off(q, k, v, mask):
    """Causal, and keys 6 and 7 are padding."""
    s = q.shape[2]
    allowed = (seen(s, q.device)[None, :] <= seen(s, q.device)[:, None]) & mask.bool()[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)


def window(q, k, v, mask):
    at = seen(q.shape[2], q.device)
    away = at[:, None] - at[None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(away >= 0) & (away < 3))


def manual(q, k, v, mask):
    at = seen(q.shape[2], q.device)
    score = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return score.masked_fill(at[None, :] > at[:, None], -torch.inf).softmax(-1) @ v


def toy(group, how, out, dv, strategy, v=None, kv_heads=HEADS, mask=None, ids=None):
    """out: by position, of all heads or of each; dv: the same of v."""
    v = (torch.arange(TOKENS, dtype=torch.float64)[:, None] + 1).expand(TOKENS, kv_heads).clone() if v is None else v
    ids = torch.arange(TOKENS)[None] if ids is None else ids
    batch = {"ids": ids, **({} if mask is None else {"mask": mask})}
    _, g = step(split(Attention(how, v, kv_heads), group, strategy=strategy), batch)
    spread = lambda x, n: [row if isinstance(row, list) else [row] * n for row in x]
    rows = [("out", g["w"].tolist(), spread(out, HEADS), EXACT), ("dq", g["q"].tolist(), torch.zeros(TOKENS, HEADS).tolist(), EXACT)]
    return rows + ([("dv", g["v"].tolist(), spread(dv, kv_heads), EXACT)] if dv else [])


def random(group, how, strategy, kv_heads=HEADS, mask=None, width=8, rows=TOKENS):
    batch = {"ids": torch.arange(2 * rows).view(2, rows), **({} if mask is None else {"mask": mask})}
    return as_unsharded(lambda: Attention(how, kv_heads=kv_heads, random=True, rows=2 * rows, width=width), batch, group, strategy=strategy)


CAUSAL = [(t + 2) / 2 for t in range(TOKENS)]


def case_17(group, strategy):
    return toy(group, causal, CAUSAL, CAUSAL_DV, strategy) + random(group, causal, strategy)


def case_18(group, strategy):
    v = torch.stack([torch.arange(8.0), 10 * torch.arange(8.0)], 1).double()
    out = [[t / 2, t / 2, 5.0 * t, 5.0 * t] for t in range(8)]
    rows = []
    for how in (grouped, repeated):
        rows += toy(group, how, out, [2 * x for x in CAUSAL_DV], strategy, v=v, kv_heads=2)
    return rows + random(group, grouped, strategy, kv_heads=2)


def padding(b=1, off=(6, 7), rows=None):
    mask = torch.ones(b, TOKENS, dtype=torch.int64)
    for r in rows or range(b):
        mask[r, list(off)] = 0
    return mask


def case_22(group, strategy):
    return toy(group, with_keys_off, [1, 1.5, 2, 2.5, 3, 3.5, 3.5, 3.5], None, strategy, mask=padding()) + \
        random(group, with_keys_off, strategy, mask=padding(2, rows=[1]))


def case_23(group, strategy):
    """Masks that the caller passes: [1, 1, S, S], [B, 1, S, S] and [S, S], bool and added; [B, 1, 1, S]."""
    lower, rows = torch.ones(8, 8, dtype=torch.bool).tril(), []
    added = torch.zeros(8, 8, dtype=torch.float64).masked_fill(~lower, -torch.inf)
    for how, mask in ((by_keyword, lower[None, None]), (by_place, added[None, None]), (by_place, lower), (by_keyword, added)):
        rows += toy(group, how, CAUSAL, CAUSAL_DV, strategy, mask=mask.clone())
    rows += random(group, by_keyword, strategy, mask=torch.stack([lower, lower | (torch.arange(8) == 5)])[:, None])
    return rows + keys_of_a_row(group, strategy)


def keys_of_a_row(group, strategy):
    """[B, 1, 1, S], keys 6 and 7 off in row 0 alone."""
    mask = padding(2, rows=[0]).bool()[:, None, None, :]
    v = (torch.arange(16, dtype=torch.float64) % 8 + 1)[:, None].expand(16, HEADS).clone()
    module = Attention(by_keyword, v, rows=16)
    _, g = step(split(module, group, strategy=strategy), {"ids": torch.arange(16).view(2, 8), "mask": mask.clone()})
    return [("out", g["w"].tolist(), [[3.5] * HEADS] * 8 + [[4.5] * HEADS] * 8, EXACT)]


def case_24(group, strategy):
    """Heads 0 and 1 see their own key alone, heads 2 and 3 all until there."""
    lower, own = torch.ones(8, 8, dtype=torch.bool).tril(), torch.eye(8, dtype=torch.bool)
    mask = torch.stack([own, own, lower, lower])[None]
    return toy(group, by_keyword, [[t + 1.0, t + 1.0, (t + 2) / 2, (t + 2) / 2] for t in range(8)], None, strategy, mask=mask) + \
        random(group, by_keyword, strategy, mask=mask.clone())


def case_26(group, strategy):
    """Row 2 may see nothing: fused attention gives 0 under a bool mask; the mean under finfo.min."""
    lower = torch.ones(8, 8, dtype=torch.bool).tril()
    lower[2] = False
    out = [x if t != 2 else 0.0 for t, x in enumerate(CAUSAL)]
    low = torch.zeros(8, 8, dtype=torch.float64).masked_fill(~lower, torch.finfo(torch.float64).min)
    return toy(group, by_keyword, out, None, strategy, mask=lower) + \
        toy(group, by_keyword, [x if t != 2 else 4.5 for t, x in enumerate(CAUSAL)], None, strategy, mask=low)


def case_28(group, strategy):
    return toy(group, window, [1, 1.5, 2, 3, 4, 5, 6, 7], None, strategy) + random(group, window, strategy)


# ---- layouts ----

class Layout(nn.Module):
    """One attention whose heads are made in some way of [B, S, D]."""

    def __init__(self, how, vocab=24, width=16):
        super().__init__()
        torch.manual_seed(6)
        self.emb, self.qkv, self.out = nn.Embedding(vocab, width), nn.Linear(width, 3 * width), nn.Linear(width, vocab)
        self.how = how

    def forward(self, ids, labels):
        x = self.emb(ids)
        y = self.how(*self.qkv(x).chunk(3, -1))
        return F.cross_entropy(self.out(x + y).reshape(-1, self.out.out_features), labels.reshape(-1))


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def tokens_first(q, k, v):
    """[S, B, D], as nn.Transformer has it."""
    q, k, v = (x.transpose(0, 1).reshape(x.shape[1], x.shape[0], 4, -1).permute(1, 2, 0, 3) for x in (q, k, v))
    return sdpa(q, k, v).permute(2, 0, 1, 3).flatten(2).transpose(0, 1)


def batch_by_heads(q, k, v):
    """[B N, S, H], with bmm."""
    b, s, d = q.shape
    q, k, v = (x.view(b, s, 4, -1).transpose(1, 2).reshape(b * 4, s, -1) for x in (q, k, v))
    at = torch.arange(s, device=q.device)
    score = torch.bmm(q, k.transpose(1, 2)) * (d // 4) ** -0.5
    y = torch.bmm(score.masked_fill(at[None, :] > at[:, None], -torch.inf).softmax(-1), v)
    return y.view(b, 4, s, -1).transpose(1, 2).reshape(b, s, d)


def strided(q, k, v):
    q, k, v = (heads_of(x, 4) for x in (q, k, v))
    return sdpa(q, k.transpose(-1, -2).contiguous().transpose(-1, -2), v).transpose(1, 2).flatten(2)


def without_heads(q, k, v):
    return sdpa(q, k, v)


def tokens_before_heads(q, k, v):
    """[B, S, N, H] by einsum."""
    q, k, v = (x.unflatten(-1, (4, -1)) for x in (q, k, v))
    at = torch.arange(q.shape[1], device=q.device)
    score = torch.einsum("bqnh,bknh->bnqk", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bnqk,bknh->bqnh", score.masked_fill(at[None, :] > at[:, None], -torch.inf).softmax(-1), v).flatten(2)


LAYOUTS = {"tokens first": tokens_first, "batch by heads": batch_by_heads, "strided": strided, "without heads": without_heads,
           "tokens before heads": tokens_before_heads}


def layout(group, name):
    ids = torch.arange(2 * 7).view(2, 7)
    return as_unsharded(lambda: Layout(LAYOUTS[name]).double(), {"ids": ids, "labels": ids % 5}, group, strategy="ulysses")


def case_35(group, strategy):
    """Sizes that are equal: batch and tokens, width and tokens, heads and tokens."""
    rows = []
    for b, s, width in ((8, 8, 16), (2, 16, 16), (2, 4, 16)):
        ids = (torch.arange(b * s) * 7 % 24).view(b, s)
        rows += as_unsharded(lambda w=width: Layout(strided, width=w).double(), {"ids": ids, "labels": ids % 5}, group, strategy=strategy)
    return rows


class Three(nn.Module):
    """Three layers of tables, the second one different."""

    def __init__(self, second):
        super().__init__()
        torch.manual_seed(5)
        self.emb = nn.Parameter(torch.randn(16, 8, dtype=torch.float64))
        self.qkv = nn.ParameterList(torch.randn(24, 8, dtype=torch.float64) / 3 for _ in range(3))
        self.second = second

    def layer(self, x, i, how):
        q, k, v = (heads_of(t, HEADS) for t in F.linear(x, self.qkv[i]).chunk(3, -1))
        return x + how(q, k, v, None).transpose(1, 2).flatten(2)

    def forward(self, ids):
        x = self.layer(F.embedding(ids, self.emb), 0, causal)
        if self.second == "checkpoint":
            x = checkpoint(self.layer, x, 1, causal, use_reentrant=False)
        else:
            x = self.layer(x, 1, manual if self.second == "manual" else causal)
        return self.layer(x, 2, causal).square().mean()


def case_32(group, strategy, second):
    return as_unsharded(lambda: Three(second), {"ids": torch.arange(16).view(2, 8)}, group, strategy=strategy)
