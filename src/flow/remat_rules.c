// PyTorch's rules for the default minimum cut: which forward values may not be computed again, and
// what a saved byte weighs.  Written from their description; the order of the program is part of
// them (the two chain rules count positions).
//
// - op: not in the list of cheap ops (sac: products are, whatever they cost);
// - written: the backward would have to write it to memory to use it (sac: sequence-long values
//   may be);
// - reduces: its operands are more than four times its size;
// - far: a later reader, when an earlier one already breaks the chain of fusible ops (sac: not of
//   values that no trained one goes into: the table of angles, which all layers read, is there all
//   the while, and would have each of them keep what it rotates);
// - long: a chain of fusible ops that narrows to one value more than 100 ops away.
//
// Neighbours: remat_int.h (contract), remat_network.c (which takes bans as infinite prices).
// SPDX-License-Identifier: Apache-2.0
#include "flow/remat_int.h"

#include <math.h>

#define LONG_CHAIN 100
#define MAX_POWER 100
#define REDUCES_BY 4

bool remat_fuses(const remat_node *producer, const remat_node *consumer)
{
    return consumer->kind == ASP_REMAT_CONCAT || (producer->fusible && consumer->fusible);
}

// ---- weights -------------------------------------------------------------------------------

static bool is_output(const remat_node *n)
{
    return n->flags & (ASP_REMAT_FORWARD_OUTPUT | ASP_REMAT_BACKWARD_OUTPUT);
}

// Is the forward going to write it anyway?
static bool is_written(const remat_graph *g, const remat_node *n)
{
    if (n->is_input || is_output(n)) return true;
    for (uint32_t u = 0; u < n->n_users; u++)
        if (!remat_fuses(n, &g->nodes[g->users[n->first_user + u]])) return true;
    return false;
}

int64_t remat_weight(const remat_graph *g, uint32_t node)
{
    const remat_node *n = &g->nodes[node];
    if (n->flags & ASP_REMAT_STATIC) return 0;
    if (n->flags & ASP_REMAT_SIZE) return 1;
    if (n->tuple) return INT64_MAX;
    double power = n->distance < 1 ? 1 : n->distance > MAX_POWER ? MAX_POWER : n->distance;
    int64_t weight = (int64_t)((double)n->bytes * pow(1.1, power));
    return is_written(g, n) ? weight : 2 * weight; // else a write in the forward comes on top
}

// ---- bans by what the op is ----------------------------------------------------------------

static bool is_cheap(const remat_node *n, const remat_bans_of *rules)
{
    if (rules->any_op) return n->kind != ASP_REMAT_RANDOM && !n->intensive;
    switch (n->kind) {
    case ASP_REMAT_GEMM: return rules->sac || n->fusible;
    case ASP_REMAT_ATTENTION:
    case ASP_REMAT_COLLECTIVE:
    case ASP_REMAT_RANDOM: return false;
    case ASP_REMAT_POINTWISE:
    case ASP_REMAT_VIEW:
    case ASP_REMAT_REDUCTION:
    case ASP_REMAT_CONCAT:
    case ASP_REMAT_PICK:
    case ASP_REMAT_OTHER: return n->fusible;
    }
    return false;
}

typedef struct walk {
    const remat_graph *g;
    uint32_t *seen; // by node: the walk that met it last
    uint32_t mark;
    uint32_t *stack;
} walk;

// Does a reader outside the forward, of the value or of a view of it, fail to fuse with it?
static bool written_by_backward(walk *w, uint32_t node)
{
    const remat_graph *g = w->g;
    uint32_t n = 0;
    w->seen[node] = ++w->mark;
    w->stack[n++] = node;
    while (n > 0) {
        const remat_node *x = &g->nodes[w->stack[--n]];
        if (is_output(x)) return true; // what returns values reads them, and fuses with nothing
        for (uint32_t u = 0; u < x->n_users; u++) {
            uint32_t user = g->users[x->first_user + u];
            const remat_node *y = &g->nodes[user];
            if (!y->forward && !remat_fuses(x, y)) return true;
            if (y->kind != ASP_REMAT_VIEW || w->seen[user] == w->mark) continue;
            w->seen[user] = w->mark;
            w->stack[n++] = user;
        }
    }
    return false;
}

static bool reduces(const remat_graph *g, const remat_node *n)
{
    int64_t sum = 0;
    for (uint32_t r = 0; r < n->n_reads; r++) sum += g->nodes[g->reads[n->first_read + r]].bytes;
    return n->bytes * REDUCES_BY < sum - n->named_bytes;
}

static bool is_banned(walk *w, uint32_t node, const remat_bans_of *rules)
{
    const remat_node *n = &w->g->nodes[node];
    if (n->is_input) return !n->backward;
    if (n->backward) return false;
    if (n->flags & ASP_REMAT_MUST_SAVE) return true;
    if (n->flags & ASP_REMAT_MUST_RECOMPUTE) return n->kind == ASP_REMAT_RANDOM;
    if (!n->forward || n->kind == ASP_REMAT_PICK || n->kind == ASP_REMAT_VIEW) return false;
    if (rules->spared && rules->spared[node]) return false;
    if (!is_cheap(n, rules)) return true;
    bool may_write = rules->no_shape || (rules->sac && n->flags & ASP_REMAT_SEQUENCE);
    return (!may_write && written_by_backward(w, node)) || reduces(w->g, n);
}

// ---- a heap of positions -------------------------------------------------------------------

typedef struct heap {
    uint64_t *at;
    uint32_t n, cap;
    asp_arena *arena;
} heap;

static void heap_push(heap *h, uint64_t key)
{
    if (h->n == h->cap)
        h->at = asp_vec_grow(h->arena, h->at, h->n, &h->cap, h->n + 1, sizeof *h->at);
    uint32_t i = h->n++;
    for (; i > 0 && h->at[(i - 1) / 2] > key; i = (i - 1) / 2) h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = key;
}

static uint64_t heap_pop(heap *h)
{
    uint64_t least = h->at[0], key = h->at[--h->n];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= h->n) break;
        if (child + 1 < h->n && h->at[child + 1] < h->at[child]) child++;
        if (h->at[child] >= key) break;
        h->at[i] = h->at[child];
        i = child;
    }
    h->at[i] = key;
    return least;
}

// ---- bans by where the readers stand -------------------------------------------------------

typedef struct chains {
    const remat_graph *g;
    bool *banned;
    heap heap;
    uint32_t *seen; // two a forward node: reached by a fusible step, by another
    uint32_t mark;
} chains;

static void ban_if_allowed(const chains *c, uint32_t node)
{
    const remat_node *n = &c->g->nodes[node];
    if (n->kind != ASP_REMAT_VIEW && !(n->flags & ASP_REMAT_MUST_RECOMPUTE)) c->banned[node] = true;
}

static void push_readers(chains *c, uint32_t node, uint32_t last)
{
    const remat_node *n = &c->g->nodes[node];
    for (uint32_t u = 0; u < n->n_users; u++) {
        const remat_node *y = &c->g->nodes[c->g->users[n->first_user + u]];
        if (!y->forward || y->order > last) continue;
        uint32_t key = 2 * y->order + remat_fuses(n, y);
        if (c->seen[key] == c->mark) continue;
        c->seen[key] = c->mark;
        heap_push(&c->heap, key);
    }
}

// Walks from x along its readers and theirs, in order, to the first step that does not fuse; direct
// readers beyond that step would keep x (or redo it) for long.
static void ban_far_readers(chains *c, uint32_t x)
{
    const remat_node *n = &c->g->nodes[x];
    uint32_t last = 0;
    for (uint32_t u = 0; u < n->n_users; u++) {
        const remat_node *y = &c->g->nodes[c->g->users[n->first_user + u]];
        if (y->forward && y->order > last) last = y->order;
    }
    uint32_t breaks = last;
    c->heap.n = 0;
    c->mark++;
    for (uint32_t u = 0; u < n->n_users; u++) {
        const remat_node *y = &c->g->nodes[c->g->users[n->first_user + u]];
        if (!y->forward) continue;
        c->seen[2 * y->order + 1] = c->mark;
        heap_push(&c->heap, 2 * (uint64_t)y->order + 1); // the first step counts as fusible
    }
    while (c->heap.n > 0) {
        uint64_t key = heap_pop(&c->heap);
        if (!(key & 1)) {
            breaks = (uint32_t)(key / 2);
            break;
        }
        push_readers(c, c->g->by_order[key / 2], last);
    }
    for (uint32_t u = 0; u < n->n_users; u++) {
        uint32_t user = c->g->users[n->first_user + u];
        const remat_node *y = &c->g->nodes[user];
        if (y->forward && y->order > breaks && remat_fuses(n, y)) ban_if_allowed(c, user);
    }
}

// visited is shared by all starts; a value pushed twice is in the heap twice, which counts as
// width.
static void ban_long_chains(chains *c, bool *visited)
{
    for (uint32_t start = 0; start < c->g->n_forward; start++) {
        c->heap.n = 0;
        heap_push(&c->heap, start);
        while (c->heap.n > 0) {
            uint32_t order = (uint32_t)heap_pop(&c->heap), node = c->g->by_order[order];
            if (visited[order]) continue;
            visited[order] = true;
            if (order > start + LONG_CHAIN && c->heap.n == 0) {
                ban_if_allowed(c, node);
                break;
            }
            const remat_node *n = &c->g->nodes[node];
            for (uint32_t u = 0; u < n->n_users; u++) {
                uint32_t user = c->g->users[n->first_user + u];
                const remat_node *y = &c->g->nodes[user];
                if (y->forward && remat_fuses(n, y) && !c->banned[user])
                    heap_push(&c->heap, y->order);
            }
        }
    }
}

bool *remat_bans(asp_arena *a, const remat_graph *g, const remat_bans_of *rules)
{
    walk w = {.g = g};
    w.seen = ASP_NEW_ARRAY(a, uint32_t, g->n);
    w.stack = ASP_NEW_ARRAY(a, uint32_t, g->n);
    chains c = {.g = g, .heap.arena = a};
    c.banned = ASP_NEW_ARRAY(a, bool, g->n);
    c.seen = ASP_NEW_ARRAY(a, uint32_t, 2 * (size_t)g->n_forward);
    for (uint32_t i = 0; i < g->n; i++) c.banned[i] = is_banned(&w, i, rules);
    if (rules->no_shape) return c.banned;
    const bool *counts = rules->tables ? remat_find_activations(a, g) : NULL;
    for (uint32_t i = 0; i < g->n_forward; i++)
        if (!counts || counts[g->by_order[i]]) ban_far_readers(&c, g->by_order[i]);
    ban_long_chains(&c, ASP_NEW_ARRAY(a, bool, g->n_forward));
    return c.banned;
}
