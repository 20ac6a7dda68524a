// What pass/shard.c and shard_cut.c share: the state of the walk, and how values are cut: where in
// a dim the split atoms stand, slices of replicable values, tails, gathers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pass/place.h"

// Where in a dim the split atoms stand: outer x split x inner.
typedef struct asp_cut {
    uint32_t dim;
    asp_size outer, split, inner;
    asp_size of;   // what the parts are of: split itself, or the sequence it was cut out of
    uint32_t atom; // the first of the split ones; 0: nothing of the dim is split
    int64_t parts;
    int64_t ranks; // that share the parts: all, or those of a group
} asp_cut;

typedef struct asp_cut_slice {
    asp_cut at;
    int64_t fill; // of its tail; INT64_MIN: its last element
    asp_val result;
    uint32_t older; // index + 1 of the one of the same value made before
} asp_cut_slice;

typedef struct asp_sharder {
    asp_pass *px;
    asp_graph *g;
    asp_axes x;
    int64_t ranks;
    asp_strategy sp;
    int64_t rings; // the order in which rows of the sequence are shared out (base/rows.h)
    bool zigzag;
    asp_builder b;
    const asp_chain **state; // by value: the chain it is split along; NULL: at "sequence"
    asp_val *map;            // by value: what to read in its place, or none
    ASP_VEC(asp_cut_slice) slices;
    uint32_t *newest;           // by value: index + 1
    asp_val *gathered;          // by value: it whole on every rank, or none
    ASP_VEC(asp_node) replaced; // nodes that nobody reads any more
} asp_sharder;

// ---- parts (shard_cut.c) -----------------------------------------------------------------------

// A state in which nothing is split.
extern const asp_chain asp_state_whole;

// In how many parts an atom, or a list of atoms, is split in a state.
int64_t asp_parts_of(const asp_sharder *s, const asp_chain *state, uint32_t atom);
int64_t asp_parts_of_list(const asp_sharder *s, const asp_chain *state, asp_atoms list);
asp_size asp_whole_size(const asp_sharder *s, asp_atoms list);
asp_type asp_local_type(const asp_sharder *s, asp_val v, const asp_chain *state);

// ---- cutting (shard_cut.c) ---------------------------------------------------------------------

// Operand i of n is replicable: it is sliced where its letters have split atoms.
asp_status asp_align_replicable(asp_sharder *s, asp_node n, uint32_t i, const asp_chain *state);
// Where n sums over tokens, one operand is cleared in the tail: the products vanish there.
asp_status asp_mask_sums(asp_sharder *s, asp_node n, const asp_chain *state);
// v, which is split along the sequence and stands in the program as x: whole on every rank.
asp_status asp_gather_tokens(asp_sharder *s, asp_val v, asp_val x, asp_val *out_x);
// This rank's part along the sequence of v, which stands there whole.
asp_status asp_keep_part(asp_sharder *s, asp_val v, asp_val *out_x);
// v as a prefix of x along the tokens of its dim.
asp_status asp_shorten_tokens(asp_sharder *s, asp_val v, uint32_t dim, asp_val x, asp_val *out_x);
// n's work on the split sequence: the op that stands in its place.
asp_status asp_run_split(asp_sharder *s, asp_node n, asp_op op, uint32_t dim, asp_val *out_x);
// The dim of v where a rank has one item of what is split, and what stands before it there, if so.
void asp_find_single_item(const asp_sharder *s, asp_val v, const asp_chain *state,
                          asp_view_attr *out_attr);
// Where a rank's elements of v stand in the unsplit tensor, as dropout wants to know.
asp_status asp_place_random(asp_sharder *s, asp_node n, const asp_chain *state);
asp_status asp_place_heads(asp_sharder *s, asp_node n, const asp_chain *state); // and of attention
