// Betters the choices of the search by small changes, simulated whole: one value more or less, and
// in tiny programs up to five, or a run of values dropped but for one.  A change that no known
// choice beats in peak and time is kept and changed in turn (Pareto local search, Paquete et al.
// 2004), from the smallest peak upwards, until nothing is left to try or so many steps have been
// simulated. O(steps).  Neighbours: remat_search.h, remat_budget.c.  SPDX-License-Identifier:
// Apache-2.0
#include "flow/remat_search.h"

#define SMALL 1000      // a value below this part of the peak changes nothing
#define LONGEST_RUN 12u // of values that are dropped together
#define MOST_MORE 4u    // values changed beside the first

typedef struct polish {
    asp_ctx *cx;
    remat_search *s;
    remat_values values; // that may be kept
    remat_candidates front;
    ASP_VEC(bool) explored; // by member of front
    bool *kept;             // by value: the member being changed
    int64_t steps;          // left
    asp_map tried;          // sets, by hash
} polish;

static bool is_beaten(const polish *w, const asp_remat_cost *c)
{
    for (uint32_t i = 0; i < w->front.n; i++) {
        const asp_remat_cost *x = &w->front.at[i].cost;
        if (x->repeated_ps <= c->repeated_ps && x->peak <= c->peak) return true;
    }
    return false;
}

// Adds a choice that is not beaten, in place of those it beats.
static void add(polish *w, asp_remat_candidate c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->front.n; i++) {
        const asp_remat_cost *x = &w->front.at[i].cost;
        if (c.cost.repeated_ps <= x->repeated_ps && c.cost.peak <= x->peak) continue;
        w->front.at[n] = w->front.at[i];
        w->explored.at[n++] = w->explored.at[i];
    }
    w->front.n = w->explored.n = n;
    ASP_PUSH(w->s->arena, &w->front, c);
    ASP_PUSH(w->s->arena, &w->explored, false);
}

static asp_status try_kept(polish *w)
{
    remat_values saved = {.at = w->s->list, .cap = w->s->list_cap};
    asp_remat_cost cost;
    bool is_new;
    uint64_t set = asp_hash(w->kept, w->s->graph.program->n_values * sizeof *w->kept, 0);
    asp_map_add(&w->tried, &set, sizeof set, &is_new);
    if (!is_new) return ASP_OK;
    for (uint32_t v = 0; v < w->s->graph.program->n_values; v++)
        if (w->kept[v]) ASP_PUSH(w->s->arena, &saved, v);
    w->s->list = saved.at;
    w->s->list_cap = saved.cap;
    w->steps -= w->s->graph.program->n_ops;
    asp_status status = remat_trial_run_quietly(w->cx, &w->s->trial, saved.at, saved.n, &cost);
    if (status == ASP_IN_PROGRESS) return ASP_OK; // would repeat a random op
    ASP_TRY(status);
    if (is_beaten(w, &cost)) return ASP_OK;
    const uint32_t *copy = asp_copy_bytes(w->s->arena, saved.at, saved.n * sizeof *saved.at);
    add(w, (asp_remat_candidate){.saved = copy, .n_saved = saved.n, .cost = cost, .from = "chain"});
    return ASP_OK;
}

static bool may_drop(const polish *w, uint32_t v)
{
    return !w->kept[v] || !(w->s->graph.program->values[v].flags & ASP_REMAT_MUST_SAVE);
}

// More values, from the first ones up to the i-th, beside the one that is changed already.
static asp_status try_more(polish *w, uint32_t i, uint32_t more)
{
    for (uint32_t j = 0; j < i && w->steps > 0; j++) {
        uint32_t u = w->values.at[j];
        if (!may_drop(w, u)) continue;
        w->kept[u] = !w->kept[u];
        ASP_TRY(try_kept(w));
        if (more > 1) ASP_TRY(try_more(w, j, more - 1));
        w->kept[u] = !w->kept[u];
    }
    return ASP_OK;
}

// Drops all from the i-th to the j-th, but one of them or none: a boundary moves.
static asp_status try_runs(polish *w, const asp_remat_candidate *c, uint32_t i)
{
    for (uint32_t j = i + 1; j < w->values.n && j < i + LONGEST_RUN && w->steps > 0; j++) {
        for (uint32_t k = i; k <= j; k++)
            if (may_drop(w, w->values.at[k])) w->kept[w->values.at[k]] = false;
        ASP_TRY(try_kept(w));
        for (uint32_t k = i; k <= j; k++) {
            bool before = w->kept[w->values.at[k]];
            w->kept[w->values.at[k]] = true;
            ASP_TRY(try_kept(w));
            w->kept[w->values.at[k]] = before;
        }
    }
    for (uint32_t k = 0; k < w->values.n; k++) w->kept[w->values.at[k]] = false;
    for (uint32_t k = 0; k < c->n_saved; k++) w->kept[c->saved[k]] = true;
    return ASP_OK;
}

static asp_status explore(polish *w, const asp_remat_candidate *c, uint32_t more)
{
    const asp_remat_program *p = w->s->graph.program;
    memset(w->kept, 0, p->n_values * sizeof *w->kept);
    for (uint32_t i = 0; i < c->n_saved; i++) w->kept[c->saved[i]] = true;
    int64_t least = c->cost.peak / SMALL;
    for (uint32_t i = 0; i < w->values.n && w->steps > 0; i++) {
        uint32_t v = w->values.at[i];
        if (p->values[v].bytes < least || !may_drop(w, v)) continue;
        w->kept[v] = !w->kept[v];
        ASP_TRY(try_kept(w));
        if (more) ASP_TRY(try_more(w, i, more));
        w->kept[v] = !w->kept[v];
        if (more) ASP_TRY(try_runs(w, c, i));
    }
    return ASP_OK;
}

static uint32_t smallest_unexplored(const polish *w)
{
    uint32_t best = ASP_REMAT_NONE;
    for (uint32_t i = 0; i < w->front.n; i++) {
        if (w->explored.at[i]) continue;
        if (best == ASP_REMAT_NONE || w->front.at[i].cost.peak < w->front.at[best].cost.peak)
            best = i;
    }
    return best;
}

asp_status remat_polish(asp_ctx *cx, remat_search *s, remat_candidates *all, int64_t steps,
                        bool thorough)
{
    polish w = {.cx = cx, .s = s, .steps = steps};
    remat_exact_candidates(s, &w.values);
    asp_map_init(&w.tried, s->arena);
    w.kept = ASP_NEW_ARRAY(s->arena, bool, s->graph.program->n_values);
    for (uint32_t i = 0; i < all->n; i++)
        if (!is_beaten(&w, &all->at[i].cost)) add(&w, all->at[i]);
    for (uint32_t more = thorough ? 2 : 0; more <= (thorough ? MOST_MORE : 0); more++) {
        for (uint32_t i = 0; i < w.explored.n; i++) w.explored.at[i] = false;
        for (uint32_t i; w.steps > 0 && (i = smallest_unexplored(&w)) != ASP_REMAT_NONE;) {
            w.explored.at[i] = true;
            asp_remat_candidate c = w.front.at[i];
            ASP_TRY(explore(&w, &c, more));
        }
    }
    for (uint32_t i = 0; i < w.front.n; i++) ASP_PUSH(s->arena, all, w.front.at[i]);
    return ASP_OK;
}
