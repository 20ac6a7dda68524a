// Minimum cuts: Dinic's algorithm on what contraction leaves of a network.
//
//   1 contract   what infinite edges tie to the source is the source, what they tie to the sink is
//                the sink; a node tied to both ends is the refusal.  Edges from the source become a
//                node's supply, edges to the sink its demand; edges back to the source or out of
//                the sink carry nothing in some largest flow, and go.
//   2 pass on    what a node supplies and demands itself never leaves it.
//   3 lay out    the arcs of a node, both directions, stand side by side.
//   4 phases     breadth-first distances to demand, then augmenting paths from every supply along
//                arcs that come one step nearer, until none is left; distances grow each time.
//
// Both canonical cuts are properties of the network, not of the flow that is found, so neither the
// order of edges nor any of the above changes the answer.  Infinite edges that are left hold
// 1 + the sum of the finite ones, which no minimum cut can pay.  O(nodes + edges) memory; a few
// phases on the layered networks built here.  Neighbours: maxflow.h (contract).
// SPDX-License-Identifier: Apache-2.0
#include "flow/maxflow.h"

#define NONE UINT32_MAX
#define AT_SOURCE (NONE - 1) // numbers of contracted nodes
#define AT_SINK (NONE - 2)

typedef struct edge {
    uint32_t from, to;
    int64_t capacity;
} edge;

typedef struct arc {
    uint32_t to;
    uint32_t back; // index of the other direction
    int64_t left;  // residual capacity
} arc;

struct asp_flow {
    asp_arena *arena;
    uint32_t n; // nodes
    ASP_VEC(edge) edges;
    bool solved;
    uint32_t *number; // by node: its number in the core, or AT_SOURCE, AT_SINK
    uint32_t n_core;
    // By number:
    uint32_t *first; // arc; one more than nodes
    arc *arcs;
    int64_t *supply, *demand; // what is left of them
    uint32_t *level;          // distance to demand; NONE: cannot reach any, or a dead end
    uint32_t *current;        // arc to try next
    uint32_t *path;           // arcs from a supply
    uint32_t *queue;
    uint32_t n_queued;
    bool *reached;           // from a supply, filled on first question
    uint32_t *infinite_path; // nodes
    uint32_t n_infinite_path;
};

asp_flow *asp_flow_create(asp_arena *a)
{
    asp_flow *f = ASP_NEW(a, asp_flow);
    f->arena = a;
    return f;
}

void asp_flow_reserve(asp_flow *f, uint32_t edges) { ASP_RESERVE(f->arena, &f->edges, edges); }
uint32_t asp_flow_add_node(asp_flow *f) { return f->n++; }
uint32_t asp_flow_count_nodes(const asp_flow *f) { return f->n; }

void asp_flow_add_edge(asp_flow *f, uint32_t from, uint32_t to, int64_t capacity)
{
    ASP_ASSERT(from < f->n && to < f->n && capacity >= 0);
    if (capacity > 0 && from != to)
        ASP_PUSH(f->arena, &f->edges, (edge){.from = from, .to = to, .capacity = capacity});
}

// ---- contraction -------------------------------------------------------------------------------

// The nodes that infinite edges lead to from `start`, or that lead there: came[v] is the one before
// v, NONE for those that are not tied.  Breadth-first, edges in the order of addition.
static uint32_t *find_tied(asp_flow *f, uint32_t start, bool forward)
{
    uint32_t *first = ASP_NEW_ARRAY(f->arena, uint32_t, f->n + 2), n_infinite = 0;
    uint32_t *came = ASP_NEW_ARRAY(f->arena, uint32_t, f->n), head = 0, tail = 0;
    for (uint32_t e = 0; e < f->edges.n; e++) {
        const edge *x = &f->edges.at[e];
        if (x->capacity != ASP_FLOW_INF) continue;
        first[(forward ? x->from : x->to) + 2]++;
        n_infinite++;
    }
    for (uint32_t v = 0; v < f->n; v++) first[v + 2] += first[v + 1];
    uint32_t *next = ASP_NEW_ARRAY(f->arena, uint32_t, n_infinite);
    for (uint32_t e = 0; e < f->edges.n; e++) {
        const edge *x = &f->edges.at[e];
        if (x->capacity != ASP_FLOW_INF) continue;
        next[first[(forward ? x->from : x->to) + 1]++] = forward ? x->to : x->from;
    }
    memset(came, 0xff, f->n * sizeof *came);
    came[start] = start;
    f->queue[tail++] = start;
    while (head < tail) {
        const uint32_t v = f->queue[head++];
        for (uint32_t i = first[v]; i < first[v + 1]; i++) {
            if (came[next[i]] != NONE) continue;
            came[next[i]] = v;
            f->queue[tail++] = next[i];
        }
    }
    return came;
}

static void keep_infinite_path(asp_flow *f, const uint32_t *came, uint32_t source, uint32_t sink)
{
    uint32_t n = 1;
    for (uint32_t v = sink; v != source; v = came[v]) n++;
    f->n_infinite_path = n;
    f->infinite_path = ASP_NEW_ARRAY(f->arena, uint32_t, n);
    for (uint32_t v = sink; n > 0; v = came[v]) f->infinite_path[--n] = v;
}

// False where a path of infinite edges leads from source to sink.
static bool contract(asp_flow *f, uint32_t source, uint32_t sink)
{
    f->queue = ASP_NEW_ARRAY(f->arena, uint32_t, f->n);
    const uint32_t *of_source = find_tied(f, source, true);
    if (of_source[sink] != NONE) {
        keep_infinite_path(f, of_source, source, sink);
        return false;
    }
    const uint32_t *of_sink = find_tied(f, sink, false);
    f->number = ASP_NEW_ARRAY(f->arena, uint32_t, f->n);
    for (uint32_t v = 0; v < f->n; v++)
        f->number[v] = of_source[v] != NONE ? AT_SOURCE
                       : of_sink[v] != NONE ? AT_SINK
                                            : f->n_core++;
    return true;
}

static asp_status sum_finite(asp_ctx *cx, const asp_flow *f, int64_t *out_sum)
{
    int64_t sum = 0;
    for (uint32_t e = 0; e < f->edges.n; e++) {
        const int64_t c = f->edges.at[e].capacity;
        if (c != ASP_FLOW_INF && (asp_add_overflows(sum, c, &sum) || sum >= INT64_C(1) << 61))
            return asp_fail(cx, ASP_ERR_LIMIT, "the capacities of a cut sum to more than 2^61");
    }
    *out_sum = sum;
    return ASP_OK;
}

// ---- the core ----------------------------------------------------------------------------------

static bool in_core(const asp_flow *f, const edge *e)
{
    return f->number[e->from] < f->n_core && f->number[e->to] < f->n_core;
}

static void put_arcs(asp_flow *f, const edge *e, uint32_t *room, int64_t infinite)
{
    const uint32_t from = f->number[e->from], to = f->number[e->to];
    const uint32_t there = room[from]++, back = room[to]++;
    const int64_t capacity = e->capacity == ASP_FLOW_INF ? infinite : e->capacity;
    f->arcs[there] = (arc){.to = to, .back = back, .left = capacity};
    f->arcs[back] = (arc){.to = from, .back = there, .left = 0};
}

// What the edges between contracted nodes carry for certain is returned.
static int64_t lay_out(asp_flow *f, int64_t infinite)
{
    const uint32_t n = f->n_core;
    uint32_t n_arcs = 0;
    int64_t certain = 0;
    f->first = ASP_NEW_ARRAY(f->arena, uint32_t, n + 1);
    f->supply = ASP_NEW_ARRAY(f->arena, int64_t, n);
    f->demand = ASP_NEW_ARRAY(f->arena, int64_t, n);
    f->level = ASP_NEW_ARRAY(f->arena, uint32_t, n);
    f->current = ASP_NEW_ARRAY(f->arena, uint32_t, n + 1);
    f->path = ASP_NEW_ARRAY(f->arena, uint32_t, n);
    for (uint32_t e = 0; e < f->edges.n; e++) {
        const edge *x = &f->edges.at[e];
        const uint32_t from = f->number[x->from], to = f->number[x->to];
        if (in_core(f, x)) {
            f->first[from]++;
            f->first[to]++;
            n_arcs += 2;
        } else if (from == AT_SOURCE && to == AT_SINK)
            certain += x->capacity;
        else if (from == AT_SOURCE && to < n)
            f->supply[to] += x->capacity;
        else if (to == AT_SINK && from < n)
            f->demand[from] += x->capacity;
    }
    f->arcs = ASP_NEW_ARRAY(f->arena, arc, n_arcs);
    for (uint32_t v = 0, at = 0; v <= n; v++) {
        const uint32_t degree = v < n ? f->first[v] : 0;
        f->first[v] = f->current[v] = at;
        at += degree;
    }
    for (uint32_t e = 0; e < f->edges.n; e++)
        if (in_core(f, &f->edges.at[e])) put_arcs(f, &f->edges.at[e], f->current, infinite);
    for (uint32_t v = 0; v < n; v++) {
        const int64_t own = asp_min(f->supply[v], f->demand[v]);
        f->supply[v] -= own;
        f->demand[v] -= own;
        certain += own;
    }
    return certain;
}

// Distances to demand over residual arcs; true when some supply can reach it.
static bool find_levels(asp_flow *f)
{
    uint32_t head = 0, tail = 0;
    bool any = false;
    for (uint32_t v = 0; v < f->n_core; v++) {
        f->level[v] = f->demand[v] > 0 ? 0 : NONE;
        if (f->demand[v] > 0) f->queue[tail++] = v;
    }
    while (head < tail) {
        const uint32_t v = f->queue[head++], from_here = f->level[v] + 1;
        any |= f->supply[v] > 0;
        for (uint32_t e = f->first[v]; e < f->first[v + 1]; e++) {
            const uint32_t from = f->arcs[e].to;
            if (f->level[from] != NONE || f->arcs[f->arcs[e].back].left == 0) continue;
            f->level[from] = from_here;
            f->queue[tail++] = from;
        }
    }
    f->n_queued = tail;
    return any;
}

// Pushes what the path carries from a supply to the demand of `end`; returns the index of its first
// saturated arc, n when none is.
static uint32_t augment(asp_flow *f, uint32_t start, uint32_t n, uint32_t end)
{
    int64_t least = asp_min(f->supply[start], f->demand[end]);
    for (uint32_t i = 0; i < n; i++) least = asp_min(least, f->arcs[f->path[i]].left);
    uint32_t back = n;
    for (uint32_t i = n; i-- > 0;) {
        arc *a = &f->arcs[f->path[i]];
        a->left -= least;
        f->arcs[a->back].left += least;
        if (a->left == 0) back = i;
    }
    f->supply[start] -= least;
    f->demand[end] -= least;
    return back;
}

static uint32_t tail_of(const asp_flow *f, uint32_t e) { return f->arcs[f->arcs[e].back].to; }

// Depth-first from one supply along arcs that come one step nearer; a node without one is a dead
// end for the rest of the phase.
static void drain(asp_flow *f, uint32_t start)
{
    uint32_t n = 0, v = start;
    while (f->supply[start] > 0) {
        if (f->demand[v] > 0) {
            n = augment(f, start, n, v);
            v = n == 0 ? start : f->arcs[f->path[n - 1]].to;
            continue;
        }
        uint32_t e = f->current[v];
        const uint32_t end = f->first[v + 1], nearer = f->level[v] - 1;
        while (e < end && (f->level[f->arcs[e].to] != nearer || f->arcs[e].left == 0)) e++;
        f->current[v] = e;
        if (e < end && f->level[v] > 0) {
            f->path[n++] = e;
            v = f->arcs[e].to;
            continue;
        }
        f->level[v] = NONE;
        if (n == 0) return;
        v = tail_of(f, f->path[--n]);
        f->current[v]++;
    }
}

// One phase; returns what it brought to demand.
static int64_t block(asp_flow *f)
{
    int64_t flow = 0;
    for (uint32_t i = 0; i < f->n_queued; i++) f->current[f->queue[i]] = f->first[f->queue[i]];
    for (uint32_t i = 0; i < f->n_queued; i++) { // the nearest first
        const uint32_t v = f->queue[i];
        const int64_t had = f->supply[v];
        if (had > 0 && f->level[v] != NONE) drain(f, v);
        flow += had - f->supply[v];
    }
    return flow;
}

asp_status asp_flow_solve(asp_ctx *cx, asp_flow *f, uint32_t source, uint32_t sink,
                          int64_t *out_value)
{
    int64_t sum;
    ASP_CHECK(source < f->n && sink < f->n && source != sink && !f->solved);
    f->solved = true;
    if (!contract(f, source, sink))
        return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                        "every cut would cross an edge that may not be cut");
    ASP_TRY(sum_finite(cx, f, &sum));
    int64_t value = lay_out(f, sum + 1);
    while (find_levels(f)) value += block(f);
    *out_value = value;
    return ASP_OK;
}

// ---- the cuts ----------------------------------------------------------------------------------

// The last find_levels has left NONE exactly at the nodes that cannot reach the sink.
bool asp_flow_in_largest_source_side(const asp_flow *f, uint32_t v)
{
    const uint32_t i = f->number[v];
    return i == AT_SOURCE || (i != AT_SINK && f->level[i] == NONE);
}

static void find_reached(asp_flow *f)
{
    uint32_t head = 0, tail = 0;
    f->reached = ASP_NEW_ARRAY(f->arena, bool, f->n_core);
    for (uint32_t v = 0; v < f->n_core; v++) {
        f->reached[v] = f->supply[v] > 0;
        if (f->reached[v]) f->queue[tail++] = v;
    }
    while (head < tail) {
        const uint32_t v = f->queue[head++];
        for (uint32_t e = f->first[v]; e < f->first[v + 1]; e++) {
            const uint32_t to = f->arcs[e].to;
            if (f->arcs[e].left == 0 || f->reached[to]) continue;
            f->reached[to] = true;
            f->queue[tail++] = to;
        }
    }
}

bool asp_flow_in_smallest_source_side(asp_flow *f, uint32_t v)
{
    const uint32_t i = f->number[v];
    if (i >= f->n_core) return i == AT_SOURCE;
    if (!f->reached) find_reached(f);
    return f->reached[i];
}

uint32_t asp_flow_infinite_path(const asp_flow *f, uint32_t *out_nodes, uint32_t max)
{
    const uint32_t n = f->n_infinite_path < max ? f->n_infinite_path : max;
    if (n) memcpy(out_nodes, f->infinite_path, n * sizeof *out_nodes);
    return n;
}
