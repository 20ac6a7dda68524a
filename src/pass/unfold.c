// Heads that stand behind the batch become a dimension of their own, for --sp hybrid:
//
//   %o = sdpa %q, %k, %v            %1 = view %q {shape = [B, 4, S, 8]} ..
//   (%q : f32[4*B, 1, S, 8])   ->   %2 = sdpa %1, ..
//                                   %o = view %2 {shape = [4*B, 1, S, 8]}
//
// Between its exchanges within groups attention has heads in dimension 1.  What the dimension (b n)
// is made of, the axes say.  Look-ups, sinks and slopes, which are of the one head, leave it as it
// is.  O(nodes).  Neighbours: manual.c (who folds heads so), place.c (who calls).
// SPDX-License-Identifier: Apache-2.0
#include "op/attention.h"
#include "pass/place.h"

// The number of heads behind the batch in dim 0; 0: there is no batch, or no heads, or no number.
static int64_t heads_behind_batch(const asp_axes *x, asp_val v)
{
    if (x->replicable[v.i] || !x->dims[v.i]) return 0;
    asp_atoms list = x->dims[v.i][0];
    int64_t heads = 1, size;
    bool batch = false;
    for (uint32_t i = 0; i < list.n; i++) {
        const asp_atom *a = &x->atoms.at[list.at[i]];
        if (a->batch && heads == 1) {
            batch = true;
            continue;
        }
        if (a->batch || a->token || !asp_size_is_num(x->g, a->size, &size) ||
            asp_mul_overflows(heads, size, &heads))
            return 0;
    }
    return batch && heads > 1 ? heads : 0;
}

// [M, 1, ..] as [M / heads, heads, ..].
static asp_val unfolded(asp_builder *b, asp_val v, int64_t heads)
{
    if (b->status < 0) return v;
    asp_type t = *asp_val_type(b->g, v);
    t.dim[1] = asp_size_num(b->g, heads);
    b->status = asp_size_div(b->g, t.dim[0], t.dim[1], &t.dim[0]);
    return b->status < 0 ? v : asp_build_view(b, v, &t);
}

static bool is_one(asp_graph *g, asp_size s) { return asp_size_equal(s, asp_size_num(g, 1)); }

// The heads of an attention that can be unfolded; 0: it cannot.
static int64_t heads_of(const asp_axes *x, asp_node n)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    const asp_sdpa_attr *a = info->attr;
    if (info->op != ASP_OP_sdpa || *a->mask || a->sinks || *a->alibi || a->dropout > 0) return 0;
    const int64_t heads = heads_behind_batch(x, info->in[0]);
    for (uint32_t i = 0; i < 3; i++)
        if (!is_one(x->g, asp_val_type(x->g, info->in[i])->dim[1]) ||
            heads_behind_batch(x, info->in[i]) != heads)
            return 0;
    return heads;
}

static asp_status unfold(asp_graph *g, asp_node n, int64_t heads)
{
    const asp_node_info info = *asp_node_at(g, n);
    asp_builder b = {.g = g, .before = n, .loc = info.loc};
    asp_val in[ASP_MAX_OPERANDS], out[2];
    for (uint32_t i = 0; i < info.n_in; i++) {
        const asp_type *t = asp_val_type(g, info.in[i]);
        const bool folded = t->rank == 4 && (i < 3 || !is_one(g, t->dim[0]));
        in[i] = folded ? unfolded(&b, info.in[i], heads) : info.in[i];
    }
    out[0] = asp_build(&b, ASP_OP_sdpa, info.attr, info.n_in, in);
    out[1] = asp_build_result(&b, out[0], 1);
    for (uint32_t i = 0; b.status == ASP_OK && i < 2; i++) {
        const asp_val old = {info.first.i + i};
        const asp_type type = *asp_val_type(g, old);
        asp_graph_replace_uses(g, old, asp_build_view(&b, out[i], &type));
        if (b.status == ASP_OK) asp_graph_move_name(g, old, out[i]);
    }
    ASP_TRY(b.status);
    asp_graph_remove(g, n);
    return ASP_OK;
}

asp_status asp_unfold_heads(asp_pass *px, asp_graph *g)
{
    asp_axes x;
    bool any = false;
    ASP_FOR_NODES (g, n) any |= asp_node_at(g, n)->op == ASP_OP_sdpa;
    if (!any) return ASP_OK;
    asp_axes_analyse(px->scratch, g, &x);
    const uint32_t n_old = g->nodes.n;
    for (asp_node n = g->head, next; n.i; n = next) {
        next = asp_node_at(g, n)->next;
        const int64_t heads = n.i < n_old ? heads_of(&x, n) : 0;
        if (!heads) continue;
        ASP_TRY(unfold(g, n, heads));
        px->changes++;
    }
    return ASP_OK;
}
