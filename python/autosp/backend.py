# The torch.compile backend: Dynamo's graph to C and back, then AOTAutograd with the compiler that the user asked for.
# Neighbours: graph.py, edit.py, api.py (who builds it).  SPDX-License-Identifier: Apache-2.0
import dataclasses
import hashlib

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.graph import _BoxedCodeGen

from . import graph as graphs
from .capi import Edits, Error
from .edit import Editor
from .policy import Partitioner

STRATEGIES = ("auto", "ulysses", "ring", "mixed")
COMPILERS = ("inductor", "aot_eager", "eager")
# Where C chooses what is kept, Inductor runs it in that order and lets go of each buffer behind its last reader, so that the peak is the
# one foretold.  A partitioner is no key of a cache.
AS_CHOSEN = {"allow_buffer_reuse": False, "reorder_for_peak_memory": False, "fx_graph_cache": False}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user asked for, settled."""
    group: object = None  # a ProcessGroup; None: one rank
    own_group: bool = False  # made for this model
    strategy: str = "auto"
    inner: str = "inductor"
    verify: bool = False
    roles: tuple = ()  # (name of an input, role)
    policy: str | None = None  # what is kept for the backward pass; None: the compiler's choice
    logits: bool = False  # without gradients, the other outputs too
    memory: int | None = None  # bytes that a rank may take, for the policy "budget"

    @property
    def ranks(self):
        return 1 if self.group is None else dist.get_world_size(self.group)

    @property
    def group_name(self):
        return "" if self.group is None else self.group.group_name


def agree(group, error, what):
    """All ranks go on, or all raise the message of the first that failed; `what` must be the same on all."""
    if group is None:
        if error is not None:
            raise error
        return
    said = [None] * dist.get_world_size(group)
    with unset_fake_temporarily():
        dist.all_gather_object(said, (None if error is None else str(error), what), group=group)
    for rank, (message, _) in enumerate(said):
        if message is not None:
            raise Error(message if all(m == message for m, _ in said) else f"rank {rank}: {message}") from error
    for rank, (_, other) in enumerate(said):
        if other != said[0][1]:
            raise Error(f"rank {rank} compiled another program than rank 0: all ranks must build the same model and pass the same batch")


def transform(gm, example_inputs, settings):
    """The graph that this rank runs, a text that is equal on all ranks, and the strategy."""
    graph, fake_inputs = graphs.retrace(gm, example_inputs)
    inputs = graphs.read_inputs(graph, gm, example_inputs, {**graphs.ROLES, **dict(settings.roles)})
    device = next((i.value.device for i in inputs), torch.device("cpu"))
    wide = not torch.is_autocast_enabled(device.type)
    writer = graphs.Writer(graph, inputs, "model", settings.logits and not torch.is_grad_enabled(), device.type if wide else None)
    text = writer.text()
    widths = {i.value.dtype for i in inputs if i.role == "param"}
    edits = Edits("model", text, "f64" if torch.float64 in widths else "f32", settings.ranks, settings.strategy)
    editor = Editor(writer, settings.group_name, settings.ranks, device)
    editor.apply(edits)
    if settings.verify:
        editor.verify(edits, fake_inputs)
    editor.finish()
    return graph, hashlib.sha256((text + edits.json).encode()).hexdigest(), edits.strategy


def states_bytes(example_inputs):
    """Parameters, and AdamW's two numbers for each that is trained; gradients are part of what a step makes."""
    params = [x for x in example_inputs if isinstance(x, torch.nn.Parameter)]
    return sum(x.numel() * x.element_size() * (3 if x.requires_grad else 1) for x in params)


def update_bytes(example_inputs):
    """All gradients, and what torch.optim.AdamW computes with of the parameter at hand: two tensors as large as it."""
    trained = [x.numel() * x.element_size() for x in example_inputs if isinstance(x, torch.nn.Parameter) and x.requires_grad]
    return sum(trained) + 2 * max(trained, default=0)


def partitioner_of(settings, gm, example_inputs):
    """Checkpoints in the model ask for that of layers, where nothing else was asked for."""
    if settings.policy is None and graphs.has_checkpoints(gm) and settings.inner != "eager":
        settings = dataclasses.replace(settings, policy="layer")
    if settings.policy is None:
        return None
    states, update = states_bytes(example_inputs), update_bytes(example_inputs)
    if settings.policy == "budget" and settings.memory < states + update:
        raise Error(f"memory={settings.memory} bytes: parameters, gradients and AdamW's update alone take {states + update}")
    return Partitioner(settings.policy, settings.memory and settings.memory - states, update, settings.inner == "inductor",
                       lambda error, what: agree(settings.group, error, what))


def _as_it_is(graph, _):
    """A graph that takes its arguments as one list and empties it, so that each is let go behind its last reader."""
    graph.graph.set_codegen(_BoxedCodeGen())
    graph.recompile()
    run = graph.forward
    boxed = lambda args: run(args)
    boxed._boxed_call = True
    return boxed


def lower(graph, example_inputs, inner, partitioner=None):
    """inner: inductor, aot_eager, or eager, which runs the graph as it is."""
    if inner == "inductor":
        from torch._inductor.compile_fx import compile_fx
        return compile_fx(graph, example_inputs, config_patches={**AS_CHOSEN, "custom_partitioner_fn": partitioner} if partitioner else None)
    if inner == "aot_eager":
        from torch._dynamo.backends.common import aot_autograd
        how = {"partition_fn": partitioner} if partitioner else {}
        return aot_autograd(fw_compiler=_as_it_is, **how)(graph, example_inputs)
    return graph.forward


class Backend:
    """What torch.compile calls with each graph; `graphs` counts them.  `strategy` is that of the last one."""

    def __init__(self, settings):
        self.settings, self.graphs, self.last, self.partitioner, self.strategy = settings, 0, None, None, settings.strategy

    def __call__(self, gm, example_inputs):
        self.graphs += 1
        error = graph = None
        what = ""
        try:
            graph, what, self.strategy = transform(gm, example_inputs, self.settings)
            self.partitioner = partitioner_of(self.settings, gm, example_inputs)
        except Exception as e:  # every rank hears of it before any waits for another
            error = e if isinstance(e, Error) else Error(f"{type(e).__name__}: {e}")
            error.__cause__ = None if isinstance(e, Error) else e
        agree(self.settings.group, error, what)
        self.last = graph
        return lower(graph, example_inputs, self.settings.inner, self.partitioner)
