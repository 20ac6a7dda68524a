// Describes a joint graph for flow/remat.h: values with bytes and storages, ops with a class, a
// layer and the time they take at this S on this machine.  A tile (tile.c) is one op.
// O(nodes).  Neighbours: remat.h (contract), nodeprice.h (bytes and times), remat_marks.c.
// SPDX-License-Identifier: Apache-2.0
#include "pass/nodeprice.h"
#include "pass/remat.h"
#include "pass/remat_int.h"

typedef struct describer {
    const asp_pass *px;
    asp_remat_description *x;
    asp_arena scratch; // of prices, reset by each
    asp_device device;
    asp_remat_chunks chunks;
} describer;

asp_remat_class asp_remat_class_of(asp_op op)
{
    if (asp_op_has(op, ASP_ALIAS)) return ASP_REMAT_VIEW;
    switch (asp_ops[op].cost) {
    case ASP_COST_LINK: return ASP_REMAT_COLLECTIVE;
    case ASP_COST_GEMM: return ASP_REMAT_GEMM;
    case ASP_COST_SDPA:
    case ASP_COST_SDPA_GRAD: return ASP_REMAT_ATTENTION;
    case ASP_COST_FREE:
    case ASP_COST_STREAM: break;
    }
    static const asp_op reductions[] = {
        ASP_OP_sum,         ASP_OP_sum_groups,      ASP_OP_count_valid, ASP_OP_amax,
        ASP_OP_amin,        ASP_OP_max_dim,         ASP_OP_min_dim,     ASP_OP_argmax,
        ASP_OP_argmin,      ASP_OP_logsumexp,       ASP_OP_softmax,     ASP_OP_softmax_grad,
        ASP_OP_log_softmax, ASP_OP_log_softmax_grad};
    for (size_t i = 0; i < ASP_COUNT_OF(reductions); i++)
        if (reductions[i] == op) return ASP_REMAT_REDUCTION;
    if (op == ASP_OP_cat) return ASP_REMAT_CONCAT;
    // Gathers and scatters by ids, and the loss, read far more than they would save.
    static const asp_op others[] = {ASP_OP_embedding,
                                    ASP_OP_embedding_grad,
                                    ASP_OP_nll,
                                    ASP_OP_nll_grad,
                                    ASP_OP_pick,
                                    ASP_OP_pick_grad,
                                    ASP_OP_label_weights,
                                    ASP_OP_gather,
                                    ASP_OP_scatter,
                                    ASP_OP_scatter_add,
                                    ASP_OP_index_select,
                                    ASP_OP_index_add,
                                    ASP_OP_topk,
                                    ASP_OP_sort,
                                    ASP_OP_cumsum,
                                    ASP_OP_scan,
                                    ASP_OP_conv,
                                    ASP_OP_conv_input_grad,
                                    ASP_OP_conv_weight_grad};
    for (size_t i = 0; i < ASP_COUNT_OF(others); i++)
        if (op == others[i]) return ASP_REMAT_OTHER;
    return ASP_REMAT_POINTWISE;
}

static bool grows_with_sequence(const asp_graph *g, const asp_type *t)
{
    for (uint32_t d = 0; d < t->rank; d++)
        if (asp_size_mentions(g, t->dim[d], "S")) return true;
    return false;
}

static const char *name_of(const asp_remat_description *x, asp_val v)
{
    const asp_val_info *info = asp_val_at(x->g, v);
    const char *loc = asp_node_at(x->g, info->node)->loc;
    const char *op = asp_ops[asp_node_at(x->g, info->node)->op].name;
    if (info->name) return info->name;
    return asp_printf(x->arena, "%%%u (%s%s%s)", v.i, op, *loc ? " at " : "", loc);
}

static asp_status describe_value(describer *d, asp_val v, uint32_t flags)
{
    asp_remat_description *x = d->x;
    const asp_val_info *info = asp_val_at(x->g, v);
    asp_remat_value value = {.root = x->values.n, .flags = flags};
    const asp_node_info *n = asp_node_at(x->g, info->node);
    if (asp_op_has(n->op, ASP_ALIAS)) value.root = x->values.at[x->index_of[n->in[0].i]].root;
    if (grows_with_sequence(x->g, &info->type)) value.flags |= ASP_REMAT_SEQUENCE;
    ASP_TRY_NOTE(d->px->cx, asp_price_bytes(d->px, x->g, v, &value.bytes), "%s",
                 asp_node_str(x->g, info->node));
    x->index_of[v.i] = x->values.n;
    x->val_of[x->values.n] = v;
    ASP_PUSH(x->arena, &x->values, value);
    ASP_PUSH(x->arena, &x->names, name_of(x, v));
    return ASP_OK;
}

static bool is_input(asp_op op) { return op == ASP_OP_input || op == ASP_OP_param; }

#define MOST_SCRATCH ((size_t)1 << 20)
#define MOST_SECONDS 0x1p20 // an op that takes longer is as good as impossible to repeat

static asp_status time_of(describer *d, asp_node n, int64_t *out_ps)
{
    double seconds;
    if (d->scratch.total_bytes > MOST_SCRATCH)
        asp_arena_reset(&d->scratch); // new blocks are not free
    ASP_TRY(asp_price_seconds(d->px, &d->scratch, d->x->g, &d->device, n, &seconds));
    *out_ps = (int64_t)((seconds < MOST_SECONDS ? seconds : MOST_SECONDS) * 1e12);
    return ASP_OK;
}

asp_node asp_remat_behind(const asp_graph *g, asp_node n)
{
    const uint32_t tile = asp_node_at(g, n)->tile;
    do n = asp_node_at(g, n)->next;
    while (n.i && tile && asp_node_at(g, n)->tile == tile);
    return n;
}

// What node n of a unit reads of other units, whether it is backward, and how long it takes.
static asp_status describe_node(describer *d, asp_node n, asp_remat_op *op)
{
    asp_remat_description *x = d->x;
    const asp_node_info *info = asp_node_at(x->g, n);
    int64_t time_ps;
    for (uint32_t i = 0; i < info->n_in; i++) {
        const asp_val v = info->in[i];
        if (info->tile && asp_val_node(x->g, v)->tile == info->tile) continue;
        op->backward |= x->backward[v.i];
        bool known = false;
        for (uint32_t k = op->first_read; k < x->reads.n && info->tile; k++)
            known |= x->reads.at[k] == x->index_of[v.i];
        if (!known) ASP_PUSH(x->arena, &x->reads, x->index_of[v.i]);
    }
    op->n_reads = x->reads.n - op->first_read;
    ASP_TRY_NOTE(d->px->cx, time_of(d, n, &time_ps), "%s", asp_node_str(x->g, n));
    if (asp_add_overflows(op->time_ps, time_ps, &op->time_ps)) op->time_ps = INT64_MAX;
    return ASP_OK;
}

// A unit, the nodes from first to before end, is a node or a tile.  Of a tile only what is read
// outside is a value: the rest never exists whole.
static asp_status describe_op(describer *d, asp_node first, asp_node end, asp_val seed)
{
    asp_remat_description *x = d->x;
    const asp_node_info *head = asp_node_at(x->g, first);
    asp_remat_op op = {.kind = head->tile ? ASP_REMAT_GEMM : asp_remat_class_of(head->op),
                       .backward = head->first.i == seed.i,
                       .block = (int32_t)asp_loc_block(head->loc),
                       .first_read = x->reads.n,
                       .first_result = x->values.n};
    op.fusible = op.kind == ASP_REMAT_POINTWISE || op.kind == ASP_REMAT_VIEW ||
                 op.kind == ASP_REMAT_REDUCTION;
    for (asp_node n = first; n.i != end.i; n = asp_node_at(x->g, n)->next)
        ASP_TRY(describe_node(d, n, &op));
    for (asp_node n = first; n.i != end.i; n = asp_node_at(x->g, n)->next)
        for (uint32_t i = 0; i < asp_node_at(x->g, n)->n_out; i++) {
            const asp_val v = asp_node_result(x->g, n, i);
            x->backward[v.i] = op.backward;
            if (!head->tile || x->leaves[v.i]) ASP_TRY(describe_value(d, v, 0));
        }
    op.n_results = x->values.n - op.first_result;
    if (head->tile) ASP_TRY(asp_remat_chunk_bytes(&d->chunks, first, end, x->leaves, &op.scratch));
    x->node_of[x->ops.n] = first;
    ASP_PUSH(x->arena, &x->ops, op);
    return ASP_OK;
}

static void find_leaves(asp_remat_description *x)
{
    ASP_FOR_NODES (x->g, n)
        for (uint32_t i = 0; i < asp_node_at(x->g, n)->n_in; i++) {
            const asp_val v = asp_node_at(x->g, n)->in[i];
            x->leaves[v.i] |= asp_val_node(x->g, v)->tile != asp_node_at(x->g, n)->tile;
        }
    for (uint32_t i = 0; i < x->g->outputs.n; i++) x->leaves[x->g->outputs.at[i].val.i] = true;
}

// Outputs named like a parameter are what the backward returns: they are written to the slab of
// gradients and take no memory of their own.
static void describe_outputs(asp_remat_description *x, const asp_map *params)
{
    for (uint32_t i = 0; i < x->g->outputs.n; i++) {
        const asp_output *o = &x->g->outputs.at[i];
        bool gradient = asp_map_find(params, o->name, strlen(o->name)) != UINT32_MAX;
        uint32_t v = x->index_of[o->val.i];
        const bool late = gradient || x->backward[o->val.i]; // or a loss of describe_ends
        x->values.at[v].flags |= late ? ASP_REMAT_BACKWARD_OUTPUT : ASP_REMAT_FORWARD_OUTPUT;
        if (gradient && x->backward[o->val.i]) x->values.at[x->values.at[v].root].bytes = 0;
    }
}

// A tile that makes the loss and its derivative in one is backward: the forward ends with what the
// tile, or anything between it and the loss, reads of it.
static void describe_ends(asp_remat_description *x)
{
    uint32_t *op_of = ASP_NEW_ARRAY(x->arena, uint32_t, x->values.n);
    bool *wanted = ASP_NEW_ARRAY(x->arena, bool, x->values.n);
    for (uint32_t i = 0; i < x->ops.n; i++)
        for (uint32_t r = 0; r < x->ops.at[i].n_results; r++)
            op_of[x->ops.at[i].first_result + r] = i + 1;
    for (uint32_t i = 0; i < x->g->outputs.n; i++) {
        const asp_output *o = &x->g->outputs.at[i];
        if (strcmp(o->name, "loss") == 0) wanted[x->index_of[o->val.i]] = x->backward[o->val.i];
    }
    for (uint32_t v = x->values.n; v-- > 0;) { // readers come before what they read
        if (!wanted[v] || !op_of[v]) continue;
        const asp_remat_op *op = &x->ops.at[op_of[v] - 1];
        if (!op->backward) {
            x->values.at[v].flags |= ASP_REMAT_FORWARD_OUTPUT | ASP_REMAT_MUST_SAVE;
            continue;
        }
        for (uint32_t r = 0; r < op->n_reads; r++) wanted[x->reads.at[op->first_read + r]] = true;
    }
}

#define MOST_PS 0x1p59 // of all ops: the search adds times up in 64 bits

// A million tokens on a small machine take weeks: only what times are to each other matters then.
static void scale_times(asp_remat_description *x)
{
    double total = 0;
    for (uint32_t i = 0; i < x->ops.n; i++) total += (double)x->ops.at[i].time_ps;
    if (total <= MOST_PS) return;
    for (uint32_t i = 0; i < x->ops.n; i++)
        x->ops.at[i].time_ps = (int64_t)((double)x->ops.at[i].time_ps * (MOST_PS / total));
}

// Parameters and inputs live for the whole step: keeping them costs nothing.
static asp_status describe_all(describer *d, asp_val seed)
{
    asp_remat_description *x = d->x;
    asp_map params;
    asp_map_init(&params, x->arena);
    ASP_FOR_NODES (x->g, n) {
        const asp_node_info *info = asp_node_at(x->g, n);
        if (!is_input(info->op)) continue;
        bool param = info->op == ASP_OP_param, added;
        ASP_TRY(describe_value(d, info->first, ASP_REMAT_STATIC | (param ? ASP_REMAT_TRAINED : 0)));
        if (!param) continue;
        const char *name = ((const asp_param_attr *)info->attr)->name;
        asp_map_add(&params, name, strlen(name), &added);
    }
    uint32_t n_inputs = x->values.n;
    for (asp_node n = x->g->head, end; n.i; n = end) {
        end = asp_remat_behind(x->g, n);
        if (!is_input(asp_node_at(x->g, n)->op)) ASP_TRY(describe_op(d, n, end, seed));
    }
    describe_outputs(x, &params);
    describe_ends(x);
    scale_times(x);
    x->program = (asp_remat_program){.values = x->values.at,
                                     .n_values = x->values.n,
                                     .n_inputs = n_inputs,
                                     .ops = x->ops.at,
                                     .n_ops = x->ops.n,
                                     .reads = x->reads.at,
                                     .n_reads = x->reads.n,
                                     .names = x->names.at};
    return asp_remat_mark(d->px, x);
}

asp_status asp_remat_describe(const asp_pass *px, asp_arena *a, asp_graph *g,
                              asp_remat_description *out_description)
{
    asp_remat_description x = {.arena = a, .g = g};
    asp_val seed = asp_graph_find(g, ASP_SEED_NAME);
    if (!seed.i)
        return asp_fail(px->cx, ASP_ERR_INPUT,
                        "graph %s has no backward part; run the pass `grad` before `remat`",
                        g->name);
    x.index_of = ASP_NEW_ARRAY(a, uint32_t, g->vals.n);
    x.val_of = ASP_NEW_ARRAY(a, asp_val, g->vals.n);
    x.node_of = ASP_NEW_ARRAY(a, asp_node, g->nodes.n);
    x.backward = ASP_NEW_ARRAY(a, bool, g->vals.n);
    x.leaves = ASP_NEW_ARRAY(a, bool, g->vals.n);
    find_leaves(&x);
    describer d = {.px = px, .x = &x, .device = asp_price_device(px)};
    d.chunks = asp_remat_chunks_of(px, a, g);
    asp_arena_init(&d.scratch, px->cx);
    asp_status s = describe_all(&d, seed);
    asp_arena_fini(&d.scratch);
    *out_description = x;
    return s;
}
