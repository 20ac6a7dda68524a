// How far an answer can be from the best there is: Lagrange's lower bound on the time repeated.
//
// While the backward goes through segment k, everything kept of the segments before it is alive,
// and so is what its ops have between their fingers, whatever is kept (floor_k):
//
//   kept before k + floor_k <= M     for each k, so for each price of a byte
//   time >= min over sets (time + price x kept before k) - price x (M - floor_k)
//
// The minimum is one cut.  The bound is the largest over some prices and the last segments.
// O(prices x cut).  Neighbours: remat.h (contract), remat_network.c (the cut).
// SPDX-License-Identifier: Apache-2.0
#include "flow/maxflow.h"
#include "flow/remat_search.h"

#include <math.h>

#define NONE ASP_REMAT_NONE
#define PRICES 48
#define WINDOWS 6u        // segments from the last
#define TIME_TOTAL 0x1p44 // what all times are scaled to

typedef struct bounder {
    asp_ctx *cx;
    asp_arena *arena;
    const remat_graph *g;
    const remat_segments *seg;
    bool fused;
    int64_t *floor; // by segment
    int64_t *keep, *redo;
} bounder;

// Has this storage bytes of its own in any program, whatever is fused?
static bool is_surely_written(const bounder *b, uint32_t storage)
{
    uint32_t maker = b->g->producer[storage];
    if (maker == NONE) return false;
    const asp_remat_op *o = &b->g->program->ops[maker];
    if (b->g->program->values[storage].flags & ASP_REMAT_TUPLE) return false;
    return !b->fused || (!o->fusible && !o->absorbs);
}

static bool made_in(const bounder *b, uint32_t storage, uint32_t window)
{
    uint32_t maker = b->g->producer[storage];
    return b->g->program->ops[maker].backward || b->seg->of_op[maker] == window;
}

typedef struct sweep {
    uint32_t *last; // by storage: the last backward op that touches it
    uint32_t *seen; // by storage: the op that was last to count it
    bool *alive;    // by storage of the backward
    int64_t live;   // of those
} sweep;

static sweep start(const bounder *b)
{
    const asp_remat_program *p = b->g->program;
    sweep s = {.last = ASP_NEW_ARRAY(b->arena, uint32_t, p->n_values),
               .seen = ASP_NEW_ARRAY(b->arena, uint32_t, p->n_values),
               .alive = ASP_NEW_ARRAY(b->arena, bool, p->n_values)};
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const asp_remat_op *o = &p->ops[i];
        for (uint32_t r = 0; r < o->n_reads; r++)
            s.last[p->values[p->reads[o->first_read + r]].root] = i;
    }
    for (uint32_t v = 0; v < p->n_values; v++)
        if (p->values[v].flags & ASP_REMAT_BACKWARD_OUTPUT) s.last[p->values[v].root] = NONE;
    return s;
}

// What op i needs at once beside what the backward has alive anyway; makes its results alive.
static int64_t touched(const bounder *b, sweep *s, uint32_t i)
{
    const asp_remat_program *p = b->g->program;
    const asp_remat_op *o = &p->ops[i];
    int64_t bytes = 0;
    for (uint32_t r = 0; r < o->n_results; r++) {
        uint32_t v = o->first_result + r;
        if (p->values[v].root != v || !is_surely_written(b, v)) continue;
        s->alive[v] = true;
        s->live += p->values[v].bytes;
    }
    for (uint32_t r = 0; r < o->n_reads; r++) {
        uint32_t v = p->values[p->reads[o->first_read + r]].root;
        if (!is_surely_written(b, v) || s->alive[v] || s->seen[v] == i + 1) continue;
        s->seen[v] = i + 1;
        if (made_in(b, v, b->seg->window[i])) bytes += p->values[v].bytes;
    }
    return bytes;
}

static void release(const bounder *b, sweep *s, uint32_t i)
{
    const asp_remat_program *p = b->g->program;
    const asp_remat_op *o = &p->ops[i];
    for (uint32_t r = 0; r < o->n_reads + o->n_results; r++) {
        uint32_t v = r < o->n_reads ? p->values[p->reads[o->first_read + r]].root
                                    : o->first_result + r - o->n_reads;
        bool over = s->last[v] != NONE && s->last[v] <= i;
        if (!s->alive[v] || !over) continue;
        s->alive[v] = false;
        s->live -= p->values[v].bytes;
    }
}

static void find_floors(bounder *b)
{
    const asp_remat_program *p = b->g->program;
    sweep s = start(b);
    b->floor = ASP_NEW_ARRAY(b->arena, int64_t, b->seg->n);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (!p->ops[i].backward) continue;
        int64_t *most = &b->floor[b->seg->window[i]], more = touched(b, &s, i);
        bool in_place = b->fused && p->ops[i].fusible; // its result may lie over an operand
        if (!in_place) *most = asp_max(*most, s.live + more);
        release(b, &s, i);
    }
}

// ---- one price -----------------------------------------------------------------------------

// Least of time + price x bytes kept before the window; times scaled.
static asp_status least(bounder *b, uint32_t window, double price, double *out)
{
    const asp_remat_program *p = b->g->program;
    asp_remat_choice c;
    for (uint32_t i = 0; i < b->g->n; i++) {
        const remat_node *n = &b->g->nodes[i];
        uint32_t at = n->op == NONE ? NONE : b->seg->of_op[n->op];
        bool view = n->value != NONE && p->values[n->value].root != n->value;
        bool counts = at != NONE && at < window && !view && n->value != NONE;
        b->keep[i] = counts ? (int64_t)((double)n->bytes * price) : 0;
        if (n->value == NONE || n->tuple) b->keep[i] = ASP_FLOW_INF;
        if (view && p->values[n->value].root >= p->n_inputs) b->keep[i] = ASP_FLOW_INF;
    }
    ASP_TRY(remat_solve(b->cx, b->arena, b->g, b->keep, b->redo, &c));
    *out = (double)c.cut;
    return ASP_OK;
}

static double fill_times(bounder *b)
{
    const asp_remat_program *p = b->g->program;
    double time = 0;
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (!p->ops[i].backward) time += (double)p->ops[i].time_ps;
    double scale = time > 0 ? TIME_TOTAL / time : 1;
    for (uint32_t i = 0; i < b->g->n; i++) {
        const remat_node *n = &b->g->nodes[i];
        bool pick = n->op != NONE && n->value != NONE && p->ops[n->op].n_results != 1;
        bool repeats = n->op != NONE && n->forward && !pick;
        b->redo[i] = repeats ? (int64_t)((double)p->ops[n->op].time_ps * scale) : 0;
        if (n->is_input && !n->backward) b->redo[i] = ASP_FLOW_INF;
        if (n->kind == ASP_REMAT_RANDOM || n->flags & ASP_REMAT_MUST_SAVE)
            b->redo[i] = ASP_FLOW_INF;
    }
    return scale;
}

static asp_status search(bounder *b, const int64_t *budgets, uint32_t n, double *out_ps)
{
    double scale = fill_times(b);
    int64_t bytes = 1;
    for (uint32_t i = 0; i < b->g->n; i++)
        if (!b->g->nodes[i].backward && b->g->nodes[i].op != NONE) bytes += b->g->nodes[i].bytes;
    for (uint32_t w = 0; w < WINDOWS && w < b->seg->n; w++) {
        uint32_t window = b->seg->n - 1 - w;
        for (int k = 0; k < PRICES; k++) {
            double price = TIME_TOTAL / (double)bytes * pow(2, 8 - 0.5 * k), value;
            ASP_TRY(least(b, window, price, &value));
            for (uint32_t i = 0; i < n; i++) {
                double bound = (value - price * (double)(budgets[i] - b->floor[window])) / scale;
                if (bound > out_ps[i]) out_ps[i] = bound;
            }
        }
    }
    return ASP_OK;
}

asp_status asp_remat_bound(asp_ctx *cx, const asp_remat_program *p, uint32_t options,
                           const int64_t *budgets, uint32_t n, double *out_ps)
{
    asp_arena a;
    remat_graph g;
    asp_arena_init(&a, cx);
    for (uint32_t i = 0; i < n; i++) out_ps[i] = 0;
    asp_status s = remat_graph_build(cx, &a, p, &g);
    if (s == ASP_OK) {
        bounder b = {.cx = cx,
                     .arena = &a,
                     .g = &g,
                     .seg = remat_segments_find(&a, &g),
                     .fused = options & ASP_REMAT_FUSED,
                     .keep = ASP_NEW_ARRAY(&a, int64_t, g.n),
                     .redo = ASP_NEW_ARRAY(&a, int64_t, g.n)};
        find_floors(&b);
        s = search(&b, budgets, n, out_ps);
    }
    asp_arena_fini(&a);
    return s;
}
