// The graph and the handful of functions through which all edits go.  Neighbours: ir.h (contract),
// verify.c (what must hold). SPDX-License-Identifier: Apache-2.0
#include "ir/ir_int.h"

#include <ctype.h>
#include <stdlib.h>

asp_graph *asp_graph_create(asp_ctx *cx, const char *name)
{
    asp_arena a;
    asp_arena_init(&a, cx);
    asp_graph *g = ASP_NEW(&a, asp_graph); // lies on its own arena
    g->cx = cx;
    g->arena = a;
    g->name = asp_copy_str(&g->arena, name);
    g->ranks = 1;
    g->sizes = asp_size_table_create(&g->arena);
    asp_map_init(&g->names, &g->arena);
    ASP_PUSH(&g->arena, &g->nodes, (asp_node_info){0});
    ASP_PUSH(&g->arena, &g->vals, (asp_val_info){0});
    return g;
}

void asp_graph_destroy(asp_graph *g)
{
    if (!g) return;
    asp_arena a = g->arena;
    asp_arena_fini(&a);
}

static void link_before(asp_graph *g, asp_node n, asp_node before)
{
    asp_node_info *info = asp_node_at(g, n);
    info->next = before;
    info->prev = before.i ? asp_node_at(g, before)->prev : g->tail;
    if (info->prev.i)
        asp_node_at(g, info->prev)->next = n;
    else
        g->head = n;
    if (before.i)
        asp_node_at(g, before)->prev = n;
    else
        g->tail = n;
    g->n_nodes++;
}

static void unlink_node(asp_graph *g, asp_node n)
{
    asp_node_info *info = asp_node_at(g, n);
    if (info->prev.i)
        asp_node_at(g, info->prev)->next = info->next;
    else
        g->head = info->next;
    if (info->next.i)
        asp_node_at(g, info->next)->prev = info->prev;
    else
        g->tail = info->prev;
    info->prev = info->next = (asp_node){0};
    g->n_nodes--;
}

asp_node asp_graph_insert(asp_graph *g, asp_node before, asp_op op, const void *attr, uint32_t n_in,
                          const asp_val *in, uint32_t n_out, const asp_type *types, const char *loc)
{
    ASP_ASSERT(n_in <= ASP_MAX_OPERANDS && n_out <= ASP_MAX_OPERANDS);
    asp_node n = {g->nodes.n};
    asp_val first = {g->vals.n};
    for (uint32_t i = 0; i < n_out; i++)
        ASP_PUSH(&g->arena, &g->vals, (asp_val_info){.node = n, .result = i, .type = types[i]});
    asp_node_info info = {.op = op,
                          .n_in = n_in,
                          .n_out = n_out,
                          .in = asp_copy_bytes(&g->arena, in, n_in * sizeof *in),
                          .first = first,
                          .attr = asp_attr_copy(g, op, attr),
                          .loc = loc && *loc ? asp_copy_str(&g->arena, loc) : ""};
    ASP_PUSH(&g->arena, &g->nodes, info);
    link_before(g, n, before);
    return n;
}

void asp_graph_remove(asp_graph *g, asp_node n)
{
    unlink_node(g, n);
    asp_node_info *info = asp_node_at(g, n);
    for (uint32_t i = 0; i < info->n_out; i++)
        asp_val_at(g, asp_node_result(g, n, i))->node = (asp_node){0};
    *info = (asp_node_info){.in = info->in, .first = info->first, .attr = info->attr, .loc = ""};
}

void asp_graph_set_input(asp_graph *g, asp_node n, uint32_t i, asp_val v)
{
    ASP_ASSERT(i < asp_node_at(g, n)->n_in && v.i);
    asp_node_at(g, n)->in[i] = v;
}

void asp_graph_set_attr(asp_graph *g, asp_node n, const void *attr)
{
    asp_node_info *info = asp_node_at(g, n);
    info->attr = asp_attr_copy(g, info->op, attr);
}

void asp_graph_set_op(asp_graph *g, asp_node n, asp_op op)
{
    asp_node_info *info = asp_node_at(g, n);
    ASP_CHECK(asp_ops[op].fields == asp_ops[info->op].fields);
    info->op = op;
}

void asp_graph_set_type(asp_graph *g, asp_val v, const asp_type *type)
{
    asp_val_at(g, v)->type = *type;
}

void asp_graph_replace_uses(asp_graph *g, asp_val old, asp_val by)
{
    ASP_FOR_NODES (g, n) {
        asp_node_info *info = asp_node_at(g, n);
        for (uint32_t i = 0; i < info->n_in; i++)
            if (info->in[i].i == old.i) info->in[i] = by;
    }
    for (uint32_t i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].val.i == old.i) g->outputs.at[i].val = by;
}

void asp_graph_move_before(asp_graph *g, asp_node n, asp_node before)
{
    if (n.i == before.i) return;
    unlink_node(g, n);
    link_before(g, n, before);
}

void asp_graph_add_output(asp_graph *g, asp_val v, const char *name)
{
    ASP_PUSH(&g->arena, &g->outputs, (asp_output){.val = v, .name = asp_copy_str(&g->arena, name)});
}

void asp_graph_name(asp_graph *g, asp_val v, const char *name)
{
    const char *tried = name;
    bool added;
    uint32_t entry = asp_map_add(&g->names, tried, strlen(tried), &added);
    for (int i = 2; !added; i++) {
        tried = asp_printf(&g->arena, "%s.%d", name, i);
        entry = asp_map_add(&g->names, tried, strlen(tried), &added);
    }
    asp_val_at(g, v)->name = asp_map_key(&g->names, entry, NULL);
}

void asp_graph_move_name(asp_graph *g, asp_val from, asp_val to)
{
    asp_val_at(g, to)->name = asp_val_at(g, from)->name;
    asp_val_at(g, from)->name = NULL;
}

asp_val asp_graph_find(const asp_graph *g, const char *name)
{
    for (uint32_t i = 1; i < g->vals.n; i++)
        if (g->vals.at[i].node.i && g->vals.at[i].name && strcmp(g->vals.at[i].name, name) == 0)
            return (asp_val){i};
    return (asp_val){0};
}

const char *asp_val_str(asp_graph *g, asp_val v)
{
    const asp_val_info *info = asp_val_at(g, v);
    return info->name ? asp_printf(&g->arena, "%%%s", info->name)
                      : asp_printf(&g->arena, "%%%u", v.i);
}

const char *asp_node_str(asp_graph *g, asp_node n)
{
    const asp_node_info *info = asp_node_at(g, n);
    const char *name = asp_ops[info->op].name;
    return *info->loc ? asp_printf(&g->arena, "%s (%s)", name, info->loc) : name;
}

uint32_t *asp_graph_count_uses(const asp_graph *g, asp_arena *a)
{
    uint32_t *uses = ASP_NEW_ARRAY(a, uint32_t, g->vals.n);
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        for (uint32_t i = 0; i < info->n_in; i++) uses[info->in[i].i]++;
    }
    for (uint32_t i = 0; i < g->outputs.n; i++) uses[g->outputs.at[i].val.i]++;
    return uses;
}

// Copies the nodes of the list in order; their handles are renumbered densely, those of sizes stay.
asp_graph *asp_graph_clone(const asp_graph *g)
{
    asp_graph *c = asp_graph_create(g->cx, g->name);
    c->sizes = asp_size_table_copy(&c->arena, g->sizes);
    c->ranks = g->ranks;
    c->tile_rows = g->tile_rows;
    c->examples = g->examples;
    for (int i = 0; i < c->examples.n; i++)
        c->examples.at[i].symbol = asp_copy_str(&c->arena, g->examples.at[i].symbol);
    asp_val *to = ASP_NEW_ARRAY(&c->arena, asp_val, g->vals.n);
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        asp_val in[ASP_MAX_OPERANDS];
        asp_type types[ASP_MAX_OPERANDS];
        for (uint32_t i = 0; i < info->n_in; i++) in[i] = to[info->in[i].i];
        for (uint32_t i = 0; i < info->n_out; i++)
            types[i] = *asp_val_type(g, asp_node_result(g, n, i));
        asp_node m = asp_graph_insert(c, (asp_node){0}, info->op, info->attr, info->n_in, in,
                                      info->n_out, types, info->loc);
        asp_node_at(c, m)->group = info->group;
        asp_node_at(c, m)->tile = info->tile;
        for (uint32_t i = 0; i < info->n_out; i++) {
            asp_val old = asp_node_result(g, n, i);
            to[old.i] = asp_node_result(c, m, i);
            if (asp_val_at(g, old)->name) asp_graph_name(c, to[old.i], asp_val_at(g, old)->name);
        }
    }
    for (uint32_t i = 0; i < g->outputs.n; i++)
        asp_graph_add_output(c, to[g->outputs.at[i].val.i], g->outputs.at[i].name);
    return c;
}

uint64_t asp_graph_hash(const asp_graph *g)
{
    asp_arena a;
    asp_arena_init(&a, g->cx);
    asp_text t;
    asp_text_init(&t, &a);
    asp_graph_print(g, &t);
    uint64_t hash = asp_hash(t.at, t.n, 0);
    asp_arena_fini(&a);
    return hash;
}

int64_t asp_loc_block(const char *loc)
{
    const char *path_end = loc + strcspn(loc, " "); // "layers.3.mlp at model.py:12"
    for (const char *s = loc; s && s < path_end; s = strchr(s, '.')) {
        s += *s == '.';
        char *end;
        if (!isdigit((unsigned char)*s) || s >= path_end) continue;
        long long n = strtoll(s, &end, 10);
        if (*end == '.' || end == path_end) return n;
    }
    return -1;
}

bool asp_type_equal(const asp_type *a, const asp_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

asp_size asp_type_count(asp_graph *g, const asp_type *t)
{
    asp_size n = asp_size_num(g, 1);
    for (uint32_t d = 0; d < t->rank; d++) n = asp_size_mul(g, n, t->dim[d]);
    return n;
}

const char *asp_type_str(asp_graph *g, const asp_type *t)
{
    asp_text text;
    asp_text_init(&text, &g->arena);
    asp_put(&text, "%s[", asp_dtypes[t->dtype].name);
    for (uint32_t d = 0; d < t->rank; d++) {
        if (d) asp_put(&text, ", ");
        asp_size_put(&text, g, t->dim[d]);
    }
    asp_put(&text, "]");
    return text.at;
}
