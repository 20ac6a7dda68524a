// The policies: each turns the node graph into a set of values to save.  default and sac are one
// cut with rules' prices; keep-all and layer need none (layer borrows default's outside the
// blocks). Neighbours: remat.h (contract), remat_rules.c (prices), remat_network.c (cut),
// remat_emit.c (what follows).  SPDX-License-Identifier: Apache-2.0
#include "flow/maxflow.h"
#include "flow/remat_int.h"

#define NONE ASP_REMAT_NONE

typedef asp_status policy_fn(asp_ctx *cx, asp_arena *a, const remat_graph *g,
                             asp_remat_choice *out_choice);

// ---- minimum cuts --------------------------------------------------------------------------

asp_status remat_choose_by_rules(asp_ctx *cx, asp_arena *a, const remat_graph *g,
                                 const remat_bans_of *rules, asp_remat_choice *out_choice)
{
    const bool *banned = remat_bans(a, g, rules);
    int64_t *keep = ASP_NEW_ARRAY(a, int64_t, g->n), *redo = ASP_NEW_ARRAY(a, int64_t, g->n);
    for (uint32_t i = 0; i < g->n; i++) {
        keep[i] = g->nodes[i].backward ? 0 : remat_weight(g, i);
        redo[i] = banned[i] ? ASP_FLOW_INF : 0;
    }
    return remat_solve(cx, a, g, keep, redo, out_choice);
}

static asp_status choose_default(asp_ctx *cx, asp_arena *a, const remat_graph *g,
                                 asp_remat_choice *out_choice)
{
    return remat_choose_by_rules(cx, a, g, &(remat_bans_of){0}, out_choice);
}

static asp_status choose_sac(asp_ctx *cx, asp_arena *a, const remat_graph *g,
                             asp_remat_choice *out_choice)
{
    return remat_choose_by_rules(cx, a, g, &(remat_bans_of){.sac = true, .tables = true},
                                 out_choice);
}

// Prices by value become prices by node; an op with several results has one price, and it cannot be
// saved as a whole.
asp_status asp_remat_cut(asp_ctx *cx, asp_arena *a, const asp_remat_program *p, const int64_t *keep,
                         const int64_t *redo, asp_remat_choice *out_choice)
{
    remat_graph g;
    ASP_TRY(remat_graph_build(cx, a, p, &g));
    int64_t *k = ASP_NEW_ARRAY(a, int64_t, g.n), *r = ASP_NEW_ARRAY(a, int64_t, g.n);
    for (uint32_t i = 0; i < g.n; i++) {
        const remat_node *n = &g.nodes[i];
        if (n->value == NONE) {
            const asp_remat_op *o = &p->ops[n->op];
            k[i] = ASP_FLOW_INF;
            r[i] = o->n_results ? redo[o->first_result] : 0;
            continue;
        }
        bool is_result_of_several = n->op != NONE && p->ops[n->op].n_results != 1;
        k[i] = keep[n->value];
        r[i] = is_result_of_several ? 0 : redo[n->value];
    }
    return remat_solve(cx, a, &g, k, r, out_choice);
}

// ---- without a cut -------------------------------------------------------------------------

static asp_remat_choice collect(asp_arena *a, const remat_graph *g, const bool *saved)
{
    uint32_t *list = ASP_NEW_ARRAY(a, uint32_t, g->program->n_values), n = 0;
    for (uint32_t v = 0; v < g->program->n_values; v++)
        if (saved[v]) list[n++] = v;
    return (asp_remat_choice){.saved = list, .n_saved = n};
}

static bool can_be_kept(const remat_node *n)
{
    return n->value != NONE && !n->backward && !n->tuple && !(n->flags & ASP_REMAT_MUST_RECOMPUTE);
}

static bool backward_reads(const remat_graph *g, const remat_node *n)
{
    if (n->flags & ASP_REMAT_BACKWARD_OUTPUT) return true;
    for (uint32_t u = 0; u < n->n_users; u++)
        if (g->nodes[g->users[n->first_user + u]].backward) return true;
    return false;
}

static asp_status choose_all(asp_ctx *cx, asp_arena *a, const remat_graph *g,
                             asp_remat_choice *out_choice)
{
    (void)cx;
    bool *saved = ASP_NEW_ARRAY(a, bool, g->program->n_values);
    for (uint32_t i = 0; i < g->n; i++) {
        const remat_node *n = &g->nodes[i];
        if (can_be_kept(n) && backward_reads(g, n)) saved[n->value] = true;
    }
    *out_choice = collect(a, g, saved);
    return ASP_OK;
}

// ---- layer ---------------------------------------------------------------------------------

static int32_t block_of(const remat_graph *g, const remat_node *n)
{
    return n->op == NONE ? -1 : g->program->ops[n->op].block;
}

// Read by a forward op of another block, or of none?
static bool crosses_blocks(const remat_graph *g, const remat_node *n)
{
    for (uint32_t u = 0; u < n->n_users; u++) {
        const remat_node *y = &g->nodes[g->users[n->first_user + u]];
        if (y->forward && block_of(g, y) != block_of(g, n)) return true;
    }
    return false;
}

// Is it read by the backward as emitted with this choice?  Leaves the rest unsaved.
static asp_status drop_unread(asp_ctx *cx, asp_arena *a, const remat_graph *g, bool *saved)
{
    asp_remat_choice all = collect(a, g, saved);
    asp_remat_schedule s;
    ASP_TRY(asp_remat_emit(cx, a, g->program, all.saved, all.n_saved, &s));
    bool *read = ASP_NEW_ARRAY(a, bool, g->program->n_values);
    for (uint32_t i = s.n_forward; i < s.n_steps; i++) {
        const asp_remat_op *o = &g->program->ops[s.steps[i].op];
        for (uint32_t r = 0; r < o->n_reads; r++) read[g->program->reads[o->first_read + r]] = true;
    }
    for (uint32_t v = 0; v < g->program->n_values; v++)
        saved[v] &= read[v] || g->program->values[v].flags & ASP_REMAT_BACKWARD_OUTPUT;
    return ASP_OK;
}

static asp_status choose_layer(asp_ctx *cx, asp_arena *a, const remat_graph *g,
                               asp_remat_choice *out_choice)
{
    asp_remat_choice by_default;
    ASP_TRY(choose_default(cx, a, g, &by_default));
    bool *saved = ASP_NEW_ARRAY(a, bool, g->program->n_values);
    const bool *active = remat_find_activations(a, g);
    for (uint32_t i = 0; i < by_default.n_saved; i++) {
        uint32_t v = by_default.saved[i], node = g->node_of_value[v];
        saved[v] = !active[node] || block_of(g, &g->nodes[node]) < 0;
    }
    for (uint32_t i = 0; i < g->n; i++) {
        const remat_node *n = &g->nodes[i];
        if (!can_be_kept(n) || n->is_input) continue;
        bool random = n->kind == ASP_REMAT_RANDOM ||
                      (n->kind == ASP_REMAT_PICK &&
                       g->nodes[g->reads[n->first_read]].kind == ASP_REMAT_RANDOM);
        if (random || n->flags & ASP_REMAT_MUST_SAVE ||
            (active[i] && n->forward && crosses_blocks(g, n)))
            saved[n->value] = true;
    }
    ASP_TRY(drop_unread(cx, a, g, saved));
    *out_choice = collect(a, g, saved);
    return ASP_OK;
}

static policy_fn *const policies[] = {
    [ASP_REMAT_KEEP_ALL] = choose_all,
    [ASP_REMAT_DEFAULT] = choose_default,
    [ASP_REMAT_SAC] = choose_sac,
    [ASP_REMAT_LAYER] = choose_layer,
};

asp_status asp_remat_choose(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                            asp_remat_policy policy, asp_remat_choice *out_choice)
{
    remat_graph g;
    ASP_CHECK((size_t)policy < ASP_COUNT_OF(policies));
    ASP_TRY(remat_graph_build(cx, a, p, &g));
    return policies[policy](cx, a, &g, out_choice);
}
