// check_view.c: where the ranks stand behind a view.  A rule in letters of local sizes cannot
// always tell: a rank's only head is a dim of 1.  Neighbours: check_rule.c (who asks).
// SPDX-License-Identifier: Apache-2.0
#include "pass/check_int.h"

// Behind a view, a dim of size 1 where the ranks stand could be what is split: (4 heads of 4 ranks)
// or a new dim beside it.  A fraction in the split size tells; without one nothing does.
asp_status asp_check_view(asp_checker *k, asp_node n)
{
    asp_val v = asp_node_at(k->g, n)->first;
    const asp_type *t = asp_val_type(k->g, v);
    const asp_layout *l = &k->of[v.i];
    if (!asp_size_equal(l->before, k->one) || asp_has_fraction(k, t->dim[l->dim])) return ASP_OK;
    bool before = l->dim > 0 && asp_size_equal(t->dim[l->dim - 1], k->one);
    bool itself = asp_size_equal(t->dim[l->dim], k->one);
    if (!before && !itself) return ASP_OK;
    return asp_not_proved(k, n, "what is split may be dimension %u of %s or the one before it",
                          l->dim, asp_type_str(k->g, t));
}

// What stands before dim d, and before the ranks in it.
static asp_size items_before(asp_checker *k, const asp_type *t, uint32_t d, asp_size before)
{
    for (uint32_t i = 0; i < d; i++) before = asp_size_mul(k->g, before, t->dim[i]);
    return before;
}

// A view that says where what is split stands.  Both shapes are one row of elements, in which the
// ranks stand behind as many others: so the whole shapes are one row too.  Parts without a tail may
// be counted in other units behind it, (1 head of 8) for 8 elements.
asp_status asp_check_told_view(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_view_attr *a = info->attr;
    const asp_type *x = asp_val_type(k->g, info->in[0]), *y = asp_val_type(k->g, info->first);
    const asp_layout *from = &k->of[info->in[0].i];
    asp_layout *to = &k->of[info->first.i];
    asp_size rest, left;
    if (from->partial || (from->grouped && from->rows.i) || !from->split)
        return asp_not_proved(k, n, "it says where its operand is split, which is not");
    if (!asp_size_equal(items_before(k, x, from->dim, from->before),
                        items_before(k, y, (uint32_t)a->split, a->before)) ||
        !asp_size_divides(k->g, a->before, y->dim[a->split], &rest))
        return asp_not_proved(k, n, "what is split is not behind %s in dimension %lld",
                              asp_size_str(k->g, a->before), (long long)a->split);
    unsigned uniform = to->uniform;
    *to = *from;
    to->uniform = uniform;
    to->dim = (uint32_t)a->split;
    to->before = a->before;
    // Of a parameter, alike in all groups, or of all ranks.
    const int64_t ranks = from->grouped ? from->group : k->g->ranks;
    const asp_size among = asp_size_num(k->g, ranks);
    if (!from->zigzag && !asp_has_tail(k, from->whole, from->length, ranks))
        to->whole = to->length = asp_size_mul(k->g, rest, among);
    else if (!asp_size_divides(k->g, asp_size_ceil_div(k->g, from->whole, among), rest, &left))
        return asp_not_proved(k, n, "dimension %lld has no room for a part of %s",
                              (long long)a->split, asp_size_str(k->g, from->whole));
    return ASP_OK;
}
