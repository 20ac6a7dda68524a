// What each op does to formulas.  An op without a row, or whose operands have no formula that fits,
// gives a value that is known by its name alone.  Neighbours: fold.h (contract), fold.c
// (arithmetic). SPDX-License-Identifier: Apache-2.0
#include "pass/fold.h"

#define MAX_DEPTH 200 // of ops above a value; no mask has so many

typedef const asp_body *fold_fn(asp_folder *f, const asp_node_info *n);

static const asp_type *type_of(const asp_folder *f, asp_val v) { return asp_val_type(f->g, v); }

static bool is_one(const asp_folder *f, asp_size s)
{
    int64_t n;
    return asp_size_is_num(f->g, s, &n) && n == 1;
}

static asp_size number(const asp_folder *f, int64_t n) { return asp_size_num(f->g, n); }

// Index d of a shape: 0 where the dim is 1.
static const asp_body *index_of(asp_folder *f, const asp_type *t, uint32_t d)
{
    return is_one(f, t->dim[d]) ? asp_body_int(f, number(f, 0)) : asp_body_index(f, d);
}

// Operand i broadcast from the right to the result's shape.
static const asp_body *broadcast(asp_folder *f, const asp_node_info *n, uint32_t i)
{
    const asp_type *x = type_of(f, n->in[i]), *y = type_of(f, n->first);
    const asp_body *at[ASP_MAX_RANK] = {NULL};
    for (uint32_t d = 0; d < x->rank; d++)
        at[d] = is_one(f, x->dim[d]) ? asp_body_int(f, number(f, 0))
                                     : index_of(f, y, y->rank - x->rank + d);
    return asp_body_at(f, asp_fold(f, n->in[i]), at);
}

static bool is_whole(double x, int64_t *out)
{
    if (!(x > -1e15 && x < 1e15)) return false;
    *out = (int64_t)x;
    return (double)*out == x;
}

static bool whole_of(const asp_folder *f, const asp_body *x, int64_t *out)
{
    if (!x) return false;
    if (x->kind == ASP_BODY_FLOAT) return is_whole(x->number, out);
    return x->kind == ASP_BODY_INT && x->n == 0 && asp_size_is_num(f->g, x->c, out);
}

// ---- sources -----------------------------------------------------------------------------------

static const asp_body *fold_iota(asp_folder *f, const asp_node_info *n)
{
    const asp_iota_attr *a = n->attr;
    return asp_body_add(f, index_of(f, type_of(f, n->first), 0),
                        asp_body_int(f, number(f, a->start)), number(f, 1));
}

static const asp_body *fold_constant(asp_folder *f, const asp_node_info *n)
{
    const double x = ((const asp_constant_attr *)n->attr)->value;
    const asp_dtype dtype = type_of(f, n->first)->dtype;
    int64_t whole;
    if (dtype == ASP_BOOL) return asp_body_bool(f, x != 0);
    if (asp_dtypes[dtype].is_float) return asp_body_float(f, x);
    return is_whole(x, &whole) ? asp_body_int(f, number(f, whole)) : NULL;
}

static const asp_body *fold_size_value(asp_folder *f, const asp_node_info *n)
{
    if (type_of(f, n->first)->dtype != ASP_I64) return NULL;
    return asp_body_int(f, ((const asp_size_attr *)n->attr)->size);
}

static const asp_body *fold_cast(asp_folder *f, const asp_node_info *n)
{
    const asp_dtype from = type_of(f, n->in[0])->dtype, to = type_of(f, n->first)->dtype;
    const asp_body *x = asp_fold(f, n->in[0]);
    if (from == to) return x;
    if (to == ASP_BOOL) return asp_body_rel(f, ASP_MASK_NE, x, asp_body_int(f, number(f, 0)));
    if (from == ASP_BOOL) // 1 where it holds
        return asp_body_where(f, x, asp_body_int(f, number(f, 1)), asp_body_int(f, number(f, 0)));
    if (asp_dtypes[to].is_float) return x->kind == ASP_BODY_NONE ? NULL : x;
    return x->kind == ASP_BODY_INT ? x : NULL; // of a wider whole number
}

// ---- arithmetic --------------------------------------------------------------------------------

// Additive masks: 0 or one constant; what hides in either hides in the sum.
static const asp_body *add_masks(asp_folder *f, const asp_body *x, const asp_body *y)
{
    if (x->kind != ASP_BODY_WHERE || y->kind != ASP_BODY_WHERE) return NULL;
    if (!asp_body_equal(x->y, y->y) || !asp_body_equal(x->z, y->z)) return NULL;
    if (x->y->kind != ASP_BODY_FLOAT || x->y->number != 0) return NULL;
    if (x->z->kind != ASP_BODY_FLOAT || !(x->z->number < -1e30)) return NULL;
    return asp_body_where(f, asp_body_and(f, x->x, y->x), x->y, x->z);
}

static const asp_body *fold_add(asp_folder *f, const asp_node_info *n)
{
    const asp_body *x = broadcast(f, n, 0), *y = broadcast(f, n, 1);
    if (!x || !y) return NULL;
    const asp_body *masks = add_masks(f, x, y);
    return masks ? masks : asp_body_add(f, x, y, number(f, 1));
}

static const asp_body *fold_sub(asp_folder *f, const asp_node_info *n)
{
    return asp_body_add(f, broadcast(f, n, 0), broadcast(f, n, 1), number(f, -1));
}

static const asp_body *times(asp_folder *f, const asp_body *x, asp_size by)
{
    return asp_body_add(f, asp_body_int(f, number(f, 0)), x, by);
}

static const asp_body *fold_mul(asp_folder *f, const asp_node_info *n)
{
    const asp_body *x = broadcast(f, n, 0), *y = broadcast(f, n, 1);
    if (!x || !y) return NULL;
    if (x->kind == ASP_BODY_INT && x->n == 0) return times(f, y, x->c);
    if (y->kind == ASP_BODY_INT && y->n == 0) return times(f, x, y->c);
    if (y->kind == ASP_BODY_NONE) {
        const asp_body *swap = x;
        x = y, y = swap;
    }
    if (x->kind != ASP_BODY_NONE || y->kind != ASP_BODY_INT) return NULL;
    asp_body *slope = ASP_NEW(f->arena, asp_body);
    slope->kind = ASP_BODY_SLOPE;
    slope->x = y;
    slope->y = x;
    return slope;
}

static const asp_body *fold_add_scalar(asp_folder *f, const asp_node_info *n)
{
    int64_t c;
    if (!is_whole(((const asp_scalar_attr *)n->attr)->value, &c)) return NULL;
    return asp_body_add(f, asp_fold(f, n->in[0]), asp_body_int(f, number(f, c)), number(f, 1));
}

static const asp_body *fold_mul_scalar(asp_folder *f, const asp_node_info *n)
{
    int64_t c;
    if (!is_whole(((const asp_scalar_attr *)n->attr)->value, &c)) return NULL;
    return times(f, asp_fold(f, n->in[0]), number(f, c));
}

static const asp_body *fold_neg(asp_folder *f, const asp_node_info *n)
{
    return times(f, asp_fold(f, n->in[0]), number(f, -1));
}

static const asp_body *fold_floor_divide(asp_folder *f, const asp_node_info *n)
{
    int64_t by;
    if (type_of(f, n->first)->dtype != ASP_I64 || !whole_of(f, broadcast(f, n, 1), &by))
        return NULL;
    return asp_body_div(f, broadcast(f, n, 0), by);
}

// ---- conditions --------------------------------------------------------------------------------

static const asp_body *fold_eq(asp_folder *f, const asp_node_info *n)
{
    return asp_body_rel(f, ASP_MASK_EQ, broadcast(f, n, 0), broadcast(f, n, 1));
}

static const asp_body *fold_ne(asp_folder *f, const asp_node_info *n)
{
    return asp_body_rel(f, ASP_MASK_NE, broadcast(f, n, 0), broadcast(f, n, 1));
}

static const asp_body *fold_le(asp_folder *f, const asp_node_info *n)
{
    return asp_body_rel(f, ASP_MASK_LE, broadcast(f, n, 0), broadcast(f, n, 1));
}

static const asp_body *fold_ge(asp_folder *f, const asp_node_info *n)
{
    return asp_body_rel(f, ASP_MASK_LE, broadcast(f, n, 1), broadcast(f, n, 0));
}

static const asp_body *fold_lt(asp_folder *f, const asp_node_info *n)
{
    return asp_body_less(f, broadcast(f, n, 0), broadcast(f, n, 1));
}

static const asp_body *fold_gt(asp_folder *f, const asp_node_info *n)
{
    return asp_body_less(f, broadcast(f, n, 1), broadcast(f, n, 0));
}

static const asp_body *fold_and(asp_folder *f, const asp_node_info *n)
{
    return asp_body_and(f, broadcast(f, n, 0), broadcast(f, n, 1));
}

static const asp_body *fold_or(asp_folder *f, const asp_node_info *n)
{
    return asp_body_or(f, broadcast(f, n, 0), broadcast(f, n, 1));
}

static const asp_body *fold_not(asp_folder *f, const asp_node_info *n)
{
    return asp_body_not(f, asp_fold(f, n->in[0]));
}

static const asp_body *fold_where(asp_folder *f, const asp_node_info *n)
{
    return asp_body_where(f, broadcast(f, n, 0), broadcast(f, n, 1), broadcast(f, n, 2));
}

// Row and column of the last two dims: kept where column - row <= diagonal (upper: >=).
static const asp_body *fold_triangle(asp_folder *f, const asp_node_info *n)
{
    const asp_triangle_attr *a = n->attr;
    const asp_type *t = type_of(f, n->first);
    const asp_body *x = asp_fold(f, n->in[0]), *zero = asp_body_int(f, number(f, 0));
    const asp_body *row = index_of(f, t, t->rank - 2), *column = index_of(f, t, t->rank - 1);
    const asp_body *by = asp_body_add(f, column, row, number(f, -1));
    const asp_body *diagonal = asp_body_int(f, number(f, a->diagonal));
    const asp_body *kept = a->upper ? asp_body_rel(f, ASP_MASK_LE, diagonal, by)
                                    : asp_body_rel(f, ASP_MASK_LE, by, diagonal);
    if (t->dtype == ASP_BOOL) return asp_body_and(f, x, kept);
    return asp_body_where(f, kept, x, asp_dtypes[t->dtype].is_float ? asp_body_float(f, 0) : zero);
}

// ---- shapes ------------------------------------------------------------------------------------

static const asp_body *fold_expand(asp_folder *f, const asp_node_info *n)
{
    return broadcast(f, n, 0);
}

static const asp_body *fold_permute(asp_folder *f, const asp_node_info *n)
{
    const asp_permute_attr *a = n->attr;
    const asp_body *at[ASP_MAX_RANK] = {NULL};
    for (uint32_t d = 0; d < a->perm.n; d++)
        at[a->perm.at[d]] = index_of(f, type_of(f, n->first), d);
    return asp_body_at(f, asp_fold(f, n->in[0]), at);
}

// Runs of dims of x and y with equal products; each run of x has one dim that is not 1.
static const asp_body *fold_view(asp_folder *f, const asp_node_info *n)
{
    const asp_type *x = type_of(f, n->in[0]), *y = type_of(f, n->first);
    const asp_body *at[ASP_MAX_RANK] = {NULL};
    uint32_t e = 0;
    for (uint32_t d = 0; d < x->rank; d++) {
        const asp_body *sum = asp_body_int(f, number(f, 0));
        asp_size product = number(f, 1);
        at[d] = sum;
        if (is_one(f, x->dim[d])) continue;
        for (; e < y->rank && !asp_size_equal(product, x->dim[d]); e++) {
            sum = asp_body_add(f, times(f, sum, y->dim[e]), index_of(f, y, e), number(f, 1));
            product = asp_size_mul(f->g, product, y->dim[e]);
        }
        if (!asp_size_equal(product, x->dim[d])) return NULL;
        at[d] = sum;
    }
    return asp_body_at(f, asp_fold(f, n->in[0]), at);
}

static const asp_body *fold_slice(asp_folder *f, const asp_node_info *n)
{
    const asp_range_attr *a = n->attr;
    const asp_type *y = type_of(f, n->first);
    const asp_body *at[ASP_MAX_RANK] = {NULL};
    for (uint32_t d = 0; d < y->rank; d++) at[d] = index_of(f, y, d);
    at[a->dim] = asp_body_add(f, at[a->dim], asp_body_int(f, a->start), number(f, 1));
    return asp_body_at(f, asp_fold(f, n->in[0]), at);
}

static const asp_body *fold_select(asp_folder *f, const asp_node_info *n)
{
    const asp_select_attr *a = n->attr;
    const asp_type *y = type_of(f, n->first);
    const asp_body *at[ASP_MAX_RANK] = {NULL};
    for (uint32_t d = 0; d <= y->rank; d++)
        at[d] = (int64_t)d == a->dim ? asp_body_int(f, a->at)
                                     : index_of(f, y, d - ((int64_t)d > a->dim));
    return asp_body_at(f, asp_fold(f, n->in[0]), at);
}

// ---- look-ups ----------------------------------------------------------------------------------

// The ids of a flattened x, i0 n1 n2 + i1 n2 + i2, as an index for each of its dims.  The last is
// an index of the ids themselves, no larger than its dim.
static bool unflatten(asp_folder *f, const asp_body *ids, const asp_type *ids_type,
                      const asp_type *x, const asp_body **at)
{
    const asp_body *rest = ids;
    asp_size stride = number(f, 1);
    for (uint32_t d = x->rank; d-- > 0;) {
        const asp_body *term = asp_body_int(f, number(f, 0));
        at[d] = term;
        if (is_one(f, x->dim[d])) continue;
        for (uint32_t i = 0; i < ids->n; i++) {
            const asp_body_term *t = &ids->term[i];
            if (t->look || t->div != 1 || !asp_size_equal(t->coef, stride)) continue;
            if (!asp_size_equal(ids_type->dim[t->dim], x->dim[d])) return false;
            term = asp_body_index(f, t->dim);
        }
        at[d] = term;
        rest = asp_body_add(f, rest, times(f, term, stride), number(f, -1));
        stride = asp_size_mul(f->g, stride, x->dim[d]);
    }
    return asp_body_is_int(f, rest, 0);
}

static const asp_body *fold_index_select(asp_folder *f, const asp_node_info *n)
{
    const int64_t dim = ((const asp_dim_attr *)n->attr)->dim;
    const asp_type *x = type_of(f, n->in[0]), *ids = type_of(f, n->in[1]);
    const asp_type *y = type_of(f, n->first);
    const asp_body *at[ASP_MAX_RANK] = {NULL}, *id_at[ASP_MAX_RANK] = {NULL};
    for (uint32_t d = 0; d < ids->rank; d++) id_at[d] = index_of(f, y, (uint32_t)dim + d);
    const asp_body *id = asp_body_at(f, asp_fold(f, n->in[1]), id_at);
    if (!id || id->kind != ASP_BODY_INT) return NULL;
    const asp_node_info *made = asp_val_node(f->g, n->in[0]);
    if (x->rank == 1 && made->op == ASP_OP_view) {
        if (!unflatten(f, id, y, type_of(f, made->in[0]), at)) return NULL;
        return asp_body_at(f, asp_fold(f, made->in[0]), at);
    }
    for (uint32_t d = 0; d < x->rank; d++)
        at[d] = (int64_t)d < dim   ? index_of(f, y, d)
                : (int64_t)d > dim ? index_of(f, y, d - 1 + ids->rank)
                                   : id;
    return asp_body_at(f, asp_fold(f, n->in[0]), at);
}

// A value that rises by c with each index has differences c; one that is c everywhere sums to c,
// 2c, ...
static const asp_body *fold_cumsum(asp_folder *f, const asp_node_info *n)
{
    const asp_scan_attr *a = n->attr;
    const asp_body *x = asp_fold(f, n->in[0]), *one = asp_body_int(f, number(f, 1));
    if (a->reverse || x->kind != ASP_BODY_INT || x->n != 0) return NULL;
    const asp_body *i = index_of(f, type_of(f, n->first), (uint32_t)a->dim);
    return times(f, asp_body_add(f, i, one, number(f, 1)), x->c);
}

static const asp_body *fold_diff(asp_folder *f, const asp_node_info *n)
{
    const uint32_t dim = (uint32_t)((const asp_dim_attr *)n->attr)->dim;
    const asp_body *x = asp_fold(f, n->in[0]), *step = asp_body_int(f, number(f, 0));
    const asp_body *at[ASP_MAX_RANK] = {NULL};
    if (x->kind != ASP_BODY_INT) return NULL;
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->term[i].look || x->term[i].dim != dim || x->term[i].div != 1) return NULL;
        step = asp_body_int(f, x->term[i].coef);
    }
    if (n->n_in == 1) return step;
    const asp_type *t = type_of(f, n->in[0]);
    for (uint32_t d = 0; d < t->rank; d++)
        at[d] = d == dim ? asp_body_int(f, number(f, 0)) : index_of(f, t, d);
    const asp_body *first = asp_body_at(f, x, at), *before = asp_fold(f, n->in[1]);
    const asp_body *jump = asp_body_add(f, first, before, number(f, -1));
    return jump && asp_body_equal(jump, step) && is_one(f, type_of(f, n->in[1])->dim[dim]) ? step
                                                                                           : NULL;
}

// ---- the table ---------------------------------------------------------------------------------

static const struct {
    asp_op op;
    fold_fn *fold;
} folds[] = {
    {ASP_OP_iota, fold_iota},
    {ASP_OP_constant, fold_constant},
    {ASP_OP_size_value, fold_size_value},
    {ASP_OP_cast, fold_cast},
    {ASP_OP_add, fold_add},
    {ASP_OP_sub, fold_sub},
    {ASP_OP_mul, fold_mul},
    {ASP_OP_add_scalar, fold_add_scalar},
    {ASP_OP_mul_scalar, fold_mul_scalar},
    {ASP_OP_neg, fold_neg},
    {ASP_OP_floor_divide, fold_floor_divide},
    {ASP_OP_eq, fold_eq},
    {ASP_OP_ne, fold_ne},
    {ASP_OP_le, fold_le},
    {ASP_OP_ge, fold_ge},
    {ASP_OP_lt, fold_lt},
    {ASP_OP_gt, fold_gt},
    {ASP_OP_logical_and, fold_and},
    {ASP_OP_logical_or, fold_or},
    {ASP_OP_logical_not, fold_not},
    {ASP_OP_where, fold_where},
    {ASP_OP_triangle, fold_triangle},
    {ASP_OP_expand, fold_expand},
    {ASP_OP_permute, fold_permute},
    {ASP_OP_view, fold_view},
    {ASP_OP_slice, fold_slice},
    {ASP_OP_select, fold_select},
    {ASP_OP_index_select, fold_index_select},
    {ASP_OP_cumsum, fold_cumsum},
    {ASP_OP_diff, fold_diff},
};

void asp_folder_init(asp_folder *f, asp_graph *g, asp_arena *arena)
{
    *f = (asp_folder){g, arena, ASP_NEW_ARRAY(arena, const asp_body *, g->vals.n), 0};
}

const asp_body *asp_fold(asp_folder *f, asp_val v)
{
    if (f->memo[v.i]) return f->memo[v.i];
    const asp_node_info *n = asp_val_node(f->g, v);
    const asp_body *x = NULL;
    if (f->depth == MAX_DEPTH) return asp_body_value(f, v);
    f->depth++;
    for (size_t i = 0; i < ASP_COUNT_OF(folds) && n->n_out == 1; i++)
        if (folds[i].op == n->op) x = folds[i].fold(f, n);
    f->depth--;
    return f->memo[v.i] = x ? x : asp_body_value(f, v);
}
