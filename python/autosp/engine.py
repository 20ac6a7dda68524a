# autosp.initialize: scripts written for DeepSpeed, by its configuration's keys.  What is not known is refused by name.
# Neighbours: api.py.  SPDX-License-Identifier: Apache-2.0
import json

import torch

from .api import compile as compile_model
from .capi import Error

PASSES = {"autosp", "auto_sp", "sp_ac"}
# key -> what it may hold; None: another function looks.
KNOWN = {"sequence_parallel": None, "sequence_parallel_size": int, "compile": None, "zero_optimization": None, "gradient_clipping": (int, float),
         "gradient_accumulation_steps": int, "train_micro_batch_size_per_gpu": int, "train_batch_size": int, "steps_per_print": int}


def _only(section, name, known):
    for key in section:
        if key not in known:
            raise Error(f"config: {name}{key!r} is not known; there are {', '.join(sorted(known))}")


def read_config(config):
    """(ranks, steps that accumulate, clipping) of a dict, or of the JSON file it names."""
    if isinstance(config, str):
        with open(config) as f:
            config = json.load(f)
    _only(config, "", KNOWN)
    for key, kind in KNOWN.items():
        if kind is not None and key in config and (not isinstance(config[key], kind) or isinstance(config[key], bool)):
            raise Error(f"config: {key!r} is {config[key]!r}, which is no number")
    sequence = config.get("sequence_parallel", {})
    _only(sequence, "sequence_parallel.", {"autosp_size"})
    sizes = {n for n in (sequence.get("autosp_size"), config.get("sequence_parallel_size")) if n is not None}
    if len(sizes) > 1:
        raise Error("config: sequence_parallel.autosp_size and sequence_parallel_size differ")
    compiler = config.get("compile", {})
    _only(compiler, "compile.", {"deepcompile", "passes"})
    for p in compiler.get("passes", []):
        if p not in PASSES:
            raise Error(f"config: compile.passes has {p!r}; there are {', '.join(sorted(PASSES))}")
    zero = config.get("zero_optimization", {})
    _only(zero, "zero_optimization.", {"stage"})
    if zero.get("stage", 0) not in (0, 1):
        raise Error(f"config: zero_optimization.stage {zero['stage']} is not supported yet; 0 and 1 are")
    return sizes.pop() if sizes else 1, config.get("gradient_accumulation_steps", 1), config.get("gradient_clipping", 0.0)


class Engine(torch.nn.Module):
    """engine(**batch), engine.backward(loss), engine.step(): the optimizer steps once what accumulates is there."""

    def __init__(self, model, optimizer, config, **options):
        super().__init__()
        ranks, self.accumulation, self.clipping = read_config(config)
        self.module = compile_model(model, sp=ranks, **options)
        self.optimizer, self.micro_steps = optimizer, 0

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def compile(self, *args, **kwargs):
        """It is compiled."""

    def backward(self, loss):
        (loss / self.accumulation).backward()
        return loss

    def step(self):
        self.micro_steps += 1
        if self.micro_steps % self.accumulation != 0:
            return
        if self.clipping > 0:
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.clipping)
        self.optimizer.step()
        self.optimizer.zero_grad()


def initialize(model, optimizer=None, config=None, **options):
    """(engine, optimizer, None, None), as deepspeed.initialize gives.  Every rank passes the same whole batch to the engine."""
    if optimizer is None:
        raise Error("optimizer is None: make one, as torch.optim.AdamW(model.parameters())")
    return Engine(model, optimizer, config or {}, **options), optimizer, None, None
