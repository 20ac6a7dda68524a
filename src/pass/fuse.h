// How a node takes part in a row program.  Neighbours: fuse.c (who groups), run/program.c (who
// builds programs out of groups). SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/rowprog.h"
#include "pass/pass.h"

// Members of a group at most: three values each, below ASP_ROW_MAX_VALS.
#define ASP_MAX_GROUP 60

typedef enum asp_row_member {
    ASP_MEMBER_NO,
    ASP_MEMBER_POINTWISE, // expand included: a copy that broadcasts
    ASP_MEMBER_SUM_COLS,  // over the last dim, which stays as 1
    ASP_MEMBER_SUM_ROWS   // over all dims but the last
} asp_row_member;
asp_row_member asp_row_member_of(const asp_graph *g, asp_node n);

// What a value of type t is to a program over the domain: the whole, one number a row, ...  false:
// it cannot take part.
bool asp_row_kind(asp_graph *g, const asp_type *domain, const asp_type *t, asp_rowkind *out_kind);

// The domain a member asks for by itself: its widest value.  false: it cannot be one.
bool asp_row_domain(asp_graph *g, asp_node n, asp_type *out_domain);
// The domain of a program that covers both; false: there is none.
bool asp_row_join(asp_graph *g, const asp_type *a, const asp_type *b, asp_type *out_domain);
