// Structural verifier: what every graph must satisfy after every pass.  Reports all violations, not
// the first. Neighbours: graph.c (the edits), op/typecheck.c (types by inference).
// SPDX-License-Identifier: Apache-2.0
#include "ir/ir_int.h"

typedef struct checker {
    asp_graph *g;
    asp_arena scratch;
    asp_text report;
    bool *defined; // by value
    asp_map tiles; // seen so far
    int n_wrong;
} checker;

static void wrong(checker *c, asp_node n, const char *what, const char *detail)
{
    if (c->n_wrong++ < 20)
        asp_put(&c->report, "\n  node %u %s: %s%s", n.i, asp_node_str(c->g, n), what, detail);
}

static void check_operands(checker *c, asp_node n)
{
    const asp_node_info *info = asp_node_at(c->g, n);
    const asp_op_info *op = &asp_ops[info->op];
    if (info->n_in < op->min_in || info->n_in > op->max_in)
        wrong(c, n, "wrong number of operands", "");
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_val v = info->in[i];
        if (v.i == 0 || v.i >= c->g->vals.n)
            wrong(c, n, "an operand is no value", "");
        else if (!c->defined[v.i])
            wrong(c, n, "read before it is defined: ", asp_val_str(c->g, v));
    }
}

static void check_results(checker *c, asp_node n)
{
    const asp_node_info *info = asp_node_at(c->g, n);
    if (info->n_out == 0) wrong(c, n, "no result", "");
    for (uint32_t i = 0; i < info->n_out; i++) {
        asp_val v = asp_node_result(c->g, n, i);
        const asp_val_info *val = asp_val_at(c->g, v);
        if (val->node.i != n.i || val->result != i)
            wrong(c, n, "a result points elsewhere: ", asp_val_str(c->g, v));
        if (val->type.rank > ASP_MAX_RANK || (int)val->type.dtype >= ASP_DTYPE_COUNT)
            wrong(c, n, "a result has no valid type: ", asp_val_str(c->g, v));
        c->defined[v.i] = true;
    }
}

// The nodes of a tile stand side by side, with nothing between them.
static void check_tile(checker *c, asp_node before, asp_node n)
{
    const uint32_t tile = asp_node_at(c->g, n)->tile;
    bool added;
    if (!tile || (before.i && asp_node_at(c->g, before)->tile == tile)) return;
    asp_map_add(&c->tiles, &tile, sizeof tile, &added);
    if (!added) wrong(c, n, "apart from the rest of its tile", "");
    if (c->g->tile_rows < 1) wrong(c, n, "tiled, but the graph says no rows of a chunk", "");
}

asp_status asp_graph_verify(asp_graph *g)
{
    checker c = {.g = g};
    asp_arena_init(&c.scratch, g->cx);
    asp_text_init(&c.report, &c.scratch);
    asp_map_init(&c.tiles, &c.scratch);
    c.defined = ASP_NEW_ARRAY(&c.scratch, bool, g->vals.n);
    uint32_t seen = 0;
    asp_node before = {0};
    ASP_FOR_NODES (g, n) {
        if (asp_node_at(g, n)->prev.i != before.i)
            wrong(&c, n, "the list's back link is wrong", "");
        check_operands(&c, n);
        check_results(&c, n);
        check_tile(&c, before, n);
        before = n;
        if (++seen > g->nodes.n) break;
    }
    if (seen != g->n_nodes || before.i != g->tail.i)
        asp_put(&c.report, "\n  the node list and its count disagree");
    for (uint32_t i = 0; i < g->outputs.n; i++)
        if (!c.defined[g->outputs.at[i].val.i])
            asp_put(&c.report, "\n  output %u is not defined", i);
    asp_status s = ASP_OK;
    if (c.report.n)
        s = asp_fail(g->cx, ASP_ERR_INPUT, "graph %s is malformed:%s", g->name, c.report.at);
    asp_arena_fini(&c.scratch);
    return s;
}
