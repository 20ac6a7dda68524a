// What each op means: result types, derivative, lowering.  One section of one file per family; the
// table of functions is op/table.c.  Neighbours: ir/op.def (rows), kern/ref/ (how they run), pass/
// (who asks).  SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

// ---- inference ---------------------------------------------------------------------------------

// One op being typed: operands in, result types out.
typedef struct asp_infer {
    asp_graph *g;
    asp_op op;
    const void *attr; // the op's attribute struct
    const char *loc;
    uint32_t n_in;
    asp_type in[ASP_MAX_OPERANDS];
    uint32_t n_out;
    asp_type out[ASP_MAX_OPERANDS];
} asp_infer;

// "rms_norm (layers.3.input): " before the text.  Returns code.
asp_status asp_infer_fail(const asp_infer *in, asp_status code, const char *fmt, ...)
    ASP_PRINTF(3, 4);
asp_status asp_want_rank(const asp_infer *in, uint32_t operand, uint32_t min, uint32_t max);
asp_status asp_want_dtype(const asp_infer *in, uint32_t operand, asp_dtype dtype);
asp_status asp_want_float(const asp_infer *in, uint32_t operand);
// Dim d of operand a and dim e of operand b are the same size; negative dims count from the end.
asp_status asp_want_same_dim(const asp_infer *in, uint32_t a, int d, uint32_t b, int e);
asp_status asp_want_same_type(const asp_infer *in, uint32_t a, uint32_t b);
asp_status asp_want_dim_attr(const asp_infer *in, const char *what, int64_t dim,
                             uint32_t rank);                // 0 <= dim < rank
asp_status asp_result(asp_infer *in, const asp_type *type); // appends a result
asp_status asp_result_like(asp_infer *in, uint32_t operand);

// ---- building ----------------------------------------------------------------------------------

// Inserts typed nodes.  The first failure is kept in status and later calls return the none value,
// so that a chain of calls needs one check at its end.
typedef struct asp_builder {
    asp_graph *g;
    asp_node before; // where: none = at the end
    const char *loc; // given to new nodes
    asp_status status;
} asp_builder;

// First result of a new node; asp_build_result(b, v, 1) is its second.  attr NULL = defaults.
asp_val asp_build(asp_builder *b, asp_op op, const void *attr, uint32_t n_in, const asp_val *in);
// For ASP_DECLARED ops: input, param, constant, iota.
asp_val asp_build_declared(asp_builder *b, asp_op op, const void *attr, const asp_type *type);
asp_val asp_build_result(const asp_builder *b, asp_val first, uint32_t i);
#define ASP_B1(b, name, attr, x) asp_build(b, ASP_OP_##name, attr, 1, (const asp_val[]){x})
#define ASP_B2(b, name, attr, x, y) asp_build(b, ASP_OP_##name, attr, 2, (const asp_val[]){x, y})
#define ASP_B3(b, name, attr, x, y, z) \
    asp_build(b, ASP_OP_##name, attr, 3, (const asp_val[]){x, y, z})

asp_val asp_build_scaled(asp_builder *b, asp_val x, double by); // x * by
asp_val asp_build_view(asp_builder *b, asp_val x,
                       const asp_type *like); // x in like's shape; x itself when equal
asp_val asp_build_sum_to(asp_builder *b, asp_val x,
                         const asp_type *shape); // undoes a broadcast from shape
asp_val asp_build_expand_to(asp_builder *b, asp_val x,
                            const asp_type *shape); // x itself when equal
asp_val asp_build_permute(asp_builder *b, asp_val x, uint32_t n, const int64_t *perm);
// The mean over dims, which stay as size 1.
asp_val asp_build_mean(asp_builder *b, asp_val x, const asp_ints *dims);
// x / (the product of the sizes of dims of *shape, minus less): global sizes when called before the
// graph is split.
asp_val asp_build_over_count(asp_builder *b, asp_val x, const asp_type *shape, const asp_ints *dims,
                             int64_t less);
asp_val asp_build_constant(asp_builder *b, double value, const asp_type *type);

// ---- what an op offers -------------------------------------------------------------------------

typedef asp_status asp_infer_fn(asp_infer *in);
// Reverse-mode derivative of node n (Griewank & Walther, Evaluating Derivatives, ch. 3): given the
// cotangents of its results (none where nothing depends on one), builds the cotangents of its
// operands into out_in; leaves none where there is none.
typedef void asp_vjp_fn(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in);
// The same results from simpler ops: out[i] replaces result i.
typedef void asp_lower_fn(asp_builder *b, asp_node n, asp_val *out);

typedef struct asp_op_fns {
    asp_infer_fn *infer;
    asp_vjp_fn *vjp;     // PRIMITIVE only
    asp_lower_fn *lower; // MODULE only
} asp_op_fns;
extern const asp_op_fns asp_op_table[]; // ASP_OP_COUNT rows

// Re-infers every node and compares with the types written down; messages name the node.  With
// asp_graph_verify this is the whole verifier.
asp_status asp_graph_typecheck(asp_graph *g);
