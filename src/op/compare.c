// Comparisons, bools and what chooses by them.  Neighbours: ir/op.def (rows), pointwise.c (how
// operands broadcast), kern/ref/compare.c.  SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

static asp_status infer_compare(asp_infer *in, bool bools)
{
    const asp_dtype t = in->in[0].dtype;
    asp_type out;
    if (!asp_dtypes[t].is_float && t != ASP_I64 && !(bools && t == ASP_BOOL))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "operand 0 is %s; numbers are compared",
                              asp_type_str(in->g, &in->in[0]));
    ASP_TRY(asp_infer_broadcast(in, 0, 1, &out));
    out.dtype = ASP_BOOL;
    return asp_result(in, &out);
}

asp_status asp_eq_infer(asp_infer *in) { return infer_compare(in, true); }
asp_status asp_ne_infer(asp_infer *in) { return infer_compare(in, true); }
asp_status asp_lt_infer(asp_infer *in) { return infer_compare(in, false); }
asp_status asp_le_infer(asp_infer *in) { return infer_compare(in, false); }
asp_status asp_gt_infer(asp_infer *in) { return infer_compare(in, false); }
asp_status asp_ge_infer(asp_infer *in) { return infer_compare(in, false); }

static asp_status infer_logical(asp_infer *in)
{
    asp_type out = in->in[0];
    for (uint32_t i = 0; i < in->n_in; i++) ASP_TRY(asp_want_dtype(in, i, ASP_BOOL));
    if (in->n_in == 2) ASP_TRY(asp_infer_broadcast(in, 0, 1, &out));
    return asp_result(in, &out);
}

asp_status asp_logical_and_infer(asp_infer *in) { return infer_logical(in); }
asp_status asp_logical_or_infer(asp_infer *in) { return infer_logical(in); }
asp_status asp_logical_not_infer(asp_infer *in) { return infer_logical(in); }

// condition ? a : b, all three broadcast.
asp_status asp_where_infer(asp_infer *in)
{
    asp_type both;
    ASP_TRY(asp_want_dtype(in, 0, ASP_BOOL));
    ASP_TRY(asp_infer_broadcast(in, 1, 2, &both));
    asp_infer with = *in;
    with.in[1] = both;
    with.in[0].dtype = both.dtype;
    ASP_TRY(asp_infer_broadcast(&with, 0, 1, &both));
    return asp_result(in, &both);
}

void asp_where_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_type number = {.dtype = asp_val_type(b->g, asp_out(b, n, 0))->dtype};
    asp_val c = asp_in(b, n, 0), zero = asp_build_constant(b, 0, &number);
    out_in[1] = asp_build_sum_to_operand(b, n, 1, ASP_B3(b, where, NULL, c, cotangent[0], zero));
    out_in[2] = asp_build_sum_to_operand(b, n, 2, ASP_B3(b, where, NULL, c, zero, cotangent[0]));
}
