# autosp: sequence parallelism for PyTorch models.  docs/pytorch.md.  SPDX-License-Identifier: Apache-2.0
from .api import compile, register, restore
from .capi import Error
from .engine import initialize
from .tools import capture, export, hide_ranks, plan, prepare_autosp_inputs, verify

register()
__all__ = ["Error", "capture", "compile", "export", "hide_ranks", "initialize", "plan", "prepare_autosp_inputs", "restore", "verify"]
