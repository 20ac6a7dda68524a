// Helpers of type inference, and the check that a graph's written types are the inferred ones.
// Neighbours: op.h (contract), build.c (infers what it inserts).  SPDX-License-Identifier:
// Apache-2.0
#include "op/op_int.h"

asp_status asp_infer_fail(const asp_infer *in, asp_status code, const char *fmt, ...)
{
    char what[1024];
    va_list args;
    va_start(args, fmt);
    asp_vformat(what, sizeof what, fmt, args);
    va_end(args);
    const char *name = asp_ops[in->op].name;
    if (in->loc && *in->loc) return asp_fail(in->g->cx, code, "%s (%s): %s", name, in->loc, what);
    return asp_fail(in->g->cx, code, "%s: %s", name, what);
}

asp_status asp_want_rank(const asp_infer *in, uint32_t operand, uint32_t min, uint32_t max)
{
    const asp_type *t = &in->in[operand];
    if (t->rank >= min && t->rank <= max) return ASP_OK;
    if (min == max)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "operand %u is %s; %u dimensions are wanted",
                              operand, asp_type_str(in->g, t), min);
    return asp_infer_fail(in, ASP_ERR_SHAPE, "operand %u is %s; %u to %u dimensions are wanted",
                          operand, asp_type_str(in->g, t), min, max);
}

asp_status asp_want_dtype(const asp_infer *in, uint32_t operand, asp_dtype dtype)
{
    if (in->in[operand].dtype == dtype) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_SHAPE, "operand %u is %s, not %s", operand,
                          asp_type_str(in->g, &in->in[operand]), asp_dtypes[dtype].name);
}

asp_status asp_want_float(const asp_infer *in, uint32_t operand)
{
    if (asp_dtypes[in->in[operand].dtype].is_float) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_SHAPE, "operand %u is %s, not a floating-point tensor",
                          operand, asp_type_str(in->g, &in->in[operand]));
}

asp_status asp_want_same_dim(const asp_infer *in, uint32_t a, int d, uint32_t b, int e)
{
    const asp_type *x = &in->in[a], *y = &in->in[b];
    int dx = d < 0 ? d + (int)x->rank : d, ey = e < 0 ? e + (int)y->rank : e;
    if (dx < 0 || dx >= (int)x->rank || ey < 0 || ey >= (int)y->rank)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "operands %s and %s have too few dimensions",
                              asp_type_str(in->g, x), asp_type_str(in->g, y));
    if (asp_size_equal(x->dim[dx], y->dim[ey])) return ASP_OK;
    return asp_infer_fail(
        in, ASP_ERR_SHAPE, "dimension %d of operand %u is %s, but dimension %d of operand %u is %s",
        dx, a, asp_size_str(in->g, x->dim[dx]), ey, b, asp_size_str(in->g, y->dim[ey]));
}

asp_status asp_want_same_type(const asp_infer *in, uint32_t a, uint32_t b)
{
    if (asp_type_equal(&in->in[a], &in->in[b])) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_SHAPE, "operand %u is %s, but operand %u is %s", a,
                          asp_type_str(in->g, &in->in[a]), b, asp_type_str(in->g, &in->in[b]));
}

asp_status asp_want_dim_attr(const asp_infer *in, const char *what, int64_t dim, uint32_t rank)
{
    if (dim >= 0 && dim < (int64_t)rank) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_SHAPE, "%s = %lld is not a dimension; there are %u", what,
                          (long long)dim, rank);
}

asp_status asp_result(asp_infer *in, const asp_type *type)
{
    in->out[in->n_out++] = *type;
    return ASP_OK;
}

asp_status asp_result_like(asp_infer *in, uint32_t operand)
{
    return asp_result(in, &in->in[operand]);
}

static asp_status check_node(asp_graph *g, asp_node n)
{
    const asp_node_info *info = asp_node_at(g, n);
    asp_infer in = {
        .g = g, .op = info->op, .attr = info->attr, .loc = info->loc, .n_in = info->n_in};
    for (uint32_t i = 0; i < info->n_in; i++) in.in[i] = *asp_val_type(g, info->in[i]);
    if (asp_op_has(info->op, ASP_DECLARED)) asp_result(&in, asp_val_type(g, info->first));
    ASP_TRY(asp_op_table[info->op].infer(&in));
    if (in.n_out != info->n_out)
        return asp_infer_fail(&in, ASP_ERR_SHAPE, "has %u results, not %u", in.n_out, info->n_out);
    for (uint32_t i = 0; i < in.n_out; i++) {
        asp_val v = asp_node_result(g, n, i);
        if (!asp_type_equal(&in.out[i], asp_val_type(g, v)))
            return asp_infer_fail(&in, ASP_ERR_SHAPE, "result %s is written as %s but is %s",
                                  asp_val_str(g, v), asp_type_str(g, asp_val_type(g, v)),
                                  asp_type_str(g, &in.out[i]));
    }
    return ASP_OK;
}

asp_status asp_graph_typecheck(asp_graph *g)
{
    ASP_FOR_NODES (g, n) ASP_TRY(check_node(g, n));
    return ASP_OK;
}
