// pass/place.c: put exchanges on the cheapest cut between ops that run split along the sequence and
// ops that run split along heads.
//
//   %q : f32[B, 8, S, 4]           %q : f32[B, 8, S, 4]
//   %o = sdpa %q, %k, %v     ->    %1 = all_to_all %q {split = 1, gather = 2}    (ranks = 1)
//                                  %o = sdpa %1, ...
//                                  %4 = all_to_all %o {split = 2, gather = 1}
//
// The graph stays whole and means the same: an exchange among one rank is the identity.
// pass/shard.c makes sizes local.  K/V heads that are fewer than the ranks are repeated before
// their exchange. One exchange a value and direction, whoever reads it; only the operands concerned
// are rewired. With one rank nothing is done.  Neighbours: placement.c, network.c (where the cut
// comes from). SPDX-License-Identifier: Apache-2.0
#include "pass/place.h"

// One made: v at "sequence" to the chain, or back from it.
typedef struct exchange {
    uint32_t chain;
    bool to_chain;
    int repeat_dim; // -1: none
    asp_val result;
    uint32_t older; // index + 1 of the one of the same value made before
} exchange;

typedef struct inserter {
    asp_placement *p;
    asp_builder b;
    ASP_VEC(exchange) done;
    uint32_t *newest; // by value: index + 1
} inserter;

static asp_status refuse_rank(inserter *s, asp_val v)
{
    return asp_fail(s->p->cx, ASP_ERR_UNSUPPORTED,
                    "%s is %s; its tokens and its heads stand inside merged dimensions, and more "
                    "than %d dimensions would be needed to exchange it; split them with a view",
                    asp_val_str(s->p->g, v), asp_type_str(s->p->g, asp_val_type(s->p->g, v)),
                    ASP_MAX_RANK);
}

// Where in v an atom stands: dim and place among the dim's atoms.
static bool find_atom(const asp_axes *x, asp_val v, uint32_t atom, uint32_t *dim, uint32_t *place)
{
    for (uint32_t d = 0; d < asp_val_type(x->g, v)->rank; d++) {
        for (uint32_t k = 0; k < x->dims[v.i][d].n; k++) {
            if (x->dims[v.i][d].at[k] != atom) continue;
            *dim = d;
            *place = k;
            return true;
        }
    }
    return false;
}

static uint32_t token_of(const asp_axes *x, asp_val v)
{
    for (uint32_t d = 0; d < asp_val_type(x->g, v)->rank; d++)
        for (uint32_t k = 0; k < x->dims[v.i][d].n; k++)
            if (x->atoms.at[x->dims[v.i][d].at[k]].token) return x->dims[v.i][d].at[k];
    return 0;
}

// Where a dim of a value is cut: before its atom number `place`.
typedef struct cut {
    uint32_t dim, place;
} cut;

static bool is_cut(const cut *cuts, uint32_t n_cuts, uint32_t dim, uint32_t place)
{
    for (uint32_t i = 0; i < n_cuts; i++)
        if (cuts[i].dim == dim && cuts[i].place == place) return true;
    return false;
}

// v in a shape where dims begin at the cuts given: (B*S, 8) cut before S is (B, S, 8).  out_dim[i]
// is where what stands behind cut i went, for the first two.
static asp_status isolate(inserter *s, asp_val v, asp_val x, const cut *cuts, uint32_t n_cuts,
                          uint32_t *out_dim, asp_val *out_x)
{
    asp_graph *g = s->p->g;
    const asp_axes *axes = &s->p->axes;
    asp_type t = *asp_val_type(g, x), shape = {.dtype = t.dtype};
    for (uint32_t d = 0; d < t.rank; d++) {
        asp_size left = t.dim[d], size = asp_size_num(g, 1);
        for (uint32_t k = 0; k <= axes->dims[v.i][d].n; k++) {
            if (k > 0 && k < axes->dims[v.i][d].n && is_cut(cuts, n_cuts, d, k)) {
                if (shape.rank == ASP_MAX_RANK) return refuse_rank(s, v);
                shape.dim[shape.rank++] = size;
                ASP_TRY(asp_size_div(g, left, size, &left));
                size = asp_size_num(g, 1);
            }
            for (int i = 0; i < 2; i++)
                if (cuts[i].dim == d && cuts[i].place == k) out_dim[i] = shape.rank;
            if (k < axes->dims[v.i][d].n)
                size = asp_size_mul(g, size, axes->atoms.at[axes->dims[v.i][d].at[k]].size);
        }
        if (shape.rank == ASP_MAX_RANK) return refuse_rank(s, v);
        shape.dim[shape.rank++] = left;
    }
    *out_x = asp_build_view(&s->b, x, &shape);
    return s->b.status;
}

// Is the size of the token atom at this place a number that divides over the ranks?
static bool even_tokens(const asp_placement *p, cut at, asp_val v)
{
    uint32_t atom = p->axes.dims[v.i][at.dim].at[at.place];
    int64_t tokens;
    return asp_size_is_num(p->g, p->axes.atoms.at[atom].size, &tokens) && tokens % p->ranks == 0;
}

// A ragged chain deals out its atom; what stands inside of it in the dim goes with it: (4 heads of
// 8) over 8 ranks are 4 units, not 32.
static int64_t ragged_unit(const asp_placement *p, uint32_t chain, asp_size dim)
{
    const asp_chain *c = &p->chains.at[chain];
    asp_size inside;
    int64_t unit;
    if (!asp_chain_is_ragged(p->g, &p->axes, c)) return 1;
    bool divides = asp_size_divides(p->g, p->axes.atoms.at[c->atoms.at[0]].size, dim, &inside);
    return divides && asp_size_is_num(p->g, inside, &unit) ? unit : 1;
}

// x, which is v or what v became, between "sequence" and the chain.
static asp_status build_exchange(inserter *s, asp_val v, asp_val x, exchange *e)
{
    const asp_placement *p = s->p;
    uint32_t dim[2], n_cuts = 2, first = p->chains.at[e->chain].atoms.at[0];
    cut cuts[3];
    ASP_CHECK(find_atom(&p->axes, v, token_of(&p->axes, v), &cuts[0].dim, &cuts[0].place));
    if (!find_atom(&p->axes, v, first, &cuts[1].dim, &cuts[1].place))
        cuts[1] = (cut){.dim = (uint32_t)e->repeat_dim};
    if (!even_tokens(p, cuts[0], v)) cuts[n_cuts++] = (cut){cuts[0].dim, cuts[0].place + 1};
    if (e->repeat_dim >= 0) {
        asp_repeat_attr a = {.dim = e->repeat_dim, .times = asp_exchange_copies(p, v, e->chain)};
        x = ASP_B1(&s->b, repeat, &a, x);
        ASP_TRY(s->b.status);
    }
    asp_type shape = *asp_val_type(p->g, x);
    ASP_TRY(isolate(s, v, x, cuts, n_cuts, dim, &x));
    asp_a2a_attr a = {.split = dim[e->to_chain],
                      .gather = dim[!e->to_chain],
                      .ranks = 1,
                      .split_unit = 1,
                      .gather_unit = 1};
    if (e->to_chain) a.split_unit = ragged_unit(p, e->chain, asp_val_type(p->g, x)->dim[a.split]);
    x = ASP_B1(&s->b, all_to_all, &a, x);
    e->result = asp_build_view(&s->b, x, &shape);
    return s->b.status;
}

// The exchanged form of v, made at its first reader.
static asp_status exchanged(inserter *s, asp_val v, exchange e, asp_val *x)
{
    for (uint32_t i = s->newest[v.i]; i; i = s->done.at[i - 1].older) {
        const exchange *d = &s->done.at[i - 1];
        if (d->chain != e.chain || d->to_chain != e.to_chain || d->repeat_dim != e.repeat_dim)
            continue;
        *x = d->result;
        return ASP_OK;
    }
    ASP_TRY(build_exchange(s, v, *x, &e));
    e.older = s->newest[v.i];
    ASP_PUSH(s->p->arena, &s->done, e);
    s->newest[v.i] = s->done.n;
    *x = e.result;
    return ASP_OK;
}

static uint32_t label(const asp_placement *p, asp_node n)
{
    return n.i && p->op[n.i].other ? p->op[n.i].chain : ASP_NO_CHAIN;
}

// v as the reader (none: the graph's outputs) wants it.  Between two chains it goes through
// "sequence".
static asp_status bring(inserter *s, asp_val v, asp_node reader, uint32_t operand, asp_val *out_x)
{
    const asp_placement *p = s->p;
    asp_node producer = asp_val_at(p->g, v)->node;
    uint32_t from = label(p, producer), to = label(p, reader);
    *out_x = v;
    s->b.before = reader;
    if (from != to && from != ASP_NO_CHAIN) {
        s->b.loc = asp_node_at(p->g, producer)->loc;
        exchange e = {.chain = from, .to_chain = false, .repeat_dim = -1};
        ASP_TRY(exchanged(s, v, e, out_x));
    }
    if (from != to && to != ASP_NO_CHAIN) {
        s->b.loc = asp_node_at(p->g, reader)->loc;
        exchange e = {.chain = to, .to_chain = true, .repeat_dim = -1};
        if (asp_exchange_copies(p, v, to) > 1)
            e.repeat_dim = asp_repeat_dim(p, reader, operand, &p->chains.at[to]);
        ASP_TRY(exchanged(s, v, e, out_x));
    }
    return ASP_OK;
}

static asp_status insert_exchanges(asp_pass *px, asp_placement *p)
{
    asp_graph *g = p->g;
    inserter s = {.p = p, .b = {.g = g}, .newest = ASP_NEW_ARRAY(px->scratch, uint32_t, g->vals.n)};
    ASP_FOR_NODES (g, n) {
        uint32_t n_in = p->axes.node[n.i] ? asp_node_at(g, n)->n_in : 0;
        for (uint32_t i = 0; i < n_in; i++) {
            asp_val v = asp_node_at(g, n)->in[i], x;
            if (p->axes.replicable[v.i]) continue;
            ASP_TRY(bring(&s, v, n, i, &x));
            asp_graph_set_input(g, n, i, x);
        }
    }
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        asp_val v = g->outputs.at[i].val;
        if (!p->axes.replicable[v.i])
            ASP_TRY(bring(&s, v, (asp_node){0}, 0, &g->outputs.at[i].val));
    }
    px->changes += s.done.n;
    return ASP_OK;
}

// Every rank has a token: the tail of a part is filled from its last one.
static asp_status check_sequences(const asp_pass *px, const asp_placement *p)
{
    for (uint32_t a = 1; a < p->axes.atoms.n; a++) {
        int64_t tokens;
        const asp_atom *atom = &p->axes.atoms.at[a];
        if (!atom->token || atom->parent || atom->outer || atom->base) continue;
        bool known = asp_size_is_num(p->g, atom->size, &tokens) ||
                     asp_size_eval(p->g, atom->size, &px->options->env, &tokens) == ASP_OK;
        if (!known || tokens >= p->ranks) continue;
        return asp_fail(px->cx, ASP_ERR_UNSUPPORTED,
                        "a sequence of %lld tokens cannot be split over %lld ranks; use %lld or "
                        "fewer ranks",
                        (long long)tokens, (long long)p->ranks,
                        (long long)(tokens < 1 ? 1 : tokens));
    }
    return ASP_OK;
}

asp_status asp_pass_place(asp_pass *px, asp_graph *g)
{
    asp_placement p;
    if (px->options->ranks == 1) return ASP_OK;
    if (g->ranks != 1)
        return asp_fail(px->cx, ASP_ERR_USAGE, "graph %s is already split over %lld ranks", g->name,
                        (long long)g->ranks);
    ASP_TRY(asp_graph_typecheck(g)); // rules rely on it
    asp_strategy sp;
    ASP_TRY(asp_strategy_parse(px->cx, px->options->sp, px->options->ranks, &sp));
    if (sp.kind == ASP_SP_HYBRID) ASP_TRY(asp_unfold_heads(px, g));
    ASP_TRY(asp_placement_prepare(px, g, &p));
    ASP_TRY(check_sequences(px, &p));
    ASP_TRY(asp_placement_cut(&p));
    return insert_exchanges(px, &p);
}
