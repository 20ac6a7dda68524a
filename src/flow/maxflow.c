// Dinic's algorithm, iterative: breadth-first levels from the sink, then augmenting paths along
// current arcs until a level graph is blocked.  Infinite edges are stored as 1 + the sum of the
// finite ones, which no minimum cut can pay; a path of them is looked for first.  A few phases on
// the layered networks built here; 80,000 nodes take some 15 ms.  Neighbours: maxflow.h (contract).
// SPDX-License-Identifier: Apache-2.0
#include "flow/maxflow.h"

#define NONE UINT32_MAX

typedef struct arc {
    uint32_t to;
    uint32_t next; // in the list of the tail
    int64_t left;  // residual capacity; arc e and its reverse are e and e ^ 1
} arc;

struct asp_flow {
    asp_arena *arena;
    ASP_VEC(arc) arcs;
    ASP_VEC(uint32_t) first; // by node, newest arc first until ordered
    uint32_t source, sink;
    uint32_t *level;   // distance to the sink; NONE: cannot reach it
    uint32_t *current; // arc to try next
    uint32_t *path;    // arcs from the source
    uint32_t *queue;
    bool *reached; // from the source, filled on first question
    uint32_t n_infinite_path;
};

asp_flow *asp_flow_create(asp_arena *a)
{
    asp_flow *f = ASP_NEW(a, asp_flow);
    f->arena = a;
    return f;
}

uint32_t asp_flow_add_node(asp_flow *f)
{
    ASP_PUSH(f->arena, &f->first, NONE);
    return f->first.n - 1;
}

uint32_t asp_flow_count_nodes(const asp_flow *f) { return f->first.n; }

static void add_arc(asp_flow *f, uint32_t from, uint32_t to, int64_t capacity)
{
    ASP_PUSH(f->arena, &f->arcs, (arc){.to = to, .next = f->first.at[from], .left = capacity});
    f->first.at[from] = f->arcs.n - 1;
}

void asp_flow_add_edge(asp_flow *f, uint32_t from, uint32_t to, int64_t capacity)
{
    ASP_ASSERT(from < f->first.n && to < f->first.n && capacity >= 0);
    add_arc(f, from, to, capacity);
    add_arc(f, to, from, 0);
}

// Lists were built newest first; walking the arcs backwards turns them into the order of addition.
static void order_arcs(asp_flow *f)
{
    for (uint32_t v = 0; v < f->first.n; v++) f->first.at[v] = NONE;
    for (uint32_t e = f->arcs.n; e-- > 0;) {
        uint32_t tail = f->arcs.at[e ^ 1].to;
        f->arcs.at[e].next = f->first.at[tail];
        f->first.at[tail] = e;
    }
}

static void allocate(asp_flow *f)
{
    uint32_t n = f->first.n;
    f->level = ASP_NEW_ARRAY(f->arena, uint32_t, n);
    f->current = ASP_NEW_ARRAY(f->arena, uint32_t, n);
    f->path = ASP_NEW_ARRAY(f->arena, uint32_t, n);
    f->queue = ASP_NEW_ARRAY(f->arena, uint32_t, n);
}

// Looks for a path of infinite edges; leaves its arcs in path.
static bool find_infinite_path(asp_flow *f)
{
    uint32_t *came = f->current, head = 0, tail = 0;
    for (uint32_t v = 0; v < f->first.n; v++) came[v] = NONE;
    f->queue[tail++] = f->source;
    while (head < tail && came[f->sink] == NONE) {
        uint32_t v = f->queue[head++];
        for (uint32_t e = f->first.at[v]; e != NONE; e = f->arcs.at[e].next) {
            uint32_t to = f->arcs.at[e].to;
            if (f->arcs.at[e].left != ASP_FLOW_INF || came[to] != NONE || to == f->source) continue;
            came[to] = e;
            f->queue[tail++] = to;
        }
    }
    if (came[f->sink] == NONE) return false;
    for (uint32_t v = f->sink; v != f->source; v = f->arcs.at[came[v] ^ 1].to)
        f->path[f->n_infinite_path++] = came[v];
    return true;
}

static asp_status make_finite(asp_ctx *cx, asp_flow *f)
{
    int64_t sum = 0;
    for (uint32_t e = 0; e < f->arcs.n; e++) {
        int64_t c = f->arcs.at[e].left;
        if (c != ASP_FLOW_INF && (asp_add_overflows(sum, c, &sum) || sum >= INT64_C(1) << 61))
            return asp_fail(cx, ASP_ERR_LIMIT, "the capacities of a cut sum to more than 2^61");
    }
    for (uint32_t e = 0; e < f->arcs.n; e++)
        if (f->arcs.at[e].left == ASP_FLOW_INF) f->arcs.at[e].left = sum + 1;
    return ASP_OK;
}

// Distances to the sink over residual arcs; true when the source can reach it.  Then nodes as far
// as the source may be left out: no shortest path leads through them.  When it cannot, all are
// found.
static bool find_levels(asp_flow *f)
{
    uint32_t head = 0, tail = 0;
    for (uint32_t v = 0; v < f->first.n; v++) f->level[v] = NONE;
    f->level[f->sink] = 0;
    f->queue[tail++] = f->sink;
    while (head < tail) {
        uint32_t v = f->queue[head++];
        for (uint32_t e = f->first.at[v]; e != NONE; e = f->arcs.at[e].next) {
            uint32_t from = f->arcs.at[e].to;
            if (f->arcs.at[e ^ 1].left == 0 || f->level[from] != NONE) continue;
            f->level[from] = f->level[v] + 1;
            if (from == f->source) return true;
            f->queue[tail++] = from;
        }
    }
    return false;
}

// Pushes what the path in f->path carries; returns the index of its first saturated arc.
static uint32_t augment(asp_flow *f, uint32_t n, int64_t *flow)
{
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < n; i++) least = asp_min(least, f->arcs.at[f->path[i]].left);
    uint32_t back = n;
    for (uint32_t i = n; i-- > 0;) {
        f->arcs.at[f->path[i]].left -= least;
        f->arcs.at[f->path[i] ^ 1].left += least;
        if (f->arcs.at[f->path[i]].left == 0) back = i;
    }
    *flow += least;
    return back;
}

// Depth-first along arcs that come one level nearer; a node without one is left for good (level
// NONE would break the next look, so its current arc runs out).
static int64_t block(asp_flow *f)
{
    int64_t flow = 0;
    uint32_t n = 0, v = f->source;
    memcpy(f->current, f->first.at, f->first.n * sizeof *f->current);
    for (;;) {
        if (v == f->sink) {
            n = augment(f, n, &flow);
            v = f->arcs.at[f->path[n] ^ 1].to;
            continue;
        }
        uint32_t e = f->current[v];
        while (e != NONE && (f->arcs.at[e].left == 0 || f->level[f->arcs.at[e].to] == NONE ||
                             f->level[f->arcs.at[e].to] + 1 != f->level[v]))
            e = f->arcs.at[e].next;
        f->current[v] = e;
        if (e != NONE) {
            f->path[n++] = e;
            v = f->arcs.at[e].to;
            continue;
        }
        if (n == 0) return flow;
        v = f->arcs.at[f->path[--n] ^ 1].to;
        f->current[v] = f->arcs.at[f->current[v]].next;
    }
}

asp_status asp_flow_solve(asp_ctx *cx, asp_flow *f, uint32_t source, uint32_t sink,
                          int64_t *out_value)
{
    ASP_CHECK(source < f->first.n && sink < f->first.n && source != sink);
    f->source = source;
    f->sink = sink;
    order_arcs(f);
    allocate(f);
    if (find_infinite_path(f))
        return asp_fail(cx, ASP_ERR_UNSUPPORTED,
                        "every cut would cross an edge that may not be cut");
    ASP_TRY(make_finite(cx, f));
    int64_t value = 0;
    while (find_levels(f)) value += block(f);
    *out_value = value;
    return ASP_OK;
}

// The last find_levels has left NONE exactly at the nodes that cannot reach the sink.
bool asp_flow_in_largest_source_side(const asp_flow *f, uint32_t v) { return f->level[v] == NONE; }

static void find_reached(asp_flow *f)
{
    uint32_t head = 0, tail = 0;
    f->reached = ASP_NEW_ARRAY(f->arena, bool, f->first.n);
    f->reached[f->source] = true;
    f->queue[tail++] = f->source;
    while (head < tail) {
        uint32_t v = f->queue[head++];
        for (uint32_t e = f->first.at[v]; e != NONE; e = f->arcs.at[e].next) {
            uint32_t to = f->arcs.at[e].to;
            if (f->arcs.at[e].left == 0 || f->reached[to]) continue;
            f->reached[to] = true;
            f->queue[tail++] = to;
        }
    }
}

bool asp_flow_in_smallest_source_side(asp_flow *f, uint32_t v)
{
    if (!f->reached) find_reached(f);
    return f->reached[v];
}

uint32_t asp_flow_infinite_path(const asp_flow *f, uint32_t *out_nodes, uint32_t max)
{
    uint32_t n = 0;
    if (f->n_infinite_path == 0) return 0;
    if (n < max) out_nodes[n++] = f->source;
    for (uint32_t i = f->n_infinite_path; i-- > 0 && n < max;)
        out_nodes[n++] = f->arcs.at[f->path[i]].to;
    return n;
}
