# Groups of neighbours within a group of ranks, for strategy="hybrid:UxR": heads are shared out among U of them, keys and values go round
# the R groups.  All ranks know their own by one name, so that all compile the same graph.  Neighbours: api.py (who makes them), ops.py
# (exchanges among them).  SPDX-License-Identifier: Apache-2.0
import re

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch.distributed.distributed_c10d import _resolve_process_group

from .capi import Error


def is_hybrid(strategy):
    return re.fullmatch(r"hybrid:\d+x\d+", strategy) is not None


def name_of(group, ranks):
    """What the neighbours among `ranks` of a group of that name are called."""
    return group if ranks == dist.get_world_size(_resolve_process_group(group)) else f"{group}/{ranks}"


def _found(name):
    try:
        return _resolve_process_group(name)
    except (RuntimeError, ValueError):  # not made
        return None


def make(group, strategy):
    """The neighbours that the strategy is about, once; on all ranks of the group."""
    heads, rings = map(int, strategy.split(":")[1].split("x"))
    if heads < 1 or heads * rings != dist.get_world_size(group):
        raise Error(f"strategy={strategy!r}: {heads} x {rings} are not the {dist.get_world_size(group)} ranks of the group")
    name = name_of(group.group_name, heads)
    if name != group.group_name and _found(name) is None:
        first = dist.get_rank(group) // heads * heads
        mine = dist.new_group(dist.get_process_group_ranks(group)[first:first + heads], use_local_synchronization=True)
        c10d._register_process_group(name, mine)


def release(group, strategy):
    """Those of a group that goes."""
    name = f"{group.group_name}/{strategy.split(':')[1].split('x')[0]}" if is_hybrid(strategy) else ""
    if name and _found(name) is not None:
        mine = _resolve_process_group(name)
        c10d._unregister_process_group(name)
        dist.destroy_process_group(mine)
