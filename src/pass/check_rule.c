// check_rule.c: one op judged by its sharding rule on local sizes.  The split letter is found in
// the operands, must be split at the same place in each that has it, and is followed into the
// results; a letter that is summed away leaves a partial sum.  Neighbours: check.c (who asks),
// op/rule.h. SPDX-License-Identifier: Apache-2.0
#include "pass/check_int.h"

// The split letter: which one, and what of it stands outside of the ranks.
typedef struct split_letter {
    bool any;
    uint8_t letter;
    asp_size before, whole, length;
    int64_t rings;
    bool zigzag;
    uint32_t operand; // where it was seen first
} split_letter;

// In a dim's letters, the one in which the ranks stand: the first whose outer boundary, or inside,
// is at `before`.
static bool locate(asp_checker *k, const asp_rule *r, const asp_rule_dim *dim, asp_size before,
                   split_letter *out)
{
    for (uint32_t i = 0; i < dim->n; i++) {
        asp_size size = r->letter[dim->at[i]].size, rest;
        bool last = i + 1 == dim->n;
        if (asp_size_equal(before, k->one) || last ||
            !asp_size_divides(k->g, size, before, &rest)) {
            if (!asp_size_divides(k->g, before, size, &rest)) return false;
            *out = (split_letter){.any = true, .letter = dim->at[i], .before = before};
            return true;
        }
        before = rest;
    }
    return false;
}

// (4 groups of 2) heads and 4 heads are split alike when no rank has a tail.
static bool same_parts(const asp_checker *k, const split_letter *a, const split_letter *b)
{
    if (asp_size_equal(a->whole, b->whole)) return asp_size_equal(a->length, b->length);
    return !asp_has_tail(k, a->whole, a->length, k->g->ranks) &&
           !asp_has_tail(k, b->whole, b->length, k->g->ranks);
}

// The units of letter s over all ranks.  An even exchange of merged dims counts elements, 32 of
// them, where the rule has letters, 4 heads of 8: (2 heads of 8) on a rank are 4 heads of 8.
static asp_size units_of(asp_checker *k, asp_size letter, asp_size local, const asp_layout *l,
                         const split_letter *s)
{
    asp_size room = asp_size_ceil_div(k->g, l->whole, k->ranks), rest;
    bool elements = asp_size_equal(local, asp_size_mul(k->g, l->before, room));
    if (!elements || asp_has_tail(k, l->whole, l->length, k->g->ranks)) return l->whole;
    if (!asp_size_divides(k->g, s->before, letter, &rest)) return l->whole;
    return asp_size_mul(k->g, rest, k->ranks);
}

static asp_status find_split(asp_checker *k, asp_node n, const asp_rule *r, split_letter *out)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    *out = (split_letter){0};
    for (uint32_t i = 0; i < info->n_in; i++) {
        const asp_layout *l = &k->of[info->in[i].i];
        split_letter s;
        if (l->partial)
            return asp_not_proved(k, n, "operand %u is a partial sum that was not all-reduced", i);
        if (!l->split) continue;
        if (l->grouped && (l->rows.i || info->op != ASP_OP_view))
            return asp_not_proved(k, n, "operand %u is split within groups of ranks", i);
        if (!locate(k, r, &r->in[i][l->dim], l->before, &s))
            return asp_not_proved(
                k, n, "operand %u is split in dimension %u, which it does not keep", i, l->dim);
        if (r->letter[s.letter].kind == ASP_LETTER_WHOLE)
            return asp_not_proved(
                k, n, "operand %u is split in dimension %u, which the op needs whole", i, l->dim);
        s.operand = i;
        s.rings = l->rings;
        s.zigzag = l->zigzag;
        s.whole = units_of(k, r->letter[s.letter].size,
                           asp_val_type(k->g, info->in[i])->dim[l->dim], l, &s);
        s.length = asp_size_equal(s.whole, l->whole) ? l->length : s.whole;
        if (!out->any)
            *out = s;
        else if (out->letter != s.letter || !asp_size_equal(out->before, s.before) ||
                 !same_parts(k, &s, out) || !asp_in_same_order(k, l, out->rings, out->zigzag))
            return asp_not_proved(k, n, "operands %u and %u are split along different axes",
                                  out->operand, i);
    }
    return ASP_OK;
}

// Every operand with the split letter is split there, or the same in all its slices.
static asp_status check_aligned(asp_checker *k, asp_node n, const asp_rule *r,
                                const split_letter *s)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    for (uint32_t i = 0; i < info->n_in; i++) {
        const asp_layout *l = &k->of[info->in[i].i];
        for (uint32_t d = 0; d < asp_val_type(k->g, info->in[i])->rank; d++) {
            for (uint32_t j = 0; j < r->in[i][d].n; j++) {
                if (r->in[i][d].at[j] != s->letter || (l->split && l->dim == d)) continue;
                if (r->in[i][d].n == 1 && l->uniform >> d & 1) continue;
                // Whole and 1: it broadcasts.  Beside a local 1 (4 heads of 4 ranks) the rule gives
                // it the letter of what is split.
                const bool per_head = info->op == ASP_OP_sdpa && i >= 3 && r->in[i][d].n > 1 &&
                                      asp_val_type(k->g, info->in[i])->rank == 1;
                if (asp_size_equal(asp_val_type(k->g, info->in[i])->dim[d], k->one) && !per_head)
                    continue;
                return asp_not_proved(
                    k, n, "operand %u has dimension %u whole, where operand %u is split", i, d,
                    s->operand);
            }
        }
    }
    return ASP_OK;
}

static bool is_filled(const asp_checker *k, asp_val labels, int64_t ignore)
{
    return k->of[labels.i].filled && k->of[labels.i].fill == ignore;
}

// Sums of products: the operands (bits) of which a 0 takes its item out of the sum.  In no other op
// does it: e^0 is 1.
static const struct {
    asp_op op;
    unsigned factors;
} products[] = {{ASP_OP_sum, 1},         {ASP_OP_sum_groups, 1}, {ASP_OP_matmul, 3},
                {ASP_OP_bmm, 3},         {ASP_OP_gemm_tn, 3},    {ASP_OP_einsum, ~0u},
                {ASP_OP_scatter_add, 2}, {ASP_OP_index_add, 2}};

// A sum of products is right when one factor is 0 in the tail; a loss, when it ignores its labels.
static bool leaves_out_tail(const asp_checker *k, asp_node n, const split_letter *s)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    unsigned factors = 0;
    if (!asp_has_tail(k, s->whole, s->length, k->g->ranks)) return true;
    if (info->op == ASP_OP_cross_entropy)
        return is_filled(k, info->in[1], ((const asp_loss_attr *)info->attr)->ignore);
    if (info->op == ASP_OP_nll)
        return is_filled(k, info->in[1], ((const asp_nll_attr *)info->attr)->ignore);
    if (info->op == ASP_OP_count_valid)
        return is_filled(k, info->in[0], ((const asp_labels_attr *)info->attr)->ignore);
    for (size_t i = 0; i < ASP_COUNT_OF(products); i++)
        if (products[i].op == info->op) factors = products[i].factors;
    for (uint32_t i = 0; i < info->n_in; i++)
        if (factors >> i & 1 && k->of[info->in[i].i].zero_tail) return true;
    return false;
}

static asp_status place_in_result(asp_checker *k, asp_node n, const asp_rule *r,
                                  const split_letter *s, uint32_t i)
{
    asp_val v = asp_node_result(k->g, n, i);
    asp_layout *l = &k->of[v.i];
    for (uint32_t d = 0; d < asp_val_type(k->g, v)->rank; d++) {
        asp_size before = k->one;
        for (uint32_t j = 0; j < r->out[i][d].n; j++) {
            uint8_t c = r->out[i][d].at[j];
            if (c != s->letter) {
                before = asp_size_mul(k->g, before, r->letter[c].size);
                continue;
            }
            if (l->split) return asp_not_proved(k, n, "result %u would be split twice", i);
            l->split = true;
            l->dim = d;
            l->before = asp_size_mul(k->g, before, s->before);
            l->whole = s->whole;
            l->length = s->length;
            l->rings = s->rings;
            l->zigzag = s->zigzag;
        }
    }
    if (l->split) return ASP_OK;
    if (r->letter[s->letter].kind != ASP_LETTER_SUM)
        return asp_not_proved(k, n, "result %u has lost the split axis", i);
    if (!leaves_out_tail(k, n, s))
        return asp_not_proved(k, n, "it sums what parts shorter than others leave of their room");
    l->partial = true;
    return ASP_OK;
}

// Result dims whose letter is new (a broadcast) or uniform in every operand that has it.
static void mark_uniform(asp_checker *k, asp_node n, const asp_rule *r)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    bool varies[ASP_MAX_LETTERS] = {false}, seen[ASP_MAX_LETTERS] = {false};
    for (uint32_t i = 0; i < info->n_in; i++) {
        for (uint32_t d = 0; d < asp_val_type(k->g, info->in[i])->rank; d++) {
            bool uniform = r->in[i][d].n == 1 && k->of[info->in[i].i].uniform >> d & 1;
            for (uint32_t j = 0; j < r->in[i][d].n; j++) {
                seen[r->in[i][d].at[j]] = true;
                varies[r->in[i][d].at[j]] |= !uniform;
            }
        }
    }
    for (uint32_t i = 0; i < info->n_out; i++) {
        asp_val v = asp_node_result(k->g, n, i);
        for (uint32_t d = 0; d < asp_val_type(k->g, v)->rank; d++) {
            if (r->out[i][d].n != 1) continue;
            uint8_t c = r->out[i][d].at[0];
            if (!varies[c] && (seen[c] || info->op == ASP_OP_expand)) k->of[v.i].uniform |= 1u << d;
        }
    }
}

// The same elements, or the same ones in another dtype.
static void keep_tail(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    if (info->op != ASP_OP_view && info->op != ASP_OP_permute) return;
    const asp_layout *from = &k->of[info->in[0].i];
    asp_layout *to = &k->of[info->first.i];
    to->zero_tail = from->zero_tail;
    to->filled = from->filled;
    to->fill = from->fill;
}

asp_status asp_check_by_rule(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    asp_rule r;
    split_letter s;
    if (!asp_rule_of(k->px->scratch, k->g, n, &r)) {
        for (uint32_t i = 0; i < info->n_in; i++)
            if (k->of[info->in[i].i].split || k->of[info->in[i].i].partial)
                return asp_not_proved(k, n, "operand %u is split, and the op has no sharding rule",
                                      i);
        return ASP_OK;
    }
    if (info->op == ASP_OP_view && ((const asp_view_attr *)info->attr)->before.i) {
        mark_uniform(k, n, &r);
        return asp_check_told_view(k, n);
    }
    ASP_TRY(find_split(k, n, &r, &s));
    mark_uniform(k, n, &r);
    if (!s.any) return ASP_OK;
    ASP_TRY(check_aligned(k, n, &r, &s));
    for (uint32_t i = 0; i < info->n_out; i++) ASP_TRY(place_in_result(k, n, &r, &s, i));
    k->of[info->first.i].grouped = k->of[info->in[s.operand].i].grouped;
    k->of[info->first.i].group = k->of[info->in[s.operand].i].group;
    keep_tail(k, n);
    return info->op == ASP_OP_view ? asp_check_view(k, n) : ASP_OK;
}
