# Seconds of a float32 training step in PyTorch eager: forward, backward, clipping, AdamW.  The model is a plain Llama written
# with what PyTorch does fastest here: fused attention (scaled_dot_product_attention), fused cross entropy, fused AdamW.
#   eager_step.py CONFIG.json DATA SEQ THREADS STEPS     prints one JSON line: {"loss": of each step, "seconds": of each step}
# Neighbours: run.sh (who compares).  SPDX-License-Identifier: Apache-2.0
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, self.heads, self.kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        h = self.head_dim = d // self.heads
        self.norm1, self.norm2 = nn.RMSNorm(d, c["rms_norm_eps"]), nn.RMSNorm(d, c["rms_norm_eps"])
        self.q, self.k, self.v = (nn.Linear(d, n * h, bias=False) for n in (self.heads, self.kv, self.kv))
        self.o = nn.Linear(d, d, bias=False)
        self.gate, self.up = (nn.Linear(d, c["intermediate_size"], bias=False) for _ in range(2))
        self.down = nn.Linear(c["intermediate_size"], d, bias=False)

    def attention(self, x, cos, sin):
        b, s, d = x.shape

        def rotate(t):
            lower, upper = t.chunk(2, -1)
            return t * cos + torch.cat((-upper, lower), -1) * sin

        q = rotate(self.q(x).view(b, s, self.heads, self.head_dim).transpose(1, 2))
        k = rotate(self.k(x).view(b, s, self.kv, self.head_dim).transpose(1, 2))
        v = self.v(x).view(b, s, self.kv, self.head_dim).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        return self.o(y.transpose(1, 2).reshape(b, s, d))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, c, seq):
        super().__init__()
        self.embed = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["num_hidden_layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=c["initializer_range"])
        half = self.blocks[0].head_dim // 2
        angle = torch.outer(torch.arange(seq), c["rope_theta"] ** (-torch.arange(half) / half)).repeat(1, 2)
        self.cos, self.sin = angle.cos(), angle.sin()

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits[0, :-1], ids[0, 1:])


def main():
    config, data, seq, threads, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    torch.manual_seed(1)
    torch.set_num_threads(threads)
    with open(config) as f:
        model = Llama(json.load(f), seq)
    with open(data, "rb") as f:
        ids = torch.tensor(list(f.read(seq)))[None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    losses, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        loss = model(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"loss": losses, "seconds": seconds}))


main()
