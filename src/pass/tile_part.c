// pass/tile_part.c: one tile: its nodes, what it makes again, what moves in over its edges.
// Neighbours: tile.c (rules 2 and 3 of its list).  SPDX-License-Identifier: Apache-2.0
#include "pass/tile_int.h"

#define NONE UINT32_MAX

// ---- one tile ----------------------------------------------------------------------------------

static bool is_in(const asp_tiler *t, const asp_tile_part *p, asp_node n)
{
    return asp_node_at(t->g, n)->tile == p->id;
}

static void take(asp_tiler *t, asp_tile_part *p, asp_node n)
{
    asp_node_at(t->g, n)->tile = p->id;
    ASP_PUSH(t->px->scratch, &p->nodes, n);
}

void asp_tile_begin(asp_tiler *t, asp_tile_part *p, const asp_node *nodes, uint32_t n, bool forward,
                    bool backward)
{
    *p = (asp_tile_part){.id = ++t->n_tiles, .backward = backward};
    asp_map_init(&p->made, t->px->scratch);
    for (uint32_t i = 0; i < n; i++) {
        bool late = t->backward[asp_node_at(t->g, nodes[i])->first.i];
        if (late ? !backward : !forward) continue;
        if (!p->first.i) {
            p->first = nodes[i];
            ASP_CHECK(asp_tile_role_of(t->g, nodes[i], &p->rows) != ASP_TILE_NONE);
        }
        take(t, p, nodes[i]);
    }
}

void asp_tile_undo(asp_tiler *t, asp_tile_part *p)
{
    for (uint32_t i = 0; i < p->nodes.n; i++) asp_node_at(t->g, p->nodes.at[i])->tile = 0;
    p->nodes.n = 0;
}

bool asp_tile_is_convex(asp_tiler *t, const asp_tile_part *p)
{
    bool *behind = ASP_NEW_ARRAY(t->px->scratch, bool, t->g->vals.n); // copies of other tiles too
    asp_node last = p->first;
    for (uint32_t i = 0; i < p->nodes.n; i++)
        if (t->order[p->nodes.at[i].i] > t->order[last.i]) last = p->nodes.at[i];
    const asp_node end = asp_node_at(t->g, last)->next;
    for (asp_node n = p->first; n.i != end.i; n = asp_node_at(t->g, n)->next) {
        const asp_node_info *info = asp_node_at(t->g, n);
        const bool inside = info->tile == p->id;
        bool reached = false;
        for (uint32_t i = 0; i < info->n_in; i++) {
            if (behind[info->in[i].i] && inside) return false;
            reached |= behind[info->in[i].i] || is_in(t, p, asp_tile_maker(t, info->in[i]));
        }
        for (uint32_t i = 0; !inside && i < info->n_out; i++) behind[info->first.i + i] = reached;
    }
    return true;
}

static asp_val copy_of(const asp_tile_part *p, asp_val v)
{
    uint32_t i = asp_map_find(&p->made, &v.i, sizeof v.i);
    return i == NONE ? v : p->copies.at[i];
}

// A copy of the maker of v inside; its operands are copies where there are some.
static void repeat(asp_tiler *t, asp_tile_part *p, asp_node n)
{
    const asp_node_info info = *asp_node_at(t->g, n);
    asp_type types[ASP_MAX_OPERANDS];
    asp_val in[ASP_MAX_OPERANDS];
    bool added;
    for (uint32_t i = 0; i < info.n_out; i++)
        types[i] = *asp_val_type(t->g, (asp_val){info.first.i + i});
    for (uint32_t i = 0; i < info.n_in; i++) in[i] = copy_of(p, info.in[i]);
    const bool again = p->backward && !t->backward[info.first.i];
    const char *loc =
        asp_printf(t->px->scratch, "%s%s", info.loc, again && *info.loc ? ASP_AGAIN_SUFFIX : "");
    asp_node copy =
        asp_graph_insert(t->g, p->first, info.op, info.attr, info.n_in, in, info.n_out, types, loc);
    take(t, p, copy);
    for (uint32_t i = 0; i < info.n_out; i++) {
        asp_val v = {info.first.i + i}, made = asp_node_result(t->g, copy, i);
        ASP_PUSH(t->px->scratch, &p->copies, made);
        asp_map_add(&p->made, &v.i, sizeof v.i, &added);
        if (asp_val_at(t->g, v)->name) asp_graph_name(t->g, made, asp_val_at(t->g, v)->name);
    }
    t->px->changes++;
}

static void read_copies(asp_tiler *t, const asp_tile_part *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(t->g, n);
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val v = copy_of(p, info->in[i]);
        if (v.i != info->in[i].i) asp_graph_set_input(t->g, n, i, v);
    }
}

// Operands first.
void asp_tile_repeat_forward(asp_tiler *t, const asp_tile_part *forward, asp_tile_part *p)
{
    ASP_VEC(asp_node) stack = {0}, wanted = {0};
    asp_map seen;
    bool added;
    asp_map_init(&seen, t->px->scratch);
    for (uint32_t i = 0; i < p->nodes.n; i++) {
        const asp_node_info *info = asp_node_at(t->g, p->nodes.at[i]);
        for (uint32_t k = 0; k < info->n_in; k++)
            if (t->base[info->in[k].i] && is_in(t, forward, asp_tile_maker(t, info->in[k])))
                ASP_PUSH(t->px->scratch, &stack, asp_tile_maker(t, info->in[k]));
    }
    while (stack.n) {
        asp_node n = stack.at[--stack.n];
        asp_map_add(&seen, &n.i, sizeof n.i, &added);
        if (!added) continue;
        ASP_PUSH(t->px->scratch, &wanted, n);
        const asp_node_info *info = asp_node_at(t->g, n);
        for (uint32_t k = 0; k < info->n_in; k++)
            if (is_in(t, forward, asp_tile_maker(t, info->in[k])))
                ASP_PUSH(t->px->scratch, &stack, asp_tile_maker(t, info->in[k]));
    }
    const uint32_t own = p->nodes.n;
    for (uint32_t i = 0; i < forward->nodes.n; i++) { // in list order
        asp_node n = forward->nodes.at[i];
        if (asp_map_find(&seen, &n.i, sizeof n.i) != NONE) repeat(t, p, n);
    }
    for (uint32_t i = 0; i < own; i++) read_copies(t, p, p->nodes.at[i]);
}

// ---- the edges of a tile -----------------------------------------------------------------------

bool asp_tile_is_narrow(const asp_tiler *t, asp_val v) { return asp_tile_width(t, v) > 1; }

bool asp_tile_reads(const asp_tile_part *p, asp_val v)
{
    for (uint32_t i = 0; i < p->reads.n; i++)
        if (p->reads.at[i].i == v.i) return true;
    return false;
}

void asp_tile_find_reads(asp_tiler *t, asp_tile_part *p)
{
    p->reads.n = 0;
    for (uint32_t i = 0; i < p->nodes.n; i++) {
        const asp_node_info *info = asp_node_at(t->g, p->nodes.at[i]);
        for (uint32_t k = 0; k < info->n_in; k++) {
            asp_val v = info->in[k];
            if (is_in(t, p, asp_tile_maker(t, v)) || !asp_tile_is_narrow(t, v) ||
                asp_tile_reads(p, v))
                continue;
            ASP_PUSH(t->px->scratch, &p->reads, v);
        }
    }
}

bool asp_tile_pays_to_make(asp_tiler *t, const asp_tile_part *p, asp_val v)
{
    const asp_node n = asp_tile_maker(t, v);
    const asp_node_info *info = asp_node_at(t->g, n);
    asp_size rows;
    uint32_t more = 0;
    if (info->tile || n.i >= t->n_nodes || info->n_in == 0 || !asp_tile_is_cheap(t->g, n))
        return false;
    if (asp_tile_role_of(t->g, n, &rows) != ASP_TILE_EACH || !asp_size_equal(rows, p->rows))
        return false;
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val u = copy_of(p, info->in[i]);
        more +=
            asp_tile_is_narrow(t, u) && !is_in(t, p, asp_tile_maker(t, u)) && !asp_tile_reads(p, u);
    }
    return more <= 1;
}

// Operands that are cheap functions of no more than they are.
static void make_reads(asp_tiler *t, asp_tile_part *p)
{
    for (bool changed = true; changed;) {
        changed = false;
        asp_tile_find_reads(t, p);
        for (uint32_t i = 0; i < p->reads.n && !changed; i++) {
            asp_val v = p->reads.at[i];
            if (!asp_tile_pays_to_make(t, p, v)) continue;
            repeat(t, p, asp_tile_maker(t, v));
            for (uint32_t k = 0; k < p->nodes.n; k++) read_copies(t, p, p->nodes.at[k]);
            changed = true;
        }
    }
}

// Is v there when the tile runs, or can it be made inside?  Rows of one number are no matter.
static bool is_at_hand(asp_tiler *t, const asp_tile_part *p, asp_val v)
{
    const asp_val u = copy_of(p, v);
    const asp_node n = asp_tile_maker(t, u);
    asp_tile_shape s;
    if (is_in(t, p, n)) return asp_tile_shape_of(t->g, asp_val_type(t->g, u), &s);
    if (asp_tile_reads(p, u)) return true;
    if (asp_tile_is_narrow(t, u) || n.i >= t->n_nodes) return false;
    if (t->order[n.i] < t->order[p->first.i]) return true;
    const asp_node_info *info = asp_node_at(t->g, n);
    asp_size rows;
    if (info->tile || info->n_in == 0 || !asp_tile_is_cheap(t->g, n)) return false;
    if (asp_tile_role_of(t->g, n, &rows) != ASP_TILE_EACH || !asp_size_equal(rows, p->rows))
        return false;
    for (uint32_t i = 0; i < info->n_in; i++)
        if (!is_at_hand(t, p, info->in[i])) return false;
    return true;
}

// Makes copies of what is at hand only because it can be made.
static void fetch(asp_tiler *t, asp_tile_part *p, asp_val v)
{
    const asp_val u = copy_of(p, v);
    const asp_node n = asp_tile_maker(t, u);
    if (is_in(t, p, n) || asp_tile_reads(p, u) || t->order[n.i] < t->order[p->first.i]) return;
    for (uint32_t i = 0; i < asp_node_at(t->g, n)->n_in; i++)
        fetch(t, p, asp_node_at(t->g, n)->in[i]);
    repeat(t, p, n);
}

static bool may_move_in(asp_tiler *t, const asp_tile_part *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(t->g, n);
    asp_size rows;
    if (info->tile == p->id) return true;
    if (info->tile || !asp_tile_is_cheap(t->g, n)) return false;
    if (t->backward[info->first.i] != p->backward) return false;
    if (asp_tile_role_of(t->g, n, &rows) == ASP_TILE_NONE || !asp_size_equal(rows, p->rows))
        return false;
    for (uint32_t i = 0; i < info->n_in; i++)
        if (!is_at_hand(t, p, info->in[i])) return false;
    return true;
}

// Readers of a result move in when all of them can: then it need not be kept.
static bool absorb_readers(asp_tiler *t, asp_tile_part *p, asp_val v)
{
    asp_tile_shape s;
    bool any = false;
    if (v.i >= t->n_vals || t->is_output[v.i] ||
        !asp_tile_shape_of(t->g, asp_val_type(t->g, v), &s))
        return false;
    for (const asp_node *r = t->readers[v.i]; r->i; r++) {
        if (!may_move_in(t, p, *r)) return false;
        any |= !is_in(t, p, *r);
    }
    for (const asp_node *r = t->readers[v.i]; any && r->i; r++) {
        if (is_in(t, p, *r)) continue;
        for (uint32_t i = 0; i < asp_node_at(t->g, *r)->n_in; i++)
            fetch(t, p, asp_node_at(t->g, *r)->in[i]);
        read_copies(t, p, *r);
        take(t, p, *r);
    }
    return any;
}

void asp_tile_grow(asp_tiler *t, asp_tile_part *p)
{
    make_reads(t, p);
    for (uint32_t i = 0; i < p->nodes.n; i++) { // grows as it goes
        const asp_node_info info = *asp_node_at(t->g, p->nodes.at[i]);
        for (uint32_t k = 0; k < info.n_out; k++)
            if (absorb_readers(t, p, (asp_val){info.first.i + k})) i = 0;
    }
}
