// The node graph of a joint program: checks the description, lists readers, tells forward from
// backward, and measures how far each forward value is from its first backward reader.
//
// Distance, as the weights use it: 0 outside the forward, else 1 + the least distance of a reader,
// and REMAT_FAR where nothing outside the forward reads on.  O(values + reads).
// Neighbours: remat_int.h (contract), remat_rules.c and remat_network.c (who read it).
// SPDX-License-Identifier: Apache-2.0
#include "flow/remat_int.h"

#include <stdlib.h>

#define NONE ASP_REMAT_NONE

// ---- the description keeps its rules -------------------------------------------------------

static const char *value_name(asp_arena *a, const asp_remat_program *p, uint32_t v)
{
    return p->names && p->names[v] ? p->names[v] : asp_printf(a, "value %u", v);
}

static asp_status check_op(asp_ctx *cx, const asp_remat_program *p, uint32_t op, uint32_t made)
{
    const asp_remat_op *o = &p->ops[op];
    if (o->first_result != made || o->n_results > p->n_values - made)
        return asp_fail(cx, ASP_ERR_INPUT, "recompute: results of op %u do not follow op %u's", op,
                        op - 1);
    if (o->first_read > p->n_reads || o->n_reads > p->n_reads - o->first_read ||
        o->n_named > o->n_reads)
        return asp_fail(cx, ASP_ERR_INPUT, "recompute: operands of op %u lie outside the list", op);
    for (uint32_t i = 0; i < o->n_reads; i++)
        if (p->reads[o->first_read + i] >= made)
            return asp_fail(cx, ASP_ERR_INPUT, "recompute: op %u reads value %u before it is made",
                            op, p->reads[o->first_read + i]);
    return ASP_OK;
}

// Whatever reads a value of the backward is backward itself, and is no forward output.
static asp_status check_direction(asp_ctx *cx, asp_arena *a, const asp_remat_program *p)
{
    bool *late = ASP_NEW_ARRAY(a, bool, p->n_values);
    for (uint32_t v = 0; v < p->n_inputs; v++) late[v] = p->values[v].flags & ASP_REMAT_TANGENT;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const asp_remat_op *o = &p->ops[i];
        for (uint32_t r = 0; r < o->n_reads; r++)
            if (!o->backward && late[p->reads[o->first_read + r]])
                return asp_fail(cx, ASP_ERR_INPUT,
                                "recompute: op %u is called forward but reads %s of the backward",
                                i, value_name(a, p, p->reads[o->first_read + r]));
        for (uint32_t r = 0; r < o->n_results; r++) late[o->first_result + r] = o->backward;
    }
    for (uint32_t v = 0; v < p->n_values; v++)
        if (late[v] && p->values[v].flags & ASP_REMAT_FORWARD_OUTPUT)
            return asp_fail(cx, ASP_ERR_INPUT, "recompute: forward output %s depends on a tangent",
                            value_name(a, p, v));
    return ASP_OK;
}

#define MOST_IN_ALL (INT64_C(1) << 60) // bytes, or ps: sums of a few such stay 64-bit numbers

static asp_status check_sums(asp_ctx *cx, const asp_remat_program *p)
{
    int64_t bytes = 0, time = 0;
    for (uint32_t v = 0; v < p->n_values; v++)
        if (asp_add_overflows(bytes, p->values[v].bytes, &bytes) || bytes > MOST_IN_ALL)
            return asp_fail(cx, ASP_ERR_LIMIT, "recompute: all values take more than 2^60 bytes");
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].time_ps < 0 || asp_add_overflows(time, p->ops[i].time_ps, &time) ||
            time > MOST_IN_ALL)
            return asp_fail(cx, ASP_ERR_LIMIT,
                            "recompute: all ops take less than 0 or more than 2^60 ps");
    return ASP_OK;
}

static asp_status check(asp_ctx *cx, asp_arena *a, const asp_remat_program *p)
{
    uint32_t made = p->n_inputs;
    if (p->n_inputs > p->n_values)
        return asp_fail(cx, ASP_ERR_INPUT, "recompute: more inputs than values");
    for (uint32_t i = 0; i < p->n_ops; i++) {
        ASP_TRY(check_op(cx, p, i, made));
        made += p->ops[i].n_results;
    }
    if (made != p->n_values)
        return asp_fail(cx, ASP_ERR_INPUT, "recompute: value %u belongs to no op", made);
    for (uint32_t v = 0; v < p->n_values; v++) {
        const asp_remat_value *x = &p->values[v];
        if (x->bytes < 0 || x->bytes > INT64_C(1) << 48)
            return asp_fail(cx, ASP_ERR_INPUT, "recompute: %s has %lld bytes", value_name(a, p, v),
                            (long long)x->bytes);
        if (x->root > v || p->values[x->root].root != x->root)
            return asp_fail(cx, ASP_ERR_INPUT, "recompute: %s shares storage with no owner",
                            value_name(a, p, v));
    }
    ASP_TRY(check_sums(cx, p));
    return check_direction(cx, a, p);
}

// ---- nodes ---------------------------------------------------------------------------------

static remat_node input_node(const asp_remat_program *p, uint32_t v)
{
    const asp_remat_value *x = &p->values[v];
    bool tangent = x->flags & ASP_REMAT_TANGENT;
    return (remat_node){.value = v,
                        .op = NONE,
                        .kind = ASP_REMAT_OTHER,
                        .flags = x->flags,
                        .bytes = x->bytes,
                        .is_input = true,
                        .tuple = x->flags & ASP_REMAT_TUPLE,
                        .forward = !tangent,
                        .backward = tangent};
}

static remat_node op_node(const asp_remat_program *p, uint32_t op)
{
    const asp_remat_op *o = &p->ops[op];
    remat_node n = {.value = NONE,
                    .op = op,
                    .kind = o->kind,
                    .fusible = o->fusible,
                    .intensive = o->intensive,
                    .tuple = o->n_results != 1,
                    .backward = o->backward};
    for (uint32_t i = o->n_reads - o->n_named; i < o->n_reads; i++)
        n.named_bytes += p->values[p->reads[o->first_read + i]].bytes;
    for (uint32_t i = 0; i < o->n_results; i++) {
        const asp_remat_value *x = &p->values[o->first_result + i];
        n.bytes += x->bytes;
        n.flags |= x->flags;
    }
    if (o->n_results == 1) {
        n.value = o->first_result;
        n.tuple = n.flags & ASP_REMAT_TUPLE;
    } else {
        n.flags &= ASP_REMAT_SEQUENCE; // the rest is said of the picks
    }
    return n;
}

static remat_node pick_node(const asp_remat_program *p, uint32_t op, uint32_t v)
{
    return (remat_node){.value = v,
                        .op = op,
                        .kind = ASP_REMAT_PICK,
                        .flags = p->values[v].flags,
                        .bytes = p->values[v].bytes,
                        .fusible = true,
                        .tuple = p->values[v].flags & ASP_REMAT_TUPLE,
                        .backward = p->ops[op].backward};
}

static uint32_t add_node(remat_graph *g, remat_node n)
{
    if (n.value != NONE) g->node_of_value[n.value] = g->n;
    g->nodes[g->n] = n;
    return g->n++;
}

static int ascending(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

// Copies the op's operands as nodes, ascending, each once; returns the end of the list.
static uint32_t add_reads(remat_graph *g, remat_node *n, uint32_t end)
{
    const asp_remat_op *o = &g->program->ops[n->op];
    uint32_t *list = g->reads + end, unique = 0;
    for (uint32_t i = 0; i < o->n_reads; i++)
        list[i] = g->node_of_value[g->program->reads[o->first_read + i]];
    qsort(list, o->n_reads, sizeof *list, ascending);
    for (uint32_t i = 0; i < o->n_reads; i++)
        if (i == 0 || list[i] != list[i - 1]) list[unique++] = list[i];
    n->first_read = end;
    n->n_reads = unique;
    return end + unique;
}

static void add_nodes(remat_graph *g)
{
    const asp_remat_program *p = g->program;
    uint32_t end = 0;
    for (uint32_t v = 0; v < p->n_values; v++) g->producer[v] = NONE;
    for (uint32_t v = 0; v < p->n_inputs; v++) add_node(g, input_node(p, v));
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const asp_remat_op *o = &p->ops[i];
        uint32_t node = add_node(g, op_node(p, i));
        end = add_reads(g, &g->nodes[node], end);
        for (uint32_t r = 0; r < o->n_results; r++) {
            g->producer[o->first_result + r] = i;
            if (o->n_results == 1) continue;
            uint32_t pick = add_node(g, pick_node(p, i, o->first_result + r));
            g->nodes[pick].first_read = end;
            g->nodes[pick].n_reads = 1;
            g->reads[end++] = node;
        }
    }
}

static void add_users(asp_arena *a, remat_graph *g)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < g->n; i++)
        for (uint32_t r = 0; r < g->nodes[i].n_reads; r++)
            g->nodes[g->reads[g->nodes[i].first_read + r]].n_users++;
    for (uint32_t i = 0; i < g->n; i++) {
        g->nodes[i].first_user = total;
        total += g->nodes[i].n_users;
        g->nodes[i].n_users = 0;
    }
    g->users = ASP_NEW_ARRAY(a, uint32_t, total);
    for (uint32_t i = 0; i < g->n; i++)
        for (uint32_t r = 0; r < g->nodes[i].n_reads; r++) {
            remat_node *from = &g->nodes[g->reads[g->nodes[i].first_read + r]];
            g->users[from->first_user + from->n_users++] = i;
        }
}

// ---- forward, distances --------------------------------------------------------------------

static void find_forward(asp_arena *a, remat_graph *g)
{
    for (uint32_t i = g->n; i-- > 0;) {
        remat_node *n = &g->nodes[i];
        if (n->flags & ASP_REMAT_FORWARD_OUTPUT) n->forward = true;
        if (!n->forward || n->is_input) continue;
        for (uint32_t r = 0; r < n->n_reads; r++)
            g->nodes[g->reads[n->first_read + r]].forward = true;
    }
    g->by_order = ASP_NEW_ARRAY(a, uint32_t, g->n);
    for (uint32_t i = 0; i < g->n; i++) {
        g->nodes[i].order = g->nodes[i].forward ? g->n_forward : NONE;
        if (g->nodes[i].forward) g->by_order[g->n_forward++] = i;
    }
}

static void find_distances(remat_graph *g)
{
    for (uint32_t i = g->n; i-- > 0;) {
        remat_node *n = &g->nodes[i];
        if (!n->forward) continue;
        n->distance = REMAT_FAR;
        for (uint32_t u = 0; u < n->n_users; u++) {
            uint32_t through = g->nodes[g->users[n->first_user + u]].distance + 1;
            if (through < n->distance) n->distance = through;
        }
    }
}

asp_status remat_graph_build(asp_ctx *cx, asp_arena *a, const asp_remat_program *p,
                             remat_graph *out_graph)
{
    ASP_TRY(check(cx, a, p));
    remat_graph g = {.program = p};
    g.nodes = ASP_NEW_ARRAY(a, remat_node, p->n_values + p->n_ops);
    g.reads = ASP_NEW_ARRAY(a, uint32_t, p->n_reads + p->n_values);
    g.node_of_value = ASP_NEW_ARRAY(a, uint32_t, p->n_values);
    g.producer = ASP_NEW_ARRAY(a, uint32_t, p->n_values);
    add_nodes(&g);
    add_users(a, &g);
    find_forward(a, &g);
    find_distances(&g);
    *out_graph = g;
    return ASP_OK;
}

const char *remat_name(asp_arena *a, const remat_graph *g, uint32_t node)
{
    const remat_node *n = &g->nodes[node];
    if (n->value != NONE) return value_name(a, g->program, n->value);
    const asp_remat_op *o = &g->program->ops[n->op];
    if (o->n_results == 0) return asp_printf(a, "op %u", n->op);
    return asp_printf(a, "the op of %s", value_name(a, g->program, o->first_result));
}
