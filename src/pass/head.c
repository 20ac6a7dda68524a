// pass/head.c: in a framework's own graph the loss reads the product that makes the logits, without
// the casts and views between that change no row.
//
//   %z : f32[B, S, V] = linear %x, %w
//   %c : f32[B, S, V] = cast %z
//   %f : f32[B S, V] = view %c                    %g : f32[B S, V] = view %z
//   %l : f32[] = cross_entropy %f, %y      ->     %l : f32[] = cross_entropy %g, %y
//
// Both can then be told as one op that runs by chunks of rows and never holds the logits whole
// (front/aten_edit.c).  The value is the same.  O(nodes).  Neighbours: tile.c (the same for
// autosp's own executor).  SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"

static asp_size last_dim(const asp_type *t)
{
    return t->rank ? t->dim[t->rank - 1] : (asp_size){0};
}

// The linear whose rows v holds in their order; none: it is something else.
static asp_val product_of(asp_graph *g, asp_val v)
{
    const asp_dtype dtype = asp_val_type(g, v)->dtype;
    const asp_size width = last_dim(asp_val_type(g, v));
    for (;;) {
        const asp_node_info *n = asp_val_node(g, v);
        const asp_type *t = asp_val_type(g, v);
        if (t->dtype != dtype || !asp_size_equal(last_dim(t), width)) return (asp_val){0};
        if (n->op == ASP_OP_linear) return v;
        if (n->op != ASP_OP_cast && n->op != ASP_OP_view) return (asp_val){0};
        v = n->in[0];
    }
}

static asp_status read_product(asp_pass *px, asp_graph *g, asp_node n)
{
    const asp_node_info old = *asp_node_at(g, n);
    const asp_val product = product_of(g, old.in[0]);
    asp_builder b = {.g = g, .before = n, .loc = old.loc};
    asp_val in[ASP_MAX_OPERANDS];
    if (!product.i) return ASP_OK;
    memcpy(in, old.in, old.n_in * sizeof *in);
    in[0] = asp_build_view(&b, product, asp_val_type(g, old.in[0]));
    const asp_val out = asp_build(&b, ASP_OP_cross_entropy, old.attr, old.n_in, in);
    ASP_TRY(b.status);
    asp_graph_replace_uses(g, old.first, out);
    asp_graph_move_name(g, old.first, out);
    asp_graph_remove(g, n);
    px->changes++;
    return ASP_OK;
}

asp_status asp_pass_head(asp_pass *px, asp_graph *g)
{
    for (asp_node n = g->head, next; n.i; n = next) {
        next = asp_node_at(g, n)->next;
        if (asp_node_at(g, n)->op == ASP_OP_cross_entropy) ASP_TRY(read_product(px, g, n));
    }
    return ASP_OK;
}
