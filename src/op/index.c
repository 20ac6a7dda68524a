// Ops that take elements at places that data names, their transposes, and what makes such places.
// Neighbours: ir/op.def (rows), kern/ref/index.c, kern/index.c (fast), op/linear.c (embedding).
//
// Each place is looked up by itself, so the dims of ids may be split; what is looked up in must be
// whole.  Sums by ids add up over ranks.  An id outside of its range fails the step.
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

// Operands a and b have the same rank and sizes but for dim.
static asp_status want_same_but(const asp_infer *in, uint32_t a, uint32_t b, int64_t dim)
{
    const uint32_t rank = in->in[a].rank;
    ASP_TRY(asp_want_dim_attr(in, "dim", dim, rank));
    ASP_TRY(asp_want_rank(in, b, rank, rank));
    for (int d = 0; d < (int)rank; d++)
        if (d != dim) ASP_TRY(asp_want_same_dim(in, a, d, b, d));
    return ASP_OK;
}

// ---- gather, scatter ---------------------------------------------------------------------------

// y[.., i, ..] = x[.., ids[.., i, ..], ..]         x (.., n, ..)   ids, y (.., m, ..)
asp_status asp_gather_infer(asp_infer *in)
{
    const asp_dim_attr *a = in->attr;
    ASP_TRY(asp_want_dtype(in, 1, ASP_I64));
    ASP_TRY(want_same_but(in, 0, 1, a->dim));
    asp_type out = in->in[1];
    out.dtype = in->in[0].dtype;
    return asp_result(in, &out);
}

void asp_gather_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const int64_t dim = ASP_ATTR(b, n, dim)->dim;
    asp_index_add_attr a = {.dim = dim, .size = asp_val_type(b->g, asp_in(b, n, 0))->dim[dim]};
    out_in[0] = ASP_B2(b, scatter_add, &a, asp_in(b, n, 1), cotangent[0]);
}

void asp_gather_rule(asp_rule_builder *b)
{
    const int64_t dim = ((const asp_dim_attr *)b->info->attr)->dim;
    const asp_type *x = asp_rule_type(b, 0), *ids = asp_rule_type(b, 1);
    for (uint32_t d = 0; d < x->rank; d++) {
        uint8_t c = asp_rule_letter(b, ASP_LETTER_SPLIT, ids->dim[d]);
        asp_rule_put(b, &b->rule->in[1][d], c);
        asp_rule_put(b, &b->rule->out[0][d], c);
        if (d == (uint32_t)dim) c = asp_rule_letter(b, ASP_LETTER_WHOLE, x->dim[d]);
        asp_rule_put(b, &b->rule->in[0][d], c);
    }
}

// base with base[.., ids[.., i, ..], ..] = src[.., i, ..]; of several writes the last stands.
asp_status asp_scatter_infer(asp_infer *in)
{
    const asp_dim_attr *a = in->attr;
    ASP_TRY(asp_want_dtype(in, 1, ASP_I64));
    ASP_TRY(asp_want_dtype(in, 2, in->in[0].dtype));
    ASP_TRY(want_same_but(in, 0, 1, a->dim));
    ASP_TRY(asp_want_rank(in, 2, in->in[1].rank, in->in[1].rank));
    for (int d = 0; d < (int)in->in[1].rank; d++) ASP_TRY(asp_want_same_dim(in, 2, d, 1, d));
    return asp_result_like(in, 0);
}

// Right where no two ids are equal, as those of topk are.
void asp_scatter_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_dim_attr *a = ASP_ATTR(b, n, dim);
    asp_type src = *asp_val_type(b->g, asp_in(b, n, 2));
    asp_val ids = asp_in(b, n, 1), zeros = asp_build_constant(b, 0, &src);
    out_in[0] = ASP_B3(b, scatter, a, cotangent[0], ids, zeros);
    out_in[2] = ASP_B2(b, gather, a, cotangent[0], ids);
}

void asp_scatter_rule(asp_rule_builder *b)
{
    const int64_t dim = ((const asp_dim_attr *)b->info->attr)->dim;
    const asp_type *x = asp_rule_type(b, 0), *ids = asp_rule_type(b, 1);
    for (uint32_t d = 0; d < x->rank; d++) {
        bool along = d == (uint32_t)dim;
        asp_letter_kind kind = along ? ASP_LETTER_WHOLE : ASP_LETTER_SPLIT;
        uint8_t c = asp_rule_letter(b, kind, x->dim[d]);
        asp_rule_put(b, &b->rule->in[0][d], c);
        asp_rule_put(b, &b->rule->out[0][d], c);
        if (along) c = asp_rule_letter(b, kind, ids->dim[d]);
        asp_rule_put(b, &b->rule->in[1][d], c);
        asp_rule_put(b, &b->rule->in[2][d], c);
    }
}

// y[.., v, ..] = sum of src[.., i, ..] where ids[.., i, ..] = v
asp_status asp_scatter_add_infer(asp_infer *in)
{
    const asp_index_add_attr *a = in->attr;
    ASP_TRY(asp_want_dtype(in, 0, ASP_I64));
    ASP_TRY(asp_want_float(in, 1));
    ASP_TRY(want_same_but(in, 0, 1, a->dim));
    ASP_TRY(asp_want_same_dim(in, 0, (int)a->dim, 1, (int)a->dim));
    asp_type out = in->in[1];
    out.dim[a->dim] = a->size;
    return asp_result(in, &out);
}

void asp_scatter_add_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_dim_attr a = {.dim = ASP_ATTR(b, n, index_add)->dim};
    out_in[1] = ASP_B2(b, gather, &a, cotangent[0], asp_in(b, n, 0));
}

void asp_scatter_add_rule(asp_rule_builder *b)
{
    const asp_index_add_attr *a = b->info->attr;
    const asp_type *src = asp_rule_type(b, 1);
    for (uint32_t d = 0; d < src->rank; d++) {
        bool along = d == (uint32_t)a->dim;
        asp_letter_kind kind = along ? ASP_LETTER_SUM : ASP_LETTER_SPLIT;
        uint8_t c = asp_rule_letter(b, kind, src->dim[d]);
        asp_rule_put(b, &b->rule->in[0][d], c);
        asp_rule_put(b, &b->rule->in[1][d], c);
        if (along) c = asp_rule_letter(b, ASP_LETTER_WHOLE, a->size);
        asp_rule_put(b, &b->rule->out[0][d], c);
    }
}

// ---- index_select, index_add -------------------------------------------------------------------

// y[a.., i.., b..] = x[a.., ids[i..], b..]         x (a.., n, b..)   ids (i..)
asp_status asp_index_select_infer(asp_infer *in)
{
    const asp_dim_attr *a = in->attr;
    const asp_type *x = &in->in[0], *ids = &in->in[1];
    ASP_TRY(asp_want_dtype(in, 1, ASP_I64));
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, x->rank));
    if (x->rank - 1 + ids->rank > ASP_MAX_RANK)
        return asp_infer_fail(in, ASP_ERR_LIMIT, "%s at %s has more than %d dimensions",
                              asp_type_str(in->g, x), asp_type_str(in->g, ids), ASP_MAX_RANK);
    asp_type out = {.dtype = x->dtype};
    for (uint32_t d = 0; d < x->rank; d++) {
        if (d != (uint32_t)a->dim) {
            out.dim[out.rank++] = x->dim[d];
            continue;
        }
        for (uint32_t i = 0; i < ids->rank; i++) out.dim[out.rank++] = ids->dim[i];
    }
    return asp_result(in, &out);
}

void asp_index_select_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const int64_t dim = ASP_ATTR(b, n, dim)->dim;
    asp_index_add_attr a = {.dim = dim, .size = asp_val_type(b->g, asp_in(b, n, 0))->dim[dim]};
    out_in[0] = ASP_B2(b, index_add, &a, asp_in(b, n, 1), cotangent[0]);
}

// Letters of the short side (a.., n, b..), ids (i..) and the long side (a.., i.., b..).
static void rule_lookup(asp_rule_builder *b, int64_t dim, const asp_type *short_type,
                        asp_rule_dim *shorter, asp_rule_dim *ids, asp_rule_dim *longer,
                        asp_letter_kind looked_up)
{
    const asp_type *ids_type = asp_rule_type(b, ids == b->rule->in[0] ? 0 : 1);
    for (uint32_t d = 0, o = 0; d < short_type->rank; d++) {
        bool along = d == (uint32_t)dim;
        asp_letter_kind kind = along ? ASP_LETTER_WHOLE : ASP_LETTER_SPLIT;
        uint8_t c = asp_rule_letter(b, kind, short_type->dim[d]);
        asp_rule_put(b, &shorter[d], c);
        if (!along) asp_rule_put(b, &longer[o++], c);
        for (uint32_t i = 0; along && i < ids_type->rank; i++) {
            c = asp_rule_letter(b, looked_up, ids_type->dim[i]);
            asp_rule_put(b, &ids[i], c);
            asp_rule_put(b, &longer[o++], c);
        }
    }
}

void asp_index_select_rule(asp_rule_builder *b)
{
    rule_lookup(b, ((const asp_dim_attr *)b->info->attr)->dim, asp_rule_type(b, 0), b->rule->in[0],
                b->rule->in[1], b->rule->out[0], ASP_LETTER_SPLIT);
}

// y[a.., v, b..] = sum of src[a.., i.., b..] where ids[i..] = v
asp_status asp_index_add_infer(asp_infer *in)
{
    const asp_index_add_attr *a = in->attr;
    const asp_type *ids = &in->in[0], *src = &in->in[1];
    ASP_TRY(asp_want_dtype(in, 0, ASP_I64));
    ASP_TRY(asp_want_float(in, 1));
    ASP_TRY(asp_want_rank(in, 1, ids->rank, ASP_MAX_RANK));
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, src->rank - ids->rank + 1));
    for (uint32_t i = 0; i < ids->rank; i++)
        ASP_TRY(asp_want_same_dim(in, 0, (int)i, 1, (int)(a->dim + i)));
    asp_type out = {.dtype = src->dtype};
    for (uint32_t d = 0; d < src->rank - ids->rank + 1; d++)
        out.dim[out.rank++] = d < (uint32_t)a->dim    ? src->dim[d]
                              : d == (uint32_t)a->dim ? a->size
                                                      : src->dim[d + ids->rank - 1];
    return asp_result(in, &out);
}

void asp_index_add_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_dim_attr a = {.dim = ASP_ATTR(b, n, index_add)->dim};
    out_in[1] = ASP_B2(b, index_select, &a, cotangent[0], asp_in(b, n, 0));
}

void asp_index_add_rule(asp_rule_builder *b)
{
    rule_lookup(b, ((const asp_index_add_attr *)b->info->attr)->dim, asp_rule_result(b, 0),
                b->rule->out[0], b->rule->in[0], b->rule->in[1], ASP_LETTER_SUM);
}

// ---- one_hot -----------------------------------------------------------------------------------

asp_status asp_one_hot_infer(asp_infer *in)
{
    const asp_one_hot_attr *a = in->attr;
    ASP_TRY(asp_want_dtype(in, 0, ASP_I64));
    ASP_TRY(asp_want_rank(in, 0, 0, ASP_MAX_RANK - 1));
    if (a->classes < 1 || (a->to != ASP_I64 && a->to != ASP_F32 && a->to != ASP_F64))
        return asp_infer_fail(in, ASP_ERR_INPUT,
                              "classes = %lld, to = %s; at least one class of i64, f32 or f64",
                              (long long)a->classes, asp_dtypes[a->to].name);
    asp_type out = in->in[0];
    out.dtype = a->to;
    out.dim[out.rank++] = asp_size_num(in->g, a->classes);
    return asp_result(in, &out);
}

// ---- topk, sort --------------------------------------------------------------------------------

static asp_status infer_ordered(asp_infer *in, const asp_type *values)
{
    asp_type indices = *values;
    if (values->dtype != ASP_I64) ASP_TRY(asp_want_float(in, 0));
    indices.dtype = ASP_I64;
    ASP_TRY(asp_result(in, values));
    return asp_result(in, &indices);
}

// values, indices of the k largest (smallest) along dim, best first; of equal ones the first comes
// first, and a NaN is larger than any number.
asp_status asp_topk_infer(asp_infer *in)
{
    const asp_topk_attr *a = in->attr;
    asp_type out = in->in[0];
    int64_t n = INT64_MAX;
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, out.rank));
    if (a->k < 1 || (asp_size_is_num(in->g, out.dim[a->dim], &n) && n < a->k))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "k = %lld of dimension %lld of %s",
                              (long long)a->k, (long long)a->dim, asp_type_str(in->g, &out));
    out.dim[a->dim] = asp_size_num(in->g, a->k);
    return infer_ordered(in, &out);
}

static void scatter_back(asp_builder *b, asp_node n, asp_val cotangent, int64_t dim,
                         asp_val *out_in)
{
    asp_index_add_attr a = {.dim = dim, .size = asp_val_type(b->g, asp_in(b, n, 0))->dim[dim]};
    if (!cotangent.i) return;
    out_in[0] = ASP_B2(b, scatter_add, &a, asp_out(b, n, 1), cotangent);
}

void asp_topk_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    scatter_back(b, n, cotangent[0], ASP_ATTR(b, n, topk)->dim, out_in);
}

void asp_topk_rule(asp_rule_builder *b)
{
    const asp_topk_attr *a = b->info->attr;
    const asp_type *x = asp_rule_type(b, 0);
    for (uint32_t d = 0; d < x->rank; d++) {
        bool along = d == (uint32_t)a->dim;
        asp_letter_kind kind = along ? ASP_LETTER_WHOLE : ASP_LETTER_SPLIT;
        uint8_t c = asp_rule_letter(b, kind, x->dim[d]);
        asp_rule_put(b, &b->rule->in[0][d], c);
        if (along) c = asp_rule_letter(b, kind, asp_size_num(b->g, a->k));
        for (uint32_t i = 0; i < 2; i++) asp_rule_put(b, &b->rule->out[i][d], c);
    }
}

// Stable.  It has no sharding rule: indices that it gives are row numbers of the whole dimension,
// which no rank could use on its part.
asp_status asp_sort_infer(asp_infer *in)
{
    const asp_sort_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, out.rank));
    return infer_ordered(in, &out);
}

void asp_sort_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    scatter_back(b, n, cotangent[0], ASP_ATTR(b, n, sort)->dim, out_in);
}
