// pass/check.c: prove a split graph, from the rules alone.
//
// Shares nothing with the passes that split it.  Every value gets a layout: whole on every rank, or
// split once - one dimension is before x (P ranks) x rest and a rank holds its block - or a partial
// sum.  Each op is then judged by its rule on the local sizes: a split letter must be split at the
// same place in every operand that has it, may be split by its kind, and stands in every result;
// results that a summed letter leaves out are partial, and only an all-reduce may read them.
// Exchanges and slices must find and leave the layout they say.  A rank's part may be shorter than
// its room; what it leaves, the tail, is in no sum: it was cleared, or its labels are ignored.
// Sizes of whole dimensions have no fraction (no ceil(S/P) without a rank behind it).  Changes
// nothing.  O(nodes).  Neighbours: op/rule.h, shard.c (who must satisfy it).
// SPDX-License-Identifier: Apache-2.0
#include "op/attention.h"
#include "op/rule.h"
#include "pass/pass.h"

typedef struct layout {
    bool split, partial;
    uint32_t dim;    // the split dimension
    asp_size before; // what stands outside of the ranks in it; 1: blocks of the whole dimension
    asp_size whole;  // the number of units that are split, over all ranks
    asp_size length; // how many of them count: fewer once a sequence was cut short
    bool zero_tail;  // the tail holds zeros
    bool filled;     // the tail holds `fill`
    int64_t fill;
    int64_t group; // ranks of a group, of a slice that each group has alike
    bool grouped; // split over the ranks of a group, and dim 2, `rows` of the sequence, over groups
    asp_size rows; // none: in every group alike
    int64_t rings; // the order in which what is split is shared out (base/rows.h); 0: as 1
    bool zigzag;
    unsigned uniform; // bit d: all slices of dimension d are equal, it fits whole and split
} layout;

typedef struct checker {
    asp_pass *px;
    asp_graph *g;
    layout *of; // by value
    asp_size one, ranks;
    int8_t *fraction; // by size: 0 unknown, 1 none, -1 has one
    uint32_t n_fraction;
} checker;

static asp_status wrong(const checker *k, asp_node n, const char *fmt, ...) ASP_PRINTF(3, 4);
static asp_status wrong(const checker *k, asp_node n, const char *fmt, ...)
{
    char what[512];
    va_list args;
    va_start(args, fmt);
    asp_vformat(what, sizeof what, fmt, args);
    va_end(args);
    return asp_fail(k->px->cx, ASP_ERR_CHECK,
                    "the program split over %lld ranks is not proved equal to the one of one "
                    "device: %s: %s",
                    (long long)k->g->ranks, asp_node_str(k->g, n), what);
}

// A part over the ranks that may be shorter than its room.
static bool has_tail(const checker *k, asp_size whole, asp_size length, int64_t ranks)
{
    int64_t n;
    return !asp_size_equal(whole, length) || !asp_size_is_num(k->g, whole, &n) || n % ranks != 0;
}

static bool reads_as_part(const char *size) { return strchr(size, '/') || strstr(size, "ceil("); }

static bool has_fraction(checker *k, asp_size s)
{
    if (s.i >= k->n_fraction) return reads_as_part(asp_size_str(k->g, s));
    if (!k->fraction[s.i]) k->fraction[s.i] = reads_as_part(asp_size_str(k->g, s)) ? -1 : 1;
    return k->fraction[s.i] < 0;
}

// ---- one op by its rule
// -------------------------------------------------------------------------

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
static bool locate(checker *k, const asp_rule *r, const asp_rule_dim *dim, asp_size before,
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
static bool same_parts(const checker *k, const split_letter *a, const split_letter *b)
{
    if (asp_size_equal(a->whole, b->whole)) return asp_size_equal(a->length, b->length);
    return !has_tail(k, a->whole, a->length, k->g->ranks) &&
           !has_tail(k, b->whole, b->length, k->g->ranks);
}

// The units of letter s over all ranks.  An even exchange of merged dims counts elements, 32 of
// them, where the rule has letters, 4 heads of 8: (2 heads of 8) on a rank are 4 heads of 8.
static asp_size units_of(checker *k, asp_size letter, asp_size local, const layout *l,
                         const split_letter *s)
{
    asp_size room = asp_size_ceil_div(k->g, l->whole, k->ranks), rest;
    bool elements = asp_size_equal(local, asp_size_mul(k->g, l->before, room));
    if (!elements || has_tail(k, l->whole, l->length, k->g->ranks)) return l->whole;
    if (!asp_size_divides(k->g, s->before, letter, &rest)) return l->whole;
    return asp_size_mul(k->g, rest, k->ranks);
}

// One group of all ranks, or every rank one, shares out alike in natural order; several groups of
// several do not (base/rows.h).
static int64_t order_of(const checker *k, int64_t rings, bool zigzag)
{
    return !zigzag && (rings <= 1 || rings == k->g->ranks) ? 1 : rings;
}

static bool same_order(const checker *k, const layout *l, int64_t rings, bool zigzag)
{
    return l->zigzag == zigzag && order_of(k, l->rings, zigzag) == order_of(k, rings, zigzag);
}

static asp_status find_split(checker *k, asp_node n, const asp_rule *r, split_letter *out)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    *out = (split_letter){0};
    for (uint32_t i = 0; i < info->n_in; i++) {
        const layout *l = &k->of[info->in[i].i];
        split_letter s;
        if (l->partial)
            return wrong(k, n, "operand %u is a partial sum that was not all-reduced", i);
        if (!l->split) continue;
        if (l->grouped && (l->rows.i || info->op != ASP_OP_view))
            return wrong(k, n, "operand %u is split within groups of ranks", i);
        if (!locate(k, r, &r->in[i][l->dim], l->before, &s))
            return wrong(k, n, "operand %u is split in dimension %u, which it does not keep", i,
                         l->dim);
        if (r->letter[s.letter].kind == ASP_LETTER_WHOLE)
            return wrong(k, n, "operand %u is split in dimension %u, which the op needs whole", i,
                         l->dim);
        s.operand = i;
        s.rings = l->rings;
        s.zigzag = l->zigzag;
        s.whole = units_of(k, r->letter[s.letter].size,
                           asp_val_type(k->g, info->in[i])->dim[l->dim], l, &s);
        s.length = asp_size_equal(s.whole, l->whole) ? l->length : s.whole;
        if (!out->any)
            *out = s;
        else if (out->letter != s.letter || !asp_size_equal(out->before, s.before) ||
                 !same_parts(k, &s, out) || !same_order(k, l, out->rings, out->zigzag))
            return wrong(k, n, "operands %u and %u are split along different axes", out->operand,
                         i);
    }
    return ASP_OK;
}

// Every operand with the split letter is split there, or the same in all its slices.
static asp_status check_aligned(checker *k, asp_node n, const asp_rule *r, const split_letter *s)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    for (uint32_t i = 0; i < info->n_in; i++) {
        const layout *l = &k->of[info->in[i].i];
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
                return wrong(k, n, "operand %u has dimension %u whole, where operand %u is split",
                             i, d, s->operand);
            }
        }
    }
    return ASP_OK;
}

static bool is_filled(const checker *k, asp_val labels, int64_t ignore)
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
static bool leaves_out_tail(const checker *k, asp_node n, const split_letter *s)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    unsigned factors = 0;
    if (!has_tail(k, s->whole, s->length, k->g->ranks)) return true;
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

static asp_status place_in_result(checker *k, asp_node n, const asp_rule *r, const split_letter *s,
                                  uint32_t i)
{
    asp_val v = asp_node_result(k->g, n, i);
    layout *l = &k->of[v.i];
    for (uint32_t d = 0; d < asp_val_type(k->g, v)->rank; d++) {
        asp_size before = k->one;
        for (uint32_t j = 0; j < r->out[i][d].n; j++) {
            uint8_t c = r->out[i][d].at[j];
            if (c != s->letter) {
                before = asp_size_mul(k->g, before, r->letter[c].size);
                continue;
            }
            if (l->split) return wrong(k, n, "result %u would be split twice", i);
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
        return wrong(k, n, "result %u has lost the split axis", i);
    if (!leaves_out_tail(k, n, s))
        return wrong(k, n, "it sums what parts shorter than others leave of their room");
    l->partial = true;
    return ASP_OK;
}

// Result dims whose letter is new (a broadcast) or uniform in every operand that has it.
static void mark_uniform(checker *k, asp_node n, const asp_rule *r)
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

// Behind a view, a dim of size 1 where the ranks stand could be what is split: (4 heads of 4 ranks)
// or a new dim beside it.  A fraction in the split size tells; without one nothing does.
static asp_status check_view(checker *k, asp_node n)
{
    asp_val v = asp_node_at(k->g, n)->first;
    const asp_type *t = asp_val_type(k->g, v);
    const layout *l = &k->of[v.i];
    if (!asp_size_equal(l->before, k->one) || has_fraction(k, t->dim[l->dim])) return ASP_OK;
    bool before = l->dim > 0 && asp_size_equal(t->dim[l->dim - 1], k->one);
    bool itself = asp_size_equal(t->dim[l->dim], k->one);
    if (!before && !itself) return ASP_OK;
    return wrong(k, n, "what is split may be dimension %u of %s or the one before it", l->dim,
                 asp_type_str(k->g, t));
}

// The same elements, or the same ones in another dtype.
static void keep_tail(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    if (info->op != ASP_OP_view && info->op != ASP_OP_permute) return;
    const layout *from = &k->of[info->in[0].i];
    layout *to = &k->of[info->first.i];
    to->zero_tail = from->zero_tail;
    to->filled = from->filled;
    to->fill = from->fill;
}

// What stands before dim d, and before the ranks in it.
static asp_size items_before(checker *k, const asp_type *t, uint32_t d, asp_size before)
{
    for (uint32_t i = 0; i < d; i++) before = asp_size_mul(k->g, before, t->dim[i]);
    return before;
}

// A view that says where what is split stands.  Both shapes are one row of elements, in which the
// ranks stand behind as many others: so the whole shapes are one row too.  Parts without a tail may
// be counted in other units behind it, (1 head of 8) for 8 elements.
static asp_status check_told_view(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_view_attr *a = info->attr;
    const asp_type *x = asp_val_type(k->g, info->in[0]), *y = asp_val_type(k->g, info->first);
    const layout *from = &k->of[info->in[0].i];
    layout *to = &k->of[info->first.i];
    asp_size rest, left;
    if (from->partial || (from->grouped && from->rows.i) || !from->split)
        return wrong(k, n, "it says where its operand is split, which is not");
    if (!asp_size_equal(items_before(k, x, from->dim, from->before),
                        items_before(k, y, (uint32_t)a->split, a->before)) ||
        !asp_size_divides(k->g, a->before, y->dim[a->split], &rest))
        return wrong(k, n, "what is split is not behind %s in dimension %lld",
                     asp_size_str(k->g, a->before), (long long)a->split);
    unsigned uniform = to->uniform;
    *to = *from;
    to->uniform = uniform;
    to->dim = (uint32_t)a->split;
    to->before = a->before;
    // Of a parameter, alike in all groups, or of all ranks.
    const int64_t ranks = from->grouped ? from->group : k->g->ranks;
    const asp_size among = asp_size_num(k->g, ranks);
    if (!from->zigzag && !has_tail(k, from->whole, from->length, ranks))
        to->whole = to->length = asp_size_mul(k->g, rest, among);
    else if (!asp_size_divides(k->g, asp_size_ceil_div(k->g, from->whole, among), rest, &left))
        return wrong(k, n, "dimension %lld has no room for a part of %s", (long long)a->split,
                     asp_size_str(k->g, from->whole));
    return ASP_OK;
}

static asp_status check_by_rule(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    asp_rule r;
    split_letter s;
    if (!asp_rule_of(k->px->scratch, k->g, n, &r)) {
        for (uint32_t i = 0; i < info->n_in; i++)
            if (k->of[info->in[i].i].split || k->of[info->in[i].i].partial)
                return wrong(k, n, "operand %u is split, and the op has no sharding rule", i);
        return ASP_OK;
    }
    if (info->op == ASP_OP_view && ((const asp_view_attr *)info->attr)->before.i) {
        mark_uniform(k, n, &r);
        return check_told_view(k, n);
    }
    ASP_TRY(find_split(k, n, &r, &s));
    mark_uniform(k, n, &r);
    if (!s.any) return ASP_OK;
    ASP_TRY(check_aligned(k, n, &r, &s));
    for (uint32_t i = 0; i < info->n_out; i++) ASP_TRY(place_in_result(k, n, &r, &s, i));
    k->of[info->first.i].grouped = k->of[info->in[s.operand].i].grouped;
    k->of[info->first.i].group = k->of[info->in[s.operand].i].group;
    keep_tail(k, n);
    return info->op == ASP_OP_view ? check_view(k, n) : ASP_OK;
}

// ---- what ranks exchange
// ------------------------------------------------------------------------

static asp_status check_ranks(const checker *k, asp_node n, int64_t ranks)
{
    if (ranks == k->g->ranks) return ASP_OK;
    return wrong(k, n, "it is among %lld ranks", (long long)ranks);
}

// Within groups: tokens over all ranks to heads over a group, and back.  Between them stands
// attention alone.
static asp_status check_in_group(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_a2a_attr *a = info->attr;
    const layout l = k->of[info->in[0].i];
    layout *to = &k->of[info->first.i];
    const int64_t rings = k->g->ranks / a->ranks;
    if (a->ranks < 2 || k->g->ranks % a->ranks || l.partial || !l.split || l.rings != rings)
        return wrong(k, n, "its operand is not shared out over groups of %lld",
                     (long long)a->ranks);
    if (l.grouped) {
        if (!l.rows.i || l.dim != a->gather || a->split != 2 || a->split_unit != 1)
            return wrong(k, n, "it does not bring back what is split");
        if (!asp_size_equal(asp_val_type(k->g, info->first)->dim[a->gather],
                            asp_size_mul(k->g, l.whole, asp_size_num(k->g, a->gather_unit))))
            return wrong(k, n, "it gathers other heads than were split");
        *to =
            (layout){.split = true, .dim = 2, .before = k->one, .whole = l.rows, .length = l.rows};
    } else {
        asp_size heads = asp_val_type(k->g, info->in[0])->dim[a->split];
        if (l.dim != 2 || a->gather != 2 || a->gather_unit != 1 || a->whole.i ||
            !asp_size_equal(l.before, k->one) || !asp_size_equal(l.whole, l.length))
            return wrong(k, n, "dimension 2 of its operand is not a rank's part");
        ASP_TRY(asp_size_div(k->g, heads, asp_size_num(k->g, a->split_unit), &heads));
        *to = (layout){.split = true, .dim = (uint32_t)a->split, .before = k->one, .whole = heads};
        to->length = heads;
        to->grouped = true;
        to->rows = l.whole;
    }
    to->rings = l.rings;
    to->zigzag = l.zigzag;
    return ASP_OK;
}

static asp_status check_all_to_all(checker *k, asp_node n)
{
    if (((const asp_a2a_attr *)asp_node_at(k->g, n)->attr)->ranks != k->g->ranks)
        return check_in_group(k, n);
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_a2a_attr *a = info->attr;
    const layout *l = &k->of[info->in[0].i];
    ASP_TRY(check_ranks(k, n, a->ranks));
    if (l->partial || !l->split || l->dim != a->gather || !asp_size_equal(l->before, k->one))
        return wrong(k, n, "dimension %lld, which it gathers, is not split", (long long)a->gather);
    if (!same_order(k, l, 1, false))
        return wrong(k, n, "what it gathers does not stand in the order of the sequence");
    asp_size gathered = asp_val_type(k->g, info->first)->dim[a->gather];
    asp_size split = asp_val_type(k->g, info->in[0])->dim[a->split];
    ASP_TRY(asp_size_div(k->g, gathered, asp_size_num(k->g, a->gather_unit), &gathered));
    ASP_TRY(asp_size_div(k->g, split, asp_size_num(k->g, a->split_unit), &split));
    if ((has_tail(k, l->whole, l->length, k->g->ranks) && !asp_size_equal(l->whole, gathered)) ||
        !asp_size_equal(l->whole, l->length))
        return wrong(k, n, "it gathers %s of %s", asp_size_str(k->g, gathered),
                     asp_size_str(k->g, l->whole));
    k->of[info->first.i] = (layout){.split = true,
                                    .dim = (uint32_t)a->split,
                                    .before = k->one,
                                    .whole = split,
                                    .length = split};
    return ASP_OK;
}

static asp_status check_slice(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_part_attr *a = info->attr;
    const layout *l = &k->of[info->in[0].i];
    const bool grouped = a->ranks > 1 && a->ranks < k->g->ranks && k->g->ranks % a->ranks == 0;
    if (!grouped) ASP_TRY(check_ranks(k, n, a->ranks));
    if (l->partial || l->split) return wrong(k, n, "its operand is not whole");
    asp_size length = asp_val_type(k->g, info->in[0])->dim[a->dim];
    k->of[info->first.i] = (layout){.split = true,
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
static bool has_parts(const checker *k, const layout *l, const asp_part_attr *a)
{
    return !l->partial && l->split && l->dim == a->dim && asp_size_equal(l->before, k->one) &&
           asp_size_equal(l->whole, a->of.i ? a->of : a->length) &&
           same_order(k, l, a->rings, a->zigzag);
}

static asp_status check_pad(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_part_attr *a = info->attr;
    const layout *l = &k->of[info->in[0].i];
    ASP_TRY(check_ranks(k, n, a->ranks));
    if (!has_parts(k, l, a) || !asp_size_equal(l->length, a->length))
        return wrong(k, n, "dimension %lld is no part of %s", (long long)a->dim,
                     asp_size_str(k->g, a->length));
    k->of[info->first.i] = (layout){.partial = true};
    return ASP_OK;
}

static asp_status check_shorten(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_part_attr *a = info->attr;
    const layout *l = &k->of[info->in[0].i];
    int64_t dropped;
    ASP_TRY(check_ranks(k, n, a->ranks));
    asp_size rest = asp_size_sub(k->g, l->length, a->length);
    if (!has_parts(k, l, a) || (asp_size_is_num(k->g, rest, &dropped) && dropped < 0))
        return wrong(k, n, "dimension %lld is no part of %s items of which %s could be left",
                     (long long)a->dim, asp_size_str(k->g, a->of), asp_size_str(k->g, a->length));
    k->of[info->first.i] = *l;
    k->of[info->first.i].length = a->length;
    k->of[info->first.i].zero_tail = k->of[info->first.i].filled = false;
    return ASP_OK;
}

// An op with an algorithm of its own: its first operand, and what is scanned, are parts of one
// sequence; the others are whole, and the result is such a part, or (select) whole.
static asp_status check_sequence_op(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_seq_attr *a = info->attr;
    const asp_part_attr part = {.dim = a->dim, .of = a->of, .length = a->length};
    uint32_t parts = info->op == ASP_OP_seq_scan ? 2 : 1;
    ASP_TRY(check_ranks(k, n, a->ranks));
    for (uint32_t i = 0; i < info->n_in; i++) {
        const layout *l = &k->of[info->in[i].i];
        bool right = i < parts ? has_parts(k, l, &part) && asp_size_equal(l->length, a->length)
                               : !l->split && !l->partial;
        if (!right)
            return wrong(k, n, "operand %u is %s", i,
                         i < parts ? "no part of the sequence it says" : "not whole");
    }
    if (info->op != ASP_OP_seq_select)
        k->of[info->first.i] = (layout){.split = true,
                                        .dim = (uint32_t)a->dim,
                                        .before = k->one,
                                        .whole = a->of,
                                        .length = a->length};
    return ASP_OK;
}

static asp_status check_mask(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_part_attr *a = info->attr;
    const layout *l = &k->of[info->in[0].i];
    ASP_TRY(check_ranks(k, n, a->ranks));
    if (!has_parts(k, l, a) || !asp_size_equal(l->length, a->length))
        return wrong(k, n, "dimension %lld, whose tail it clears, is no part of %s",
                     (long long)a->dim, asp_size_str(k->g, a->of));
    k->of[info->first.i] = *l;
    k->of[info->first.i].zero_tail = true;
    return ASP_OK;
}

// Heads of q, and of something else, that are shared out alike over a group.
static bool same_heads(const checker *k, const layout *q, const layout *l, int64_t in_group)
{
    int64_t heads, of_q;
    return asp_size_is_num(k->g, l->whole, &heads) && asp_size_is_num(k->g, q->whole, &of_q) &&
           (heads == of_q || (heads % in_group == 0 && of_q % in_group == 0));
}

// What attention reads beside q, k and v has the heads of q, or none of its own.
static asp_status check_beside(checker *k, asp_node n, uint32_t i, int64_t in_group)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_type *t = asp_val_type(k->g, info->in[i]);
    const layout *l = &k->of[info->in[i].i];
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
    return wrong(k, n, "operand %u is not shared out as the heads are", i);
}

// The same with heads, dim 1, split over each group: those of q in as many parts as those of k.
static asp_status check_ring_of_groups(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_sdpa_attr *a = info->attr;
    const layout *q = &k->of[info->in[0].i];
    for (uint32_t i = 0; i < info->n_in; i++) {
        const layout *l = &k->of[info->in[i].i];
        if (i >= 3) {
            ASP_TRY(check_beside(k, n, i, k->g->ranks / a->rings));
            continue;
        }
        if (!l->grouped || l->dim != 1 || !asp_size_equal(l->rows, i ? a->keys : a->tokens) ||
            l->rings != a->rings || l->zigzag != a->zigzag)
            return wrong(k, n, "operand %u is not split over groups as it is told", i);
        if (!same_heads(k, q, l, k->g->ranks / a->rings))
            return wrong(k, n, "heads of operand %u do not go with those of the queries", i);
    }
    for (uint32_t i = 0; i < info->n_out; i++) {
        k->of[info->first.i + i] = *q;
        k->of[info->first.i + i].zero_tail = k->of[info->first.i + i].filled = false;
    }
    return ASP_OK;
}

// Queries, keys and values are split in their dim of tokens, in the order that the op is told; what
// it reads beside them is whole.
static asp_status check_ring(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    const asp_sdpa_attr *a = info->attr;
    if (k->of[info->in[0].i].grouped) return check_ring_of_groups(k, n);
    ASP_TRY(check_ranks(k, n, a->rings));
    for (uint32_t i = 0; i < info->n_in; i++) {
        const layout *l = &k->of[info->in[i].i];
        const asp_size rows = i ? a->keys : a->tokens;
        if (i >= 3) {
            if (!l->split && !l->partial) continue;
            return wrong(k, n, "operand %u is not whole", i);
        }
        if (l->partial || !l->split || l->dim != 2 || !asp_size_equal(l->before, k->one) ||
            !asp_size_equal(l->whole, rows) || !asp_size_equal(l->length, rows))
            return wrong(k, n, "dimension 2 of operand %u is no part of %s", i,
                         asp_size_str(k->g, rows));
        if (!same_order(k, l, a->rings, a->zigzag))
            return wrong(k, n, "the rows of operand %u are shared out in another order", i);
    }
    for (uint32_t i = 0; i < info->n_out; i++)
        k->of[info->first.i + i] = (layout){.split = true,
                                            .dim = 2,
                                            .before = k->one,
                                            .whole = a->tokens,
                                            .length = a->tokens,
                                            .rings = a->rings,
                                            .zigzag = a->zigzag};
    return ASP_OK;
}

static asp_status check_all_reduce(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    if (!k->of[info->in[0].i].partial)
        return wrong(k, n, "its operand is no partial sum: it would be counted %lld times",
                     (long long)k->g->ranks);
    return ASP_OK;
}

// ---- sizes
// --------------------------------------------------------------------------------------

static asp_status check_sizes(checker *k, asp_node n)
{
    for (uint32_t i = 0; i < asp_node_at(k->g, n)->n_out; i++) {
        asp_val v = asp_node_result(k->g, n, i);
        const asp_type *t = asp_val_type(k->g, v);
        const layout *l = &k->of[v.i];
        if (l->grouped) continue; // by the ops that may read it
        for (uint32_t d = 0; d < t->rank; d++) {
            if (l->uniform >> d & 1) continue;
            if (l->split && l->dim == d) {
                asp_size room = asp_size_ceil_div(k->g, l->whole, k->ranks), outer, inner;
                if (!has_tail(k, l->whole, l->length, k->g->ranks) &&
                    asp_size_is_num(k->g, t->dim[d], NULL))
                    continue;
                if (asp_size_divides(k->g, l->before, t->dim[d], &outer) &&
                    asp_size_divides(k->g, room, outer, &inner) && !has_fraction(k, inner))
                    continue;
                return wrong(k, n, "dimension %u of %s is no part of %s over %lld ranks", d,
                             asp_type_str(k->g, t), asp_size_str(k->g, l->whole),
                             (long long)k->g->ranks);
            }
            if (!has_fraction(k, t->dim[d])) continue;
            return wrong(k, n, "dimension %u of %s is a rank's part, but is not split", d,
                         asp_type_str(k->g, t));
        }
    }
    return ASP_OK;
}

// ---- what counts elements of the whole program
// ---------------------------------------------------

static asp_status check_dropout(checker *k, asp_node n)
{
    const asp_dropout_attr *a = asp_node_at(k->g, n)->attr;
    const layout *l = &k->of[asp_node_at(k->g, n)->in[0].i];
    int64_t parts = 1;
    for (uint32_t i = 0; i < a->dims.n; i++) parts *= a->parts.at[i];
    bool right = parts == (l->split ? k->g->ranks : 1) && (!l->zigzag || a->dims.n == 1);
    if (l->split && a->dims.n == 1)
        right &=
            a->dims.at[0] == l->dim && a->stride.at[0] == 1 &&
            same_order(k, l, a->rings.at[0], a->zigzag) &&
            (!has_tail(k, l->whole, l->length, k->g->ranks) ||
             (asp_size_equal(a->of.at[0], l->whole) && asp_size_equal(a->whole.at[0], l->length) &&
              asp_size_equal(a->outer.at[0], l->before)));
    if (right) return ASP_OK;
    return wrong(k, n, "its random numbers are not counted by the place in the whole tensor");
}

static asp_status check_counts(checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    if (info->op == ASP_OP_size_value && has_fraction(k, ((const asp_size_attr *)info->attr)->size))
        return wrong(k, n, "%s is a rank's part of a size",
                     asp_size_str(k->g, ((const asp_size_attr *)info->attr)->size));
    if (info->op == ASP_OP_dropout) return check_dropout(k, n);
    if (info->op != ASP_OP_sdpa && info->op != ASP_OP_ring_sdpa) return ASP_OK;
    const asp_sdpa_attr *a = info->attr;
    const layout *l = &k->of[info->in[0].i];
    const int64_t sharing = l->split && l->dim == 1 ? k->g->ranks / a->rings : 1;
    if (a->dropout == 0 || a->head_ranks == sharing) return ASP_OK;
    return wrong(k, n, "its dropout does not count the heads of the whole program");
}

// ---- the graph
// ----------------------------------------------------------------------------------

static asp_status check_node(checker *k, asp_node n)
{
    asp_op op = asp_node_at(k->g, n)->op;
    if (op == ASP_OP_all_to_all)
        ASP_TRY(check_all_to_all(k, n));
    else if (op == ASP_OP_shard_slice)
        ASP_TRY(check_slice(k, n));
    else if (op == ASP_OP_shard_pad)
        ASP_TRY(check_pad(k, n));
    else if (op == ASP_OP_seq_shift || op == ASP_OP_seq_conv1d || op == ASP_OP_seq_cumsum ||
             op == ASP_OP_seq_scan || op == ASP_OP_seq_select)
        ASP_TRY(check_sequence_op(k, n));
    else if (op == ASP_OP_shorten)
        ASP_TRY(check_shorten(k, n));
    else if (op == ASP_OP_mask_tail)
        ASP_TRY(check_mask(k, n));
    else if (op == ASP_OP_ring_sdpa)
        ASP_TRY(check_ring(k, n));
    else if (op == ASP_OP_all_reduce)
        ASP_TRY(check_all_reduce(k, n));
    else
        ASP_TRY(check_by_rule(k, n));
    ASP_TRY(check_counts(k, n));
    return check_sizes(k, n);
}

static asp_status check_outputs(const checker *k)
{
    for (uint32_t i = 0; i < k->g->outputs.n; i++) {
        asp_output o = k->g->outputs.at[i];
        const layout *l = &k->of[o.val.i];
        asp_node n = asp_val_at(k->g, o.val)->node;
        if (l->partial) return wrong(k, n, "output %u is a partial sum", i);
        if (l->split && strcmp(o.name, "loss") == 0)
            return wrong(k, n, "the loss differs from rank to rank");
    }
    return ASP_OK;
}

asp_status asp_pass_check(asp_pass *px, asp_graph *g)
{
    checker k = {.px = px, .g = g, .n_fraction = 4096};
    if (g->ranks != px->options->ranks)
        return asp_fail(px->cx, ASP_ERR_CHECK, "graph %s is of %lld ranks, not of %lld", g->name,
                        (long long)g->ranks, (long long)px->options->ranks);
    if (g->ranks == 1) return ASP_OK;
    ASP_TRY(asp_graph_typecheck(g));
    k.of = ASP_NEW_ARRAY(px->scratch, layout, g->vals.n);
    k.fraction = ASP_NEW_ARRAY(px->scratch, int8_t, k.n_fraction);
    k.one = asp_size_num(g, 1);
    k.ranks = asp_size_num(g, g->ranks);
    ASP_FOR_NODES (g, n) ASP_TRY(check_node(&k, n));
    return check_outputs(&k);
}
