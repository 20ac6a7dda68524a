// Shared by check.c and its rooms: the layout of a value, and what each room proves.  None of the
// passes that split a program reads this.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/rule.h"
#include "pass/pass.h"

typedef struct asp_layout {
    bool split, partial;
    uint32_t dim;    // the split dimension
    asp_size before; // what stands outside of the ranks in it; 1: blocks of the whole dimension
    asp_size whole;  // the number of units that are split, over all ranks
    asp_size length; // how many of them count: fewer once a sequence was cut short
    bool zero_tail;  // the tail holds zeros
    bool filled;     // the tail holds `fill`
    int64_t fill;
    int64_t group; // ranks of a group, of a slice that each group has alike
    bool grouped; // split over the ranks of a group, and dim 2, `rows` of the sequence, over groups
    asp_size rows; // none: in every group alike
    int64_t rings; // the order in which what is split is shared out (base/rows.h); 0: as 1
    bool zigzag;
    unsigned uniform; // bit d: all slices of dimension d are equal, it fits whole and split
} asp_layout;

typedef struct asp_checker {
    asp_pass *px;
    asp_graph *g;
    asp_layout *of; // by value
    asp_size one, ranks;
    int8_t *fraction; // by size: 0 unknown, 1 none, -1 has one
    uint32_t n_fraction;
} asp_checker;

// ---- facts (check.c) ---------------------------------------------------------------------------

// The error of n that says what could not be proved of it.
asp_status asp_not_proved(const asp_checker *k, asp_node n, const char *fmt, ...) ASP_PRINTF(3, 4);
// A part over the ranks that may be shorter than its room.
bool asp_has_tail(const asp_checker *k, asp_size whole, asp_size length, int64_t ranks);
// A size that is a rank's part of another.
bool asp_has_fraction(asp_checker *k, asp_size s);
bool asp_in_same_order(const asp_checker *k, const asp_layout *l, int64_t rings, bool zigzag);
asp_status asp_check_ranks(const asp_checker *k, asp_node n, int64_t ranks);

// ---- rooms: each finds the layout of n's results, or says why it is not proved -----------------

// check_rule.c: an op that has a sharding rule, or none of whose operands is split.
asp_status asp_check_by_rule(asp_checker *k, asp_node n);

// check_view.c
asp_status asp_check_view(asp_checker *k, asp_node n);      // behind its rule
asp_status asp_check_told_view(asp_checker *k, asp_node n); // one that says where the split stands

// check_parts.c: exchanges among all ranks, and what cuts, pads, shortens and clears a part.
asp_status asp_check_all_to_all(asp_checker *k, asp_node n);
asp_status asp_check_all_reduce(asp_checker *k, asp_node n);
asp_status asp_check_slice(asp_checker *k, asp_node n);
asp_status asp_check_pad(asp_checker *k, asp_node n);
asp_status asp_check_shorten(asp_checker *k, asp_node n);
asp_status asp_check_mask(asp_checker *k, asp_node n);
asp_status asp_check_sequence_op(asp_checker *k, asp_node n);

// check_groups.c: groups of ranks, and attention around rings.
asp_status asp_check_in_group(asp_checker *k, asp_node n);
asp_status asp_check_ring(asp_checker *k, asp_node n);
