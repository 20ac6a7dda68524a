# Graphs of PyTorch: Dynamo's, traced again before autograd so that each node is one canonical ATen call; and written as JSON
# (docs/pytorch-graphs.md).  Neighbours: edit.py (what C answers is applied), backend.py (who calls).  SPDX-License-Identifier: Apache-2.0
import json
import operator
import os
import re

import sympy
import torch
import torch.fx.traceback
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._sympy.functions import FloorDiv, Mod

from .capi import Error

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64",
          torch.int32: "i32", torch.bool: "bool", torch.uint8: "u8"}
ROLES = {"input_ids": "input_ids", "decoder_input_ids": "input_ids", "labels": "labels", "shift_labels": "labels",
         "position_ids": "positions", "attention_mask": "padding_mask", "segment_ids": "segments"}
TO_THE_END = 2**63 - 1


class _Entering(torch.fx.Interpreter):
    """What torch.utils.checkpoint wraps is part of the graph: what is computed again is chosen later, for the whole of it."""

    def call_function(self, target, args, kwargs):
        if target is torch.ops.higher_order.tag_activation_checkpoint:
            return _Entering(args[0]).run(*args[1:])
        if isinstance(target, torch._ops.HigherOrderOperator):
            raise Error(f"{target.name()}: this is not supported; leave it out of the model's forward")
        return super().call_function(target, args, kwargs)


def has_checkpoints(gm):
    return any(n.target is torch.ops.higher_order.tag_activation_checkpoint for n in gm.graph.nodes)


def retrace(gm, example_inputs):
    """Dynamo's graph as calls of ATen, before autograd; and its inputs as fake tensors."""
    context = torch._guards.TracingContext.try_get()
    mode = context.fake_mode

    def fake(x):
        if not isinstance(x, torch.Tensor) or isinstance(x, FakeTensor):
            return x
        known = context.tensor_to_context.get(x)
        return mode.from_tensor(x, static_shapes=known is None, symbolic_context=known,
                                source=known.tensor_source if known is not None else None)

    inputs = [fake(x) for x in example_inputs]
    with mode, torch.fx.traceback.preserve_node_meta():
        graph = make_fx(lambda *a: _Entering(gm).run(*a), pre_dispatch=True, tracing_mode="real",
                        _allow_non_fake_inputs=True)(*inputs)
    graph.graph.eliminate_dead_code()
    return graph, inputs


def value_of(node):
    return node.meta.get("val", node.meta.get("example_value"))


# ---- inputs ----

class Input:
    """A placeholder: what the user calls it and what it is for."""

    def __init__(self, node, dynamo, example, roles):
        self.node, self.value = node, value_of(node)
        self.trained = isinstance(example, torch.Tensor) and example.requires_grad
        argument = dynamo.meta.get("grapharg")
        source = argument.source.name if argument is not None else ""
        source = source() if callable(source) else source
        path = re.findall(r"\['([^']+)'\]|\.([A-Za-z_]\w*)", source)
        path = [a or b for a, b in path]
        kept = [p for p in path if p not in ("self", "kwargs", "_modules", "_parameters", "_buffers", "__wrapped__")]
        of_model = [k for k in kept if k != "args"]  # wrappers pass the model on as their first argument
        self.name = ".".join(of_model) if of_model else node.name
        if isinstance(example, torch.nn.Parameter):
            self.role = "param" if example.requires_grad and example.is_floating_point() else "buffer"
        elif "_buffers" in path:
            self.role = "buffer"
        else:
            self.name = kept[-1] if kept else node.name
            self.role = roles.get(self.name, "other")


def read_inputs(graph, gm, example_inputs, roles):
    nodes = [n for n in graph.graph.nodes if n.op == "placeholder"]
    dynamo = [n for n in gm.graph.nodes if n.op == "placeholder"]
    inputs = [Input(n, d, x, roles) for n, d, x in zip(nodes, dynamo, example_inputs)]
    inputs = [i for i in inputs if isinstance(i.value, torch.Tensor)]
    if not any(i.role == "input_ids" for i in inputs):
        _find_tokens(graph, inputs)
    taken = set()
    for i in inputs:
        if i.name in taken or not re.fullmatch(r"[A-Za-z_][\w.]*", i.name):
            i.name = i.node.name
        taken.add(i.name)
    _equate(inputs)
    return inputs


def _equate(inputs):
    """Inputs of one batch have one number of rows and of tokens: sizes that are equal are the same ones.  A guard says so, and a batch
    where it does not hold is another graph."""
    ids = next((i.value for i in inputs if i.role == "input_ids"), None)
    if ids is None:
        return
    for i in inputs:
        if i.role in ("param", "buffer") or i.value.dtype != torch.int64 or i.value.dim() != ids.dim():
            continue
        for a, b in zip(ids.shape, i.value.shape):
            if isinstance(a, torch.SymInt) and isinstance(b, torch.SymInt) and a.node.expr != b.node.expr and a.node.hint == b.node.hint:
                bool(a == b)


def _find_tokens(graph, inputs):
    """Ids have another name in this model: the whole numbers that an embedding looks up directly."""
    given = {i.node: i for i in inputs if i.role == "other" and i.value.dtype == torch.int64 and i.value.dim() >= 2}
    for n in graph.graph.nodes:
        if n.target is torch.ops.aten.embedding.default and n.args[1] in given:
            given[n.args[1]].role = "input_ids"


# ---- sizes ----

class Sizes:
    """Names for the symbols of sizes: the last dimension of the token ids is S; identity is that of the expression."""

    def __init__(self, inputs):
        self.names, self.hints = {}, {}
        for i in inputs:
            if i.role == "input_ids":
                self._add(i.value.shape[1 if i.value.dim() > 1 else 0], "S")
        for i in inputs:
            for d in i.value.shape:
                self._add(d, None)

    def _add(self, size, name):
        if not isinstance(size, torch.SymInt):
            return
        for s in sorted(size.node.expr.free_symbols, key=str):
            if str(s) not in self.names:
                taken = name is None or name in self.names.values() or not size.node.expr.is_Symbol
                self.names[str(s)] = str(s) if taken else name
                hint = size.node.shape_env.backed_var_to_val.get(s) if hasattr(size.node.shape_env, "backed_var_to_val") else None
                self.hints[self.names[str(s)]] = int(size.node.shape_env.var_to_val[s] if hint is None else hint)

    def expression(self, x):
        """A number, or an expression over the names as text."""
        if isinstance(x, int):
            return x
        e, shape_env = x.node.expr, x.node.shape_env
        if e.is_Integer:
            return int(e)
        unknown = [s for s in e.free_symbols if str(s) not in self.names]
        if unknown:
            raise Error(f"the size {e} depends on data ({unknown[0]} is known only when the model runs); "
                        "sizes must follow from those of the inputs")
        e = e.replace(lambda x: isinstance(x, FloorDiv), lambda x: _rounded_up(x, shape_env))
        e = e.subs({s: sympy.Symbol(self.names[str(s)], integer=True, positive=True) for s in e.free_symbols})
        return str(e).replace(" ", "")


def _rounded_up(e, shape_env):
    """a // b where b is known to divide a, by a guard: as C says the size of a part."""
    a, b = e.args
    even = shape_env._maybe_evaluate_static(sympy.Eq(Mod(a, b), 0))
    return FloorDiv(a + b - 1, b, evaluate=False) if even == True else e  # noqa: E712, a sympy truth


# ---- JSON ----

class Writer:
    """The graph as JSON text.  Nodes keep their names, so that C's answer can speak of them."""

    def __init__(self, graph, inputs, name, whole=False, device=None):
        """whole: outputs beside the loss are wanted, whole on every rank; there need be no loss.  device: where floats of 32 bits are
        computed with ("cpu"), or None."""
        self.graph, self.inputs, self.name, self.whole, self.device = graph, inputs, name, whole, device
        self.sizes, self.loss = Sizes(inputs), loss_index(graph, whole)  # while all nodes have a value
        self.names = {i.node: i.name for i in inputs}
        taken = set(self.names.values())
        for n in graph.graph.nodes:
            if n.op != "placeholder":
                self.names[n] = n.name if n.name not in taken else f"v.{n.name}"
        self.nodes = {name: n for n, name in self.names.items()}

    def type(self, v):
        if isinstance(v, torch.Tensor):
            if v.dtype not in DTYPES:
                raise Error(f"tensors of {v.dtype} are not supported")
            return {"dtype": DTYPES[v.dtype], "shape": [self.sizes.expression(d) for d in v.shape]}
        return [self.type(x) for x in v]

    def argument(self, a):
        if isinstance(a, torch.fx.Node):
            v = value_of(a)
            if isinstance(v, (int, float, bool)):
                return self.argument(v)
            return self.argument(v) if isinstance(v, (torch.SymInt, torch.SymFloat)) else {"ref": self.names.setdefault(a, a.name)}
        if isinstance(a, torch.SymInt):
            e = self.sizes.expression(a)
            return e if isinstance(e, int) else {"sym": e}
        if isinstance(a, torch.SymFloat):
            return {"symf": re.sub("ToFloat", "float", self.sizes.expression(a))}
        if a is None or isinstance(a, (bool, int, str)):
            return a
        if isinstance(a, float):
            return a if a == a and abs(a) != float("inf") else {"float": repr(a)}
        if isinstance(a, torch.dtype):
            return {"dtype": DTYPES.get(a, str(a))}
        if isinstance(a, torch.device):
            return {"device": "any"}
        if isinstance(a, (torch.layout, torch.memory_format)):
            return {"layout": str(a).replace("torch.", "")}
        if isinstance(a, (list, tuple)):
            return [self.argument(x) for x in a]
        return {"layout": type(a).__name__}  # nothing C knows: it refuses the op if it matters

    def node(self, n):
        v = value_of(n)
        out = {"name": self.names.setdefault(n, n.name), "op": op_name(n.target), "args": self.argument(n.args),
               "kwargs": {k: self.argument(x) for k, x in n.kwargs.items() if k not in ("group", "draw")}, "out": self.type(v)}
        layer, line = where(n)
        if layer:
            out["layer"] = layer
        if line:
            out["line"] = line
        return out

    def placed(self, n):
        """The node; what is wrong with it, with its place."""
        try:
            return self.node(n)
        except Error as e:
            layer, line = where(n)
            raise Error(f"{op_name(n.target)} ({f'{layer} at ' if layer else ''}{line}): {e}") from None

    def constant(self, n):
        t = self.graph
        for part in n.target.split("."):
            t = getattr(t, part)
        flat = t.reshape(-1).tolist() if t.numel() <= 64 else []
        plain = flat and (len(set(flat)) == 1 or (t.dtype == torch.int64 and flat == list(range(int(flat[0]), int(flat[0]) + len(flat)))))
        op, args = ("constant", [flat if t.dim() else flat[0]]) if plain else ("get_attr", [])
        return {"name": self.names[n], "op": op, "args": args, "kwargs": {}, "out": self.type(t)}

    def text(self):
        nodes = []
        for n in self.graph.graph.nodes:
            if n.op == "get_attr":
                nodes.append(self.constant(n))
            elif n.op == "call_function" and is_data(value_of(n)) and op_name(n.target) != "autosp.draw":
                nodes.append(self.placed(n))
        outputs = [{"ref": self.names.setdefault(n, n.name)} if isinstance(n, torch.fx.Node) else None for n in self.outputs()]
        inputs = [{"name": i.name, "role": i.role, **self.type(i.value)} for i in self.inputs]
        line = lambda items: ",\n".join(json.dumps(x, separators=(",", ":")) for x in items)
        whole = '"whole":true,' if self.whole else ""
        whole += f'"device":{json.dumps(self.device)},' if self.device else ""
        return (f'{{"version":1,"name":{json.dumps(self.name)},{whole}"symbols":{json.dumps(self.sizes.hints)},\n"inputs":[\n{line(inputs)}\n],\n'
                f'"nodes":[\n{line(nodes)}\n],\n"outputs":{json.dumps(outputs)}}}\n')

    def order(self):
        """Which outputs C hears of, the loss first."""
        given = outputs_of(self.graph)
        others = [i for i, n in enumerate(given) if i != self.loss and (not self.whole or _is_tensor(n))]
        return ([] if self.loss is None else [self.loss]) + others

    def outputs(self):
        given = outputs_of(self.graph)
        return [given[i] for i in self.order()]


def outputs_of(graph):
    node = next(n for n in reversed(graph.graph.nodes) if n.op == "output")
    return torch.utils._pytree.tree_leaves(node.args, is_leaf=lambda x: x is None)


def _is_tensor(n):
    return isinstance(n, torch.fx.Node) and isinstance(value_of(n), torch.Tensor)


def loss_index(graph, whole=False):
    for i, n in enumerate(outputs_of(graph)):
        v = value_of(n) if isinstance(n, torch.fx.Node) else None
        if isinstance(v, torch.Tensor) and v.dim() == 0 and v.is_floating_point():
            return i
    if whole:
        return None
    raise Error("the model gives no loss: pass labels, so that it returns a scalar, which is what training makes small")


def is_data(v):
    return isinstance(v, torch.Tensor) or (isinstance(v, (list, tuple)) and len(v) > 0 and all(isinstance(x, torch.Tensor) for x in v))


def op_name(target):
    if target is operator.getitem:
        return "getitem"
    if getattr(target, "__module__", "") == "autosp.ops":
        return f"autosp.{target.__name__}"
    return str(target)


def where(n):
    """The module path and the user's line: "layers.0.mlp", "model.py:80: x = f(y)"."""
    layer = line = None
    stack = n.meta.get("nn_module_stack")
    if stack:
        path = list(stack.values())[-1][0]
        path = re.sub(r"\['?([^'\]]*)'?\]", r".\1", re.sub(r"L\[[^\]]*\]", "", path))
        layer = ".".join(p for i, p in enumerate(path.split(".")) if p and not (i < 2 and p.isdigit()) and p not in ("_modules", "_call_impl", "self", "forward"))
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\w+)\n\s*(.*)', n.meta.get("stack_trace") or "")
    if frames:
        file, number, _, text = frames[-1]
        line = f"{os.path.basename(file)}:{number}: {text[:90]}"
    return layer, line
