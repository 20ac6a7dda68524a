// Normalisations.  Neighbours: ir/op.def (rows), pointwise.c and shape.c (what they lower to).
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

// y = x / sqrt(mean(x^2) + eps) * w           x (..., D)   w (D)   y (..., D)         Zhang &
// Sennrich 2019
asp_status asp_rms_norm_infer(asp_infer *in)
{
    int64_t width;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_rank(in, 0, 1, ASP_MAX_RANK));
    ASP_TRY(asp_want_rank(in, 1, 1, 1));
    ASP_TRY(asp_want_dtype(in, 1, in->in[0].dtype));
    ASP_TRY(asp_want_same_dim(in, 0, -1, 1, 0));
    if (!asp_size_is_num(in->g, in->in[1].dim[0], &width) || width < 1)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "the normalised width %s is not a positive number",
                              asp_size_str(in->g, in->in[1].dim[0]));
    return asp_result_like(in, 0);
}

void asp_rms_norm_lower(asp_builder *b, asp_node n, asp_val *out)
{
    asp_val x = asp_in(b, n, 0), w = asp_in(b, n, 1);
    int64_t width = 0, last = (int64_t)asp_val_type(b->g, x)->rank - 1;
    ASP_CHECK(asp_size_is_num(b->g, asp_val_type(b->g, w)->dim[0], &width));
    asp_sum_attr over_last = {.dims = {.n = 1, .at = {last}}, .keep = true};
    asp_scalar_attr eps = {.value = ASP_ATTR(b, n, norm)->eps};
    asp_val square_sum = ASP_B1(b, sum, &over_last, ASP_B2(b, mul, NULL, x, x));
    asp_val mean = asp_build_scaled(b, square_sum, 1.0 / (double)width);
    asp_val r = ASP_B1(b, rsqrt, NULL, ASP_B1(b, add_scalar, &eps, mean));
    out[0] = ASP_B2(b, mul, NULL, ASP_B2(b, mul, NULL, x, r), w);
}

// ---- layer_norm --------------------------------------------------------------------------------

// y = (x - mean) / sqrt(var + eps) * w + b over the last `dims` dims of x; w and b have those dims.
asp_status asp_layer_norm_infer(asp_infer *in)
{
    const asp_layer_norm_attr *a = in->attr;
    const uint32_t rank = in->in[0].rank;
    ASP_TRY(asp_want_float(in, 0));
    if (a->dims < 1 || a->dims > (int64_t)rank)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "dims = %lld, but x is %s", (long long)a->dims,
                              asp_type_str(in->g, &in->in[0]));
    for (uint32_t i = 1; i < in->n_in; i++) {
        ASP_TRY(asp_want_dtype(in, i, in->in[0].dtype));
        ASP_TRY(asp_want_rank(in, i, (uint32_t)a->dims, (uint32_t)a->dims));
        for (int d = 1; d <= (int)a->dims; d++) ASP_TRY(asp_want_same_dim(in, 0, -d, i, -d));
    }
    return asp_result_like(in, 0);
}

void asp_layer_norm_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_layer_norm_attr *a = ASP_ATTR(b, n, layer_norm);
    asp_val x = asp_in(b, n, 0);
    asp_ints dims = {.n = (uint32_t)a->dims};
    for (uint32_t i = 0; i < dims.n; i++)
        dims.at[i] = (int64_t)(asp_val_type(b->g, x)->rank - dims.n + i);
    asp_scalar_attr eps = {.value = a->eps};
    asp_val centred = ASP_B2(b, sub, NULL, x, asp_build_mean(b, x, &dims));
    asp_val var = asp_build_mean(b, ASP_B2(b, mul, NULL, centred, centred), &dims);
    asp_val r = ASP_B1(b, rsqrt, NULL, ASP_B1(b, add_scalar, &eps, var));
    out[0] = ASP_B2(b, mul, NULL, centred, r);
    uint32_t n_in = asp_node_at(b->g, n)->n_in;
    if (n_in > 1) out[0] = ASP_B2(b, mul, NULL, out[0], asp_in(b, n, 1));
    if (n_in > 2) out[0] = ASP_B2(b, add, NULL, out[0], asp_in(b, n, 2));
}

void asp_layer_norm_rule(asp_rule_builder *b)
{
    const asp_layer_norm_attr *a = b->info->attr;
    const uint32_t rank = asp_rule_type(b, 0)->rank, first = rank - (uint32_t)a->dims;
    for (uint32_t d = 0; d < rank; d++) {
        asp_letter_kind kind = d < first ? ASP_LETTER_SPLIT : ASP_LETTER_WHOLE;
        uint8_t c = asp_rule_letter(b, kind, asp_rule_type(b, 0)->dim[d]);
        asp_rule_put(b, &b->rule->in[0][d], c);
        asp_rule_put(b, &b->rule->out[0][d], c);
        for (uint32_t i = 1; d >= first && i < b->info->n_in; i++)
            asp_rule_put(b, &b->rule->in[i][d - first], c);
    }
}

// ---- group_norm, batch_norm --------------------------------------------------------------------

// Operands i .. of the channels: one number each.
static asp_status want_channels(const asp_infer *in, uint32_t first, int64_t dim)
{
    for (uint32_t i = first; i < in->n_in; i++) {
        ASP_TRY(asp_want_rank(in, i, 1, 1));
        ASP_TRY(asp_want_dtype(in, i, in->in[0].dtype));
        ASP_TRY(asp_want_same_dim(in, 0, (int)dim, i, 0));
    }
    return ASP_OK;
}

// One number a channel beside x: (C, 1, ...).
static asp_val along_dim(asp_builder *b, asp_val v, const asp_type *x, int64_t dim)
{
    if (b->status < 0) return v;
    asp_type t = {.dtype = x->dtype, .rank = x->rank - (uint32_t)dim};
    for (uint32_t d = 0; d < t.rank; d++) t.dim[d] = d ? asp_size_num(b->g, 1) : x->dim[dim];
    return asp_build_view(b, v, &t);
}

// x * w + b as far as there are such operands.
static asp_val scaled_channels(asp_builder *b, asp_node n, asp_val x, int64_t dim)
{
    if (b->status < 0) return x;
    const asp_type t = *asp_val_type(b->g, asp_in(b, n, 0));
    const uint32_t n_in = asp_node_at(b->g, n)->n_in;
    if (n_in > 1) x = ASP_B2(b, mul, NULL, x, along_dim(b, asp_in(b, n, 1), &t, dim));
    if (n_in > 2) x = ASP_B2(b, add, NULL, x, along_dim(b, asp_in(b, n, 2), &t, dim));
    return x;
}

// Batch may be split; the rest is counted whole.
static void rule_of_channels(asp_rule_builder *b, int64_t dim, bool batch)
{
    const asp_type *x = asp_rule_type(b, 0);
    for (uint32_t d = 0; d < x->rank; d++) {
        asp_letter_kind kind = batch && d == 0 ? ASP_LETTER_SPLIT : ASP_LETTER_WHOLE;
        uint8_t c = asp_rule_letter(b, kind, x->dim[d]);
        asp_rule_put(b, &b->rule->in[0][d], c);
        asp_rule_put(b, &b->rule->out[0][d], c);
        for (uint32_t i = 1; (int64_t)d == dim && i < b->info->n_in; i++)
            asp_rule_put(b, &b->rule->in[i][0], c);
        for (uint32_t i = 1; (int64_t)d == dim && i < b->info->n_out; i++)
            asp_rule_put(b, &b->rule->out[i][0], c);
    }
}

asp_status asp_group_norm_infer(asp_infer *in)
{
    const asp_group_norm_attr *a = in->attr;
    asp_size each;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_rank(in, 0, 2, ASP_MAX_RANK - 1)); // the lowering needs one more
    ASP_TRY(want_channels(in, 1, 1));
    if (a->groups < 1 ||
        !asp_size_divides(in->g, asp_size_num(in->g, a->groups), in->in[0].dim[1], &each))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "%s channels are not %lld equal groups",
                              asp_size_str(in->g, in->in[0].dim[1]), (long long)a->groups);
    return asp_result_like(in, 0);
}

void asp_group_norm_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_group_norm_attr a = *ASP_ATTR(b, n, group_norm);
    const asp_type x = *asp_val_type(b->g, asp_in(b, n, 0));
    asp_type t = {.dtype = x.dtype, .rank = x.rank + 1, .dim = {x.dim[0]}};
    asp_ints dims = {0};
    t.dim[1] = asp_size_num(b->g, a.groups);
    ASP_CHECK(asp_size_divides(b->g, t.dim[1], x.dim[1], &t.dim[2]));
    for (uint32_t d = 2; d < x.rank; d++) t.dim[d + 1] = x.dim[d];
    for (uint32_t d = 2; d < t.rank; d++) dims.at[dims.n++] = d;
    asp_scalar_attr eps = {.value = a.eps};
    asp_val v = asp_build_view(b, asp_in(b, n, 0), &t);
    asp_val centred = ASP_B2(b, sub, NULL, v, asp_build_mean(b, v, &dims));
    asp_val var = asp_build_mean(b, ASP_B2(b, mul, NULL, centred, centred), &dims);
    asp_val r = ASP_B1(b, rsqrt, NULL, ASP_B1(b, add_scalar, &eps, var));
    out[0] = asp_build_view(b, ASP_B2(b, mul, NULL, centred, r), &x);
    out[0] = scaled_channels(b, n, out[0], 1);
}

void asp_group_norm_rule(asp_rule_builder *b) { rule_of_channels(b, 1, true); }

asp_status asp_batch_norm_infer(asp_infer *in)
{
    const asp_batch_norm_attr *a = in->attr;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_rank(in, 0, 2, ASP_MAX_RANK));
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, in->in[0].rank));
    if (in->n_in % 2 == 0)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "%u operands; w and b, mean and var go together",
                              in->n_in);
    ASP_TRY(want_channels(in, 1, a->dim));
    ASP_TRY(asp_result_like(in, 0));
    asp_type channels = {.dtype = in->in[0].dtype, .rank = 1, .dim = {in->in[0].dim[a->dim]}};
    ASP_TRY(asp_result(in, &channels));
    return asp_result(in, &channels);
}

// old + momentum (new - old); new where there is no old.
static asp_val running(asp_builder *b, asp_node n, uint32_t old, asp_val now, double momentum)
{
    if (asp_node_at(b->g, n)->n_in <= old) return now;
    asp_val kept = asp_build_scaled(b, asp_in(b, n, old), 1.0 - momentum);
    return ASP_B2(b, add, NULL, kept, asp_build_scaled(b, now, momentum));
}

// Statistics of all tokens: sums that ranks share over counts of whole tensors.
void asp_batch_norm_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_batch_norm_attr a = *ASP_ATTR(b, n, batch_norm);
    const asp_type t = *asp_val_type(b->g, asp_in(b, n, 0));
    asp_type channels = {.dtype = t.dtype, .rank = 1, .dim = {t.dim[a.dim]}};
    asp_scalar_attr eps = {.value = a.eps};
    asp_sum_attr over = {.keep = true};
    for (uint32_t d = 0; d < t.rank; d++)
        if (d != a.dim) over.dims.at[over.dims.n++] = d;
    asp_val x = asp_in(b, n, 0), mean = asp_build_mean(b, x, &over.dims);
    asp_val centred = ASP_B2(b, sub, NULL, x, mean);
    asp_val squares = ASP_B1(b, sum, &over, ASP_B2(b, mul, NULL, centred, centred));
    asp_val var = asp_build_over_count(b, squares, &t, &over.dims, 0);
    asp_val unbiased = asp_build_over_count(b, squares, &t, &over.dims, 1);
    asp_val r = ASP_B1(b, rsqrt, NULL, ASP_B1(b, add_scalar, &eps, var));
    out[0] = scaled_channels(b, n, ASP_B2(b, mul, NULL, centred, r), a.dim);
    out[1] = running(b, n, 3, asp_build_view(b, mean, &channels), a.momentum);
    out[2] = running(b, n, 4, asp_build_view(b, unbiased, &channels), a.momentum);
}

void asp_batch_norm_rule(asp_rule_builder *b)
{
    rule_of_channels(b, ((const asp_batch_norm_attr *)b->info->attr)->dim, false);
}
