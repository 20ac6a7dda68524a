// Attention masks as predicates over global positions: which key a query may see.  Text such as
//
//   k <= q & q - k <= 1023 & T0[q] == T0[k]
//
// is conjunctions and disjunctions of relations between sums of q, k and token look-ups Ti[q],
// Ti[k] with whole coefficients.  Every relation is a query side against a key side, A(q) rel C(k).
// Neighbours: attention.h (which operands the look-ups are), kern/mask.h (tiles and rows),
// pass/masks.c (who finds predicates in graphs).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

#define ASP_MASK_MAX_ATOMS 24
#define ASP_MASK_MAX_NODES (2 * ASP_MASK_MAX_ATOMS)
#define ASP_MASK_MAX_TERMS 6 // of one side
#define ASP_MASK_MAX_LOOKUPS 4
#define ASP_MASK_MAX_NUMBER (INT64_C(1) << 40) // the largest coefficient and constant

// coef * floor(x / div), x the position (lookup < 0) or the look-up's value there.
typedef struct asp_mask_term {
    int lookup;
    int64_t coef, div; // coef != 0, div >= 1
} asp_mask_term;

typedef struct asp_mask_side {
    int64_t constant;
    uint32_t n;
    asp_mask_term term[ASP_MASK_MAX_TERMS]; // sorted by lookup, then div; no two alike
} asp_mask_side;

typedef enum asp_mask_rel { ASP_MASK_LE, ASP_MASK_EQ, ASP_MASK_NE } asp_mask_rel;

// query(q) rel key(k).  The constant stands on the key side.
typedef struct asp_mask_atom {
    asp_mask_rel rel;
    asp_mask_side query, key;
} asp_mask_atom;

typedef enum asp_mask_kind {
    ASP_MASK_TRUE,
    ASP_MASK_FALSE,
    ASP_MASK_ATOM, // atom[a]
    ASP_MASK_AND,  // node[a] and node[b]
    ASP_MASK_OR
} asp_mask_kind;

typedef struct asp_mask_node {
    asp_mask_kind kind;
    uint32_t a, b; // operands stand before the node
} asp_mask_node;

// A predicate in negation normal form.  The last node is the whole.
typedef struct asp_mask {
    uint32_t n_nodes, n_atoms;
    uint32_t n_lookups;                  // largest index named, plus one
    uint32_t query_lookups, key_lookups; // bit i: Ti[q], Ti[k] is named
    asp_mask_node node[ASP_MASK_MAX_NODES];
    asp_mask_atom atom[ASP_MASK_MAX_ATOMS];
} asp_mask;

// The empty text is the predicate "true".  Refuses what is malformed or too large, saying where.
asp_status asp_mask_parse(asp_ctx *cx, const char *text, asp_mask *out_mask);
// The same without a context, for kernels: false where asp_mask_parse fails.
bool asp_mask_read(const char *text, asp_mask *out_mask);
// Text that reads back to an equal mask.
void asp_mask_print(asp_text *t, const asp_mask *m);

// Sides with values of look-ups at one position; sums that leave the range of 63 bits stay at its
// end. value[i] is Ti there.
int64_t asp_mask_side_at(const asp_mask_side *s, int64_t position, const int64_t *value);
// May a query at position q see the key at position k?  at_q[i] = Ti[q], at_k[i] = Ti[k].
bool asp_mask_allows(const asp_mask *m, int64_t q, int64_t k, const int64_t *at_q,
                     const int64_t *at_k);

// ---- building ----------------------------------------------------------------------------------

// Each returns the index of a new node, UINT32_MAX when the mask is full (or an operand is that).
uint32_t asp_mask_put_atom(asp_mask *m, const asp_mask_atom *atom); // relations without terms fold
uint32_t asp_mask_put(asp_mask *m, asp_mask_kind kind, uint32_t a,
                      uint32_t b); // TRUE, FALSE, AND, OR
// A node that holds where `node` does not.
uint32_t asp_mask_put_not(asp_mask *m, uint32_t node);
// Adds coef * floor(x / div) to a side; false when it is full or numbers leave their range.
bool asp_mask_add_term(asp_mask_side *s, int lookup, int64_t coef, int64_t div);
// Makes `node` the whole: drops what it does not use, counts look-ups.
void asp_mask_finish(asp_mask *m, uint32_t node);
// The finished mask m and "k <= q"; false where that is too long.
bool asp_mask_add_causal(asp_mask *m);

// ---- questions ---------------------------------------------------------------------------------

// Is "k <= q" one of the conditions that all must hold?
bool asp_mask_is_causal(const asp_mask *m);
