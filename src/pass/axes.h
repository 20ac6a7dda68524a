// Axes: what each dimension of a value *is*, beside its size.  A dimension is a list of atoms,
// outer to inner; a dimension of size 1 has none.  Two dimensions of equal size are never confused.
// Neighbours: op/rule.h (what ops do to dimensions), place.c and shard.c (who read this).
// axes.c analyses, axes_sequence.c answers what an op does to a split sequence.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/rule.h"

#define ASP_NO_OP ASP_OP_input // where an op is asked for and there is none

typedef struct asp_atom {
    asp_size size;
    uint32_t parent;       // union-find: the atom this one turned out to be; 0 = a root
    uint32_t outer, inner; // what it was refined into; 0 = nothing
    bool token;            // positions in a sequence of tokens
    bool batch;
    // A token atom cut out of another (x[:, :-1]) is split where that one is, so that what has
    // equal indices meets; 0: where its own size says.
    uint32_t base;
    bool made;        // of a pad or a convolution: what is cut out of it is split by its own size
    bool clash;       // it would have to be split in two ways
    uint32_t copy_of; // the keys of a score matrix: this token atom again, whole on every rank
} asp_atom;

typedef struct asp_atoms {
    uint32_t n;
    uint32_t *at; // indices into atoms; after the analysis roots that are not refined
} asp_atoms;

// A node whose results are not replicable.
typedef struct asp_node_axes {
    bool has_rule;                // false: nothing that reaches it may be split
    bool whole[ASP_MAX_OPERANDS]; // a product of queries with keys: the keys are gathered
    asp_rule rule; // dims whose atoms do not fit their letters have the letter `lost` in place
    asp_atoms letter[ASP_MAX_LETTERS];
} asp_node_axes;

// A value is replicable when every rank can have it whole for nothing: inputs, parameters and what
// is computed from them, up to the first op that needs a gradient and has a token or symbolic
// dimension (the embedding).  Replicable values have no axes (one iota may serve as rows and as
// columns), but for token inputs and what is made of them number by number or in another order.
typedef struct asp_axes {
    asp_graph *g;                  // borrowed
    asp_arena *arena;              // borrowed; holds everything below
    ASP_VEC(asp_atom) atoms;       // 0 unused
    bool *replicable, *needs_grad; // by value
    asp_atoms **dims;              // by value: one list a dimension, or NULL
    asp_node_axes **node;          // by node: NULL where the results are replicable
} asp_axes;

// Of an unsplit graph, results on a.  Never fails: what does not fit is marked whole.
void asp_axes_analyse(asp_arena *a, asp_graph *g, asp_axes *out_axes);

// At "sequence": must operand i of n be gathered, whole on every rank?
bool asp_axes_gathers(const asp_axes *x, asp_node n, uint32_t i);
// Does n then run on whole operands, and each rank keep its part of the results?
bool asp_axes_runs_whole(const asp_axes *x, asp_node n);
// x[:, :n] along the tokens: each rank has its part already.
bool asp_axes_shortens(const asp_axes *x, asp_node n);
// The op that does n's work on a split sequence; ASP_NO_OP: none.  dim is the token dim of its
// first operand; out_rows the rows of it that travel.
asp_op asp_axes_algorithm(const asp_axes *x, asp_node n, uint32_t *out_dim, int64_t *out_rows);
// The atom by whose size a token atom is split, and that size.
uint32_t asp_axes_base(const asp_axes *x, uint32_t atom);
asp_size asp_axes_base_size(const asp_axes *x, uint32_t atom);

bool asp_atoms_have(asp_atoms list, uint32_t atom);
// Number of token atoms.
uint32_t asp_axes_count_tokens(const asp_axes *x, asp_atoms list);
uint32_t asp_axes_count_value_tokens(const asp_axes *x, asp_val v); // in all dims
bool asp_axes_value_has(const asp_axes *x, asp_val v, uint32_t atom);
// "%q : b, a1, s, a2": each value with axes a line; s tokens, b batch, a others, numbered as met.
void asp_axes_put(asp_text *t, const asp_axes *x);
