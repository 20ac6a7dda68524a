// Describes a joint graph for flow/remat.h: values with bytes and storages, ops with a class, a
// layer and the time they take at this S on this machine.
// O(nodes).  Neighbours: remat.h (contract), nodeprice.h (bytes and times), remat_marks.c.
// SPDX-License-Identifier: Apache-2.0
#include "pass/nodeprice.h"
#include "pass/remat.h"

typedef struct describer {
    const asp_pass *px;
    asp_remat_description *x;
    asp_arena scratch; // of prices, reset by each
    asp_device device;
} describer;

static asp_remat_class class_of(asp_op op)
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

#define MOST_SECONDS 0x1p20 // an op that takes longer is as good as impossible to repeat

static asp_status time_of(describer *d, asp_node n, int64_t *out_ps)
{
    double seconds;
    asp_arena_reset(&d->scratch);
    ASP_TRY(asp_price_seconds(d->px, &d->scratch, d->x->g, &d->device, n, &seconds));
    *out_ps = (int64_t)((seconds < MOST_SECONDS ? seconds : MOST_SECONDS) * 1e12);
    return ASP_OK;
}

static asp_status describe_op(describer *d, asp_node n, asp_val seed)
{
    asp_remat_description *x = d->x;
    const asp_node_info *info = asp_node_at(x->g, n);
    asp_remat_op op = {.kind = class_of(info->op),
                       .backward = info->first.i == seed.i,
                       .block = (int32_t)asp_loc_block(info->loc),
                       .first_read = x->reads.n,
                       .n_reads = info->n_in,
                       .first_result = x->values.n,
                       .n_results = info->n_out};
    op.fusible = op.kind == ASP_REMAT_POINTWISE || op.kind == ASP_REMAT_VIEW ||
                 op.kind == ASP_REMAT_REDUCTION;
    for (uint32_t i = 0; i < info->n_in; i++) {
        op.backward |= x->backward[info->in[i].i];
        ASP_PUSH(x->arena, &x->reads, x->index_of[info->in[i].i]);
    }
    for (uint32_t i = 0; i < info->n_out; i++) {
        asp_val v = asp_node_result(x->g, n, i);
        x->backward[v.i] = op.backward;
        ASP_TRY(describe_value(d, v, 0));
    }
    ASP_TRY_NOTE(d->px->cx, time_of(d, n, &op.time_ps), "%s", asp_node_str(x->g, n));
    x->node_of[x->ops.n] = n;
    ASP_PUSH(x->arena, &x->ops, op);
    return ASP_OK;
}

// Outputs named like a parameter are what the backward returns: they are written to the slab of
// gradients and take no memory of their own.
static void describe_outputs(asp_remat_description *x, const asp_map *params)
{
    for (uint32_t i = 0; i < x->g->outputs.n; i++) {
        const asp_output *o = &x->g->outputs.at[i];
        bool gradient = asp_map_find(params, o->name, strlen(o->name)) != UINT32_MAX;
        uint32_t v = x->index_of[o->val.i];
        x->values.at[v].flags |= gradient ? ASP_REMAT_BACKWARD_OUTPUT : ASP_REMAT_FORWARD_OUTPUT;
        if (gradient && x->backward[o->val.i]) x->values.at[x->values.at[v].root].bytes = 0;
    }
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
    ASP_FOR_NODES (x->g, n)
        if (!is_input(asp_node_at(x->g, n)->op)) ASP_TRY(describe_op(d, n, seed));
    describe_outputs(x, &params);
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
    describer d = {.px = px, .x = &x, .device = asp_price_device(px)};
    asp_arena_init(&d.scratch, px->cx);
    asp_status s = describe_all(&d, seed);
    asp_arena_fini(&d.scratch);
    *out_description = x;
    return s;
}
