// check_groups.c: groups of ranks on a mesh, tokens split over all of them or heads over a group
// and tokens over groups, and attention that goes around a ring of ranks or of groups. Neighbours:
// check.c (who asks), check_parts.c (exchanges among all ranks), base/rows.h (orders).
// SPDX-License-Identifier: Apache-2.0
#include "op/attention.h"
#include "pass/check_int.h"

// Within groups: tokens over all ranks to heads over a group, and back.  Between them stands
// attention alone.
asp_status asp_check_in_group(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_a2a_attr *a = info->attr;
    const asp_layout l = k->of[info->in[0].i];
    asp_layout *to = &k->of[info->first.i];
    const int64_t rings = k->g->ranks / a->ranks;
    if (a->ranks < 2 || k->g->ranks % a->ranks || l.partial || !l.split || l.rings != rings)
        return asp_not_proved(k, n, "its operand is not shared out over groups of %lld",
                              (long long)a->ranks);
    if (l.grouped) {
        if (!l.rows.i || l.dim != a->gather || a->split != 2 || a->split_unit != 1)
            return asp_not_proved(k, n, "it does not bring back what is split");
        if (!asp_size_equal(asp_val_type(k->g, info->first)->dim[a->gather],
                            asp_size_mul(k->g, l.whole, asp_size_num(k->g, a->gather_unit))))
            return asp_not_proved(k, n, "it gathers other heads than were split");
        *to = (asp_layout){
            .split = true, .dim = 2, .before = k->one, .whole = l.rows, .length = l.rows};
    } else {
        asp_size heads = asp_val_type(k->g, info->in[0])->dim[a->split];
        if (l.dim != 2 || a->gather != 2 || a->gather_unit != 1 || a->whole.i ||
            !asp_size_equal(l.before, k->one) || !asp_size_equal(l.whole, l.length))
            return asp_not_proved(k, n, "dimension 2 of its operand is not a rank's part");
        ASP_TRY(asp_size_div(k->g, heads, asp_size_num(k->g, a->split_unit), &heads));
        *to = (asp_layout){
            .split = true, .dim = (uint32_t)a->split, .before = k->one, .whole = heads};
        to->length = heads;
        to->grouped = true;
        to->rows = l.whole;
    }
    to->rings = l.rings;
    to->zigzag = l.zigzag;
    return ASP_OK;
}

// Heads of q, and of something else, that are shared out alike over a group.
static bool same_heads(const asp_checker *k, const asp_layout *q, const asp_layout *l,
                       int64_t in_group)
{
    int64_t heads, of_q;
    return asp_size_is_num(k->g, l->whole, &heads) && asp_size_is_num(k->g, q->whole, &of_q) &&
           (heads == of_q || (heads % in_group == 0 && of_q % in_group == 0));
}

// What attention reads beside q, k and v has the heads of q, or none of its own.
static asp_status check_beside(asp_checker *k, asp_node n, uint32_t i, int64_t in_group)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_type *t = asp_val_type(k->g, info->in[i]);
    const asp_layout *l = &k->of[info->in[i].i];
    asp_mask m;
    ASP_CHECK(asp_mask_read(((const asp_sdpa_attr *)info->attr)->mask, &m));
    const asp_sdpa_parts parts = asp_sdpa_parts_of(info->attr, &m, 3);
    const bool per_head = i == parts.sinks || i == parts.slopes, bias = i == parts.bias;
    const int64_t dim = per_head ? 0 : bias ? (int64_t)t->rank - 3 : -1;
    const bool own = dim >= 0 && (per_head || !asp_size_equal(t->dim[dim], k->one));
    if (!l->split && !l->partial && !own) return ASP_OK;
    if (l->split && l->grouped && !l->rows.i && l->dim == dim &&
        same_heads(k, &k->of[info->in[0].i], l, in_group))
        return ASP_OK;
    return asp_not_proved(k, n, "operand %u is not shared out as the heads are", i);
}

// The same with heads, dim 1, split over each group: those of q in as many parts as those of k.
static asp_status check_ring_of_groups(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_sdpa_attr *a = info->attr;
    const asp_layout *q = &k->of[info->in[0].i];
    for (uint32_t i = 0; i < info->n_in; i++) {
        const asp_layout *l = &k->of[info->in[i].i];
        if (i >= 3) {
            ASP_TRY(check_beside(k, n, i, k->g->ranks / a->rings));
            continue;
        }
        if (!l->grouped || l->dim != 1 || !asp_size_equal(l->rows, i ? a->keys : a->tokens) ||
            l->rings != a->rings || l->zigzag != a->zigzag)
            return asp_not_proved(k, n, "operand %u is not split over groups as it is told", i);
        if (!same_heads(k, q, l, k->g->ranks / a->rings))
            return asp_not_proved(k, n, "heads of operand %u do not go with those of the queries",
                                  i);
    }
    for (uint32_t i = 0; i < info->n_out; i++) {
        k->of[info->first.i + i] = *q;
        k->of[info->first.i + i].zero_tail = k->of[info->first.i + i].filled = false;
    }
    return ASP_OK;
}

// Queries, keys and values are split in their dim of tokens, in the order that the op is told; what
// it reads beside them is whole.
asp_status asp_check_ring(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_sdpa_attr *a = info->attr;
    if (k->of[info->in[0].i].grouped) return check_ring_of_groups(k, n);
    ASP_TRY(asp_check_ranks(k, n, a->rings));
    for (uint32_t i = 0; i < info->n_in; i++) {
        const asp_layout *l = &k->of[info->in[i].i];
        const asp_size rows = i ? a->keys : a->tokens;
        if (i >= 3) {
            if (!l->split && !l->partial) continue;
            return asp_not_proved(k, n, "operand %u is not whole", i);
        }
        if (l->partial || !l->split || l->dim != 2 || !asp_size_equal(l->before, k->one) ||
            !asp_size_equal(l->whole, rows) || !asp_size_equal(l->length, rows))
            return asp_not_proved(k, n, "dimension 2 of operand %u is no part of %s", i,
                                  asp_size_str(k->g, rows));
        if (!asp_in_same_order(k, l, a->rings, a->zigzag))
            return asp_not_proved(k, n, "the rows of operand %u are shared out in another order",
                                  i);
    }
    for (uint32_t i = 0; i < info->n_out; i++)
        k->of[info->first.i + i] = (asp_layout){.split = true,
                                                .dim = 2,
                                                .before = k->one,
                                                .whole = a->tokens,
                                                .length = a->tokens,
                                                .rings = a->rings,
                                                .zigzag = a->zigzag};
    return ASP_OK;
}
