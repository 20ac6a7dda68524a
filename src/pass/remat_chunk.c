// The bytes of a chunk of a tile, for the choice of what to keep: values made and read inside exist
// for one chunk of rows at a time, beside all that is kept.  An element-wise value that only such
// ops read is not written, as in row programs.  An estimate that the memory plan (run/memplan.c)
// makes exact.  O(nodes of the tile).  Neighbours: remat_describe.c (who asks), tile.h.
// SPDX-License-Identifier: Apache-2.0
#include "pass/nodeprice.h"
#include "pass/remat_int.h"
#include "pass/tile.h"

asp_remat_chunks asp_remat_chunks_of(const asp_pass *px, asp_arena *a, asp_graph *g)
{
    return (asp_remat_chunks){.px = px,
                              .g = g,
                              .last = ASP_NEW_ARRAY(a, uint32_t, g->vals.n),
                              .written = ASP_NEW_ARRAY(a, bool, g->vals.n)};
}

static bool is_light(const asp_remat_chunks *c, asp_node n)
{
    const asp_remat_class k = asp_remat_class_of(asp_node_at(c->g, n)->op);
    return k == ASP_REMAT_POINTWISE || k == ASP_REMAT_VIEW || k == ASP_REMAT_REDUCTION;
}

static void find_last(asp_remat_chunks *c, asp_node first, asp_node end)
{
    for (asp_node n = first; n.i != end.i; n = asp_node_at(c->g, n)->next) {
        const asp_node_info *info = asp_node_at(c->g, n);
        c->place++;
        for (uint32_t i = 0; i < info->n_in; i++) {
            c->last[info->in[i].i] = c->place;
            c->written[info->in[i].i] |= !is_light(c, n);
        }
        for (uint32_t i = 0; i < info->n_out; i++) {
            const asp_val v = {info->first.i + i};
            c->last[v.i] = c->place;
            c->written[v.i] = !is_light(c, n);
        }
    }
}

// Of v in a chunk; 0 for what has no rows, which is whole.
static asp_status bytes_of(const asp_remat_chunks *c, asp_val v, int64_t *out_bytes)
{
    asp_tile_shape s;
    int64_t rows, bytes;
    *out_bytes = 0;
    if (!asp_tile_shape_of(c->g, asp_val_type(c->g, v), &s)) return ASP_OK;
    ASP_TRY(asp_size_eval(c->g, s.rows, &c->px->options->env, &rows));
    ASP_TRY(asp_price_bytes(c->px, c->g, v, &bytes));
    if (rows > 0) *out_bytes = bytes / rows * asp_min(rows, c->g->tile_rows);
    return ASP_OK;
}

asp_status asp_remat_chunk_bytes(asp_remat_chunks *c, asp_node first, asp_node end,
                                 const bool *leaves, int64_t *out_bytes)
{
    int64_t live = 0, peak = 0, bytes;
    uint32_t place = c->place;
    const uint32_t tile = asp_node_at(c->g, first)->tile;
    find_last(c, first, end);
    for (asp_node n = first; n.i != end.i; n = asp_node_at(c->g, n)->next) {
        const asp_node_info *info = asp_node_at(c->g, n);
        place++;
        for (uint32_t i = 0; i < info->n_out && !asp_op_has(info->op, ASP_ALIAS); i++) {
            const asp_val v = {info->first.i + i};
            ASP_TRY(bytes_of(c, v, &bytes));
            if (c->written[v.i] && !leaves[v.i]) live += bytes;
        }
        peak = asp_max(peak, live);
        for (uint32_t i = 0; i < info->n_in; i++) {
            const asp_val v = info->in[i];
            const asp_node_info *maker = asp_val_node(c->g, v);
            bool twice = false;
            for (uint32_t k = 0; k < i; k++) twice |= info->in[k].i == v.i;
            if (twice || maker->tile != tile || leaves[v.i] || c->last[v.i] != place ||
                asp_op_has(maker->op, ASP_ALIAS) || !c->written[v.i])
                continue;
            ASP_TRY(bytes_of(c, v, &bytes));
            live -= bytes;
        }
    }
    *out_bytes = peak;
    return ASP_OK;
}
