// Prototypes of the functions that op.def asks for, and short hands of the family files.  Inside
// src/op only. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/op.h"
#include "op/rule.h"

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

// The rule column: FN asks for asp_<op>_rule.  ASP_RULE_OF(name, rule, FUNCTION) expands to
// FUNCTION_FN(name) or FUNCTION_TEXT(name).
#define ASP_RULE_NONE TEXT
#define ASP_RULE_FN FN
#define ASP_RULE_RULE(text) TEXT
#define ASP_RULE_JOIN(to, which, name) to##_##which(name)
#define ASP_RULE_CALL(to, which, name) ASP_RULE_JOIN(to, which, name)
#define ASP_RULE_OF(name, rule, to) ASP_RULE_CALL(to, ASP_RULE_##rule, name)

#define DECLARE_RULE_TEXT(name)
#define DECLARE_RULE_FN(name) asp_rule_fn asp_##name##_rule;
#define OP(kind, name, min_in, max_in, attr, flags, cost, rule, doc) \
    ASP_RULE_OF(name, rule, DECLARE_RULE)
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
