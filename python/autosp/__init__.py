# autosp: sequence parallelism for PyTorch models.  docs/pytorch.md.  SPDX-License-Identifier: Apache-2.0
from .api import compile, register, restore
from .capi import Error

register()
__all__ = ["Error", "compile", "restore"]
