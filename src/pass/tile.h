// Sequence tiling: which nodes can run over one chunk of rows at a time.  Neighbours: tile.c (finds
// them), tile_order.c (brings them side by side), run/program.c (runs them in loops).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pass/pass.h"

// Rows of a chunk are a multiple of this, so that sums in blocks of 64 rows are those of the whole.
#define ASP_TILE_STEP 64

// A value has rows where its leading dims up to the first that mentions the sequence are all the
// tokens of a rank: f32[B, S, 8] has B S rows and 2 leading dims.
typedef struct asp_tile_shape {
    asp_size rows;
    uint32_t lead;
} asp_tile_shape;
bool asp_tile_shape_of(asp_graph *g, const asp_type *t, asp_tile_shape *out_shape);

typedef enum asp_tile_role {
    ASP_TILE_NONE,
    ASP_TILE_EACH, // rows of the results depend on the same rows of the operands
    ASP_TILE_SUM   // some result is a sum over all rows, the others are EACH
} asp_tile_role;

// May n run over some of its rows at a time?  Gives the rows it has.
asp_tile_role asp_tile_role_of(asp_graph *g, asp_node n, asp_size *out_rows);
// Cheap enough to run twice: row-wise and no product.
bool asp_tile_is_cheap(asp_graph *g, asp_node n);

// All nodes of each tile, as they stand: do they have the same rows, and does none read a sum that
// is not whole yet?  Names the first that may not be there.
asp_status asp_tile_check(asp_graph *g);

// Brings the nodes of each tile side by side, all else as it stood as far as reads allow.  A tile
// that cannot be is dissolved.  Scratch on a; O(nodes).
void asp_tile_order(asp_graph *g, asp_arena *a);
