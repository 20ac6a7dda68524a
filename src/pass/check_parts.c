// check_parts.c: exchanges among all ranks find and leave the layout they say; so do the ops that
// cut a rank's part, pad it, shorten it or clear its tail, and those with an algorithm of their own
// on a split sequence.  Neighbours: check.c (who asks), op/collective.c (what they do).
// SPDX-License-Identifier: Apache-2.0
#include "pass/check_int.h"

asp_status asp_check_all_to_all(asp_checker *k, asp_node n)
{
    if (((const asp_a2a_attr *)asp_node_at(k->g, n)->attr)->ranks != k->g->ranks)
        return asp_check_in_group(k, n);
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_a2a_attr *a = info->attr;
    const asp_layout *l = &k->of[info->in[0].i];
    ASP_TRY(asp_check_ranks(k, n, a->ranks));
    if (l->partial || !l->split || l->dim != a->gather || !asp_size_equal(l->before, k->one))
        return asp_not_proved(k, n, "dimension %lld, which it gathers, is not split",
                              (long long)a->gather);
    if (!asp_in_same_order(k, l, 1, false))
        return asp_not_proved(k, n, "what it gathers does not stand in the order of the sequence");
    asp_size gathered = asp_val_type(k->g, info->first)->dim[a->gather];
    asp_size split = asp_val_type(k->g, info->in[0])->dim[a->split];
    ASP_TRY(asp_size_div(k->g, gathered, asp_size_num(k->g, a->gather_unit), &gathered));
    ASP_TRY(asp_size_div(k->g, split, asp_size_num(k->g, a->split_unit), &split));
    if ((asp_has_tail(k, l->whole, l->length, k->g->ranks) &&
         !asp_size_equal(l->whole, gathered)) ||
        !asp_size_equal(l->whole, l->length))
        return asp_not_proved(k, n, "it gathers %s of %s", asp_size_str(k->g, gathered),
                              asp_size_str(k->g, l->whole));
    k->of[info->first.i] = (asp_layout){.split = true,
                                        .dim = (uint32_t)a->split,
                                        .before = k->one,
                                        .whole = split,
                                        .length = split};
    return ASP_OK;
}

asp_status asp_check_slice(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_part_attr *a = info->attr;
    const asp_layout *l = &k->of[info->in[0].i];
    const bool grouped = a->ranks > 1 && a->ranks < k->g->ranks && k->g->ranks % a->ranks == 0;
    if (!grouped) ASP_TRY(asp_check_ranks(k, n, a->ranks));
    if (l->partial || l->split) return asp_not_proved(k, n, "its operand is not whole");
    asp_size length = asp_val_type(k->g, info->in[0])->dim[a->dim];
    k->of[info->first.i] = (asp_layout){.split = true,
                                        .dim = (uint32_t)a->dim,
                                        .before = k->one,
                                        .whole = a->of.i ? a->of : length,
                                        .length = length,
                                        .filled = a->fill != INT64_MIN,
                                        .zero_tail = a->fill == 0,
                                        .fill = a->fill,
                                        .grouped = grouped,
                                        .group = a->ranks,
                                        .rings = a->rings,
                                        .zigzag = a->zigzag};
    return ASP_OK;
}

// Does the operand of n, split in the dim of its attributes, have the parts that they say?
static bool has_parts(const asp_checker *k, const asp_layout *l, const asp_part_attr *a)
{
    return !l->partial && l->split && l->dim == a->dim && asp_size_equal(l->before, k->one) &&
           asp_size_equal(l->whole, a->of.i ? a->of : a->length) &&
           asp_in_same_order(k, l, a->rings, a->zigzag);
}

asp_status asp_check_pad(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_part_attr *a = info->attr;
    const asp_layout *l = &k->of[info->in[0].i];
    ASP_TRY(asp_check_ranks(k, n, a->ranks));
    if (!has_parts(k, l, a) || !asp_size_equal(l->length, a->length))
        return asp_not_proved(k, n, "dimension %lld is no part of %s", (long long)a->dim,
                              asp_size_str(k->g, a->length));
    k->of[info->first.i] = (asp_layout){.partial = true};
    return ASP_OK;
}

asp_status asp_check_shorten(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_part_attr *a = info->attr;
    const asp_layout *l = &k->of[info->in[0].i];
    int64_t dropped;
    ASP_TRY(asp_check_ranks(k, n, a->ranks));
    asp_size rest = asp_size_sub(k->g, l->length, a->length);
    if (!has_parts(k, l, a) || (asp_size_is_num(k->g, rest, &dropped) && dropped < 0))
        return asp_not_proved(
            k, n, "dimension %lld is no part of %s items of which %s could be left",
            (long long)a->dim, asp_size_str(k->g, a->of), asp_size_str(k->g, a->length));
    k->of[info->first.i] = *l;
    k->of[info->first.i].length = a->length;
    k->of[info->first.i].zero_tail = k->of[info->first.i].filled = false;
    return ASP_OK;
}

// An op with an algorithm of its own: its first operand, and what is scanned, are parts of one
// sequence; the others are whole, and the result is such a part, or (select) whole.
asp_status asp_check_sequence_op(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_seq_attr *a = info->attr;
    const asp_part_attr part = {.dim = a->dim, .of = a->of, .length = a->length};
    uint32_t parts = info->op == ASP_OP_seq_scan ? 2 : 1;
    ASP_TRY(asp_check_ranks(k, n, a->ranks));
    for (uint32_t i = 0; i < info->n_in; i++) {
        const asp_layout *l = &k->of[info->in[i].i];
        bool right = i < parts ? has_parts(k, l, &part) && asp_size_equal(l->length, a->length)
                               : !l->split && !l->partial;
        if (!right)
            return asp_not_proved(k, n, "operand %u is %s", i,
                                  i < parts ? "no part of the sequence it says" : "not whole");
    }
    if (info->op != ASP_OP_seq_select)
        k->of[info->first.i] = (asp_layout){.split = true,
                                            .dim = (uint32_t)a->dim,
                                            .before = k->one,
                                            .whole = a->of,
                                            .length = a->length};
    return ASP_OK;
}

asp_status asp_check_mask(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_part_attr *a = info->attr;
    const asp_layout *l = &k->of[info->in[0].i];
    ASP_TRY(asp_check_ranks(k, n, a->ranks));
    if (!has_parts(k, l, a) || !asp_size_equal(l->length, a->length))
        return asp_not_proved(k, n, "dimension %lld, whose tail it clears, is no part of %s",
                              (long long)a->dim, asp_size_str(k->g, a->of));
    k->of[info->first.i] = *l;
    k->of[info->first.i].zero_tail = true;
    return ASP_OK;
}

asp_status asp_check_all_reduce(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    if (!k->of[info->in[0].i].partial)
        return asp_not_proved(k, n, "its operand is no partial sum: it would be counted %lld times",
                              (long long)k->g->ranks);
    return ASP_OK;
}
