// Ops that carry a state along a dimension: cumulative sum and product, the linear recurrence of
// state-space models.  Neighbours: ir/op.def (rows), kern/ref/scan.c, kern/scan.c (fast).
//
// The dimension is whole.  Over a split sequence a carried prefix would do: cumsum of the rank's
// part, plus the sum of what the ranks before hold; scan of the part from h0 = the state at its
// beginning, which follows from each earlier part's product of a and its last h from 0.
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

// ---- cumsum ------------------------------------------------------------------------------------

asp_status asp_cumsum_infer(asp_infer *in)
{
    const asp_scan_attr *a = in->attr;
    if (in->in[0].dtype != ASP_I64) ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, in->in[0].rank));
    return asp_result_like(in, 0);
}

void asp_cumsum_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_scan_attr a = *ASP_ATTR(b, n, scan);
    a.reverse = !a.reverse;
    out_in[0] = ASP_B1(b, cumsum, &a, cotangent[0]);
}

void asp_cumsum_rule(asp_rule_builder *b)
{
    asp_rule_same_shape(b, 1u << ((const asp_scan_attr *)b->info->attr)->dim);
}

// ---- scan --------------------------------------------------------------------------------------

static asp_size one(asp_graph *g) { return asp_size_num(g, 1); }

// h[t] = a[t] h[t-1] + b[t]        b, h (.., T, ..)   a the same or 1 beside dim   h0 (.., 1, ..)
asp_status asp_scan_infer(asp_infer *in)
{
    const asp_scan_attr *attr = in->attr;
    const asp_type *a = &in->in[0], *x = &in->in[1];
    ASP_TRY(asp_want_float(in, 1));
    ASP_TRY(asp_want_dim_attr(in, "dim", attr->dim, x->rank));
    for (uint32_t i = 0; i < in->n_in; i++) {
        ASP_TRY(asp_want_dtype(in, i, x->dtype));
        ASP_TRY(asp_want_rank(in, i, x->rank, x->rank));
    }
    for (int d = 0; d < (int)x->rank; d++) {
        bool along = d == attr->dim;
        if (along || !asp_size_equal(a->dim[d], one(in->g)))
            ASP_TRY(asp_want_same_dim(in, 0, d, 1, d));
        if (in->n_in < 3) continue;
        if (!along) ASP_TRY(asp_want_same_dim(in, 2, d, 1, d));
        if (along && !asp_size_equal(in->in[2].dim[d], one(in->g)))
            return asp_infer_fail(in, ASP_ERR_SHAPE, "h0 is %s; dimension %d must be 1",
                                  asp_type_str(in->g, &in->in[2]), d);
    }
    return asp_result_like(in, 1);
}

// The other elements one step along the scan: y[t] = x[t + by], 0 where there is none.
static asp_val moved(asp_builder *b, asp_val x, int64_t dim, int64_t by)
{
    return ASP_B1(b, shift, (&(asp_shift_attr){.by = by, .fill = 0, .dim = dim}), x);
}

// The first element that the scan comes to, of n.
static asp_val first_of(asp_builder *b, asp_val x, const asp_scan_attr *a, asp_size n)
{
    asp_range_attr r = {.dim = a->dim, .start = asp_size_num(b->g, 0), .end = one(b->g)};
    if (a->reverse) {
        r.start = asp_size_sub(b->g, n, one(b->g));
        r.end = n;
    }
    return ASP_B1(b, slice, &r, x);
}

// With g[t] = dy[t] + a[t+1] g[t+1], a scan in the other direction:
// db = g,  da[t] = g[t] h[t-1],  dh0 = a[first] g[first]
void asp_scan_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_scan_attr *attr = ASP_ATTR(b, n, scan);
    const int64_t on = attr->reverse ? -1 : 1;
    asp_scan_attr back = {.dim = attr->dim, .reverse = !attr->reverse};
    asp_val a = asp_in(b, n, 0), h = asp_out(b, n, 0);
    asp_type a_type = *asp_val_type(b->g, a);
    asp_size size = a_type.dim[attr->dim];
    asp_val g = ASP_B2(b, scan, &back, moved(b, a, attr->dim, on), cotangent[0]);
    asp_val before = moved(b, h, attr->dim, -on);
    if (asp_node_at(b->g, n)->n_in == 3) {
        asp_size rest = asp_size_sub(b->g, size, one(b->g)), none = asp_size_num(b->g, 0);
        asp_pad_attr around = {.dim = attr->dim,
                               .left = attr->reverse ? rest : none,
                               .right = attr->reverse ? none : rest};
        asp_type h0 = *asp_val_type(b->g, asp_in(b, n, 2));
        before = ASP_B2(b, add, NULL, before, ASP_B1(b, pad, &around, asp_in(b, n, 2)));
        asp_val at_first =
            ASP_B2(b, mul, NULL, first_of(b, a, attr, size), first_of(b, g, attr, size));
        out_in[2] = asp_build_view(b, at_first, &h0);
    }
    out_in[0] = asp_build_sum_to(b, ASP_B2(b, mul, NULL, g, before), &a_type);
    out_in[1] = g;
}

void asp_scan_rule(asp_rule_builder *b)
{
    const int64_t dim = ((const asp_scan_attr *)b->info->attr)->dim;
    const asp_type *y = asp_rule_result(b, 0);
    for (uint32_t d = 0; d < y->rank; d++) {
        bool along = d == (uint32_t)dim;
        uint8_t c = asp_rule_letter(b, along ? ASP_LETTER_WHOLE : ASP_LETTER_SPLIT, y->dim[d]);
        asp_rule_put(b, &b->rule->in[1][d], c);
        asp_rule_put(b, &b->rule->out[0][d], c);
        for (uint32_t i = 0; i < b->info->n_in; i++)
            if (i != 1 && asp_size_equal(asp_rule_type(b, i)->dim[d], y->dim[d]))
                asp_rule_put(b, &b->rule->in[i][d], c);
    }
}

// ---- cumprod -----------------------------------------------------------------------------------

// h[t] = x[t] h[t-1] from 1: right, and with a right derivative, where x is 0 too.
asp_status asp_cumprod_infer(asp_infer *in)
{
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dim_attr(in, "dim", ((const asp_dim_attr *)in->attr)->dim, in->in[0].rank));
    return asp_result_like(in, 0);
}

void asp_cumprod_lower(asp_builder *b, asp_node n, asp_val *out)
{
    asp_scan_attr a = {.dim = ASP_ATTR(b, n, dim)->dim};
    asp_type type = *asp_val_type(b->g, asp_in(b, n, 0)), first = type;
    first.dim[a.dim] = one(b->g);
    asp_val zeros = asp_build_constant(b, 0, &type), ones = asp_build_constant(b, 1, &first);
    out[0] = ASP_B3(b, scan, &a, asp_in(b, n, 0), zeros, ones);
}

void asp_cumprod_rule(asp_rule_builder *b)
{
    asp_rule_same_shape(b, 1u << ((const asp_dim_attr *)b->info->attr)->dim);
}
