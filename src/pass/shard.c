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
// tokens is all-reduced.  With one rank nothing is done.  O(nodes).  Neighbours: place.c (who put
// the exchanges in), axes.h, check.c (who proves the result).  SPDX-License-Identifier: Apache-2.0
#include "pass/place.h"

// Where in a dim the split atoms stand: outer x split x inner.
typedef struct place {
    uint32_t dim;
    asp_size outer, split, inner;
    uint32_t atom; // the first of the split ones; 0: nothing of the dim is split
    int64_t parts;
} place;

typedef struct slice {
    place at;
    int64_t fill; // of its tail; INT64_MIN: its last element
    asp_val result;
    uint32_t older; // index + 1 of the one of the same value made before
} slice;

typedef struct sharder {
    asp_pass *px;
    asp_graph *g;
    asp_axes x;
    int64_t ranks;
    asp_builder b;
    const asp_chain **state; // by value: the chain it is split along; NULL: at "sequence"
    asp_val *map;            // by value: what to read in its place, or none
    ASP_VEC(slice) slices;
    uint32_t *newest; // by value: index + 1
} sharder;

static asp_status confused(const sharder *s, asp_node n, const char *what)
{
    return asp_fail(s->px->cx, ASP_ERR_CHECK,
                    "sharding %s: %s; was the graph placed for %lld ranks?", asp_node_str(s->g, n),
                    what, (long long)s->ranks);
}

// How an atom is split in a state.
static int64_t parts_of(const sharder *s, const asp_chain *state, uint32_t atom)
{
    if (!state) return s->x.atoms.at[atom].token ? s->ranks : 1;
    for (uint32_t i = 0; i < state->atoms.n; i++)
        if (state->atoms.at[i] == atom) return state->parts[i];
    return 1;
}

static int64_t parts_of_list(const sharder *s, const asp_chain *state, asp_atoms list)
{
    int64_t parts = 1;
    for (uint32_t i = 0; i < list.n; i++) parts *= parts_of(s, state, list.at[i]);
    return parts;
}

// What a rank has room for of an atom.
static asp_size local_atom(const sharder *s, const asp_chain *state, uint32_t atom)
{
    int64_t parts = parts_of(s, state, atom);
    asp_size size = s->x.atoms.at[atom].size;
    return parts == 1 ? size : asp_size_ceil_div(s->g, size, asp_size_num(s->g, parts));
}

static asp_size local_size(const sharder *s, const asp_chain *state, asp_atoms list)
{
    asp_size size = asp_size_num(s->g, 1);
    for (uint32_t i = 0; i < list.n; i++)
        size = asp_size_mul(s->g, size, local_atom(s, state, list.at[i]));
    return size;
}

static bool same_chain(const asp_chain *a, const asp_chain *b)
{
    if (!a || !b) return a == b;
    return a->atoms.n == b->atoms.n &&
           memcmp(a->atoms.at, b->atoms.at, a->atoms.n * sizeof a->atoms.at[0]) == 0 &&
           memcmp(a->parts, b->parts, a->atoms.n * sizeof a->parts[0]) == 0;
}

static asp_type local_type(const sharder *s, asp_val v, const asp_chain *state)
{
    asp_type t = *asp_val_type(s->g, v);
    for (uint32_t d = 0; d < t.rank; d++)
        if (parts_of_list(s, state, s->x.dims[v.i][d]) > 1)
            t.dim[d] = local_size(s, state, s->x.dims[v.i][d]);
    return t;
}

// Of the letters of one dim of a node, with their sizes whole.
static place find_place(const sharder *s, const asp_node_axes *a, const asp_rule_dim *dim,
                        uint32_t d, const asp_chain *state)
{
    asp_size one = asp_size_num(s->g, 1);
    place p = {.dim = d, .outer = one, .split = one, .inner = one, .parts = 1};
    for (uint32_t k = 0; k < dim->n; k++) {
        asp_atoms list = a->letter[dim->at[k]];
        for (uint32_t j = 0; j < list.n; j++) {
            int64_t parts = parts_of(s, state, list.at[j]);
            asp_size size = s->x.atoms.at[list.at[j]].size;
            asp_size *to = parts > 1 ? &p.split : p.atom ? &p.inner : &p.outer;
            if (parts > 1 && !p.atom) p.atom = list.at[j];
            *to = asp_size_mul(s->g, *to, size);
            p.parts *= parts;
        }
    }
    return p;
}

// Known to have no tail.
static bool is_even(const sharder *s, const place *p)
{
    int64_t n;
    return asp_size_is_num(s->g, p->split, &n) && n % s->ranks == 0;
}

// x in a shape where what is split, or `local` of it, is a dim of its own; *out_dim is which.
static asp_status isolate(sharder *s, asp_val x, const place *p, asp_size local, asp_val *out_x,
                          uint32_t *out_dim)
{
    asp_type t = *asp_val_type(s->g, x), cut = {.dtype = t.dtype};
    asp_size one = asp_size_num(s->g, 1);
    const asp_size parts[3] = {p->outer, local, p->inner};
    for (uint32_t d = 0; d < t.rank; d++) {
        for (uint32_t i = 0; i < 3; i++) {
            if (d != p->dim && i > 0) break;
            if (d == p->dim && i != 1 && asp_size_equal(parts[i], one)) continue;
            if (cut.rank == ASP_MAX_RANK)
                return asp_fail(s->px->cx, ASP_ERR_UNSUPPORTED,
                                "%s is %s; its tokens stand inside dimension %u, and more than %d "
                                "dimensions would be needed to cut them out; split it with a view",
                                asp_val_str(s->g, x), asp_type_str(s->g, &t), d, ASP_MAX_RANK);
            if (d == p->dim && i == 1) *out_dim = cut.rank;
            cut.dim[cut.rank++] = d == p->dim ? parts[i] : t.dim[d];
        }
    }
    *out_x = asp_build_view(&s->b, x, &cut);
    return s->b.status;
}

// ---- slices of replicable values
// ----------------------------------------------------------------

static asp_status build_slice(sharder *s, asp_val v, slice *e)
{
    const place *p = &e->at;
    asp_type whole = *asp_val_type(s->g, v);
    asp_size local = asp_size_ceil_div(s->g, p->split, asp_size_num(s->g, s->ranks));
    asp_part_attr a = {.ranks = s->ranks, .fill = is_even(s, p) ? INT64_MIN : e->fill};
    uint32_t dim = 0;
    asp_val x;
    ASP_TRY(isolate(s, v, p, p->split, &x, &dim));
    a.dim = dim;
    whole.dim[p->dim] = asp_size_mul(s->g, asp_size_mul(s->g, p->outer, local), p->inner);
    e->result = asp_build_view(&s->b, ASP_B1(&s->b, shard_slice, &a, x), &whole);
    return s->b.status;
}

static bool same_slice(const slice *a, const slice *b)
{
    return a->at.dim == b->at.dim && a->fill == b->fill &&
           asp_size_equal(a->at.outer, b->at.outer) && asp_size_equal(a->at.split, b->at.split);
}

static asp_status sliced(sharder *s, asp_val v, slice e, asp_val *out)
{
    for (uint32_t i = s->newest[v.i]; i; i = s->slices.at[i - 1].older) {
        if (!same_slice(&s->slices.at[i - 1], &e)) continue;
        *out = s->slices.at[i - 1].result;
        return ASP_OK;
    }
    e.older = s->newest[v.i];
    ASP_TRY(build_slice(s, v, &e));
    ASP_PUSH(s->px->scratch, &s->slices, e);
    s->newest[v.i] = s->slices.n;
    *out = e.result;
    return ASP_OK;
}

// Labels past the end are ignored; of anything else the last one stands there again.
static int64_t fill_of(const sharder *s, asp_node n, uint32_t i)
{
    const asp_node_info *info = asp_node_at(s->g, n);
    if (info->op == ASP_OP_cross_entropy && i == 1)
        return ((const asp_loss_attr *)info->attr)->ignore;
    return INT64_MIN;
}

// Operand i of n is replicable: it is sliced where its letters have split atoms.
static asp_status align_replicable(sharder *s, asp_node n, uint32_t i, const asp_chain *state)
{
    const asp_node_axes *a = s->x.node[n.i];
    asp_val v = asp_node_at(s->g, n)->in[i], x = v;
    for (uint32_t d = 0; d < asp_val_type(s->g, v)->rank; d++) {
        slice e = {.at = find_place(s, a, &a->rule.in[i][d], d, state), .fill = fill_of(s, n, i)};
        if (e.at.parts == 1) continue;
        if (e.at.parts != s->ranks || x.i != v.i)
            return asp_fail(s->px->cx, ASP_ERR_UNSUPPORTED,
                            "%s cannot be split over %lld ranks: a part of %s %s would have to be "
                            "taken in dimension %u; use 1 rank",
                            asp_node_str(s->g, n), (long long)s->ranks, asp_val_str(s->g, v),
                            asp_type_str(s->g, asp_val_type(s->g, v)), d);
        ASP_TRY(sliced(s, v, e, &x));
    }
    asp_graph_set_input(s->g, n, i, x);
    return ASP_OK;
}

// ---- sums over tokens
// ---------------------------------------------------------------------------

// Operand i of n, of local sizes, with 0 in the tail of what is split in dim d.
static asp_status mask_tail(sharder *s, asp_node n, uint32_t i, const place *p)
{
    asp_val x = asp_node_at(s->g, n)->in[i];
    asp_type shape = *asp_val_type(s->g, x);
    asp_size ranks = asp_size_num(s->g, s->ranks);
    asp_part_attr a = {.ranks = s->ranks, .of = p->split, .length = p->split, .fill = INT64_MIN};
    uint32_t dim = 0;
    ASP_TRY(isolate(s, x, p, asp_size_ceil_div(s->g, p->split, ranks), &x, &dim));
    a.dim = dim;
    x = asp_build_view(&s->b, ASP_B1(&s->b, mask_tail, &a, x), &shape);
    ASP_TRY(s->b.status);
    asp_graph_set_input(s->g, n, i, x);
    return ASP_OK;
}

// Where tokens are summed, one operand is cleared in the tail: the products vanish there.
static asp_status mask_sum(sharder *s, asp_node n, uint8_t letter, const asp_chain *state)
{
    const asp_node_axes *a = s->x.node[n.i];
    const asp_node_info *info = asp_node_at(s->g, n);
    if (info->op == ASP_OP_cross_entropy) return ASP_OK; // by its labels
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val v = info->in[i];
        if (!asp_dtypes[asp_val_type(s->g, v)->dtype].is_float) continue;
        for (uint32_t d = 0; d < asp_val_type(s->g, v)->rank; d++) {
            const asp_rule_dim *dim = &a->rule.in[i][d];
            bool has = false;
            for (uint32_t k = 0; k < dim->n; k++) has |= dim->at[k] == letter;
            if (!has) continue;
            place p = find_place(s, a, dim, d, state);
            return p.parts == 1 || is_even(s, &p) ? ASP_OK : mask_tail(s, n, i, &p);
        }
    }
    return ASP_OK;
}

static asp_status mask_sums(sharder *s, asp_node n, const asp_chain *state)
{
    const asp_node_axes *a = s->x.node[n.i];
    for (uint32_t c = 0; a->has_rule && c < a->rule.n_letters; c++) {
        if (a->rule.letter[c].kind != ASP_LETTER_SUM) continue;
        if (parts_of_list(s, state, a->letter[c]) > 1) ASP_TRY(mask_sum(s, n, (uint8_t)c, state));
    }
    return ASP_OK;
}

// ---- nodes
// --------------------------------------------------------------------------------------

static bool starts_with(asp_atoms list, uint32_t atom) { return list.n && list.at[0] == atom; }

static bool starts_with_token(const sharder *s, asp_atoms list)
{
    return list.n && s->x.atoms.at[list.at[0]].token;
}

static asp_size whole_size(const sharder *s, asp_atoms list)
{
    asp_size size = asp_size_num(s->g, 1);
    for (uint32_t i = 0; i < list.n; i++)
        size = asp_size_mul(s->g, size, s->x.atoms.at[list.at[i]].size);
    return size;
}

// A ragged chain splits its atom; what stands inside of it in the dim stays together.
static asp_status unit_of(const sharder *s, asp_node n, const asp_chain *chain, asp_atoms dim,
                          int64_t *out_unit)
{
    if (!asp_chain_is_ragged(s->g, &s->x, chain)) return ASP_OK;
    asp_size inside = whole_size(s, (asp_atoms){.n = dim.n - 1, .at = dim.at + 1});
    if (asp_size_is_num(s->g, inside, out_unit)) return ASP_OK;
    return confused(s, n, "what it splits stays together in units whose size is a symbol");
}

// An exchange: its ranks, and the state behind it.
static asp_status visit_exchange(sharder *s, asp_node n, const asp_chain **out_state)
{
    asp_a2a_attr a = *(const asp_a2a_attr *)asp_node_at(s->g, n)->attr;
    asp_val v = asp_node_at(s->g, n)->in[0];
    const asp_chain *from = s->state[v.i];
    asp_atoms split = s->x.dims[v.i][a.split], gather = s->x.dims[v.i][a.gather];
    if (from) {
        if (!starts_with(gather, from->atoms.at[0]) || !starts_with_token(s, split))
            return confused(s, n, "it does not bring back what is split");
        a.whole = whole_size(s, gather);
        ASP_TRY(unit_of(s, n, from, gather, &a.gather_unit));
        *out_state = NULL;
    } else {
        asp_chain *chain = ASP_NEW(s->px->scratch, asp_chain);
        if (!starts_with_token(s, gather)) return confused(s, n, "it does not gather the sequence");
        if (!asp_chain_spread(s->g, &s->x, split, s->ranks, chain))
            return confused(s, n, "what it splits has no size");
        a.whole = whole_size(s, gather);
        ASP_TRY(unit_of(s, n, chain, split, &a.split_unit));
        *out_state = chain;
    }
    int64_t whole;
    if (asp_size_is_num(s->g, a.whole, &whole) && whole % (s->ranks * a.gather_unit) == 0)
        a.whole = (asp_size){0};
    a.ranks = s->ranks;
    asp_graph_set_attr(s->g, n, &a);
    return ASP_OK;
}

static asp_status state_of_operands(sharder *s, asp_node n, const asp_chain **out_state)
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

// Shapes written in attributes become local.
static void set_shape_attr(sharder *s, asp_node n, const asp_type *t)
{
    asp_view_attr a = {.shape = {.n = t->rank}};
    asp_op op = asp_node_at(s->g, n)->op;
    if (op != ASP_OP_view && op != ASP_OP_expand) return;
    memcpy(a.shape.at, t->dim, t->rank * sizeof t->dim[0]);
    asp_graph_set_attr(s->g, n, &a);
}

// Result i is a partial sum when a summed letter is split and not in the result.
static bool is_partial(const sharder *s, asp_node n, uint32_t i, const asp_chain *state)
{
    const asp_node_axes *a = s->x.node[n.i];
    asp_val v = asp_node_result(s->g, n, i);
    for (uint32_t c = 0; c < a->rule.n_letters; c++) {
        if (a->rule.letter[c].kind != ASP_LETTER_SUM) continue;
        if (parts_of_list(s, state, a->letter[c]) == 1) continue;
        bool kept = false;
        for (uint32_t d = 0; d < asp_val_type(s->g, v)->rank; d++)
            for (uint32_t k = 0; k < a->rule.out[i][d].n; k++) kept |= a->rule.out[i][d].at[k] == c;
        if (!kept) return true;
    }
    return false;
}

static asp_status set_results(sharder *s, asp_node n, const asp_chain *state)
{
    asp_node next = asp_node_at(s->g, n)->next;
    for (uint32_t i = 0; i < asp_node_at(s->g, n)->n_out; i++) {
        asp_val v = asp_node_result(s->g, n, i);
        asp_type t = local_type(s, v, state);
        bool partial = is_partial(s, n, i, state);
        set_shape_attr(s, n, &t);
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

static asp_status visit(sharder *s, asp_node n)
{
    const asp_chain *state;
    bool exchange = asp_node_at(s->g, n)->op == ASP_OP_all_to_all;
    if (exchange)
        ASP_TRY(visit_exchange(s, n, &state));
    else
        ASP_TRY(state_of_operands(s, n, &state));
    s->b.before = n;
    s->b.loc = "";
    for (uint32_t i = 0; i < asp_node_at(s->g, n)->n_in; i++) {
        asp_val v = asp_node_at(s->g, n)->in[i];
        if (s->x.replicable[v.i])
            ASP_TRY(align_replicable(s, n, i, state));
        else if (s->map[v.i].i)
            asp_graph_set_input(s->g, n, i, s->map[v.i]);
    }
    if (!exchange) ASP_TRY(mask_sums(s, n, state));
    return set_results(s, n, state);
}

asp_status asp_pass_shard(asp_pass *px, asp_graph *g)
{
    sharder s = {.px = px, .g = g, .ranks = px->options->ranks, .b = {.g = g}};
    if (s.ranks == 1) return ASP_OK;
    if (g->ranks != 1)
        return asp_fail(px->cx, ASP_ERR_USAGE, "graph %s is already split over %lld ranks", g->name,
                        (long long)g->ranks);
    ASP_TRY(asp_graph_typecheck(g)); // rules rely on it
    asp_axes_analyse(px->scratch, g, &s.x);
    s.state = ASP_NEW_ARRAY(px->scratch, const asp_chain *, g->vals.n);
    s.map = ASP_NEW_ARRAY(px->scratch, asp_val, g->vals.n);
    s.newest = ASP_NEW_ARRAY(px->scratch, uint32_t, g->vals.n);
    for (asp_node n = g->head, next; n.i; n = next) { // what is inserted is not visited
        next = asp_node_at(g, n)->next;
        if (s.x.node[n.i]) ASP_TRY(visit(&s, n));
    }
    for (uint32_t i = 0; i < g->outputs.n; i++)
        if (s.map[g->outputs.at[i].val.i].i) g->outputs.at[i].val = s.map[g->outputs.at[i].val.i];
    g->ranks = s.ranks;
    px->changes++;
    return ASP_OK;
}
