// Ops that cut a dimension, join several, or move elements along one: slice, select, pad, cat,
// split, flip, roll, shift.  Neighbours: ir/op.def (rows), kern/ref/slice.c, kern/slice.c (fast).
//
// Where the tokens stand in the dimension that is cut, the op needs it whole.  What could do
// without, over a split sequence:
//   halo     slice with an offset, pad, shift, diff: rows of the neighbour (pad whose reader is a
//            slice back, or a window, is one op with it)
//   select   select: the owner's value, else 0, and a sum over ranks
//   none     flip and roll are permutations of whole shards; cat and split lay them out anew
// SPDX-License-Identifier: Apache-2.0
#include "op/op_int.h"

// ---- what the sections share -------------------------------------------------------------------

// Is s known to lie below n?  Sizes with symbols are looked at when the plan is made.
static bool known_below(asp_graph *g, asp_size s, int64_t n)
{
    int64_t value;
    return asp_size_is_num(g, s, &value) && value < n;
}

// Dims of operand `in` and result `out` share letters that may be split, but for dim, which is
// whole on both sides; where its size changes, it is not the same axis.
static void rule_along(asp_rule_builder *b, uint32_t in, uint32_t out, int64_t dim)
{
    const asp_type *x = asp_rule_type(b, in), *y = asp_rule_result(b, out);
    for (uint32_t d = 0; d < x->rank; d++) {
        bool cut = d == (uint32_t)dim;
        asp_letter_kind kind = cut ? ASP_LETTER_WHOLE : ASP_LETTER_SPLIT;
        uint8_t c = asp_rule_letter(b, kind, x->dim[d]);
        asp_rule_put(b, &b->rule->in[in][d], c);
        if (!asp_size_equal(x->dim[d], y->dim[d])) c = asp_rule_letter(b, kind, y->dim[d]);
        asp_rule_put(b, &b->rule->out[out][d], c);
    }
}

static asp_type without_dim(const asp_type *x, int64_t dim)
{
    asp_type t = *x;
    t.rank--;
    memmove(&t.dim[dim], &t.dim[dim + 1], (t.rank - (size_t)dim) * sizeof t.dim[0]);
    return t;
}

static asp_type with_one(asp_graph *g, const asp_type *x, int64_t dim)
{
    asp_type t = *x;
    memmove(&t.dim[dim + 1], &t.dim[dim], (t.rank - (size_t)dim) * sizeof t.dim[0]);
    t.dim[dim] = asp_size_num(g, 1);
    t.rank++;
    return t;
}

static asp_val build_slice(asp_builder *b, asp_val x, int64_t dim, asp_size start, asp_size end)
{
    return ASP_B1(b, slice, (&(asp_range_attr){.dim = dim, .start = start, .end = end}), x);
}

static asp_val build_pad(asp_builder *b, asp_val x, int64_t dim, asp_size left, asp_size right)
{
    return ASP_B1(b, pad, (&(asp_pad_attr){.dim = dim, .left = left, .right = right}), x);
}

// ---- slice, select -----------------------------------------------------------------------------

// y = x[.., start : end, ..]
asp_status asp_slice_infer(asp_infer *in)
{
    const asp_range_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, out.rank));
    asp_size n = out.dim[a->dim], length = asp_size_sub(in->g, a->end, a->start);
    if (known_below(in->g, a->start, 0) || known_below(in->g, length, 1) ||
        known_below(in->g, asp_size_sub(in->g, n, a->end), 0))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "start = %s, end = %s is no part of %s elements",
                              asp_size_str(in->g, a->start), asp_size_str(in->g, a->end),
                              asp_size_str(in->g, n));
    out.dim[a->dim] = length;
    return asp_result(in, &out);
}

void asp_slice_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_range_attr *a = ASP_ATTR(b, n, range);
    asp_size whole = asp_val_type(b->g, asp_in(b, n, 0))->dim[a->dim];
    out_in[0] = build_pad(b, cotangent[0], a->dim, a->start, asp_size_sub(b->g, whole, a->end));
}

// A slice of everything is the identity.
void asp_slice_rule(asp_rule_builder *b)
{
    const asp_range_attr *a = b->info->attr;
    if (asp_size_equal(asp_rule_type(b, 0)->dim[a->dim], asp_rule_result(b, 0)->dim[a->dim]))
        asp_rule_text(b, "...->...");
    else
        rule_along(b, 0, 0, a->dim);
}

// y = x[.., at, ..]
asp_status asp_select_infer(asp_infer *in)
{
    const asp_select_attr *a = in->attr;
    const asp_type *x = &in->in[0];
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, x->rank));
    asp_size behind = asp_size_sub(in->g, x->dim[a->dim], a->at);
    if (known_below(in->g, a->at, 0) || known_below(in->g, behind, 1))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "at = %s is none of %s elements",
                              asp_size_str(in->g, a->at), asp_size_str(in->g, x->dim[a->dim]));
    asp_type out = without_dim(x, a->dim);
    return asp_result(in, &out);
}

void asp_select_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_select_attr *a = ASP_ATTR(b, n, select);
    asp_type shape = *asp_val_type(b->g, asp_node_result(b->g, n, 0));
    asp_size end = asp_size_add(b->g, a->at, asp_size_num(b->g, 1));
    out[0] = asp_build_view(b, build_slice(b, asp_in(b, n, 0), a->dim, a->at, end), &shape);
}

// Letters of x but for dim, which is whole, on the results that lack it.
static void rule_drop(asp_rule_builder *b, int64_t dim)
{
    const asp_type *x = asp_rule_type(b, 0);
    for (uint32_t d = 0, o = 0; d < x->rank; d++) {
        bool gone = d == (uint32_t)dim;
        asp_letter_kind kind = gone ? ASP_LETTER_WHOLE : ASP_LETTER_SPLIT;
        uint8_t c = asp_rule_letter(b, kind, x->dim[d]);
        asp_rule_put(b, &b->rule->in[0][d], c);
        for (uint32_t i = 0; !gone && i < b->info->n_out; i++)
            asp_rule_put(b, &b->rule->out[i][o], c);
        o += !gone;
    }
}

void asp_select_rule(asp_rule_builder *b)
{
    rule_drop(b, ((const asp_select_attr *)b->info->attr)->dim);
}

// ---- pad ---------------------------------------------------------------------------------------

// x with left and right elements of value around it along dim.
asp_status asp_pad_infer(asp_infer *in)
{
    const asp_pad_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, out.rank));
    if (known_below(in->g, a->left, 0) || known_below(in->g, a->right, 0))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "left = %s, right = %s; none may be negative",
                              asp_size_str(in->g, a->left), asp_size_str(in->g, a->right));
    asp_size both = asp_size_add(in->g, a->left, a->right);
    out.dim[a->dim] = asp_size_add(in->g, out.dim[a->dim], both);
    return asp_result(in, &out);
}

void asp_pad_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_pad_attr *a = ASP_ATTR(b, n, pad);
    asp_size size = asp_val_type(b->g, asp_in(b, n, 0))->dim[a->dim];
    out_in[0] = build_slice(b, cotangent[0], a->dim, a->left, asp_size_add(b->g, a->left, size));
}

void asp_pad_rule(asp_rule_builder *b)
{
    const asp_pad_attr *a = b->info->attr;
    if (asp_size_equal(asp_rule_type(b, 0)->dim[a->dim], asp_rule_result(b, 0)->dim[a->dim]))
        asp_rule_text(b, "...->...");
    else
        rule_along(b, 0, 0, a->dim);
}

// ---- cat, stack --------------------------------------------------------------------------------

// Operands one behind the other along dim.
asp_status asp_cat_infer(asp_infer *in)
{
    const asp_dim_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, out.rank));
    for (uint32_t i = 1; i < in->n_in; i++) {
        ASP_TRY(asp_want_dtype(in, i, out.dtype));
        ASP_TRY(asp_want_rank(in, i, out.rank, out.rank));
        for (int d = 0; d < (int)out.rank; d++)
            if (d != a->dim) ASP_TRY(asp_want_same_dim(in, i, d, 0, d));
        out.dim[a->dim] = asp_size_add(in->g, out.dim[a->dim], in->in[i].dim[a->dim]);
    }
    return asp_result(in, &out);
}

void asp_cat_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_dim_attr *a = ASP_ATTR(b, n, dim);
    asp_size start = asp_size_num(b->g, 0);
    for (uint32_t i = 0; i < asp_node_at(b->g, n)->n_in; i++) {
        asp_size size = asp_val_type(b->g, asp_in(b, n, i))->dim[a->dim];
        asp_size end = asp_size_add(b->g, start, size);
        out_in[i] = build_slice(b, cotangent[0], a->dim, start, end);
        start = end;
    }
}

// Every operand has the letters of the result, but for a whole one of its own in dim.
void asp_cat_rule(asp_rule_builder *b)
{
    const asp_dim_attr *a = b->info->attr;
    const asp_type *y = asp_rule_result(b, 0);
    for (uint32_t d = 0; d < y->rank; d++) {
        bool along = d == (uint32_t)a->dim;
        asp_letter_kind kind = along ? ASP_LETTER_WHOLE : ASP_LETTER_SPLIT;
        uint8_t c = asp_rule_letter(b, kind, y->dim[d]);
        asp_rule_put(b, &b->rule->out[0][d], c);
        for (uint32_t i = 0; i < b->info->n_in; i++) {
            if (along) c = asp_rule_letter(b, kind, asp_rule_type(b, i)->dim[d]);
            asp_rule_put(b, &b->rule->in[i][d], c);
        }
    }
}

// Operands of one shape side by side along a new dim.
asp_status asp_stack_infer(asp_infer *in)
{
    const asp_dim_attr *a = in->attr;
    if (in->in[0].rank == ASP_MAX_RANK)
        return asp_infer_fail(in, ASP_ERR_LIMIT, "operand 0 is %s; no dimension can be added",
                              asp_type_str(in->g, &in->in[0]));
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, in->in[0].rank + 1));
    for (uint32_t i = 1; i < in->n_in; i++) ASP_TRY(asp_want_same_type(in, i, 0));
    asp_type out = with_one(in->g, &in->in[0], a->dim);
    out.dim[a->dim] = asp_size_num(in->g, in->n_in);
    return asp_result(in, &out);
}

void asp_stack_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_dim_attr *a = ASP_ATTR(b, n, dim);
    const uint32_t n_in = asp_node_at(b->g, n)->n_in;
    asp_type x = *asp_val_type(b->g, asp_in(b, n, 0)), one = with_one(b->g, &x, a->dim);
    asp_val in[ASP_MAX_OPERANDS];
    for (uint32_t i = 0; i < n_in; i++) in[i] = asp_build_view(b, asp_in(b, n, i), &one);
    out[0] = asp_build(b, ASP_OP_cat, a, n_in, in);
}

void asp_stack_rule(asp_rule_builder *b)
{
    const asp_dim_attr *a = b->info->attr;
    const asp_type *y = asp_rule_result(b, 0);
    for (uint32_t d = 0, k = 0; d < y->rank; d++) {
        bool added = d == (uint32_t)a->dim;
        asp_letter_kind kind = added ? ASP_LETTER_WHOLE : ASP_LETTER_SPLIT;
        uint8_t c = asp_rule_letter(b, kind, y->dim[d]);
        asp_rule_put(b, &b->rule->out[0][d], c);
        for (uint32_t i = 0; !added && i < b->info->n_in; i++)
            asp_rule_put(b, &b->rule->in[i][k], c);
        k += !added;
    }
}

// ---- split, unbind -----------------------------------------------------------------------------

static asp_status want_parts(const asp_infer *in, int64_t parts)
{
    if (parts >= 1 && parts <= ASP_MAX_OPERANDS) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_LIMIT, "%lld pieces; 1 to %d are possible", (long long)parts,
                          ASP_MAX_OPERANDS);
}

// x in parts equal pieces along dim.
asp_status asp_split_infer(asp_infer *in)
{
    const asp_split_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, out.rank));
    ASP_TRY(want_parts(in, a->parts));
    int64_t n;
    if (asp_size_is_num(in->g, out.dim[a->dim], &n) && n % a->parts)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "%lld elements have no %lld equal pieces",
                              (long long)n, (long long)a->parts);
    ASP_TRY(asp_size_div(in->g, out.dim[a->dim], asp_size_num(in->g, a->parts), &out.dim[a->dim]));
    for (int64_t i = 0; i < a->parts; i++) ASP_TRY(asp_result(in, &out));
    return ASP_OK;
}

// Pieces without a cotangent count as zeros.
static asp_val cat_pieces(asp_builder *b, asp_node n, const asp_val *cotangent, int64_t dim)
{
    const uint32_t n_out = asp_node_at(b->g, n)->n_out;
    asp_val in[ASP_MAX_OPERANDS];
    for (uint32_t i = 0; i < n_out; i++) {
        asp_type t = *asp_val_type(b->g, asp_out(b, n, i));
        in[i] = cotangent[i].i ? cotangent[i] : asp_build_constant(b, 0, &t);
    }
    return asp_build(b, ASP_OP_cat, &(asp_dim_attr){.dim = dim}, n_out, in);
}

void asp_split_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = cat_pieces(b, n, cotangent, ASP_ATTR(b, n, split)->dim);
}

// The dim is (t d) and every piece has d: q, k and v of a packed projection share their heads.
void asp_split_rule(asp_rule_builder *b)
{
    const asp_split_attr *a = b->info->attr;
    const asp_type *x = asp_rule_type(b, 0), *y = asp_rule_result(b, 0);
    for (uint32_t d = 0; d < x->rank; d++) {
        if (d == (uint32_t)a->dim) {
            asp_size parts = asp_size_num(b->g, a->parts);
            asp_rule_put(b, &b->rule->in[0][d], asp_rule_letter(b, ASP_LETTER_WHOLE, parts));
        }
        uint8_t c = asp_rule_letter(b, ASP_LETTER_SPLIT, y->dim[d]);
        asp_rule_put(b, &b->rule->in[0][d], c);
        for (uint32_t i = 0; i < b->info->n_out; i++) asp_rule_put(b, &b->rule->out[i][d], c);
    }
}

// x in pieces of the given sizes along dim.
asp_status asp_split_sizes_infer(asp_infer *in)
{
    const asp_pieces_attr *a = in->attr;
    asp_type out = in->in[0];
    asp_size sum = asp_size_num(in->g, 0);
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, out.rank));
    ASP_TRY(want_parts(in, a->sizes.n));
    for (uint32_t i = 0; i < a->sizes.n; i++) {
        if (known_below(in->g, a->sizes.at[i], 1))
            return asp_infer_fail(in, ASP_ERR_SHAPE, "piece %u has %s elements", i,
                                  asp_size_str(in->g, a->sizes.at[i]));
        sum = asp_size_add(in->g, sum, a->sizes.at[i]);
        out.dim[a->dim] = a->sizes.at[i];
        ASP_TRY(asp_result(in, &out));
    }
    if (asp_size_equal(sum, in->in[0].dim[a->dim])) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_SHAPE, "the pieces have %s elements, dimension %lld has %s",
                          asp_size_str(in->g, sum), (long long)a->dim,
                          asp_size_str(in->g, in->in[0].dim[a->dim]));
}

void asp_split_sizes_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = cat_pieces(b, n, cotangent, ASP_ATTR(b, n, pieces)->dim);
}

void asp_split_sizes_rule(asp_rule_builder *b)
{
    const asp_pieces_attr *a = b->info->attr;
    const asp_type *x = asp_rule_type(b, 0);
    for (uint32_t d = 0; d < x->rank; d++) {
        bool along = d == (uint32_t)a->dim;
        asp_letter_kind kind = along ? ASP_LETTER_WHOLE : ASP_LETTER_SPLIT;
        uint8_t c = asp_rule_letter(b, kind, x->dim[d]);
        asp_rule_put(b, &b->rule->in[0][d], c);
        for (uint32_t i = 0; i < b->info->n_out; i++) {
            if (along) c = asp_rule_letter(b, kind, asp_rule_result(b, i)->dim[d]);
            asp_rule_put(b, &b->rule->out[i][d], c);
        }
    }
}

// One result for each index of dim.
asp_status asp_unbind_infer(asp_infer *in)
{
    const asp_dim_attr *a = in->attr;
    const asp_type *x = &in->in[0];
    int64_t n;
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, x->rank));
    if (!asp_size_is_num(in->g, x->dim[a->dim], &n))
        return asp_infer_fail(in, ASP_ERR_SHAPE,
                              "dimension %lld of %s is no plain number; use select",
                              (long long)a->dim, asp_type_str(in->g, x));
    ASP_TRY(want_parts(in, n));
    asp_type out = without_dim(x, a->dim);
    for (int64_t i = 0; i < n; i++) ASP_TRY(asp_result(in, &out));
    return ASP_OK;
}

void asp_unbind_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const uint32_t n_out = asp_node_at(b->g, n)->n_out;
    asp_type shape = *asp_val_type(b->g, asp_node_result(b->g, n, 0));
    asp_split_attr a = {.dim = ASP_ATTR(b, n, dim)->dim, .parts = n_out};
    asp_val first = ASP_B1(b, split, &a, asp_in(b, n, 0));
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = asp_build_view(b, asp_build_result(b, first, i), &shape);
}

void asp_unbind_rule(asp_rule_builder *b)
{
    rule_drop(b, ((const asp_dim_attr *)b->info->attr)->dim);
}

// ---- flip, roll, shift -------------------------------------------------------------------------

asp_status asp_flip_infer(asp_infer *in)
{
    const asp_dim_attr *a = in->attr;
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, in->in[0].rank));
    return asp_result_like(in, 0);
}

void asp_flip_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B1(b, flip, ASP_ATTR(b, n, dim), cotangent[0]);
}

void asp_flip_rule(asp_rule_builder *b)
{
    rule_along(b, 0, 0, ((const asp_dim_attr *)b->info->attr)->dim);
}

static asp_status want_by(const asp_infer *in, int64_t by)
{
    const int64_t most = INT64_C(1) << 48;
    if (by >= -most && by <= most) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_LIMIT, "by = %lld is beyond any size", (long long)by);
}

// y[i] = x[(i - by) mod n] along dim
asp_status asp_roll_infer(asp_infer *in)
{
    const asp_roll_attr *a = in->attr;
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, in->in[0].rank));
    ASP_TRY(want_by(in, a->by));
    return asp_result_like(in, 0);
}

void asp_roll_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_roll_attr a = *ASP_ATTR(b, n, roll);
    a.by = -a.by;
    out_in[0] = ASP_B1(b, roll, &a, cotangent[0]);
}

void asp_roll_rule(asp_rule_builder *b)
{
    rule_along(b, 0, 0, ((const asp_roll_attr *)b->info->attr)->dim);
}

static int64_t shift_dim(const asp_shift_attr *a, uint32_t rank)
{
    return a->dim < 0 ? (int64_t)rank - 1 : a->dim;
}

// y[s] = x[s + by] along dim, fill where there is no such element; the last dim where dim is -1.
asp_status asp_shift_infer(asp_infer *in)
{
    const asp_shift_attr *a = in->attr;
    ASP_TRY(asp_want_rank(in, 0, 1, ASP_MAX_RANK));
    ASP_TRY(asp_want_dim_attr(in, "dim", shift_dim(a, in->in[0].rank), in->in[0].rank));
    ASP_TRY(want_by(in, a->by));
    return asp_result_like(in, 0);
}

void asp_shift_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_shift_attr *a = ASP_ATTR(b, n, shift);
    asp_shift_attr back = {.by = -a->by, .fill = 0, .dim = a->dim};
    out_in[0] = ASP_B1(b, shift, &back, cotangent[0]);
}

// What stands next to a shard's edge lives on another rank.
void asp_shift_rule(asp_rule_builder *b)
{
    rule_along(b, 0, 0, shift_dim(b->info->attr, asp_rule_type(b, 0)->rank));
}

// ---- diff --------------------------------------------------------------------------------------

// z[i + 1] - z[i] along dim, where z is x behind the optional prepend.
asp_status asp_diff_infer(asp_infer *in)
{
    const asp_dim_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, out.rank));
    if (in->n_in == 2) {
        ASP_TRY(asp_want_dtype(in, 1, out.dtype));
        ASP_TRY(asp_want_rank(in, 1, out.rank, out.rank));
        for (int d = 0; d < (int)out.rank; d++)
            if (d != a->dim) ASP_TRY(asp_want_same_dim(in, 1, d, 0, d));
        out.dim[a->dim] = asp_size_add(in->g, out.dim[a->dim], in->in[1].dim[a->dim]);
    }
    out.dim[a->dim] = asp_size_sub(in->g, out.dim[a->dim], asp_size_num(in->g, 1));
    if (known_below(in->g, out.dim[a->dim], 1))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "one element of dimension %lld has no difference",
                              (long long)a->dim);
    return asp_result(in, &out);
}

void asp_diff_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_dim_attr *a = ASP_ATTR(b, n, dim);
    asp_size one = asp_size_num(b->g, 1);
    asp_size less = asp_val_type(b->g, asp_node_result(b->g, n, 0))->dim[a->dim];
    asp_val z = asp_in(b, n, 0);
    if (asp_node_at(b->g, n)->n_in == 2) z = ASP_B2(b, cat, a, asp_in(b, n, 1), z);
    asp_val later = build_slice(b, z, a->dim, one, asp_size_add(b->g, less, one));
    out[0] = ASP_B2(b, sub, NULL, later, build_slice(b, z, a->dim, asp_size_num(b->g, 0), less));
}

void asp_diff_rule(asp_rule_builder *b)
{
    const asp_dim_attr *a = b->info->attr;
    rule_along(b, 0, 0, a->dim);
    for (uint32_t d = 0; b->info->n_in == 2 && d < asp_rule_type(b, 1)->rank; d++) {
        asp_rule_dim *x = &b->rule->in[0][d];
        bool along = d == (uint32_t)a->dim;
        asp_rule_put(b, &b->rule->in[1][d],
                     along ? asp_rule_letter(b, ASP_LETTER_WHOLE, asp_rule_type(b, 1)->dim[d])
                           : x->at[0]);
    }
}

// ---- triangle ----------------------------------------------------------------------------------

// x (..., r, c) where c - r <= diagonal, or with upper where c - r >= diagonal; 0 elsewhere.  Rows
// and columns are counted from their beginning, so both are whole.
asp_status asp_triangle_infer(asp_infer *in)
{
    ASP_TRY(asp_want_rank(in, 0, 2, ASP_MAX_RANK));
    return asp_result_like(in, 0);
}

void asp_triangle_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B1(b, triangle, ASP_ATTR(b, n, triangle), cotangent[0]);
}
