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

// What sums and statistics of values of this dtype are: bf16 has too few bits to add up in.
static inline asp_dtype asp_sum_dtype(asp_dtype d) { return d == ASP_BF16 ? ASP_F32 : d; }

// What families share.  pointwise.c: one float operand; two that broadcast; a value and a cotangent
// of one type.
asp_infer_fn asp_infer_unary, asp_infer_binary, asp_infer_grad;
// The type that operands i and j broadcast to; their dtypes agree.
asp_status asp_infer_broadcast(const asp_infer *in, uint32_t i, uint32_t j, asp_type *out);
// shape.c: operand 0 without the dims, or with 1 in their place; dims are checked.  A rule for
// that, the dims being letters of this kind; the first form reads the attributes of `sum`.
asp_status asp_infer_reduced(const asp_infer *in, const asp_ints *dims, bool keep, asp_type *out);
void asp_rule_reduced(asp_rule_builder *b, asp_letter_kind kind);
void asp_rule_reduced_dims(asp_rule_builder *b, const asp_ints *dims, bool keep,
                           asp_letter_kind kind);
asp_type asp_kept_type(asp_graph *g, const asp_type *x, const asp_ints *dims); // with 1 there
// The cotangent of operand i, summed over what broadcasting stretched.
asp_val asp_build_sum_to_operand(asp_builder *b, asp_node n, uint32_t i, asp_val d);
// A rule for operands and results of one shape: dims in the bit set are whole, the others may be
// split.
void asp_rule_same_shape(asp_rule_builder *b, unsigned whole);
