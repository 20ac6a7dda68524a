// Normalisations over the last axis.  Neighbours: ir/op.def (rows), pointwise.c and shape.c (what
// they lower to). SPDX-License-Identifier: Apache-2.0
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
