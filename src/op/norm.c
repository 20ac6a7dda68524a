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
