# Seconds of a training step in PyTorch: forward, backward, clipping, AdamW.  The model is a plain Llama written with what PyTorch
# does fastest here: fused attention (scaled_dot_product_attention), fused cross entropy, fused AdamW.
#   torch_step.py HOW MODEL DATA SEQ THREADS STEPS DTYPE     prints one JSON line: {"loss": of each step, "seconds": of each step}
#   torch_step.py init MODEL                                 random weights beside MODEL/config.json, for both sides
# HOW: eager; compile (torch.compile); checkpoint (torch.compile, each layer computed again in the backward pass); ulysses (by hand,
# under torch.distributed.run over gloo: tokens split over the ranks, heads exchanged around attention, gradients summed in one
# bucket).  DTYPE: f32, or bf16 by autocast.  The rate of learning is autosp's, so that losses can be compared step by step.
# Neighbours: compare.py (who runs it).  SPDX-License-Identifier: Apache-2.0
import json
import math
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.checkpoint import checkpoint

RATE, DECAY, CLIP = 3e-4, 0.1, 1.0


class Exchange(torch.autograd.Function):
    """Splits dim `give` over the ranks and joins dim `take` of all; the gradient goes the other way."""

    @staticmethod
    def forward(ctx, x, give, take):
        ctx.dims = take, give
        parts = [p.contiguous() for p in x.chunk(dist.get_world_size(), give)]
        received = [torch.empty_like(p) for p in parts]
        dist.all_to_all(received, parts)
        return torch.cat(received, take)

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad, *ctx.dims), None, None


class Attention(nn.Module):
    def __init__(self, c, split):
        super().__init__()
        d, self.heads, self.kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.head_dim, self.split = d // self.heads, split
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(d, n * self.head_dim, bias=False) for n in (self.heads, self.kv, self.kv))
        self.o_proj = nn.Linear(d, d, bias=False)

    def forward(self, x, cos, sin):
        b, s, d = x.shape

        def rotate(t):
            lower, upper = t.chunk(2, -1)
            return t * cos + torch.cat((-upper, lower), -1) * sin

        q = rotate(self.q_proj(x).view(b, s, self.heads, self.head_dim).transpose(1, 2))
        k = rotate(self.k_proj(x).view(b, s, self.kv, self.head_dim).transpose(1, 2))
        v = self.v_proj(x).view(b, s, self.kv, self.head_dim).transpose(1, 2)
        if self.split:
            q, k, v = (Exchange.apply(t, 1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        if self.split:
            y = Exchange.apply(y, 2, 1)
        return self.o_proj(y.transpose(1, 2).reshape(b, s, d))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, f = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj = (nn.Linear(d, f, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(f, d, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c, split):
        super().__init__()
        self.self_attn, self.mlp = Attention(c, split), Mlp(c)
        self.input_layernorm, self.post_attention_layernorm = (nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"]) for _ in range(2))

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Parameters have the names of Hugging Face's."""

    def __init__(self, c, how):
        super().__init__()
        self.c, self.how = c, how
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(Layer(c, how == "ulysses") for _ in range(c["num_hidden_layers"]))
        self.model.norm = nn.RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)

    def forward(self, ids, labels, cos, sin):
        """ids (1, S) and labels (S,): the loss, summed over the labels that count."""
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = checkpoint(layer, x, cos, sin, use_reentrant=False) if self.how == "checkpoint" else layer(x, cos, sin)
        return F.cross_entropy(self.lm_head(self.model.norm(x))[0], labels, ignore_index=-100, reduction="sum")


def read_config(folder):
    with open(folder + "/config.json") as f:
        return json.load(f)


def init(folder):
    c = read_config(folder)
    torch.manual_seed(1)
    model = Llama(c, "eager")
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=c["initializer_range"])
    save_file(model.state_dict(), folder + "/model.safetensors", {"format": "pt"})


def inputs_of(c, data, seq, how):
    """This rank's ids, labels and tables, and how many labels of all ranks count."""
    with open(data, "rb") as f:
        ids = torch.tensor(list(f.read(seq)))
    labels = torch.cat((ids[1:], torch.tensor([-100])))
    half = c["hidden_size"] // c["num_attention_heads"] // 2
    angle = torch.outer(torch.arange(seq), c["rope_theta"] ** (-torch.arange(half) / half)).repeat(1, 2)
    tensors = ids, labels, angle.cos(), angle.sin()
    if how == "ulysses":
        rank, ranks = dist.get_rank(), dist.get_world_size()
        tensors = tuple(t.chunk(ranks)[rank].contiguous() for t in tensors)
    ids, labels, cos, sin = tensors
    return (ids[None], labels, cos, sin), seq - 1


def sum_over_ranks(parameters, loss):
    """One bucket for all gradients and the loss."""
    grads = [p.grad for p in parameters]
    flat = torch.cat([g.reshape(-1) for g in grads] + [loss.detach().reshape(1)])
    dist.all_reduce(flat)
    for g, part in zip(grads, flat.split([g.numel() for g in grads] + [1]), strict=False):
        g.copy_(part.view_as(g))
    return flat[-1]


def optimizer_of(model):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8, fused=True)


def train(how, folder, data, seq, threads, steps, dtype):
    torch.set_num_threads(threads)
    if how == "ulysses":
        dist.init_process_group("gloo")
    c = read_config(folder)
    model = Llama(c, how)
    model.load_state_dict(load_file(folder + "/model.safetensors"))
    step_model = torch.compile(model) if how in ("compile", "checkpoint") else model
    optimizer = optimizer_of(model)
    inputs, n_labels = inputs_of(c, data, seq, how)
    losses, seconds = [], []
    for step in range(steps):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            loss = step_model(*inputs) / n_labels
        loss.backward()
        if how == "ulysses":
            loss = sum_over_ranks(list(model.parameters()), loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * step / steps)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    if how != "ulysses" or dist.get_rank() == 0:
        print(json.dumps({"loss": losses, "seconds": seconds}))


if sys.argv[1] == "init":
    init(sys.argv[2])
else:
    train(*sys.argv[1:4], *map(int, sys.argv[4:7]), sys.argv[7])
