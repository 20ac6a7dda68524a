// budget: given bytes at the peak, the fastest choice.
//
//   fixed policies          simulated as they are
//   up to 16 candidates     every choice that can matter, by branch and bound (remat_exact.c)
//   more                    segments, options for each, the chain for all targets of the peak; some
//                           of its answers simulated whole.  Once for each distinct
//                           choice of the fixed policies among values that belong to no segment.
//                           Small programs' answers are bettered value by value (remat_polish.c)
//
// Of all of these what no other beats in peak and time is the frontier; the answer for M is its
// fastest member whose peak is at most M.  So an answer keeps its budget, answers are monotone in
// M, and none is worse than a fixed policy, whatever the search finds. O(options x program) for the
// options of each type of segment, O(answers x program) beside. Neighbours: remat.h (contract),
// remat_search.h (the parts).  SPDX-License-Identifier: Apache-2.0
#include "flow/remat_search.h"

#include <stdlib.h>

#define NONE ASP_REMAT_NONE
#define LONGEST_SPAN 4u // segments treated as one
#define TINY_OPS 200u   // where spans of any length and points beside the hull are tried
#define BUCKETS 1024u
#define STEPS_SIMULATED 800000u // of all targets together
#define STEPS_POLISHED 600000
#define MIN_TARGETS 100u
#define MAX_TARGETS 400u
#define FEW_OPS 2000u // where options are measured anew for other values outside of segments

static const struct {
    const char *name;
    asp_remat_policy policy;
} fixed_policies[] = {{"none", ASP_REMAT_KEEP_ALL},
                      {"default", ASP_REMAT_DEFAULT},
                      {"sac", ASP_REMAT_SAC},
                      {"layer", ASP_REMAT_LAYER}};

typedef remat_candidates candidates;

// ---- one set -------------------------------------------------------------------------------

remat_trial remat_trial_make(asp_arena *a, const asp_remat_program *p, uint32_t options)
{
    return (remat_trial){.program = p,
                         .emitter = remat_emitter_create(a, p),
                         .simulator = remat_simulator_create(a, p),
                         .options = options,
                         .live = ASP_NEW_ARRAY(a, int64_t, 2 * (size_t)p->n_ops)};
}

asp_status remat_trial_run(asp_ctx *cx, remat_trial *t, const uint32_t *saved, uint32_t n,
                           asp_remat_cost *out_cost)
{
    ASP_TRY(remat_emitter_run(cx, t->emitter, saved, n, &t->schedule));
    remat_simulator_run(t->simulator, saved, n, &t->schedule, t->options, t->live, out_cost);
    return ASP_OK;
}

asp_status remat_trial_run_quietly(asp_ctx *cx, remat_trial *t, const uint32_t *saved, uint32_t n,
                                   asp_remat_cost *out_cost)
{
    asp_status status = remat_trial_run(cx, t, saved, n, out_cost);
    if (status != ASP_ERR_UNSUPPORTED) return status;
    cx->message[0] = 0;
    return ASP_IN_PROGRESS;
}

static int by_number(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

// A copy of the set, ascending, each value once.
static asp_remat_candidate make_candidate(asp_arena *a, const remat_values *saved, const char *from)
{
    asp_remat_candidate c = {.from = from};
    uint32_t *list = asp_copy_bytes(a, saved->at, saved->n * sizeof *saved->at);
    if (saved->n) qsort(list, saved->n, sizeof *list, by_number);
    for (uint32_t i = 0; i < saved->n; i++)
        if (i == 0 || list[i] != list[i - 1]) list[c.n_saved++] = list[i];
    c.saved = list;
    return c;
}

// Simulates it and adds it; what cannot be emitted (a random op repeated) is left out.
static asp_status try_candidate(asp_ctx *cx, remat_search *s, asp_remat_candidate c,
                                candidates *out)
{
    asp_status status = remat_trial_run_quietly(cx, &s->trial, c.saved, c.n_saved, &c.cost);
    if (status == ASP_IN_PROGRESS) return ASP_OK;
    ASP_TRY(status);
    ASP_PUSH(s->arena, out, c);
    return ASP_OK;
}

// ---- fixed policies ------------------------------------------------------------------------

// A contradiction among the tags shows in `default`; the others then have no answer either.
static asp_status try_policies(asp_ctx *cx, remat_search *s)
{
    candidates fixed = {0};
    for (size_t i = 0; i < ASP_COUNT_OF(fixed_policies); i++) {
        asp_remat_choice choice;
        ASP_TRY(
            asp_remat_choose(cx, s->arena, s->graph.program, fixed_policies[i].policy, &choice));
        asp_remat_candidate c = {
            .saved = choice.saved, .n_saved = choice.n_saved, .from = fixed_policies[i].name};
        ASP_TRY(try_candidate(cx, s, c, &fixed));
    }
    for (uint32_t i = 0; i < fixed.n; i++) ASP_PUSH(s->arena, &s->fixed, fixed.at[i]);
    return ASP_OK;
}

// ---- values of no segment ------------------------------------------------------------------

static void globals_of(const remat_search *s, const asp_remat_candidate *c, remat_values *out)
{
    const asp_remat_program *p = s->graph.program;
    for (uint32_t i = 0; i < c->n_saved; i++) {
        uint32_t v = c->saved[i], from = s->graph.producer[v];
        if (from == NONE || s->segments->of_op[from] != NONE) continue;
        if (p->values[v].root < p->n_inputs) continue;
        ASP_PUSH(s->arena, out, v);
    }
}

static bool have_globals(const remat_values *seen, uint32_t n, const remat_values *g)
{
    for (uint32_t i = 0; i < n; i++)
        if (seen[i].n == g->n &&
            (g->n == 0 || memcmp(seen[i].at, g->at, g->n * sizeof *g->at) == 0))
            return true;
    return false;
}

// ---- the chain -----------------------------------------------------------------------------

static int64_t highest_peak(const remat_search *s)
{
    int64_t peak = 0;
    for (uint32_t i = 0; i < s->fixed.n; i++) peak = asp_max(peak, s->fixed.at[i].cost.peak);
    return peak;
}

// As many targets as their simulation is worth; small programs have all.
static uint32_t targets_of(const remat_search *s)
{
    uint32_t n = STEPS_SIMULATED / (s->graph.program->n_ops + 1);
    return n < MIN_TARGETS ? MIN_TARGETS : n > MAX_TARGETS ? MAX_TARGETS : n;
}

// Which answers to simulate: all, or half of them evenly by bytes (nearer to each other where
// memory is short) and half evenly by time.
static bool *choose_answers(asp_arena *a, const remat_chain_point *points, uint32_t n,
                            uint32_t targets)
{
    bool *chosen = ASP_NEW_ARRAY(a, bool, n);
    double least = (double)points[0].need, bytes = (double)points[n - 1].need - least;
    double fast = (double)points[n - 1].ps, time = (double)points[0].ps - fast;
    uint32_t by_bytes = 0, by_time = n - 1;
    for (uint32_t t = 0; t < targets / 2; t++) {
        double part = (double)t / (targets / 2 - 1);
        while (by_bytes + 1 < n && (double)points[by_bytes + 1].need <= least + bytes * part * part)
            by_bytes++;
        while (by_time > 0 && (double)points[by_time - 1].ps <= fast + time * part) by_time--;
        chosen[by_bytes] = chosen[by_time] = true;
    }
    for (uint32_t i = 0; n <= targets && i < n; i++) chosen[i] = true;
    return chosen;
}

static asp_status try_chain(asp_ctx *cx, remat_search *s, const remat_chain *chain, candidates *out)
{
    uint32_t n = chain->n_points[0];
    if (n == 0) return ASP_OK;
    const bool *chosen = choose_answers(s->arena, chain->points[0], n, targets_of(s));
    for (uint32_t i = 0; i < n; i++) {
        if (!chosen[i]) continue;
        remat_values saved = {0};
        for (uint32_t k = 0; k < s->globals.n; k++) ASP_PUSH(s->arena, &saved, s->globals.at[k]);
        remat_chain_values(s, chain, i, &saved);
        ASP_TRY(try_candidate(cx, s, make_candidate(s->arena, &saved, "chain"), out));
    }
    return ASP_OK;
}

static asp_status search_segments(asp_ctx *cx, remat_search *s, candidates *out)
{
    uint32_t n = s->segments->n, n_seen = 0;
    bool tiny = s->graph.program->n_ops <= TINY_OPS;
    s->longest = tiny ? n : LONGEST_SPAN;
    s->most_beside = tiny ? 16 : 0;
    s->span_of = ASP_NEW_ARRAY(s->arena, remat_span *, (size_t)n * s->longest);
    s->position = ASP_NEW_ARRAY(s->arena, uint32_t, s->graph.n);
    s->kept_before = ASP_NEW_ARRAY(s->arena, int64_t, n + 1);
    s->gradients = ASP_NEW_ARRAY(s->arena, int64_t, n + 1);
    for (uint32_t i = 0; i < s->graph.n; i++) s->position[i] = NONE;
    remat_values *seen = ASP_NEW_ARRAY(s->arena, remat_values, s->fixed.n);
    remat_chain chain;
    int64_t most = highest_peak(s) + highest_peak(s) / 4;
    for (uint32_t f = 0; f < s->fixed.n; f++) {
        remat_values g = {0};
        globals_of(s, &s->fixed.at[f], &g);
        if (have_globals(seen, n_seen, &g)) continue;
        seen[n_seen++] = s->globals = g;
        if (n_seen == 1 || s->graph.program->n_ops <= FEW_OPS) {
            asp_status status = remat_options_find(cx, s);
            if (status == ASP_IN_PROGRESS) return ASP_OK; // the fixed policies have to do
            ASP_TRY(status);
            chain = remat_chain_solve(s, most, BUCKETS);
        }
        ASP_TRY(try_chain(cx, s, &chain, out));
    }
    return ASP_OK;
}

// ---- the frontier --------------------------------------------------------------------------

static int by_time(const void *x, const void *y)
{
    const asp_remat_candidate *a = x, *b = y;
    const int64_t keys[][2] = {{a->cost.repeated_ps, b->cost.repeated_ps},
                               {a->cost.peak, b->cost.peak},
                               {a->cost.saved_bytes, b->cost.saved_bytes},
                               {a->n_saved, b->n_saved}};
    for (size_t i = 0; i < ASP_COUNT_OF(keys); i++)
        if (keys[i][0] != keys[i][1]) return keys[i][0] < keys[i][1] ? -1 : 1;
    return a->n_saved ? memcmp(a->saved, b->saved, a->n_saved * sizeof *a->saved) : 0;
}

static asp_remat_frontier frontier_of(asp_arena *a, candidates *all)
{
    asp_remat_candidate *out = ASP_NEW_ARRAY(a, asp_remat_candidate, all->n);
    asp_remat_frontier f = {.at = out, .n_tried = all->n};
    if (all->n) qsort(all->at, all->n, sizeof *all->at, by_time);
    for (uint32_t i = 0; i < all->n; i++)
        if (f.n == 0 || all->at[i].cost.peak < out[f.n - 1].cost.peak) out[f.n++] = all->at[i];
    for (uint32_t i = 0; i < f.n; i++)
        out[i].saved = asp_copy_bytes(a, out[i].saved, out[i].n_saved * sizeof *out[i].saved);
    return f;
}

asp_status remat_frontier_by(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                             uint32_t options, uint32_t ways, asp_remat_frontier *out_frontier)
{
    asp_arena own;
    asp_arena_init(&own, cx);
    remat_search s = {.arena = &own};
    asp_arena_init(&s.scratch, cx);
    candidates all = {0};
    asp_status status = remat_graph_build(cx, &own, p, &s.graph);
    if (status == ASP_OK) {
        s.trial = remat_trial_make(&own, p, options);
        s.segments = remat_segments_find(&own, &s.graph);
        status = try_policies(cx, &s);
    }
    for (uint32_t i = 0; status == ASP_OK && i < s.fixed.n; i++)
        ASP_PUSH(&own, &all, s.fixed.at[i]);
    bool exact = false;
    if (status == ASP_OK && ways & REMAT_EXACT) {
        remat_values found;
        exact = remat_exact_candidates(&s, &found);
        if (exact) {
            candidates more = {0};
            status = remat_exact_find(cx, &s, &found, &more);
            for (uint32_t i = 0; i < more.n; i++) ASP_PUSH(&own, &all, more.at[i]);
        }
    }
    if (status == ASP_OK && !exact && ways & REMAT_SEARCH) {
        status = search_segments(cx, &s, &all);
        if (status == ASP_OK && p->n_ops <= FEW_OPS)
            status = remat_polish(cx, &s, &all, STEPS_POLISHED * (p->n_ops <= TINY_OPS ? 2 : 1),
                                  p->n_ops <= TINY_OPS);
    }
    if (status == ASP_OK) {
        *out_frontier = frontier_of(a, &all);
        out_frontier->n_segments = s.segments->n;
        out_frontier->exact = exact;
    }
    asp_arena_fini(&s.scratch);
    asp_arena_fini(&own);
    return status;
}

asp_status asp_remat_frontier_find(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                                   uint32_t options, asp_remat_frontier *out_frontier)
{
    return remat_frontier_by(cx, a, p, options, REMAT_EXACT | REMAT_SEARCH, out_frontier);
}

const asp_remat_candidate *asp_remat_frontier_best(const asp_remat_frontier *f, int64_t bytes)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (f->at[i].cost.peak <= bytes) return &f->at[i];
    return NULL;
}

asp_status asp_remat_budget(asp_ctx *cx, asp_arena *a, const asp_remat_program *p, uint32_t options,
                            int64_t bytes, asp_remat_candidate *out_candidate)
{
    asp_remat_frontier f;
    ASP_TRY(asp_remat_frontier_find(cx, a, p, options, &f));
    const asp_remat_candidate *best = asp_remat_frontier_best(&f, bytes);
    if (!best)
        return asp_fail(cx, ASP_ERR_LIMIT,
                        "recompute: no choice of saved values has a peak of at most %lld bytes; "
                        "the smallest that was found is %lld",
                        (long long)bytes, (long long)(f.n ? f.at[f.n - 1].cost.peak : 0));
    *out_candidate = *best;
    return ASP_OK;
}
