# Bytes that an op's implementation takes beside its operands and results while it runs: ours by what they do, PyTorch's by what its
# CPU kernels are seen to allocate.  Neighbours: policy.py (who asks), call.py, ring.py, head.py (what is counted here).
# SPDX-License-Identifier: Apache-2.0
import torch

FLOAT = 4
KEY_BLOCK = 512  # of PyTorch's attention on CPUs


def _hint(d):
    return int(d.node.hint) if isinstance(d, torch.SymInt) else int(d)


def _value(a):
    return a.meta.get("val") if isinstance(a, torch.fx.Node) else None


def _size(v):
    out = v.element_size()
    for d in v.shape:
        out *= _hint(d)
    return out


def _copied(a):
    """What call.py makes of an operand: whole in memory, floats of 32 bits at least."""
    v = _value(a)
    if v is None:
        return 0
    narrow = v.is_floating_point() and v.element_size() < FLOAT
    return _size(v) * FLOAT // v.element_size() if narrow else 0 if v.is_contiguous() else _size(v)


def _more(n, first):
    more = n.args[first]
    return sum(_copied(a) for a in more) if isinstance(more, (list, tuple)) else 0


def _attention(n):
    return sum(_copied(a) for a in n.args[:3]) + _more(n, 3)


def _attention_backward(n):
    return sum(_copied(a) for a in n.args[:6]) + _more(n, 6)


def _ring(n):
    """Keys and values that come while those at hand go; a block's result and the merged one beside the first."""
    q, k, v = (_size(_value(a)) for a in n.args[:3])
    copies = sum(_copied(a) for a in n.args[:3])
    return max(2 * (k + v), k + v + 2 * (q + q // _hint(_value(n.args[0]).shape[-1])), copies) + _more(n, 3)


def _ring_backward(n):
    """The same, and their gradients; a block's share of each gradient."""
    q, k, v = (_size(_value(a)) for a in n.args[1:4])
    return 3 * (k + v) + q + max(k + v, sum(_copied(a) for a in (n.args[0], n.args[1], n.args[4]))) + _more(n, 6)


def _query_block(q):
    tokens = _hint(q.shape[-2])
    return 256 if tokens >= 768 else 64 if tokens >= 192 else 32


def _blocks(q, k, rows, more):
    """Of each thread: `rows` times scores of a block, and what else a row has."""
    keys = min(KEY_BLOCK, _hint(k.shape[-2]))
    return torch.get_num_threads() * _query_block(q) * (rows * keys + more) * FLOAT


def _flash(n):
    q, k = _value(n.args[0]), _value(n.args[1])
    return _blocks(q, k, 1, 2 + _hint(q.shape[-1]))


def _flash_backward(n):
    return _blocks(_value(n.args[1]), _value(n.args[2]), 2, 0)


def _head_loss(n):
    """Logits of some rows; where x is narrow beside them in its width, with weights of that width and their gradient in 32 bits."""
    x, w, rows = _value(n.args[0]), _value(n.args[1]), n.args[6]
    tokens = _size(x) // x.element_size() // _hint(x.shape[-1])
    wide = max(x.element_size(), FLOAT)
    logits = min(rows, tokens) * _hint(w.shape[0])
    weights = _size(w) // w.element_size()
    narrow = logits * x.element_size() + (0 if w.dtype == x.dtype else weights * x.element_size()) if x.element_size() < wide else 0
    return logits * wide + narrow + (weights * wide if w.element_size() < wide else 0)



OPS = {"attention": _attention, "attention_backward": _attention_backward, "ring_forward": _ring, "ring_backward": _ring_backward,
       "_scaled_dot_product_flash_attention_for_cpu": _flash, "_scaled_dot_product_flash_attention_for_cpu_backward": _flash_backward,
       "head_loss": _head_loss}


def scratch_of(name, n):
    return OPS[name](n) if name in OPS else 0
