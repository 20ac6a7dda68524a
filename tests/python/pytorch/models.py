# Small models with random weights, and their batches.  Every size differs from every other, unless a case is about equal sizes.
# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB = 61
SIZES = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=512, initializer_range=0.2, use_cache=False, attention_dropout=0.0)


# What a family's configuration has beside SIZES.  Two layers where they differ from each other.
MORE = {"mistral": {"sliding_window": 9}, "qwen3": {"head_dim": 12},
        "gemma2": {"num_hidden_layers": 2, "sliding_window": 9, "head_dim": 12, "query_pre_attn_scalar": 12, "attn_implementation": "eager"},
        "gemma3_text": {"num_hidden_layers": 2, "sliding_window": 9, "head_dim": 12, "query_pre_attn_scalar": 12,
                        "layer_types": ["sliding_attention", "full_attention"]},
        "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "batched_mm"},
        "olmoe": {"num_experts": 4, "num_experts_per_tok": 2, "experts_implementation": "batched_mm"}}


def hugging_face(family, dropout, layers):
    import transformers

    if family == "gpt2":
        config = transformers.GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=layers, n_head=4, n_positions=512, initializer_range=0.2,
                                         resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, use_cache=False, bos_token_id=1,
                                         eos_token_id=2)
    elif family == "bert":
        config = transformers.BertConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=48,
                                         max_position_embeddings=512, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
        return transformers.BertForMaskedLM(config)
    else:
        more = {"num_hidden_layers": layers, **MORE.get(family, {})}
        config = transformers.AutoConfig.for_model(family, **{**SIZES, **more, "attention_dropout": dropout})
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.loss_type = "ForCausalLM"
    return model


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(d, dim=-1)
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Plain(nn.Module):
    """A user's own: other names of inputs, tied head, learned positions, the labels shifted by slices."""

    def __init__(self, width=24, heads=6, layers=1):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, width), nn.Embedding(512, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits[:, :-1].reshape(-1, VOCAB), targets[:, 1:].reshape(-1))


def build(name, dtype="f32", seed=0, dropout=0.0, layers=1):
    torch.manual_seed(seed)
    model = Plain(layers=layers) if name == "plain" else hugging_face(name, dropout, layers)
    return model.double() if dtype == "f64" else model


def batch(name, b, s, labels="uneven", extra="", seed=1):
    """labels: uneven (most of the first part ignored), empty (all of the first part), all."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCAB, (b, s), generator=rng)
    targets = ids.clone()
    if labels == "uneven":
        targets[0, : s // 2 + 3] = -100
        targets[-1, 5:9] = -100
    if labels == "empty":
        targets[:, : s // 2 + 2] = -100
    if name == "bert":
        targets[ids % 3 > 0] = -100  # masked tokens alone
    if name == "plain":
        return {"ids": ids, "targets": targets}
    out = {"input_ids": ids, "labels": targets}
    if extra == "padding":
        out["attention_mask"] = torch.ones(b, s, dtype=torch.int64)
        out["attention_mask"][0, -5:] = 0
    if extra == "bias":
        out["attention_mask"] = torch.full((s, s), -30.0).triu(1)[None, None].expand(b, 1, s, s).contiguous()
    if extra == "ones":
        out["attention_mask"] = torch.ones(b, s, dtype=torch.int64)
    if extra == "packed":
        out["position_ids"] = torch.cat([torch.arange(10), torch.arange(s - 10)])[None].expand(b, s).contiguous()
    return out


def loss_of(out):
    return out if isinstance(out, torch.Tensor) else out.loss
