// Every choice that can matter, for small programs: branch and bound over the values that may be
// kept (Land & Doig 1960), for all budgets at once.
//
// A node of the tree has decided some values.  Whatever the rest will be,
//   time   is at least that of keeping all the rest,
//   peak   at least the bytes kept so far, which are all alive when the backward begins.
// A node whose bounds a known choice meets is left.  Keeping is tried first, so good times come
// early.  O(2^values x program) at worst.  Neighbours: remat_search.h, remat_budget.c.
// SPDX-License-Identifier: Apache-2.0
#include "flow/remat_search.h"

#define NONE ASP_REMAT_NONE

static bool may_matter(const remat_search *s, const remat_node *n)
{
    const asp_remat_program *p = s->graph.program;
    return n->value != NONE && !n->backward && !n->is_input && !n->tuple && n->bytes > 0 &&
           !(n->flags & ASP_REMAT_MUST_RECOMPUTE) && p->values[n->value].root == n->value;
}

// Values that the backward reads, or needs to compute again what it reads.
static bool *find_needed(const remat_search *s)
{
    const remat_graph *g = &s->graph;
    bool *needed = ASP_NEW_ARRAY(s->arena, bool, g->n);
    for (uint32_t i = g->n; i-- > 0;) {
        const remat_node *n = &g->nodes[i];
        bool starts = n->backward || n->flags & ASP_REMAT_BACKWARD_OUTPUT;
        for (uint32_t r = 0; (starts || needed[i]) && r < n->n_reads; r++)
            needed[g->reads[n->first_read + r]] = true;
    }
    return needed;
}

bool remat_exact_candidates(const remat_search *s, remat_values *out)
{
    const remat_graph *g = &s->graph;
    const bool *needed = find_needed(s);
    *out = (remat_values){0};
    for (uint32_t i = 0; i < g->n; i++) {
        const remat_node *n = &g->nodes[i];
        bool returned = n->flags & ASP_REMAT_BACKWARD_OUTPUT;
        if (may_matter(s, n) && (needed[i] || returned)) ASP_PUSH(s->arena, out, n->value);
    }
    return out->n <= REMAT_EXACT_MOST;
}

typedef struct tree {
    asp_ctx *cx;
    remat_search *s;
    const remat_values *values;
    bool *kept;   // by value
    bool *needed; // by op
    remat_candidates *found;
    asp_status status;
} tree;

static bool runs_forward(const tree *t, const asp_remat_op *o)
{
    const remat_graph *g = &t->s->graph;
    return o->n_results && g->nodes[g->node_of_value[o->first_result]].forward;
}

// What is repeated when these are kept: the ops that the backward needs and the forward runs too.
static int64_t least_time(tree *t)
{
    const asp_remat_program *p = t->s->graph.program;
    const uint32_t *producer = t->s->graph.producer;
    int64_t time = 0;
    memset(t->needed, 0, p->n_ops * sizeof *t->needed);
    for (uint32_t i = p->n_ops; i-- > 0;) {
        const asp_remat_op *o = &p->ops[i];
        if (!o->backward && !t->needed[i]) continue;
        if (!o->backward && runs_forward(t, o)) time += o->time_ps;
        for (uint32_t r = 0; r < o->n_reads; r++) {
            uint32_t v = p->reads[o->first_read + r];
            if (producer[v] != NONE && !p->ops[producer[v]].backward && !t->kept[v])
                t->needed[producer[v]] = true;
        }
    }
    return time;
}

static bool is_beaten(const tree *t, int64_t time, int64_t peak)
{
    for (uint32_t i = 0; i < t->found->n; i++) {
        const asp_remat_cost *c = &t->found->at[i].cost;
        if (c->repeated_ps <= time && c->peak <= peak) return true;
    }
    return false;
}

static void remember(tree *t, const remat_values *saved, const asp_remat_cost *cost)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->found->n; i++) { // what it beats goes
        const asp_remat_cost *c = &t->found->at[i].cost;
        if (cost->repeated_ps <= c->repeated_ps && cost->peak <= c->peak) continue;
        t->found->at[n++] = t->found->at[i];
    }
    t->found->n = n;
    asp_remat_candidate c = {
        .saved = asp_copy_bytes(t->s->arena, saved->at, saved->n * sizeof *saved->at),
        .n_saved = saved->n,
        .cost = *cost,
        .from = "exact"};
    ASP_PUSH(t->s->arena, t->found, c);
}

static void try_leaf(tree *t)
{
    remat_values saved = {.at = t->s->list, .cap = t->s->list_cap};
    asp_remat_cost cost;
    for (uint32_t i = 0; i < t->values->n; i++)
        if (t->kept[t->values->at[i]]) ASP_PUSH(t->s->arena, &saved, t->values->at[i]);
    t->s->list = saved.at;
    t->s->list_cap = saved.cap;
    asp_status status = remat_trial_run_quietly(t->cx, &t->s->trial, saved.at, saved.n, &cost);
    if (status == ASP_IN_PROGRESS) return; // would repeat a random op
    if (status < 0)
        t->status = status;
    else if (!is_beaten(t, cost.repeated_ps, cost.peak))
        remember(t, &saved, &cost);
}

// Depth is at most REMAT_EXACT_MOST.
static void descend(tree *t, uint32_t at, int64_t kept_bytes)
{
    if (t->status < 0 || is_beaten(t, least_time(t), kept_bytes)) return;
    if (at == t->values->n) {
        try_leaf(t);
        return;
    }
    const asp_remat_program *p = t->s->graph.program;
    uint32_t v = t->values->at[at];
    descend(t, at + 1, kept_bytes + p->values[v].bytes); // kept until decided otherwise
    if (p->values[v].flags & ASP_REMAT_MUST_SAVE) return;
    t->kept[v] = false;
    descend(t, at + 1, kept_bytes);
    t->kept[v] = true;
}

asp_status remat_exact_find(asp_ctx *cx, remat_search *s, const remat_values *values,
                            remat_candidates *out)
{
    const asp_remat_program *p = s->graph.program;
    tree t = {.cx = cx, .s = s, .values = values, .found = out};
    t.kept = ASP_NEW_ARRAY(s->arena, bool, p->n_values);
    t.needed = ASP_NEW_ARRAY(s->arena, bool, p->n_ops);
    for (uint32_t i = 0; i < values->n; i++) t.kept[values->at[i]] = true;
    descend(&t, 0, 0);
    return t.status;
}
