// Softmax and its logarithm along any dimension.  Neighbours: ir/op.def (rows),
// kern/ref/softmax.c, kern/softmax_isa.c (fast along the last dim).
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

static asp_status infer_along_dim(asp_infer *in)
{
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dim_attr(in, "dim", ((const asp_dim_attr *)in->attr)->dim, in->in[0].rank));
    if (in->n_in == 2) ASP_TRY(asp_want_same_type(in, 0, 1));
    return asp_result_like(in, 0);
}

asp_status asp_softmax_infer(asp_infer *in) { return infer_along_dim(in); }
asp_status asp_softmax_grad_infer(asp_infer *in) { return infer_along_dim(in); }
asp_status asp_log_softmax_infer(asp_infer *in) { return infer_along_dim(in); }
asp_status asp_log_softmax_grad_infer(asp_infer *in) { return infer_along_dim(in); }

void asp_softmax_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B2(b, softmax_grad, ASP_ATTR(b, n, dim), asp_out(b, n, 0), cotangent[0]);
}

void asp_log_softmax_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B2(b, log_softmax_grad, ASP_ATTR(b, n, dim), asp_out(b, n, 0), cotangent[0]);
}

static void rule_along_dim(asp_rule_builder *b)
{
    const int64_t dim = ((const asp_dim_attr *)b->info->attr)->dim;
    asp_rule_same_shape(b, 1u << dim);
}

void asp_softmax_rule(asp_rule_builder *b) { rule_along_dim(b); }
void asp_log_softmax_rule(asp_rule_builder *b) { rule_along_dim(b); }
