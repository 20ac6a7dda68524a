// Translations of ATen ops that move elements: views, slices, joins, look-ups, constants.
// Neighbours: aten.def (rows), aten_int.h (contract), op/shape.c, op/slice.c and op/index.c (what
// they become). SPDX-License-Identifier: Apache-2.0
#include "front/aten_int.h"

#define B(c) (&(c)->m->b)
#define G(c) ((c)->m->g)

// ---- views -------------------------------------------------------------------------------------

void aten_same(aten_call *c) { aten_give(c, c->arg[0].val); }

// The same elements in the declared shape: view, reshape, unsqueeze, squeeze, flatten.
void aten_view(aten_call *c) { aten_give(c, aten_reshape(c, c->arg[0].val, &c->type[0])); }

// view and reshape: what the arguments say must be what the file declares.
void aten_reshape_to(aten_call *c)
{
    const aten_arg *shape = &c->arg[1];
    bool agrees = shape->n == c->type[0].rank;
    for (uint32_t d = 0; agrees && d < shape->n; d++) {
        int64_t n;
        bool open = asp_size_is_num(G(c), shape->at[d].size, &n) && n == -1;
        agrees = open || asp_size_equal(shape->at[d].size, c->type[0].dim[d]);
    }
    if (!agrees) aten_refuse(c, "the shape asked for is not the declared one");
    aten_view(c);
}

void aten_expand(aten_call *c)
{
    if (!aten_ok(c)) return;
    aten_give(c, asp_build_expand_to(B(c), c->arg[0].val, &c->type[0]));
}

static asp_val swapped(aten_call *c, asp_val x, uint32_t i, uint32_t k)
{
    uint32_t rank = aten_type_of(c, x)->rank;
    int64_t perm[ASP_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++) perm[d] = d == i ? k : d == k ? i : d;
    return i == k ? x : asp_build_permute(B(c), x, rank, perm);
}

void aten_transpose(aten_call *c)
{
    uint32_t rank = aten_type_of(c, c->arg[0].val)->rank;
    uint32_t i = aten_dim_arg(c, 1, rank), k = aten_dim_arg(c, 2, rank);
    aten_give(c, swapped(c, c->arg[0].val, i, k));
}

void aten_permute(aten_call *c)
{
    uint32_t rank = aten_type_of(c, c->arg[0].val)->rank;
    int64_t perm[ASP_MAX_RANK] = {0};
    if (c->arg[1].n != rank) aten_refuse(c, "dims names %u of %u dimensions", c->arg[1].n, rank);
    for (uint32_t d = 0; aten_ok(c) && d < rank; d++)
        perm[d] = aten_dim(c, (int64_t)c->arg[1].at[d].num, rank);
    aten_give(c, asp_build_permute(B(c), c->arg[0].val, rank, perm));
}

void aten_movedim(aten_call *c)
{
    uint32_t rank = aten_type_of(c, c->arg[0].val)->rank, n = 0;
    uint32_t from = aten_dim_arg(c, 1, rank), to = aten_dim_arg(c, 2, rank);
    int64_t perm[ASP_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++) {
        if (n == from) n++;
        perm[d] = d == to ? from : n++;
    }
    if (aten_ok(c)) aten_give(c, asp_build_permute(B(c), c->arg[0].val, rank, perm));
}

// t (at most two dimensions), mT (the last two), numpy_T (all of them backwards).
void aten_transposed(aten_call *c)
{
    uint32_t rank = aten_type_of(c, c->arg[0].val)->rank;
    aten_give(c, rank < 2 ? c->arg[0].val : swapped(c, c->arg[0].val, rank - 2, rank - 1));
}

void aten_backwards(aten_call *c)
{
    uint32_t rank = aten_type_of(c, c->arg[0].val)->rank;
    int64_t perm[ASP_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++) perm[d] = rank - 1 - d;
    aten_give(c, rank < 2 ? c->arg[0].val : asp_build_permute(B(c), c->arg[0].val, rank, perm));
}

// ---- slices ------------------------------------------------------------------------------------

// A bound of a slice over n elements: null is `standard`, negative counts from the end, what is
// past the end is the end.
static asp_size bound(aten_call *c, uint32_t arg, asp_size n, asp_size standard)
{
    int64_t at, whole;
    if (!aten_given(c, arg)) return standard;
    asp_size s = c->arg[arg].size;
    if (!asp_size_is_num(G(c), s, &at)) return s;
    if (at == INT64_MAX) return n;
    if (at < 0) s = asp_size_add(G(c), n, s);
    if (!asp_size_is_num(G(c), n, &whole) || !asp_size_is_num(G(c), s, &at)) return s;
    return at < 0 ? (asp_size){0} : at > whole ? n : s;
}

// x[.., start::step, ..] where step divides the dimension: a column of (n / step, step).
static void strided(aten_call *c, uint32_t dim, asp_size start, asp_size end, int64_t step)
{
    asp_val x = c->arg[0].val;
    asp_type t = *aten_type_of(c, x);
    asp_size n = t.dim[dim], by = asp_size_num(G(c), step), rows;
    int64_t first;
    if (step < 1 || !asp_size_divides(G(c), by, n, &rows) || !asp_size_equal(end, n) ||
        !asp_size_is_num(G(c), start, &first) || first >= step || t.rank == ASP_MAX_RANK) {
        aten_refuse(c, "a step of %lld that does not divide the dimension into columns",
                    (long long)step);
        return;
    }
    memmove(&t.dim[dim + 2], &t.dim[dim + 1], (t.rank - dim - 1) * sizeof t.dim[0]);
    t.rank++;
    t.dim[dim] = rows;
    t.dim[dim + 1] = by;
    asp_val columns = asp_build_view(B(c), x, &t);
    aten_give(c, ASP_B1(B(c), select, (&(asp_select_attr){.dim = dim + 1, .at = start}), columns));
}

void aten_slice_range(aten_call *c)
{
    asp_val x = c->arg[0].val;
    const asp_type *t = aten_type_of(c, x);
    uint32_t dim = aten_dim_arg(c, 1, t->rank);
    int64_t step = aten_int(c, 4);
    if (!aten_ok(c)) return;
    asp_size n = t->dim[dim], start = bound(c, 2, n, (asp_size){0}), end = bound(c, 3, n, n);
    if (step != 1)
        strided(c, dim, start, end, step);
    else
        aten_give(c, aten_slice(c, x, dim, start, asp_size_sub(G(c), end, start)));
}

void aten_select(aten_call *c)
{
    asp_val x = c->arg[0].val;
    const asp_type *t = aten_type_of(c, x);
    uint32_t dim = aten_dim_arg(c, 1, t->rank);
    if (!aten_ok(c)) return;
    asp_select_attr a = {.dim = dim, .at = bound(c, 2, t->dim[dim], (asp_size){0})};
    aten_give(c, ASP_B1(B(c), select, &a, x));
}

void aten_narrow(aten_call *c)
{
    asp_val x = c->arg[0].val;
    const asp_type *t = aten_type_of(c, x);
    uint32_t dim = aten_dim_arg(c, 1, t->rank);
    if (!aten_ok(c)) return;
    asp_size start = bound(c, 2, t->dim[dim], (asp_size){0});
    aten_give(c, aten_slice(c, x, dim, start, c->arg[3].size));
}

// Pieces along dim, as the file declares them: equal ones keep their axis (a packed q, k, v).
static void pieces(aten_call *c, uint32_t dim)
{
    asp_val x = c->arg[0].val;
    asp_pieces_attr sizes = {.dim = dim};
    asp_size start = {0};
    bool equal = true;
    for (uint32_t i = 0; i < c->n_types; i++) {
        if (dim >= c->type[i].rank) aten_refuse(c, "a piece has too few dimensions");
        if (!aten_ok(c)) return;
        equal &= asp_size_equal(c->type[i].dim[dim], c->type[0].dim[dim]);
        if (i < ASP_MAX_RANK) sizes.sizes.at[sizes.sizes.n++] = c->type[i].dim[dim];
    }
    bool one_node = c->n_types <= (equal ? ASP_MAX_OPERANDS : ASP_MAX_RANK);
    asp_split_attr parts = {.dim = dim, .parts = c->n_types};
    asp_val first = {0};
    if (one_node && equal) first = ASP_B1(B(c), split, &parts, x);
    if (one_node && !equal) first = ASP_B1(B(c), split_sizes, &sizes, x);
    for (uint32_t i = 0; i < c->n_types; i++) {
        asp_size length = c->type[i].dim[dim];
        aten_give(c, one_node ? asp_build_result(B(c), first, i)
                              : aten_slice(c, x, dim, start, length));
        start = asp_size_add(G(c), start, length);
    }
}

void aten_split(aten_call *c)
{
    uint32_t dim = aten_dim_arg(c, 2, aten_type_of(c, c->arg[0].val)->rank);
    if (aten_ok(c)) pieces(c, dim);
}

void aten_unbind(aten_call *c)
{
    asp_val x = c->arg[0].val;
    uint32_t dim = aten_dim_arg(c, 1, aten_type_of(c, x)->rank);
    for (uint32_t i = 0; aten_ok(c) && i < c->n_types; i++) {
        asp_select_attr a = {.dim = dim, .at = asp_size_num(G(c), i)};
        aten_give(c, ASP_B1(B(c), select, &a, x));
    }
}

// ---- joins -------------------------------------------------------------------------------------

// Any number of operands, ASP_MAX_OPERANDS at a time.
static asp_val joined(aten_call *c, const asp_val *in, uint32_t n, uint32_t dim)
{
    asp_val group[ASP_MAX_OPERANDS];
    uint32_t step = 1, n_groups = 0;
    if (n == 1) return in[0];
    if (n <= ASP_MAX_OPERANDS)
        return asp_build(B(c), ASP_OP_cat, &(asp_dim_attr){.dim = dim}, n, in);
    while (step < (n + ASP_MAX_OPERANDS - 1) / ASP_MAX_OPERANDS) step *= ASP_MAX_OPERANDS;
    for (uint32_t i = 0; i < n; i += step)
        group[n_groups++] = joined(c, in + i, n - i < step ? n - i : step, dim);
    return joined(c, group, n_groups, dim);
}

// The tensors of a list in the result's dtype.
static asp_val *list_of(aten_call *c, const aten_arg *list)
{
    asp_val *in = ASP_NEW_ARRAY(&c->m->arena, asp_val, list->n ? list->n : 1);
    if (list->n == 0) aten_refuse(c, "an empty list");
    for (uint32_t i = 0; aten_ok(c) && i < list->n; i++) {
        if (list->at[i].kind != ATEN_TENSOR) aten_refuse(c, "no tensor in the list");
        in[i] = aten_cast(c, list->at[i].val, c->type[0].dtype);
    }
    return in;
}

void aten_cat(aten_call *c)
{
    asp_val *in = list_of(c, &c->arg[0]);
    uint32_t dim = aten_dim_arg(c, 1, c->type[0].rank);
    if (aten_ok(c)) aten_give(c, joined(c, in, c->arg[0].n, dim));
}

void aten_stack(aten_call *c)
{
    asp_val *in = list_of(c, &c->arg[0]);
    uint32_t dim = aten_dim_arg(c, 1, c->type[0].rank);
    asp_type one = c->type[0];
    if (!aten_ok(c)) return;
    one.dim[dim] = asp_size_num(G(c), 1);
    for (uint32_t i = 0; i < c->arg[0].n; i++) in[i] = asp_build_view(B(c), in[i], &one);
    aten_give(c, joined(c, in, c->arg[0].n, dim));
}

void aten_repeat_interleave(aten_call *c)
{
    uint32_t dim = aten_dim_arg(c, 2, aten_type_of(c, c->arg[0].val)->rank);
    asp_repeat_attr a = {.dim = dim, .times = aten_int(c, 1)};
    if (aten_ok(c)) aten_give(c, ASP_B1(B(c), repeat, &a, c->arg[0].val));
}

// flip over each dim of the list
void aten_flip(aten_call *c)
{
    asp_val x = c->arg[0].val;
    for (uint32_t i = 0; i < c->arg[1].n; i++) {
        asp_dim_attr a = {.dim = aten_dim(c, (int64_t)c->arg[1].at[i].num, c->type[0].rank)};
        if (aten_ok(c)) x = ASP_B1(B(c), flip, &a, x);
    }
    aten_give(c, x);
}

// roll(x, shifts, dims), a shift for each dim
void aten_roll(aten_call *c)
{
    asp_val x = c->arg[0].val;
    if (c->arg[1].n != c->arg[2].n || c->arg[1].n == 0) aten_refuse(c, "a shift for each of dims");
    for (uint32_t i = 0; aten_ok(c) && i < c->arg[1].n; i++) {
        asp_roll_attr a = {.dim = aten_dim(c, (int64_t)c->arg[2].at[i].num, c->type[0].rank),
                           .by = (int64_t)c->arg[1].at[i].num};
        if (aten_ok(c)) x = ASP_B1(B(c), roll, &a, x);
    }
    aten_give(c, x);
}

void aten_triangle(aten_call *c)
{
    asp_triangle_attr a = {.diagonal = aten_int(c, 1),
                           .upper = strncmp(c->row->overload, "aten.triu", 9) == 0};
    if (aten_ok(c)) aten_give(c, ASP_B1(B(c), triangle, &a, c->arg[0].val));
}

// pad = [left, right] of the last dim, then of the one before it, ...
void aten_pad(aten_call *c)
{
    asp_val x = c->arg[0].val;
    uint32_t rank = aten_type_of(c, x)->rank;
    const aten_arg *pad = &c->arg[1];
    double value = aten_given(c, 3) ? aten_f64(c, 3) : 0;
    if (strcmp(c->arg[2].text, "constant") != 0)
        aten_refuse(c, "mode \"%.40s\"; only \"constant\" is supported", c->arg[2].text);
    if (pad->n % 2 || pad->n / 2 > rank) aten_refuse(c, "%u numbers to pad", pad->n);
    for (uint32_t i = 0; aten_ok(c) && i < pad->n; i += 2) {
        uint32_t dim = rank - 1 - i / 2;
        asp_size left = pad->at[i].size, right = pad->at[i + 1].size, n;
        int64_t l = 0, r = 0;
        bool plain = asp_size_is_num(G(c), left, &l) && asp_size_is_num(G(c), right, &r);
        if (plain && l == 0 && r == 0) continue;
        n = aten_type_of(c, x)->dim[dim];
        if (l < 0 || r < 0) { // a negative one cuts
            asp_size start = asp_size_num(G(c), l < 0 ? -l : 0);
            n = asp_size_add(G(c), n, asp_size_num(G(c), (l < 0 ? l : 0) + (r < 0 ? r : 0)));
            x = aten_slice(c, x, dim, start, n);
            left = l < 0 ? (asp_size){0} : left;
            right = r < 0 ? (asp_size){0} : right;
            if (l <= 0 && r <= 0) continue;
        }
        asp_pad_attr a = {.dim = dim, .left = left, .right = right, .value = value};
        x = ASP_B1(B(c), pad, &a, x);
    }
    aten_give(c, x);
}

// ---- look-ups ----------------------------------------------------------------------------------

// ATen has the table first.
void aten_embedding(aten_call *c)
{
    asp_embedding_attr a = {.padding = aten_int(c, 2)};
    if (aten_ok(c)) aten_give(c, ASP_B2(B(c), embedding, &a, c->arg[1].val, c->arg[0].val));
}

// gather, index_select: (x, dim, ids)
void aten_look_up(aten_call *c)
{
    asp_dim_attr a = {.dim = aten_dim_arg(c, 1, aten_type_of(c, c->arg[0].val)->rank)};
    if (!aten_ok(c)) return;
    asp_val in[] = {c->arg[0].val, c->arg[2].val};
    aten_give(c, asp_build(B(c), c->row->op, &a, 2, in));
}

void aten_scatter(aten_call *c)
{
    asp_dim_attr a = {.dim = aten_dim_arg(c, 1, aten_type_of(c, c->arg[0].val)->rank)};
    if (!aten_ok(c)) return;
    asp_val src = c->arg[3].val;
    if (c->arg[3].kind == ATEN_NUMBER) {
        src = aten_scalar(c, &c->arg[3], c->type[0].dtype);
        if (aten_ok(c)) src = asp_build_expand_to(B(c), src, aten_type_of(c, c->arg[2].val));
    }
    aten_give(c, ASP_B3(B(c), scatter, &a, c->arg[0].val, c->arg[2].val, src));
}

// Is v 0, 1, 2, ... along dimension *out_dim, in a shape with 1 elsewhere?
static bool counts_along(const aten_call *c, asp_val v, uint32_t *out_dim)
{
    const asp_type *t = asp_val_type(G(c), v);
    const asp_node_info *node = asp_val_node(G(c), v);
    uint32_t long_dims = 0;
    *out_dim = 0;
    for (uint32_t d = 0; d < t->rank; d++) {
        int64_t n;
        if (asp_size_is_num(G(c), t->dim[d], &n) && n == 1) continue;
        long_dims++;
        *out_dim = d;
    }
    if (long_dims != 1) return false;
    while (node->op == ASP_OP_view) node = asp_val_node(G(c), node->in[0]);
    return node->op == ASP_OP_iota && ((const asp_iota_attr *)node->attr)->start == 0;
}

// x[i0, i1, ...] where each index counts along a dimension of its own: x itself, its dims put
// there.  Masks are looked up so: padding[arange(B)[:, None, None, None], arange(S)].
static bool index_is_a_view(aten_call *c, asp_val *out)
{
    asp_val x = c->arg[0].val;
    asp_type t = *aten_type_of(c, x), to = c->type[0];
    uint32_t at = 0, next = 0;
    to.dtype = t.dtype;
    for (uint32_t k = 0; k < t.rank; k++, next = at + 1) {
        asp_val index = c->arg[1].at[k].val;
        const asp_type *i = asp_val_type(G(c), index);
        if (!counts_along(c, index, &at)) return false;
        if (!asp_size_equal(i->dim[at], t.dim[k])) return false;
        at += to.rank - i->rank;
        if (at < next) return false; // another order: left to the look-up
    }
    if (!asp_size_equal(asp_type_count(G(c), &t), asp_type_count(G(c), &to))) return false;
    *out = asp_build_view(B(c), x, &to);
    return true;
}

// x[i0, i1, ...] with an index for each dim: a look-up in the flat tensor at i0 * n1 + i1, ...
static asp_val look_up_flat(aten_call *c)
{
    asp_val x = c->arg[0].val, at = {0};
    asp_type t = *aten_type_of(c, x);
    asp_type flat = {.dtype = t.dtype, .rank = 1, .dim = {asp_type_count(G(c), &t)}};
    for (uint32_t k = 0; aten_ok(c) && k < t.rank; k++) {
        asp_val i = c->arg[1].at[k].val;
        if (k > 0) {
            aten_arg n = {.kind = ATEN_NUMBER, .size = t.dim[k]};
            n.is_const = asp_size_is_num(G(c), t.dim[k], &(int64_t){0});
            asp_val by = aten_scalar(c, &n, ASP_I64);
            i = ASP_B2(B(c), add, NULL, ASP_B2(B(c), mul, NULL, at, by), i);
        }
        at = i;
    }
    x = asp_build_view(B(c), x, &flat);
    return ASP_B2(B(c), index_select, NULL, x, at);
}

void aten_index(aten_call *c)
{
    const aten_arg *list = &c->arg[1];
    uint32_t rank = aten_type_of(c, c->arg[0].val)->rank, n = 0, first = 0;
    asp_val out;
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->at[i].kind != ATEN_TENSOR) continue;
        if (n++ == 0) first = i;
        if (aten_type_of(c, list->at[i].val)->dtype != ASP_I64)
            aten_refuse(c, "an index that is a mask selects a number of elements that depends on "
                           "data; use torch.where or masked_fill");
    }
    if (!aten_ok(c)) return;
    if (n == 1 && list->n <= rank) {
        asp_dim_attr a = {.dim = first};
        aten_give(c, ASP_B2(B(c), index_select, &a, c->arg[0].val, list->at[first].val));
    } else if (n != rank || list->n != rank)
        aten_refuse(c, "%u indices of %u dimensions; one index or all of them are supported", n,
                    rank);
    else if (index_is_a_view(c, &out))
        aten_give(c, out);
    else
        aten_give(c, look_up_flat(c));
}

void aten_one_hot(aten_call *c)
{
    asp_one_hot_attr a = {.classes = aten_int(c, 1), .to = ASP_I64};
    if (a.classes < 1) aten_refuse(c, "num_classes must be given: the size may not depend on data");
    if (aten_ok(c)) aten_give(c, ASP_B1(B(c), one_hot, &a, c->arg[0].val));
}

// ---- constants ---------------------------------------------------------------------------------

static void filled(aten_call *c, double value)
{
    if (aten_ok(c)) aten_give(c, asp_build_constant(B(c), value, &c->type[0]));
}

void aten_zeros(aten_call *c) { filled(c, 0); }
void aten_ones(aten_call *c) { filled(c, 1); }

// full(size, value), full_like and new_full(x, size, value)
void aten_full(aten_call *c)
{
    uint32_t at = 0;
    while (at < ATEN_MAX_ARGS - 1 && c->arg[at].kind != ATEN_NUMBER && c->arg[at].kind != ATEN_BOOL)
        at++;
    if (c->arg[at].kind == ATEN_NUMBER && !c->arg[at].is_const && c->type[0].rank == 0) {
        aten_give(c, aten_scalar(c, &c->arg[at], c->type[0].dtype)); // a number made of sizes
        return;
    }
    filled(c, c->arg[at].kind == ATEN_BOOL ? c->arg[at].flag : aten_f64(c, at));
}

// {"op": "constant", "args": [number or list]}: every element alike, or counting up by one.
void aten_constant(aten_call *c)
{
    const aten_arg *v = &c->arg[0];
    const aten_arg *item = v->kind == ATEN_LIST ? v->at : v;
    uint32_t n = v->kind == ATEN_LIST ? v->n : 1;
    bool alike = n > 0, counting = c->type[0].rank == 1 && c->type[0].dtype == ASP_I64 && n > 0;
    double value[2] = {0};
    for (uint32_t i = 0; i < n; i++) {
        bool number = item[i].kind == ATEN_NUMBER && item[i].is_const;
        if (!number && item[i].kind != ATEN_BOOL) {
            aten_refuse(c, "a constant of what is no number");
            return;
        }
        value[i > 0] = number ? item[i].num : item[i].flag;
        alike &= value[i > 0] == value[0];
        counting &= value[i > 0] == value[0] + i;
    }
    if (alike)
        filled(c, value[0]);
    else if (counting)
        aten_give(c, asp_build_declared(B(c), ASP_OP_iota,
                                        &(asp_iota_attr){.start = (int64_t)value[0]}, &c->type[0]));
    else
        aten_refuse(c, "a constant of different values; make it a buffer of the model");
}

// arange(start, end, step): counted in whole numbers.
void aten_arange(aten_call *c)
{
    bool has_start = strcmp(c->row->overload, "aten.arange.default") != 0;
    asp_type count = c->type[0];
    count.dtype = ASP_I64;
    int64_t step = strcmp(c->row->overload, "aten.arange.start_step") == 0 ? aten_int(c, 2) : 1;
    if (!aten_ok(c)) return;
    const aten_arg *start = &c->arg[0];
    int64_t from = 0;
    bool plain = !has_start || (start->is_const && !start->is_float);
    if (plain && has_start) from = (int64_t)start->num;
    asp_iota_attr a = {.start = step == 1 ? from : 0};
    asp_val v = asp_build_declared(B(c), ASP_OP_iota, &a, &count);
    if (step != 1) {
        aten_arg by = {.kind = ATEN_NUMBER, .is_const = true, .num = (double)step};
        aten_arg at = {.kind = ATEN_NUMBER, .is_const = true, .num = (double)from};
        v = ASP_B2(B(c), mul, NULL, v, aten_scalar(c, &by, ASP_I64));
        if (from) v = ASP_B2(B(c), add, NULL, v, aten_scalar(c, &at, ASP_I64));
    }
    if (!plain) v = ASP_B2(B(c), add, NULL, v, aten_scalar(c, start, ASP_I64));
    aten_give(c, aten_cast(c, v, c->type[0].dtype));
}
