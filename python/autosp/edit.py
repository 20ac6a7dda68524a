# C's edit list, applied to the graph of PyTorch that it was made for.  Neighbours: graph.py (the names), ops.py (what is inserted),
# src/front/aten_edit.c (who writes the list).  SPDX-License-Identifier: Apache-2.0
import ast
import json
import operator

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from . import ops
from .capi import Error
from .graph import DTYPES, outputs_of, value_of

TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


class Editor:
    def __init__(self, writer, group, ranks, device):
        self.writer, self.group, self.ranks, self.device = writer, group, ranks, device
        self.graph = writer.graph.graph
        self.nodes = dict(writer.nodes)
        self.symbols, self.made, self.draw = {}, {}, None
        self.loss = writer.loss

    def apply(self, edits):
        """The list is read whole before the first edit, so that a list that does not fit leaves the graph as it was."""
        edits.fit(self.writer.text())
        todo = json.loads(edits.json)
        self._pick_early()
        self.first = next(n for n in self.graph.nodes if n.op != "placeholder")
        for item in todo["insert"]:
            self._insert(item)
        for item in todo["rewire"]:
            self._rewire(item)
        self._set_outputs(todo["outputs"])
        self._tidy()

    def verify(self, edits, fake_inputs):
        """Read again by C, the graph is the split program."""
        mode = next(x.fake_mode for x in fake_inputs if isinstance(x, FakeTensor))
        FakeTensorProp(self.writer.graph, mode).propagate_dont_convert_inputs(*fake_inputs)
        edits.verify(self.writer.text())

    def finish(self):
        """Gradients are global: each rank seeds its share of the loss's, and those of parameters are summed."""
        if self.ranks == 1:
            return
        node = next(n for n in reversed(self.graph.nodes) if n.op == "output")
        given = list(node.args[0])
        with self.graph.inserting_before(node):
            if self.loss is not None:
                given[self.loss] = self.graph.call_function(ops.seed, (given[self.loss], self.ranks))
        node.args = (tuple(given),)
        self._sum_gradients()
        self._tidy()

    def _tidy(self):
        self.graph.eliminate_dead_code()
        self.graph.lint()
        self.writer.graph.recompile()

    def _pick_early(self):
        """What is picked from a list stands right behind the list, before whatever C inserts."""
        for n in list(self.graph.nodes):
            if n.target is operator.getitem and isinstance(n.args[0], torch.fx.Node):
                n.args[0].append(n)

    # ---- arguments ----

    def _argument(self, a):
        if isinstance(a, list):
            return [self._argument(x) for x in a]
        if not isinstance(a, dict):
            return a
        (kind, x), = a.items()
        return {"ref": lambda: self.nodes[x], "sym": lambda: self._size(x), "float": lambda: float(x),
                "dtype": lambda: TORCH_DTYPES[x], "device": lambda: self.device}[kind]()

    def _size(self, text):
        """An expression such as "B*ceil(S, 2)/4", as nodes."""
        if text not in self.made:
            with self.graph.inserting_before(self.first):
                self.made[text] = self._evaluate(ast.parse(text, mode="eval").body)
        return self.made[text]

    def _evaluate(self, e):
        if isinstance(e, ast.Constant):
            return e.value
        if isinstance(e, ast.Name):
            return self._symbol(e.id)
        if isinstance(e, ast.Call):
            a, b = (self._evaluate(x) for x in e.args)
            return self._call(operator.floordiv, self._call(operator.add, a, self._call(operator.sub, b, 1)), b)
        if isinstance(e, ast.UnaryOp):
            return self._call(operator.mul, self._evaluate(e.operand), -1)
        f = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}[type(e.op)]
        return self._call(f, self._evaluate(e.left), self._evaluate(e.right))

    def _call(self, f, a, b):
        if not isinstance(a, torch.fx.Node) and not isinstance(b, torch.fx.Node):
            return f(a, b)
        n = self.graph.call_function(f, (a, b))
        n.meta["val"] = f(*(value_of(x) if isinstance(x, torch.fx.Node) else x for x in (a, b)))
        return n

    def _symbol(self, name):
        if name not in self.symbols:
            for i in self.writer.inputs:
                for d, size in enumerate(i.value.shape):
                    if name not in self.symbols and isinstance(size, torch.SymInt) and self.writer.sizes.expression(size) == name:
                        n = self.graph.call_function(torch.ops.aten.sym_size.int, (i.node, d))
                        n.meta["val"] = size
                        self.symbols[name] = n
        if name not in self.symbols:
            raise Error(f"no input has the size {name} as a dimension of its own")
        return self.symbols[name]

    # ---- nodes ----

    def _target(self, name):
        if name == "getitem":
            return operator.getitem
        space, op = name.split(".", 1)
        if space == "autosp":
            return getattr(ops, op)
        packet, overload = op.split(".")
        return getattr(getattr(torch.ops.aten, packet), overload)

    def _is_random(self, target, args):
        return target is ops.dropout or (target in (ops.attention, ops.ring_sdpa) and args[9] > 0)

    def _draw(self):
        """What all random ops of one forward pass draw from."""
        if self.draw is None:
            with self.graph.inserting_before(self.first):
                self.draw = self.graph.call_function(ops.draw, (), {"group": self.group})
        return self.draw

    def _insert(self, item):
        before = self.nodes[item["before"]] if item["before"] else next(n for n in self.graph.nodes if n.op == "output")
        target = self._target(item["op"])
        args, kwargs = self._argument(item["args"]), {k: self._argument(v) for k, v in item["kwargs"].items()}
        if item["op"].startswith("autosp."):
            kwargs["group"] = self.group
            if self._is_random(target, args):
                kwargs["draw"] = self._draw()
        with self.graph.inserting_before(before):
            n = self.graph.call_function(target, tuple(args), kwargs)
        n.meta = {k: v for k, v in before.meta.items() if k in ("nn_module_stack", "stack_trace")}
        self.nodes[item["name"]] = n
        self.writer.names[n] = item["name"]

    def _rewire(self, item):
        n = self.nodes[item["node"]]
        by = {self.nodes[old]: self.nodes[new] for old, new in item["inputs"].items()}
        new = lambda x: by.get(x, x)
        n.args, n.kwargs = torch.fx.map_arg(n.args, new), torch.fx.map_arg(n.kwargs, new)
        for position, value in item["set"]:
            value = self._argument(value)
            if position < len(n.args):
                n.update_arg(position, value)
            else:
                n.update_kwarg(n.target._schema.arguments[position].name, value)
        if "op" in item:
            n.target = self._target(item["op"])

    def _set_outputs(self, names):
        """The loss; what else the model gives is kept for nobody who did not ask."""
        node = next(n for n in reversed(self.graph.nodes) if n.op == "output")
        given = [None] * len(outputs_of(self.writer.graph))
        for i, name in zip(self.writer.order(), names):
            given[i] = None if name is None else self.nodes[name]
        node.args = (tuple(given),)

    def _sum_gradients(self):
        params = [i.node for i in self.writer.inputs if i.role == "param" or i.trained]  # or an input that is trained from outside
        if not params:
            return
        with self.graph.inserting_before(next(n for n in self.graph.nodes if n.op != "placeholder")):
            summed = self.graph.call_function(ops.sum_gradients, (params,), {"group": self.group})
            picked = [self.graph.call_function(operator.getitem, (summed, i)) for i in range(len(params))]
        for p, q in zip(params, picked):
            p.replace_all_uses_with(q, delete_user_cb=lambda user: user is not summed)
