// A joint graph as the plain program of flow/remat.h, for whoever chooses what to recompute.
// Neighbours: remat_describe.c, remat_marks.c, remat.c (the pass), run/compile.c (budgets).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "flow/remat.h"
#include "pass/pass.h"

typedef struct asp_remat_description {
    asp_arena *arena;
    asp_graph *g;
    uint32_t *index_of; // by value of the graph: number in the description
    asp_val *val_of;    // by number
    asp_node *node_of;  // by op of the description: the first of a tile, which is one op
    bool *leaves;       // by value of the graph: is read outside of the tile that makes it
    bool *backward;     // by value of the graph
    ASP_VEC(asp_remat_value) values;
    ASP_VEC(asp_remat_op) ops;
    ASP_VEC(uint32_t) reads;
    ASP_VEC(const char *) names;
    asp_remat_program program;
} asp_remat_description;

// The graph must have a backward (pass grad).  Bytes, and times on the options' device, at the
// options' sizes; the user's marks are on the values.  Equal graphs have equal numbers.
asp_status asp_remat_describe(const asp_pass *px, asp_arena *a, asp_graph *g,
                              asp_remat_description *out_description);

// The node behind n and the rest of its tile.
asp_node asp_remat_behind(const asp_graph *g, asp_node n);

// Puts the marks of options->recompute and options->save on the values.  Fails where a pattern
// names nothing of the forward.
asp_status asp_remat_mark(const asp_pass *px, asp_remat_description *x);

// How the native executor lives: fused row programs, the loss kept.
#define ASP_REMAT_NATIVE ASP_REMAT_FUSED
