// pass/tile.c: token-wise parts of the program run over chunks of rows, so that what is wide in
// them (logits, what is between the products of an MLP) never exists whole.
//
//   %h : f32[S, 24] = gemm_nt %x, %up             %h : f32[S, 24] = gemm_nt %x, %up tile 1
//   %a : f32[S, 24] = silu %h                     %a : f32[S, 24] = silu %h tile 1
//   %y : f32[S, 8] = gemm_nt %a, %down            %y : f32[S, 8] = gemm_nt %a, %down tile 1
//   ...                                     ->    ...
//   %da : f32[S, 24] = gemm_nn %dy, %down         %h.2 : f32[S, 24] = gemm_nt %x, %up tile 2
//   %dh : f32[S, 24] = silu_grad %h, %da          %da : f32[S, 24] = gemm_nn %dy, %down tile 2
//   %dx : f32[S, 8] = gemm_nn %dh, %up            %dh : f32[S, 24] = silu_grad %h.2, %da tile 2
//                                                 %dx : f32[S, 8] = gemm_nn %dh, %up tile 2
//
// The graph means what it meant; nodes of one tile stand side by side, and the step program runs
// them as a loop.
//
//   1. A value is wide when a product made it out of a narrower row and it is wider than the stream
//      that layers add to, or when something else made it out of such a value.  It can be tiled
//      when all that make and read it may run by rows (tile_member.c).
//   2. Nodes that share such values are one part.  A part with a forward and a backward side is one
//      tile where nothing between its own results and what it reads needs it whole: the head and
//      the loss, whose gradients are made while the logits are there, so nothing is repeated.  Else
//      it is two, and the backward one makes again, chunk by chunk, what it wants of the forward.
//   3. Narrow operands that are cheap functions of another (a norm's output) are made again inside;
//      cheap readers of narrow results (the norm's derivative, residual adds) move in where that
//      leaves less to be kept.
//   4. Gradients of weights that read a norm's output, those of attention's first products, run by
//      chunks as well, with the products beside them: the output is made again and not kept.
//   5. Each tile becomes one unit in the list (tile_order.c).
//
// O(nodes x tiles).  Neighbours: grad.c (before), remat.c (a tile is one op to it), fuse.c,
// run/program.c (loops).  SPDX-License-Identifier: Apache-2.0
#include "pass/tile.h"

#define NONE UINT32_MAX

typedef struct part {
    uint32_t id;    // of the tile
    bool backward;  // depends on the seed
    asp_node first; // in list order, of the original nodes
    asp_size rows;
    ASP_VEC(asp_node) nodes;
    asp_map made; // values of the original graph that have a copy inside -> index in copies
    ASP_VEC(asp_val) copies;
    ASP_VEC(asp_val) reads; // narrow values with rows, from outside
} part;

typedef struct tiler {
    asp_pass *px;
    asp_graph *g;
    uint32_t n_nodes, n_vals; // of the original graph
    bool *backward;           // by value
    uint32_t *order;          // by node: place in the list; 0: it is in none
    int64_t *base;            // by value: the width it is wider than; 0: it is not wide
    uint32_t *parent;         // by node: union-find over parts
    uint32_t n_tiles;
    asp_node **readers; // by value; ends with a none
    bool *is_output;    // by value
} tiler;

// ---- what is known of the graph ----------------------------------------------------------------

static asp_node maker(const tiler *t, asp_val v) { return asp_val_at(t->g, v)->node; }

static void index_readers(tiler *t)
{
    asp_arena *a = t->px->scratch;
    uint32_t *count = ASP_NEW_ARRAY(a, uint32_t, t->n_vals);
    t->readers = ASP_NEW_ARRAY(a, asp_node *, t->n_vals);
    t->is_output = ASP_NEW_ARRAY(a, bool, t->n_vals);
    ASP_FOR_NODES (t->g, n)
        for (uint32_t i = 0; i < asp_node_at(t->g, n)->n_in; i++)
            count[asp_node_at(t->g, n)->in[i].i]++;
    for (uint32_t v = 0; v < t->n_vals; v++) {
        t->readers[v] = ASP_NEW_ARRAY(a, asp_node, count[v] + 1);
        count[v] = 0;
    }
    ASP_FOR_NODES (t->g, n)
        for (uint32_t i = 0; i < asp_node_at(t->g, n)->n_in; i++) {
            uint32_t v = asp_node_at(t->g, n)->in[i].i;
            t->readers[v][count[v]++] = n;
        }
    for (uint32_t i = 0; i < t->g->outputs.n; i++) t->is_output[t->g->outputs.at[i].val.i] = true;
}

static void index_nodes(tiler *t, asp_val seed)
{
    uint32_t place = 0;
    ASP_FOR_NODES (t->g, n) {
        const asp_node_info *info = asp_node_at(t->g, n);
        bool backward = info->first.i == seed.i;
        t->order[n.i] = ++place;
        t->parent[n.i] = n.i;
        for (uint32_t i = 0; i < info->n_in; i++) backward |= t->backward[info->in[i].i];
        for (uint32_t i = 0; i < info->n_out; i++) t->backward[info->first.i + i] = backward;
    }
}

// Elements of a row; 0 for what has no rows, or a size that is not known here.
static int64_t width_of(const tiler *t, asp_val v)
{
    asp_tile_shape s;
    int64_t width = 1, size;
    const asp_type *type = asp_val_type(t->g, v);
    if (!asp_tile_shape_of(t->g, type, &s)) return 0;
    for (uint32_t d = s.lead; d < type->rank; d++) {
        if (!asp_size_is_num(t->g, type->dim[d], &size)) return 0;
        if (asp_mul_overflows(width, size, &width)) return 0;
    }
    return width;
}

// ---- wide values -------------------------------------------------------------------------------

// The width of the stream that layers add to: that of embeddings, else what the first product
// reads.
static int64_t stream_width(const tiler *t)
{
    int64_t width = 0;
    ASP_FOR_NODES (t->g, n) {
        const asp_node_info *info = asp_node_at(t->g, n);
        if (info->op == ASP_OP_embedding) return width_of(t, info->first);
        if (!width && info->op == ASP_OP_gemm_nt) width = width_of(t, info->in[0]);
    }
    return width;
}

static void find_wide(tiler *t)
{
    const int64_t stream = stream_width(t);
    ASP_FOR_NODES (t->g, n) {
        const asp_node_info *info = asp_node_at(t->g, n);
        asp_size rows;
        if (asp_tile_role_of(t->g, n, &rows) == ASP_TILE_NONE) continue;
        int64_t base = 0;
        for (uint32_t i = 0; i < info->n_in; i++) base = asp_max(base, t->base[info->in[i].i]);
        if (!base && (info->op == ASP_OP_gemm_nt || info->op == ASP_OP_gemm_nn))
            base = asp_max(width_of(t, info->in[0]), stream);
        for (uint32_t i = 0; base && i < info->n_out; i++)
            if (width_of(t, (asp_val){info->first.i + i}) > base) t->base[info->first.i + i] = base;
    }
}

static uint32_t root(tiler *t, uint32_t i)
{
    while (t->parent[i] != i) i = t->parent[i] = t->parent[t->parent[i]];
    return i;
}

// Can all that read v run by the rows it has?
static bool is_read_by_rows(tiler *t, asp_val v)
{
    asp_tile_shape s;
    asp_size rows;
    if (t->is_output[v.i] || !asp_tile_shape_of(t->g, asp_val_type(t->g, v), &s)) return false;
    for (const asp_node *r = t->readers[v.i]; r->i; r++)
        if (asp_tile_role_of(t->g, *r, &rows) == ASP_TILE_NONE || !asp_size_equal(rows, s.rows))
            return false;
    return true;
}

// Joins makers and readers of wide values; spoilt[root]: one of them must be whole.
static bool *join_parts(tiler *t)
{
    bool *spoilt = ASP_NEW_ARRAY(t->px->scratch, bool, t->n_nodes);
    for (uint32_t v = 1; v < t->n_vals; v++) {
        if (!t->base[v]) continue;
        uint32_t made = maker(t, (asp_val){v}).i;
        bool bad = !is_read_by_rows(t, (asp_val){v});
        for (const asp_node *r = t->readers[v]; r->i && !bad; r++) {
            uint32_t a = root(t, made), b = root(t, r->i);
            spoilt[a] |= spoilt[b];
            t->parent[b] = a;
        }
        spoilt[root(t, made)] |= bad;
    }
    return spoilt;
}

// ---- one tile ----------------------------------------------------------------------------------

static bool is_in(const tiler *t, const part *p, asp_node n)
{
    return asp_node_at(t->g, n)->tile == p->id;
}

static void take(tiler *t, part *p, asp_node n)
{
    asp_node_at(t->g, n)->tile = p->id;
    ASP_PUSH(t->px->scratch, &p->nodes, n);
}

static void begin(tiler *t, part *p, const asp_node *nodes, uint32_t n, bool forward, bool backward)
{
    *p = (part){.id = ++t->n_tiles, .backward = backward};
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

static void undo(tiler *t, part *p)
{
    for (uint32_t i = 0; i < p->nodes.n; i++) asp_node_at(t->g, p->nodes.at[i])->tile = 0;
    p->nodes.n = 0;
}

// Does no way lead out of the tile and back in?
static bool is_convex(tiler *t, const part *p)
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
            reached |= behind[info->in[i].i] || is_in(t, p, maker(t, info->in[i]));
        }
        for (uint32_t i = 0; !inside && i < info->n_out; i++) behind[info->first.i + i] = reached;
    }
    return true;
}

static asp_val copy_of(const part *p, asp_val v)
{
    uint32_t i = asp_map_find(&p->made, &v.i, sizeof v.i);
    return i == NONE ? v : p->copies.at[i];
}

// A copy of the maker of v inside; its operands are copies where there are some.
static void repeat(tiler *t, part *p, asp_node n)
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

static void read_copies(tiler *t, const part *p, asp_node n)
{
    const asp_node_info *info = asp_node_at(t->g, n);
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val v = copy_of(p, info->in[i]);
        if (v.i != info->in[i].i) asp_graph_set_input(t->g, n, i, v);
    }
}

// The backward side makes again what it reads of the inside of the forward side: wide values, and
// all they take.  Operands first.
static void repeat_forward(tiler *t, const part *forward, part *p)
{
    ASP_VEC(asp_node) stack = {0}, wanted = {0};
    asp_map seen;
    bool added;
    asp_map_init(&seen, t->px->scratch);
    for (uint32_t i = 0; i < p->nodes.n; i++) {
        const asp_node_info *info = asp_node_at(t->g, p->nodes.at[i]);
        for (uint32_t k = 0; k < info->n_in; k++)
            if (t->base[info->in[k].i] && is_in(t, forward, maker(t, info->in[k])))
                ASP_PUSH(t->px->scratch, &stack, maker(t, info->in[k]));
    }
    while (stack.n) {
        asp_node n = stack.at[--stack.n];
        asp_map_add(&seen, &n.i, sizeof n.i, &added);
        if (!added) continue;
        ASP_PUSH(t->px->scratch, &wanted, n);
        const asp_node_info *info = asp_node_at(t->g, n);
        for (uint32_t k = 0; k < info->n_in; k++)
            if (is_in(t, forward, maker(t, info->in[k])))
                ASP_PUSH(t->px->scratch, &stack, maker(t, info->in[k]));
    }
    const uint32_t own = p->nodes.n;
    for (uint32_t i = 0; i < forward->nodes.n; i++) { // in list order
        asp_node n = forward->nodes.at[i];
        if (asp_map_find(&seen, &n.i, sizeof n.i) != NONE) repeat(t, p, n);
    }
    for (uint32_t i = 0; i < own; i++) read_copies(t, p, p->nodes.at[i]);
}

// ---- the edges of a tile -----------------------------------------------------------------------

static bool is_narrow_read(const tiler *t, asp_val v) { return width_of(t, v) > 1; }

static uint32_t find_read(const part *p, asp_val v)
{
    for (uint32_t i = 0; i < p->reads.n; i++)
        if (p->reads.at[i].i == v.i) return i;
    return NONE;
}

static void find_reads(tiler *t, part *p)
{
    p->reads.n = 0;
    for (uint32_t i = 0; i < p->nodes.n; i++) {
        const asp_node_info *info = asp_node_at(t->g, p->nodes.at[i]);
        for (uint32_t k = 0; k < info->n_in; k++) {
            asp_val v = info->in[k];
            if (is_in(t, p, maker(t, v)) || !is_narrow_read(t, v) || find_read(p, v) != NONE)
                continue;
            ASP_PUSH(t->px->scratch, &p->reads, v);
        }
    }
}

// Would reading what v is made of, in its place, be no more to read?
static bool pays_to_make(tiler *t, const part *p, asp_val v)
{
    const asp_node n = maker(t, v);
    const asp_node_info *info = asp_node_at(t->g, n);
    asp_size rows;
    uint32_t more = 0;
    if (info->tile || n.i >= t->n_nodes || info->n_in == 0 || !asp_tile_is_cheap(t->g, n))
        return false;
    if (asp_tile_role_of(t->g, n, &rows) != ASP_TILE_EACH || !asp_size_equal(rows, p->rows))
        return false;
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val u = copy_of(p, info->in[i]);
        more += is_narrow_read(t, u) && !is_in(t, p, maker(t, u)) && find_read(p, u) == NONE;
    }
    return more <= 1;
}

// Operands that are cheap functions of no more than they are.
static void make_reads(tiler *t, part *p)
{
    for (bool changed = true; changed;) {
        changed = false;
        find_reads(t, p);
        for (uint32_t i = 0; i < p->reads.n && !changed; i++) {
            asp_val v = p->reads.at[i];
            if (!pays_to_make(t, p, v)) continue;
            repeat(t, p, maker(t, v));
            for (uint32_t k = 0; k < p->nodes.n; k++) read_copies(t, p, p->nodes.at[k]);
            changed = true;
        }
    }
}

// Is v there when the tile runs, or can it be made inside?  Rows of one number are no matter.
static bool is_at_hand(tiler *t, const part *p, asp_val v)
{
    const asp_val u = copy_of(p, v);
    const asp_node n = maker(t, u);
    asp_tile_shape s;
    if (is_in(t, p, n)) return asp_tile_shape_of(t->g, asp_val_type(t->g, u), &s);
    if (find_read(p, u) != NONE) return true;
    if (is_narrow_read(t, u) || n.i >= t->n_nodes) return false;
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
static void fetch(tiler *t, part *p, asp_val v)
{
    const asp_val u = copy_of(p, v);
    const asp_node n = maker(t, u);
    if (is_in(t, p, n) || find_read(p, u) != NONE || t->order[n.i] < t->order[p->first.i]) return;
    for (uint32_t i = 0; i < asp_node_at(t->g, n)->n_in; i++)
        fetch(t, p, asp_node_at(t->g, n)->in[i]);
    repeat(t, p, n);
}

static bool may_move_in(tiler *t, const part *p, asp_node n)
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
static bool absorb_readers(tiler *t, part *p, asp_val v)
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

static void grow(tiler *t, part *p)
{
    make_reads(t, p);
    for (uint32_t i = 0; i < p->nodes.n; i++) { // grows as it goes
        const asp_node_info info = *asp_node_at(t->g, p->nodes.at[i]);
        for (uint32_t k = 0; k < info.n_out; k++)
            if (absorb_readers(t, p, (asp_val){info.first.i + k})) i = 0;
    }
}

// ---- the pass ----------------------------------------------------------------------------------

static void tile_part(tiler *t, const asp_node *nodes, uint32_t n)
{
    part whole, forward, backward;
    begin(t, &whole, nodes, n, true, true);
    if (is_convex(t, &whole)) {
        grow(t, &whole);
        return;
    }
    undo(t, &whole);
    begin(t, &forward, nodes, n, true, false);
    begin(t, &backward, nodes, n, false, true);
    if (!is_convex(t, &forward) || !is_convex(t, &backward)) {
        undo(t, &forward);
        undo(t, &backward);
        return;
    }
    repeat_forward(t, &forward, &backward);
    grow(t, &forward);
    grow(t, &backward);
}

// Fewer rows than a chunk: nothing to gain.
static bool is_short(const tiler *t, asp_node n)
{
    asp_size rows;
    int64_t known;
    if (asp_tile_role_of(t->g, n, &rows) == ASP_TILE_NONE) return true;
    bool unknown =
        t->px->options->env.n == 0 || asp_size_eval(t->g, rows, &t->px->options->env, &known) < 0;
    return !unknown && known <= t->g->tile_rows;
}

// ---- products of a norm ------------------------------------------------------------------------

// Does the backward product n read v as the rows of a weight's gradient?
static bool is_weight_grad(const tiler *t, asp_node n, asp_val v)
{
    const asp_node_info *info = asp_node_at(t->g, n);
    return info->op == ASP_OP_gemm_tn && !info->tile && t->backward[info->first.i] &&
           info->in[1].i == v.i && info->in[0].i != v.i;
}

// Weight gradients that read v, a cheap function of one other value, and the products that take the
// same cotangents back: run by chunks they make v again and it need not be kept.
static void tile_products(tiler *t, asp_val v)
{
    ASP_VEC(asp_node) nodes = {0};
    part p = {.id = ++t->n_tiles, .backward = true};
    const asp_node made = maker(t, v);
    if (asp_node_at(t->g, made)->tile || !asp_tile_is_cheap(t->g, made)) return;
    if (asp_tile_role_of(t->g, made, &p.rows) != ASP_TILE_EACH || is_short(t, made)) return;
    for (const asp_node *r = t->readers[v.i]; r->i; r++) {
        if (!is_weight_grad(t, *r, v)) continue;
        ASP_PUSH(t->px->scratch, &nodes, *r);
        for (const asp_node *b = t->readers[asp_node_at(t->g, *r)->in[0].i]; b->i; b++) {
            const asp_node_info *back = asp_node_at(t->g, *b);
            asp_size rows;
            if (back->op == ASP_OP_gemm_nn && !back->tile &&
                asp_tile_role_of(t->g, *b, &rows) == ASP_TILE_EACH && asp_size_equal(rows, p.rows))
                ASP_PUSH(t->px->scratch, &nodes, *b);
        }
    }
    if (nodes.n < 2) return;
    begin(t, &p, nodes.at, nodes.n, false, true);
    for (uint32_t i = 0; i < p.nodes.n; i++)
        if (t->order[p.nodes.at[i].i] < t->order[p.first.i]) p.first = p.nodes.at[i];
    find_reads(t, &p);
    if (is_convex(t, &p) && find_read(&p, v) != NONE && pays_to_make(t, &p, v))
        grow(t, &p);
    else
        undo(t, &p);
}

static void tile_parts(tiler *t, const bool *spoilt)
{
    asp_arena *a = t->px->scratch;
    typedef ASP_VEC(asp_node) nodes;
    nodes *parts = ASP_NEW_ARRAY(a, nodes, t->n_nodes);
    ASP_VEC(uint32_t) roots = {0};
    ASP_FOR_NODES (t->g, n) {
        uint32_t r = root(t, n.i);
        if (spoilt[r]) continue;
        if (parts[r].n == 1) ASP_PUSH(a, &roots, r);
        ASP_PUSH(a, &parts[r], n);
    }
    for (uint32_t i = 0; i < roots.n; i++)
        if (!is_short(t, parts[roots.at[i]].at[0]))
            tile_part(t, parts[roots.at[i]].at, parts[roots.at[i]].n);
    for (uint32_t i = 1; i < t->n_vals; i++) {
        const asp_val v = {i};
        if (t->readers[i]->i && !t->backward[i] && is_narrow_read(t, v)) tile_products(t, v);
    }
}

asp_status asp_pass_tile(asp_pass *px, asp_graph *g)
{
    tiler t = {.px = px, .g = g, .n_nodes = g->nodes.n, .n_vals = g->vals.n};
    asp_val seed = asp_graph_find(g, ASP_SEED_NAME);
    if (px->options->tile <= 0) return ASP_OK;
    if (!seed.i)
        return asp_fail(px->cx, ASP_ERR_INPUT,
                        "graph %s has no backward part; run the pass `grad` before `tile`",
                        g->name);
    g->tile_rows = asp_round_up(px->options->tile, ASP_TILE_STEP);
    t.backward = ASP_NEW_ARRAY(px->scratch, bool, t.n_vals);
    t.order = ASP_NEW_ARRAY(px->scratch, uint32_t, t.n_nodes);
    t.base = ASP_NEW_ARRAY(px->scratch, int64_t, t.n_vals);
    t.parent = ASP_NEW_ARRAY(px->scratch, uint32_t, t.n_nodes);
    index_nodes(&t, seed);
    index_readers(&t);
    find_wide(&t);
    tile_parts(&t, join_parts(&t));
    asp_tile_order(g, px->scratch);
    bool any = false;
    ASP_FOR_NODES (g, n) any |= asp_node_at(g, n)->tile != 0;
    if (!any) g->tile_rows = 0;
    return asp_tile_check(g);
}
