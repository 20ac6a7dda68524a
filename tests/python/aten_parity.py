# Every graph of tests/fixtures/graphs, run by autosp on one rank in f64 and by PyTorch, node by node from the same JSON, on the same
# random parameters: loss and every gradient within 1e-12.
#   python3 aten_parity.py LIBAUTOSP [VENV [GRAPH...]]     makes the virtual environment (torch for CPUs) when it is not there
# Neighbours: hf_parity.py (whole models), src/front/aten.def (what is tested), include/autosp.h (what is called).
# SPDX-License-Identifier: Apache-2.0
import ctypes
import glob
import json
import math
import os
import re
import sys
import tempfile

import environment

BOUND = 1e-12
HERE = os.path.dirname(os.path.abspath(__file__))
GRAPHS = os.path.join(HERE, "..", "fixtures", "graphs")
REFUSED = {"mixtral_grouped": "batched_mm"}
PARAM, GRAD = 0, 1


# ---- the graph in PyTorch ----

class Torch:
    """The JSON, one ATen call after the other; floats of any width are f64."""

    def __init__(self, graph, inputs):
        import torch

        self.torch, self.graph, self.sizes = torch, graph, graph["symbols"]
        self.dtypes = {**{f: torch.float64 for f in ("f64", "f32", "bf16", "f16")}, "i64": torch.int64, "i32": torch.int32,
                       "u8": torch.uint8, "bool": torch.bool}
        self.values = dict(inputs)

    def size(self, text):
        return eval(text, {"float": float, "__builtins__": {}}, dict(self.sizes)) if isinstance(text, str) else text

    def argument(self, a):
        if isinstance(a, list):
            return [self.argument(x) for x in a]
        if not isinstance(a, dict):
            return a
        (kind, x), = a.items()
        return {"ref": lambda: self.values[x], "sym": lambda: self.size(x), "symf": lambda: self.size(x), "float": lambda: float(x),
                "dtype": lambda: self.dtypes[x], "device": lambda: self.torch.device("cpu"),
                "layout": lambda: getattr(self.torch, x)}[kind]()

    def run(self):
        for n in self.graph["nodes"]:
            args = self.argument(n["args"])
            kwargs = {k: self.argument(v) for k, v in n.get("kwargs", {}).items()}
            self.values[n["name"]] = self.call(n["op"], args, kwargs)
        return self.values[self.graph["outputs"][0]["ref"]]

    def call(self, op, args, kwargs):
        if op == "getitem":
            return args[0][args[1]]
        if op == "aten.histc.default":
            args[0] = args[0].detach()
        _, name, overload = op.split(".")
        return getattr(getattr(self.torch.ops.aten, name), overload)(*args, **kwargs)


def random_inputs(graph, seed):
    """Values by name: f64 tensors that want gradients for parameters, what fits the role for the others."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    sizes = graph["symbols"]
    rows = vocabulary(graph)
    values = {}
    for i in graph["inputs"]:
        shape = [eval(d, {}, dict(sizes)) if isinstance(d, str) else d for d in i["shape"]]
        role, name = i["role"], i["name"]
        if role == "param":
            x = torch.randn(shape, generator=rng, dtype=torch.float64)
            x = x * (0.3 if len(shape) > 1 else 0.1) + (1.0 if len(shape) == 1 and "bias" not in name else 0.0)
            values[name] = x.requires_grad_()
        elif role == "padding_mask":
            values[name] = torch.ones(shape, dtype=torch.int64)
            values[name][0, -5:] = 0
        elif role == "segments":
            values[name] = (torch.arange(shape[1])[None] // torch.tensor([[7], [11]])).contiguous()
        elif role == "positions":
            values[name] = torch.cat([torch.arange(10), torch.arange(shape[1] - 10)])[None].expand(shape).contiguous()
        elif i["dtype"] == "i64" and role == "buffer":  # position and type ids
            values[name] = torch.arange(shape[1])[None].contiguous() if "position" in name else torch.zeros(shape, dtype=torch.int64)
        elif role == "buffer":
            values[name] = torch.rand(shape, generator=rng, dtype=torch.float64) + 0.1
        else:
            values[name] = torch.randint(0, rows.get(name, 5), shape, generator=rng)
            if role == "labels" and graph["name"] != "seqfirst":
                values[name][0, :9] = -100
                values[name][1, 15:18] = -100
    return values


def vocabulary(graph):
    """Token inputs and labels are below the rows of the smallest table that tokens look up."""
    heights = {i["name"]: i["shape"][0] for i in graph["inputs"] if i["role"] == "param"}
    tables = [heights[n["args"][0]["ref"]] for n in graph["nodes"] if n["op"] == "aten.embedding.default"
              and n["args"][1].get("ref", "").endswith("input_ids")]
    rows = min(tables) if tables else 61
    shapes = {n["name"]: n["out"].get("shape") for n in graph["nodes"] if isinstance(n["out"], dict)}
    classes = min(shapes[n["args"][0]["ref"]][-1] for n in graph["nodes"] if n["op"] == "aten.cross_entropy_loss.default")
    return {i["name"]: rows if i["role"] == "input_ids" else min(rows, classes) for i in graph["inputs"]
            if i["role"] in ("input_ids", "labels")}


# ---- the graph in autosp ----

class TensorInfo(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p), ("role", ctypes.c_char_p), ("bytes", ctypes.c_int64),
                ("rank", ctypes.c_int64), ("dim", ctypes.c_int64 * 8)]


class Autosp:
    """A loaded graph as a trainer that has done one step."""

    def __init__(self, library, path, options):
        self.lib, self.made = library, []
        self.cx = ctypes.c_void_p(library.asp_ctx_create())
        self.model, self.compiled, self.trainer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.check("model_load", self.cx, path.encode(), b"f64", ctypes.byref(self.model))
        self.check("model_compile", self.model, options.encode(), ctypes.byref(self.compiled))
        self.check("trainer_create", self.compiled, ctypes.byref(self.trainer))

    def check(self, function, *args):
        if getattr(self.lib, "asp_" + function)(*args) < 0:
            message = self.lib.asp_ctx_message(self.cx).decode()
            self.close()
            raise RuntimeError(message)

    def infos(self, kind):
        i, info = 0, TensorInfo()
        while getattr(self.lib, "asp_compiled_" + kind)(self.compiled, ctypes.c_size_t(i), ctypes.byref(info)):
            yield info.name.decode(), info.bytes
            i += 1

    def step(self, inputs):
        for name, size in self.infos("param"):
            data = inputs[name].detach().contiguous().numpy()
            assert data.nbytes == size, (name, data.nbytes, size)
            self.check("trainer_write", self.trainer, PARAM, name.encode(), ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(size))
        for name, size in self.infos("input"):
            data = inputs[name].contiguous().numpy()
            assert data.nbytes == size, (name, data.nbytes, size)
            self.check("trainer_input", self.trainer, name.encode(), ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(size))
        loss = ctypes.c_double()
        self.check("trainer_step", self.trainer, ctypes.byref(loss))
        return loss.value, {name: self.gradient(name, inputs[name]) for name, _ in self.infos("param")}

    def gradient(self, name, like):
        import torch

        out = torch.empty(like.shape, dtype=torch.float64)
        self.check("trainer_read", self.trainer, GRAD, name.encode(), ctypes.c_void_p(out.data_ptr()), ctypes.c_size_t(out.nbytes))
        return out

    def close(self):
        for kind, at in ("trainer", self.trainer), ("compiled", self.compiled), ("model", self.model), ("ctx", self.cx):
            getattr(self.lib, f"asp_{kind}_destroy")(at)
        self.trainer = self.compiled = self.model = self.cx = None


def load_library(path):
    lib = ctypes.CDLL(path)
    lib.asp_ctx_create.restype = ctypes.c_void_p
    lib.asp_ctx_message.restype = ctypes.c_char_p
    lib.asp_compiled_param.restype = lib.asp_compiled_input.restype = ctypes.c_bool
    return lib


# ---- both ----

def without_dropout(text):
    """Dropout draws from generators that differ: it is left out on both sides."""
    graph = json.loads(text)
    for n in graph["nodes"]:
        if n["op"] == "aten.dropout.default":
            n["args"][1] = 0.0
        if n["op"] == "aten.scaled_dot_product_attention.default" and len(n["args"]) > 4:
            n["args"][4] = 0.0
    return graph


def difference(theirs, ours):
    """max over parameters of |a - b| / max(|a|, 0.01 |all of a|), and where."""
    everything = math.sqrt(sum(float(x.norm()) ** 2 for x in theirs.values()))
    errors = {k: float((ours[k] - x).norm() / max(float(x.norm()), 0.01 * everything)) for k, x in theirs.items()}
    worst = max(errors, key=errors.get)
    return errors[worst], worst


def compare(lib, path, at, ranks):
    import torch

    with open(path) as f:
        graph = without_dropout(f.read())
    file = os.path.join(at, graph["name"] + ".json")
    with open(file, "w") as f:
        json.dump(graph, f)
    inputs = random_inputs(graph, 3)
    options = f"seq = {graph['symbols']['S']}, ranks = {ranks}, threads = 1"
    if graph["name"] in REFUSED:
        try:
            Autosp(lib, file, options)
        except RuntimeError as e:
            ok = REFUSED[graph["name"]] in str(e)
            print(f"{graph['name']:16s} {'refused' if ok else 'REFUSED OTHERWISE'}: {e}")
            return ok
        print(f"{graph['name']:16s} NOT REFUSED")
        return False
    loss = Torch(graph, inputs).run()
    loss.backward()
    theirs = {k: x.grad if x.grad is not None else torch.zeros_like(x) for k, x in inputs.items() if x.requires_grad}
    try:
        program = Autosp(lib, file, options)
        our_loss, ours = program.step(inputs)
        program.close()
    except RuntimeError as e:
        print(f"{graph['name']:16s} FAILS: {e}", flush=True)
        return False
    error, where = difference(theirs, {k: ours.get(k, torch.zeros_like(x)) for k, x in theirs.items()})
    loss_error = abs(our_loss - loss.item()) / abs(loss.item())
    ok = loss_error <= BOUND and error <= BOUND
    print(f"{graph['name']:16s} loss {our_loss:.15f} differs by {loss_error:.1e}, gradients by {error:.1e} ({where}): "
          f"{'ok' if ok else 'DIFFERENT'}", flush=True)
    return ok


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: aten_parity.py LIBAUTOSP [VENV [GRAPH...]]")
    environment.enter(sys.argv[2] if len(sys.argv) > 2 else None)
    lib = load_library(os.path.abspath(sys.argv[1]))
    ranks = int(os.environ.get("RANKS", "1"))
    paths = [os.path.join(GRAPHS, g + ".json") for g in sys.argv[3:]] or sorted(glob.glob(os.path.join(GRAPHS, "*.json")))
    paths = [p for p in paths if not re.search(r"expected\.json$", p)]
    with tempfile.TemporaryDirectory(prefix="autosp-") as at:
        bad = [p for p in paths if not compare(lib, p, at, ranks)]
    print(f"{len(paths) - len(bad)} of {len(paths)} graphs agree")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
