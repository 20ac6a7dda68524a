// Between the parts of the pass `tile`: tile.c, tile_wide.c, tile_part.c.  SPDX-License-Identifier:
// Apache-2.0
#pragma once

#include "pass/tile.h"

typedef struct asp_tile_part {
    uint32_t id;    // of the tile
    bool backward;  // depends on the seed
    asp_node first; // in list order, of the original nodes
    asp_size rows;
    ASP_VEC(asp_node) nodes;
    asp_map made; // values of the original graph that have a copy inside -> index in copies
    ASP_VEC(asp_val) copies;
    ASP_VEC(asp_val) reads; // narrow values with rows, from outside
} asp_tile_part;

typedef struct asp_tiler {
    asp_pass *px;
    asp_graph *g;
    uint32_t n_nodes, n_vals; // of the original graph
    bool *backward;           // by value
    uint32_t *order;          // by node: place in the list; 0: it is in none
    int64_t *base;            // by value: the width it is wider than; 0: it is not wide
    uint32_t *parent;         // by node: union-find over parts
    uint32_t n_tiles;
    asp_node **readers; // by value; ends with a none
    bool *is_output;    // by value
} asp_tiler;

// ---- tile_wide.c -------------------------------------------------------------------------------

// The graph's nodes and readers, and what is wide in it; all of it on the pass's scratch.
void asp_tile_index(asp_tiler *t, asp_val seed);
// Joins makers and readers of wide values into parts; true at the root of a part of which one must
// be whole.
bool *asp_tile_join(asp_tiler *t);
// The part that node i is of.
uint32_t asp_tile_root(asp_tiler *t, uint32_t i);
asp_node asp_tile_maker(const asp_tiler *t, asp_val v);
// Elements of a row; 0 for what has no rows, or a size that is not known here.
int64_t asp_tile_width(const asp_tiler *t, asp_val v);

// ---- tile_part.c -------------------------------------------------------------------------------

// A new tile of those of n nodes that are on the wanted sides of the loss.
void asp_tile_begin(asp_tiler *t, asp_tile_part *p, const asp_node *nodes, uint32_t n, bool forward,
                    bool backward);
void asp_tile_undo(asp_tiler *t, asp_tile_part *p);
// Does no way lead out of the tile and back in?
bool asp_tile_is_convex(asp_tiler *t, const asp_tile_part *p);
// The backward side makes again what it reads of the inside of the forward side: wide values, and
// all they take.
void asp_tile_repeat_forward(asp_tiler *t, const asp_tile_part *forward, asp_tile_part *p);
// The values with rows that it reads from outside.
void asp_tile_find_reads(asp_tiler *t, asp_tile_part *p);
bool asp_tile_reads(const asp_tile_part *p, asp_val v); // is it one of them?
// Is it more than a number a row?
bool asp_tile_is_narrow(const asp_tiler *t, asp_val v);
// Would reading what v is made of, in its place, be no more to read?
bool asp_tile_pays_to_make(asp_tiler *t, const asp_tile_part *p, asp_val v);
// Makes cheap operands inside, takes cheap readers in.
void asp_tile_grow(asp_tiler *t, asp_tile_part *p);
