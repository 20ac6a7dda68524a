// Element-by-element ops; operands broadcast from the right.  Neighbours: ir/op.def (rows),
// kern/ref/pointwise.c, pass/fuse.c (who groups them into row programs).  SPDX-License-Identifier:
// Apache-2.0
#include "op/op_int.h"

// The shape both operands broadcast to: equal sizes, or a plain 1.
static asp_status broadcast(asp_infer *in, asp_type *out)
{
    const asp_type *a = &in->in[0], *b = &in->in[1];
    if (a->dtype != b->dtype)
        return asp_infer_fail(in, ASP_ERR_SHAPE,
                              "operands are %s and %s; dtypes must agree (cast one)",
                              asp_type_str(in->g, a), asp_type_str(in->g, b));
    asp_size one = asp_size_num(in->g, 1);
    *out = a->rank >= b->rank ? *a : *b;
    for (uint32_t i = 1; i <= out->rank; i++) {
        asp_size x = i <= a->rank ? a->dim[a->rank - i] : one,
                 y = i <= b->rank ? b->dim[b->rank - i] : one;
        if (!asp_size_equal(x, y) && !asp_size_equal(x, one) && !asp_size_equal(y, one))
            return asp_infer_fail(in, ASP_ERR_SHAPE, "%s and %s do not broadcast",
                                  asp_type_str(in->g, a), asp_type_str(in->g, b));
        out->dim[out->rank - i] = asp_size_equal(x, one) ? y : x;
    }
    return ASP_OK;
}

asp_status asp_infer_binary(asp_infer *in)
{
    asp_type out;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(broadcast(in, &out));
    return asp_result(in, &out);
}

asp_status asp_infer_unary(asp_infer *in)
{
    ASP_TRY(asp_want_float(in, 0));
    return asp_result_like(in, 0);
}

#define UNARY(name) \
    asp_status asp_##name##_infer(asp_infer *in) { return asp_infer_unary(in); }
#define BINARY(name) \
    asp_status asp_##name##_infer(asp_infer *in) { return asp_infer_binary(in); }
UNARY(add_scalar)
UNARY(mul_scalar)
UNARY(neg)
UNARY(exp)
UNARY(rsqrt)
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)

asp_status asp_infer_grad(asp_infer *in)
{
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_same_type(in, 0, 1));
    return asp_result_like(in, 0);
}

asp_status asp_cast_infer(asp_infer *in)
{
    const asp_cast_attr *a = in->attr;
    asp_type out = in->in[0];
    out.dtype = a->to;
    return asp_result(in, &out);
}

void asp_cast_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_dtype from = asp_val_type(b->g, asp_in(b, n, 0))->dtype;
    if (asp_dtypes[from].is_float)
        out_in[0] = ASP_B1(b, cast, (&(asp_cast_attr){.to = from}), cotangent[0]);
}

void asp_add_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    for (uint32_t i = 0; i < 2; i++) out_in[i] = asp_build_sum_to_operand(b, n, i, cotangent[0]);
}

void asp_sub_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = asp_build_sum_to_operand(b, n, 0, cotangent[0]);
    out_in[1] = asp_build_sum_to_operand(b, n, 1, ASP_B1(b, neg, NULL, cotangent[0]));
}

void asp_mul_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    for (uint32_t i = 0; i < 2; i++)
        out_in[i] = asp_build_sum_to_operand(
            b, n, i, ASP_B2(b, mul, NULL, cotangent[0], asp_in(b, n, 1 - i)));
}

// d(x/y) = dx / y - (x/y) dy / y
void asp_div_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_val over = ASP_B2(b, div, NULL, cotangent[0], asp_in(b, n, 1));
    out_in[0] = asp_build_sum_to_operand(b, n, 0, over);
    out_in[1] = asp_build_sum_to_operand(
        b, n, 1, ASP_B1(b, neg, NULL, ASP_B2(b, mul, NULL, over, asp_out(b, n, 0))));
}

void asp_add_scalar_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    (void)b;
    (void)n;
    out_in[0] = cotangent[0];
}

void asp_mul_scalar_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = asp_build_scaled(b, cotangent[0], ASP_ATTR(b, n, scalar)->value);
}

void asp_neg_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    (void)n;
    out_in[0] = ASP_B1(b, neg, NULL, cotangent[0]);
}

void asp_exp_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B2(b, mul, NULL, cotangent[0], asp_out(b, n, 0));
}

// y = x^-1/2: dy/dx = -y^3 / 2
void asp_rsqrt_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_val y = asp_out(b, n, 0);
    asp_val cube = ASP_B2(b, mul, NULL, ASP_B2(b, mul, NULL, y, y), y);
    out_in[0] = ASP_B2(b, mul, NULL, cotangent[0], asp_build_scaled(b, cube, -0.5));
}
