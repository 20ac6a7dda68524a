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
// O(nodes x tiles).  Neighbours: tile_wide.c (1, 2), tile_part.c (one tile), grad.c (before),
// remat.c (a tile is one op to it), fuse.c, run/program.c (loops).
// SPDX-License-Identifier: Apache-2.0
#include "pass/tile_int.h"

static void tile_part(asp_tiler *t, const asp_node *nodes, uint32_t n)
{
    asp_tile_part whole, forward, backward;
    asp_tile_begin(t, &whole, nodes, n, true, true);
    if (asp_tile_is_convex(t, &whole)) {
        asp_tile_grow(t, &whole);
        return;
    }
    asp_tile_undo(t, &whole);
    asp_tile_begin(t, &forward, nodes, n, true, false);
    asp_tile_begin(t, &backward, nodes, n, false, true);
    if (!asp_tile_is_convex(t, &forward) || !asp_tile_is_convex(t, &backward)) {
        asp_tile_undo(t, &forward);
        asp_tile_undo(t, &backward);
        return;
    }
    asp_tile_repeat_forward(t, &forward, &backward);
    asp_tile_grow(t, &forward);
    asp_tile_grow(t, &backward);
}

// Fewer rows than a chunk: nothing to gain.
static bool is_short(const asp_tiler *t, asp_node n)
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
static bool is_weight_grad(const asp_tiler *t, asp_node n, asp_val v)
{
    const asp_node_info *info = asp_node_at(t->g, n);
    return info->op == ASP_OP_gemm_tn && !info->tile && t->backward[info->first.i] &&
           info->in[1].i == v.i && info->in[0].i != v.i;
}

// Weight gradients that read v, a cheap function of one other value, and the products that take the
// same cotangents back: run by chunks they make v again and it need not be kept.
static void tile_products(asp_tiler *t, asp_val v)
{
    ASP_VEC(asp_node) nodes = {0};
    asp_tile_part p = {.id = ++t->n_tiles, .backward = true};
    const asp_node made = asp_tile_maker(t, v);
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
    asp_tile_begin(t, &p, nodes.at, nodes.n, false, true);
    for (uint32_t i = 0; i < p.nodes.n; i++)
        if (t->order[p.nodes.at[i].i] < t->order[p.first.i]) p.first = p.nodes.at[i];
    asp_tile_find_reads(t, &p);
    if (asp_tile_is_convex(t, &p) && asp_tile_reads(&p, v) && asp_tile_pays_to_make(t, &p, v))
        asp_tile_grow(t, &p);
    else
        asp_tile_undo(t, &p);
}

// ---- the pass ----------------------------------------------------------------------------------

static void tile_parts(asp_tiler *t, const bool *spoilt)
{
    asp_arena *a = t->px->scratch;
    typedef ASP_VEC(asp_node) nodes;
    nodes *parts = ASP_NEW_ARRAY(a, nodes, t->n_nodes);
    ASP_VEC(uint32_t) roots = {0};
    ASP_FOR_NODES (t->g, n) {
        uint32_t r = asp_tile_root(t, n.i);
        if (spoilt[r]) continue;
        if (parts[r].n == 1) ASP_PUSH(a, &roots, r);
        ASP_PUSH(a, &parts[r], n);
    }
    for (uint32_t i = 0; i < roots.n; i++)
        if (!is_short(t, parts[roots.at[i]].at[0]))
            tile_part(t, parts[roots.at[i]].at, parts[roots.at[i]].n);
    for (uint32_t i = 1; i < t->n_vals; i++) {
        const asp_val v = {i};
        if (t->readers[i]->i && !t->backward[i] && asp_tile_is_narrow(t, v)) tile_products(t, v);
    }
}

asp_status asp_pass_tile(asp_pass *px, asp_graph *g)
{
    asp_tiler t = {.px = px, .g = g, .n_nodes = g->nodes.n, .n_vals = g->vals.n};
    asp_val seed = asp_graph_find(g, ASP_SEED_NAME);
    if (px->options->tile <= 0) return ASP_OK;
    if (!seed.i)
        return asp_fail(px->cx, ASP_ERR_INPUT,
                        "graph %s has no backward part; run the pass `grad` before `tile`",
                        g->name);
    g->tile_rows = asp_round_up(px->options->tile, ASP_TILE_STEP);
    asp_tile_index(&t, seed);
    tile_parts(&t, asp_tile_join(&t));
    asp_tile_order(g, px->scratch);
    bool any = false;
    ASP_FOR_NODES (g, n) any |= asp_node_at(g, n)->tile != 0;
    if (!any) g->tile_rows = 0;
    return asp_tile_check(g);
}
