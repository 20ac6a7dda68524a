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
// nothing.  O(nodes).  Its rooms: check_rule.c, check_view.c, check_parts.c, check_groups.c.
// Neighbours: op/rule.h, shard.c (who must satisfy it).
// SPDX-License-Identifier: Apache-2.0
#include "pass/check_int.h"

asp_status asp_not_proved(const asp_checker *k, asp_node n, const char *fmt, ...)
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

bool asp_has_tail(const asp_checker *k, asp_size whole, asp_size length, int64_t ranks)
{
    int64_t n;
    return !asp_size_equal(whole, length) || !asp_size_is_num(k->g, whole, &n) || n % ranks != 0;
}

static bool reads_as_part(const char *size) { return strchr(size, '/') || strstr(size, "ceil("); }

bool asp_has_fraction(asp_checker *k, asp_size s)
{
    if (s.i >= k->n_fraction) return reads_as_part(asp_size_str(k->g, s));
    if (!k->fraction[s.i]) k->fraction[s.i] = reads_as_part(asp_size_str(k->g, s)) ? -1 : 1;
    return k->fraction[s.i] < 0;
}

// One group of all ranks, or every rank one, shares out alike in natural order; several groups of
// several do not (base/rows.h).
static int64_t order_of(const asp_checker *k, int64_t rings, bool zigzag)
{
    return !zigzag && (rings <= 1 || rings == k->g->ranks) ? 1 : rings;
}

bool asp_in_same_order(const asp_checker *k, const asp_layout *l, int64_t rings, bool zigzag)
{
    return l->zigzag == zigzag && order_of(k, l->rings, zigzag) == order_of(k, rings, zigzag);
}

asp_status asp_check_ranks(const asp_checker *k, asp_node n, int64_t ranks)
{
    if (ranks == k->g->ranks) return ASP_OK;
    return asp_not_proved(k, n, "it is among %lld ranks", (long long)ranks);
}

// ---- sizes -------------------------------------------------------------------------------------

static asp_status check_sizes(asp_checker *k, asp_node n)
{
    for (uint32_t i = 0; i < asp_node_at(k->g, n)->n_out; i++) {
        asp_val v = asp_node_result(k->g, n, i);
        const asp_type *t = asp_val_type(k->g, v);
        const asp_layout *l = &k->of[v.i];
        if (l->grouped) continue; // by the ops that may read it
        for (uint32_t d = 0; d < t->rank; d++) {
            if (l->uniform >> d & 1) continue;
            if (l->split && l->dim == d) {
                asp_size room = asp_size_ceil_div(k->g, l->whole, k->ranks), outer, inner;
                if (!asp_has_tail(k, l->whole, l->length, k->g->ranks) &&
                    asp_size_is_num(k->g, t->dim[d], NULL))
                    continue;
                if (asp_size_divides(k->g, l->before, t->dim[d], &outer) &&
                    asp_size_divides(k->g, room, outer, &inner) && !asp_has_fraction(k, inner))
                    continue;
                return asp_not_proved(k, n, "dimension %u of %s is no part of %s over %lld ranks",
                                      d, asp_type_str(k->g, t), asp_size_str(k->g, l->whole),
                                      (long long)k->g->ranks);
            }
            if (!asp_has_fraction(k, t->dim[d])) continue;
            return asp_not_proved(k, n, "dimension %u of %s is a rank's part, but is not split", d,
                                  asp_type_str(k->g, t));
        }
    }
    return ASP_OK;
}

// ---- what counts elements of the whole program -------------------------------------------------

static asp_status check_dropout(asp_checker *k, asp_node n)
{
    const asp_dropout_attr *a = asp_node_at(k->g, n)->attr;
    const asp_layout *l = &k->of[asp_node_at(k->g, n)->in[0].i];
    int64_t parts = 1;
    for (uint32_t i = 0; i < a->dims.n; i++) parts *= a->parts.at[i];
    bool right = parts == (l->split ? k->g->ranks : 1) && (!l->zigzag || a->dims.n == 1);
    if (l->split && a->dims.n == 1)
        right &=
            a->dims.at[0] == l->dim && a->stride.at[0] == 1 &&
            asp_in_same_order(k, l, a->rings.at[0], a->zigzag) &&
            (!asp_has_tail(k, l->whole, l->length, k->g->ranks) ||
             (asp_size_equal(a->of.at[0], l->whole) && asp_size_equal(a->whole.at[0], l->length) &&
              asp_size_equal(a->outer.at[0], l->before)));
    if (right) return ASP_OK;
    return asp_not_proved(k, n,
                          "its random numbers are not counted by the place in the whole tensor");
}

static asp_status check_counts(asp_checker *k, asp_node n)
{
    const asp_node_info *info = asp_node_at(k->g, n);
    if (info->op == ASP_OP_size_value &&
        asp_has_fraction(k, ((const asp_size_attr *)info->attr)->size))
        return asp_not_proved(k, n, "%s is a rank's part of a size",
                              asp_size_str(k->g, ((const asp_size_attr *)info->attr)->size));
    if (info->op == ASP_OP_dropout) return check_dropout(k, n);
    if (info->op != ASP_OP_sdpa && info->op != ASP_OP_ring_sdpa) return ASP_OK;
    const asp_sdpa_attr *a = info->attr;
    const asp_layout *l = &k->of[info->in[0].i];
    const int64_t sharing = l->split && l->dim == 1 ? k->g->ranks / a->rings : 1;
    if (a->dropout == 0 || a->head_ranks == sharing) return ASP_OK;
    return asp_not_proved(k, n, "its dropout does not count the heads of the whole program");
}

// ---- the graph ---------------------------------------------------------------------------------

// What finds the layout of an op's results; the others go by their rules.
static asp_status (*const proofs[])(asp_checker *, asp_node) = {
    [ASP_OP_all_to_all] = asp_check_all_to_all,  [ASP_OP_all_reduce] = asp_check_all_reduce,
    [ASP_OP_shard_slice] = asp_check_slice,      [ASP_OP_shard_pad] = asp_check_pad,
    [ASP_OP_shorten] = asp_check_shorten,        [ASP_OP_mask_tail] = asp_check_mask,
    [ASP_OP_seq_shift] = asp_check_sequence_op,  [ASP_OP_seq_conv1d] = asp_check_sequence_op,
    [ASP_OP_seq_cumsum] = asp_check_sequence_op, [ASP_OP_seq_scan] = asp_check_sequence_op,
    [ASP_OP_seq_select] = asp_check_sequence_op, [ASP_OP_ring_sdpa] = asp_check_ring,
};

static asp_status check_node(asp_checker *k, asp_node n)
{
    const asp_op op = asp_node_at(k->g, n)->op;
    const bool own = (size_t)op < ASP_COUNT_OF(proofs) && proofs[op];
    ASP_TRY(own ? proofs[op](k, n) : asp_check_by_rule(k, n));
    ASP_TRY(check_counts(k, n));
    return check_sizes(k, n);
}

static asp_status check_outputs(const asp_checker *k)
{
    for (uint32_t i = 0; i < k->g->outputs.n; i++) {
        asp_output o = k->g->outputs.at[i];
        const asp_layout *l = &k->of[o.val.i];
        asp_node n = asp_val_at(k->g, o.val)->node;
        if (l->partial) return asp_not_proved(k, n, "output %u is a partial sum", i);
        if (l->split && strcmp(o.name, "loss") == 0)
            return asp_not_proved(k, n, "the loss differs from rank to rank");
    }
    return ASP_OK;
}

asp_status asp_pass_check(asp_pass *px, asp_graph *g)
{
    asp_checker k = {.px = px, .g = g, .n_fraction = 4096};
    if (g->ranks != px->options->ranks)
        return asp_fail(px->cx, ASP_ERR_CHECK, "graph %s is of %lld ranks, not of %lld", g->name,
                        (long long)g->ranks, (long long)px->options->ranks);
    if (g->ranks == 1) return ASP_OK;
    ASP_TRY(asp_graph_typecheck(g));
    k.of = ASP_NEW_ARRAY(px->scratch, asp_layout, g->vals.n);
    k.fraction = ASP_NEW_ARRAY(px->scratch, int8_t, k.n_fraction);
    k.one = asp_size_num(g, 1);
    k.ranks = asp_size_num(g, g->ranks);
    ASP_FOR_NODES (g, n) ASP_TRY(check_node(&k, n));
    return check_outputs(&k);
}
