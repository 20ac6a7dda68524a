// Exchanges between ranks.  The derivative of a collective is its transpose.  Neighbours: ir/op.def
// (rows), pass/shard.c (who inserts them), comm/ (how they run).  SPDX-License-Identifier:
// Apache-2.0
#include "op/op_int.h"

// ---- parts of a dim (base/part.h) --------------------------------------------------------------

static asp_status want_ranks(const asp_infer *in, int64_t ranks)
{
    if (ranks >= 1) return ASP_OK;
    return asp_infer_fail(in, ASP_ERR_SHAPE, "ranks = %lld is not positive", (long long)ranks);
}

// What each rank has room for of `whole` items, split in units of so many.
static asp_status room(asp_infer *in, asp_size whole, int64_t unit, int64_t ranks,
                       asp_size *out_room)
{
    int64_t n;
    if (unit < 1 || (asp_size_is_num(in->g, whole, &n) && n % unit != 0))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "units of %lld do not make up %s", (long long)unit,
                              asp_size_str(in->g, whole));
    asp_size size = asp_size_num(in->g, unit);
    ASP_TRY(asp_size_div(in->g, whole, size, &whole));
    whole = asp_size_ceil_div(in->g, whole, asp_size_num(in->g, ranks));
    *out_room = asp_size_mul(in->g, whole, size);
    return ASP_OK;
}

static asp_status want_part(asp_infer *in, const asp_part_attr *a)
{
    ASP_TRY(asp_want_dim_attr(in, "dim", a->dim, in->in[0].rank));
    return want_ranks(in, a->ranks);
}

static bool is_given(asp_size s) { return s.i != 0; }

asp_status asp_shard_slice_infer(asp_infer *in)
{
    const asp_part_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(want_part(in, a));
    asp_size of = is_given(a->of) ? a->of : out.dim[a->dim];
    ASP_TRY(room(in, of, 1, a->ranks, &out.dim[a->dim]));
    return asp_result(in, &out);
}

// Each rank gives the gradient of its part; the sum over ranks is the whole one.
void asp_shard_slice_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_part_attr a = *ASP_ATTR(b, n, part);
    a.length = asp_val_type(b->g, asp_in(b, n, 0))->dim[a.dim];
    a.fill = INT64_MIN;
    out_in[0] = ASP_B1(b, shard_pad, &a, cotangent[0]);
}

asp_status asp_shard_pad_infer(asp_infer *in)
{
    const asp_part_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(want_part(in, a));
    asp_size size;
    ASP_TRY(room(in, is_given(a->of) ? a->of : a->length, 1, a->ranks, &size));
    if (!asp_size_equal(size, out.dim[a->dim]))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "dimension %lld of %s is no part of %s over %lld",
                              (long long)a->dim, asp_type_str(in->g, &out),
                              asp_size_str(in->g, a->length), (long long)a->ranks);
    out.dim[a->dim] = a->length;
    return asp_result(in, &out);
}

void asp_shard_pad_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    asp_part_attr a = *ASP_ATTR(b, n, part);
    a.fill = 0;
    out_in[0] = ASP_B1(b, shard_slice, &a, cotangent[0]);
}

asp_status asp_shorten_infer(asp_infer *in)
{
    ASP_TRY(want_part(in, in->attr));
    return asp_result_like(in, 0);
}

// The cotangent is 0 in the tail already.
void asp_shorten_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    (void)b, (void)n;
    out_in[0] = cotangent[0];
}

asp_status asp_mask_tail_infer(asp_infer *in)
{
    ASP_TRY(want_part(in, in->attr));
    return asp_result_like(in, 0);
}

void asp_mask_tail_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    out_in[0] = ASP_B1(b, mask_tail, ASP_ATTR(b, n, part), cotangent[0]);
}

// ---- exchanges ---------------------------------------------------------------------------------

// Each rank holds its part of dim gather and all of dim split; afterwards all of gather and its
// part of split.
asp_status asp_all_to_all_infer(asp_infer *in)
{
    const asp_a2a_attr *a = in->attr;
    asp_type out = in->in[0];
    ASP_TRY(asp_want_dim_attr(in, "split", a->split, out.rank));
    ASP_TRY(asp_want_dim_attr(in, "gather", a->gather, out.rank));
    ASP_TRY(want_ranks(in, a->ranks));
    if (a->split == a->gather)
        return asp_infer_fail(in, ASP_ERR_SHAPE, "split and gather must differ");
    ASP_TRY(room(in, out.dim[a->split], a->split_unit, a->ranks, &out.dim[a->split]));
    asp_size whole = asp_size_mul(in->g, out.dim[a->gather], asp_size_num(in->g, a->ranks));
    if (is_given(a->whole)) whole = a->whole;
    asp_size part;
    ASP_TRY(room(in, whole, a->gather_unit, a->ranks, &part));
    if (is_given(a->whole) && !asp_size_equal(part, out.dim[a->gather]))
        return asp_infer_fail(in, ASP_ERR_SHAPE, "dimension %lld of %s is no part of %s over %lld",
                              (long long)a->gather, asp_type_str(in->g, &out),
                              asp_size_str(in->g, whole), (long long)a->ranks);
    out.dim[a->gather] = whole;
    return asp_result(in, &out);
}

// The tail of a gradient is 0: nothing that counts was computed there.
void asp_all_to_all_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    const asp_a2a_attr *a = ASP_ATTR(b, n, a2a);
    asp_a2a_attr back = {.split = a->gather,
                         .gather = a->split,
                         .ranks = a->ranks,
                         .split_unit = a->gather_unit,
                         .gather_unit = a->split_unit,
                         .zero = true};
    asp_size whole = asp_val_type(b->g, asp_in(b, n, 0))->dim[a->split], times;
    asp_size even = asp_size_num(b->g, a->ranks * a->split_unit);
    if (!asp_size_divides(b->g, even, whole, &times)) back.whole = whole;
    out_in[0] = ASP_B1(b, all_to_all, &back, cotangent[0]);
}

asp_status asp_all_reduce_infer(asp_infer *in) { return asp_result_like(in, 0); }

void asp_all_reduce_vjp(asp_builder *b, asp_node n, const asp_val *cotangent, asp_val *out_in)
{
    (void)n;
    out_in[0] = ASP_B1(b, all_reduce, NULL, cotangent[0]);
}
