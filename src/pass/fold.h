// Replicable values as formulas of their own indices: whole numbers affine in indices and token
// look-ups, relations, and, or, not, choices between constants.  Neighbours: fold.c (arithmetic),
// fold_ops.c (what each op does), masks.c (who turns them into predicates of attention).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/mask.h"
#include "op/op.h"

typedef enum asp_body_kind {
    ASP_BODY_NONE,  // no formula: the value itself, at an index for each of its dims
    ASP_BODY_BOOL,  // a constant
    ASP_BODY_FLOAT, // a constant
    ASP_BODY_INT,   // c + sum of terms
    ASP_BODY_REL,   // x rel 0, x whole
    ASP_BODY_AND,   // x and y
    ASP_BODY_OR,
    ASP_BODY_WHERE, // x ? y : z
    ASP_BODY_SLOPE  // value v (floats, one a head) times x (whole)
} asp_body_kind;

typedef struct asp_body asp_body;

// coef * floor(var / div), var an index or a value looked up.
typedef struct asp_body_term {
    const asp_body *look; // of kind NONE: the value there; NULL: index dim
    uint32_t dim;
    int64_t div;
    asp_size coef;
} asp_body_term;

struct asp_body {
    asp_body_kind kind;
    asp_mask_rel rel;
    bool truth;
    double number;
    asp_size c;
    uint32_t n;
    const asp_body_term *term;
    const asp_body *x, *y, *z;
    asp_val v;
    uint32_t rank;
    const asp_body *at[ASP_MAX_RANK]; // of kind INT
};

typedef struct asp_folder {
    asp_graph *g;
    asp_arena *arena;
    const asp_body **memo; // by value
    int depth;
} asp_folder;

void asp_folder_init(asp_folder *f, asp_graph *g, asp_arena *arena);
// The formula of v over indices 0 .. rank - 1 (0 for dims of size 1).  Never NULL.
const asp_body *asp_fold(asp_folder *f, asp_val v);

// ---- arithmetic; NULL: no formula --------------------------------------------------------------

const asp_body *asp_body_bool(asp_folder *f, bool b);
const asp_body *asp_body_float(asp_folder *f, double x);
const asp_body *asp_body_int(asp_folder *f, asp_size c);
const asp_body *asp_body_index(asp_folder *f, uint32_t dim); // the index itself
const asp_body *asp_body_value(asp_folder *f, asp_val v);    // itself, whatever made it
bool asp_body_is_int(const asp_folder *f, const asp_body *x, int64_t n);
// x + y * by
const asp_body *asp_body_add(asp_folder *f, const asp_body *x, const asp_body *y, asp_size by);
const asp_body *asp_body_div(asp_folder *f, const asp_body *x, int64_t by); // rounded down
// x rel y; numbers, truths and choices between numbers.
const asp_body *asp_body_rel(asp_folder *f, asp_mask_rel rel, const asp_body *x, const asp_body *y);
const asp_body *asp_body_less(asp_folder *f, const asp_body *x, const asp_body *y);
const asp_body *asp_body_and(asp_folder *f, const asp_body *x, const asp_body *y);
const asp_body *asp_body_or(asp_folder *f, const asp_body *x, const asp_body *y);
const asp_body *asp_body_not(asp_folder *f, const asp_body *x);
const asp_body *asp_body_where(asp_folder *f, const asp_body *c, const asp_body *x,
                               const asp_body *y);
// Every index d becomes at[d], a whole number.
const asp_body *asp_body_at(asp_folder *f, const asp_body *x, const asp_body *const *at);
bool asp_body_equal(const asp_body *a, const asp_body *b);
