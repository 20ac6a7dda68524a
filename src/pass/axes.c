// The axes analysis: one walk over the graph, binding each op's letters to atoms.
//
//   %x : b, s, a1        = embedding %ids, %w              letters b s d
//   %q : b, s, a2        = linear %x, %wq                  o is new: a2
//   %h : b, s, a3, a4    = view %q {shape = [B, S, 4, 8]}  a2 is refined into a3 a4, everywhere
//
// Atoms are united where one letter meets two (union-find) and refined where a letter is a part of
// one.  A dimension whose atoms cannot be cut to its letters (6 = 2 x 3 met as 3 x 2) is lost to
// the op: its atoms go to one letter that must be whole.  Tokens and batch spread by union; of a
// refined token atom only the outer part is the sequence: ranks hold contiguous blocks.  About
// O(nodes).  Neighbours: axes.h (contract), axes_node.c (one node), atoms.c, op/rule.c.
// SPDX-License-Identifier: Apache-2.0
#include "pass/axes_int.h"

static bool has_token_role(const asp_node_info *info)
{
    if (info->op != ASP_OP_input) return false;
    const char *role = ((const asp_input_attr *)info->attr)->role;
    return strcmp(role, "tokens") == 0 || strcmp(role, "labels") == 0 ||
           strcmp(role, "positions") == 0;
}

// [B, S] of ids, [B, S, D] of numbers: the sequence is the last dim that counts tokens, what stands
// before it is batch; batches of equal size are one.
static void start_axes(asp_axes *x, asp_val v)
{
    const asp_type *t = asp_val_type(x->g, v);
    uint32_t sequence = t->rank - (asp_dtypes[t->dtype].is_float && t->rank > 1 ? 2u : 1u);
    x->dims[v.i] = ASP_NEW_ARRAY(x->arena, asp_atoms, t->rank);
    for (uint32_t d = 0; d < t->rank; d++) {
        uint32_t shared = 0;
        for (uint32_t a = 1; d < sequence && a < x->atoms.n; a++)
            if (x->atoms.at[a].batch && asp_size_equal(x->atoms.at[a].size, t->dim[d])) shared = a;
        x->dims[v.i][d] = shared ? asp_atoms_single(x, shared) : asp_atoms_fresh(x, t->dim[d]);
        if (x->dims[v.i][d].n == 0) continue;
        asp_atom *a = &x->atoms.at[x->dims[v.i][d].at[0]];
        a->batch = d < sequence;
        a->token = d == sequence;
    }
}

// Would the result of an op on replicable operands be one of many tokens?
static bool counts_tokens(const asp_axes *x, asp_node n)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    for (uint32_t i = 0; i < info->n_out; i++) {
        const asp_type *t = asp_val_type(x->g, asp_node_result(x->g, n, i));
        for (uint32_t d = 0; d < t->rank; d++)
            if (!asp_size_is_num(x->g, t->dim[d], NULL)) return true;
    }
    for (uint32_t i = 0; i < info->n_in; i++)
        if (x->dims[info->in[i].i]) return true;
    return false;
}

static bool keeps_token_axes(asp_op op)
{
    return op == ASP_OP_view || op == ASP_OP_permute || op == ASP_OP_cast || op == ASP_OP_stack ||
           op == ASP_OP_select || op == ASP_OP_unbind;
}

// Do tokens stand where they do, dim by dim?  Of two inputs too: where(labels >= 0, labels, ids).
static bool same_axes(const asp_axes *x, asp_val a, asp_val b)
{
    const asp_type *s = asp_val_type(x->g, a), *t = asp_val_type(x->g, b);
    if (s->rank != t->rank) return false;
    for (uint32_t d = 0; d < s->rank; d++) {
        const asp_atoms p = x->dims[a.i][d], q = x->dims[b.i][d];
        if (!asp_size_equal(s->dim[d], t->dim[d]) ||
            asp_axes_count_tokens(x, p) != asp_axes_count_tokens(x, q))
            return false;
    }
    return true;
}

// Ids that arithmetic has changed, where(ids != 3, ids, 0), are tokens still.  Where operands have
// axes of their own, as rows and columns of a mask, nothing is said.
static void keep_axes_of_numbers(asp_axes *x, asp_node n)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    asp_val from = {0};
    for (uint32_t i = 0; i < info->n_in; i++) {
        const asp_val v = info->in[i];
        if (!x->dims[v.i]) continue;
        if (from.i && !same_axes(x, from, v)) return;
        from = v;
    }
    const asp_type *t = asp_val_type(x->g, info->first), *s = asp_val_type(x->g, from);
    bool whole = t->rank == s->rank;
    for (uint32_t d = 0; whole && d < t->rank; d++) whole = asp_size_equal(t->dim[d], s->dim[d]);
    if (whole) x->dims[info->first.i] = x->dims[from.i];
}

// So are ids that the program shifts, rolls or sorts.  Of another length (a slice, one more in
// front) they are a sequence of their own; `widens`: only a program that has no other is read so,
// since ids that stand beside what is cut out of its tokens, x[:, :-1] + embedding(ids[:, 1:]),
// take its axis.
static void keep_axes_of_arranged(asp_axes *x, asp_node n, bool widens)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    asp_val from = {0};
    for (uint32_t i = 0; i < info->n_in && !from.i; i++)
        if (x->dims[info->in[i].i]) from = info->in[i];
    const asp_type *s = asp_val_type(x->g, from);
    for (uint32_t i = 0; i < info->n_out; i++) {
        const asp_val v = asp_node_result(x->g, n, i);
        const asp_type *t = asp_val_type(x->g, v);
        bool fits = t->rank == s->rank;
        for (uint32_t d = 0; fits && d < t->rank; d++)
            fits = widens || asp_size_equal(s->dim[d], t->dim[d]);
        if (!fits) continue;
        x->dims[v.i] = ASP_NEW_ARRAY(x->arena, asp_atoms, t->rank);
        for (uint32_t d = 0; d < t->rank; d++) {
            const asp_atoms list = asp_atoms_flat(x, x->dims[from.i][d]);
            const bool same = asp_size_equal(s->dim[d], t->dim[d]);
            x->dims[v.i][d] = same ? list : asp_atoms_fresh(x, t->dim[d]);
            if (same || x->dims[v.i][d].n == 0) continue;
            x->atoms.at[x->dims[v.i][d].at[0]].token = asp_axes_count_tokens(x, list) > 0;
        }
    }
}

static void visit(asp_axes *x, asp_node n, bool widens)
{
    const asp_node_info *info = asp_node_at(x->g, n);
    bool replicable = true, needs = info->op == ASP_OP_param, any_float = false, axes = false;
    for (uint32_t i = 0; i < info->n_in; i++) {
        replicable &= x->replicable[info->in[i].i];
        needs |= x->needs_grad[info->in[i].i];
        axes |= x->dims[info->in[i].i] != NULL;
    }
    for (uint32_t i = 0; i < info->n_out; i++) {
        asp_val v = asp_node_result(x->g, n, i);
        x->needs_grad[v.i] = needs && asp_dtypes[asp_val_type(x->g, v)->dtype].is_float;
        any_float |= x->needs_grad[v.i];
    }
    bool starts = replicable && any_float && info->n_in > 0 && counts_tokens(x, n);
    replicable &= !starts;
    for (uint32_t i = 0; i < info->n_out; i++) x->replicable[info->first.i + i] = replicable;
    if (has_token_role(info) && asp_val_type(x->g, info->first)->rank > 0)
        start_axes(x, info->first);
    else if (!replicable)
        x->node[n.i] = asp_axes_of_node(x, n, starts);
    else if (axes && keeps_token_axes(info->op))
        asp_axes_of_node(x, n, true);
    else if (axes && asp_op_has(info->op, ASP_POINTWISE))
        keep_axes_of_numbers(x, n);
    else if (axes)
        keep_axes_of_arranged(x, n, widens);
}

static bool finds_tokens(const asp_axes *x)
{
    ASP_FOR_NODES (x->g, n)
        if (x->node[n.i] && asp_axes_count_value_tokens(x, asp_node_at(x->g, n)->first))
            return true;
    return false;
}

static void walk_graph(asp_arena *a, asp_graph *g, bool widens, asp_axes *out_axes)
{
    asp_axes x = {.g = g, .arena = a};
    x.replicable = ASP_NEW_ARRAY(a, bool, g->vals.n);
    x.needs_grad = ASP_NEW_ARRAY(a, bool, g->vals.n);
    x.dims = ASP_NEW_ARRAY(a, asp_atoms *, g->vals.n);
    x.node = ASP_NEW_ARRAY(a, asp_node_axes *, g->nodes.n);
    ASP_PUSH(a, &x.atoms, (asp_atom){0});
    ASP_FOR_NODES (g, n) visit(&x, n, widens);
    for (uint32_t v = 1; v < g->vals.n; v++)
        for (uint32_t d = 0; x.dims[v] && d < g->vals.at[v].type.rank; d++)
            x.dims[v][d] = asp_atoms_flat(&x, x.dims[v][d]);
    for (uint32_t n = 1; n < g->nodes.n; n++)
        for (uint32_t c = 0; x.node[n] && c < x.node[n]->rule.n_letters; c++)
            x.node[n]->letter[c] = asp_atoms_flat(&x, x.node[n]->letter[c]);
    *out_axes = x;
}

void asp_axes_analyse(asp_arena *a, asp_graph *g, asp_axes *out_axes)
{
    walk_graph(a, g, false, out_axes);
    if (!finds_tokens(out_axes)) walk_graph(a, g, true, out_axes);
}

void asp_axes_put(asp_text *t, const asp_axes *x)
{
    uint32_t *number = ASP_NEW_ARRAY(x->arena, uint32_t, x->atoms.n), next[3] = {0};
    ASP_FOR_NODES (x->g, n) {
        for (uint32_t i = 0; i < asp_node_at(x->g, n)->n_out; i++) {
            asp_val v = asp_node_result(x->g, n, i);
            if (!x->dims[v.i]) continue;
            asp_put(t, "%s :", asp_val_str(x->g, v));
            for (uint32_t d = 0; d < asp_val_type(x->g, v)->rank; d++) {
                asp_atoms list = x->dims[v.i][d];
                asp_put(t, "%s%s", d ? ", " : " ", list.n > 1 ? "(" : list.n ? "" : "1");
                for (uint32_t k = 0; k < list.n; k++) {
                    const asp_atom *a = &x->atoms.at[list.at[k]];
                    int kind = a->token ? 0 : a->batch ? 1 : 2;
                    if (!number[list.at[k]]) number[list.at[k]] = ++next[kind];
                    asp_put(t, "%s%c%u", k ? " " : "", "sba"[kind], number[list.at[k]]);
                }
                asp_put(t, "%s", list.n > 1 ? ")" : "");
            }
            asp_put(t, "\n");
        }
    }
}
