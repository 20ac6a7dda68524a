// What attention takes beside q, k and v, and where it stands among the operands.  Neighbours:
// ir/attr.def (row sdpa), mask.h (predicates), kern/attend.h (one call of a kernel), pass/masks.c.
// SPDX-License-Identifier: Apache-2.0
//
//   mask     predicate of global positions (mask.h), beside causal (k <= q): both must hold
//   empty    a query that may see no key gives "zero" (and no gradients), "mean" (of v over all
//   keys)
//            or "nan"; no score has part in these
//   softcap  c > 0: scores become c tanh(score / c), before bias and slopes are added
//   bias     an operand: float, added to the scores, or bool, false hides; (1|B, 1|N, 1|Sq, 1|Sk)
//   or its last
//            dims.  What it hides with less than ASP_HIDDEN_BIAS is seen, all alike, by a query
//            that sees nothing else
//   sinks    an operand (N): one more score a head, of a key without value
//   alibi    "relative" or "distance", an operand (N) of slopes: adds slope (k - q), or -slope |q -
//   k| dropout  p > 0: probabilities are dropped after the softmax; site: which stream of random
//   numbers
#pragma once

#include "ir/ir.h"
#include "op/mask.h"

#define ASP_HIDDEN_BIAS (-1e30)

// Indices of operands; 0 where there is none.
typedef struct asp_sdpa_parts {
    uint32_t lookup[ASP_MASK_MAX_LOOKUPS];
    uint32_t bias, sinks, slopes;
    uint32_t n_in; // all operands
} asp_sdpa_parts;

// first: behind q, k, v (sdpa: 3) or q, k, v, out, lse, dout (its derivatives: 6).
asp_sdpa_parts asp_sdpa_parts_of(const asp_sdpa_attr *a, const asp_mask *m, uint32_t first);

// For derivatives: fails, naming the attention, whose log-sum-exp the loss depends on.
struct asp_builder;
void asp_sdpa_refuse_lse(struct asp_builder *b, asp_node n);

// Plain attention: every other field at its default.
static inline asp_sdpa_attr asp_sdpa_attr_of(double scale, bool causal)
{
    asp_sdpa_attr a = *(const asp_sdpa_attr *)asp_ops[ASP_OP_sdpa].attr_default;
    a.scale = scale;
    a.causal = causal;
    return a;
}
