// pass/tile_wide.c: what the pass `tile` knows of the graph, its wide values, and the parts they
// join.  Neighbours: tile.c (rules 1 and 2 of its list), tile_member.c (rows).
// SPDX-License-Identifier: Apache-2.0
#include "pass/tile_int.h"

// ---- what is known of the graph ----------------------------------------------------------------

asp_node asp_tile_maker(const asp_tiler *t, asp_val v) { return asp_val_at(t->g, v)->node; }

static void index_readers(asp_tiler *t)
{
    asp_arena *a = t->px->scratch;
    uint32_t *count = ASP_NEW_ARRAY(a, uint32_t, t->n_vals);
    t->readers = ASP_NEW_ARRAY(a, asp_node *, t->n_vals);
    t->is_output = ASP_NEW_ARRAY(a, bool, t->n_vals);
    ASP_FOR_NODES (t->g, n)
        for (uint32_t i = 0; i < asp_node_at(t->g, n)->n_in; i++)
            count[asp_node_at(t->g, n)->in[i].i]++;
    for (uint32_t v = 0; v < t->n_vals; v++) {
        t->readers[v] = ASP_NEW_ARRAY(a, asp_node, count[v] + 1);
        count[v] = 0;
    }
    ASP_FOR_NODES (t->g, n)
        for (uint32_t i = 0; i < asp_node_at(t->g, n)->n_in; i++) {
            uint32_t v = asp_node_at(t->g, n)->in[i].i;
            t->readers[v][count[v]++] = n;
        }
    for (uint32_t i = 0; i < t->g->outputs.n; i++) t->is_output[t->g->outputs.at[i].val.i] = true;
}

static void index_nodes(asp_tiler *t, asp_val seed)
{
    uint32_t place = 0;
    ASP_FOR_NODES (t->g, n) {
        const asp_node_info *info = asp_node_at(t->g, n);
        bool backward = info->first.i == seed.i;
        t->order[n.i] = ++place;
        t->parent[n.i] = n.i;
        for (uint32_t i = 0; i < info->n_in; i++) backward |= t->backward[info->in[i].i];
        for (uint32_t i = 0; i < info->n_out; i++) t->backward[info->first.i + i] = backward;
    }
}

int64_t asp_tile_width(const asp_tiler *t, asp_val v)
{
    asp_tile_shape s;
    int64_t width = 1, size;
    const asp_type *type = asp_val_type(t->g, v);
    if (!asp_tile_shape_of(t->g, type, &s)) return 0;
    for (uint32_t d = s.lead; d < type->rank; d++) {
        if (!asp_size_is_num(t->g, type->dim[d], &size)) return 0;
        if (asp_mul_overflows(width, size, &width)) return 0;
    }
    return width;
}

// ---- wide values -------------------------------------------------------------------------------

// The width of the stream that layers add to: that of embeddings, else what the first product
// reads.
static int64_t stream_width(const asp_tiler *t)
{
    int64_t width = 0;
    ASP_FOR_NODES (t->g, n) {
        const asp_node_info *info = asp_node_at(t->g, n);
        if (info->op == ASP_OP_embedding) return asp_tile_width(t, info->first);
        if (!width && info->op == ASP_OP_gemm_nt) width = asp_tile_width(t, info->in[0]);
    }
    return width;
}

static void find_wide(asp_tiler *t)
{
    const int64_t stream = stream_width(t);
    ASP_FOR_NODES (t->g, n) {
        const asp_node_info *info = asp_node_at(t->g, n);
        asp_size rows;
        if (asp_tile_role_of(t->g, n, &rows) == ASP_TILE_NONE) continue;
        int64_t base = 0;
        for (uint32_t i = 0; i < info->n_in; i++) base = asp_max(base, t->base[info->in[i].i]);
        if (!base && (info->op == ASP_OP_gemm_nt || info->op == ASP_OP_gemm_nn))
            base = asp_max(asp_tile_width(t, info->in[0]), stream);
        for (uint32_t i = 0; base && i < info->n_out; i++)
            if (asp_tile_width(t, (asp_val){info->first.i + i}) > base)
                t->base[info->first.i + i] = base;
    }
}

void asp_tile_index(asp_tiler *t, asp_val seed)
{
    asp_arena *a = t->px->scratch;
    t->backward = ASP_NEW_ARRAY(a, bool, t->n_vals);
    t->order = ASP_NEW_ARRAY(a, uint32_t, t->n_nodes);
    t->base = ASP_NEW_ARRAY(a, int64_t, t->n_vals);
    t->parent = ASP_NEW_ARRAY(a, uint32_t, t->n_nodes);
    index_nodes(t, seed);
    index_readers(t);
    find_wide(t);
}

uint32_t asp_tile_root(asp_tiler *t, uint32_t i)
{
    while (t->parent[i] != i) i = t->parent[i] = t->parent[t->parent[i]];
    return i;
}

// Can all that read v run by the rows it has?
static bool is_read_by_rows(asp_tiler *t, asp_val v)
{
    asp_tile_shape s;
    asp_size rows;
    if (t->is_output[v.i] || !asp_tile_shape_of(t->g, asp_val_type(t->g, v), &s)) return false;
    for (const asp_node *r = t->readers[v.i]; r->i; r++)
        if (asp_tile_role_of(t->g, *r, &rows) == ASP_TILE_NONE || !asp_size_equal(rows, s.rows))
            return false;
    return true;
}

bool *asp_tile_join(asp_tiler *t)
{
    bool *spoilt = ASP_NEW_ARRAY(t->px->scratch, bool, t->n_nodes);
    for (uint32_t v = 1; v < t->n_vals; v++) {
        if (!t->base[v]) continue;
        uint32_t made = asp_tile_maker(t, (asp_val){v}).i;
        bool bad = !is_read_by_rows(t, (asp_val){v});
        for (const asp_node *r = t->readers[v]; r->i && !bad; r++) {
            uint32_t a = asp_tile_root(t, made), b = asp_tile_root(t, r->i);
            spoilt[a] |= spoilt[b];
            t->parent[b] = a;
        }
        spoilt[asp_tile_root(t, made)] |= bad;
    }
    return spoilt;
}
