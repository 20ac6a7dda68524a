// Shared by masks.c, masks_read.c and masks_check.c: one attention while its mask is looked at.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/attention.h"
#include "pass/masks.h"

#define ASP_NO_CONDITION UINT32_MAX

typedef struct asp_masking {
    asp_pass *px;
    asp_folder *f;
    asp_graph *g;
    asp_node node;
    asp_sdpa_attr attr;
    asp_sdpa_parts parts;
    asp_type operand; // type of the mask
    asp_mask mask;
    asp_val lookup[ASP_MASK_MAX_LOOKUPS]; // values as they were found, then as operands
    asp_size lookup_dim[ASP_MASK_MAX_LOOKUPS][2];
    uint32_t n_lookups;
    const asp_body *dense; // a condition that stays an operand, or NULL
    asp_val slopes;        // or none
    double slope_sign;
    double hides; // what is added where the mask hides; -infinity for a bool mask
    bool adds;
    // Of the attention as it was.
    asp_val value;
    const char *given;
    bool causal;
    asp_size n_q, n_k;
} asp_masking;

// masks_read.c: folds the operand; fills mask, look-ups and what else stays of it.  false: it has
// no such form, and stays as it was written.
bool asp_masking_read(asp_masking *m, asp_val operand);
// The value whose token vector x looks up, alone and once, or NULL.
const asp_body *asp_body_only_look(const asp_folder *f, const asp_body *x);

// masks_check.c: predicate against arithmetic on small random inputs.  *out_tried: whether the
// arithmetic could be run at all.
asp_status asp_masking_check(asp_masking *m, asp_val operand, bool *out_tried);
