// The network whose minimum cut is the placement.  Source side = "sequence", sink side = "other".
//
//   op -> sink       price at "sequence"             infinite where illegal
//   source -> op     infinite where "other" is illegal
//   p -> c, c -> p   price of exchanging p's result  paid once for all consumers of one kind, by a
//                    node of its own
//
// What the graph returns is read at "sequence".  Two chains meet through "sequence".  The objective
// and why the cut is exact: reference on placement, section 3.  O(nodes) nodes and edges.
// Neighbours: place.h (contract), placement.c (prices), flow/maxflow.c (the solver).
// SPDX-License-Identifier: Apache-2.0
#include "pass/place.h"

// Of a value, each node once; the node none: the graph's outputs.
typedef struct readers {
    const asp_node *at;
    uint32_t n;
} readers;

typedef struct network {
    asp_placement *p;
    asp_flow *f;
    uint32_t source, sink;
    uint32_t *of_node;      // by node: its node in the network
    uint32_t *first_reader; // by value, one more than those: where its readers begin in
    asp_node *readers;
} network;

static readers readers_of(const network *w, asp_val v)
{
    const uint32_t first = w->first_reader[v.i];
    return (readers){w->readers + first, w->first_reader[v.i + 1] - first};
}

typedef struct use {
    asp_val value;
    asp_node reader;
} use;

typedef ASP_VEC(use) uses;

// Every value and node that reads it; a node comes once for a value.
static void list_uses(network *w, uses *out)
{
    const asp_placement *p = w->p;
    ASP_FOR_NODES (p->g, n) {
        const asp_node_info *info = asp_node_at(p->g, n);
        if (!p->axes.node[n.i]) continue;
        for (uint32_t i = 0; i < info->n_in; i++) {
            bool again = p->axes.replicable[info->in[i].i];
            for (uint32_t j = 0; j < i && !again; j++) again = info->in[j].i == info->in[i].i;
            if (!again) ASP_PUSH(p->arena, out, (use){info->in[i], n});
        }
    }
    bool *returned = ASP_NEW_ARRAY(p->arena, bool, p->g->vals.n);
    for (uint32_t i = 0; i < p->g->outputs.n; i++) {
        asp_val v = p->g->outputs.at[i].val;
        if (!p->axes.replicable[v.i] && !returned[v.i]) ASP_PUSH(p->arena, out, (use){.value = v});
        returned[v.i] = true;
    }
}

// Nodes lie apart in memory, so they are visited once: the uses are listed, then sorted by value.
static void collect_readers(network *w)
{
    const uint32_t n = w->p->g->vals.n;
    uses all = {0};
    ASP_RESERVE(w->p->arena, &all, 2 * w->p->g->n_nodes); // some: it grows where this is too little
    list_uses(w, &all);
    w->first_reader = ASP_NEW_ARRAY(w->p->arena, uint32_t, n + 2);
    w->readers = ASP_NEW_ARRAY(w->p->arena, asp_node, all.n);
    for (uint32_t i = 0; i < all.n; i++) w->first_reader[all.at[i].value.i + 2]++;
    for (uint32_t v = 0; v < n; v++) w->first_reader[v + 2] += w->first_reader[v + 1];
    for (uint32_t i = 0; i < all.n; i++)
        w->readers[w->first_reader[all.at[i].value.i + 1]++] = all.at[i].reader;
}

static uint32_t chain_of(const network *w, asp_node r)
{
    return r.i ? w->p->op[r.i].chain : ASP_NO_CHAIN;
}

static uint32_t flow_node(const network *w, asp_node r)
{
    return r.i ? w->of_node[r.i] : w->source;
}

// From "sequence" to one chain: all readers of that chain share one exchange.
static void add_forward(network *w, asp_val v, const readers *r, uint32_t producer,
                        uint32_t producer_chain, uint32_t first)
{
    uint32_t chain = chain_of(w, r->at[first]), same = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        bool belongs = chain_of(w, r->at[i]) == chain;
        if (belongs && i < first) return; // done with its first reader
        same += belongs;
    }
    int64_t price = asp_exchange_price(w->p, v, chain);
    bool other_chain = producer_chain != ASP_NO_CHAIN && producer_chain != chain;
    uint32_t from = other_chain ? w->source : producer;
    if (same == 1) {
        asp_flow_add_edge(w->f, from, flow_node(w, r->at[first]), price);
        return;
    }
    uint32_t shared = asp_flow_add_node(w->f);
    asp_flow_add_edge(w->f, from, shared, price);
    for (uint32_t i = first; i < r->n; i++)
        if (chain_of(w, r->at[i]) == chain)
            asp_flow_add_edge(w->f, shared, flow_node(w, r->at[i]), ASP_FLOW_INF);
}

// From the producer's chain back to "sequence": all readers there, and all of other chains, share
// one exchange.
static void add_backward(network *w, asp_val v, const readers *r, uint32_t producer, uint32_t chain)
{
    int64_t price = asp_exchange_price(w->p, v, chain);
    uint32_t shared = asp_flow_add_node(w->f);
    asp_flow_add_edge(w->f, shared, producer, price);
    for (uint32_t i = 0; i < r->n; i++) {
        uint32_t reads_in = chain_of(w, r->at[i]);
        bool always = reads_in != ASP_NO_CHAIN && reads_in != chain;
        asp_flow_add_edge(w->f, always ? w->source : flow_node(w, r->at[i]), shared, ASP_FLOW_INF);
    }
}

static void add_value(network *w, asp_val v, asp_node n, const readers *r)
{
    uint32_t producer = w->of_node[n.i], chain = w->p->op[n.i].chain;
    for (uint32_t i = 0; i < r->n; i++)
        if (chain_of(w, r->at[i]) != ASP_NO_CHAIN) add_forward(w, v, r, producer, chain, i);
    if (r->n && chain != ASP_NO_CHAIN) add_backward(w, v, r, producer, chain);
}

static void build(network *w)
{
    const asp_placement *p = w->p;
    asp_flow_reserve(w->f, 2 * p->g->n_nodes); // some: it grows where this is too little
    w->source = asp_flow_add_node(w->f);
    w->sink = asp_flow_add_node(w->f);
    ASP_FOR_NODES (p->g, n) {
        if (!p->axes.node[n.i]) continue;
        w->of_node[n.i] = asp_flow_add_node(w->f);
        if (p->op[n.i].sequence_price)
            asp_flow_add_edge(w->f, w->of_node[n.i], w->sink, p->op[n.i].sequence_price);
        if (p->op[n.i].chain == ASP_NO_CHAIN)
            asp_flow_add_edge(w->f, w->source, w->of_node[n.i], ASP_FLOW_INF);
        else if (p->op[n.i].other_price)
            asp_flow_add_edge(w->f, w->source, w->of_node[n.i], p->op[n.i].other_price);
    }
    for (uint32_t v = 0; v < p->g->vals.n; v++) {
        const readers r = readers_of(w, (asp_val){v});
        if (!r.n) continue;
        const asp_node n = asp_val_at(p->g, (asp_val){v})->node;
        if (p->axes.node[n.i]) add_value(w, (asp_val){v}, n, &r);
    }
}

// An infinite path runs from an op that cannot leave "sequence" to one that cannot be there: names
// the latter, and the former when it is another.
static asp_status refuse(network *w)
{
    asp_placement *p = w->p;
    uint32_t n_flow = 0, path[16];
    uint32_t n = asp_flow_infinite_path(w->f, path, ASP_COUNT_OF(path));
    asp_node first = {0}, last = {0};
    for (uint32_t i = 0; i < n; i++)
        ASP_FOR_NODES (p->g, node)
            if (p->axes.node[node.i] && w->of_node[node.i] == path[i]) {
                if (!n_flow++) first = node;
                last = node;
            }
    if (!last.i) return ASP_ERR_UNSUPPORTED; // a path longer than ours: the solver's message stands
    asp_status s = asp_placement_refuse(p, last);
    if (first.i == last.i || p->op[last.i].chain == ASP_NO_CHAIN) return s;
    return asp_fail(p->cx, ASP_ERR_UNSUPPORTED,
                    "%s cannot be split over %lld ranks: it needs all tokens of %s at once, and "
                    "what stands between it and %s has no one token dimension to be exchanged "
                    "along; use 1 rank",
                    asp_node_str(p->g, last), (long long)p->ranks, asp_placement_tokens(p, last),
                    asp_node_str(p->g, first));
}

asp_status asp_placement_cut(asp_placement *p)
{
    network w = {.p = p, .f = asp_flow_create(p->arena)};
    w.of_node = ASP_NEW_ARRAY(p->arena, uint32_t, p->g->nodes.n);
    collect_readers(&w);
    build(&w);
    p->vertices = asp_flow_count_nodes(w.f);
    asp_status s = asp_flow_solve(p->cx, w.f, w.source, w.sink, &p->cost);
    if (s == ASP_ERR_UNSUPPORTED) return refuse(&w);
    ASP_TRY(s);
    ASP_FOR_NODES (p->g, n)
        if (p->axes.node[n.i])
            p->op[n.i].other = !asp_flow_in_largest_source_side(w.f, w.of_node[n.i]);
    return ASP_OK;
}
