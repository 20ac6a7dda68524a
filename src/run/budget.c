// --ac budget: the fastest program that keeps within the memory given.
//
// The search (flow/remat.h) knows bytes and times of the graph; what a program really takes the
// memory plan knows alone: fused rows, results written in place, workspaces, fragments.  So choices
// are planned, the fastest first, until one fits.  Those that the search says to be far beyond are
// left out; how far a choice may be beyond and still be planned grows with the memory, so the
// answer stays monotone in it.  With --offload the search takes what is away in a file for free,
// though two such values are there at a time, and knows no time of the file: every choice is
// planned, and that of `layer`, of which most is away, last.  O(choices planned x plan).
// Neighbours: compile_int.h (contract), pass/remat.h (the description).
// SPDX-License-Identifier: Apache-2.0
#include "pass/remat.h"
#include "run/compile_int.h"

#define MOST_CHOICES 48u // of a frontier, evenly spread over its peaks
#define BEYOND 1.25      // of what choices share: what is said to take more is not planned
#define SMALLEST 2u      // so many of those that are said to be the smallest are planned

struct asp_smallest {
    asp_arena own, arena; // it lies on the first, the sets on the other
    uint32_t n, best;     // best: the smaller one of late
    asp_remat_candidate at[SMALLEST];
    uint32_t n_vals, n_nodes; // of the graph whose values the sets name
};

typedef struct trial {
    asp_ctx *cx;
    const asp_graph *joint;
    const asp_compile_options *options;
    asp_pass_options passes;
    const asp_pass_trace *trace;
    asp_plan *best; // the smallest so far; owned
} trial;

// With --offload what a layer makes and a later one reads is away in a file where it is kept
// (offload.c), so keeping it takes nothing.
static void free_what_is_away(asp_remat_description *x)
{
    int32_t *block_of = ASP_NEW_ARRAY(x->arena, int32_t, x->values.n);
    for (uint32_t i = 0; i < x->ops.n; i++) {
        const asp_remat_op *o = &x->ops.at[i];
        for (uint32_t r = 0; r < o->n_results; r++) block_of[o->first_result + r] = o->block + 1;
        for (uint32_t r = o->first_read; r < o->first_read + o->n_reads && !o->backward; r++) {
            const uint32_t v = x->values.at[x->reads.at[r]].root;
            const bool between = block_of[v] > 0 && o->block + 1 > block_of[v];
            if (between && x->values.at[v].flags & ASP_REMAT_SEQUENCE) x->values.at[v].bytes = 0;
        }
    }
}

static asp_status find_frontier(trial *t, asp_arena *a, asp_remat_frontier *out)
{
    asp_pass px = {.cx = t->cx, .scratch = a, .options = &t->passes};
    asp_remat_description x;
    asp_graph *g = asp_graph_clone(t->joint);
    asp_status s = asp_remat_describe(&px, a, g, &x);
    if (s == ASP_OK && t->options->offload) free_what_is_away(&x);
    if (s == ASP_OK) s = asp_remat_frontier_find(t->cx, a, &x.program, ASP_REMAT_NATIVE, out);
    asp_graph_destroy(g);
    return s;
}

// Leaves out what differs little in its peak; the first and the smallest stay.
static uint32_t thin(const asp_remat_frontier *f, const asp_remat_candidate **out)
{
    int64_t high = f->at[0].cost.peak, low = f->at[f->n - 1].cost.peak;
    int64_t step = (high - low) / MOST_CHOICES, last = high;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (i > 0 && i + SMALLEST < f->n && last - f->at[i].cost.peak < step) continue;
        last = f->at[i].cost.peak;
        out[n++] = &f->at[i];
    }
    return n;
}

static int64_t bytes_of(const asp_plan *p) { return asp_plan_get_report(p)->rank_bytes; }

static asp_status try_choice(trial *t, const asp_remat_candidate *c, int64_t *out_bytes)
{
    asp_plan *plan;
    t->passes.keep = c;
    ASP_TRY(asp_compile_choice(t->cx, t->joint, t->options, &t->passes, t->trace, &plan));
    *out_bytes = bytes_of(plan);
    if (!t->best || *out_bytes < bytes_of(t->best) || *out_bytes <= t->options->memory) {
        asp_plan_destroy(t->best);
        t->best = plan;
    } else {
        asp_plan_destroy(plan);
    }
    return ASP_OK;
}

static asp_status try_layer(trial *t)
{
    int64_t bytes;
    if (!t->options->offload) return ASP_OK;
    t->passes.ac = "layer";
    asp_status s = try_choice(t, NULL, &bytes);
    t->passes.ac = "budget";
    return s;
}

// What is always there (parameters, optimizer, inputs) is the difference of the fastest choice's
// plan and its peak.  Where nothing fits, the smallest is looked for among those said to be near
// it, so that it is the same whatever the memory.
static asp_status try_all(trial *t, const asp_remat_candidate *const *choices, uint32_t n)
{
    int64_t bytes, memory = t->options->memory;
    ASP_TRY(try_choice(t, choices[0], &bytes));
    if (bytes <= memory) return ASP_OK;
    const int64_t always = bytes - choices[0]->cost.peak;
    const int64_t least = asp_max(memory - always, choices[n - 1]->cost.peak);
    for (uint32_t i = 1; i < n; i++) {
        const double said = (double)choices[i]->cost.peak;
        if (said > BEYOND * (double)least && i + SMALLEST < n && !t->options->offload) continue;
        ASP_TRY(try_choice(t, choices[i], &bytes));
        if (bytes <= memory) return ASP_OK;
    }
    return try_layer(t);
}

// ---- the smallest ------------------------------------------------------------------------------

asp_smallest *asp_smallest_create(asp_ctx *cx)
{
    asp_arena own;
    asp_arena_init(&own, cx);
    asp_smallest *s = ASP_NEW(&own, asp_smallest);
    s->own = own;
    asp_arena_init(&s->arena, cx);
    return s;
}

void asp_smallest_destroy(asp_smallest *s)
{
    if (!s) return;
    asp_arena own = s->own;
    asp_arena_fini(&s->arena);
    asp_arena_fini(&own);
}

void asp_smallest_forget(asp_smallest *s) { s->n = 0; }

uint64_t asp_smallest_hash(const asp_smallest *s)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < s->n; i++)
        hash = asp_hash(s->at[i].saved, s->at[i].n_saved * sizeof *s->at[i].saved, hash + 1);
    return hash;
}

static asp_status learn(trial *t, asp_arena *a, asp_smallest *s)
{
    asp_remat_frontier f;
    ASP_TRY(find_frontier(t, a, &f));
    asp_arena_reset(&s->arena);
    s->n = s->best = 0;
    s->n_vals = t->joint->vals.n;
    s->n_nodes = t->joint->nodes.n;
    for (uint32_t i = f.n < SMALLEST ? 0 : f.n - SMALLEST; i < f.n; i++) {
        s->at[s->n] = f.at[i];
        s->at[s->n++].saved =
            asp_copy_bytes(&s->arena, f.at[i].saved, f.at[i].n_saved * sizeof *f.at[i].saved);
    }
    return ASP_OK;
}

// One that fits, or the smallest of those that are known.
static asp_status try_smallest(trial *t, asp_arena *a, asp_smallest *s)
{
    int64_t bytes, least = INT64_MAX;
    if (s->n == 0 || s->n_vals != t->joint->vals.n || s->n_nodes != t->joint->nodes.n)
        ASP_TRY(learn(t, a, s));
    for (uint32_t i = 0, first = s->best; i < s->n; i++) {
        const uint32_t k = (first + i) % s->n;
        ASP_TRY(try_choice(t, &s->at[k], &bytes));
        if (bytes < least) s->best = k;
        least = asp_min(least, bytes);
        if (bytes <= t->options->memory) return ASP_OK;
    }
    return try_layer(t);
}

static asp_status try_frontier(trial *t, asp_arena *a)
{
    asp_remat_frontier f;
    ASP_TRY(find_frontier(t, a, &f));
    const asp_remat_candidate **choices = ASP_NEW_ARRAY(a, const asp_remat_candidate *, f.n);
    return try_all(t, choices, thin(&f, choices));
}

asp_status asp_compile_budget(asp_ctx *cx, const asp_graph *joint,
                              const asp_compile_options *options, const asp_pass_options *passes,
                              const asp_pass_trace *trace, asp_plan **out_plan)
{
    trial t = {.cx = cx, .joint = joint, .options = options, .passes = *passes, .trace = trace};
    asp_arena a;
    if (options->memory <= 0)
        return asp_fail(cx, ASP_ERR_USAGE,
                        "--ac budget needs --memory BYTES: what a rank may take");
    asp_arena_init(&a, cx);
    asp_status s =
        options->smallest ? try_smallest(&t, &a, options->smallest) : try_frontier(&t, &a);
    asp_arena_fini(&a);
    if (s < 0) {
        asp_plan_destroy(t.best);
        return s;
    }
    *out_plan = t.best;
    return ASP_OK;
}
