// Convolution over the last dimension, and its derivatives.  Neighbours: ir/op.def (rows),
// kern/ref/conv.c, kern/conv.c (fast).
//
// groups = 0 is depthwise, a group for each channel however many channels a rank holds; with
// groups > 1 channels must be whole.  The last dimension is whole: over a split sequence a halo of
// (K - 1) dilation rows, left of them `left`, would do for stride 1.
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

static asp_status want_conv_attr(const asp_infer *in, const asp_conv_attr *a)
{
    const int64_t most = INT64_C(1) << 32;
    bool bad = a->stride < 1 || a->dilation < 1 || a->groups < 0 || a->left < 0 || a->right < 0;
    bad |= a->stride > most || a->dilation > most || a->left > most || a->right > most;
    if (!bad) return ASP_OK;
    return asp_infer_fail(
        in, ASP_ERR_INPUT,
        "stride = %lld, dilation = %lld, groups = %lld, left = %lld, right = %lld",
        (long long)a->stride, (long long)a->dilation, (long long)a->groups, (long long)a->left,
        (long long)a->right);
}

// w (O, C/groups, K) goes with x (B, C, L).
static asp_status want_weight(const asp_infer *in, const asp_conv_attr *a)
{
    const asp_type *x = &in->in[0], *w = &in->in[1];
    asp_size groups = a->groups ? asp_size_num(in->g, a->groups) : x->dim[1];
    int64_t outputs, taps;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dtype(in, 1, x->dtype));
    ASP_TRY(asp_want_rank(in, 0, 3, 3));
    ASP_TRY(asp_want_rank(in, 1, 3, 3));
    if (a->groups == 0) ASP_TRY(asp_want_same_dim(in, 0, 1, 1, 0));
    if (!asp_size_equal(asp_size_mul(in->g, groups, w->dim[1]), x->dim[1]) ||
        !asp_size_is_num(in->g, w->dim[2], &taps) ||
        (a->groups && (!asp_size_is_num(in->g, w->dim[0], &outputs) || outputs % a->groups)))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "weight %s does not go with %s in %lld groups",
                              asp_type_str(in->g, w), asp_type_str(in->g, x), (long long)a->groups);
    return ASP_OK;
}

// y[b, o, m] = sum over i, k of w[o, i, k] x[b, i, m stride + k dilation - left], 0 outside of x
asp_status asp_conv_infer(asp_infer *in)
{
    const asp_conv_attr *a = in->attr;
    int64_t taps, known;
    ASP_TRY(want_conv_attr(in, a));
    ASP_TRY(want_weight(in, a));
    ASP_CHECK(asp_size_is_num(in->g, in->in[1].dim[2], &taps));
    int64_t around, reach;
    if (asp_mul_overflows(a->dilation, taps - 1, &reach))
        return asp_infer_fail(in, ASP_ERR_LIMIT, "%lld taps are too many", (long long)taps);
    around = a->left + a->right - reach;
    asp_size m = asp_size_add(in->g, in->in[0].dim[2], asp_size_num(in->g, around));
    if (a->stride > 1) m = asp_size_ceil_div(in->g, m, asp_size_num(in->g, a->stride));
    if (asp_size_is_num(in->g, m, &known) && known < 1)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "%s is shorter than the %lld taps reach",
                              asp_type_str(in->g, &in->in[0]), (long long)taps);
    asp_type out = {.dtype = in->in[0].dtype, .rank = 3};
    out.dim[0] = in->in[0].dim[0];
    out.dim[1] = in->in[1].dim[0];
    out.dim[2] = m;
    return asp_result(in, &out);
}

static asp_conv_grad_attr grad_attr(const asp_conv_attr *a, asp_size size)
{
    return (asp_conv_grad_attr){.stride = a->stride,
                                .dilation = a->dilation,
                                .groups = a->groups,
                                .left = a->left,
                                .right = a->right,
                                .size = size};
}

void asp_conv_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_conv_attr *a = ASP_ATTR(b, n, conv);
    asp_val x = asp_in(b, n, 0), w = asp_in(b, n, 1);
    asp_conv_grad_attr dx = grad_attr(a, asp_val_type(b->g, x)->dim[2]);
    asp_conv_grad_attr dw = grad_attr(a, asp_val_type(b->g, w)->dim[2]);
    out_in[0] = ASP_B2(b, conv_input_grad, &dx, cotangent[0], w);
    out_in[1] = ASP_B2(b, conv_weight_grad, &dw, cotangent[0], x);
}

// Depthwise: bcL,c1K->bcM.  One group: bCL,oCK->boM.  Several: all channels whole.  L and M are one
// axis where they are as long.
static void conv_rule(asp_rule_builder *b)
{
    const asp_conv_attr *a = b->info->attr;
    const asp_type *x = asp_rule_type(b, 0), *w = asp_rule_type(b, 1), *y = asp_rule_result(b, 0);
    asp_rule_dim *const *in = b->rule->in, *out = b->rule->out[0];
    uint8_t batch = asp_rule_letter(b, ASP_LETTER_SPLIT, x->dim[0]);
    asp_letter_kind kind = a->groups > 1 ? ASP_LETTER_WHOLE : ASP_LETTER_SPLIT;
    uint8_t channel = asp_rule_letter(b, kind, y->dim[1]), before = channel;
    if (a->groups) before = asp_rule_letter(b, ASP_LETTER_WHOLE, x->dim[1]);
    uint8_t length = asp_rule_letter(b, ASP_LETTER_WHOLE, x->dim[2]), after = length;
    if (!asp_size_equal(x->dim[2], y->dim[2]))
        after = asp_rule_letter(b, ASP_LETTER_WHOLE, y->dim[2]);
    asp_rule_put(b, &in[0][0], batch);
    asp_rule_put(b, &out[0], batch);
    asp_rule_put(b, &in[0][1], before);
    asp_rule_put(b, &in[1][0], channel);
    asp_rule_put(b, &out[1], channel);
    if (a->groups == 1) asp_rule_put(b, &in[1][1], before);
    if (a->groups > 1) asp_rule_put(b, &in[1][1], asp_rule_letter(b, ASP_LETTER_WHOLE, w->dim[1]));
    asp_rule_put(b, &in[1][2], asp_rule_letter(b, ASP_LETTER_WHOLE, w->dim[2]));
    asp_rule_put(b, &in[0][2], length);
    asp_rule_put(b, &out[2], after);
}

void asp_conv_rule(asp_rule_builder *b) { conv_rule(b); }

// dy (B, O, M), w (O, C/groups, K) -> dx (B, C, size)
asp_status asp_conv_input_grad_infer(asp_infer *in)
{
    const asp_conv_grad_attr *a = in->attr;
    const asp_type *dy = &in->in[0], *w = &in->in[1];
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_rank(in, 0, 3, 3));
    ASP_TRY(asp_want_rank(in, 1, 3, 3));
    ASP_TRY(asp_want_same_dim(in, 0, 1, 1, 0));
    asp_size groups = a->groups ? asp_size_num(in->g, a->groups) : w->dim[0];
    asp_type out = *dy;
    out.dim[1] = asp_size_mul(in->g, groups, w->dim[1]);
    out.dim[2] = a->size;
    return asp_result(in, &out);
}

// dy (B, O, M), x (B, C, L) -> dw (O, C/groups, size)
asp_status asp_conv_weight_grad_infer(asp_infer *in)
{
    const asp_conv_grad_attr *a = in->attr;
    const asp_type *dy = &in->in[0], *x = &in->in[1];
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_rank(in, 0, 3, 3));
    ASP_TRY(asp_want_rank(in, 1, 3, 3));
    ASP_TRY(asp_want_same_dim(in, 0, 0, 1, 0));
    asp_type out = {.dtype = dy->dtype, .rank = 3, .dim = {dy->dim[1], x->dim[1], a->size}};
    asp_size groups = a->groups ? asp_size_num(in->g, a->groups) : x->dim[1];
    ASP_TRY(asp_size_div(in->g, x->dim[1], groups, &out.dim[1]));
    return asp_result(in, &out);
}

// ---- with a bias -------------------------------------------------------------------------------

asp_status asp_conv1d_infer(asp_infer *in)
{
    ASP_TRY(asp_conv_infer(in));
    if (in->n_in < 3) return ASP_OK;
    ASP_TRY(asp_want_dtype(in, 2, in->in[0].dtype));
    ASP_TRY(asp_want_rank(in, 2, 1, 1));
    return asp_want_same_dim(in, 2, 0, 1, 0);
}

void asp_conv1d_lower(asp_builder *b, asp_node n, asp_val *out)
{
    out[0] = ASP_B2(b, conv, ASP_ATTR(b, n, conv), asp_in(b, n, 0), asp_in(b, n, 1));
    if (asp_node_at(b->g, n)->n_in < 3) return;
    asp_type column = *asp_val_type(b->g, asp_in(b, n, 2));
    column.dim[column.rank++] = asp_size_num(b->g, 1);
    out[0] = ASP_B2(b, add, NULL, out[0], asp_build_view(b, asp_in(b, n, 2), &column));
}

void asp_conv1d_rule(asp_rule_builder *b)
{
    conv_rule(b);
    if (b->info->n_in == 3) asp_rule_put(b, &b->rule->in[2][0], b->rule->out[0][1].at[0]);
}
