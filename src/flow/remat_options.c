// What can be kept of a run of neighbouring segments (a span), and what each choice costs.
//
//   priced cut   inside the span alone, the boundary behind it kept: source edge = time, node edge
//                = price x bytes (views infinite).  Each price's cut is exact, and the points
//                (bytes, time) of all prices are the lower hull; it is found point by point: the
//                slope between two known points is the price that finds the next one between them
//                (Eisner & Severance 1976)
//   forbidden    the same with one value of a hull point forbidden, or one repeated value kept:
//                points beside the hull
//   policies     what the fixed policies keep of the segment
//
// Each set is simulated once with the whole program, the rest of it kept (measure).  Spans of
// segments of equal types share their options.  O(sets x program).
// Neighbours: remat_segments.c (spans), maxflow.h, remat_chain.c (who picks).
// SPDX-License-Identifier: Apache-2.0
#include "flow/maxflow.h"
#include "flow/remat_search.h"

#include <math.h>

#define NONE ASP_REMAT_NONE
#define TIME_TOTAL 0x1p44 // what the times of a span are scaled to
#define MOST_PRICE 4096.0 // times the whole time of a span over all of its bytes
#define MAX_HULL 40u      // points of a span
#define SHARED_FROM 24u   // segments

typedef struct cut_point {
    uint32_t *kept; // positions
    uint32_t n;
    double bytes, time;
} cut_point;

typedef struct span_cut {
    remat_search *s;
    uint32_t first, len; // segments
    uint32_t *nodes, n;
    uint32_t end; // position of the boundary, or NONE
    double scale; // of times
    double most;  // price
} span_cut;

// ---- one cut -------------------------------------------------------------------------------

static bool of_input(const remat_graph *g, const remat_node *n)
{
    return n->value != NONE && g->program->values[n->value].root < g->program->n_inputs;
}

static bool is_view(const remat_graph *g, const remat_node *n)
{
    return n->value != NONE && g->program->values[n->value].root != n->value;
}

static int64_t time_of(const remat_graph *g, const remat_node *n)
{
    bool is_pick_of_several = n->value != NONE && g->program->ops[n->op].n_results != 1;
    return is_pick_of_several ? 0 : g->program->ops[n->op].time_ps;
}

static int64_t price_of_time(const span_cut *c, uint32_t position)
{
    const remat_graph *g = &c->s->graph;
    const remat_node *n = &g->nodes[c->nodes[position]];
    if (position == c->end || n->kind == ASP_REMAT_RANDOM || n->flags & ASP_REMAT_MUST_SAVE)
        return ASP_FLOW_INF;
    return (int64_t)ceil((double)time_of(g, n) * c->scale);
}

static int64_t price_of_keeping(const span_cut *c, uint32_t position, double price)
{
    const remat_graph *g = &c->s->graph;
    const remat_node *n = &g->nodes[c->nodes[position]];
    if (n->value == NONE || n->tuple) return ASP_FLOW_INF;
    if (of_input(g, n)) return 0;
    if (is_view(g, n)) return ASP_FLOW_INF;
    return (int64_t)((double)n->bytes * price) + 1;
}

enum { SOURCE, SINK };
static uint32_t vertex_in(uint32_t position) { return 2 + 2 * position; }
static uint32_t vertex_out(uint32_t position) { return 3 + 2 * position; }

static void add_edges(const span_cut *c, asp_flow *f, uint32_t position, double price,
                      uint32_t forbidden, uint32_t forced)
{
    const remat_graph *g = &c->s->graph;
    const remat_node *n = &g->nodes[c->nodes[position]];
    int64_t again = position == forced ? ASP_FLOW_INF : price_of_time(c, position);
    if (again > 0) asp_flow_add_edge(f, SOURCE, vertex_in(position), again);
    if (n->flags & ASP_REMAT_MUST_RECOMPUTE) {
        asp_flow_add_edge(f, vertex_in(position), SINK, ASP_FLOW_INF);
        return;
    }
    asp_flow_add_edge(f, vertex_in(position), vertex_out(position),
                      position == forbidden ? ASP_FLOW_INF : price_of_keeping(c, position, price));
    bool wanted = position == c->end || n->flags & ASP_REMAT_BACKWARD_OUTPUT;
    for (uint32_t u = 0; u < n->n_users; u++) {
        uint32_t user = g->users[n->first_user + u], at = c->s->position[user];
        if (g->nodes[user].backward)
            wanted = true;
        else if (at != NONE)
            asp_flow_add_edge(f, vertex_out(position), vertex_in(at), ASP_FLOW_INF);
    }
    if (wanted) asp_flow_add_edge(f, vertex_out(position), SINK, ASP_FLOW_INF);
}

// forbidden may not be kept, forced may not be repeated (positions or NONE).  False: no cut.
static bool cut(span_cut *c, double price, uint32_t forbidden, uint32_t forced, cut_point *out)
{
    const remat_graph *g = &c->s->graph;
    asp_ctx quiet = {0}; // "no cut" is an answer here, not a failure
    asp_arena *scratch = &c->s->scratch;
    int64_t value;
    asp_arena_reset(scratch);
    asp_flow *f = asp_flow_create(scratch);
    for (uint32_t v = 0; v < 2 + 2 * c->n; v++) asp_flow_add_node(f);
    for (uint32_t i = 0; i < c->n; i++) add_edges(c, f, i, price, forbidden, forced);
    quiet.message[0] = 0;
    if (asp_flow_solve(&quiet, f, SOURCE, SINK, &value) < 0) return false;
    *out = (cut_point){.kept = ASP_NEW_ARRAY(c->s->arena, uint32_t, c->n)};
    for (uint32_t i = 0; i < c->n; i++) {
        const remat_node *n = &g->nodes[c->nodes[i]];
        if (!asp_flow_in_largest_source_side(f, vertex_in(i))) {
            out->time += (double)time_of(g, n) * c->scale;
        } else if (!asp_flow_in_largest_source_side(f, vertex_out(i))) {
            out->kept[out->n++] = i;
            if (!of_input(g, n)) out->bytes += (double)n->bytes;
        }
    }
    return true;
}

// ---- the hull ------------------------------------------------------------------------------

static bool same_set(const uint32_t *a, uint32_t n_a, const uint32_t *b, uint32_t n_b)
{
    return n_a == n_b && (n_a == 0 || memcmp(a, b, n_a * sizeof *a) == 0);
}

static void add_set(remat_search *s, remat_span *span, const uint32_t *kept, uint32_t n)
{
    for (uint32_t i = 0; i < span->options.n; i++)
        if (same_set(span->options.at[i].kept, span->options.at[i].n, kept, n)) return;
    ASP_PUSH(s->arena, &span->options, (remat_option){.kept = kept, .n = n});
}

typedef struct interval {
    cut_point more, less; // of bytes
} interval;

static void add_hull(span_cut *c, remat_span *span)
{
    ASP_VEC(interval) todo = {0};
    interval all;
    if (!cut(c, 0, NONE, NONE, &all.more)) return;
    add_set(c->s, span, all.more.kept, all.more.n);
    if (!cut(c, c->most, NONE, NONE, &all.less)) return;
    add_set(c->s, span, all.less.kept, all.less.n);
    ASP_PUSH(c->s->arena, &todo, all);
    for (uint32_t i = 0; i < todo.n && span->options.n < MAX_HULL; i++) {
        interval x = todo.at[i];
        double bytes = x.more.bytes - x.less.bytes, time = x.less.time - x.more.time;
        cut_point between;
        if (bytes <= 0 || time <= 0 || !cut(c, time / bytes, NONE, NONE, &between)) continue;
        if (between.bytes >= x.more.bytes || between.bytes <= x.less.bytes) continue;
        add_set(c->s, span, between.kept, between.n);
        ASP_PUSH(c->s->arena, &todo, (interval){x.more, between});
        ASP_PUSH(c->s->arena, &todo, (interval){between, x.less});
    }
}

static bool is_savable(const span_cut *c, uint32_t i)
{
    const remat_graph *g = &c->s->graph;
    const remat_node *n = &g->nodes[c->nodes[i]];
    return n->value != NONE && !n->tuple && !is_view(g, n) && n->bytes > 0 && i != c->end;
}

// Between hull points: at the price that separates two neighbours, with one value forbidden or
// forced.
static void add_beside_hull(span_cut *c, remat_span *span)
{
    uint32_t n_savable = 0;
    for (uint32_t i = 0; i < c->n; i++) n_savable += is_savable(c, i);
    if (n_savable > c->s->most_beside) return;
    for (uint32_t level = 0; level < 4; level++) {
        double price = c->most * pow(2048, -0.25 * (double)(level + 1));
        for (uint32_t i = 0; i < c->n; i++) {
            cut_point p;
            if (!is_savable(c, i)) continue;
            if (cut(c, price, i, NONE, &p)) add_set(c->s, span, p.kept, p.n);
            if (cut(c, price, NONE, i, &p)) add_set(c->s, span, p.kept, p.n);
        }
    }
}

// ---- what policies keep --------------------------------------------------------------------

// Keeping only these, is everything else that the backward reads computable?
static bool is_closed(const span_cut *c, const bool *kept)
{
    const remat_graph *g = &c->s->graph;
    bool *needed = ASP_NEW_ARRAY(&c->s->scratch, bool, c->n);
    for (uint32_t i = c->n; i-- > 0;) {
        const remat_node *n = &g->nodes[c->nodes[i]];
        bool wanted = needed[i] || n->flags & ASP_REMAT_BACKWARD_OUTPUT;
        for (uint32_t u = 0; u < n->n_users; u++)
            wanted |= g->nodes[g->users[n->first_user + u]].backward;
        if (!wanted || kept[i]) continue;
        if (n->kind == ASP_REMAT_RANDOM || n->flags & ASP_REMAT_MUST_SAVE) return false;
        for (uint32_t r = 0; r < n->n_reads; r++) {
            uint32_t at = c->s->position[g->reads[n->first_read + r]];
            if (at != NONE) needed[at] = true;
        }
    }
    return true;
}

static void add_policies(span_cut *c, remat_span *span)
{
    const remat_graph *g = &c->s->graph;
    for (uint32_t f = 0; f < c->s->fixed.n; f++) {
        asp_arena_reset(&c->s->scratch);
        bool *kept = ASP_NEW_ARRAY(&c->s->scratch, bool, c->n);
        const asp_remat_candidate *policy = &c->s->fixed.at[f];
        for (uint32_t i = 0; i < policy->n_saved; i++) {
            uint32_t root = g->program->values[policy->saved[i]].root;
            uint32_t at = c->s->position[g->node_of_value[root]];
            if (at != NONE && root >= g->program->n_inputs) kept[at] = true;
        }
        if (c->end != NONE) kept[c->end] = true;
        if (!is_closed(c, kept)) continue;
        uint32_t *list = ASP_NEW_ARRAY(c->s->arena, uint32_t, c->n), n = 0;
        for (uint32_t i = 0; i < c->n; i++)
            if (kept[i]) list[n++] = i;
        add_set(c->s, span, list, n);
    }
}

// ---- spans ---------------------------------------------------------------------------------

static span_cut open_span(remat_search *s, uint32_t first, uint32_t len)
{
    const remat_segments *seg = s->segments;
    span_cut c = {.s = s, .first = first, .len = len, .end = NONE};
    double time = 0, bytes = 0;
    for (uint32_t k = first; k < first + len; k++) c.n += seg->n_domain[k];
    c.nodes = ASP_NEW_ARRAY(s->arena, uint32_t, c.n);
    c.n = 0;
    for (uint32_t k = first; k < first + len; k++)
        for (uint32_t i = 0; i < seg->n_domain[k]; i++) {
            s->position[seg->domain[k][i]] = c.n;
            c.nodes[c.n++] = seg->domain[k][i];
        }
    if (first + len < seg->n)
        c.end = s->position[s->graph.node_of_value[seg->ends[first + len - 1]]];
    for (uint32_t i = 0; i < c.n; i++) {
        const remat_node *n = &s->graph.nodes[c.nodes[i]];
        time += (double)time_of(&s->graph, n);
        bytes += n->tuple ? 0 : (double)n->bytes;
    }
    c.scale = time > 0 ? TIME_TOTAL / time : 1;
    c.most = bytes > 0 ? TIME_TOTAL * MOST_PRICE / bytes : 1;
    return c;
}

static void close_span(span_cut *c)
{
    for (uint32_t i = 0; i < c->n; i++) c->s->position[c->nodes[i]] = NONE;
}

uint32_t remat_span_value(const remat_search *s, uint32_t first, uint32_t position)
{
    const remat_segments *seg = s->segments;
    while (position >= seg->n_domain[first]) position -= seg->n_domain[first++];
    return s->graph.nodes[seg->domain[first][position]].value;
}

void remat_add_option_values(const remat_search *s, uint32_t first, const remat_option *o,
                             remat_values *out)
{
    for (uint32_t i = 0; i < o->n; i++)
        ASP_PUSH(s->arena, out, remat_span_value(s, first, o->kept[i]));
}

// What segments keep where nothing is given up: the first option of each span of one.
static bool add_base_values(const remat_search *s, uint32_t from, uint32_t to, remat_values *out)
{
    for (uint32_t k = from; k < to; k++) {
        const remat_span *span = s->span_of[k * s->longest];
        if (!span->options.n) return false;
        remat_add_option_values(s, k, &span->options.at[0], out);
    }
    return true;
}

// ---- measuring -----------------------------------------------------------------------------

static int64_t kept_bytes(const remat_search *s, uint32_t first, uint32_t len,
                          const remat_option *o)
{
    const asp_remat_program *p = s->graph.program;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        uint32_t v = remat_span_value(s, first, o->kept[i]), from = s->graph.producer[v];
        if (p->values[v].root != v || from == NONE) continue;
        uint32_t k = s->segments->of_op[from];
        if (k >= first && k < first + len) bytes += p->values[v].bytes;
    }
    return bytes;
}

// The most that is alive while the span runs, forward and backward.
static int64_t peak_in_windows(const remat_search *s, uint32_t first, uint32_t len)
{
    const remat_trial *t = &s->trial;
    const remat_segments *seg = s->segments;
    int64_t peak = 0, pending = 0;
    uint32_t now = 0;
    for (uint32_t i = 0; i < t->schedule.n_forward; i++) {
        uint32_t k = seg->of_op[t->schedule.steps[i].op];
        if (k != NONE && k > now) now = k;
        if (now >= first + len) break;
        if (now >= first) peak = asp_max(peak, t->live[i]);
    }
    for (uint32_t i = t->schedule.n_forward; i < t->schedule.n_steps; i++) {
        uint32_t op = t->schedule.steps[i].op;
        pending = asp_max(pending, t->live[i]);
        if (!s->graph.program->ops[op].backward) continue;
        uint32_t k = seg->window[op];
        if (k < first) break;
        if (k < first + len) peak = asp_max(peak, pending);
        pending = 0;
    }
    return peak;
}

static int64_t repeated_time(const remat_search *s, uint32_t first, uint32_t len)
{
    const remat_trial *t = &s->trial;
    int64_t time = 0;
    for (uint32_t i = t->schedule.n_forward; i < t->schedule.n_steps; i++) {
        const asp_remat_step *step = &t->schedule.steps[i];
        uint32_t k = s->segments->of_op[step->op];
        if (step->repeated && k != NONE && k >= first && k < first + len)
            time += s->graph.program->ops[step->op].time_ps;
    }
    return time;
}

static asp_status measure(asp_ctx *cx, remat_search *s, uint32_t first, uint32_t len,
                          remat_option *o)
{
    remat_values saved = {0};
    asp_remat_cost cost;
    saved.at = s->list;
    saved.cap = s->list_cap;
    for (uint32_t i = 0; i < s->globals.n; i++) ASP_PUSH(s->arena, &saved, s->globals.at[i]);
    ASP_CHECK(add_base_values(s, 0, first, &saved));
    remat_add_option_values(s, first, o, &saved);
    ASP_CHECK(add_base_values(s, first + len, s->segments->n, &saved));
    s->list = saved.at;
    s->list_cap = saved.cap;
    asp_status status = remat_trial_run_quietly(cx, &s->trial, saved.at, saved.n, &cost);
    if (status == ASP_IN_PROGRESS) { // would repeat a random op
        o->need = INT64_MAX / 4;
        return ASP_OK;
    }
    ASP_TRY(status);
    o->bytes = kept_bytes(s, first, len, o);
    o->ps = repeated_time(s, first, len);
    o->need = peak_in_windows(s, first, len) - s->kept_before[first];
    return ASP_OK;
}

// ---- all of them ---------------------------------------------------------------------------

// Equal types stand for each other, or in small programs, where it costs little, only itself: what
// stands around a span changes a little of what it needs.
static uint32_t span_key(const remat_search *s, asp_map *spans, uint32_t first, uint32_t len)
{
    bool added, shares = s->segments->n > SHARED_FROM;
    uint32_t *types = s->segments->type + first, own[] = {first, len};
    return shares ? asp_map_add(spans, types, len * sizeof *types, &added)
                  : asp_map_add(spans, own, sizeof own, &added);
}

// Options that another one beats in bytes, time and need.
static void drop_beaten(remat_span *span)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < span->options.n; i++) {
        const remat_option *x = &span->options.at[i];
        bool beaten = false;
        for (uint32_t j = 0; j < span->options.n && !beaten; j++) {
            const remat_option *y = &span->options.at[j];
            if (i == j || y->bytes > x->bytes || y->ps > x->ps || y->need > x->need) continue;
            bool equal = y->bytes == x->bytes && y->ps == x->ps && y->need == x->need;
            beaten = !equal || j < i;
        }
        span->use[n] = i;
        n += !beaten;
    }
    span->n_use = n;
}

static void find_kept_before(remat_search *s)
{
    s->kept_before[0] = 0;
    for (uint32_t k = 0; k < s->segments->n; k++)
        s->kept_before[k + 1] =
            s->kept_before[k] + kept_bytes(s, k, 1, &s->span_of[k * s->longest]->options.at[0]);
}

// Gradients live to the end: what later segments have made when a segment's turn comes.
static void find_gradients(remat_search *s)
{
    const asp_remat_program *p = s->graph.program;
    for (uint32_t k = 0; k <= s->segments->n; k++) s->gradients[k] = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const asp_remat_op *o = &p->ops[i];
        for (uint32_t r = 0; o->backward && r < o->n_results; r++) {
            const asp_remat_value *v = &p->values[o->first_result + r];
            if (v->flags & ASP_REMAT_BACKWARD_OUTPUT && v->root == o->first_result + r)
                s->gradients[s->segments->window[i]] += v->bytes;
        }
    }
    int64_t later = 0;
    for (uint32_t k = s->segments->n; k-- > 0;) {
        int64_t here = s->gradients[k];
        s->gradients[k] = later;
        later += here;
    }
}

// A span is measured in the middle of the places where it stands.
static void find_spans(remat_search *s)
{
    asp_map spans;
    ASP_VEC(remat_span *) list = {0};
    ASP_VEC(remat_values) places = {0};
    asp_map_init(&spans, s->arena);
    for (uint32_t len = 1; len <= s->longest; len++)
        for (uint32_t first = 0; first + len <= s->segments->n; first++) {
            uint32_t key = span_key(s, &spans, first, len);
            if (key == list.n) {
                remat_span *made = ASP_NEW(s->arena, remat_span);
                made->len = len;
                ASP_PUSH(s->arena, &list, made);
                ASP_PUSH(s->arena, &places, (remat_values){0});
            }
            s->span_of[first * s->longest + len - 1] = list.at[key];
            ASP_PUSH(s->arena, &places.at[key], first);
        }
    for (uint32_t i = 0; i < list.n; i++) list.at[i]->first = places.at[i].at[places.at[i].n / 2];
    s->spans = list.at;
    s->n_spans = list.n;
}

asp_status remat_options_find(asp_ctx *cx, remat_search *s)
{
    find_spans(s);
    find_gradients(s);
    for (uint32_t i = 0; i < s->n_spans; i++) {
        span_cut c = open_span(s, s->spans[i]->first, s->spans[i]->len);
        add_hull(&c, s->spans[i]);
        if (s->spans[i]->options.n) add_beside_hull(&c, s->spans[i]);
        if (s->spans[i]->len == 1) add_policies(&c, s->spans[i]);
        close_span(&c);
        if (s->spans[i]->len == 1 && !s->spans[i]->options.n)
            return ASP_IN_PROGRESS; // no choice inside one segment: the tags contradict each other
    }
    find_kept_before(s);
    for (uint32_t i = 0; i < s->n_spans; i++) {
        remat_span *span = s->spans[i];
        span->use = ASP_NEW_ARRAY(s->arena, uint32_t, span->options.n);
        for (uint32_t k = 0; k < span->options.n; k++)
            ASP_TRY(measure(cx, s, span->first, span->len, &span->options.at[k]));
        drop_beaten(span);
    }
    return ASP_OK;
}
