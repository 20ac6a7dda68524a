// The builder: inserts nodes with inferred types, and the few compositions that derivatives and
// lowerings share. Neighbours: op.h (contract), infer.c.  SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

static asp_val insert(asp_builder *b, asp_infer *in, const asp_val *operands)
{
    asp_node n = asp_graph_insert(b->g, b->before, in->op, in->attr, in->n_in, operands, in->n_out,
                                  in->out, b->loc);
    return asp_node_at(b->g, n)->first;
}

asp_val asp_build(asp_builder *b, asp_op op, const void *attr, uint32_t n_in, const asp_val *in)
{
    if (b->status < 0) return (asp_val){0};
    const asp_op_info *info = &asp_ops[op];
    ASP_CHECK(n_in >= info->min_in && n_in <= info->max_in && !asp_op_has(op, ASP_DECLARED));
    asp_infer t = {
        .g = b->g, .op = op, .attr = attr ? attr : info->attr_default, .loc = b->loc, .n_in = n_in};
    for (uint32_t i = 0; i < n_in; i++) t.in[i] = *asp_val_type(b->g, in[i]);
    b->status = asp_op_table[op].infer(&t);
    return b->status < 0 ? (asp_val){0} : insert(b, &t, in);
}

asp_val asp_build_declared(asp_builder *b, asp_op op, const void *attr, const asp_type *type)
{
    if (b->status < 0) return (asp_val){0};
    ASP_CHECK(asp_op_has(op, ASP_DECLARED));
    asp_infer t = {
        .g = b->g, .op = op, .attr = attr ? attr : asp_ops[op].attr_default, .loc = b->loc};
    asp_result(&t, type);
    b->status = asp_op_table[op].infer(&t);
    return b->status < 0 ? (asp_val){0} : insert(b, &t, NULL);
}

asp_val asp_build_result(const asp_builder *b, asp_val first, uint32_t i)
{
    return b->status < 0 ? (asp_val){0} : (asp_val){first.i + i};
}

asp_val asp_build_scaled(asp_builder *b, asp_val x, double by)
{
    return ASP_B1(b, mul_scalar, (&(asp_scalar_attr){.value = by}), x);
}

static asp_sizes shape_of(const asp_type *t)
{
    asp_sizes shape = {.n = t->rank};
    memcpy(shape.at, t->dim, t->rank * sizeof t->dim[0]);
    return shape;
}

static bool same_shape(const asp_type *a, const asp_type *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

asp_val asp_build_view(asp_builder *b, asp_val x, const asp_type *like)
{
    if (b->status < 0 || same_shape(asp_val_type(b->g, x), like)) return x;
    asp_view_attr a = {.shape = shape_of(like)};
    return ASP_B1(b, view, &a, x);
}

asp_val asp_build_expand_to(asp_builder *b, asp_val x, const asp_type *shape)
{
    if (b->status < 0 || same_shape(asp_val_type(b->g, x), shape)) return x;
    asp_expand_attr a = {.shape = shape_of(shape)};
    return ASP_B1(b, expand, &a, x);
}

// The dims that broadcasting added or stretched are summed: leading ones vanish, size-1 ones stay.
asp_val asp_build_sum_to(asp_builder *b, asp_val x, const asp_type *shape)
{
    if (b->status < 0) return x;
    asp_type have = *asp_val_type(b->g, x);
    if (same_shape(&have, shape)) return x;
    uint32_t lead = have.rank - shape->rank;
    asp_sum_attr a = {.keep = true};
    for (uint32_t d = 0; d < have.rank; d++)
        if (d < lead || !asp_size_equal(have.dim[d], shape->dim[d - lead]))
            a.dims.at[a.dims.n++] = d;
    if (a.dims.n == lead) a.keep = false; // only leading dims go: no size-1 dims to keep
    return asp_build_view(b, ASP_B1(b, sum, &a, x), shape);
}

asp_val asp_build_sum_to_operand(asp_builder *b, asp_node n, uint32_t i, asp_val d)
{
    if (b->status < 0) return d;
    asp_type shape = *asp_val_type(b->g, asp_in(b, n, i));
    return asp_build_sum_to(b, d, &shape);
}

asp_val asp_build_over_count(asp_builder *b, asp_val x, const asp_type *shape, const asp_ints *dims,
                             int64_t less)
{
    if (b->status < 0) return x;
    asp_size count = asp_size_num(b->g, 1);
    for (uint32_t i = 0; i < dims->n; i++)
        count = asp_size_mul(b->g, count, shape->dim[dims->at[i]]);
    count = asp_size_sub(b->g, count, asp_size_num(b->g, less));
    int64_t n;
    if (asp_size_is_num(b->g, count, &n)) return asp_build_scaled(b, x, 1.0 / (double)n);
    asp_size_attr a = {.size = count};
    asp_type number = {.dtype = asp_val_type(b->g, x)->dtype};
    return ASP_B2(b, div, NULL, x, asp_build_declared(b, ASP_OP_size_value, &a, &number));
}

asp_val asp_build_mean(asp_builder *b, asp_val x, const asp_ints *dims)
{
    if (b->status < 0) return x;
    asp_type shape = *asp_val_type(b->g, x);
    asp_sum_attr sum = {.dims = *dims, .keep = true};
    return asp_build_over_count(b, ASP_B1(b, sum, &sum, x), &shape, dims, 0);
}

asp_val asp_build_permute(asp_builder *b, asp_val x, uint32_t n, const int64_t *perm)
{
    asp_permute_attr a = {.perm = {.n = n}};
    memcpy(a.perm.at, perm, n * sizeof perm[0]);
    return ASP_B1(b, permute, &a, x);
}

asp_val asp_build_constant(asp_builder *b, double value, const asp_type *type)
{
    return asp_build_declared(b, ASP_OP_constant, &(asp_constant_attr){.value = value}, type);
}
