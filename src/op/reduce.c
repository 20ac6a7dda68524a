// Reductions other than sums.  Those that have a simple composition are modules; what counts
// elements is lowered before a graph is split (ASP_EARLY), so that it counts those of all ranks.
// Neighbours: ir/op.def (rows), shape.c (sum), kern/ref/reduce.c.
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

// ---- largest and smallest ----------------------------------------------------------------------

static asp_status want_ordered(const asp_infer *in)
{
    if (in->in[0].dtype == ASP_I64) return ASP_OK;
    return asp_want_float(in, 0);
}

static asp_status infer_over_dims(asp_infer *in)
{
    const asp_sum_attr *a = in->attr;
    asp_type out;
    ASP_TRY(want_ordered(in));
    ASP_TRY(asp_infer_reduced(in, &a->dims, a->keep, &out));
    return asp_result(in, &out);
}

asp_status asp_amax_infer(asp_infer *in) { return infer_over_dims(in); }
asp_status asp_amin_infer(asp_infer *in) { return infer_over_dims(in); }

// Each of the n elements that are the extreme gets 1/n.
static void vjp_shared(asp_builder *b, asp_node n, asp_val dy, asp_val *out_in)
{
    const asp_sum_attr *a = ASP_ATTR(b, n, sum);
    asp_val x = asp_in(b, n, 0);
    asp_type kept = asp_kept_type(b->g, asp_val_type(b->g, x), &a->dims);
    asp_cast_attr to = {.to = kept.dtype};
    asp_sum_attr count = {.dims = a->dims, .keep = true};
    asp_val y = asp_build_view(b, asp_out(b, n, 0), &kept);
    asp_val mask = ASP_B1(b, cast, &to, ASP_B2(b, eq, NULL, x, y));
    asp_val share =
        ASP_B2(b, div, NULL, asp_build_view(b, dy, &kept), ASP_B1(b, sum, &count, mask));
    out_in[0] = ASP_B2(b, mul, NULL, mask, share);
}

void asp_amax_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    vjp_shared(b, n, cotangent[0], out_in);
}
void asp_amin_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    vjp_shared(b, n, cotangent[0], out_in);
}

void asp_amax_rule(asp_rule_builder *b) { asp_rule_reduced(b, ASP_LETTER_WHOLE); }
void asp_amin_rule(asp_rule_builder *b) { asp_rule_reduced(b, ASP_LETTER_WHOLE); }

// ---- with the index of the first ---------------------------------------------------------------

static asp_ints dim_of(const asp_arg_attr *a) { return (asp_ints){.n = 1, .at = {a->dim}}; }

static asp_status infer_along_dim(asp_infer *in, bool values, bool indices)
{
    const asp_arg_attr *a = in->attr;
    const asp_ints dim = dim_of(a);
    asp_type out;
    ASP_TRY(want_ordered(in));
    ASP_TRY(asp_infer_reduced(in, &dim, a->keep, &out));
    if (values) ASP_TRY(asp_result(in, &out));
    out.dtype = ASP_I64;
    return indices ? asp_result(in, &out) : ASP_OK;
}

asp_status asp_max_dim_infer(asp_infer *in) { return infer_along_dim(in, true, true); }
asp_status asp_min_dim_infer(asp_infer *in) { return infer_along_dim(in, true, true); }
asp_status asp_argmax_infer(asp_infer *in) { return infer_along_dim(in, false, true); }
asp_status asp_argmin_infer(asp_infer *in) { return infer_along_dim(in, false, true); }

// dy where the index along dim is the one that was found, else 0.
static void vjp_of_first(asp_builder *b, asp_node n, asp_val dy, asp_val *out_in)
{
    if (!dy.i || b->status < 0) return;
    const asp_ints dim = dim_of(ASP_ATTR(b, n, arg));
    asp_type x = *asp_val_type(b->g, asp_in(b, n, 0)), number = {.dtype = x.dtype};
    asp_type kept = asp_kept_type(b->g, &x, &dim);
    asp_size size = x.dim[dim.at[0]], one = asp_size_num(b->g, 1);
    asp_type line = {.dtype = ASP_I64, .rank = 1, .dim = {size}}, along = line;
    for (along.rank = 0; along.rank < x.rank - dim.at[0]; along.rank++)
        along.dim[along.rank] = along.rank ? one : size;
    asp_val place = asp_build_view(b, asp_build_declared(b, ASP_OP_iota, NULL, &line), &along);
    asp_val found = ASP_B2(b, eq, NULL, asp_build_view(b, asp_out(b, n, 1), &kept), place);
    out_in[0] = ASP_B3(b, where, NULL, found, asp_build_view(b, dy, &kept),
                       asp_build_constant(b, 0, &number));
}

void asp_max_dim_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    vjp_of_first(b, n, cotangent[0], out_in);
}
void asp_min_dim_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    vjp_of_first(b, n, cotangent[0], out_in);
}

static void rule_along_dim(asp_rule_builder *b)
{
    const asp_ints dim = dim_of(b->info->attr);
    asp_rule_reduced_dims(b, &dim, ((const asp_arg_attr *)b->info->attr)->keep, ASP_LETTER_WHOLE);
}
void asp_max_dim_rule(asp_rule_builder *b) { rule_along_dim(b); }
void asp_min_dim_rule(asp_rule_builder *b) { rule_along_dim(b); }
void asp_argmax_rule(asp_rule_builder *b) { rule_along_dim(b); }
void asp_argmin_rule(asp_rule_builder *b) { rule_along_dim(b); }

// ---- logsumexp ---------------------------------------------------------------------------------

asp_status asp_logsumexp_infer(asp_infer *in)
{
    ASP_TRY(asp_want_float(in, 0));
    return infer_over_dims(in);
}

// dx = dy e^(x - y)
void asp_logsumexp_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_val x = asp_in(b, n, 0);
    asp_type kept = asp_kept_type(b->g, asp_val_type(b->g, x), &ASP_ATTR(b, n, sum)->dims);
    asp_val y = asp_build_view(b, asp_out(b, n, 0), &kept);
    asp_val p = ASP_B1(b, exp, NULL, ASP_B2(b, sub, NULL, x, y));
    out_in[0] = ASP_B2(b, mul, NULL, p, asp_build_view(b, cotangent[0], &kept));
}

void asp_logsumexp_rule(asp_rule_builder *b) { asp_rule_reduced(b, ASP_LETTER_WHOLE); }

// ---- modules -----------------------------------------------------------------------------------

asp_status asp_mean_infer(asp_infer *in)
{
    ASP_TRY(asp_want_float(in, 0));
    return infer_over_dims(in);
}

void asp_mean_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_sum_attr a = *ASP_ATTR(b, n, sum);
    asp_type x = *asp_val_type(b->g, asp_in(b, n, 0));
    out[0] = asp_build_over_count(b, ASP_B1(b, sum, &a, asp_in(b, n, 0)), &x, &a.dims, 0);
}

void asp_mean_rule(asp_rule_builder *b) { asp_rule_reduced(b, ASP_LETTER_WHOLE); }

asp_status asp_var_infer(asp_infer *in)
{
    const asp_var_attr *a = in->attr;
    asp_type out;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_infer_reduced(in, &a->dims, a->keep, &out));
    return asp_result(in, &out);
}

// In two passes: the squares are of distances to the mean.
void asp_var_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_var_attr a = *ASP_ATTR(b, n, var);
    const asp_sum_attr sum = {.dims = a.dims, .keep = a.keep};
    asp_val x = asp_in(b, n, 0), d = ASP_B2(b, sub, NULL, x, asp_build_mean(b, x, &a.dims));
    asp_type shape = *asp_val_type(b->g, x);
    out[0] = asp_build_over_count(b, ASP_B1(b, sum, &sum, ASP_B2(b, mul, NULL, d, d)), &shape,
                                  &a.dims, a.correction);
}

void asp_var_rule(asp_rule_builder *b)
{
    const asp_var_attr *a = b->info->attr;
    asp_rule_reduced_dims(b, &a->dims, a->keep, ASP_LETTER_WHOLE);
}

static asp_status infer_bools(asp_infer *in)
{
    const asp_sum_attr *a = in->attr;
    asp_type out;
    ASP_TRY(asp_want_dtype(in, 0, ASP_BOOL));
    ASP_TRY(asp_infer_reduced(in, &a->dims, a->keep, &out));
    return asp_result(in, &out);
}

asp_status asp_any_infer(asp_infer *in) { return infer_bools(in); }
asp_status asp_all_infer(asp_infer *in) { return infer_bools(in); }

// How many are true, as a sum, which ranks can share, is not 0.
static asp_val any_of(asp_builder *b, asp_node n, asp_val x)
{
    asp_cast_attr integer = {.to = ASP_I64}, boolean = {.to = ASP_BOOL};
    asp_val count = ASP_B1(b, sum, ASP_ATTR(b, n, sum), ASP_B1(b, cast, &integer, x));
    return ASP_B1(b, cast, &boolean, count);
}

void asp_any_lower(asp_builder *b, asp_node n, asp_val *out)
{
    out[0] = any_of(b, n, asp_in(b, n, 0));
}

void asp_all_lower(asp_builder *b, asp_node n, asp_val *out)
{
    asp_val some_not = any_of(b, n, ASP_B1(b, logical_not, NULL, asp_in(b, n, 0)));
    out[0] = ASP_B1(b, logical_not, NULL, some_not);
}

void asp_any_rule(asp_rule_builder *b) { asp_rule_reduced(b, ASP_LETTER_WHOLE); }
void asp_all_rule(asp_rule_builder *b) { asp_rule_reduced(b, ASP_LETTER_WHOLE); }
