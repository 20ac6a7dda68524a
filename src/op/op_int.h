// Prototypes of the functions that op.def asks for, and short hands of the family files.  Inside
// src/op only. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/op.h"

#define DECLARE_MODULE(name)         \
    asp_infer_fn asp_##name##_infer; \
    asp_lower_fn asp_##name##_lower;
#define DECLARE_PRIMITIVE(name)      \
    asp_infer_fn asp_##name##_infer; \
    asp_vjp_fn asp_##name##_vjp;
#define DECLARE_TERMINAL(name) asp_infer_fn asp_##name##_infer;
#define OP(kind, name, min_in, max_in, attr, flags, cost, rule, doc) DECLARE_##kind(name)
#include "ir/op.def"
#undef OP

// Operand i and result i of node n.
static inline asp_val asp_in(const asp_builder *b, asp_node n, uint32_t i)
{
    return asp_node_at(b->g, n)->in[i];
}
static inline asp_val asp_out(const asp_builder *b, asp_node n, uint32_t i)
{
    return asp_node_result(b->g, n, i);
}
#define ASP_ATTR(b, n, row) ((const asp_##row##_attr *)asp_node_at((b)->g, n)->attr)
