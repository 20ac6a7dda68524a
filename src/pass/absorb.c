// pass/absorb.c: row programs make operands themselves that they have everything for.
//
//   %n : f32[S, 8] = mul %x, %r group 1           %n (dropped when nobody else reads it)
//   ...                                     ->    ...
//   %a : f32[S, 8] = mul %g, %n group 2           %n.2 : f32[S, 8] = mul %x, %r group 2
//   %b : f32[S, 8] = mul %g, %x group 2           %a : f32[S, 8] = mul %g, %n.2 group 2
//                                                 %b : f32[S, 8] = mul %g, %x group 2
//
// A program that reads a value and all large operands of the pointwise op that makes it gains twice
// by repeating the op: it reads one array less, and the value need not be kept.  This is how the
// normalised x of an RMSNorm and the silu of a SwiGLU never outlive their forward, whatever the
// policy of recomputation, and without a bit's difference.  O(nodes).  Neighbours: fuse.c (makes
// the groups), dce.c (drops what is no longer read), run/rows.c (builds the programs).
// SPDX-License-Identifier: Apache-2.0
#include "pass/fuse.h"

#define MOST_MADE 3 // members for one operand: its op, and casts of two operands

typedef struct absorber {
    asp_graph *g;
    asp_arena *scratch;
    asp_map read;     // values that the group reads from outside
    asp_map own;      // ... that it makes itself instead
    asp_val *instead; // by index in own
    uint32_t group, n_members;
    asp_node first; // of the group
    asp_type domain;
} absorber;

// The group that begins at first; gives the node behind it.
static asp_node collect(absorber *x, asp_node first)
{
    asp_node n = first;
    x->first = first;
    x->group = asp_node_at(x->g, first)->group;
    x->n_members = 0;
    asp_map_init(&x->read, x->scratch);
    asp_map_init(&x->own, x->scratch);
    ASP_CHECK(asp_row_domain(x->g, first, &x->domain));
    for (; n.i && asp_node_at(x->g, n)->group == x->group; n = asp_node_at(x->g, n)->next) {
        const asp_node_info *info = asp_node_at(x->g, n);
        asp_type own;
        bool added;
        ASP_CHECK(asp_row_domain(x->g, n, &own) &&
                  asp_row_join(x->g, &x->domain, &own, &x->domain));
        x->n_members++;
        for (uint32_t i = 0; i < info->n_in; i++)
            if (asp_val_node(x->g, info->in[i])->group != x->group)
                asp_map_add(&x->read, &info->in[i].i, sizeof info->in[i].i, &added);
    }
    x->instead = ASP_NEW_ARRAY(x->scratch, asp_val, ASP_MAX_GROUP);
    return n;
}

static bool has(const asp_map *m, asp_val v)
{
    return asp_map_find(m, &v.i, sizeof v.i) != UINT32_MAX;
}

// v is bf16 that the group reads, widened by a cast of another reader (cast.c).
static bool is_widened(const absorber *x, asp_val v)
{
    const asp_node_info *info = asp_val_node(x->g, v);
    return info->op == ASP_OP_cast && asp_val_type(x->g, v)->dtype == ASP_F32 &&
           asp_val_type(x->g, info->in[0])->dtype == ASP_BF16 && has(&x->read, info->in[0]);
}

// Is v made by a pointwise op over the domain whose large operands the group has anyway?
static bool can_make(const absorber *x, asp_val v)
{
    asp_node n = asp_val_at(x->g, v)->node;
    const asp_node_info *info = asp_node_at(x->g, n);
    asp_type own;
    if (info->group == x->group || x->n_members + MOST_MADE > ASP_MAX_GROUP) return false;
    if (asp_row_member_of(x->g, n) != ASP_MEMBER_POINTWISE || info->op == ASP_OP_expand)
        return false;
    if (!asp_row_domain(x->g, n, &own) || !asp_type_equal(&own, &x->domain)) return false;
    bool large = false;
    for (uint32_t i = 0; i < info->n_in; i++) {
        asp_rowkind kind;
        ASP_CHECK(asp_row_kind(x->g, &x->domain, asp_val_type(x->g, info->in[i]), &kind));
        if (kind != ASP_ROW_FULL) continue;
        large = true;
        if (!has(&x->read, info->in[i]) && !is_widened(x, info->in[i])) return false;
    }
    return large;
}

static asp_val make(absorber *x, asp_val v)
{
    const asp_node_info info = *asp_val_node(x->g, v);
    asp_val in[ASP_MAX_OPERANDS];
    bool added;
    for (uint32_t i = 0; i < info.n_in; i++) {
        uint32_t made = asp_map_find(&x->own, &info.in[i].i, sizeof info.in[i].i);
        in[i] = made != UINT32_MAX                                        ? x->instead[made]
                : !has(&x->read, info.in[i]) && is_widened(x, info.in[i]) ? make(x, info.in[i])
                                                                          : info.in[i];
    }
    asp_type type = *asp_val_type(x->g, v);
    const char *loc = asp_printf(x->scratch, "%s%s", info.loc, *info.loc ? ASP_AGAIN_SUFFIX : "");
    asp_node n = asp_graph_insert(x->g, x->first, info.op, info.attr, info.n_in, in, 1, &type, loc);
    asp_node_at(x->g, n)->group = x->group;
    asp_node_at(x->g, n)->tile = asp_node_at(x->g, x->first)->tile;
    asp_val result = asp_node_result(x->g, n, 0);
    const char *name = asp_val_at(x->g, v)->name;
    if (name) asp_graph_name(x->g, result, name);
    x->instead[asp_map_add(&x->own, &v.i, sizeof v.i, &added)] = result;
    x->n_members++;
    return result;
}

// New members stand before the others, each behind those it reads.
static uint32_t absorb(absorber *x, asp_node end)
{
    uint32_t changes = 0;
    for (asp_node n = x->first; n.i != end.i; n = asp_node_at(x->g, n)->next) {
        for (uint32_t i = 0; i < asp_node_at(x->g, n)->n_in; i++) {
            asp_val v = asp_node_at(x->g, n)->in[i];
            uint32_t made = asp_map_find(&x->own, &v.i, sizeof v.i);
            if (made == UINT32_MAX && !can_make(x, v)) continue;
            asp_graph_set_input(x->g, n, i, made == UINT32_MAX ? make(x, v) : x->instead[made]);
            changes++;
        }
    }
    return changes;
}

asp_status asp_pass_absorb(asp_pass *px, asp_graph *g)
{
    absorber x = {.g = g, .scratch = px->scratch};
    for (asp_node n = g->head; n.i;) {
        if (!asp_node_at(g, n)->group) {
            n = asp_node_at(g, n)->next;
            continue;
        }
        asp_node end = collect(&x, n);
        px->changes += absorb(&x, end);
        n = end;
    }
    return ASP_OK;
}
