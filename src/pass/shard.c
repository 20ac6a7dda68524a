// pass/shard.c: from one program for one device to the program of every rank.
//
//   %0 : f32[B, S, 32] = embedding %ids, %w      %1 : i64[B, S/2] = shard_slice %ids {dim = 1,
//   ranks = 2}
//                                           ->   %0 : f32[B, S/2, 32] = embedding %1, %w
//   %2 : f32[B, 4, S, 8] = all_to_all ..         %2 : f32[B, 2, S, 8] = all_to_all .. {.., ranks =
//   2}
//
// Walks the graph once.  A value is at "sequence" (its tokens split) until an exchange takes it to
// a chain of other atoms, which stand in the dimension that the exchange splits; the next one
// brings it back.  Sizes of what is not replicable become local; replicable values stay whole and
// are sliced where a split letter of an op meets them, once a value and dim.  A sum over split
// tokens is all-reduced.  An op that needs all tokens gets them gathered, where the cut left it at
// "sequence", and each rank keeps its part of what it gives.  With one rank nothing is done.
// O(nodes).  Neighbours: place.c (who put the exchanges in), axes.h, shard_cut.c (how values are
// cut), check.c (who proves the result).  SPDX-License-Identifier: Apache-2.0
#include "kern/kern.h"
#include "pass/shard_int.h"

static asp_status confused(const asp_sharder *s, asp_node n, const char *what)
{
    return asp_fail(s->px->cx, ASP_ERR_CHECK,
                    "sharding %s: %s; was the graph placed for %lld ranks?", asp_node_str(s->g, n),
                    what, (long long)s->ranks);
}

static bool same_chain(const asp_chain *a, const asp_chain *b)
{
    if (!a || !b) return a == b;
    return a->atoms.n == b->atoms.n &&
           memcmp(a->atoms.at, b->atoms.at, a->atoms.n * sizeof a->atoms.at[0]) == 0 &&
           memcmp(a->parts, b->parts, a->atoms.n * sizeof a->parts[0]) == 0;
}

// ---- rings -------------------------------------------------------------------------------------

// Attention at "sequence" that goes round: look-ups and the like stay whole.
static void put_on_ring(asp_sharder *s, asp_node n)
{
    const asp_node_info *info = asp_node_at(s->g, n);
    asp_sdpa_attr a = *(const asp_sdpa_attr *)info->attr;
    a.rings = s->rings;
    a.zigzag = s->zigzag;
    a.tokens = s->x.atoms.at[s->x.dims[info->in[0].i][2].at[0]].size;
    a.keys = s->x.atoms.at[s->x.dims[info->in[1].i][2].at[0]].size;
    asp_graph_set_op(s->g, n, ASP_OP_ring_sdpa);
    asp_graph_set_attr(s->g, n, &a);
}

// ---- nodes -------------------------------------------------------------------------------------

static bool starts_with(asp_atoms list, uint32_t atom) { return list.n && list.at[0] == atom; }

static bool starts_with_token(const asp_sharder *s, asp_atoms list)
{
    return list.n && s->x.atoms.at[list.at[0]].token;
}

// A ragged chain splits its atom; what stands inside of it in the dim stays together.
static asp_status unit_of(const asp_sharder *s, asp_node n, const asp_chain *chain, asp_atoms dim,
                          int64_t *out_unit)
{
    if (!asp_chain_is_ragged(s->g, &s->x, chain)) return ASP_OK;
    asp_size inside = asp_whole_size(s, (asp_atoms){.n = dim.n - 1, .at = dim.at + 1});
    if (asp_size_is_num(s->g, inside, out_unit)) return ASP_OK;
    return confused(s, n, "what it splits stays together in units whose size is a symbol");
}

// An exchange: its ranks, and the state behind it.
static asp_status visit_exchange(asp_sharder *s, asp_node n, const asp_chain **out_state)
{
    asp_a2a_attr a = *(const asp_a2a_attr *)asp_node_at(s->g, n)->attr;
    asp_val v = asp_node_at(s->g, n)->in[0];
    const asp_chain *from = s->state[v.i];
    asp_atoms split = s->x.dims[v.i][a.split], gather = s->x.dims[v.i][a.gather];
    if (from) {
        if (!starts_with(gather, from->atoms.at[0]) || !starts_with_token(s, split))
            return confused(s, n, "it does not bring back what is split");
        a.whole = asp_whole_size(s, gather);
        ASP_TRY(unit_of(s, n, from, gather, &a.gather_unit));
        *out_state = NULL;
    } else {
        asp_chain *chain = ASP_NEW(s->px->scratch, asp_chain);
        if (!starts_with_token(s, gather)) return confused(s, n, "it does not gather the sequence");
        asp_atoms dealt = split;
        if (a.split_unit > 1 && dealt.n > 1) dealt.n = 1; // what stands inside of it is the unit
        if (!asp_chain_spread(s->g, &s->x, dealt, s->sp.heads, chain))
            return confused(s, n, "what it splits has no size");
        a.whole = asp_whole_size(s, gather);
        ASP_TRY(unit_of(s, n, chain, split, &a.split_unit));
        *out_state = chain;
    }
    int64_t whole;
    if (asp_size_is_num(s->g, a.whole, &whole) && whole % (s->sp.heads * a.gather_unit) == 0)
        a.whole = (asp_size){0};
    // What the ranks of a group hold, put together, has its tail at the end.
    if (!from && s->sp.kind == ASP_SP_HYBRID) a.whole = (asp_size){0};
    a.ranks = s->sp.heads;
    asp_graph_set_attr(s->g, n, &a);
    return ASP_OK;
}

static asp_status state_of_operands(asp_sharder *s, asp_node n, const asp_chain **out_state)
{
    const asp_node_info *info = asp_node_at(s->g, n);
    const asp_chain *state = NULL;
    bool any = false;
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val v = info->in[i];
        if (s->x.replicable[v.i]) continue;
        if (any && !same_chain(state, s->state[v.i]))
            return confused(s, n, "its operands are split along different axes");
        state = s->state[v.i];
        any = true;
    }
    *out_state = state;
    return ASP_OK;
}

// Shapes written in attributes become local.  Where a rank's part is one item, (1 head of 4), a
// view says where it stands: sizes do not.
static void set_shape_attr(asp_sharder *s, asp_node n, const asp_type *t, const asp_chain *state)
{
    asp_op op = asp_node_at(s->g, n)->op;
    asp_sizes shape = {.n = t->rank};
    memcpy(shape.at, t->dim, t->rank * sizeof t->dim[0]);
    if (op == ASP_OP_expand) asp_graph_set_attr(s->g, n, &(asp_expand_attr){.shape = shape});
    if (op != ASP_OP_view) return;
    asp_view_attr a = {.shape = shape};
    asp_find_single_item(s, asp_node_at(s->g, n)->first, state, &a);
    asp_graph_set_attr(s->g, n, &a);
}

// Result i is a partial sum when a summed letter is split and not in the result.
static bool is_partial(const asp_sharder *s, asp_node n, uint32_t i, const asp_chain *state)
{
    const asp_node_axes *a = s->x.node[n.i];
    asp_val v = asp_node_result(s->g, n, i);
    for (uint32_t c = 0; c < a->rule.n_letters; c++) {
        if (a->rule.letter[c].kind != ASP_LETTER_SUM) continue;
        if (asp_parts_of_list(s, state, a->letter[c]) == 1) continue;
        bool kept = false;
        for (uint32_t d = 0; d < asp_val_type(s->g, v)->rank; d++)
            for (uint32_t k = 0; k < a->rule.out[i][d].n; k++) kept |= a->rule.out[i][d].at[k] == c;
        if (!kept) return true;
    }
    return false;
}

// The node ran on all tokens: each rank keeps its part.
static asp_status keep_parts(asp_sharder *s, asp_node n)
{
    s->b.before = asp_node_at(s->g, n)->next;
    s->b.loc = asp_node_at(s->g, n)->loc;
    for (uint32_t i = 0; i < asp_node_at(s->g, n)->n_out; i++) {
        asp_val v = asp_node_result(s->g, n, i), part;
        ASP_TRY(asp_keep_part(s, v, &part));
        if (part.i != v.i) s->map[v.i] = part;
        s->state[v.i] = NULL;
    }
    return ASP_OK;
}

// x[:, :n] along the tokens: each rank has its part already.
static asp_status shorten(asp_sharder *s, asp_node n)
{
    asp_val v = asp_node_at(s->g, n)->first, x = asp_node_at(s->g, n)->in[0];
    const asp_range_attr *a = asp_node_at(s->g, n)->attr;
    s->b.loc = asp_node_at(s->g, n)->loc;
    ASP_TRY(asp_shorten_tokens(s, v, (uint32_t)a->dim, x, &s->map[v.i]));
    ASP_PUSH(s->px->scratch, &s->replaced, n);
    return ASP_OK;
}

static asp_status set_results(asp_sharder *s, asp_node n, const asp_chain *state)
{
    asp_node next = asp_node_at(s->g, n)->next;
    for (uint32_t i = 0; i < asp_node_at(s->g, n)->n_out; i++) {
        asp_val v = asp_node_result(s->g, n, i);
        asp_type t = asp_local_type(s, v, state);
        bool partial = is_partial(s, n, i, state);
        set_shape_attr(s, n, &t, state);
        asp_graph_set_type(s->g, v, &t);
        s->state[v.i] = state;
        if (!partial) continue;
        s->b.before = next;
        s->b.loc = asp_node_at(s->g, n)->loc;
        s->map[v.i] = ASP_B1(&s->b, all_reduce, NULL, v);
        ASP_TRY(s->b.status);
    }
    return ASP_OK;
}

// The op that does n's work on a split sequence, where every rank has rows enough for its
// neighbours; ASP_NO_OP: none.
static asp_op sequence_op(const asp_sharder *s, asp_node n, uint32_t *out_dim, int64_t *out_rows)
{
    asp_op op = asp_axes_algorithm(&s->x, n, out_dim, out_rows);
    int64_t tokens;
    // Groups of ranks hold rows in an order of their own: neighbours may have none.
    if (op == ASP_NO_OP || s->sp.kind == ASP_SP_HYBRID) return ASP_NO_OP;
    asp_size size = asp_whole_size(s, s->x.dims[asp_node_at(s->g, n)->in[0].i][*out_dim]);
    bool known = asp_size_eval(s->g, size, &s->px->options->env, &tokens) == ASP_OK;
    return known && *out_rows > tokens / s->ranks ? ASP_NO_OP : op;
}

// Asks for neighbours, or for the place of a row.
static bool wants_order(const asp_sharder *s, asp_node n)
{
    asp_op op = asp_node_at(s->g, n)->op;
    uint32_t dim;
    int64_t rows;
    if (op == ASP_OP_all_to_all) return s->sp.kind != ASP_SP_HYBRID;
    if (op == ASP_OP_dropout) return true;
    return sequence_op(s, n, &dim, &rows) != ASP_NO_OP;
}

// ---- the order of rows -------------------------------------------------------------------------

#define MANY_PAIRS (INT64_C(1) << 44) // of one block; sums of many stay in range

typedef ASP_VEC(asp_node) ring_nodes;

static bool alike(const asp_sharder *s, asp_node x, asp_node y)
{
    const asp_sdpa_attr *a = asp_node_at(s->g, x)->attr, *b = asp_node_at(s->g, y)->attr;
    return strcmp(a->mask, b->mask) == 0 && a->causal == b->causal;
}

// How many nodes are like this one; 0: an earlier one is, and stands for it.
static int64_t weight_of(const asp_sharder *s, const ring_nodes *nodes, uint32_t i)
{
    int64_t n = 0;
    for (uint32_t j = 0; j < nodes->n; j++) {
        if (!alike(s, nodes->at[i], nodes->at[j])) continue;
        if (j < i) return 0;
        n++;
    }
    return n;
}

// Pairs of all rings of the rank that has most of them, in one order; -1: no sizes yet.
static int64_t longest_rank(const asp_sharder *s, const ring_nodes *nodes, bool zigzag)
{
    int64_t most = 0, sizes[2];
    int64_t *pairs = ASP_NEW_ARRAY(s->px->scratch, int64_t, s->rings);
    for (uint32_t i = 0; i < nodes->n; i++) {
        const asp_node_info *info = asp_node_at(s->g, nodes->at[i]);
        asp_sdpa_attr a = *(const asp_sdpa_attr *)info->attr;
        const int64_t weight = weight_of(s, nodes, i);
        if (weight == 0) continue;
        for (int j = 0; j < 2; j++) {
            const asp_size rows = s->x.atoms.at[s->x.dims[info->in[j].i][2].at[0]].size;
            if (asp_size_eval(s->g, rows, &s->px->options->env, &sizes[j]) < 0) return -1;
        }
        a.rings = s->rings;
        a.zigzag = zigzag;
        for (int64_t group = 0; group < s->rings; group++)
            for (a.step = 0; a.step < s->rings; a.step++) {
                const asp_kcall call =
                    asp_sdpa_ring_call(&a, sizes, s->ranks, group * (s->ranks / s->rings));
                pairs[group] += asp_min(asp_sdpa_pairs(&call), MANY_PAIRS) * weight;
            }
    }
    for (int64_t group = 0; group < s->rings; group++) most = asp_max(most, pairs[group]);
    return most;
}

// One order for the whole program.  Zig-zag shares causal attention out evenly; under a window the
// natural order does too, and most of its blocks are empty for all (pass/ring.c leaves them out).
static bool wants_zigzag(const asp_sharder *s, const ring_nodes *nodes, bool causal)
{
    const int64_t natural = longest_rank(s, nodes, false), zigzag = longest_rank(s, nodes, true);
    if (natural < 0 || zigzag < 0) return causal;
    return zigzag < natural - natural / 20;
}

static void choose_order(asp_sharder *s)
{
    bool causal = true, free = true;
    ring_nodes nodes = {0};
    bool *away = ASP_NEW_ARRAY(s->px->scratch, bool, s->g->vals.n); // by value: not at "sequence"
    ASP_FOR_NODES (s->g, n) {
        const asp_node_info *info = asp_node_at(s->g, n);
        bool exchanged = false;
        if (!s->x.node[n.i]) continue;
        for (uint32_t i = 0; i < info->n_in; i++) exchanged |= away[info->in[i].i];
        if (info->op == ASP_OP_all_to_all) exchanged = !exchanged;
        for (uint32_t i = 0; i < info->n_out; i++) away[info->first.i + i] = exchanged;
        free = free && !wants_order(s, n); // something asks for neighbours
        const bool in_groups = s->sp.kind == ASP_SP_HYBRID && info->op == ASP_OP_sdpa && exchanged;
        if (!in_groups && (exchanged || !asp_takes_ring(&s->sp, &s->x, n))) continue;
        ASP_PUSH(s->px->scratch, &nodes, n);
        causal = causal && ((const asp_sdpa_attr *)info->attr)->causal;
    }
    s->rings = !nodes.n ? 1 : s->sp.kind == ASP_SP_HYBRID ? s->sp.rings : s->ranks;
    s->zigzag = nodes.n && free && wants_zigzag(s, &nodes, causal);
}

static asp_status run_split(asp_sharder *s, asp_node n, asp_op op, uint32_t dim)
{
    asp_val v = asp_node_at(s->g, n)->first;
    s->state[v.i] = NULL;
    ASP_TRY(asp_run_split(s, n, op, dim, &s->map[v.i]));
    ASP_PUSH(s->px->scratch, &s->replaced, n);
    return ASP_OK;
}

static asp_status visit(asp_sharder *s, asp_node n)
{
    const asp_chain *state;
    bool exchange = asp_node_at(s->g, n)->op == ASP_OP_all_to_all;
    if (exchange)
        ASP_TRY(visit_exchange(s, n, &state));
    else
        ASP_TRY(state_of_operands(s, n, &state));
    s->b.before = n;
    s->b.loc = "";
    bool at_sequence = !exchange && state == NULL;
    uint32_t dim = 0;
    int64_t rows;
    asp_op split = at_sequence ? sequence_op(s, n, &dim, &rows) : ASP_NO_OP;
    const bool in_groups = s->sp.kind == ASP_SP_HYBRID && !exchange && state &&
                           asp_node_at(s->g, n)->op == ASP_OP_sdpa;
    const bool ring = in_groups || (at_sequence && asp_takes_ring(&s->sp, &s->x, n));
    const bool alone = ring || split != ASP_NO_OP; // what it has of the sequence is enough
    const bool whole = at_sequence && !alone && asp_axes_runs_whole(&s->x, n);
    const asp_chain *run = whole ? &asp_state_whole : state;
    if (ring) put_on_ring(s, n);
    for (uint32_t i = 0; i < asp_node_at(s->g, n)->n_in; i++) {
        asp_val v = asp_node_at(s->g, n)->in[i], x = s->map[v.i].i ? s->map[v.i] : v;
        if (s->x.replicable[v.i]) {
            ASP_TRY(asp_align_replicable(s, n, i, run));
            continue;
        }
        if (at_sequence && !alone && asp_axes_gathers(&s->x, n, i))
            ASP_TRY(asp_gather_tokens(s, v, x, &x));
        if (x.i != v.i) asp_graph_set_input(s->g, n, i, x);
    }
    if (split != ASP_NO_OP) return run_split(s, n, split, dim);
    if (run == &asp_state_whole) return keep_parts(s, n);
    if (at_sequence && asp_axes_shortens(&s->x, n)) return shorten(s, n);
    if (!exchange) ASP_TRY(asp_mask_sums(s, n, state));
    const asp_node_info *info = asp_node_at(s->g, n);
    if (info->op == ASP_OP_dropout) ASP_TRY(asp_place_random(s, n, state));
    const bool attends = info->op == ASP_OP_sdpa || info->op == ASP_OP_ring_sdpa;
    if (attends && ((const asp_sdpa_attr *)info->attr)->dropout > 0)
        ASP_TRY(asp_place_heads(s, n, state));
    return set_results(s, n, state);
}

// What is returned stands at "sequence".
static asp_status visit_output(asp_sharder *s, asp_output *o)
{
    const asp_val v = o->val, x = s->map[v.i].i ? s->map[v.i] : v;
    o->val = x;
    if (!s->px->options->whole_outputs || s->x.replicable[v.i]) return ASP_OK;
    s->b.before = (asp_node){0};
    s->b.loc = o->name;
    return asp_gather_tokens(s, v, x, &o->val);
}

asp_status asp_pass_shard(asp_pass *px, asp_graph *g)
{
    asp_sharder s = {.px = px, .g = g, .ranks = px->options->ranks, .b = {.g = g}};
    if (s.ranks == 1) return ASP_OK;
    if (g->ranks != 1)
        return asp_fail(px->cx, ASP_ERR_USAGE, "graph %s is already split over %lld ranks", g->name,
                        (long long)g->ranks);
    ASP_TRY(asp_graph_typecheck(g)); // rules rely on it
    asp_axes_analyse(px->scratch, g, &s.x);
    s.state = ASP_NEW_ARRAY(px->scratch, const asp_chain *, g->vals.n);
    s.map = ASP_NEW_ARRAY(px->scratch, asp_val, g->vals.n);
    s.newest = ASP_NEW_ARRAY(px->scratch, uint32_t, g->vals.n);
    ASP_TRY(asp_strategy_parse(px->cx, px->options->sp, s.ranks, &s.sp));
    s.sp.plain = px->options->kept;
    choose_order(&s);
    s.gathered = ASP_NEW_ARRAY(px->scratch, asp_val, g->vals.n);
    for (asp_node n = g->head, next; n.i; n = next) { // what is inserted is not visited
        next = asp_node_at(g, n)->next;
        if (s.x.node[n.i]) ASP_TRY(visit(&s, n));
    }
    for (uint32_t i = 0; i < g->outputs.n; i++) ASP_TRY(visit_output(&s, &g->outputs.at[i]));
    for (uint32_t i = s.replaced.n; i-- > 0;) asp_graph_remove(g, s.replaced.at[i]);
    g->ranks = s.ranks;
    px->changes++;
    return ASP_OK;
}
