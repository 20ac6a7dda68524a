// pass/grouped.c: attention reads keys and values as they were before they were repeated for the
// query heads of their group.
//
//   %1 : f32[B, 2, 1, S, 8] = view %k
//   %2 : f32[B, 2, 2, S, 8] = expand %1
//   %3 : f32[B, 4, S, 8] = view %2            ->   %o = sdpa %q, %k, %v
//   %o = sdpa %q, %3, %6
//
// sdpa shares out K/V heads over query heads by itself, query head i reading K/V head i / group:
// what the repeat writes out is never made, and an exchange moves the heads there are.  Both
// operands must be repeated, equally often and innermost.  For graphs of a framework, which cannot
// say otherwise under a mask; there casts to the same dtype stand between.  O(nodes).
// SPDX-License-Identifier: Apache-2.0
#include "pass/pass.h"

// Through casts that change nothing.
static asp_val source_of(const asp_graph *g, asp_val v)
{
    for (;;) {
        const asp_node_info *n = asp_val_node(g, v);
        if (n->op != ASP_OP_cast || !asp_type_equal(asp_val_type(g, v), asp_val_type(g, n->in[0])))
            return v;
        v = n->in[0];
    }
}

static const asp_node_info *made_by(const asp_graph *g, asp_val v, asp_op op)
{
    const asp_node_info *n = asp_val_node(g, source_of(g, v));
    return n->op == op ? n : NULL;
}

static bool is_one(asp_graph *g, asp_size s) { return asp_size_equal(s, asp_size_num(g, 1)); }

// (B, K, S, H) of which v (B, K r, S, H) repeats each head r times in a row; none: it does not.
static asp_val before_repeat(asp_graph *g, asp_val v)
{
    const asp_node_info *repeat = made_by(g, v, ASP_OP_repeat);
    if (repeat)
        return ((const asp_repeat_attr *)repeat->attr)->dim == 1 ? repeat->in[0] : (asp_val){0};
    const asp_node_info *joined = made_by(g, v, ASP_OP_view);
    const asp_node_info *expand = joined ? made_by(g, joined->in[0], ASP_OP_expand) : NULL;
    const asp_node_info *apart = expand ? made_by(g, expand->in[0], ASP_OP_view) : NULL;
    if (!apart) return (asp_val){0};
    const asp_type *x = asp_val_type(g, apart->in[0]), *one = asp_val_type(g, apart->first),
                   *many = asp_val_type(g, expand->first), *out = asp_val_type(g, joined->first);
    if (x->rank != 4 || one->rank != 5 || many->rank != 5 || out->rank != 4) return (asp_val){0};
    const bool same = is_one(g, one->dim[2]) && asp_size_equal(x->dim[0], out->dim[0]) &&
                      asp_size_equal(x->dim[2], out->dim[2]) &&
                      asp_size_equal(x->dim[3], out->dim[3]);
    for (uint32_t d = 0; d < 4; d++)
        if (!asp_size_equal(x->dim[d], one->dim[d < 2 ? d : d + 1])) return (asp_val){0};
    for (uint32_t d = 0; d < 5; d++)
        if (d != 2 && !asp_size_equal(one->dim[d], many->dim[d])) return (asp_val){0};
    return same ? apart->in[0] : (asp_val){0};
}

static asp_status read_before(asp_pass *px, asp_graph *g, asp_node n)
{
    const asp_node_info old = *asp_node_at(g, n);
    asp_val in[ASP_MAX_OPERANDS], k = before_repeat(g, old.in[1]), v = before_repeat(g, old.in[2]);
    if (!k.i || !v.i || !asp_size_equal(asp_val_type(g, k)->dim[1], asp_val_type(g, v)->dim[1]))
        return ASP_OK;
    asp_builder b = {.g = g, .before = n, .loc = old.loc};
    memcpy(in, old.in, old.n_in * sizeof *in);
    in[1] = k, in[2] = v;
    const asp_val out = asp_build(&b, ASP_OP_sdpa, old.attr, old.n_in, in);
    ASP_TRY(b.status);
    for (uint32_t i = 0; i < old.n_out; i++) {
        asp_graph_replace_uses(g, (asp_val){old.first.i + i}, (asp_val){out.i + i});
        asp_graph_move_name(g, (asp_val){old.first.i + i}, (asp_val){out.i + i});
    }
    asp_graph_remove(g, n);
    px->changes++;
    return ASP_OK;
}

asp_status asp_pass_grouped(asp_pass *px, asp_graph *g)
{
    for (asp_node n = g->head, next; n.i; n = next) {
        next = asp_node_at(g, n)->next;
        if (asp_node_at(g, n)->op == ASP_OP_sdpa) ASP_TRY(read_before(px, g, n));
    }
    return px->changes ? asp_pass_dce(px, g) : ASP_OK; // what was repeated for it alone
}
