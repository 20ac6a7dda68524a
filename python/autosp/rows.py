# Which rows of a sequence a rank holds, as C says (src/base/rows.h).  Neighbours: ops.py, ring.py (who ask).
# SPDX-License-Identifier: Apache-2.0
import torch

from .capi import library


def room(n, ranks):
    return (n + ranks - 1) // ranks


def places_of(n, ranks, rings, zigzag, rank):
    """Row i of the rank's part is row places[i] of the sequence; -1: it is past its end."""
    out = torch.empty(room(n, ranks), dtype=torch.int64)
    library().asp_row_places(n, ranks, rings, zigzag, rank, out.data_ptr())
    return out
