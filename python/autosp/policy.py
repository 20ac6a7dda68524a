# What is kept for the backward pass: PyTorch's joint graph, described to C (docs/memory.md has the format), and C's answer imposed on
# it.  No decision is made here: classes of ops are PyTorch's own, sizes and FLOPs are read off.  Neighbours: backend.py (who makes the
# partitioner), capi.py.  SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import operator
import re
import threading

import torch
import torch._functorch.partitioners as partitioners
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.utils.checkpoint import CheckpointPolicy

from .capi import Error, Recompute, rates
from .graph import where
from .scratch import scratch_of

POLICIES = ("none", "default", "sac", "layer", "budget")
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul")
ABSORBS = ("cat", "sum", "embedding")
PLAIN_VIEWS = ("_unsafe_view", "detach", "alias", "wait_tensor")
CONSTANTS = ("full", "iota", "arange", "scalar_tensor", "zeros", "ones")  # part of what reads them, where loops are fused
TUPLE_VIEWS = ("split", "split_with_sizes", "chunk", "unbind")


# ---- nodes ----

def _name(n):
    """"mm" of aten.mm.default."""
    return n.target._schema.name.split("::")[-1] if isinstance(n.target, torch._ops.OpOverload) else getattr(n.target, "__name__", "")


def _count(v):
    out = 1
    for d in v.shape:
        out *= int(d.node.hint) if isinstance(d, torch.SymInt) else int(d)
    return out


def _hint(d):
    return int(d.node.hint) if isinstance(d, torch.SymInt) else int(d)


def _value(n):
    return n.meta.get("val")


def _shares(n):
    """The operand whose storage n's value is, or None."""
    if n.op != "call_function" or not n.all_input_nodes:
        return None
    if n.target is operator.getitem:
        return n.args[0].all_input_nodes[0] if _name(n.args[0]) in TUPLE_VIEWS else None
    if _name(n) in PLAIN_VIEWS:
        return n.all_input_nodes[0]
    if isinstance(n.target, torch._ops.OpOverload) and isinstance(_value(n), torch.Tensor):
        if any(r.alias_info is not None for r in n.target._schema.returns):
            for p, a in zip(n.target._schema.arguments, n.args):
                if p.alias_info is not None and isinstance(a, torch.fx.Node):
                    return a
    return None


def _is_exchange(n):
    if not isinstance(n.target, torch._ops.OpOverload):
        return False
    return _name(n) == "exchange_within" or n.target.namespace == "_c10d_functional" and _name(n) != "wait_tensor"


def _is_attention(n):
    return "scaled_dot_product" in _name(n) or _name(n) in ("attention", "attention_backward", "ring_forward", "ring_backward")


def _kind(n, shares, types):
    if n.target is operator.getitem:
        return "pick"
    if shares is not None:
        return "view"
    if _is_attention(n):
        return "attention"  # what drops is ours and draws from a counter
    if types.is_random(n) or torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()):
        return "random"
    if _is_exchange(n):
        return "collective"
    if _name(n) in PRODUCTS:
        return "gemm"
    if _name(n) == "cat":
        return "concat"
    if _name(n) in ("sum", "mean", "amax", "var_mean"):
        return "reduction"
    return "pointwise" if types.is_fusible(n) else "other"


def _flops(n, kind):
    if kind == "gemm":
        wide = n.args[1] if _name(n) in ("addmm", "baddbmm") else n.args[0]
        return 2 * _count(_value(n)) * _hint(_value(wide).shape[-1])
    if kind == "attention":
        back = "backward" in _name(n)
        q, k = (_value(a) for a in (n.args[1:3] if back else n.args[:2]))
        return 4 * _count(q) * _hint(k.shape[-2]) // 2 * (5 if back else 2) // 2  # half of the pairs, as under a causal mask
    return 0


def _block(n):
    """The number of the layer: of "layers.3.mlp" 3."""
    numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", where(n)[0] or "")
    return int(numbers[0]) if numbers else -1


def _blocks(graph, info):
    """Of the backward: that of the forward values it reads."""
    block = {}
    for n in graph.nodes:
        if info.is_required_fw(n):
            block[n] = _block(n)
        else:
            block[n] = max((block[r] for r in n.all_input_nodes if info.is_required_fw(r)), default=-1)
    return block


# ---- the description ----

def describe(graph, info, fused, outputs, forward_outputs):
    types = partitioners.get_default_op_list()
    trained = {i for i, g in zip(info.inputs, outputs[forward_outputs:]) if g is not None}
    given, gradients = set(outputs[:forward_outputs]), set(outputs[forward_outputs:])
    block = _blocks(graph, info)
    rows = []

    def flags(n, v):
        said = {"static": n in info.static_lifetime_input_nodes or n in trained, "trained": n in trained,
                "tangent": n.op == "placeholder" and n in info.tangents_closure, "output": n in given,
                "gradient": n in gradients, "tuple": isinstance(v, (tuple, list)), "size": partitioners.is_sym_node(n),
                "sequence": n.op != "placeholder"}
        return [k for k, is_so in said.items() if is_so]

    for n in graph.nodes:
        if n.op == "output":
            continue
        v = _value(n)
        row = {"name": n.name, "bytes": partitioners._size_of(n) if "val" in n.meta else 0, "flags": flags(n, v)}
        if n.op in ("placeholder", "get_attr"):
            row["op"] = "input"
        else:
            shares, name = _shares(n), _name(n)
            kind = _kind(n, shares, types)
            row.update(op=kind, reads=[r.name for r in n.all_input_nodes], backward=n in info.tangents_closure, block=block[n],
                       fusible=bool(types.is_fusible(n)), absorbs=name in ABSORBS, intensive=bool(types.is_compute_intensive(n)),
                       flops=_flops(n, kind), scratch=scratch_of(name, n), named=max(len(n.all_input_nodes) - 3, 0) if kind == "attention" and
                       "backward" not in name else 0)
            if shares is not None:
                row["alias"] = shares.name
            elif isinstance(v, (tuple, list)) and name not in TUPLE_VIEWS:
                row["scratch"] += row["bytes"]  # until they are picked, which is when C counts each
        if fused and _name(n) in CONSTANTS:
            row.update(bytes=0, flags=row["flags"] + ["recompute"])
        rows.append(row)
    return {"fused": fused, "sideways": fused, "nodes": rows}


# ---- the partitioner ----

_patching = threading.Lock()


@contextlib.contextmanager
def _choosing(choose):
    """PyTorch's own partitioner, but for the choice."""
    with _patching:
        theirs, partitioners.choose_saved_values_set = partitioners.choose_saved_values_set, choose
        try:
            yield
        finally:
            partitioners.choose_saved_values_set = theirs


def _outputs(graph):
    node = next(n for n in reversed(graph.nodes) if n.op == "output")
    return list(node.args[0])


class Partitioner(CustomPartitionerFn):
    """policy: of POLICIES; memory: bytes that the peak of what is kept and made may be, for "budget"; update: what the optimizer's step takes.
    `said` is C's account of the last choice, `peak` the larger one of its peak and the optimizer's."""

    def __init__(self, policy, memory, update, fused, agree):
        self.policy, self.memory, self.update, self.fused, self.agree = policy, memory, update, fused, agree
        self.said, self.peak, self.kept_bytes = None, None, None

    def uuid(self):
        return None

    def __call__(self, gm, joint_inputs, *, num_fwd_outputs, static_lifetime_input_indices=None, compiler="inductor", **_):
        def choose(graph, info, memory_budget=1):
            return self._choose(graph, info, num_fwd_outputs)

        if hasattr(partitioners, "choose_saved_values_set"):
            with _choosing(choose):
                return partitioners.min_cut_rematerialization_partition(
                    gm, joint_inputs, compiler=compiler, num_fwd_outputs=num_fwd_outputs,
                    static_lifetime_input_indices=static_lifetime_input_indices)
        self._tag(gm, num_fwd_outputs, static_lifetime_input_indices or [])
        return partitioners.min_cut_rematerialization_partition(gm, joint_inputs, compiler=compiler, num_fwd_outputs=num_fwd_outputs,
                                                                static_lifetime_input_indices=static_lifetime_input_indices)

    def _choose(self, graph, info, forward_outputs):
        error, kept, said = None, [], ""
        try:
            program = describe(graph, info, self.fused, _outputs(graph), forward_outputs)
            with Recompute("joint graph", json.dumps({**program, "rates": rates()}), self.policy, self.memory) as answer:
                kept, said = answer.kept, str(answer.number("hash"))
                self.said, self.peak, self.kept_bytes = answer.text, max(answer.number("peak"), self.update), answer.number("kept")
        except Error as e:
            error = e
        self.agree(error, said)
        nodes = {n.name: n for n in graph.nodes}
        sizes = [n for n in graph.nodes if partitioners.is_sym_node(n) and info.is_required_fw(n)]
        return list(dict.fromkeys([nodes[name] for name in kept] + sizes + [i for i in info.inputs if i.name not in kept]))

    def _tag(self, gm, forward_outputs, static):
        """Where PyTorch's function is gone: by the tags that it documents."""
        info = partitioners.classify_nodes(gm, static, forward_outputs)
        kept = set(self._choose(gm.graph, info, forward_outputs))
        for n in gm.graph.nodes:
            if n.op == "call_function" and info.is_required_fw(n) and isinstance(_value(n), torch.Tensor):
                n.meta["recompute"] = CheckpointPolicy.MUST_SAVE if n in kept else CheckpointPolicy.PREFER_RECOMPUTE
                n.meta["ac_graph_id"] = 0
