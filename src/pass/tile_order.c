// The order of a graph with tiles: each tile is one unit, behind all it reads from outside.
// Neighbours: tile.h (contract).  A walk in depth along the operands that starts from the nodes in
// their order, on a stack of its own.  SPDX-License-Identifier: Apache-2.0
#include "pass/tile.h"

typedef enum state { NEW, OPEN, DONE } state;

// A unit being emitted: a node, or a tile; then the nodes of the tile one by one.
typedef struct frame {
    uint32_t unit;
    uint32_t member, operand; // looked at next
} frame;

typedef struct orderer {
    asp_graph *g;
    asp_arena *a;
    uint32_t *unit_of; // by node
    uint32_t *first,
        n_units;       // by unit: its first member; members of unit u: first[u] .. first[u + 1]
    asp_node *members; // in list order
    state *state;      // by unit
    ASP_VEC(frame) stack;
    ASP_VEC(uint32_t) order; // units
    uint32_t broken;         // a tile on a cycle; 0 = none
} orderer;

static void find_units(orderer *o)
{
    asp_map tiles;
    ASP_VEC(uint32_t) unit_of_tile = {0};
    asp_map_init(&tiles, o->a);
    o->unit_of = ASP_NEW_ARRAY(o->a, uint32_t, o->g->nodes.n);
    ASP_FOR_NODES (o->g, n) {
        const uint32_t tile = asp_node_at(o->g, n)->tile;
        bool added = true;
        uint32_t i = tile ? asp_map_add(&tiles, &tile, sizeof tile, &added) : 0;
        if (!tile)
            o->unit_of[n.i] = o->n_units++;
        else if (added)
            ASP_PUSH(o->a, &unit_of_tile, o->n_units++);
        if (tile) o->unit_of[n.i] = unit_of_tile.at[i];
    }
    o->first = ASP_NEW_ARRAY(o->a, uint32_t, o->n_units + 2);
    o->members = ASP_NEW_ARRAY(o->a, asp_node, o->g->n_nodes);
    o->state = ASP_NEW_ARRAY(o->a, state, o->n_units);
    ASP_FOR_NODES (o->g, n) o->first[o->unit_of[n.i] + 2]++;
    for (uint32_t u = 0; u < o->n_units; u++) o->first[u + 2] += o->first[u + 1];
    ASP_FOR_NODES (o->g, n) o->members[o->first[o->unit_of[n.i] + 1]++] = n;
}

static void open(orderer *o, uint32_t unit)
{
    o->state[unit] = OPEN;
    ASP_PUSH(o->a, &o->stack, (frame){.unit = unit, .member = o->first[unit]});
}

// One step of the walk: down to a unit that is read, or the unit on top is done.
static void step(orderer *o)
{
    frame *f = &o->stack.at[o->stack.n - 1];
    while (f->member < o->first[f->unit + 1]) {
        const asp_node_info *info = asp_node_at(o->g, o->members[f->member]);
        while (f->operand < info->n_in) {
            asp_val v = info->in[f->operand++];
            uint32_t read = o->unit_of[asp_val_at(o->g, v)->node.i];
            if (read == f->unit || o->state[read] == DONE) continue;
            if (o->state[read] == NEW) {
                open(o, read);
                return;
            }
            uint32_t tile = asp_node_at(o->g, o->members[o->first[read]])->tile;
            o->broken = tile ? tile : info->tile;
            return;
        }
        f->member++;
        f->operand = 0;
    }
    o->state[f->unit] = DONE;
    ASP_PUSH(o->a, &o->order, f->unit);
    o->stack.n--;
}

// Within a tile every node behind those it reads; its list order else.
static void emit_tile(orderer *o, uint32_t unit, bool *placed)
{
    uint32_t left = o->first[unit + 1] - o->first[unit];
    while (left) {
        for (uint32_t m = o->first[unit]; m < o->first[unit + 1]; m++) {
            const asp_node n = o->members[m];
            const asp_node_info *info = asp_node_at(o->g, n);
            bool ready = !placed[n.i];
            for (uint32_t i = 0; ready && i < info->n_in; i++) {
                uint32_t made = asp_val_at(o->g, info->in[i])->node.i;
                ready = o->unit_of[made] != unit || placed[made];
            }
            if (!ready) continue;
            placed[n.i] = true;
            left--;
            asp_graph_move_before(o->g, n, (asp_node){0});
        }
    }
}

static uint32_t try_order(asp_graph *g, asp_arena *a)
{
    orderer o = {.g = g, .a = a};
    find_units(&o);
    ASP_FOR_NODES (g, n) {
        if (o.state[o.unit_of[n.i]] == NEW) open(&o, o.unit_of[n.i]);
        while (o.stack.n && !o.broken) step(&o);
        if (o.broken) return o.broken;
    }
    bool *placed = ASP_NEW_ARRAY(a, bool, g->nodes.n);
    for (uint32_t i = 0; i < o.order.n; i++) emit_tile(&o, o.order.at[i], placed);
    return 0;
}

void asp_tile_order(asp_graph *g, asp_arena *a)
{
    for (uint32_t broken; (broken = try_order(g, a));)
        ASP_FOR_NODES (g, n)
            if (asp_node_at(g, n)->tile == broken) asp_node_at(g, n)->tile = 0;
}
