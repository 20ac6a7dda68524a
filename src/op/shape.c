// Ops that move or sum elements: view, permute, expand, sum, repeat, slices.  Neighbours: ir/op.def
// (rows), kern/ref/shape.c. SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

static asp_type declared_shape(asp_dtype dtype, const asp_view_attr *a)
{
    asp_type t = {.dtype = dtype, .rank = a->shape.n};
    memcpy(t.dim, a->shape.at, a->shape.n * sizeof a->shape.at[0]);
    return t;
}

asp_status asp_view_infer(asp_infer *in)
{
    asp_type out = declared_shape(in->in[0].dtype, in->attr);
    if (!asp_size_equal(asp_type_count(in->g, &in->in[0]), asp_type_count(in->g, &out)))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "%s has not as many elements as %s",
                              asp_type_str(in->g, &in->in[0]), asp_type_str(in->g, &out));
    return asp_result(in, &out);
}

void asp_view_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_type shape = *asp_val_type(b->g, asp_in(b, n, 0));
    out_in[0] = asp_build_view(b, cotangent[0], &shape);
}

asp_status asp_permute_infer(asp_infer *in)
{
    const asp_permute_attr *a = in->attr;
    asp_type out = in->in[0];
    unsigned seen = 0;
    if (a->perm.n != out.rank)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "perm names %u dimensions of %s", a->perm.n,
                              asp_type_str(in->g, &out));
    for (uint32_t d = 0; d < out.rank; d++) {
        ASP_TRY(asp_want_dim_attr(in, "perm", a->perm.at[d], out.rank));
        seen |= 1u << a->perm.at[d];
        out.dim[d] = in->in[0].dim[a->perm.at[d]];
    }
    if (seen != (1u << out.rank) - 1)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "perm names a dimension twice");
    return asp_result(in, &out);
}

void asp_permute_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_permute_attr *a = ASP_ATTR(b, n, permute);
    int64_t inverse[ASP_MAX_RANK];
    for (uint32_t d = 0; d < a->perm.n; d++) inverse[a->perm.at[d]] = d;
    out_in[0] = asp_build_permute(b, cotangent[0], a->perm.n, inverse);
}

asp_status asp_expand_infer(asp_infer *in)
{
    const asp_type *x = &in->in[0];
    asp_type out = declared_shape(x->dtype, in->attr);
    asp_size one = asp_size_num(in->g, 1);
    bool ok = out.rank >= x->rank;
    for (uint32_t i = 1; ok && i <= x->rank; i++) {
        asp_size d = x->dim[x->rank - i];
        ok = asp_size_equal(d, one) || asp_size_equal(d, out.dim[out.rank - i]);
    }
    if (!ok)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "%s does not broadcast to %s",
                              asp_type_str(in->g, x), asp_type_str(in->g, &out));
    return asp_result(in, &out);
}

void asp_expand_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_type shape = *asp_val_type(b->g, asp_in(b, n, 0));
    out_in[0] = asp_build_sum_to(b, cotangent[0], &shape);
}

// The shape with the summed dims as 1.
static asp_type kept(asp_graph *g, const asp_type *x, const asp_sum_attr *a)
{
    asp_type t = *x;
    for (uint32_t i = 0; i < a->dims.n; i++) t.dim[a->dims.at[i]] = asp_size_num(g, 1);
    return t;
}

asp_status asp_sum_infer(asp_infer *in)
{
    const asp_sum_attr *a = in->attr;
    const asp_type *x = &in->in[0];
    bool gone[ASP_MAX_RANK] = {false};
    ASP_TRY(asp_want_float(in, 0));
    for (uint32_t i = 0; i < a->dims.n; i++) {
        ASP_TRY(asp_want_dim_attr(in, "dims", a->dims.at[i], x->rank));
        if (gone[a->dims.at[i]])
            return asp_infer_fail(in, ASP_ERR_SHAPE, "dims names a dimension twice");
        gone[a->dims.at[i]] = true;
    }
    if (a->keep) {
        asp_type out = kept(in->g, x, a);
        return asp_result(in, &out);
    }
    asp_type out = {.dtype = x->dtype};
    for (uint32_t d = 0; d < x->rank; d++)
        if (!gone[d]) out.dim[out.rank++] = x->dim[d];
    return asp_result(in, &out);
}

void asp_sum_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_type x = *asp_val_type(b->g, asp_in(b, n, 0));
    asp_type with_ones = kept(b->g, &x, ASP_ATTR(b, n, sum));
    out_in[0] = asp_build_expand_to(b, asp_build_view(b, cotangent[0], &with_ones), &x);
}

static asp_status want_repeat(const asp_infer *in)
{
    const asp_repeat_attr *a = in->attr;
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, in->in[0].rank));
    if (a->times >= 1) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_SHAPE, "times = %lld is not positive", (long long)a->times);
}

asp_status asp_repeat_infer(asp_infer *in)
{
    const asp_repeat_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(want_repeat(in));
    out.dim[a->dim] = asp_size_mul(in->g, out.dim[a->dim], asp_size_num(in->g, a->times));
    return asp_result(in, &out);
}

void asp_repeat_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B1(b, sum_groups, ASP_ATTR(b, n, repeat), cotangent[0]);
}

asp_status asp_sum_groups_infer(asp_infer *in)
{
    const asp_repeat_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(want_repeat(in));
    ASP_TRY(asp_size_div(in->g, out.dim[a->dim], asp_size_num(in->g, a->times), &out.dim[a->dim]));
    return asp_result(in, &out);
}

void asp_sum_groups_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B1(b, repeat, ASP_ATTR(b, n, repeat), cotangent[0]);
}

asp_status asp_shard_slice_infer(asp_infer *in)
{
    const asp_slice_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, out.rank));
    if (a->ranks < 1)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "ranks = %lld is not positive",
                              (long long)a->ranks);
    ASP_TRY(asp_size_div(in->g, out.dim[a->dim], asp_size_num(in->g, a->ranks), &out.dim[a->dim]));
    return asp_result(in, &out);
}
