// Tiles as loops: the steps of a tile are planned once for a chunk of rows, and once more for the
// rows that are left over; the executor runs them chunk by chunk.  Neighbours: pass/tile.h (what a
// tile is), program.c (steps of a node), memplan.c (how long storages live), executor.c.
//
//   values made and read inside     memory for one chunk
//   values from or for outside      whole; places move on by a chunk's rows
//   sums over the rows              whole; added to from the second chunk on, in the order of the
//   rows
// SPDX-License-Identifier: Apache-2.0
#include "pass/fuse.h"
#include "run/run_int.h"

// ---- storages ----------------------------------------------------------------------------------

asp_status asp_planner_find_local(asp_planner *p)
{
    asp_graph *g = p->g;
    asp_tile_shape s;
    bool *outside = ASP_NEW_ARRAY(&p->scratch, bool, g->vals.n);
    p->local = ASP_NEW_ARRAY(&p->scratch, bool, g->vals.n);
    p->carry_of = ASP_NEW_ARRAY(&p->scratch, uint32_t, g->vals.n);
    ASP_TRY(asp_tile_check(g));
    for (uint32_t i = 0; i < g->outputs.n; i++) outside[g->outputs.at[i].val.i] = true;
    ASP_FOR_NODES_REVERSE (g, n) {
        const asp_node_info *info = asp_node_at(g, n);
        for (uint32_t i = 0; i < info->n_in; i++) {
            bool elsewhere = asp_val_node(g, info->in[i])->tile != info->tile;
            bool view = asp_op_has(info->op, ASP_ALIAS) && outside[info->first.i];
            outside[info->in[i].i] |= elsewhere || view;
        }
        for (uint32_t i = 0; info->tile && i < info->n_out; i++) {
            asp_val v = asp_node_result(g, n, i);
            p->local[v.i] = !outside[v.i] && asp_tile_shape_of(g, asp_val_type(g, v), &s);
        }
    }
    return ASP_OK;
}

asp_offset asp_planner_offset(asp_planner *p, asp_val v)
{
    const asp_type *t = asp_val_type(p->g, v);
    asp_tile_shape s;
    int64_t dim[ASP_MAX_RANK], bytes = asp_dtypes[t->dtype].bytes;
    if (!p->chunk.tile || p->storages.at[p->storage_of[v.i]].local ||
        !asp_tile_shape_of(p->g, t, &s))
        return (asp_offset){0};
    ASP_CHECK(asp_planner_dims(p, t, dim) == ASP_OK); // it has gone well for the whole
    for (uint32_t d = s.lead; d < t->rank; d++) bytes *= dim[d];
    return (asp_offset){.bytes = p->chunk.from * bytes,
                        .stride = p->chunk.moves ? p->chunk.n * bytes : 0,
                        .part = p->chunk.n * bytes};
}

// A storage of one chunk for result v of n.
static asp_status give_local(asp_planner *p, asp_node n, asp_val v)
{
    asp_tensor t;
    ASP_TRY(asp_planner_tensor(p, v, &t));
    int64_t bytes = asp_tensor_count(&t) * asp_dtypes[t.dtype].bytes;
    p->storage_of[v.i] = asp_planner_new_storage(p, ASP_MEM_ACTIVATION, bytes, n);
    p->storages.at[p->storage_of[v.i]].local = true;
    return ASP_OK;
}

// Is v, of a row program, read by its members alone?
static bool is_inside_group(const asp_planner *p, asp_node n, asp_val v, asp_node end)
{
    const uint32_t group = asp_node_at(p->g, n)->group;
    for (asp_node r = asp_node_at(p->g, n)->next; r.i != end.i; r = asp_node_at(p->g, r)->next) {
        const asp_node_info *info = asp_node_at(p->g, r);
        for (uint32_t i = 0; i < info->n_in; i++)
            if (info->in[i].i == v.i && info->group != group) return false;
    }
    return group != 0;
}

static asp_status give_storages(asp_planner *p, asp_node first, asp_node end)
{
    for (asp_node n = first; n.i != end.i; n = asp_node_at(p->g, n)->next) {
        const asp_node_info *info = asp_node_at(p->g, n);
        for (uint32_t i = 0; i < info->n_out; i++) {
            asp_val v = asp_node_result(p->g, n, i);
            if (!p->local[v.i]) continue;
            if (asp_op_has(info->op, ASP_ALIAS))
                p->storage_of[v.i] = p->storage_of[info->in[0].i];
            else if (is_inside_group(p, n, v, end))
                p->storage_of[v.i] = 0;
            else
                ASP_TRY(give_local(p, n, v));
        }
    }
    return ASP_OK;
}

// ---- sums --------------------------------------------------------------------------------------

// out = in, and from the second chunk on out += in.
static void accumulate(const asp_kcall *k, asp_worker *w)
{
    const int64_t count = asp_tensor_count(&k->out[0]);
    for (int64_t i = w->thread; i < count; i += w->n_threads) {
        if (k->out[0].dtype == ASP_F64) {
            double *sum = (double *)k->out[0].data + i;
            *sum = (k->chunk ? *sum : 0.0) + ((const double *)k->in[0].data)[i];
        } else {
            float *sum = (float *)k->out[0].data + i;
            *sum = (k->chunk ? *sum : 0.0f) + ((const float *)k->in[0].data)[i];
        }
    }
}

static asp_status add_accumulate(asp_planner *p, asp_node n, asp_val v, uint32_t from, uint32_t to)
{
    asp_kcall *call = ASP_NEW(&p->plan->arena, asp_kcall);
    *call = (asp_kcall){.n_in = 1, .n_out = 1};
    ASP_TRY(asp_planner_tensor(p, v, &call->in[0]));
    call->out[0] = call->in[0];
    if (call->in[0].dtype != ASP_F32 && call->in[0].dtype != ASP_F64)
        return asp_fail(p->cx, ASP_ERR_UNSUPPORTED, "%s: sums of %s over chunks of rows",
                        asp_node_str(p->g, n), asp_dtypes[call->in[0].dtype].name);
    asp_step *s = asp_planner_add_step(p, ASP_STEP_KERNEL, n, "accumulate");
    s->call = call;
    s->fn = accumulate;
    asp_planner_add_storage(p, s, from, (asp_offset){0});
    asp_planner_add_storage(p, s, to, (asp_offset){0});
    return ASP_OK;
}

// Kernels that add to their result themselves.
static bool adds_itself(asp_op op) { return op == ASP_OP_gemm_tn || op == ASP_OP_nll; }

// Sums of n that need a storage for a chunk's share: gives one, and keeps the whole one in sums.
typedef ASP_VEC(struct {
    asp_node node;
    asp_val val;
    uint32_t whole;
}) open_sums;

static asp_status open_sum(asp_planner *p, asp_node n, open_sums *sums)
{
    const asp_node_info *info = asp_node_at(p->g, n);
    asp_tile_shape s;
    for (uint32_t i = 0; i < info->n_out && !adds_itself(info->op); i++) {
        asp_val v = asp_node_result(p->g, n, i);
        if (asp_tile_shape_of(p->g, asp_val_type(p->g, v), &s)) continue;
        ASP_RESERVE(&p->scratch, sums, sums->n + 1);
        sums->at[sums->n].node = n;
        sums->at[sums->n].val = v;
        sums->at[sums->n++].whole = p->storage_of[v.i];
        ASP_TRY(give_local(p, n, v));
    }
    return ASP_OK;
}

static asp_status close_sums(asp_planner *p, open_sums *sums)
{
    for (uint32_t i = 0; i < sums->n; i++) {
        asp_val v = sums->at[i].val;
        ASP_TRY(add_accumulate(p, sums->at[i].node, v, p->storage_of[v.i], sums->at[i].whole));
        p->storage_of[v.i] = sums->at[i].whole;
    }
    sums->n = 0;
    return ASP_OK;
}

// ---- loops -------------------------------------------------------------------------------------

// The loss goes on through all chunks as a sum in double.
static void carry_loss(asp_planner *p, asp_node n, uint32_t step)
{
    if (asp_node_at(p->g, n)->op != ASP_OP_nll) return;
    uint32_t *c = &p->carry_of[asp_node_at(p->g, n)->first.i];
    if (!*c) *c = asp_planner_new_storage(p, ASP_MEM_WORKSPACE, (int64_t)sizeof(double), n);
    p->step_carry.at[step] = *c;
}

static asp_status add_body(asp_planner *p, asp_node first, asp_node end)
{
    open_sums sums = {0};
    ASP_TRY(give_storages(p, first, end));
    for (asp_node n = first, next; n.i != end.i; n = next) {
        const uint32_t before = p->plan->steps.n, group = asp_node_at(p->g, n)->group;
        asp_node m = n;
        do {
            ASP_TRY(open_sum(p, m, &sums));
            m = asp_node_at(p->g, m)->next;
        } while (group && m.i != end.i && asp_node_at(p->g, m)->group == group);
        ASP_TRY(asp_planner_add_node(p, n, &next));
        if (p->plan->steps.n > before) carry_loss(p, n, p->plan->steps.n - 1);
        ASP_TRY(close_sums(p, &sums));
    }
    return ASP_OK;
}

static asp_status add_loop(asp_planner *p, asp_node first, asp_node end, int64_t trips,
                           int64_t first_chunk)
{
    asp_plan *plan = p->plan;
    asp_loop loop = {.first = plan->steps.n, .trips = trips, .first_chunk = first_chunk};
    p->chunk.moves = trips > 1;
    ASP_TRY(add_body(p, first, end));
    loop.end = plan->steps.n;
    for (uint32_t i = loop.first; i < loop.end; i++) plan->steps.at[i].trips = trips;
    ASP_PUSH(&plan->arena, &plan->loops, loop);
    p->tiles.at[p->tiles.n - 1].last = loop.end - 1;
    return ASP_OK;
}

asp_status asp_planner_add_tile(asp_planner *p, asp_node first, asp_node *out_next)
{
    const uint32_t tile = asp_node_at(p->g, first)->tile;
    asp_chunk chunk = {.tile = tile};
    int64_t rows, each = p->g->tile_rows;
    asp_node end = first;
    while (end.i && asp_node_at(p->g, end)->tile == tile) end = asp_node_at(p->g, end)->next;
    ASP_CHECK(asp_tile_role_of(p->g, first, &chunk.rows) != ASP_TILE_NONE); // asp_tile_check
    ASP_TRY(asp_size_eval(p->g, chunk.rows, &p->plan->options.env, &rows));
    ASP_PUSH(&p->scratch, &p->tiles, (asp_tile_span){.first = p->plan->steps.n});
    p->chunk = chunk;
    p->chunk.n = each;
    if (rows >= each) ASP_TRY(add_loop(p, first, end, rows / each, 0));
    p->chunk.n = rows % each;
    p->chunk.from = rows / each * each;
    if (p->chunk.n) ASP_TRY(add_loop(p, first, end, 1, rows / each));
    p->chunk = (asp_chunk){0};
    *out_next = end;
    return ASP_OK;
}
