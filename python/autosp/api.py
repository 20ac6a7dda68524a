# autosp.compile: a model whose loss and gradients are the global ones, computed by a group of ranks.  Neighbours: backend.py (what
# happens to a graph).  SPDX-License-Identifier: Apache-2.0
import contextlib
import datetime
import functools
import re
import types
import weakref

import torch
import torch.distributed as dist

from .backend import COMPILERS, STRATEGIES, Backend, Settings
from .capi import Error
from .policy import POLICIES

TORCH = (2, 13)


def _group(sp):
    """sp: a number of ranks, a ProcessGroup, a one-dimensional DeviceMesh, or {"autosp_size": N}.  The group, and whether it was made here."""
    if isinstance(sp, dict):
        unknown = set(sp) - {"autosp_size"}
        if unknown:
            raise Error(f"sp: {sorted(unknown)[0]!r} is not known; {{'autosp_size': N}} is")
        sp = sp.get("autosp_size", 1)
    if sp is None or (isinstance(sp, int) and sp == 1):
        return None, False
    if hasattr(sp, "get_group"):
        if sp.ndim != 1:
            raise Error(f"sp: a mesh of {sp.ndim} dimensions; name one of them, as in mesh[\"sp\"]")
        sp = sp.get_group()
    if not isinstance(sp, int):
        return sp if dist.get_world_size(sp) > 1 else None, False
    if sp < 1:
        raise Error(f"sp={sp}: a number of ranks is at least 1")
    if not dist.is_initialized():
        raise Error(f"sp={sp}: torch.distributed is not initialised; call torch.distributed.init_process_group and start {sp} processes (torchrun)")
    world = dist.get_world_size()
    if world % sp != 0:
        raise Error(f"sp={sp} does not divide the {world} ranks that there are")
    if sp == world:
        return dist.group.WORLD, False
    mine = None
    for first in range(0, world, sp):
        group = dist.new_group(list(range(first, first + sp)))
        mine = group if first <= dist.get_rank() < first + sp else mine
    return mine, True


UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def _bytes(memory):
    """1610612736, or "1.5GiB"."""
    if isinstance(memory, int) and not isinstance(memory, bool) and memory > 0:
        return memory
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]i?B|B|)\s*", memory) if isinstance(memory, str) else None
    if not found or not float(found[1]) > 0:
        raise Error(f"memory={memory!r} is no number of bytes, as \"1.5GiB\" is")
    return int(float(found[1]) * UNITS[found[2]])


def _policy(memory, ac, backend):
    """(what is kept, bytes)"""
    if ac is not None and ac not in POLICIES:
        raise Error(f"ac={ac!r} is not known; there are {', '.join(POLICIES)}")
    if ac == "budget" and memory is None:
        raise Error("ac=\"budget\" needs memory=, the bytes that a rank may take")
    if memory is not None and ac not in (None, "budget"):
        raise Error(f"memory= goes with ac=\"budget\", not with {ac!r}")
    if (memory or ac) and backend == "eager":
        raise Error("backend=\"eager\" keeps what PyTorch keeps; memory= and ac= go with \"inductor\" and \"aot_eager\"")
    return ("budget", _bytes(memory)) if memory is not None else (ac, None)


def _check_hybrid(strategy, group, sp):
    """hybrid:UxR: heads within U neighbours, keys and values round R such groups."""
    ranks = 1 if group is None else dist.get_world_size(group)
    heads, rings = map(int, strategy.split(":")[1].split("x"))
    if ranks == 1:
        raise Error(f"strategy={strategy!r} is for several ranks; sp={sp!r} is one")
    if heads < 1 or heads * rings != ranks:
        raise Error(f"strategy={strategy!r}: {heads} x {rings} are not the {ranks} ranks of the group")


def settle(sp=1, strategy="auto", memory=None, backend="inductor", verify=False, roles=None, ac=None, logits=False):
    version = tuple(int(x) for x in torch.__version__.split(".")[:2])
    if version != TORCH:
        raise Error(f"torch {torch.__version__} is not supported: this version of autosp reads the graphs of torch {TORCH[0]}.{TORCH[1]}")
    hybrid = re.fullmatch(r"hybrid:\d+x\d+", strategy) is not None
    if strategy not in STRATEGIES and not hybrid:
        raise Error(f"strategy={strategy!r} is not known; there are {', '.join(STRATEGIES)}, hybrid:UxR")
    if backend not in COMPILERS:
        raise Error(f"backend={backend!r} is not known; there are {', '.join(COMPILERS)}")
    policy, memory = _policy(memory, ac, backend)
    group, own = _group(sp)
    if hybrid:
        _check_hybrid(strategy, group, sp)
    return Settings(group=group, own_group=own, strategy=strategy, inner=backend, verify=verify, roles=tuple(sorted((roles or {}).items())),
                    policy=policy, memory=memory, logits=logits)


# ---- batches ----

def _checksum(x):
    """Two tensors of the same checksum and shape are the same batch."""
    flat = x.detach().reshape(-1)
    flat = flat.view(torch.int32) if flat.dtype == torch.float32 else flat
    flat = flat.to(torch.int64)
    place = torch.arange(1, flat.numel() + 1, dtype=torch.int64, device=flat.device)
    return ((flat + 12345) * (place * 2654435761 % 1000003)).sum()


def _missing(group):
    """Of a group whose ranks wait no more: who has not come, by the store that they met at."""
    ranks, store = dist.get_world_size(group), dist.distributed_c10d._world.pg_map[group][1]
    store.set(f"came {dist.get_rank(group)}", "")
    missing = []
    for rank in range(ranks):
        try:
            store.wait([f"came {rank}"], datetime.timedelta(seconds=2))
        except RuntimeError:
            missing.append(rank)
    return missing


def _gathered(x, group):
    """Of each rank its x."""
    out = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    try:
        dist.all_gather(out, x, group=group)
    except RuntimeError as e:
        who = ", ".join(f"rank {r}" for r in _missing(group)) or "a rank"
        raise Error(f"{who} did not come to a call of the model, which all ranks must make: {str(e).strip()}") from None
    return out


def check_batch(named, group):
    """Every rank passes the same whole batch: an error on all ranks where one does not."""
    shapes = [tuple(x.shape) for _, x in named]
    numbers = torch.zeros(1 + 8 * len(named), dtype=torch.int64)
    numbers[0] = len(named)
    for i, (_, x) in enumerate(named):
        said = [x.dim(), *x.shape[:5]]
        numbers[1 + 8 * i:1 + 8 * i + len(said)] = torch.tensor(said)
        numbers[8 + 8 * i] = _checksum(x)
    counts = _gathered(numbers[:1].clone(), group)
    if any(int(c) != len(named) for c in counts):
        raise Error(f"ranks pass {', '.join(str(int(c)) for c in counts)} tensors: every rank must pass the same whole batch")
    everyone = _gathered(numbers, group)
    for i, (name, _) in enumerate(named):
        for rank, other in enumerate(everyone):
            ours, theirs = everyone[0][1 + 8 * i:9 + 8 * i], other[1 + 8 * i:9 + 8 * i]
            if torch.equal(ours, theirs):
                continue
            shape = lambda n: list(int(x) for x in n[1:1 + int(n[0])])
            how = f"is {shape(theirs)}, on rank 0 {shape(ours)}" if shape(ours) != shape(theirs) else "holds other values than on rank 0"
            raise Error(f"{name} {how} on rank {rank}: every rank must pass the same whole batch; autosp splits the sequence itself")
    return shapes


def mark(named, seq_dim):
    """The sequence's dimension of each input is a symbol, so that another length does not compile again; in a mask, whatever dimensions
    have the size of the sequence, unless it turns out that they are something else."""
    tokens = next((x.shape[seq_dim] for _, x in named if not x.is_floating_point() and x.dim() == seq_dim + 1), None)
    for _, x in named:
        if (tokens is None or not x.is_floating_point() and x.dtype != torch.bool) and x.dim() > seq_dim and x.shape[seq_dim] > 1:
            torch._dynamo.mark_dynamic(x, seq_dim)
            continue
        for dim in range(x.dim()):
            if x.shape[dim] == tokens and tokens > 1:
                torch._dynamo.maybe_mark_dynamic(x, dim)


# ---- models ----

def _forward(self, *args, **kwargs):
    return self.forward(*args, **kwargs)


@contextlib.contextmanager
def _forward_is(model, forward):
    """The model's own attribute of that name is forward meanwhile; None: it has none.  Gives the one it had, or None."""
    was = model.__dict__.pop("forward", None)
    if forward is not None:
        model.forward = forward
    try:
        yield was
    finally:
        model.__dict__.pop("forward", None)
        if was is not None:
            model.forward = was


def _own_code(f):
    """Dynamo counts the graphs of a code object and keeps them as long as that and its globals: each compiled model has its own."""
    return types.FunctionType(f.__code__.replace(), {"__builtins__": __builtins__, "__name__": __name__}, f.__name__)


class _Call:
    """What a compiled model is called through."""

    def __init__(self, model, settings, seq_dim, check):
        self.backend = Backend(settings)
        self.settings, self.seq_dim, self.check = settings, seq_dim, check
        self.model = weakref.ref(model)
        self.own = _own_code(_forward)
        self.compiled = torch.compile(self.own, backend=self.backend, fullgraph=True)

    def __call__(self, *args, **kwargs):
        """The model's own hooks, such as FSDP2's, run around the graph and not in it."""
        model = self.model()
        with _forward_is(model, lambda *a, **k: self.forward(model, was, *a, **k)) as was:
            return model._call_impl(*args, **kwargs)

    def forward(self, model, was, *args, **kwargs):
        """was: the forward that the model had as an attribute, or None."""
        named = [(f"input {i}", x) for i, x in enumerate(args) if isinstance(x, torch.Tensor)]
        named += [(k, x) for k, x in sorted(kwargs.items()) if isinstance(x, torch.Tensor)]
        if self.check and self.settings.group is not None:
            check_batch(named, self.settings.group)
        mark(named, self.seq_dim)
        try:
            with _forward_is(model, was):
                return self.compiled(model, *args, **kwargs)
        except torch._dynamo.exc.BackendCompilerFailed as e:
            if isinstance(e.inner_exception, Error):
                raise e.inner_exception from None
            raise
        except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError) as e:
            raise Error(f"the model is not one graph: {str(e).strip()}\nWrite the line without what stops the trace, or leave it out "
                        "of the model's forward.") from None

    def release(self):
        """What was made for this model alone.  On all ranks, as compile was."""
        scope = self.own.__globals__  # Dynamo holds on to it as long as the model's parameters live, and it to what was compiled
        scope.update(dict.fromkeys(scope))
        self.compiled = self.own = self.backend.last = None
        if self.settings.own_group:
            dist.destroy_process_group(self.settings.group)


def compile(model, sp=1, strategy="auto", memory=None, backend="inductor", seq_dim=1, check=True, verify=False, roles=None, ac=None,
            logits=False):
    """The model itself, whose calls are split over the ranks of sp.  Every rank passes the same whole batch; the loss and the
    gradients are the global ones.  strategy: how attention meets the whole sequence (auto, ulysses, ring, mixed,
    hybrid:UxR).  seq_dim: of the inputs.
    memory: bytes that a rank may take, as "60GiB"; ac: what is kept for the backward pass (none, default, sac, layer, budget).
    check: compare the batch across ranks in each call.  verify: C reads the edited graph again and proves it.  roles: what inputs of
    other names are, as {"tokens": "input_ids"}.  logits: calls under torch.no_grad() give the other outputs too, whole on every rank."""
    settings = settle(sp, strategy, memory, backend, verify, roles, ac, logits)
    if not isinstance(model, torch.nn.Module):
        raise Error(f"a torch.nn.Module is wanted, not {type(model).__name__}")
    restore(model)
    model._compiled_call_impl = _Call(model, settings, seq_dim, check)
    return model


def restore(model):
    """The model as it was before autosp.compile."""
    if isinstance(model._compiled_call_impl, _Call):
        model._compiled_call_impl.release()
    model._compiled_call_impl = None
    return model


def dynamo_backend(gm, example_inputs, *, options=None, mode=None):
    """torch.compile(model, backend="autosp", fullgraph=True, options={"sp": 4, ...}): the options of autosp.compile; what it does beside
    compiling (marking the sequence, comparing batches) is then the caller's."""
    options = dict(options or {})
    inner = options.pop("backend", "inductor")
    return Backend(settle(backend=inner, **options))(gm, example_inputs)


@functools.cache
def register():
    """The wheel's entry point says the same; this serves where the package is used without being installed."""
    torch._dynamo.register_backend(dynamo_backend, name="autosp")
