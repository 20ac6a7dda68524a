// Element-by-element ops; operands broadcast from the right.  Neighbours: ir/op.def (rows),
// kern/ref/pointwise.c, pass/fuse.c (who groups them into row programs).  SPDX-License-Identifier:
// Apache-2.0
#include "op/op_int.h"

#include <math.h>

// Equal sizes, or a plain 1.
asp_status asp_infer_broadcast(const asp_infer *in, uint32_t i, uint32_t j, asp_type *out)
{
    const asp_type *a = &in->in[i], *b = &in->in[j];
    if (a->dtype != b->dtype)
        return asp_infer_fail(in, ASP_ERR_SHAPE,
                              "operands are %s and %s; dtypes must agree (cast one)",
                              asp_type_str(in->g, a), asp_type_str(in->g, b));
    asp_size one = asp_size_num(in->g, 1);
    *out = a->rank >= b->rank ? *a : *b;
    for (uint32_t k = 1; k <= out->rank; k++) {
        asp_size x = k <= a->rank ? a->dim[a->rank - k] : one,
                 y = k <= b->rank ? b->dim[b->rank - k] : one;
        if (!asp_size_equal(x, y) && !asp_size_equal(x, one) && !asp_size_equal(y, one))
            return asp_infer_fail(in, ASP_ERR_SHAPE, "%s and %s do not broadcast",
                                  asp_type_str(in->g, a), asp_type_str(in->g, b));
        out->dim[out->rank - k] = asp_size_equal(x, one) ? y : x;
    }
    return ASP_OK;
}

static asp_status want_number(const asp_infer *in)
{
    return in->in[0].dtype == ASP_I64 ? ASP_OK : asp_want_float(in, 0);
}

// Of numbers: integers too, which have no derivative.
static asp_status infer_binary_number(asp_infer *in)
{
    asp_type out;
    ASP_TRY(want_number(in));
    ASP_TRY(asp_infer_broadcast(in, 0, 1, &out));
    return asp_result(in, &out);
}

static asp_status infer_unary_number(asp_infer *in)
{
    ASP_TRY(want_number(in));
    return asp_result_like(in, 0);
}

asp_status asp_infer_binary(asp_infer *in)
{
    ASP_TRY(asp_want_float(in, 0));
    return infer_binary_number(in);
}

asp_status asp_infer_unary(asp_infer *in)
{
    ASP_TRY(asp_want_float(in, 0));
    return asp_result_like(in, 0);
}

#define OF_FLOAT(name) \
    asp_status asp_##name##_infer(asp_infer *in) { return asp_infer_unary(in); }
#define OF_NUMBER(name) \
    asp_status asp_##name##_infer(asp_infer *in) { return infer_unary_number(in); }
#define OF_NUMBERS(name) \
    asp_status asp_##name##_infer(asp_infer *in) { return infer_binary_number(in); }
OF_FLOAT(exp)
OF_FLOAT(rsqrt)
OF_FLOAT(sqrt)
OF_FLOAT(pow)
OF_FLOAT(log)
OF_FLOAT(log1p)
OF_FLOAT(sin)
OF_FLOAT(cos)
OF_FLOAT(erf)
OF_NUMBER(neg)
OF_NUMBER(abs)
OF_NUMBER(sign)
OF_NUMBER(clamp)
OF_NUMBERS(add)
OF_NUMBERS(sub)
OF_NUMBERS(mul)
OF_NUMBERS(floor_divide)
OF_NUMBERS(remainder)
OF_NUMBERS(minimum)
OF_NUMBERS(maximum)

asp_status asp_div_infer(asp_infer *in) { return asp_infer_binary(in); }
asp_status asp_clamp_grad_infer(asp_infer *in) { return asp_infer_grad(in); }

// A number beside integers is one itself.
static asp_status infer_scalar(asp_infer *in)
{
    const double value = ((const asp_scalar_attr *)in->attr)->value;
    bool whole = fabs(value) <= 9007199254740992.0 && value == floor(value); // 2^53: exact
    if (in->in[0].dtype == ASP_I64 && !whole)
        return asp_infer_fail(in, ASP_ERR_INPUT, "value = %g beside i64 is not a whole number",
                              value);
    return infer_unary_number(in);
}

asp_status asp_add_scalar_infer(asp_infer *in) { return infer_scalar(in); }
asp_status asp_mul_scalar_infer(asp_infer *in) { return infer_scalar(in); }

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
    out_in[1] = ASP_B1(b, neg, NULL, asp_build_sum_to_operand(b, n, 1, cotangent[0]));
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

// a - floor(a / b) b, and the floor is constant
void asp_remainder_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_val times = ASP_B2(b, floor_divide, NULL, asp_in(b, n, 0), asp_in(b, n, 1));
    asp_val d = ASP_B1(b, neg, NULL, ASP_B2(b, mul, NULL, cotangent[0], times));
    out_in[0] = asp_build_sum_to_operand(b, n, 0, cotangent[0]);
    out_in[1] = asp_build_sum_to_operand(b, n, 1, d);
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

// ---- functions of one number -------------------------------------------------------------------

void asp_abs_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B2(b, mul, NULL, cotangent[0], ASP_B1(b, sign, NULL, asp_in(b, n, 0)));
}

// A derivative that is 0 is said to be: one that is missing is refused.
static asp_val no_change(asp_builder *b, asp_node n)
{
    const asp_type type = *asp_val_type(b->g, asp_in(b, n, 0));
    return asp_build_constant(b, 0, &type);
}

// Constant but for its steps.
void asp_sign_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    (void)cotangent;
    out_in[0] = no_change(b, n);
}

void asp_sqrt_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B2(b, div, NULL, asp_build_scaled(b, cotangent[0], 0.5), asp_out(b, n, 0));
}

// x^0 is 1 everywhere.
void asp_pow_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const double value = ASP_ATTR(b, n, scalar)->value;
    asp_val x = asp_in(b, n, 0);
    if (value == 0.0) {
        out_in[0] = no_change(b, n);
        return;
    }
    asp_scalar_attr less = {.value = value - 1.0};
    asp_val power = value == 2.0 ? x : ASP_B1(b, pow, &less, x);
    out_in[0] = ASP_B2(b, mul, NULL, cotangent[0], asp_build_scaled(b, power, value));
}

void asp_log_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B2(b, div, NULL, cotangent[0], asp_in(b, n, 0));
}

void asp_log1p_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_scalar_attr one = {.value = 1.0};
    asp_val x = ASP_B1(b, add_scalar, &one, asp_in(b, n, 0));
    out_in[0] = ASP_B2(b, div, NULL, cotangent[0], x);
}

void asp_sin_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B2(b, mul, NULL, cotangent[0], ASP_B1(b, cos, NULL, asp_in(b, n, 0)));
}

void asp_cos_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_val sine = ASP_B1(b, sin, NULL, asp_in(b, n, 0));
    out_in[0] = ASP_B1(b, neg, NULL, ASP_B2(b, mul, NULL, cotangent[0], sine));
}

// 2 / sqrt(pi) e^(-x^2)
void asp_erf_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_val x = asp_in(b, n, 0);
    asp_val e = ASP_B1(b, exp, NULL, ASP_B1(b, neg, NULL, ASP_B2(b, mul, NULL, x, x)));
    out_in[0] = ASP_B2(b, mul, NULL, cotangent[0], asp_build_scaled(b, e, 1.12837916709551257390));
}

void asp_clamp_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B2(b, clamp_grad, ASP_ATTR(b, n, clamp), asp_in(b, n, 0), cotangent[0]);
}

// ---- the smaller, the larger -------------------------------------------------------------------

// The operand that was taken gets all, equal ones half each.
static void vjp_taken(asp_builder *b, asp_node n, asp_op loses, asp_val dy, asp_val *out_in)
{
    asp_type number = {.dtype = asp_val_type(b->g, dy)->dtype};
    asp_val zero = asp_build_constant(b, 0, &number), x[] = {asp_in(b, n, 0), asp_in(b, n, 1)};
    asp_val same = asp_build(b, ASP_OP_eq, NULL, 2, x);
    asp_val share = ASP_B3(b, where, NULL, same, asp_build_scaled(b, dy, 0.5), dy);
    for (uint32_t i = 0; i < 2; i++) {
        asp_val lost = asp_build(b, loses, NULL, 2, (asp_val[]){x[i], x[1 - i]});
        out_in[i] = asp_build_sum_to_operand(b, n, i, ASP_B3(b, where, NULL, lost, zero, share));
    }
}

void asp_minimum_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    vjp_taken(b, n, ASP_OP_gt, cotangent[0], out_in);
}

void asp_maximum_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    vjp_taken(b, n, ASP_OP_lt, cotangent[0], out_in);
}
