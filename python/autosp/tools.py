# Questions about a model and a batch: its plan, whether it is right when it is split, and the graph as a file.  Neighbours: api.py (the
# model itself), capi.py.  SPDX-License-Identifier: Apache-2.0
import contextlib
import copy
import ctypes
import json
import math
import os
import tempfile

import torch

from . import graph as graphs
from .api import compile as compile_model
from .api import mark
from .capi import Error, library

LOSS, GRADIENTS = 1e-6, 5e-6


class _Captured(Exception):
    def __init__(self, text, dtype, tokens):
        super().__init__("captured")
        self.text, self.dtype, self.tokens = text, dtype, tokens


def capture(model, batch, seq_dim=1, roles=None):
    """The training graph as JSON text (docs/pytorch-graphs.md), its dtype, and the tokens of a sequence; nothing runs."""

    def backend(gm, example_inputs):
        graph, _ = graphs.retrace(gm, example_inputs)
        inputs = graphs.read_inputs(graph, gm, example_inputs, {**graphs.ROLES, **(roles or {})})
        writer = graphs.Writer(graph, inputs, type(model).__name__)
        wide = any(i.value.dtype == torch.float64 for i in inputs if i.role == "param")
        raise _Captured(writer.text(), "f64" if wide else "f32", writer.sizes.hints.get("S"))

    mark([(k, x) for k, x in batch.items() if isinstance(x, torch.Tensor)], seq_dim)
    try:
        torch.compile(model._call_impl, backend=backend, fullgraph=True)(**batch)
    except torch._dynamo.exc.BackendCompilerFailed as e:
        if isinstance(e.inner_exception, _Captured):
            return e.inner_exception.text, e.inner_exception.dtype, e.inner_exception.tokens
        raise e.inner_exception from None
    except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError) as e:
        raise Error(f"the model is not one graph: {str(e).strip()}") from None
    raise Error("the model calls nothing that can be compiled")


def export(model, batch, folder, seq_dim=1, roles=None):
    """folder/graph.json, which `autosp train`, `plan`, `verify` and `opt` read, and folder/model.safetensors with the values of its
    parameters and buffers, which training starts from."""
    from safetensors.torch import save_file

    text, _, _ = capture(model, batch, seq_dim, roles)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "graph.json")
    with open(path, "w") as f:
        f.write(text)
    values = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
    wanted = [i["name"] for i in json.loads(text)["inputs"] if i["role"] in ("param", "buffer")]
    missing = [name for name in wanted if name not in values]
    if missing:
        raise Error(f"{missing[0]} is read by the model but is no parameter or buffer of it by that name")
    save_file({name: values[name].detach().clone().contiguous() for name in wanted}, os.path.join(folder, "model.safetensors"))
    return path


@contextlib.contextmanager
def _native():
    lib = library()
    pointer = ctypes.c_void_p
    for name, arguments in [("asp_model_load", [pointer, ctypes.c_char_p, ctypes.c_char_p, pointer]),
                            ("asp_model_compile", [pointer, ctypes.c_char_p, pointer])]:
        getattr(lib, name).argtypes = arguments
    lib.asp_compiled_text.restype, lib.asp_compiled_text.argtypes = ctypes.c_char_p, [pointer]
    lib.asp_compiled_destroy.argtypes = lib.asp_model_destroy.argtypes = [pointer]
    context, model, compiled = pointer(lib.asp_ctx_create()), pointer(), pointer()

    def check(status):
        if status < 0:
            raise Error(lib.asp_ctx_message(context).decode())

    try:
        yield lib, check, context, model, compiled
    finally:
        lib.asp_compiled_destroy(compiled)
        lib.asp_model_destroy(model)
        lib.asp_ctx_destroy(context)


def plan(model, batch, sp=1, strategy="auto", seq_dim=1, roles=None):
    """What `autosp plan` says of this model on sp ranks: exchanges and their bytes, which are those of autosp.compile too, and the
    memory that autosp's own executor takes.  Nothing runs."""
    text, dtype, tokens = capture(model, batch, seq_dim, roles)
    with tempfile.TemporaryDirectory(prefix="autosp-") as folder, _native() as (lib, check, context, program, compiled):
        path = os.path.join(folder, "graph.json")
        with open(path, "w") as f:
            f.write(text)
        check(lib.asp_model_load(context, path.encode(), dtype.encode(), ctypes.byref(program)))
        check(lib.asp_model_compile(program, f"seq = {tokens or 1}, ranks = {sp}, threads = 1, sp = {strategy}".encode(), ctypes.byref(compiled)))
        return lib.asp_compiled_text(compiled).decode()


def verify(model, batch, sp=1, strategy="auto", backend="eager", loss_bound=LOSS, gradient_bound=GRADIENTS, roles=None):
    """Loss and every gradient of one step on the ranks of sp against the unsharded model: {"loss", "gradients", "worst"}, relative
    differences; an Error where one is above its bound.  The model is left as it was.  Dropout must be off."""

    def step(m):
        m.zero_grad()
        out = m(**batch)
        loss = out if isinstance(out, torch.Tensor) else out.loss
        loss.backward()
        return loss.item(), {k: p.grad for k, p in m.named_parameters() if p.grad is not None}

    plain, split = copy.deepcopy(model), copy.deepcopy(model)
    plain._compiled_call_impl = split._compiled_call_impl = None
    want, g = step(plain)
    have, h = step(compile_model(split, sp=sp, strategy=strategy, backend=backend, verify=True, roles=roles))
    everything = math.sqrt(sum(float(x.norm()) ** 2 for x in g.values()))
    errors = {k: float((h[k] - x).norm()) / max(float(x.norm()), 0.01 * everything) for k, x in g.items()}
    worst = max(errors, key=errors.get)
    said = {"loss": abs(have - want) / abs(want), "gradients": errors[worst], "worst": worst}
    if not said["loss"] <= loss_bound or not said["gradients"] <= gradient_bound:
        raise Error(f"split over the ranks the model differs: loss {have} against {want}, gradients by {errors[worst]:.1e} at {worst}")
    return said


def prepare_autosp_inputs(input_id, label_id, position_id=None, attention_mask=None, seq_dim=1):
    """For scripts written for DeepSpeed's AutoSP: marks the sequence's dimension of each input and gives them back.  Each rank keeps
    the whole batch; autosp.compile marks what it is called with by itself, so the call may also go."""
    named = [("input_id", input_id), ("label_id", label_id), ("position_id", position_id), ("attention_mask", attention_mask)]
    for name, x in named:
        if x is None and name in ("input_id", "label_id"):
            raise Error(f"{name} is None")
        if x is not None and x.dim() <= seq_dim:
            raise Error(f"{name} is {list(x.shape)}; it has no dimension {seq_dim}")
    mark([(name, x) for name, x in named if x is not None], seq_dim)
    return input_id, label_id, position_id, attention_mask


def hide_ranks():
    """For libraries that split batches and wrap models by torchrun's variables (Hugging Face's Trainer, Accelerate): with autosp every
    rank passes the whole batch, so to them each rank is a program of its own.  Behind torch.distributed.init_process_group."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        os.environ.pop(name, None)
