// Ops that mix along a sequence which is split over ranks, without gathering it: what a neighbour
// holds near the cut (shift, convolution), what all ranks before have summed up (cumsum, scan), the
// owner's row (select).  pass/shard.c puts them where an op stands at "sequence".
//
//   shift, conv1d   halo: rows of the ranks beside, between which the own ones stand
//   cumsum          the sum of the own rows, plus the last row of every rank before
//   scan            h[t] = own h[t] + (product of own a up to t) * the state at the beginning
//   select          the row where it is, 0 elsewhere, summed over ranks
//
// They are made of one primitive, move_rows (a window of rows that depends on the rank), local ops
// and an all-reduce of few rows, so that their derivatives need nothing of their own.
// Neighbours: ir/op.def (rows), base/part.h (what a rank has), kern/ref/sequence.c.
// SPDX-License-Identifier: Apache-2.0
#include "op/sequence.h"

#include "op/op_int.h"

// ---- move_rows ---------------------------------------------------------------------------------

static const char *const map_names[] = {
#define ROWS(name, doc) #name,
    ASP_ROW_MAPS(ROWS)
#undef ROWS
};

bool asp_row_map_find(const char *name, asp_row_map *out_map)
{
    for (size_t i = 0; i < ASP_COUNT_OF(map_names); i++) {
        if (strcmp(name, map_names[i]) != 0) continue;
        *out_map = (asp_row_map)i;
        return true;
    }
    return false;
}

static asp_size room_of(asp_graph *g, const asp_rows_map_attr *a)
{
    return asp_size_ceil_div(g, a->of, asp_size_num(g, a->ranks));
}

// Rows of the operand and of the result of a map.
static void map_sizes(asp_graph *g, const asp_rows_map_attr *a, asp_row_map map, asp_size *out_from,
                      asp_size *out_to)
{
    asp_size count = asp_size_num(g, a->count), all = asp_size_num(g, a->count * a->ranks);
    asp_size room = room_of(g, a), one = asp_size_num(g, 1);
    switch (map) {
    case ASP_ROWS_last:
    case ASP_ROWS_first: *out_from = room, *out_to = all; return;
    case ASP_ROWS_before:
    case ASP_ROWS_after: *out_from = all, *out_to = count; return;
    case ASP_ROWS_behind:
        *out_from = count;
        *out_to = asp_size_add(g, room, asp_size_add(g, count, a->at));
        return;
    case ASP_ROWS_pick: *out_from = room, *out_to = one; return;
    case ASP_ROWS_begin: *out_from = one, *out_to = one; return;
    }
}

asp_status asp_move_rows_infer(asp_infer *in)
{
    const asp_rows_map_attr *a = in->attr;
    asp_type out = in->in[0];
    asp_row_map map;
    asp_size from, to;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, out.rank));
    if (!asp_row_map_find(a->map, &map) || a->ranks < 1 || a->count < 0 ||
        a->count > INT64_C(1) << 32)
        return asp_infer_fail(in, ASP_ERR_INPUT, "map = \"%s\", ranks = %lld, count = %lld", a->map,
                              (long long)a->ranks, (long long)a->count);
    map_sizes(in->g, a, map, &from, &to);
    if (!asp_size_equal(out.dim[a->dim], a->back ? to : from))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "dimension %lld of %s is not %s rows",
                              (long long)a->dim, asp_type_str(in->g, &out),
                              asp_size_str(in->g, a->back ? to : from));
    out.dim[a->dim] = a->back ? from : to;
    return asp_result(in, &out);
}

// A window moved back.
void asp_move_rows_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_rows_map_attr a = *ASP_ATTR(b, n, rows_map);
    a.back = !a.back;
    out_in[0] = ASP_B1(b, move_rows, &a, cotangent[0]);
}

// ---- pieces ------------------------------------------------------------------------------------

static asp_val moved(asp_builder *b, const asp_seq_attr *s, const char *map, int64_t count,
                     asp_size at, asp_val x)
{
    asp_rows_map_attr a = {.dim = s->dim,
                           .ranks = s->ranks,
                           .of = s->of,
                           .length = s->length,
                           .map = map,
                           .count = count,
                           .at = at};
    return ASP_B1(b, move_rows, &a, x);
}

// Of every rank, in rank order: the rows that a map takes.
static asp_val collected(asp_builder *b, const asp_seq_attr *s, const char *map, int64_t count,
                         asp_val x)
{
    asp_val mine = moved(b, s, map, count, (asp_size){0}, x);
    return ASP_B1(b, all_reduce, NULL, mine);
}

static asp_val padded(asp_builder *b, int64_t dim, asp_val x, asp_size left, asp_size right)
{
    return ASP_B1(b, pad, (&(asp_pad_attr){.dim = dim, .left = left, .right = right}), x);
}

// x without its tail.
static asp_val own_rows(asp_builder *b, const asp_seq_attr *s, asp_val x)
{
    asp_part_attr a = {.dim = s->dim,
                       .ranks = s->ranks,
                       .of = s->of,
                       .length = s->length,
                       .fill = INT64_MIN,
                       .rings = 1};
    return ASP_B1(b, mask_tail, &a, x);
}

// left rows of the rank before, the own ones, right rows of the rank behind, then zeros.
static asp_val with_halo(asp_builder *b, const asp_seq_attr *s, asp_val x, int64_t left,
                         int64_t right)
{
    if (b->status < 0) return x;
    asp_size l = asp_size_num(b->g, left), r = asp_size_num(b->g, right), none = {0};
    asp_size room = asp_val_type(b->g, x)->dim[s->dim];
    asp_val y = padded(b, s->dim, own_rows(b, s, x), l, r);
    if (left) {
        asp_val edge = moved(b, s, "before", left, none, collected(b, s, "last", left, x));
        y = ASP_B2(b, add, NULL, y, padded(b, s->dim, edge, none, asp_size_add(b->g, room, r)));
    }
    if (right) {
        asp_val edge = moved(b, s, "after", right, none, collected(b, s, "first", right, x));
        y = ASP_B2(b, add, NULL, y, moved(b, s, "behind", right, l, edge));
    }
    return y;
}

// ---- the ops -----------------------------------------------------------------------------------

static asp_status want_part(asp_infer *in)
{
    const asp_seq_attr *a = in->attr;
    ASP_TRY(asp_want_float(in, 0));
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, in->in[0].rank));
    if (a->ranks < 1)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "ranks = %lld is not positive",
                              (long long)a->ranks);
    asp_size room = asp_size_ceil_div(in->g, a->of, asp_size_num(in->g, a->ranks));
    if (asp_size_equal(room, in->in[0].dim[a->dim])) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_SHAPE, "dimension %lld of %s is no part of %s over %lld",
                          (long long)a->dim, asp_type_str(in->g, &in->in[0]),
                          asp_size_str(in->g, a->of), (long long)a->ranks);
}

asp_status asp_seq_shift_infer(asp_infer *in)
{
    ASP_TRY(want_part(in));
    return asp_result_like(in, 0);
}

void asp_seq_shift_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_seq_attr s = *ASP_ATTR(b, n, seq);
    int64_t left = s.by < 0 ? -s.by : 0, right = s.by > 0 ? s.by : 0;
    asp_val x = asp_in(b, n, 0);
    asp_size room = asp_val_type(b->g, x)->dim[s.dim], start = asp_size_num(b->g, left + s.by);
    asp_range_attr r = {.dim = s.dim, .start = start, .end = asp_size_add(b->g, start, room)};
    out[0] = ASP_B1(b, slice, &r, with_halo(b, &s, x, left, right));
}

asp_status asp_seq_conv1d_infer(asp_infer *in)
{
    const asp_seq_attr *a = in->attr;
    int64_t taps;
    ASP_TRY(want_part(in));
    ASP_TRY(asp_want_rank(in, 0, 3, 3));
    ASP_TRY(asp_want_rank(in, 1, 3, 3));
    if (!asp_size_is_num(in->g, in->in[1].dim[2], &taps) || a->dim != 2 || a->dilation < 1 ||
        a->left < 0 || (taps - 1) * a->dilation < a->left)
        return asp_infer_fail(in, ASP_ERR_UNSUPPORTED,
                              "a window of %s taps with %lld rows before the first",
                              asp_size_str(in->g, in->in[1].dim[2]), (long long)a->left);
    asp_type out = in->in[0];
    out.dim[1] = in->in[1].dim[0];
    return asp_result(in, &out);
}

void asp_seq_conv1d_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_seq_attr s = *ASP_ATTR(b, n, seq);
    int64_t taps = 0;
    asp_val operands[3];
    uint32_t n_in = asp_node_at(b->g, n)->n_in;
    for (uint32_t i = 0; i < n_in; i++) operands[i] = asp_in(b, n, i);
    ASP_CHECK(asp_size_is_num(b->g, asp_val_type(b->g, operands[1])->dim[2], &taps));
    operands[0] = with_halo(b, &s, operands[0], s.left, (taps - 1) * s.dilation - s.left);
    asp_conv_attr a = {.stride = 1, .dilation = s.dilation, .groups = s.groups};
    if (b->status < 0) return;
    out[0] = ASP_B2(b, conv, &a, operands[0], operands[1]);
    if (n_in < 3) return;
    asp_type column = *asp_val_type(b->g, operands[2]);
    column.dim[column.rank++] = asp_size_num(b->g, 1);
    out[0] = ASP_B2(b, add, NULL, out[0], asp_build_view(b, operands[2], &column));
}

asp_status asp_seq_cumsum_infer(asp_infer *in)
{
    ASP_TRY(want_part(in));
    return asp_result_like(in, 0);
}

void asp_seq_cumsum_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_seq_attr s = *ASP_ATTR(b, n, seq);
    asp_scan_attr along = {.dim = s.dim};
    asp_val own = ASP_B1(b, cumsum, &along, asp_in(b, n, 0));
    asp_val sums = ASP_B1(b, cumsum, &along, collected(b, &s, "last", 1, own));
    out[0] = ASP_B2(b, add, NULL, own, moved(b, &s, "before", 1, (asp_size){0}, sums));
}

asp_status asp_seq_scan_infer(asp_infer *in)
{
    const asp_seq_attr *a = in->attr;
    ASP_TRY(want_part(in));
    ASP_TRY(asp_want_same_dim(in, 0, (int)a->dim, 1, (int)a->dim));
    return asp_result_like(in, 1);
}

void asp_seq_scan_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_seq_attr s = *ASP_ATTR(b, n, seq);
    asp_scan_attr along = {.dim = s.dim};
    asp_val a = asp_in(b, n, 0), x = asp_in(b, n, 1);
    asp_val own = ASP_B2(b, scan, &along, a, x);
    asp_type of_a = *asp_val_type(b->g, a), first = of_a;
    first.dim[s.dim] = asp_size_num(b->g, 1);
    asp_val ones = asp_build_constant(b, 1, &first), zeros = asp_build_constant(b, 0, &of_a);
    asp_val product = ASP_B3(b, scan, &along, a, zeros, ones);
    asp_val rows_a = collected(b, &s, "last", 1, product),
            rows_h = collected(b, &s, "last", 1, own);
    bool given = asp_node_at(b->g, n)->n_in == 3;
    asp_val h0 = given ? asp_in(b, n, 2) : (asp_val){0};
    asp_val states = given ? ASP_B3(b, scan, &along, rows_a, rows_h, h0)
                           : ASP_B2(b, scan, &along, rows_a, rows_h);
    asp_val carry = moved(b, &s, "before", 1, (asp_size){0}, states);
    if (given) carry = ASP_B2(b, add, NULL, carry, moved(b, &s, "begin", 1, (asp_size){0}, h0));
    out[0] = ASP_B2(b, add, NULL, own, ASP_B2(b, mul, NULL, product, carry));
}

asp_status asp_seq_select_infer(asp_infer *in)
{
    const asp_seq_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(want_part(in));
    out.rank--;
    memmove(&out.dim[a->dim], &out.dim[a->dim + 1],
            (out.rank - (size_t)a->dim) * sizeof out.dim[0]);
    return asp_result(in, &out);
}

void asp_seq_select_lower(asp_builder *b, asp_node n, asp_val *out)
{
    const asp_seq_attr s = *ASP_ATTR(b, n, seq);
    asp_type type = *asp_val_type(b->g, asp_out(b, n, 0));
    asp_val row = moved(b, &s, "pick", 1, s.at, asp_in(b, n, 0));
    out[0] = asp_build_view(b, ASP_B1(b, all_reduce, NULL, row), &type);
}
