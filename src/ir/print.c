// The text form, writing: one node a line, complete, stable.  Neighbours: parse.c (reads it back),
// docs/ir.md (the grammar).
//
//   graph llama {
//     %ids : i64[B, S] = input {name = "input_ids", role = "tokens"}
//     %0 : f32[B, S, 512] = embedding %ids, %w @ "embed_tokens"
//     return "loss" = %loss
//   }
//
// SPDX-License-Identifier: Apache-2.0
#include "ir/ir_int.h"

static void put_field(asp_text *t, const asp_graph *g, const asp_field *f, const void *attr)
{
    const void *x = (const char *)attr + f->offset;
    switch (f->kind) {
    case ASP_KIND_i64: asp_put(t, "%lld", (long long)*(const int64_t *)x); return;
    case ASP_KIND_f64: asp_put_f64(t, 15, *(const double *)x); return;
    case ASP_KIND_bool: asp_put(t, "%s", *(const bool *)x ? "true" : "false"); return;
    case ASP_KIND_str: asp_put_quoted(t, *(const char *const *)x); return;
    case ASP_KIND_dtype: asp_put(t, "%s", asp_dtypes[*(const asp_dtype *)x].name); return;
    case ASP_KIND_size: asp_size_put(t, g, *(const asp_size *)x); return;
    case ASP_KIND_sizes: {
        const asp_sizes *s = x;
        asp_put(t, "[");
        for (uint32_t i = 0; i < s->n; i++) {
            asp_put(t, "%s", i ? ", " : "");
            asp_size_put(t, g, s->at[i]);
        }
        asp_put(t, "]");
        return;
    }
    case ASP_KIND_ints: {
        const asp_ints *s = x;
        asp_put(t, "[");
        for (uint32_t i = 0; i < s->n; i++)
            asp_put(t, "%s%lld", i ? ", " : "", (long long)s->at[i]);
        asp_put(t, "]");
        return;
    }
    }
}

static void put_attr(asp_text *t, const asp_graph *g, asp_op op, const void *attr)
{
    const asp_op_info *info = &asp_ops[op];
    int n = 0;
    for (const asp_field *f = info->fields(); f->name; f++) {
        if (asp_field_equal(f, attr, info->attr_default)) continue;
        asp_put(t, "%s%s = ", n++ ? ", " : " {", f->name);
        put_field(t, g, f, attr);
    }
    if (n) asp_put(t, "}");
}

static void put_type(asp_text *t, const asp_graph *g, const asp_type *type)
{
    asp_put(t, "%s[", asp_dtypes[type->dtype].name);
    for (uint32_t d = 0; d < type->rank; d++) {
        asp_put(t, "%s", d ? ", " : "");
        asp_size_put(t, g, type->dim[d]);
    }
    asp_put(t, "]");
}

// Unnamed values are numbered in the order in which they are defined.
static uint32_t *number_values(const asp_graph *g, asp_arena *a)
{
    uint32_t *number = ASP_NEW_ARRAY(a, uint32_t, g->vals.n), next = 0;
    ASP_FOR_NODES (g, n) {
        for (uint32_t i = 0; i < asp_node_at(g, n)->n_out; i++) {
            asp_val v = asp_node_result(g, n, i);
            if (!asp_val_at(g, v)->name) number[v.i] = next++;
        }
    }
    return number;
}

static void put_val(asp_text *t, const asp_graph *g, const uint32_t *number, asp_val v)
{
    const char *name = asp_val_at(g, v)->name;
    if (name)
        asp_put(t, "%%%s", name);
    else
        asp_put(t, "%%%u", number[v.i]);
}

static void put_node(asp_text *t, const asp_graph *g, const uint32_t *number, asp_node n)
{
    const asp_node_info *info = asp_node_at(g, n);
    for (uint32_t i = 0; i < info->n_out; i++) {
        asp_put(t, "%s", i ? ", " : "  ");
        put_val(t, g, number, asp_node_result(g, n, i));
    }
    for (uint32_t i = 0; i < info->n_out; i++) {
        asp_put(t, "%s", i ? ", " : " : ");
        put_type(t, g, asp_val_type(g, asp_node_result(g, n, i)));
    }
    asp_put(t, " = %s", asp_ops[info->op].name);
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_put(t, "%s", i ? ", " : " ");
        put_val(t, g, number, info->in[i]);
    }
    put_attr(t, g, info->op, info->attr);
    if (info->group) asp_put(t, " group %u", info->group);
    if (info->tile) asp_put(t, " tile %u", info->tile);
    if (*info->loc) {
        asp_put(t, " @ ");
        asp_put_quoted(t, info->loc);
    }
    asp_put(t, "\n");
}

void asp_graph_print(const asp_graph *g, asp_text *t)
{
    asp_arena scratch;
    asp_arena_init(&scratch, t->arena->cx); // the caller's: ranks print in their own threads
    uint32_t *number = number_values(g, &scratch);
    asp_put(t, "graph %s", g->name);
    if (g->ranks != 1) asp_put(t, " ranks %lld", (long long)g->ranks);
    if (g->tile_rows) asp_put(t, " tile %lld", (long long)g->tile_rows);
    asp_put(t, " {\n");
    ASP_FOR_NODES (g, n) put_node(t, g, number, n);
    for (uint32_t i = 0; i < g->outputs.n; i++) {
        asp_put(t, "%s", i ? ", " : "  return ");
        if (*g->outputs.at[i].name) {
            asp_put_quoted(t, g->outputs.at[i].name);
            asp_put(t, " = ");
        }
        put_val(t, g, number, g->outputs.at[i].val);
    }
    asp_put(t, "%s}\n", g->outputs.n ? "\n" : "");
    asp_arena_fini(&scratch);
}

// Graphviz: one box a node, edges labelled with types.
void asp_graph_print_dot(const asp_graph *g, asp_text *t)
{
    asp_put(t, "digraph ");
    asp_put_quoted(t, g->name);
    asp_put(t, " {\n  node [shape=box, fontname=\"monospace\"];\n");
    ASP_FOR_NODES (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        asp_put(t, "  n%u [label=\"%s", n.i, asp_ops[info->op].name);
        if (*info->loc) asp_put(t, "\\n%s", info->loc);
        asp_put(t, "\"];\n");
        for (uint32_t i = 0; i < info->n_in; i++) {
            asp_put(t, "  n%u -> n%u [label=\"", asp_val_at(g, info->in[i])->node.i, n.i);
            put_type(t, g, asp_val_type(g, info->in[i]));
            asp_put(t, "\"];\n");
        }
    }
    asp_put(t, "}\n");
}
