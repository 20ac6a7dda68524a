// The list of primitives that both halves of the row program compiler work on.  Inside src/kern
// only. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kern/rowprog_int.h"

typedef enum asp_rowcode_form {
    ASP_CODE_PLAIN,         // op
    ASP_CODE_CHAIN,         // first, then second
    ASP_CODE_SILU_MUL,      // silu(a) * b
    ASP_CODE_SILU_GRAD_MUL, // silu_grad(a, b * c)
    ASP_CODE_SILU_BOTH,     // silu_grad(a, b * c) and silu(a) * b
    ASP_CODE_SUM,           // op is sum_cols or sum_rows
    ASP_CODE_MUL_SUM,       // the same of a * b
    ASP_CODE_MUL_MUL_SUM,   // sum_rows of (a * b) * c
    ASP_CODE_NORM_GRAD // ((a * b + t) + t) + d with t = s * x: how the derivative of a norm ends
} asp_rowcode_form;

typedef struct asp_rowcode {
    asp_rowcode_form form;
    asp_rowop op;
    int first, second; // of a chain: ASP_CHAIN1_*, ASP_CHAIN2_*
    int n_in, in[ASP_PRIM_INPUTS], n_out, out[2];
    bool dead; // joined into another
} asp_rowcode;

typedef struct asp_rowcode_list {
    asp_arena *arena;
    ASP_VEC(asp_rowval) vals; // the description's, the constants, values of the compiler
    ASP_VEC(float) constants;
    ASP_VEC(asp_rowcode) codes;
} asp_rowcode_list;

// Reads a sound description; with join, pairs of ops become joined primitives.
void asp_rowcode_load(asp_rowcode_list *l, const asp_rowdesc *d, bool join);
// Is operand v read element by element (form V) where the result has this kind?
bool asp_rowcode_is_v(const asp_rowcode_list *l, int v, asp_rowkind result);
