// Shared by remat_describe.c and remat_chunk.c.  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pass/remat.h"

asp_remat_class asp_remat_class_of(asp_op op);

// Of all tiles of a graph.
typedef struct asp_remat_chunks {
    const asp_pass *px;
    asp_graph *g;
    uint32_t *last; // by value: place of its last reader in its tile
    bool *written;  // by value
    uint32_t place; // of nodes, through all tiles
} asp_remat_chunks;
asp_remat_chunks asp_remat_chunks_of(const asp_pass *px, asp_arena *a, asp_graph *g);
// What one chunk of the tile from first to before end has of its own, at the fullest.  leaves: by
// value, is read outside.
asp_status asp_remat_chunk_bytes(asp_remat_chunks *c, asp_node first, asp_node end,
                                 const bool *leaves, int64_t *out_bytes);
